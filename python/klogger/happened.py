# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All events of a log, of whatever schemata, in one view, and their texts.

The view `happened` has of each event its time, its place, its name and the thread that it belongs
to. The text of an event costs much more than that, so the table function `told` makes those of the
events that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from klogger.made import Made
from klogger.sqltext import identifier, literal

if TYPE_CHECKING:
    from klogger.log import Event, Field

# Columns of every table, and of events of programs: a field of such a name has a `_` added.
COMMON = ("time", "cpu", "serial")
OF_THREADS = ("tid", "tgid")
# Decodings that every log has; those of schemata are functions of their names.
WORDS = frozenset({"hex", "code", "stack", "device", "ip", "endpoint", "errno"})


def create(made: Made, events: Iterable[tuple[Event, bool]]) -> None:
    """`events`: of which the log has some, but for the recorder's own; and whether programs log
    them.
    """
    connection, events = made.connection, list(events)
    forms = [made.sources.get(f'main."{event.name}"', ()) for event, _ in events]
    if made.is_there("happened", [(e.name, p, e.fields) for e, p in events], forms):
        return
    # A table that the log lacks has other columns.
    there = set(
        connection.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE schema_name = 'main'"
        ).fetchall()
    )
    arms, texts = [], []
    for event, of_programs in events:
        needed = [*COMMON, *(["tid"] if of_programs else [])]
        needed += [name_of(field, of_programs) for field in event.fields]
        if not there.issuperset((event.name, name) for name in needed):
            continue
        table = f"main.{identifier(event.name)}"
        place = f"time, cpu, serial, {literal(event.name)} AS event"
        who = thread_of(event, of_programs)
        arms.append(f"SELECT {place}, {who}::INTEGER AS pid FROM {table}")
        texts.append(
            f"SELECT k.*, {text_of(event, of_programs)} AS what"
            f" FROM query_table(source) AS k JOIN {table} AS e ON k.event = {literal(event.name)}"
            " AND k.time = e.time AND k.serial = e.serial AND k.cpu IS NOT DISTINCT FROM e.cpu"
        )
    arms.append(
        "SELECT 0::BIGINT AS time, 0::SMALLINT AS cpu, 0::BIGINT AS serial, '' AS event,"
        " 0 AS pid WHERE false"
    )
    texts.append("SELECT k.*, '' AS what FROM query_table(source) AS k WHERE false")
    connection.execute(f"CREATE OR REPLACE VIEW klogger.happened AS {' UNION ALL '.join(arms)}")
    connection.execute(
        f"CREATE OR REPLACE MACRO klogger.told(source) AS TABLE {' UNION ALL '.join(texts)}"
    )


def name_of(field: Field, of_programs: bool) -> str:
    taken = COMMON + OF_THREADS if of_programs else COMMON
    return f"{field.name}_" if field.name in taken else field.name


def column(field: Field, of_programs: bool) -> str:
    return identifier(name_of(field, of_programs))


def thread_of(event: Event, of_programs: bool) -> str:
    """The column with the thread that an event belongs to: the one that was running, if the event
    has it, or else the first that it names.
    """
    if of_programs:
        return "tid"
    threads = [field for field in event.fields if field.decode == "thread"]
    running = [field for field in threads if field.name == "tid"]
    return next((column(field, False) for field in running + threads), "NULL")


def text_of(event: Event, of_programs: bool) -> str:
    """SQL: the fields as `klogger cat` prints them."""
    parts = []
    for field in event.fields:
        value = f"e.{column(field, of_programs)}"
        if field.decode == "thread":
            shown = f"klogger.thread({value}, e.time)"
        elif field.decoding is not None or field.decode in WORDS:
            shown = f"klogger.{identifier(field.decoding or str(field.decode))}({value})"
        else:
            shown = f"{value}::VARCHAR"
        parts.append(f"{literal(field.name + '=')} || coalesce({shown}, '')")
    return " || ' ' || ".join(parts) or "''"
