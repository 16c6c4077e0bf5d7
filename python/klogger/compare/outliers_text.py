# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a terminal and a page say of outliers."""

from __future__ import annotations

from collections.abc import Sequence

from klogger.compare.outliers import CHANCE, Found, Outlier
from klogger.units import show

# Of a recording's id, if no other one begins so.
ID_LENGTH = 8


def conclusion(found: Found) -> list[str]:
    tested = f"{found.tested:,} values compared with those of their peers"
    if not found.outliers:
        return [f"{tested}: no outliers"]
    chance = f"one in {round(1 / CHANCE)} outliers at most is chance, in the mean"
    return [f"{tested}: {len(found.outliers):,} outliers; {chance}"]


def head(where: str, found: Found) -> str:
    hosts = len({e.host for e in found.entries})
    return f"{where}: {len(found.entries):,} recordings of {hosts:,} hosts"


def effect_of(one: Outlier) -> str:
    if one.is_ratio:
        return f"×{one.effect:.3g}" if one.effect < 1000 else f"×{one.effect:,.0f}"
    return f"{'+' if one.effect > 0 else ''}{show(one.effect, one.unit)}"


def sentence(one: Outlier, by: Sequence[str]) -> str:
    """`host h17: quanta, hog, p50: 61 µs; the median of 30 is 20 µs; and 5 more values`"""
    value, median = (show(v, one.unit) for v in (one.value, one.median))
    also = f"; and {one.also:,} more values" if one.also else ""
    of = f"the median of {one.peers + 1:,}{group_of(one, by)} is {median}"
    return f"{who(one)}: {what(one)}: {value}; {of}{also}"


def what(one: Outlier) -> str:
    """Which number of which analysis."""
    return ", ".join(filter(None, [one.analysis, one.row, one.column.replace("_", " ")]))


def who(one: Outlier) -> str:
    return {
        "host": f"host {one.of}",
        "recording": f"recording {one.of[:ID_LENGTH]} of host {one.host}",
        "program": f"program {one.of}",
        "cpu": f"CPU {one.of} of host {one.host}",
    }[one.kind]


def group_of(one: Outlier, by: Sequence[str]) -> str:
    named = ", ".join(f"{b}={value}" for b, value in zip(by, one.group, strict=True))
    return f" with {named}" if named else ""
