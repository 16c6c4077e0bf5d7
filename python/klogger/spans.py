# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the time of file operations went to, of all schemata of a log: the tables
`klogger.operation` and `klogger.span`.

Each schema may have a file `spans.sql`, which makes a temporary table or view NAME_span, and
perhaps NAME_operation (docs/waterfall.md). They are filled when a query names one of them first,
for they may cost as much as an analysis. A file with a fault costs the spans of its schema, and a
warning.
"""

from __future__ import annotations

import functools
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb

from klogger import analysis, cpu_spans, folders, sources, statements
from klogger.analysis import Analysis, Fault
from klogger.failure import Failure, did_you_mean
from klogger.made import Made
from klogger.sqltext import identifier, literal

if TYPE_CHECKING:
    from klogger.log import Log
    from klogger.statements import Connect, Connection

    Fill = Callable[[Log, Connect], list[str]]

# From the call down to the disk: the order in which a waterfall has them.
LAYERS = (
    "system call", "lock", "journal", "allocation", "page cache", "queue", "device",
)  # fmt: skip
WHAT_MAX = 40
SPAN = {
    "pid": "INTEGER", "from_ns": "BIGINT", "to_ns": "BIGINT", "layer": "VARCHAR", "what": "VARCHAR",
    "device": "UINTEGER", "inode": "UBIGINT", "helper": "INTEGER", "waits": "BOOLEAN",
}  # fmt: skip
# What a schema may give as well: of a request to a disk, whose text is made of these.
OF_REQUESTS = {"bytes": "UBIGINT", "sector": "UBIGINT"}
OPERATION = {
    "id": "BIGINT", "pid": "INTEGER", "from_ns": "BIGINT", "to_ns": "BIGINT", "call": "VARCHAR",
    "device": "UINTEGER", "disk": "UINTEGER", "inode": "UBIGINT", "position": "BIGINT",
    "asked": "UBIGINT", "result": "BIGINT", "path": "VARCHAR",
}  # fmt: skip
FILE = {"device": "UINTEGER", "inode": "UBIGINT", "path": "VARCHAR"}
# What a schema makes as NAME_span, in the table klogger.made_span; the others are of one schema.
OPERATIONS = "operations"
# Among what has been filled: with the warnings of this schema alone.
OWN = "made_operation"
MADE = {"span": SPAN, "operation": OPERATION, "file": FILE}
# Texts are made when they are asked for: there may be millions of operations and of requests.
VIEWS = f"""
CREATE MACRO klogger.span_text(what, bytes, sector) AS CASE WHEN bytes IS NULL THEN what
  ELSE left(concat(what, ' ', bytes, ' B at ', sector), {WHAT_MAX}) END;
CREATE VIEW klogger.operation AS
  SELECT id, pid, from_ns, to_ns, call,
         CASE WHEN path IS NOT NULL THEN call || ' ' || path
              WHEN asked > 0 AND position >= 0 THEN call || ' ' || asked || ' B at ' || position
              WHEN asked > 0 THEN call || ' ' || asked || ' B'
              WHEN position >= 0 THEN call || ' at ' || position
              ELSE call END AS what,
         device, disk, inode, position, asked, result
  FROM klogger.made_operation;
CREATE VIEW klogger.span AS
  SELECT schema, pid, from_ns, to_ns, layer::VARCHAR AS layer,
         klogger.span_text(what, bytes, sector) AS what, device, inode, helper, waits
  FROM klogger.made_span
  UNION ALL
  SELECT 'operations', pid, from_ns, to_ns, 'system call', left(what, {WHAT_MAX}), device, inode,
         NULL, true
  FROM klogger.operation"""
DOCS = {
    "operation": "system calls for files, and requests of io_uring, of the schema operations",
    "span": "what each thread waited for, or had done for it; of all schemata that say so",
    "cpu_span": "who ran where, and when, if the schema scheduler was recorded",
}
DEVICES = """
UPDATE klogger.made_operation AS o SET device = f.device
FROM (
  SELECT n.id, s.device
  FROM (SELECT id, pid, from_ns, to_ns FROM klogger.made_operation WHERE device IS NULL) AS n
  ASOF JOIN (
    SELECT pid, from_ns, device FROM klogger.made_span
    WHERE pid IS NOT NULL AND device IS NOT NULL AND layer NOT IN ('queue', 'device')
  ) AS s ON n.pid = s.pid AND n.from_ns <= s.from_ns
  WHERE s.from_ns < n.to_ns
) AS f WHERE o.id = f.id"""
INTEGERS = {
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
    "UBIGINT", "UHUGEINT",
}  # fmt: skip
NAMED = re.compile(r"\b(operation|span|made_\w+)\b", re.IGNORECASE)
NAMED_SPAN = re.compile(r"\b(operation|span|made_span)\b", re.IGNORECASE)
NAMED_CPU = re.compile(r"\bcpu_span\b", re.IGNORECASE)


def create(made: Made) -> None:
    """The tables, empty as yet. Of millions of rows a layer is a number, in a byte each."""
    layers = ", ".join(map(literal, LAYERS))
    made.define("layer", f"CREATE TYPE klogger.layer AS ENUM ({layers})")
    for name in MADE:
        kinds = columns_made(name)
        if name == "span":
            kinds = {"schema": "VARCHAR", **kinds, "layer": "klogger.layer"}
        listed = ", ".join(f"{column} {kind}" for column, kind in kinds.items())
        table = f"klogger.made_{name}"
        made.define(table, f"CREATE OR REPLACE TABLE {table} ({listed})")
    made.define("spans", VIEWS)
    cpu_spans.create(made)


def changed(made: Made) -> None:
    """The tables have rows of the log before."""
    made.forget("klogger.made_")
    made.forget(cpu_spans.NAME)


def columns_made(name: str) -> dict[str, str]:
    return {**MADE[name], **(OF_REQUESTS if name == "span" else {})}


def fill_for(log: Log, text: str, connect: Connect | None = None) -> list[str]:
    """Fills the tables that a query names; gives the warnings. `connect`: to connections that stay
    open, so that what they include is there for the analyses as well.
    """
    warnings = []
    found = asked(text)
    if NAMED in found:
        every = filled(log, [f"made_{name}" for name in MADE], fill_spans, connect)
        warnings += every if NAMED_SPAN in found else log.filled.get(OWN, every)
    if NAMED_CPU in found:
        warnings += filled(log, ["cpu_span"], cpu_spans.fill, connect)
    return warnings


@functools.lru_cache(256)
def asked(text: str) -> frozenset[re.Pattern[str]]:
    """Which tables a query names. Of thousands of logs the queries are the same."""
    return frozenset(name for name in (NAMED, NAMED_SPAN, NAMED_CPU) if name.search(text))


def filled(log: Log, tables: list[str], fill: Fill, connect: Connect | None) -> list[str]:
    """Fills tables once; gives the warnings each time."""
    if tables[0] not in log.filled:
        log.filled[tables[0]] = []
        log.filled[tables[0]] = (
            fill_here(log, fill, connect) if log.locked else fill_apart(log, tables, fill)
        )
    return log.filled[tables[0]]


def fill_here(log: Log, fill: Fill, connect: Connect | None = None) -> list[str]:
    with ExitStack() as opened:

        def alone(_: Analysis) -> Connection:
            return opened.enter_context(log.cursor()), set()

        return fill(log, connect or alone)


def files_of(log: Log) -> Iterator[Analysis]:
    for schema in log.schemas:
        name = str(schema.get("name", ""))
        path = analysis.spans_of(name, str(schema.get("file", "")))
        if path is not None:
            yield parse(path, name)


INCLUDE = re.compile(r"-- include: (.*)")


def parse(path: Path, schema: str) -> Analysis:
    """A file of spans has no header but lines `-- include:`; all other comments are comments."""
    try:
        text = sources.read(path, analysis.schemata())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return Analysis("spans", path, schema, faults=[Fault(f"cannot be read: {why}")])
    words = [word for match in map(INCLUDE.fullmatch, text.splitlines()) if match
             for word in re.split(r"[,\s]+", match[1]) if word]  # fmt: skip
    if wrong := [word for word in words if not analysis.INCLUDED.fullmatch(word)]:
        fault = Fault(f"'{wrong[0]}' is neither NAME nor ../../SCHEMA/analyses/NAME")
        return Analysis("spans", path, schema, faults=[fault])
    return Analysis("spans", path, schema, includes=tuple(words), setup=text)


def fill_spans(log: Log, connect: Connect) -> list[str]:
    files = list(files_of(log))
    # Made here: only what is done with them takes place in several threads.
    opened = {one.path: connect(one) for one in files}

    def work(one: Analysis) -> list[str]:
        return fill_one(log, opened[one.path], one)

    cursors = [cursor for cursor, _included in opened.values()]
    said = folders.each(files, work, lambda: cursors, log.threads())
    warnings = []
    for one, texts in zip(files, said, strict=True):
        warnings += texts
        if one.schema == OPERATIONS:
            log.filled[OWN] = texts
    # Of a path that begins at the root, only what was done on the way tells the file system.
    log.connection.execute(DEVICES)
    return list(dict.fromkeys(warnings))


def fill_one(log: Log, connection: Connection, one: Analysis) -> list[str]:
    from klogger import losses

    said = []
    try:
        said += add(*connection, one)
        said += losses.warnings(log, events_of(log, one))
    except Failure as failure:
        said.append(f"no spans of {one.schema}: {failure}")
    return said


def fill_apart(log: Log, tables: list[str], fill: Fill) -> list[str]:
    """Files of SQL are untrusted: they get a connection that can reach no other files."""
    from klogger.log import open as open_log

    with tempfile.TemporaryDirectory(prefix="klogger-") as folder:
        files = {table: Path(folder) / f"{table}.parquet" for table in tables}
        with open_log(log.directory, locked=True, writable=files.values()) as locked:
            warnings = fill_here(locked, fill)
            log.filled.update((t, said) for t, said in locked.filled.items() if t == OWN)
            for table, file in files.items():
                locked.connection.execute(f"COPY klogger.{table} TO {literal(str(file))}")
        for table, file in files.items():
            source = f"read_parquet({literal(str(file))})"
            log.connection.execute(f"INSERT INTO klogger.{table} BY NAME FROM {source}")
    return warnings


def events_of(log: Log, one: Analysis) -> list[str]:
    """The events of a log that a file of spans names."""
    words = {word.upper() for word in re.findall(r"\w+", one.whole())}
    return [name for name in log.events if name in words]


def add(cursor: duckdb.DuckDBPyConnection, included: set[str], one: Analysis) -> list[str]:
    """What one schema makes: all of it or nothing. Gives warnings."""
    if one.faults:
        raise Failure(one.said(one.faults))
    statements.include(one, cursor, included)
    statements.execute_whole(cursor, one.placed("setup"), str(one.path))
    # Other schemata may have tables of such names for themselves.
    names = MADE if one.schema == OPERATIONS else ["span"]
    made = [name for name in names if columns_of(cursor, f"{one.schema}_{name}")]
    if not {"span", "operation"} & set(made):
        raise Failure(f"{one.path}: it makes no temporary table or view '{one.schema}_span'")
    for name in made:
        check(cursor, one, name)
    said = look_through(cursor, one, f"{one.schema}_span") if "span" in made else []
    try:
        cursor.execute("BEGIN")
        for name in made:
            insert(cursor, one, name)
        cursor.execute("COMMIT")
    except duckdb.Error as error:
        cursor.execute("ROLLBACK")
        raise Failure(f"{one.path}: {str(error).splitlines()[0]}") from None
    return said


# Also of a span without an end; one without a beginning is in no order.
IN_ORDER = "coalesce(from_ns <= coalesce(to_ns, from_ns), false)"


def insert(cursor: duckdb.DuckDBPyConnection, one: Analysis, name: str) -> None:
    given = columns_of(cursor, f"{one.schema}_{name}")
    chosen = ", ".join(
        f"left({column}::VARCHAR, {WHAT_MAX}) AS {column}"
        if column == "what"
        else f"{column}::{kind} AS {column}"
        for column, kind in columns_made(name).items()
        if column in given
    )
    order = ""
    if name == "span":
        chosen, order = f"{literal(one.schema)} AS schema, {chosen}", f" WHERE {IN_ORDER}"
    cursor.execute(
        f"INSERT INTO klogger.made_{name} BY NAME SELECT {chosen}"
        f" FROM {identifier(f'{one.schema}_{name}')}{order}"
    )


def columns_of(cursor: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """The columns of a temporary table or view, with their types; none if there is no such."""
    return dict(
        cursor.execute(
            "SELECT column_name, data_type FROM duckdb_columns()"
            " WHERE table_name = $1 AND schema_name = 'main' AND database_name = 'temp'",
            [table],
        ).fetchall()
    )


def check(cursor: duckdb.DuckDBPyConnection, one: Analysis, name: str) -> None:
    """Whether the columns are those that there must be. Numbers may be wider than needed."""
    table, wanted = f"{one.schema}_{name}", columns_made(name)
    given = columns_of(cursor, table)
    for column in MADE[name]:
        if column not in given:
            close = did_you_mean(column, set(given) - set(wanted))
            raise Failure(f"{one.path}: {table} has no column '{column}'", help=close)
    for column, kind in given.items():
        if column not in wanted:
            known = f"it has: {', '.join(MADE[name])}"
            raise Failure(f"{one.path}: {table} has an unknown column '{column}'", help=known)
        if not fits(kind, wanted[column]):
            raise Failure(
                f"{one.path}: column {column} of {table} is {kind}, not {wanted[column]}",
                help=f"write {column}::{wanted[column]}",
            )


def fits(given: str, wanted: str) -> bool:
    """A column of nothing but NULL fits all."""
    if given in ('"NULL"', "NULL"):
        return True
    if wanted in INTEGERS:
        return given in INTEGERS
    return given == wanted or (wanted == "VARCHAR" and given.startswith("ENUM"))


def look_through(cursor: duckdb.DuckDBPyConnection, one: Analysis, table: str) -> list[str]:
    """Whether the layers are known; gives a warning of the spans that are left out."""
    query = (
        f"SELECT layer, count(*) FILTER (NOT {IN_ORDER}) FROM {identifier(table)} GROUP BY layer"
    )
    try:
        found = cursor.execute(query).fetchall()
    except duckdb.Error as error:
        raise Failure(f"{one.path}: {str(error).splitlines()[0]}") from None
    for layer, _ in found:
        if layer not in LAYERS:
            close = did_you_mean(str(layer), LAYERS)
            known = f"there are: {', '.join(LAYERS)}"
            raise Failure(f"{one.path}: unknown layer '{layer}'", help=close or known)
    count = sum(wrong for _, wrong in found)
    said = f"{one.path}: {count:,} spans end before they begin, and are left out"
    return [said] if count else []


def as_analysis(schema: str, file: str) -> Analysis | None:
    """The spans of a schema as an answer, for their expectations."""
    path = analysis.spans_of(schema, file)
    return of_file(path, schema) if path is not None else None


def of_file(path: Path, schema: str) -> Analysis:
    order = ", ".join(SPAN)
    query = (
        f"SELECT {order} FROM klogger.span WHERE schema = {literal(schema)}"
        " ORDER BY from_ns, to_ns NULLS LAST, pid, layer, what"
    )
    return Analysis("spans", path, schema, title="Spans", sections={"table": query})
