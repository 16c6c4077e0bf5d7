# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The events that a claim rests on, and what the log lacks.

An event is found again by its name, time, CPU and serial number. A claim has the first few, and of
all of them how many there are, and from when to when.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from klogger import ledger
from klogger.claims.stated import stated
from klogger.failure import Failure
from klogger.log import Log
from klogger.sqltext import identifier, literal
from klogger.statements import limited

FIRST = 3
PLACE = ("event", "time", "cpu", "serial")
ORDER = "time, cpu NULLS FIRST, serial, event"
# The schema of the recorder's own events.
BUILTIN = "klogger"


def asked(log: Log, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """Klogger's own queries, on a log that may be anybody's."""
    cursor = log.cursor()
    try:
        with limited(cursor, query, "claim"):
            return cursor.execute(query, list(values)).fetchall()
    finally:
        cursor.close()


def places_of(log: Log, events: Iterable[str] | None = None) -> str:
    """SQL: the places of the events of these types; None: of all but the recorder's own."""
    if events is None:
        known = [e.name for e in log.events.values() if e.schema != BUILTIN]
    else:
        names = dict.fromkeys(name.upper() for name in events)
        known = [log.events[name].name for name in names if name in log.events]
    arms = [
        f"SELECT {literal(name)} AS event, time, cpu, serial FROM main.{identifier(name)}"
        for name in known
    ]
    none = "SELECT '' AS event, 0 AS time, 0 AS cpu, 0 AS serial WHERE false"
    return " UNION ALL ".join(arms or [none])


def of_events(log: Log, events: Iterable[str] | None) -> dict[str, Any]:
    return of_query(log, places_of(log, events))


def of_query(log: Log, places: str) -> dict[str, Any]:
    """`places`: SQL with the columns event, time, cpu, serial."""
    none = ", ".join(["NULL"] * len(PLACE))
    # Of two queries, each would be planned.
    (count, begin, end, *_), *first = asked(
        log,
        f"WITH place AS MATERIALIZED ({places}), first AS (SELECT * FROM place ORDER BY {ORDER}"
        f" LIMIT {FIRST}) SELECT count(*), min(time), max(time), {none} FROM place"
        f" UNION ALL SELECT NULL, NULL, NULL, {', '.join(PLACE)} FROM first",
    )
    # The order of UNION ALL is kept (`asked.opened`); that of its parts need not be.
    places_first = sorted((row[3:] for row in first), key=order)
    return found(count, begin, end, places_first)


def order(place: Sequence[Any]) -> tuple[Any, ...]:
    """As `ORDER` has it."""
    name, time, cpu, serial = place
    return time, cpu is not None, cpu or 0, serial, name


def of_rows(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """`rows`: (event, time, cpu, serial) of all."""
    times = [row[1] for row in rows]
    return found(len(rows), min(times, default=None), max(times, default=None), rows[:FIRST])


def of_thread(log: Log, pid: int, since: int, until: int) -> dict[str, Any]:
    """The events of a thread in a span of time."""
    return of_query(
        log,
        f"SELECT {', '.join(PLACE)} FROM klogger.happened WHERE pid = {int(pid)}"
        f" AND time BETWEEN {int(since)} AND {int(until)}",
    )


def found(
    count: int, since: int | None, until: int | None, first: Iterable[Sequence[Any]]
) -> dict[str, Any]:
    listed = [[stated(value) for value in row] for row in first]
    return {"count": count, "from_ns": since, "to_ns": until, "first": listed}


def is_there(log: Log, place: Any) -> bool:
    """Whether the log has this event, at that time, with that serial number."""
    if not isinstance(place, list) or len(place) != len(PLACE):
        return False
    name, time, cpu, serial = place
    event = log.events.get(name.upper()) if isinstance(name, str) else None
    numbers = [time, serial, *([] if cpu is None else [cpu])]
    if event is None or event.name != name or any(type(n) is not int for n in numbers):
        return False
    query = (
        f"SELECT count(*) FROM main.{identifier(name)} WHERE time = $1 AND serial = $2"
        " AND cpu IS NOT DISTINCT FROM $3"
    )
    try:
        return bool(asked(log, query, [time, serial, cpu])[0][0])
    except (Failure, OverflowError):
        # A number that no column has.
        return False


def state(log: Log) -> dict[str, Any]:
    """Whether the log has all that was to be logged; otherwise how many events are missing by the
    keys of its ledger, null if that is not known.
    """
    lost = {
        stated(kind.key): kind.count or None
        for kind in ledger.read(log).kinds
        if kind.severity in ("loss", "error")
    }
    return {"complete": False, "lost": lost} if lost else {"complete": True}
