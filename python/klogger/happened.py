# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All events of a log, of whatever schemata, in one view, and their texts.

The view `happened` has of each event its time, its place, its name and the thread that it belongs
to. The text of an event costs much more than that, so the table function `told` makes those of the
events that are asked for.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from klogger.made import Made
from klogger.sqltext import identifier, literal

if TYPE_CHECKING:
    from klogger.log import Event, Field

# Columns of every table, and of events of programs: a field of such a name has a `_` added.
COMMON = ("time", "cpu", "serial")
OF_THREADS = ("tid", "tgid")
# Decodings that every log has; those of schemata are functions of their names.
WORDS = frozenset({"hex", "octal", "code", "stack", "device", "ip", "endpoint", "errno"})

# Of a field of one thread; lists have the names of theirs in place.
INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
PARTS = '"klogger parts"'
# The names of threads are looked for once, and not in each event's own part of the union: DuckDB
# would plan the search for each of them, which took longer than all else.
TOLD = """
CREATE OR REPLACE MACRO klogger.told(source) AS TABLE
  WITH "klogger found" AS MATERIALIZED (
    SELECT *, row_number() OVER () AS "klogger n" FROM ({arms})
  ), "klogger part" AS MATERIALIZED (
    SELECT "klogger n", time AS "klogger time", unnest("klogger parts") AS "klogger p",
           generate_subscripts("klogger parts", 1) AS "klogger i"
    FROM "klogger found"
  ), "klogger named" AS MATERIALIZED (
    SELECT "klogger x" AS "klogger pid", "klogger time",
           klogger.thread("klogger x", "klogger time") AS "klogger name"
    FROM (SELECT DISTINCT "klogger p".pid AS "klogger x", "klogger time" FROM "klogger part"
          WHERE "klogger p".pid IS NOT NULL)
  ), "klogger whole" AS (
    SELECT "klogger n",
           string_agg("klogger p".text || coalesce("klogger name", ''), '' ORDER BY "klogger i")
             AS what
    FROM "klogger part" LEFT JOIN "klogger named"
    ON "klogger p".pid = "klogger pid" AND "klogger part"."klogger time" =
       "klogger named"."klogger time"
    GROUP BY "klogger n"
  )
  SELECT * EXCLUDE ("klogger parts", "klogger n")
  FROM "klogger found" JOIN "klogger whole" USING ("klogger n")"""


def create(made: Made, events: Iterable[tuple[Event, bool]]) -> None:
    """`events`: of which the log has some, but for the recorder's own; and whether programs log
    them.
    """
    connection, events = made.connection, list(events)
    forms = [made.sources.get(f'main."{event.name}"', ()) for event, _ in events]
    if made.is_there("happened", [(e.name, p, e.fields) for e, p in events], forms):
        return
    # A table that the log lacks has other columns.
    there = {
        (table, name): str(kind)
        for table, name, kind in connection.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns()"
            " WHERE schema_name = 'main'"
        ).fetchall()
    }
    arms, texts = [], []
    for event, of_programs in events:
        needed = [*COMMON, *(["tid"] if of_programs else [])]
        needed += [name_of(field, of_programs) for field in event.fields]
        if any((event.name, name) not in there for name in needed):
            continue
        single = {n for t, n in there if t == event.name and there[t, n] in INTEGERS}
        table = f"main.{identifier(event.name)}"
        place = f"time, cpu, serial, {literal(event.name)} AS event"
        who = thread_of(event, of_programs)
        arms.append(f"SELECT {place}, {who}::INTEGER AS pid FROM {table}")
        texts.append(
            f"SELECT k.*, {parts_of(event, single, of_programs)} AS {PARTS}"
            f" FROM query_table(source) AS k JOIN {table} AS e ON k.event = {literal(event.name)}"
            " AND k.time = e.time AND k.serial = e.serial AND k.cpu IS NOT DISTINCT FROM e.cpu"
        )
    arms.append(
        "SELECT 0::BIGINT AS time, 0::SMALLINT AS cpu, 0::BIGINT AS serial, '' AS event,"
        " 0 AS pid WHERE false"
    )
    texts.append(f"SELECT k.*, NULL AS {PARTS} FROM query_table(source) AS k WHERE false")
    connection.execute(f"CREATE OR REPLACE VIEW klogger.happened AS {' UNION ALL '.join(arms)}")
    connection.execute(TOLD.format(arms=" UNION ALL ".join(texts)))


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


def process_of(event: Event, of_programs: bool) -> str:
    """The column with the process whose memory the addresses of an event are in."""
    if of_programs:
        return "e.tgid"
    own = next((field for field in event.fields if field.name == "tgid"), None)
    return f"e.{column(own, False)}" if own else "NULL"


def parts_of(event: Event, single: Container[str], of_programs: bool) -> str:
    """SQL: the fields as `klogger cat` prints them, as a list. Each part is a text and the thread
    whose name comes after it, if one does. `single`: the columns with one number.
    """
    parts, text = [], "''"
    for number, field in enumerate(event.fields):
        value = f"e.{column(field, of_programs)}"
        text += f" || {literal(' ' * bool(number) + field.name + '=')}"
        if field.decode == "thread" and name_of(field, of_programs) in single:
            parts.append(f"{{'text': {text}, 'pid': {value}::BIGINT}}")
            text = "''"
            continue
        text += f" || coalesce({shown(event, field, of_programs)}, '')"
    parts.append(f"{{'text': {text}, 'pid': NULL::BIGINT}}")
    return f"[{', '.join(parts)}]"


def shown(event: Event, field: Field, of_programs: bool) -> str:
    """SQL: the text of a field of `e`."""
    value = f"e.{column(field, of_programs)}"
    if field.decode == "thread":
        return f"klogger.thread({value}, e.time)"
    if field.decode == "data":
        return f"klogger.data({value}, {process_of(event, of_programs)}, e.time)"
    if field.decoding is not None or field.decode in WORDS:
        return f"klogger.{identifier(field.decoding or str(field.decode))}({value})"
    return f"{value}::VARCHAR"
