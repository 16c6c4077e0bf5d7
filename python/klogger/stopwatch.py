# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long it takes from one event to another: the paper's stopwatch, over events that are in the
log already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klogger import losses
from klogger.failure import Failure
from klogger.log import Event, Log

# The share of the longest intervals that the paper leaves out of a second mean and standard
# deviation.
WORST = 0.001

# Sorted by thread and time, an interval is a row of `begin` right before one of `end`: of nested
# ones the inner.
INTERVALS = """
CREATE OR REPLACE TEMP TABLE stopwatch AS
WITH row AS (
    SELECT whose, time, is_end, lead(time) OVER thread AS next, lead(is_end) OVER thread AS ended
    FROM ({rows}) WINDOW thread AS (PARTITION BY whose ORDER BY time, is_end DESC, serial)
)
SELECT whose, time AS from_ns, next AS to_ns, next - time AS ns,
       EXISTS (FROM {gaps} AS g WHERE g.from_ns < next AND g.to_ns > time
               AND (g.event IS NULL OR upper(g.event) IN ($begin, $end)) {same}) AS torn
FROM row WHERE NOT is_end AND ended
"""

SUMMARY = f"""
WITH kept AS (SELECT ns, row_number() OVER (ORDER BY ns) AS place, count(*) OVER () AS n
              FROM stopwatch WHERE NOT torn),
     trimmed AS (SELECT ns FROM kept WHERE place <= ceil(n * (1 - {WORST})))
SELECT (SELECT count(*) FROM kept) AS intervals,
       (SELECT count(*) FROM stopwatch WHERE torn) AS torn,
       avg(ns)::DOUBLE AS mean, coalesce(stddev_samp(ns), 0)::DOUBLE AS sd,
       (SELECT avg(ns)::DOUBLE FROM trimmed) AS trimmed_mean,
       (SELECT coalesce(stddev_samp(ns), 0)::DOUBLE FROM trimmed) AS trimmed_sd,
       min(ns) AS min, quantile_disc(ns, 0.5) AS p50, quantile_disc(ns, 0.9) AS p90,
       quantile_disc(ns, 0.99) AS p99,
       quantile_disc(ns, 0.999) AS p999, max(ns) AS max
FROM kept
"""


@dataclass(frozen=True)
class Stopwatch:
    """Times are ns; `trimmed_` is without the worst 0.1 %. `torn` intervals have a loss in them,
    and are left out.
    """

    begin: str
    end: str
    key: str
    begins: int
    ends: int
    intervals: int
    torn: int
    mean: float | None
    sd: float | None
    trimmed_mean: float | None
    trimmed_sd: float | None
    min: int | None
    p50: int | None
    p90: int | None
    p99: int | None
    p999: int | None
    max: int | None
    warnings: tuple[str, ...]


def measure(log: Log, begin: str, end: str, key: str | None = None) -> Stopwatch:
    """From each `begin` to the next `end` of the same thread; of one event, from each to the next.

    `key`: the field that says which thread it is, or what else belongs together. Default: the
    thread that logged, for events of programs; `pid` of others.
    """
    first, last = find(log, begin), find(log, end)
    column = key or default_key(log, first, last)
    for event in (first, last):
        check_key(log, event, column)
    of_programs = log.is_of_programs(first) and column == "tid"
    gaps = "klogger.thread_gap" if of_programs else "klogger.gap"
    same = "AND (g.tid IS NULL OR g.tid = whose)" if of_programs else ""
    rows = table_rows(first, column, "FALSE")
    # An event that is both end and begin comes twice, the end first.
    rows += " UNION ALL " + table_rows(last, column, "TRUE")
    cursor = log.cursor()
    cursor.execute(
        INTERVALS.format(rows=rows, gaps=gaps, same=same),
        {"begin": first.name.upper(), "end": last.name.upper()},
    )
    found = cursor.execute(SUMMARY)
    names = [d[0] for d in found.description or []]
    values: dict[str, Any] = dict(zip(names, found.fetchone() or (), strict=True))
    warnings = tuple(losses.warnings(log, {first.name, last.name}))
    return Stopwatch(
        first.name, last.name, column, first.logged, last.logged, **values, warnings=warnings
    )


def table_rows(event: Event, column: str, is_end: str) -> str:
    where = f'main."{event.name}" WHERE "{column}" IS NOT NULL'
    return f'SELECT "{column}" AS whose, time, serial, {is_end} AS is_end FROM {where}'


def find(log: Log, name: str) -> Event:
    for event in log.events.values():
        if event.name.upper() == name.upper():
            return event
    names = ", ".join(sorted(e.name for e in log.events.values() if e.logged))
    raise Failure(f"the log has no event '{name}'", help=f"logged were: {names}")


def fields(log: Log, event: Event) -> list[str]:
    own = [f.name for f in event.fields]
    return [*(["tid", "tgid"] if log.is_of_programs(event) else []), *own]


def default_key(log: Log, first: Event, last: Event) -> str:
    for column in ("tid", "pid"):
        if all(column in fields(log, event) for event in (first, last)):
            return column
    raise Failure(
        f"{first.name} and {last.name} do not say in one way which thread they are of",
        help=f"name the field that belongs together with --key; {last.name} has "
        f"{', '.join(fields(log, last))}",
    )


def check_key(log: Log, event: Event, column: str) -> None:
    if column not in fields(log, event):
        raise Failure(
            f"{event.name} has no field '{column}'", help=f"it has {', '.join(fields(log, event))}"
        )
