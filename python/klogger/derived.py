# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Derived tables: what a schema makes of its events once for each log, such as quanta and waits, so
that questions over many logs are plain SQL.

Each file `schemata/SCHEMA/derived/NAME.sql` makes the table SCHEMA_NAME. It has the header of an
analysis (title, question, events, include, column), and the section `table`. A column `time` or
`from_ns` says when a row is.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import duckdb

from klogger import analysis
from klogger.analysis import Analysis
from klogger.columns import Column
from klogger.failure import Failure
from klogger.statements import check_query, executed

VIEW = "klogger_derived"
TIMES = ("time", "from_ns")
# Those that Parquet, Spark and Trino have as well. Unsigned ones become signed (`klogger.columns`).
TYPE = re.compile(r"(BOOLEAN|U?TINYINT|U?SMALLINT|U?INTEGER|U?BIGINT|FLOAT|DOUBLE|VARCHAR)(\[\])*")


def find(schemas: Iterable[Mapping[str, Any]], events: Container[str]) -> dict[str, Analysis]:
    """By the names of the tables: those for which a log has the `events`, or with a fault in their
    header.
    """
    found: dict[str, Analysis] = {}
    for schema in schemas:
        name = str(schema.get("name", ""))
        for path in analysis.derived_of(name, str(schema.get("file", ""))):
            one = analysis.parse(path, name)
            if one.faults or all(event.upper() in events for event in one.events):
                found.setdefault(f"{name}_{path.stem}", one)
    return found


def version(one: Analysis) -> str:
    """Of its SQL: another version may have other rows."""
    return f"{zlib.crc32(one.whole().encode()):08x}"


def prepare(one: Analysis, cursor: duckdb.DuckDBPyConnection) -> tuple[tuple[Column, ...], str]:
    """Makes the temporary view VIEW. Its columns, and the one that says when a row is."""
    if "table" not in one.sections:
        raise Failure(f"{one.path}: no section 'table'")
    where = f"{one.path}, section 'table'"
    check_query(cursor, one.placed("table"), where)
    with executed(cursor, f"CREATE OR REPLACE TEMP VIEW {VIEW} AS {one.placed('table')}", where):
        pass
    with executed(cursor, f"DESCRIBE {VIEW}", where) as described:
        rows = described.fetchall()
    columns = tuple(Column(str(name), str(kind)) for name, kind, *_ in rows)
    return columns, check(one, columns)


def check(one: Analysis, columns: Sequence[Column]) -> str:
    for column in columns:
        if not TYPE.fullmatch(column.type):
            raise Failure(
                f"{one.path}: column {column.name} is {column.type}, which not every engine has",
                help="cast it to a type that they have, as in x::BIGINT",
            )
        if column.name not in one.columns:
            raise Failure(
                f"{one.path}: column {column.name} is not documented",
                help=f"write '-- column {column.name}: what it holds'",
            )
    time = next((c.name for c in columns if c.name in TIMES and c.type == "BIGINT"), None)
    if time is None:
        raise Failure(
            f"{one.path}: no column says when a row is",
            help="name one 'time' or 'from_ns': ns since the log's start, a BIGINT",
        )
    return time
