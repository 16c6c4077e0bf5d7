# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From blocks to a cost, and whether it is precise enough. Nothing here measures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Half of the measurements are between the quartiles: if these are further apart than this share of
# the median, the value is not precise.
WIDE = 0.25
# Two things that differ by less cannot be told apart, and need not be.
LEAST_NS = 2.0


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of some runs."""

    median: float
    low: float
    high: float
    runs: int

    def __format__(self, spec: str) -> str:
        return f"{self.median:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


def spread(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(statistics.median(values), low, high, len(values))


# By arm: nanoseconds a hit, block by block. Blocks with the same index stood side by side.
Blocks = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Pass:
    """One recording: what was measured while it ran, and, with nothing attached, just before and
    just after it.
    """

    during: Blocks
    before: Blocks
    after: Blocks


def over(blocks: Blocks, arm: str, base: str) -> float:
    """What an arm takes more than another one, block by block. Blocks that something disturbed are
    left out thereby.
    """
    return statistics.median(a - b for a, b in zip(blocks[arm], blocks[base], strict=True))


def added(one: Pass, arm: str, base: str, reference: str) -> float:
    """What an arm adds to a hit with nothing attached.

    `base` is the arm whose probe does nothing. From it to other arms it is a step between two
    blocks. To attach takes longer, and the machine's speed changes meanwhile: so this step is made
    twice, relative to `reference`, which is the same with and without probes.
    """
    bare = statistics.fmean(over(blocks, base, reference) for blocks in (one.before, one.after))
    return over(one.during, arm, base) + over(one.during, base, reference) - bare


@dataclass(frozen=True)
class Cost:
    """Nanoseconds a hit. Without a spread there is a reason why it is not measurable here."""

    ns: Spread | None
    why: str = ""


def judge(values: Sequence[float]) -> Cost:
    """One value from each pass: a cost, unless they are too far apart."""
    found = spread(values)
    if found.high - found.low > max(WIDE * abs(found.median), LEAST_NS):
        return Cost(
            None,
            f"the runs spread too wide: {found.low:.1f} to {found.high:.1f} ns "
            "between the quartiles",
        )
    return Cost(found)
