# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The findings that a report begins with: those that explain most of what was recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from klogger.executor import Result

COUNT = 5
# What explains less than this part of what the heaviest finding explains is not what a report
# begins with: beside an hour of sleep, less than 3.6 seconds.
LEAST_PART = 0.001


@dataclass(frozen=True)
class Finding:
    """`weight`: the share, 0 to 1, of the recorded time or work that it explains; `None`: its
    analysis does not say.
    """

    text: str
    weight: float | None
    analysis: str


def by_weight(found: Iterable[Finding]) -> list[Finding]:
    """The heaviest first, then those without a weight. Equals stay in their order."""
    return sorted(found, key=lambda f: (f.weight is None, -(f.weight or 0.0)))


def of(result: Result) -> list[Finding]:
    """What one analysis found, the heaviest first."""
    if result.status != "answer":
        return []
    pairs = zip_longest(result.findings, result.weights)
    return by_weight(Finding(str(text), weight, result.analysis.name) for text, weight in pairs)


def first(results: Iterable[Result], count: int = COUNT) -> list[Finding]:
    """The heaviest of all. One from each analysis, and more only if there are not enough.

    Among equals the order of the analyses decides.
    """
    all_found = [of(result) for result in results]
    least = LEAST_PART * max((f.weight or 0.0 for found in all_found for f in found), default=0.0)
    kept = [[f for f in found if f.weight is None or f.weight >= least] for found in all_found]
    best = by_weight(found[0] for found in kept if found)
    rest = by_weight(f for found in kept for f in found[1:])
    return by_weight((best + rest)[:count])
