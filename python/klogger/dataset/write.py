# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The files of one recording of a dataset, from the tables of a log."""

from __future__ import annotations

import hashlib
import json
import shlex
import urllib.parse
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb

from klogger import collected, columns, derived, executor, opening
from klogger.analysis import Analysis
from klogger.columns import Column
from klogger.dataset import texts
from klogger.decodings import DECLARED
from klogger.failure import Failure
from klogger.folder import RECORDINGS, Part, read_entry
from klogger.identity import text_of, uuid_of
from klogger.log import Event, Log, lock_settings, section
from klogger.log import open as open_log
from klogger.opening import Opening
from klogger.prelude import TABLES
from klogger.sqltext import identifier, literal
from klogger.statements import limited, told

# Of the rows of tables beside the events: one is in `recording`, of every log.
RECORDING = (
    "host VARCHAR", "log VARCHAR", "file VARCHAR", "kernel VARCHAR", "command VARCHAR",
    "labels MAP(VARCHAR, VARCHAR)", "scope VARCHAR", "from_wall_ns BIGINT", "to_wall_ns BIGINT",
    "clock_error_ns BIGINT", "events BIGINT", "lost BIGINT", "finished BOOLEAN",
    "schemata MAP(VARCHAR, VARCHAR)", "checksum VARCHAR",
)  # fmt: skip


@dataclass(frozen=True)
class Identity:
    """`log`: see `klogger.identity`. `checksum`: of all of it."""

    log: str
    host: str
    checksum: str


def identity(log: Log) -> Identity:
    preamble = text_of(log.preamble)
    host = section(log.preamble, "host").get("name")
    return Identity(
        uuid_of(log.preamble),
        host if isinstance(host, str) and host else "unknown",
        checksum(log.directory, preamble),
    )


def checksum(directory: Path, preamble: str) -> str:
    """Of the tables of a log, and its preamble. When and from which file they were made is not a
    part of it.
    """
    if directory.is_file():
        # The entry of a recording in another dataset.
        return str(read_entry(directory)["checksum"])
    found = hashlib.sha256(preamble.encode())
    for file in sorted(directory.glob("*.parquet")):
        found.update(f"{file.name}\0".encode())
        found.update(digest(file).encode())
    return found.hexdigest()


def clock_of(log: Log) -> collected.Clock:
    if log.directory.is_file():
        said = read_entry(log.directory)
        return collected.Clock(said["from_wall_ns"], said["clock_error_ns"])
    return collected.clock_of(log.path, log.preamble)


def digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def quoted(text: str) -> str:
    """As a part of a path, which engines make the same text of again."""
    return (
        urllib.parse.quote(text, safe=" ,.@+_-") if text not in (".", "..") else "%2E" * len(text)
    )


class Writer:
    """Writes below `root` what the dataset will have of a log. `said`: what it does not have, and
    why.
    """

    def __init__(self, log: Log, labels: Mapping[str, str], own: Identity, root: Path) -> None:
        self.log = log
        self.labels = dict(labels)
        self.own = own
        self.root = root
        self.clock = clock_of(log)
        self.said: list[str] = []

    def write(self) -> tuple[list[str], str]:
        """All files but the entry, and the entry."""
        log = self.log
        events = {e.name: self.event(e) for e in log.events.values()}
        tables = {name: self.table(name) for name in TABLES}
        made = derived.find(log.schemas, log.events)
        tables |= self.derived(made)
        said = self.entry()
        tables["recording"] = self.recording(said)
        meta = self.place("meta", "meta.json")
        self.file(meta).write_text(json.dumps(log.meta))
        said |= {
            "meta": meta,
            "derived": {name: derived.version(made[name]) for name in tables if name in made},
            "events": {name: part.as_json() for name, part in events.items()},
            "tables": {name: part.as_json() for name, part in tables.items()},
        }
        name = f"{RECORDINGS}/{self.own.log}.json"
        self.file(name).write_text(json.dumps(said))
        parts = [part.path for part in (*events.values(), *tables.values()) if part.path]
        return [*parts, meta], name

    def place(self, kind: str, file: str = "part-0.parquet") -> str:
        return f"{kind}/host={quoted(self.own.host)}/recording={self.own.log}/{file}"

    def file(self, name: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def wall(self, time: str) -> str:
        """SQL: the time of day of a time of the log."""
        start = self.clock.start_ns
        return "NULL" if start is None else f"{identifier(time)} + {start}"

    def event(self, event: Event) -> Part:
        place = self.place(f"events/schema={quoted(event.schema)}/event={quoted(event.name)}")
        connection = self.log.connection
        named = described(connection, f"main.{identifier(event.name)}")
        source, added = texts.query(self.log, event, named)
        part = Part(named, place, schema=event.schema, added=added)
        return self.copy(connection, source, part, self.wall("time"))

    def table(self, name: str) -> Part:
        source = f"klogger.{name}"
        named = described(self.log.connection, source)
        return self.copy(self.log.connection, source, Part(named, self.place(f"tables/{name}")))

    def derived(self, made: Mapping[str, Analysis]) -> dict[str, Part]:
        """The SQL of schemata is untrusted: it gets the log alone, and these files."""
        parts: dict[str, Part] = {}
        if not made:
            return parts
        places = {name: self.place(f"tables/{name}") for name in made}
        files = [self.file(place) for place in places.values()]
        source = self.log.directory
        with open_log(source, locked=True, writable=files, settings=True) as log:
            # Rows are written in the order of the query.
            log.connection.execute("SET preserve_insertion_order = true")
            lock_settings(log.connection)
            with executor.Session(log) as session:
                for name, one in made.items():

                    def fill(
                        result: executor.Result, cursor: duckdb.DuckDBPyConnection,
                        name: str = name,
                    ) -> None:  # fmt: skip
                        named, time = derived.prepare(result.analysis, cursor)
                        part = Part(named, places[name], schema=result.analysis.schema)
                        parts[name] = self.copy(cursor, derived.VIEW, part, self.wall(time))

                    result = session.run(one, fill)
                    if result.status == "failed":
                        self.said.append(f"no table {name}: {result.reason}")
        return parts

    def copy(
        self, connection: duckdb.DuckDBPyConnection, source: str, part: Part,
        wall: str | None = None,
    ) -> Part:  # fmt: skip
        listed = columns.written((*part.columns, *part.added), self.own.host, self.own.log, wall)
        return self.put(connection, f"SELECT {listed} FROM {source}", part)

    def put(self, connection: duckdb.DuckDBPyConnection, query: str, part: Part) -> Part:
        """The part with what its file has; without a file, if there are no rows."""
        file = self.file(part.path)
        copy = f"COPY ({query}) TO {literal(str(file))} (FORMAT parquet, COMPRESSION zstd)"
        # Only what a schema brings may take for ever.
        bounded = limited(connection, copy, part.path) if derived.VIEW in query else None
        with bounded or told(copy, part.path):
            ((rows,),) = connection.execute(copy).fetchall()
        if not rows:
            file.unlink()
            return replace(part, path="")
        return replace(part, rows=rows, bytes=file.stat().st_size, sha256=digest(file))

    def entry(self) -> dict[str, Any]:
        log, preamble = self.log, self.log.preamble
        host = section(preamble, "host")
        words = preamble.get("workload") or preamble.get("command_line")
        ((to_ns, finished),) = log.rows("SELECT to_ns, finished FROM klogger.recording")
        ((lost,),) = log.rows(
            "SELECT coalesce(sum(count), 0)::BIGINT FROM klogger.ledger"
            " WHERE severity IN ('loss', 'error')"
        )
        start = self.clock.start_ns
        return {
            "format": 1,
            "log": self.own.log,
            "host": self.own.host,
            "file": log.path.name,
            "kernel": str(host.get("kernel") or ""),
            "command": shlex.join(map(str, words)) if isinstance(words, list) else "",
            "labels": self.labels,
            "scope": str(preamble.get("scope") or ""),
            "from_wall_ns": start,
            "to_wall_ns": None if start is None else start + to_ns,
            "clock_error_ns": self.clock.error_ns,
            "events_logged": sum(e.logged for e in log.events.values()),
            "lost": lost,
            "finished": finished,
            "schemata": {
                str(s.get("name")): f"{zlib.crc32(str(s.get('text', '')).encode()):08x}"
                for s in log.schemas
            },
            "checksum": self.own.checksum,
            opening.NAME: opening_of(log).as_json(),
        }

    def recording(self, said: Mapping[str, Any]) -> Part:
        """The row of the table `recording`: an entry, for those who ask in SQL."""
        row = {**said, "events": said["events_logged"]}
        named = [column.split(" ", 1) for column in RECORDING]
        listed = ", ".join(f"{sql(row[name])}::{kind} AS {name}" for name, kind in named)
        # As text: a log does not have this table, and nobody asks for the types.
        rest = tuple(Column(name, "VARCHAR") for name, _ in named[2:])
        part = Part(rest, self.place("tables/recording"))
        return self.put(self.log.connection, f"SELECT {listed}", part)


def opening_of(log: Log) -> Opening:
    """What the entry keeps of opening the log."""
    ((to_ns, finished),) = log.rows("SELECT to_ns, finished FROM klogger.recording")
    ((names,),) = log.rows("SELECT max(names) FROM klogger.thread")
    threads = tuple(
        log.rows("SELECT * FROM klogger.thread WHERE pid IN (SELECT pid FROM klogger.process)")
    )
    renamed = tuple(log.rows("FROM klogger.renamed"))
    few = len(threads) + len(renamed) <= opening.THREADS_MAX
    decodings = opening.digest(log.rows(DECLARED))
    return Opening(
        to_ns, finished, names or 0,
        opening.digest([decodings, *map(form_of, log.events.values())]), decodings,
        {event.name: (event.logged, event.lost) for event in log.events.values()},
        threads if few else None, renamed if few else None,
    )  # fmt: skip


def form_of(event: Event) -> tuple[object, ...]:
    return (event.name, event.schema, event.doc, event.role, event.fields)


def described(connection: duckdb.DuckDBPyConnection, source: str) -> tuple[Column, ...]:
    rows = connection.execute(f"DESCRIBE {source}").fetchall()
    return tuple(Column(str(name), str(kind)) for name, kind, *_ in rows)


def sql(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, dict):
        keys, texts = ([literal(str(t)) for t in side] for side in (value, value.values()))
        return f"MAP([{', '.join(keys)}], [{', '.join(texts)}])"
    return literal(str(value))


def check_label(text: str) -> tuple[str, str]:
    """`NAME=VALUE`. The name becomes a column, and a part of `label.NAME`."""
    name, equals, value = text.partition("=")
    if not equals or not name.replace("_", "").replace("-", "").replace(".", "").isalnum():
        raise Failure(
            f"'{text}' is not a label", help="a name of letters, digits, _ - and ., then =VALUE"
        )
    if len(text) > 1000 or not text.isprintable():
        raise Failure(
            f"the label {name[:40]!r} is too long, or has characters that cannot be printed"
        )
    return name, value
