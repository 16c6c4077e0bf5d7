# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Answers about events of schemata that have no analyses of their own: those made of trace events
(`-e NAME`), and examples. They are SQL files like those of a schema, in which the names of events
and fields are filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from klogger import analysis
from klogger.analysis import Analysis
from klogger.happened import column, thread_of
from klogger.sqltext import identifier, literal

if TYPE_CHECKING:
    from klogger.log import Event, Log

FOLDER = Path(__file__).parent
# The schema of the events that every log has.
BUILTIN = "klogger"
# Words in names of events that begin something, and of those that end it. An event without such a
# word begins what one of the same name with such a word ends: vfs_read and vfs_read_return.
BEGINS = re.compile(r"(^|_)(enter|entry|begin|start)(_|$)", re.IGNORECASE)
ENDS = re.compile(r"(^|_)(exit|end|done|complete|finish|return|stop)(_|$)", re.IGNORECASE)


def of(log: Log, brought: Iterable[Analysis] = ()) -> list[Analysis]:
    """Those of a log, if it has events of schemata that none of the analyses `brought` is of."""
    others = {BUILTIN, *(one.schema for one in brought)}
    events = [event for event in log.events.values() if event.schema not in others]
    if not events:
        return []
    filled = {
        "events": ", ".join(literal(event.name) for event in events),
        "capitals": ", ".join(literal(event.name.upper()) for event in events),
        "fields": " UNION ALL ".join(times_of(log, events)) or NO_TIMES,
        "pairs": ", ".join(
            f"({literal(name)}, {literal(a)}, {literal(b)})"
            for name, a, b in pairs(event.name for event in events)
        )
        or "(NULL, NULL, NULL)",
    }
    found = []
    for path in sorted(FOLDER.glob("*.sql")):
        text = Template(path.read_text()).substitute(filled)
        one = analysis.parse_text(path, events[0].schema, text)
        one.events = tuple(event.name for event in events)
        found.append(one)
    return sorted(found, key=lambda one: one.order)


def is_one(one: Analysis) -> bool:
    return one.path.parent == FOLDER


NO_TIMES = "SELECT '' AS what, 0::BIGINT AS ns, 0::BIGINT AS time, 0 AS pid WHERE false"


def times_of(log: Log, events: Iterable[Event]) -> Iterator[str]:
    """The query of each field in ns."""
    for event in events:
        of_programs = log.is_of_programs(event)
        for field in event.fields:
            if field.unit == "ns" and "[" not in field.type:
                yield (
                    f"SELECT {literal(f'{event.name} {field.name}')} AS what,"
                    f" {column(field, of_programs)}::BIGINT AS ns, time,"
                    f" {thread_of(event, of_programs)}::INTEGER AS pid"
                    f" FROM main.{identifier(event.name)}"
                )


def pairs(names: Iterable[str]) -> list[tuple[str, str, str]]:
    """Which of these events begin what another one ends, by their names: what is common to the two,
    and the two. Each is in one pair.
    """
    begins: dict[str, str] = {}
    ends: dict[str, str] = {}
    for name in names:
        if BEGINS.search(name):
            begins.setdefault(BEGINS.sub(r"\1*\3", name, count=1), name)
        elif ENDS.search(name):
            ends.setdefault(ENDS.sub(r"\1*\3", name, count=1), name)
        else:
            begins.setdefault(f"{name}_*", name)
    return [(stem, begins[stem], ends[stem]) for stem in begins if stem in ends]
