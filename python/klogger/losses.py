# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the ledger says about an answer: which losses may touch it."""

from __future__ import annotations

from collections.abc import Iterable

from klogger.durations import duration
from klogger.gaps import OF_PROGRAMS
from klogger.log import Log
from klogger.units import printable

# Losses of one kind are summed up; a log has at most this many kinds that are worth a line.
KINDS_MAX = 6
# CPUs, and threads, that are named.
NUMBERS_MAX = 8


def warnings(log: Log, events: Iterable[str]) -> list[str]:
    """One sentence for each kind of loss of these events, or of all events."""
    names = sorted({e.upper() for e in events})
    of_programs = any(log.is_of_programs(log.events[n]) for n in names if n in log.events)
    rows = log.connection.cursor().execute(
        "SELECT key, sum(count)::BIGINT, any_value(text), list_sort(list(DISTINCT event)"
        " FILTER (event IS NOT NULL)),"
        " list_sort(list(DISTINCT cpu) FILTER (cpu IS NOT NULL)),"
        " list_sort(list(DISTINCT tid) FILTER (tid IS NOT NULL)), min(from_ns), max(to_ns)"
        " FROM klogger.ledger WHERE severity IN ('loss', 'error')"
        " AND (list_contains($1, upper(event))"
        f" OR (event IS NULL AND ($2 OR NOT {OF_PROGRAMS})))"
        " GROUP BY key ORDER BY 2 DESC, key LIMIT $3",
        [names, of_programs, KINDS_MAX],
    )
    found = [
        sentence(key, count, text, places(*rest)) for key, count, text, *rest in rows.fetchall()
    ]
    return found + samples(log, names)


def samples(log: Log, names: Iterable[str] | None = None) -> list[str]:
    """One sentence for each event (of `names`, or of all) whose rate was limited: what is counted
    is not all.
    """
    rows = log.connection.cursor().execute(
        "SELECT event, sum(count)::BIGINT FROM klogger.ledger WHERE key = 'rate_limited'"
        " AND event IS NOT NULL"
        " AND ($1 IS NULL OR list_contains($1, upper(event))) GROUP BY event ORDER BY event",
        [list(names) if names is not None else None],
    )
    logged = {e.name: e.logged for e in log.events.values()}
    return [sampled(event, logged.get(event, 0), left_out) for event, left_out in rows.fetchall()]


def sampled(event: str, logged: int, left_out: int) -> str:
    """`FORK is sampled (--rate-limit): 1,000 of 2,500 are in the log, so counts and sums of it are
    too low`
    """
    share = f"{logged:,} of {logged + left_out:,} are in the log"
    return printable(
        f"{event} is sampled (--rate-limit): {share}, so counts and sums of it are too low"
    )


def places(
    events: list[str] | None,
    cpus: list[int] | None,
    threads: list[int] | None,
    start: int | None,
    end: int | None,
) -> list[str]:
    """Which events, where, and when."""
    found = []
    if events:
        found.append(", ".join(events))
    for what, numbers in (("CPU", cpus), ("thread", threads)):
        if numbers:
            shown = [str(n) for n in numbers[:NUMBERS_MAX]] + (
                ["..."] if len(numbers) > NUMBERS_MAX else []
            )
            found.append(f"{what} {', '.join(shown)}")
    if start is not None:
        found.append(
            f"{duration(start)} to {duration(end)}"
            if end is not None
            else f"from {duration(start)}"
        )
    return found


def sentence(key: str, count: int | None, text: str | None, places: list[str]) -> str:
    """`1,234 events are missing (SCHEDIN, SCHEDOUT; CPU 0; thread 31; 1.20 s to 1.31 s): TEXT`"""
    what = f"{count:,} events are missing" if count else "events may be missing"
    where = f" ({'; '.join(places)})" if places else ""
    return printable(f"{what}{where}: {text or key}")
