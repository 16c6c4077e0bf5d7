# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The findings that a report begins with: those that explain most of what was recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from klogger.executor import LOW_WEIGHT, Result

COUNT = 3
# What explains less is not what a report begins with. Findings that have no weight are not judged
# by it.
LEAST_WEIGHT = 0.01


@dataclass(frozen=True)
class Finding:
    """`weight`: the share, 0 to 1, of the recorded time or work that it explains."""

    text: str
    weight: float
    analysis: str


def of(result: Result) -> list[Finding]:
    """What one analysis found, the heaviest first."""
    if result.status != "answer":
        return []
    pairs = zip_longest(result.findings, result.weights, fillvalue=LOW_WEIGHT)
    found = [Finding(str(text), float(weight), result.analysis.name) for text, weight in pairs]
    return sorted(found, key=lambda f: -f.weight)


def is_heavy(finding: Finding) -> bool:
    return finding.weight == LOW_WEIGHT or finding.weight >= LEAST_WEIGHT


def first(results: Iterable[Result], count: int = COUNT) -> list[Finding]:
    """The heaviest of all. One from each analysis, and more only if there are not enough.

    Among equals the order of the analyses decides.
    """
    each = [found for found in ([f for f in of(r) if is_heavy(f)] for r in results) if found]
    best = sorted((found[0] for found in each), key=lambda f: -f.weight)
    rest = sorted((f for found in each for f in found[1:]), key=lambda f: -f.weight)
    return sorted((best + rest)[:count], key=lambda f: -f.weight)
