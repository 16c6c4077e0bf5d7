# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Costs that do not depend on how fast the machine was just then.

A virtual machine changes its speed from second to second, by more than tracers differ. A system call without a
tracepoint, the reference, becomes slower and faster with it. So costs are taken as multiples of the reference, block
beside block, and only at the end become nanoseconds: those of the reference's median.
"""

import statistics

from klogger.bench.events import EMPTY, REFERENCE
from klogger.bench.stats import Blocks, Pass, over


def reference(blocks: Blocks) -> float:
    return statistics.median(blocks[REFERENCE])


def relative(blocks: Blocks, arm: str, base: str) -> float:
    """What an arm takes more than another one, in references."""
    return over(blocks, arm, base) / reference(blocks)


def added(one: Pass, arm: str) -> float:
    """What an arm adds to a hit with nothing attached, in references; see klogger.bench.stats.added."""
    bare = statistics.fmean(relative(blocks, EMPTY, REFERENCE) for blocks in (one.before, one.after))
    return relative(one.during, arm, EMPTY) + relative(one.during, EMPTY, REFERENCE) - bare


class Speed:
    """References, as they are measured, and their median at the end."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def note(self, *all_blocks: Blocks) -> None:
        self.seen += map(reference, all_blocks)

    @property
    def ns(self) -> float:
        return statistics.median(self.seen)

    def in_ns(self, results: dict[str, list[float]]) -> dict[str, list[float]]:
        return {name: [value * self.ns for value in values] for name, values in results.items()}

    def words(self) -> str:
        low, high = min(self.seen), max(self.seen)
        return f"{self.ns:.0f} ns (it was between {low:.0f} and {high:.0f})"
