# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One DuckDB for many recordings, each of which is opened as a log. To start one, and to make the
functions of a log, takes longer than most analyses of a log of 100,000 events.

The files of the recording that is open are in a folder of the engine's own, as hard links or
copies, under names that are the same for every recording: so the views over them need not be made
again, and queries, which are untrusted, reach the files of this recording alone. (Symbolic links
would not do: DuckDB looks at where they lead.)
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import duckdb

from klogger import analysis as analyses
from klogger import prelude, spans
from klogger.analysis import Analysis
from klogger.dataset import cache
from klogger.dataset.write import quoted
from klogger.failure import Failure
from klogger.folder import InDataset
from klogger.log import IN_ORDER, Log, connect, fill, lock, lock_settings
from klogger.made import Made
from klogger.sqltext import identifier, literal

# Tables of a log that are made once for several, if they would be the same.
TABLES = "|".join([*prelude.DOCS, *spans.DOCS, r"made_\w+"])
# SQL of an analysis that may leave something to the next recording: what is not temporary.
LASTING = re.compile(
    r"(^|;)\s*(CREATE\s+(?!(OR\s+REPLACE\s+)?TEMP)|SET\s+(?!VARIABLE\b)"
    r"|(PRAGMA|ATTACH|ALTER|USE|LOAD|CALL|COMMENT)\b)"
    r"|\bDROP\s+\w+\s+(IF\s+EXISTS\s+)?\"?(klogger|main)\b"
    r"|\b(INSERT\s+INTO|UPDATE|DELETE\s+FROM|TRUNCATE(\s+TABLE)?|MERGE\s+INTO)\s+\"?"
    rf"(klogger|main|{TABLES})\b",
    re.IGNORECASE | re.MULTILINE,
)
NOT_SQL = re.compile(r"--[^\n]*|'[^']*'")
ROWS = "klogger_rows"


Queries = dict[tuple[object, ...], tuple[object, str]]


class Linked(InDataset):
    """A recording whose files are in the folder `root` as well. `queries`: the same dictionary for
    all recordings there, as their tables have the same queries, if they have the same columns.
    """

    def __init__(self, entry: Path, root: Path, queries: Queries) -> None:
        super().__init__(entry)
        self.files = self.root
        self.root = root
        self.queries = queries

    def query(self, table: str) -> str | None:
        part = self.parts.get(table)
        if part is None:
            return None
        # Equal columns are mostly one and the same object; it is kept, so that its id is its own.
        key = (table, id(part.columns), bool(part.path), part.log)
        if key not in self.queries:
            self.queries[key] = (part.columns, part.query(self.link(table)))
        return self.queries[key][1]

    def link(self, table: str) -> Path:
        return self.root / f"{quoted(table)}.parquet"

    def make_links(self) -> None:
        for old in os.listdir(self.root):
            os.unlink(f"{self.root}/{old}")
        for table, part in self.parts.items():
            # Those of derived tables, which are beside the events, are no tables of the log.
            if part.path and table not in self.derived:
                linked_or_copied(f"{self.files}/{part.path}", self.link(table))

    def readable(self) -> tuple[list[Path], list[Path]]:
        return [self.root], []


def linked_or_copied(file: str, to: Path) -> None:
    """A link, if both are in one file system and the file is the user's own."""
    try:
        os.link(file, to)
    except FileNotFoundError:
        # Queries of this table will say so.
        pass
    except OSError:
        shutil.copyfile(file, to)


class Engine:
    """Recordings are opened one after the other. What `kept` names is taken by `rows`."""

    def __init__(self, folder: str | None = None) -> None:
        """`folder`: in which it has its own, for as long as it is there."""
        self.folder = tempfile.TemporaryDirectory(
            prefix="klogger-", dir=folder, ignore_cleanup_errors=True
        )
        self.tables_of_log: Linked | None = None
        self.links = Path(self.folder.name) / "log"
        self.links.mkdir()
        self.queries: Queries = {}
        self.found: dict[tuple[tuple[str, str], ...], list[Analysis]] = {}
        self.made: Made | None = None
        # Of each analysis, the tables with its rows; and what was in those before, as Parquet.
        self.tables: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.contents: dict[tuple[str, str], list[bytes]] = defaultdict(list)
        self.count = 0
        self.log: Log | None = None
        self.lasting: dict[Path, bool] = {}
        self.keys: dict[Path, str] = {}

    def open(self, entry: Path) -> Log:
        """A recording, as a log that is locked; the one before must not be used any more."""
        tables = self.tables_of_log = Linked(entry.absolute(), self.links, self.queries)
        meta = tables.read_meta()
        tables.make_links()
        begun = self.made is not None
        try:
            return self.filled(tables, meta)
        except duckdb.Error as error:
            self.stop()
            if begun:
                # The log before may have had what this one cannot replace.
                return self.open(entry)
            raise Failure(f"{entry}: {self.told(error)}", help=tables.remedy()) from None

    def filled(self, tables: Linked, meta: object) -> Log:
        new = self.made is None
        made = self.made = self.made or Made(connect())
        made.begin()
        if self.log is not None and self.log.filled:
            spans.changed(made)
        log = self.log = Log(
            tables.directory, tables.directory, meta if isinstance(meta, dict) else {},
            made.connection, locked=True,
        )  # fmt: skip
        fill(log, tables, made)
        if new:
            lock(made.connection, tables, [self.links.parent / "rows.parquet"])
            # It would take a file for another one with the same name and time.
            made.connection.execute("SET enable_external_file_cache = false")
            # The order of rows is a part of the answer.
            made.connection.execute(f"SET {IN_ORDER} = true")
            made.connection.execute(f"CREATE SCHEMA {ROWS}")
            # Each log has its own limit of memory.
            lock_settings(made.connection, ["memory_limit"])
        made.end()
        return log

    def told(self, error: Exception) -> str:
        """The first line, with the file itself instead of the link."""
        text = str(error).splitlines()[0]
        tables = self.tables_of_log
        if tables is not None:
            for table, part in tables.parts.items():
                text = text.replace(str(tables.link(table)), str(tables.files / part.path))
        return text

    def analyses(self, log: Log) -> list[Analysis]:
        key = tuple((str(s.get("name")), str(s.get("file", ""))) for s in log.schemas)
        if key not in self.found:
            self.found[key] = analyses.find(log.schemas)
        return self.found[key]

    def table(self, one: Analysis) -> str:
        """A name for the rows of an analysis, of the recording that is open."""
        self.count += 1
        name = f"{ROWS}.{identifier(f'{self.count}')}"
        self.tables[one.schema, one.name].append(name)
        return name

    def forget(self, one: Analysis) -> None:
        """The last table, which has not been made, or has no rows."""
        name = self.tables[one.schema, one.name].pop()
        if self.made is not None:
            self.made.connection.execute(f"DROP TABLE IF EXISTS {name}")

    def rows(self) -> dict[tuple[str, str], list[bytes]]:
        """Those of all recordings since this was asked last: Parquet files of each analysis."""
        self.take()
        found, self.contents = self.contents, defaultdict(list)
        return found

    def take(self) -> None:
        """One file of each analysis, if the tables fit together."""
        tables, self.tables = self.tables, defaultdict(list)
        for analysis, names in tables.items():
            if names:
                try:
                    self.contents[analysis].append(self.copied(names))
                except duckdb.Error:
                    self.contents[analysis] += [self.copied([name]) for name in names]

    def copied(self, names: Sequence[str]) -> bytes:
        """The tables as one Parquet file; they are dropped."""
        assert self.made is not None
        file = self.links.parent / "rows.parquet"
        query = " UNION ALL BY NAME ".join(f"FROM {name}" for name in names)
        self.made.connection.execute(f"COPY ({query}) TO {literal(str(file))} (FORMAT parquet)")
        for name in names:
            self.made.connection.execute(f"DROP TABLE {name}")
        content = file.read_bytes()
        file.unlink()
        return content

    def stop(self) -> None:
        """The next recording gets a new DuckDB."""
        if self.made is not None:
            self.take()
            self.made.connection.close()
        self.made = None

    def close(self) -> None:
        if self.made is not None:
            self.made.connection.close()
        self.folder.cleanup()

    def key(self, log: Log, one: Analysis) -> str:
        """By which the answer is kept. Empty: it depends on files that a report does not know of,
        which only this log's schemata name.
        """
        if cache.uses_spans(one) and any(str(s.get("file", ""))[:1] == "/" for s in log.schemas):
            return ""
        if one.path not in self.keys:
            self.keys[one.path] = cache.key_of(one)
        return self.keys[one.path]

    def lasts(self, one: Analysis) -> bool:
        """Whether an analysis may leave something in the database."""
        if one.path not in self.lasting:
            self.lasting[one.path] = bool(LASTING.search(NOT_SQL.sub(" ", one.whole())))
        return self.lasting[one.path]
