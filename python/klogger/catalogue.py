# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What can be asked about a log: its tables with their columns, and the functions."""

from __future__ import annotations

from dataclasses import dataclass

from klogger import decodings, prelude, spans
from klogger.log import Log

NUMERIC = {
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "NUMBER",
}  # fmt: skip
COMMON = {
    "time": ("ns", "since the log's start"),
    "cpu": ("", "-1: the recorder itself; NULL: a thread of a program"),
    "serial": ("", "counts each CPU's, or each thread's, attempts to log; a gap is a loss"),
}
# After them, in the tables of events that programs may log.
THREAD = {
    "tid": ("", "thread id; NULL: a CPU logged it"),
    "tgid": ("", "process id"),
}


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    unit: str
    doc: str


@dataclass(frozen=True)
class Table:
    name: str
    doc: str
    columns: tuple[Column, ...]


def tables(log: Log) -> list[Table]:
    """The event tables, then those that every log has."""
    types: dict[tuple[str, str], list[tuple[str, str]]] = {}
    query = (
        "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()"
        " WHERE schema_name IN ('main', 'klogger') AND NOT internal"
        " ORDER BY table_name, column_index"
    )
    for schema, table, column, kind in log.rows(query):
        types.setdefault((schema, table), []).append((column, kind))
    found = [
        event_table(log, name, types.get(("main", event.name), []))
        for name, event in log.events.items()
    ]
    # Of a dataset, the events are of many logs.
    for (schema, name), named in sorted(types.items()):
        if schema == "main" and name.upper() not in log.events:
            listed = tuple(Column(c, t, "ns" if c.endswith("_ns") else "", "") for c, t in named)
            what = "an event" if name.isupper() else "what a schema derives of its events"
            found.append(Table(name, what, listed))
    for name, doc in {**prelude.DOCS, **spans.DOCS}.items():
        if ("klogger", name) not in types:
            continue
        columns = tuple(
            Column(c, t, "ns" if c.endswith("_ns") else "", "")
            for c, t in types.get(("klogger", name), [])
        )
        found.append(Table(name, doc, columns))
    return found


def event_table(log: Log, name: str, types: list[tuple[str, str]]) -> Table:
    event = log.events[name]
    general = {**COMMON, **THREAD} if log.is_of_programs(event) else COMMON
    # A field that has the name of another column has a `_` at its end.
    fields = {f.name + "_" * (f.name in general): f for f in event.fields}
    columns = []
    for column, kind in types:
        field = fields.get(column)
        if field is not None:
            columns.append(Column(column, kind, field.unit or "", field.doc or ""))
        else:
            columns.append(Column(column, kind, *general.get(column, ("", ""))))
    lost = f", {event.lost:,} lost" if event.lost else ""
    return Table(event.name, f"{event.doc} ({event.logged:,} logged{lost})", tuple(columns))


def functions(log: Log) -> list[tuple[str, str]]:
    found = [
        ("comm(pid, time)", "name of a thread at a time"),
        ("duration(ns)", "as text: 1.23 ms"),
        (
            "with_program('TABLE')",
            "the rows of a table, and the name of the thread `pid` as `program`",
        ),
        (
            "curve_of('TABLE', points)",
            "distribution of ns by series: so many points a doubling",
        ),
    ]
    own = dict(decodings.DOCS)
    for (name,) in log.rows("SELECT DISTINCT decoding FROM klogger.decoding ORDER BY 1"):
        own.setdefault(f"{name}(x)", "text of a value")
    return found + list(own.items())
