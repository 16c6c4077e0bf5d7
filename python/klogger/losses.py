# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the ledger says about an answer: which losses may touch it."""

from __future__ import annotations

from collections.abc import Iterable

from klogger.gaps import OF_PROGRAMS
from klogger.ledger import cause_of, places
from klogger.log import Log
from klogger.numerals import agreed
from klogger.units import printable

# Losses of one kind are summed up; a log has at most this many kinds that are worth a line.
KINDS_MAX = 6


def warnings(log: Log, events: Iterable[str]) -> list[str]:
    """One sentence for each kind of loss of these events, or of all events."""
    if is_clean(log):
        return []
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
    return found + samples(log, names) + excluded(log, names)


def is_clean(log: Log) -> bool:
    """Most logs are, and there may be thousands of them. The ledger of an open log stays the
    same.
    """
    if log.clean is None:
        found = log.connection.cursor().execute(
            "SELECT EXISTS (FROM klogger.ledger WHERE severity IN ('loss', 'error')"
            " OR key IN ('rate_limited', 'excluded'))"
        )
        log.clean = not found.fetchall()[0][0]
    return log.clean


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


def excluded(log: Log, names: Iterable[str] | None = None) -> list[str]:
    """One sentence for each condition and each choice of CPUs that kept events (of `names`, or of
    all) out of the log, as they were asked for.
    """
    rows = log.connection.cursor().execute(
        "SELECT DISTINCT event, text FROM klogger.ledger WHERE key = 'excluded'"
        " AND ($1 IS NULL OR event IS NULL OR list_contains($1, upper(event))) ORDER BY ALL",
        [list(names) if names is not None else None],
    )
    return [kept_out(event, text) for event, text in rows.fetchall()]


def kept_out(event: str | None, text: str | None) -> str:
    """`only SCHEDIN with: prio < 130; others are neither in the log nor counted`"""
    detail, _, _ = cause_of(text).rpartition(": ")
    said = detail or f"not all of {event or 'the events'}"
    return printable(f"{said}; others are neither in the log nor counted, as requested")


def sampled(event: str, logged: int, left_out: int) -> str:
    """`FORK is sampled (--rate-limit): 1,000 of 2,500 are in the log, so counts and sums of it are
    too low`
    """
    share = f"{logged:,} of {logged + left_out:,} are in the log"
    return printable(
        f"{event} is sampled (--rate-limit): {share}, so counts and sums of it are too low"
    )


def sentence(key: str, count: int | None, text: str | None, places: list[str]) -> str:
    """`1,234 events are missing (SCHEDIN, SCHEDOUT; CPU 0; 1.200000 s to 1.310000 s): CAUSE`. The
    remedy is in the report's head, and in `klogger info`, once.
    """
    what = agreed(f"{count:,} events are missing") if count else "events may be missing"
    where = f" ({'; '.join(places)})" if places else ""
    return printable(f"{what}{where}: {cause_of(text) or key}")
