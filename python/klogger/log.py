# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A log as a database: one table per event type, and the tables and functions that every log has.

The event tables are in the schema `main`, everything else (`process`, `ledger`, `event`,
`decoding`, `recording`, `gap`, and the functions) in the schema `klogger`, so that an event may
have any name.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from klogger import folder, gaps, happened, outputs, prelude, spans, sqlerror
from klogger.export import cache_home
from klogger.failure import Failure, did_you_mean
from klogger.folder import Folder
from klogger.made import Made
from klogger.opening import Opening
from klogger.sqltext import identifier, literal
from klogger.units import is_utf8, printable

if TYPE_CHECKING:
    from klogger.answers import Report

# A whole report uses 500 MB for 2 million events, 1 GB for 10 million, and 4 GB for 100 million;
# Python itself, pictures, and what DuckDB does not count need the rest. DuckDB spills what it sorts
# and joins, but not the values of one quantile: these grow with the log.
MEMORY_MIB, MEMORY_MIB_MAX = 256, 3072
BYTES_PER_EVENT = 50
THREADS_MAX = 4
# The setting of DuckDB for rows in the order of a statement.
IN_ORDER = "preserve_insertion_order"
SEARCH_PATH = "SET search_path = 'main,klogger'"
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True)
class Field:
    """`decoding`: the function that makes a text of a value, if its schema declares one. `decode`:
    the word after `as`, whatever it is.
    """

    name: str
    type: str
    unit: str | None
    doc: str | None
    decoding: str | None = None
    decode: str | None = None


@dataclass(frozen=True)
class Slice:
    """A slice that an event begins or ends. `on`: "thread", "cpu" or "any"; `by`: fields that its
    begin and its end have in common.
    """

    name: str
    on: str
    by: tuple[str, ...]


@dataclass(frozen=True)
class Event:
    """An event type of a log. `logged` and `lost` count events; `role` is what its schema says that
    it is to programs which draw who ran where, `begins` and `ends` are the slices that it declares
    (docs/language/roles.md, docs/language/slice.md).
    """

    name: str
    schema: str
    doc: str
    logged: int
    lost: int
    fields: tuple[Field, ...]
    role: str | None = None
    begins: tuple[Slice, ...] = ()
    ends: tuple[Slice, ...] = ()


class Events(dict[str, Event]):
    """The event types of a log by name. Called with one, it gives the events themselves."""

    connection: duckdb.DuckDBPyConnection

    def __call__(self, name: str, *, raw: bool = False) -> duckdb.DuckDBPyRelation:
        """The events of one type, in the order of time. `raw`: numbers, where the schema has texts
        for them.

        Nothing is read before it is asked for: `events("SCHEDIN").limit(5).df()` is quick in a log
        of any length.
        """
        event = self.get(name.upper())
        if event is None:
            names = [e.name for e in self.values()]
            raise Failure(
                f"the log has no event '{name}'",
                help=did_you_mean(name, names) or f"it has: {listed(names)}",
            )
        table = f'main."{event.name}"'
        replaced = "" if raw else self.decoded(event, table)
        return self.connection.sql(f"SELECT *{replaced} FROM {table} ORDER BY time, cpu, serial")

    def decoded(self, event: Event, table: str) -> str:
        """REPLACE for the fields that have texts for their values. Of a name with a `_` added, see
        `catalogue`.
        """
        columns = {name for (name, *_) in self.connection.execute(f"DESCRIBE {table}").fetchall()}
        found = []
        for one in event.fields:
            column = identifier(f"{one.name}_" if f"{one.name}_" in columns else one.name)
            if one.decoding is not None:
                found.append(f"klogger.{identifier(one.decoding)}({column}) AS {column}")
        return f" REPLACE ({', '.join(found)})" if found else ""


class Order:
    """Whether rows come as the statement has them, those of UNION ALL one part after the other;
    else DuckDB gives them as they are ready. It is one setting for all connections to a log: it
    stays as long as any of them needs it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.before = True

    @contextlib.contextmanager
    def kept(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        with self.lock:
            if not self.users:
                query = f"SELECT current_setting('{IN_ORDER}')"
                (self.before,) = connection.execute(query).fetchone() or (True,)
                connection.execute(f"SET {IN_ORDER} = true")
            self.users += 1
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                if not self.users:
                    connection.execute(f"SET {IN_ORDER} = {self.before}")


@dataclass(repr=False)
class Log:
    """An open log. Use `klogger.open`, best as `with klogger.open("x.klog") as log:`."""

    path: Path
    directory: Path
    meta: dict[str, Any]
    connection: duckdb.DuckDBPyConnection
    events: Events = field(default_factory=Events)
    # Whether queries reach no files.
    locked: bool = False
    # The tables of `spans` that are filled, with the warnings of each.
    filled: dict[str, list[str]] = field(default_factory=dict)
    # Whether its ledger has nothing to warn of; None: nobody has asked.
    clean: bool | None = None
    order: Order = field(default_factory=Order)
    _link: tempfile.TemporaryDirectory[str] | None = None

    def __repr__(self) -> str:
        """One line, also of a closed log: a prompt shows it."""
        counts = [event.logged for event in self.events.values() if event.logged]
        what = f"{sum(counts):,} events of {len(counts)} types"
        return printable(f"<klogger.Log {self.path.name}: {what}>")

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """The answer to a query. The tables are those of `klogger sql FILE`; times are ns since the
        log's start.

        It is computed when it is asked for: `.df()` makes a DataFrame, `.show()` prints it,
        `.fetchall()` are tuples.
        """
        spans.fill_for(self, query)
        try:
            return self.connection.sql(query)
        except duckdb.Error as error:
            raise Failure(sqlerror.explain(error, query, self.names())) from None

    def names(self) -> list[str]:
        """What a query may mean: tables, and columns."""
        found = self.rows(
            "SELECT DISTINCT unnest([table_name, column_name]) FROM duckdb_columns()"
            " WHERE NOT internal"
        )
        return [name for (name,) in found]

    @property
    def ledger(self) -> duckdb.DuckDBPyRelation:
        """Every way in which data is missing. No row with the severity loss or error: all
        is there.
        """
        return self.connection.sql("FROM klogger.ledger")

    def analyses(self) -> dict[str, str]:
        """The analyses that the log's schemata bring, and what each asks."""
        from klogger import analysis

        return {one.name: one.question for one in analysis.find(self.schemas)}

    def report(self, *names: str) -> Report:
        """The answers of all analyses, or of those that are named."""
        from klogger import executor, summary
        from klogger.answers import Answer, Report

        # Analyses are untrusted, as they may come with another user's schema: they get a
        # connection that can reach no other files.
        with open(self.directory, locked=True) as log:
            log.path = self.path
            results = executor.run_all(log, executor.choose(log, names))
            return Report(
                self.path, summary.summary(log), {r.analysis.name: Answer(r) for r in results}
            )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query).fetchall()

    @property
    def preamble(self) -> dict[str, Any]:
        return section(self.meta, "preamble")

    @property
    def start_ns(self) -> int:
        """CLOCK_MONOTONIC at the log's time 0, in ns; 0 if the log does not say."""
        found = section(self.preamble, "clock").get("start_ns")
        return found if isinstance(found, int) else 0

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """name, doc, file and text of each schema that was recorded; only the name, if the log has
        no more.
        """
        schemas = dicts(self.preamble.get("schemas"))
        named = {s.get("name") for s in schemas}
        return schemas + [
            {"name": n}
            for n in dict.fromkeys(e.schema for e in self.events.values())
            if n not in named
        ]

    def with_role(self, role: str) -> list[Event]:
        """The events to which their schema gives a role: `switch_in`, `waking`, ..."""
        return [event for event in self.events.values() if event.role == role]

    def is_of_programs(self, event: Event) -> bool:
        """Whether threads of programs may have logged it: its table then says which."""
        schemas = {s.get("name") for s in self.schemas if s.get("user") is True}
        return event.schema in schemas or (event.name == "LOST" and bool(schemas))

    def seconds(self) -> float:
        """How long the recording is: up to the end that the recorder wrote down, or to the last
        event if it did not.
        """
        start, end = self.meta.get("start_ns"), self.meta.get("end_ns")
        if isinstance(start, int) and isinstance(end, int) and end >= start:
            return (end - start) / 1e9
        return float(self.rows("SELECT to_ns - from_ns FROM klogger.recording")[0][0]) / 1e9

    def threads(self) -> int:
        """How many DuckDB uses."""
        return int(self.rows("SELECT current_setting('threads')")[0][0])

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own to the same tables: its temporary tables are seen by no
        one else.
        """
        cursor = self.connection.cursor()
        cursor.execute(SEARCH_PATH)
        return cursor

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()
        if self._link is not None:
            self._link.cleanup()


def open(
    path: str | os.PathLike[str],
    *,
    quiet: bool = True,
    locked: bool = False,
    writable: Iterable[Path] = (),
    settings: bool = False,
) -> Log:
    """Opens a log, the directory that `klogger export --to parquet` made of one, or the entry of a
    recording in a dataset.

    `locked`: queries can reach no files but the log's own tables, and those that are `writable`;
    and change no settings, unless `settings`. `quiet`: see `export.tables_of`.
    """
    tables = folder.find(path, quiet=quiet)
    directory = tables.directory
    meta = tables.read_meta()
    link = without_glob_characters(tables)
    connection = connect()
    log = Log(Path(path), directory, meta if isinstance(meta, dict) else {}, connection, _link=link)
    try:
        fill(log, tables, Made(connection))
    except duckdb.Error as error:
        message = str(error).splitlines()[0]
        raise Failure(f"{directory}: {message}", help=tables.remedy()) from None
    if locked:
        lock(connection, tables, writable)
        if not settings:
            lock_settings(connection)
        log.locked = True
    return log


def fill(log: Log, tables: Folder, made: Made) -> None:
    """Its tables, and the functions that stand on them."""
    prelude.create(made, tables, log.preamble)
    log.events = events_known(made, tables.opening(), log.preamble)
    made.define("memory", f"SET memory_limit = '{memory_mib(log.events.values())}MiB'")
    log.events.connection = made.connection
    for event in log.events.values():
        name = f'main."{event.name}"'
        if not prelude.view(made, name, tables.query(event.name), tables.form(event.name)):
            made.define(name, prelude.empty_event(event.name, [f.name for f in event.fields]))
    gaps.create(made, log.events, log.preamble, tables)
    if tables.is_empty("ledger"):
        log.clean = True
    own = [event for event in log.events.values() if event.logged and event.schema != "klogger"]
    spans.create(made)
    happened.create(made, ((event, log.is_of_programs(event)) for event in own))
    made.connection.execute(SEARCH_PATH)


# A folder that nobody can make.
NO_PLACE = Path("/proc/no-place-to-spill-to")


def connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    threads = int(os.environ.get("KLOGGER_THREADS") or 0)
    threads = threads or min(len(os.sched_getaffinity(0)), THREADS_MAX)
    connection.execute(f"SET threads = {threads}")
    connection.execute(f"SET memory_limit = '{MEMORY_MIB}MiB'")
    # In a notebook without ipywidgets there is no progress bar, and DuckDB rejects this setting.
    with contextlib.suppress(duckdb.InvalidInputException):
        connection.execute("SET enable_progress_bar = false")
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET autoload_known_extensions = false")
    spill = cache_home() / "spill"
    # Where it cannot be made, only what does not fit into memory fails, with DuckDB's message.
    try:
        outputs.own_folder(spill.parent)
        outputs.own_folder(spill)
    except (OSError, Failure):
        spill = NO_PLACE
    try:
        str(spill).encode()
    except UnicodeEncodeError:
        # DuckDB takes texts only, and a path may have any bytes.
        spill = NO_PLACE
    connection.execute(f"SET temp_directory = {literal(str(spill))}")
    return connection


def memory_mib(events: Iterable[Event]) -> int:
    """How much memory queries of a log with these events may use."""
    needed = MEMORY_MIB + BYTES_PER_EVENT * sum(e.logged for e in events) // 2**20
    return max(MEMORY_MIB, min(needed, MEMORY_MIB_MAX))


def lock(connection: duckdb.DuckDBPyConnection, tables: Folder, writable: Iterable[Path]) -> None:
    """An analysis may come with another user's schema and is untrusted: it can read this log and
    nothing else.

    Analyses say which order they want, and are faster without another.
    """
    connection.execute(f"SET {IN_ORDER} = false")
    folders, files = tables.readable()
    # DuckDB writes a file that is there already under another name first.
    files += [p.absolute().with_name(start + p.name) for p in writable for start in ("", "tmp_")]
    for setting, paths in (("allowed_directories", folders), ("allowed_paths", files)):
        listed = ", ".join(literal(str(path)) for path in paths)
        connection.execute(f"SET {setting} = [{listed}]")
    connection.execute("SET enable_external_access = false")


def lock_settings(connection: duckdb.DuckDBPyConnection, but: Iterable[str] = ()) -> None:
    """Nothing can raise the limits of memory and threads any more. `but`: what klogger itself still
    changes, beside the order of rows.
    """
    listed = ", ".join(map(literal, [IN_ORDER, *but]))
    connection.execute(f"SET allowed_configs = [{listed}]")
    connection.execute("SET lock_configuration = true")


def events_known(made: Made, kept: Opening | None, preamble: dict[str, Any]) -> Events:
    """Logs of the same schemata have the same events, but for how many of them."""
    if kept is None:
        return events_of(made.connection, preamble)
    key = ("events", kept.events)
    found: Events | None = made.found.get(key)
    if found is None or {event.name for event in found.values()} != kept.counts.keys():
        found = made.found[key] = events_of(made.connection, preamble)
        return found
    counted = Events()
    for name, event in found.items():
        logged, lost = kept.counts[event.name]
        # Quicker than `replace`, for thousands of logs.
        counted[name] = Event(
            event.name, event.schema, event.doc, logged, lost, event.fields, event.role,
            event.begins, event.ends,
        )  # fmt: skip
    return counted


def events_of(connection: duckdb.DuckDBPyConnection, preamble: dict[str, Any]) -> Events:
    """By name in upper case. Names come from the log: one that is no identifier is left out."""
    events = Events()
    decodings = {
        name
        for (name,) in connection.execute(
            "SELECT DISTINCT decoding FROM klogger.decoding"
        ).fetchall()
    }
    # Tables that an older klogger made have no roles.
    columns = {name for name, *_ in connection.execute("DESCRIBE klogger.event").fetchall()}
    role = "role" if "role" in columns else "NULL"
    query = (
        f"SELECT name, schema, coalesce(doc, ''), {role}, logged, lost, fields"
        " FROM klogger.event ORDER BY id"
    )
    begins, ends = slices_of(preamble, "begins"), slices_of(preamble, "ends")
    for name, schema, doc, role, logged, lost, fields in connection.execute(query).fetchall():
        if IDENTIFIER.fullmatch(name):
            events[name.upper()] = Event(
                name, schema, doc, logged or 0, lost or 0, fields_of(fields, decodings), role,
                begins.get(name, ()), ends.get(name, ()),
            )  # fmt: skip
    return events


def slices_of(preamble: dict[str, Any], key: str) -> dict[str, tuple[Slice, ...]]:
    """By event, its `begins` or `ends`. A preamble may say anything: what has another form than the
    recorder's is left out.
    """
    return {
        event["name"]: tuple(filter(None, map(slice_of, dicts(event.get(key)))))
        for event in dicts(preamble.get("events")) if isinstance(event.get("name"), str)
    }  # fmt: skip


def slice_of(found: dict[str, Any]) -> Slice | None:
    name, on, by = found.get("name"), found.get("on") or "thread", found.get("by") or []
    texts = [name, on, *by] if isinstance(by, list) else [None]
    if not all(isinstance(one, str) for one in texts):
        return None
    return Slice(str(name), str(on), tuple(by))


def dicts(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def fields_of(text: str, decodings: set[str]) -> tuple[Field, ...]:
    try:
        found = json.loads(text)
    except ValueError:
        return ()
    return tuple(
        Field(
            f["name"],
            str(f.get("type", "")),
            f.get("unit"),
            f.get("doc"),
            decoding_of(f, decodings),
            word_of(f),
        )
        for f in found
        if "name" in f
    )


def decoding_of(field: dict[str, Any], decodings: set[str]) -> str | None:
    """Of a single number; those of every log (threads, addresses) are no functions."""
    decode = field.get("decode")
    name = decode.get("table") if isinstance(decode, dict) else None
    return name if name in decodings and field.get("shape", "one") == "one" else None


def word_of(field: dict[str, Any]) -> str | None:
    """Of a table of the schema, its name."""
    decode = field.get("decode")
    name = decode.get("table") if isinstance(decode, dict) else decode
    return name if isinstance(name, str) else None


def listed(names: list[str]) -> str:
    return ", ".join(sorted(names)[:12]) + (", ..." if len(names) > 12 else "")


def section(of: dict[str, Any], name: str) -> dict[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def without_glob_characters(tables: Folder) -> tempfile.TemporaryDirectory[str] | None:
    """DuckDB takes `*?[` in a path for wildcards, and all paths for UTF-8: where that is wrong, a
    link to the directory stands in for it.
    """
    whole = str(tables.root)
    if not set("*?[]{}") & set(whole) and is_utf8(whole):
        return None
    link = tempfile.TemporaryDirectory(prefix="klogger-")
    (Path(link.name) / "tables").symlink_to(tables.root)
    tables.moved(Path(link.name) / "tables")
    return link
