# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where the tables of a log are: in a folder that `klogger export --to parquet` made, or in a
dataset (`klogger.dataset`), which has those of many logs, in a layout of its own.

A recording of a dataset is named by its entry, `DATASET/recordings/UUID.json`: it exists if, and
only if, this file does. What the file holds is below; docs/datasets.md describes the layout.
"""

from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klogger import columns, sources
from klogger.columns import Column
from klogger.export import tables_of
from klogger.failure import Failure
from klogger.opening import Opening
from klogger.opening import read as read_opening
from klogger.sqltext import literal

RECORDINGS = "recordings"
# Of an entry, and of what a folder of tables has as meta.json: with the texts of all schemata.
JSON_MAX = 256 << 20
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass
class Folder:
    """Of one log; the file of each table has its name."""

    directory: Path
    # The same, without what DuckDB takes for wildcards.
    root: Path = field(init=False)

    def __post_init__(self) -> None:
        self.root = self.directory.absolute()

    def meta(self) -> Path:
        return self.directory / "meta.json"

    def read_meta(self) -> Any:
        """What it says; it may be somebody else's."""
        try:
            return json.loads(sources.content(self.meta(), JSON_MAX).decode(errors="replace"))
        except OSError as error:
            raise Failure(f"{self.meta()}: {error.strerror}", help=self.remedy()) from None
        except (ValueError, RecursionError) as error:
            raise Failure(f"{self.meta()}: {error}", help=self.remedy()) from None

    def remedy(self) -> str:
        return f"remove {self.directory}, and it will be made anew"

    def moved(self, root: Path) -> None:
        """DuckDB is to read it by another path."""
        self.root = root

    def query(self, table: str) -> str | None:
        """That gives the rows of a table; None: it is not there."""
        file = self.root / f"{table}.parquet"
        return f"SELECT * FROM read_parquet({literal(str(file))})" if file.is_file() else None

    def form(self, _table: str) -> object:
        """What the types of its columns depend on, beside the text of the query."""
        return None

    def is_empty(self, _table: str) -> bool:
        """Whether it is known, without a look at the table, that it has no rows."""
        return False

    def opening(self) -> Opening | None:
        """What is known of opening the log."""
        return None

    def readable(self) -> tuple[list[Path], list[Path]]:
        """The folders and the files that queries may read. Files only, where these are known: in a
        folder, DuckDB would let them write new ones.
        """
        return [], sorted(self.root.glob("*.parquet"))


@dataclass(frozen=True)
class Part:
    """A table of a recording. `path`: its file, below the dataset's folder; empty: it has no
    rows. `schema`: of an event, or of a derived table. `log`: the rows of this log only, for the
    file has others as well. `added`: texts beside the log's own columns, of the dataset alone.
    """

    columns: tuple[Column, ...]
    path: str = ""
    rows: int = 0
    bytes: int = 0
    sha256: str = ""
    schema: str = ""
    log: str = ""
    added: tuple[Column, ...] = ()

    @property
    def form(self) -> tuple[tuple[str, str], ...]:
        """What the columns of its file are called in the dataset, and their types in the log."""
        return tuple((c.stored, c.type) for c in (*self.columns, *self.added))

    def query(self, file: Path) -> str:
        """That gives its rows as the log has them. `file`: where `path` is."""
        if not self.path:
            return f"SELECT * FROM ({columns.nothing(self.columns)})"
        source = f"read_parquet({literal(str(file))}, hive_partitioning = false)"
        of_log = f" WHERE log = {literal(self.log)}" if self.log else ""
        return f"SELECT * FROM (SELECT {columns.read(self.columns)} FROM {source}{of_log})"

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": self.schema, "path": self.path, "rows": self.rows, "bytes": self.bytes,
            "sha256": self.sha256, "log": self.log,
            "columns": [[c.name, c.type] for c in self.columns],
            "added": [[c.name, c.type] for c in self.added],
        }  # fmt: skip


def within(path: Any) -> str:
    """A path of an entry, which may be somebody else's: it stays in the dataset."""
    text = str(path)
    if text.startswith("/") or ".." in text.split("/") or "\0" in text:
        raise ValueError(f"a path that leads out of the dataset: {text}")
    return text


def part_of(found: Any) -> Part:
    return Part(
        columns_of(pairs(found["columns"])), within(found["path"]), int(found["rows"]),
        int(found["bytes"]), str(found["sha256"]), str(found["schema"]), str(found["log"]),
        # Entries of the first klogger with datasets have none.
        columns_of(pairs(found.get("added", []))),
    )  # fmt: skip


def pairs(listed: Any) -> tuple[tuple[str, str], ...]:
    return tuple(map(tuple, listed))


@functools.lru_cache(4096)
def columns_of(listed: tuple[tuple[str, str], ...]) -> tuple[Column, ...]:
    """Recordings of one schema have the same, and there may be thousands of them."""
    return tuple(Column(str(name), type_of(kind)) for name, kind in listed)


def type_of(text: str) -> str:
    if not re.fullmatch(r"[A-Z]+(\(\d+(,\d+)?\))?(\[\])*", text):
        raise ValueError(f"not a type: {text}")
    return text


def entry(text: str | bytes) -> dict[str, Any]:
    """An entry as JSON, with its parts."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError(error) from None
    found["meta"] = within(found["meta"])
    for kind in ("events", "tables"):
        found[kind] = {str(name): part_of(part) for name, part in found[kind].items()}
    versions = found.get("derived", {}).items()
    found["derived"] = {str(n): str(v) for n, v in versions if n in found["tables"]}
    return dict(found)


def read_entry(file: Path) -> dict[str, Any]:
    """Raises OSError, and what `entry` raises."""
    return entry(sources.content(file, JSON_MAX))


@dataclass
class InDataset(Folder):
    """Of a recording of a dataset; `directory` is its entry."""

    def __post_init__(self) -> None:
        try:
            found = read_entry(self.directory)
            self.parts: dict[str, Part] = {**found["events"], **found["tables"]}
            self.meta_path = str(found["meta"])
            self.kept = read_opening(found)
            self.derived = frozenset(found["derived"])
        except OSError as error:
            raise Failure(f"{self.directory}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(f"{self.directory}: not an entry of a dataset: {error}") from None
        self.root = self.directory.absolute().parents[1]

    def meta(self) -> Path:
        return self.directory.absolute().parents[1] / self.meta_path

    def remedy(self) -> str:
        return "'klogger dataset check' says what else is damaged"

    def query(self, table: str) -> str | None:
        part = self.parts.get(table)
        if part is None:
            return None
        file = self.root / part.path
        if part.path and file.exists() and not file.is_file():
            raise Failure(f"{file} is not a regular file", help=self.remedy())
        return part.query(file)

    def form(self, table: str) -> object:
        part = self.parts.get(table)
        return part and part.columns

    def is_empty(self, table: str) -> bool:
        part = self.parts.get(table)
        return part is not None and not part.path

    def opening(self) -> Opening | None:
        return self.kept

    def readable(self) -> tuple[list[Path], list[Path]]:
        return [], [self.root / part.path for part in self.parts.values() if part.path]


def is_entry(file: Path) -> bool:
    """By its name: of a recording in a dataset."""
    named = file.suffix == ".json" and UUID.fullmatch(file.stem) is not None
    return named and file.parent.name == RECORDINGS


def find(path: str | os.PathLike[str], *, quiet: bool = True) -> Folder:
    """Of a log, of a folder of tables, or of an entry of a dataset."""
    file = Path(path)
    if is_entry(file):
        return InDataset(file)
    return Folder(tables_of(path, quiet=quiet))
