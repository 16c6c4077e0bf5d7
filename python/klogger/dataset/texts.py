# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a dataset has of each event beside its fields: the names of its threads, and the texts of
its values, which else only DuckDB with a log could tell.

Names are looked up in a table of a few rows, and a text is made once for each value that there is;
so a row costs a look-up by hashing for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from klogger import happened, spans
from klogger.columns import Column
from klogger.log import Event, Field, Log
from klogger.sqltext import identifier

# The name of a thread and from when to when it had it, as comm(pid, time) has it: a thread with one
# name had that at all times.
NAMES = """
CREATE TEMP TABLE IF NOT EXISTS klogger_name AS
SELECT pid, comm, (-9223372036854775808)::BIGINT AS from_ns, 9223372036854775807 AS to_ns
FROM klogger.thread WHERE names = 1
UNION ALL
SELECT pid, first(comm), from_ns,
    lead(from_ns, 1, 9223372036854775807) OVER (PARTITION BY pid ORDER BY from_ns)
FROM klogger.renamed GROUP BY pid, from_ns"""
# Decodings of every log whose texts are kept. A number in hexadecimal needs no log, and the text of
# a stack is in the table `stack`.
WORDS = ("code", "device", "ip", "endpoint", "errno")


@dataclass(frozen=True)
class Text:
    """A column that is added: its name, the table that is joined, and its value from that."""

    name: str
    join: str
    value: str


def query(log: Log, event: Event, columns: Sequence[Column]) -> tuple[str, tuple[Column, ...]]:
    """The rows of an event with these columns, and those that are added."""
    table = f"main.{identifier(event.name)}"
    texts = list(texts_of(log, event, table, columns))
    if not texts:
        return table, ()
    log.connection.execute(NAMES)
    values = ", ".join(f"{t.value} AS {identifier(t.name)}" for t in texts)
    joins = " ".join(t.join for t in texts)
    added = tuple(Column(t.name, "VARCHAR") for t in texts)
    return f"(SELECT e.*, {values} FROM {table} AS e {joins})", added


def texts_of(log: Log, event: Event, table: str, columns: Sequence[Column]) -> Iterator[Text]:
    there = {c.name for c in columns}
    threads = {c.name for c in columns if c.type in spans.INTEGERS}
    taken = {c.stored for c in columns}
    of_programs = log.is_of_programs(event)
    who = happened.thread_of(event, of_programs)
    place = 0
    if who.strip('"') in threads:
        yield named(free("comm", taken), place, who)
    for field in event.fields:
        column = happened.column(field, of_programs)
        if column.strip('"') not in there or column == who:
            continue
        place += 1
        if field.decode == "thread" and column.strip('"') in threads:
            yield named(free(f"{field.name}_comm", taken), place, column)
        elif function := function_of(field):
            yield decoded(free(f"{field.name}_text", taken), place, column, function, table)


def function_of(field: Field) -> str | None:
    word = field.decoding or (field.decode if field.decode in WORDS else None)
    return f"klogger.{identifier(word)}" if word else None


def free(name: str, taken: set[str]) -> str:
    """Fields keep their names."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def named(name: str, place: int, column: str) -> Text:
    n = f"n{place}"
    at = f"{n}.pid = e.{column} AND e.time >= {n}.from_ns AND e.time < {n}.to_ns"
    join = f"LEFT JOIN klogger_name AS {n} ON {at}"
    return Text(name, join, f"coalesce({n}.comm, e.{column}::VARCHAR)")


def decoded(name: str, place: int, column: str, function: str, table: str) -> Text:
    d = f"d{place}"
    values = f"SELECT DISTINCT {column} AS v FROM {table} WHERE {column} IS NOT NULL"
    join = f"LEFT JOIN (SELECT v, {function}(v) AS t FROM ({values})) AS {d} ON {d}.v = e.{column}"
    return Text(name, join, f"{d}.t")
