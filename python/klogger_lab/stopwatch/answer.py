# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a log of START and STOP says of the one action that it is about: the rows of the analyses,
as one answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from klogger.executor import Result

# The analyses that make up the answer, in the order of the report.
ANALYSES = ("stopwatch", "tails", "split", "matching", "own_cost", "trim_effect")


@dataclass(frozen=True)
class OwnCost:
    """Of empty pairs: `mean` and `sd` are without the worst thousandth. Times are ns."""

    pairs: int
    mean: float
    sd: float


@dataclass(frozen=True)
class Answer:
    """Times are ns, without the logger's own cost if `own` is known. `trimmed` is without the worst
    thousandth.

    `no_stop` and `no_start` count START and STOP without a partner; `crossed` those pairs that
    ended on another CPU than they began, and `clock` bounds how far the CPUs' clocks may be apart.
    """

    begin: str
    end: str
    key: str
    starts: int = 0
    stops: int = 0
    pairs: int = 0
    torn: int = 0
    no_stop: int = 0
    no_start: int = 0
    negative: int = 0
    crossed: int = 0
    clock: float | None = None
    mean: float | None = None
    sd: float | None = None
    trimmed: float | None = None
    trimmed_sd: float | None = None
    with_own: float | None = None
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    p999: float | None = None
    max: float | None = None
    own: OwnCost | None = None
    warnings: tuple[str, ...] = field(default=())


def first(results: Sequence[Result], name: str) -> dict[str, Any]:
    """The first row of an analysis."""
    for result in results:
        if result.analysis.name == name and result.table.rows:
            return result.table.records()[0]
    return {}


def of(results: Sequence[Result], begin: str, end: str, key: str) -> Answer:
    own = first(results, "own_cost")
    values = {
        **first(results, "matching"),
        **first(results, "tails"),
        **first(results, "stopwatch"),
    }
    values.pop("action", None)
    values["with_own"] = values.pop("sd_with_own", None)
    cost = OwnCost(own["pairs"], own["trimmed"], own["trimmed_sd"]) if own else None
    warnings = dict.fromkeys(
        w for r in results if r.analysis.name in ("stopwatch", "matching") for w in r.warnings
    )
    return Answer(begin, end, key, **values, own=cost, warnings=tuple(warnings))
