# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the ledger says about an answer: which losses may touch it."""

from __future__ import annotations

from collections.abc import Iterable

from klogger.log import Log
from klogger.units import duration, printable

# Losses of one kind are summed up; a log has at most this many kinds that are worth a line.
KINDS_MAX = 6


def warnings(log: Log, events: Iterable[str]) -> list[str]:
    """One sentence for each kind of loss of these events, or of all events."""
    names = sorted({e.upper() for e in events})
    rows = log.connection.cursor().execute(
        "SELECT key, sum(count)::BIGINT, list_sort(list(DISTINCT event) FILTER (event IS NOT NULL)),"
        " list_sort(list(DISTINCT cpu) FILTER (cpu IS NOT NULL)), min(from_ns), max(to_ns), any_value(text)"
        " FROM klogger.ledger WHERE severity IN ('loss', 'error')"
        " AND (event IS NULL OR list_contains($1, upper(event)))"
        " GROUP BY key ORDER BY 2 DESC, key LIMIT $2",
        [names, KINDS_MAX],
    )
    return [sentence(*row) for row in rows.fetchall()]


def sentence(
    key: str, count: int | None, events: list[str] | None, cpus: list[int] | None, start: int | None, end: int | None,
    text: str | None,
) -> str:  # fmt: skip
    """`1,234 events are missing (ring_full: SCHEDIN, SCHEDOUT; CPU 0; 1.20 s to 1.31 s): TEXT`"""
    places = []
    if events:
        places.append(", ".join(events))
    if cpus:
        shown = [str(c) for c in cpus[:8]] + (["..."] if len(cpus) > 8 else [])
        places.append(f"CPU {', '.join(shown)}")
    if start is not None:
        places.append(f"{duration(start)} to {duration(end)}" if end is not None else f"from {duration(start)}")
    what = f"{count:,} events are missing" if count else "events may be missing"
    where = f" ({'; '.join(places)})" if places else ""
    return printable(f"{what}{where}: {text or key}")
