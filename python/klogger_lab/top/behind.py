# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The events behind a row of an answer.

The rule: of the events that the analysis reads (`-- events:` in its header), those whose columns
have the values of the row. A column of the answer counts if it has no unit, and the table of the
event has a column of its name that is a number where the value is one, and a text where it is one;
also `cpu`, and `program`, the name of the thread that the event belongs to. An event that has none
of these columns is left out, unless no event has any: then all are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klogger.executor import Result
from klogger.happened import thread_of
from klogger.log import Event, Log
from klogger.sqltext import identifier, literal

# A screen has room for few; the newest are the ones to see.
ROWS = 500
NUMBERS = ("INT", "FLOAT", "DOUBLE", "DECIMAL")


@dataclass(frozen=True)
class Behind:
    """`rows` are time (ns since the window's start), cpu, event, program and the fields as text, in
    the order of time; `count` is of all. `conditions` says how they were chosen.
    """

    conditions: list[str]
    rows: list[tuple[Any, ...]]
    count: int


def find(log: Log, result: Result, row: list[Any]) -> Behind:
    values = keys(result, row)
    parts: dict[str, str] = {}
    said: dict[str, None] = {}
    events = [log.events[e.upper()] for e in result.analysis.events if e.upper() in log.events]
    events = [event for event in events if event.logged and is_text_of(log, event)]
    for event in events:
        conditions = conditions_of(log, event, values)
        if conditions:
            parts[event.name] = " AND ".join(conditions)
            said.update(dict.fromkeys(conditions))
    chosen = parts or {event.name: "true" for event in events}
    program = values.get("program")
    if isinstance(program, str):
        named = f"program = {literal(program)}"
        chosen = {e.name: parts.get(e.name, "true") for e in events}
        said[named] = None
    else:
        named = "true"
    if not chosen:
        return Behind(list(said), [], 0)
    return read(log, chosen, named, list(said))


def read(log: Log, chosen: dict[str, str], named: str, said: list[str]) -> Behind:
    """`chosen`: the condition of each event; `named`: one of the program's name."""
    arms = [
        f"SELECT time, cpu, serial, {literal(name)} AS event,"
        f" {thread_of(log.events[name.upper()], of_programs(log, name))}::INTEGER AS pid"
        f" FROM main.{identifier(name)} WHERE {condition}"
        for name, condition in chosen.items()
    ]
    cursor = log.cursor()
    try:
        cursor.execute(f"CREATE OR REPLACE TEMP VIEW behind_all AS {' UNION ALL '.join(arms)}")
        cursor.execute(
            "CREATE OR REPLACE TEMP TABLE behind AS"
            f" SELECT * FROM klogger.with_program('behind_all') WHERE {named}"
        )
        count = cursor.execute("SELECT count(*) FROM behind").fetchall()[0][0]
        cursor.execute(
            "CREATE OR REPLACE TEMP TABLE behind_shown AS"
            f" FROM behind ORDER BY time DESC, serial DESC LIMIT {ROWS}"
        )
        rows = cursor.execute(
            "SELECT time, cpu, event, program, what FROM klogger.told('behind_shown')"
            " ORDER BY time, cpu, serial"
        ).fetchall()
        return Behind(said, rows, count)
    finally:
        cursor.close()


def of_programs(log: Log, name: str) -> bool:
    return log.is_of_programs(log.events[name.upper()])


def is_text_of(log: Log, event: Event) -> bool:
    """Those of the recorder itself have no texts (`happened`)."""
    return event.schema != "klogger"


def keys(result: Result, row: list[Any]) -> dict[str, Any]:
    """The values of the row that say what it is about: those without a unit."""
    found = {}
    for name, value in zip(result.table.names, row, strict=True):
        column = result.analysis.columns.get(name)
        is_plain = isinstance(value, (int, str)) and not isinstance(value, bool)
        if is_plain and (column is None or (not column.unit and not column.bar)):
            found[name] = value
    return found


def conditions_of(log: Log, event: Event, values: dict[str, Any]) -> list[str]:
    """Of the columns that the table of this event has, with the same type."""
    described = log.rows(f"DESCRIBE main.{identifier(event.name)}")
    types = {str(name): str(kind) for name, kind, *_ in described}
    found = []
    for name, value in values.items():
        kind = types.get(name, "")
        if isinstance(value, int) and any(word in kind for word in NUMBERS) and "[" not in kind:
            found.append(f"{identifier(name)} = {value}")
        elif isinstance(value, str) and kind == "VARCHAR":
            found.append(f"{identifier(name)} = {literal(value)}")
    return found
