# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What logging took, as the recorder measured it before it recorded: for analyses that subtract it
from short times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from klogger.durations import duration
from klogger.made import Made

# No event takes a second: larger values in a log are invalid.
NS_MAX = 1e9
COUNT_MAX = 2048


# Of a log that does not say, nothing can be subtracted.
FUNCTION = """
CREATE MACRO klogger.cost_of(e) AS coalesce((
  SELECT any_value("klogger ns")
  FROM (SELECT event AS "klogger event", ns AS "klogger ns" FROM klogger.cost) AS "klogger x"
  WHERE "klogger event" = e), 0)::BIGINT"""


def create(made: Made, preamble: Mapping[str, Any]) -> None:
    """The table `cost` and the function `cost_of`. In the preamble there may be anything."""
    rows = [(name, *cost) for name, cost in of_events(preamble) if cost is not None]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    made.table(
        "klogger.cost",
        "SELECT unnest($1::VARCHAR[]) AS event, unnest($2::DOUBLE[]) AS ns,"
        " unnest($3::DOUBLE[]) AS low_ns, unnest($4::DOUBLE[]) AS high_ns",
        columns,
        same=True,
    )
    made.define("costs", FUNCTION)


def of_events(
    preamble: Mapping[str, Any],
) -> Iterable[tuple[str, tuple[float, float, float] | None]]:
    costs = preamble.get("costs")
    events = costs.get("events") if isinstance(costs, dict) else None
    for event in events[:COUNT_MAX] if isinstance(events, list) else []:
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            yield event["event"], three(event.get("cost"))


def three(cost: Any) -> tuple[float, float, float] | None:
    """Median and quartiles, or nothing if that is not what they are."""
    values = [cost.get(name) for name in ("ns", "low", "high")] if isinstance(cost, dict) else []
    numbers = [
        v for v in values if isinstance(v, int | float) and math.isfinite(v) and 0 <= v < NS_MAX
    ]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def note(preamble: Mapping[str, Any], events: Iterable[str]) -> str:
    """What an analysis has subtracted that names `events`; or that it could not."""
    wanted = [e.upper() for e in events]
    known = {name.upper(): cost for name, cost in of_events(preamble) if cost is not None}
    found = [f"{duration(known[e][0])} for {e}" for e in wanted if e in known]
    missing = [e for e in wanted if e not in known]
    loop = "Subtracted is what logging took in a loop, just before the recording"
    said = [f"{loop}: {', '.join(found)}. Cold caches add to that."]
    left = [
        "What logging took is in all times, for the log does not say how much: "
        f"{', '.join(missing)}."
    ]
    return " ".join((said if found else []) + (left if missing else []))
