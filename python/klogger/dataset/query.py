# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The events of all recordings of a dataset as one database.

A view of each event has the name of the event; those of one name in several schemata are
`"SCHEMA"."EVENT"` alone. The tables beside them (process, ledger, recording, ...) are in the schema
`klogger`. Only files that belong to a recording are read. Columns are joined by name: one that a
recording does not have is NULL there.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from klogger import durations, histograms
from klogger.columns import WIDER, Column
from klogger.dataset import Dataset, Entry
from klogger.dataset.store import Local
from klogger.folder import Part
from klogger.log import SEARCH_PATH, Log, connect
from klogger.sqltext import identifier, literal

# All that the dataset has of an event: type of each column by its name in the dataset.
Types = dict[str, str]
OF_TABLES = {"host": "VARCHAR", "log": "VARCHAR"}
FIRST = {**OF_TABLES, "wall_ns": "BIGINT"}


@dataclass
class Table:
    schema: str
    name: str
    paths: dict[str, None] = field(default_factory=dict)
    logs: dict[str, None] = field(default_factory=dict)
    packed: bool = False
    types: Types = field(default_factory=dict)


def tables_of(entries: Iterable[Entry]) -> dict[tuple[str, str], Table]:
    """By schema (`klogger` has the tables beside the events) and name."""
    found: dict[tuple[str, str], Table] = {}
    for entry in entries:
        for name, part in entry.said["events"].items():
            own = found.setdefault((part.schema, name), Table(part.schema, name))
            add(own, entry, part, FIRST)
        for name, part in entry.said["tables"].items():
            # Derived tables are of a schema, and have times, as events do.
            place, first = ("main", FIRST) if part.schema else ("klogger", OF_TABLES)
            add(found.setdefault((place, name), Table(place, name)), entry, part, first)
    return found


def add(table: Table, entry: Entry, part: Part, first: Types) -> None:
    for name, kind in {**first, **stored((*part.columns, *part.added))}.items():
        table.types.setdefault(name, kind)
    if part.path:
        table.paths[part.path] = None
        table.logs[entry.log] = None
        table.packed |= bool(part.log)


def stored(columns: Sequence[Column]) -> Types:
    found = {}
    for column in columns:
        base = column.type.rstrip("[]")
        kind = "BIGINT" if base == "UBIGINT" else WIDER.get(base, base)
        found[column.stored] = kind + column.type[len(base) :]
    return found


def view(table: Table, root: Path) -> str:
    """Its query. Files of several versions are joined by the names of their columns."""
    if not table.paths:
        nothing = (f"NULL::{t} AS {identifier(n)}" for n, t in table.types.items())
        return f"SELECT {', '.join(nothing)} LIMIT 0"
    files = ", ".join(literal(str(root / path)) for path in table.paths)
    source = f"read_parquet([{files}], union_by_name = true, hive_partitioning = false)"
    logs = ", ".join(map(literal, table.logs))
    return f"SELECT * FROM {source}" + (f" WHERE log IN ({logs})" if table.packed else "")


@contextlib.contextmanager
def opened(
    dataset: Dataset,
    entries: Sequence[Entry],
    *,
    locked: bool = True,
    writable: Iterable[Path] = (),
) -> Iterator[Log]:
    """As a log, which has no events of its own: `klogger sql` asks it the same way."""
    with local(dataset, entries) as root:
        connection = connect()
        log = Log(Path(os.path.basename(dataset.where)), root, {}, connection)
        log.events.connection = connection
        tables = tables_of(entries)
        fill(connection, tables, root)
        if locked:
            lock(connection, [root / p for t in tables.values() for p in t.paths], writable)
            log.locked = True
        try:
            yield log
        finally:
            log.close()


def fill(
    connection: duckdb.DuckDBPyConnection, tables: dict[tuple[str, str], Table], root: Path
) -> None:
    connection.execute("CREATE SCHEMA klogger")
    connection.execute(durations.sql())
    connection.execute(histograms.SQL)
    schemata: dict[str, set[str]] = defaultdict(set)
    for schema, name in tables:
        if name.isupper():
            schemata[name].add(schema)
    for (schema, name), table in tables.items():
        if schema not in ("klogger", "main"):
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {identifier(schema)}")
        place = f"{identifier(schema)}.{identifier(name)}"
        connection.execute(f"CREATE VIEW {place} AS {view(table, root)}")
        if len(schemata[name]) == 1 and schema not in ("klogger", "main"):
            connection.execute(f"CREATE VIEW main.{identifier(name)} AS FROM {place}")
    connection.execute(SEARCH_PATH)


@contextlib.contextmanager
def local(dataset: Dataset, entries: Sequence[Entry]) -> Iterator[Path]:
    """Where DuckDB can read the files: of a store that is far away, they are fetched."""
    if isinstance(dataset.store, Local):
        with tempfile.TemporaryDirectory(prefix="klogger-") as folder:
            # No path may have what DuckDB takes for wildcards.
            link = Path(folder) / "dataset"
            link.symlink_to(dataset.store.folder.absolute())
            yield link
        return
    with tempfile.TemporaryDirectory(prefix="klogger-") as folder:
        for name in dict.fromkeys(p.path for e in entries for p in e.parts if p.path):
            to = Path(folder) / name
            to.parent.mkdir(parents=True, exist_ok=True)
            dataset.store.fetch(name, to)
        yield Path(folder)


def lock(
    connection: duckdb.DuckDBPyConnection, files: Sequence[Path], writable: Iterable[Path]
) -> None:
    found = [*files]
    found += [p.absolute().with_name(start + p.name) for p in writable for start in ("", "tmp_")]
    connection.execute(f"SET allowed_paths = [{', '.join(literal(str(f)) for f in found)}]")
    connection.execute("SET enable_external_access = false")
