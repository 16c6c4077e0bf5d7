# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Costs that do not depend on how fast the machine was just then.

A virtual machine changes its speed from second to second, by more than tracers differ. A system
call without a tracepoint, the reference, becomes slower and faster with it. So costs are taken as
multiples of the reference, block beside block, and only at the end become nanoseconds: those of the
reference's median.
"""

import contextlib
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from klogger_lab.bench.events import EMPTY, REFERENCE
from klogger_lab.bench.loop import Bench, Loop
from klogger_lab.bench.stats import Blocks, Pass, over


def reference(blocks: Blocks) -> float:
    return statistics.median(blocks[REFERENCE])


def relative(blocks: Blocks, arm: str, base: str) -> float:
    """What an arm takes more than another one, in references."""
    return over(blocks, arm, base) / reference(blocks)


def added(one: Pass, arm: str) -> float:
    """What an arm adds to a hit with nothing attached, in references; see
    klogger_lab.bench.stats.added.
    """
    bare = statistics.fmean(
        relative(blocks, EMPTY, REFERENCE) for blocks in (one.before, one.after)
    )
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


# Loops that have less of their CPUs than this share do not run at once, but by turns with others.
AT_ONCE = 0.8
TRIES = 5
LEAST_NICE = -20


class Ahead(Loop):
    """A loop that others on its CPU hardly hold up; but the recorder's real-time threads come
    before it.
    """

    def __init__(self, bench: Bench, cpu: int) -> None:
        words = [str(bench.program), str(cpu), str(bench.hits.block), str(bench.hits.pause_ns)]
        # In a session of its own it has a group of its own, where the kernel shares the CPU among
        # sessions.
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        os.setpriority(os.PRIO_PROCESS, self.pid, LEAST_NICE)
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.pid}/autogroup").write_text(str(LEAST_NICE))


def share(said: Mapping[str, Any], block: int) -> float:
    """How much of its CPU a loop has had."""
    return sum(map(sum, said["blocks"])) * block / said["mono_ns"]


def at_once(
    loops: Sequence[Loop], block: int, rounds: int, arms: Mapping[str, int]
) -> list[Blocks]:
    """Blocks of all loops at once, by loop; again, if something else had the CPUs meanwhile."""
    found = 0.0
    for _ in range(TRIES):
        for loop in loops:
            loop.ask("rounds", rounds, *arms.values())
        said = [loop.answer() for loop in loops]
        found = min(share(one, block) for one in said)
        if found >= AT_ONCE or len(loops) == 1:
            return [dict(zip(arms, one["blocks"], strict=True)) for one in said]
    raise RuntimeError(f"others use this machine: a loop had {found:.0%} of its CPU, {TRIES} times")
