# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Datasets: the tables of many logs, in one folder or in an S3-like store (docs/datasets.md).

store       where the files are
write       a log -> the files of a recording
texts       names and texts beside the fields of events
compact     fewer and larger files
checks      what is damaged, and what differs between the recordings
engine      one DuckDB that opens recording after recording
index       the heads of all entries in one file
cache       what analyses gave of each recording, kept
work        what an executor does with recordings
combine     the rows of an analysis, of many recordings -> one answer
fleet       an analysis over all recordings, by an executor (`klogger.executors`)
sample      the first rows of a report, of a few recordings
query       the events of all recordings as tables of one database
sparksql    the same as views of Spark
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klogger import folder, outputs, sources
from klogger.dataset import cache, index
from klogger.dataset.store import Local, Store, store_of
from klogger.dataset.write import Identity, Writer, identity
from klogger.failure import Failure, did_you_mean
from klogger.folder import RECORDINGS, UUID, Part
from klogger.log import Log
from klogger.log import open as open_log
from klogger.units import is_utf8

MANIFEST = "dataset.json"
FORMAT = 1
# So many entries are read at once, each time so many: a disk, or a store that is far away, takes
# longer for one than this process does.
READERS, AT_ONCE = 16, 8


@dataclass(frozen=True)
class Entry:
    """A recording of a dataset, as its entry describes it."""

    log: str
    said: Mapping[str, Any]

    @property
    def host(self) -> str:
        return str(self.said["host"])

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self.said["labels"])

    @property
    def events(self) -> Mapping[str, Part]:
        return dict(self.said["events"])

    @property
    def tables(self) -> Mapping[str, Part]:
        return dict(self.said["tables"])

    @property
    def parts(self) -> list[Part]:
        return [*self.said["events"].values(), *self.said["tables"].values()]

    def files(self, *, shared: bool = True) -> list[str]:
        """All but the entry. `shared`: also those that other recordings have rows in."""
        parts = [p.path for p in self.parts if p.path and (shared or not p.log)]
        return [*parts, str(self.said["meta"])]

    @property
    def name(self) -> str:
        return f"{RECORDINGS}/{self.log}.json"

    def value(self, by: str) -> str:
        """Of what recordings are grouped by: host, kernel, command, recording, or label.NAME."""
        if by.startswith("label."):
            return self.labels.get(by.removeprefix("label."), "")
        return self.log if by == "recording" else str(self.said.get(by, ""))


@dataclass
class Added:
    """`new`: it was not there before. `said`: what is missing in it, and why."""

    entry: Entry
    new: bool
    said: Sequence[str] = ()


class Dataset:
    def __init__(self, store: Store) -> None:
        self.store = store
        # Entries that cannot be read, and why.
        self.unreadable: dict[str, str] = {}

    @property
    def where(self) -> str:
        return self.store.where

    def entry(self, log: str) -> Entry | None:
        try:
            text = self.store.read(f"{RECORDINGS}/{log}.json")
        except FileNotFoundError:
            return None
        except sources.Refused as error:
            self.unreadable[log] = f"{RECORDINGS}/{log}.json: {error.strerror}"
            return None
        try:
            return Entry(log, folder.entry(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.unreadable[log] = f"{RECORDINGS}/{log}.json: not an entry: {error}"
            return None

    def entries(self) -> list[Entry]:
        """All recordings, by host and time."""
        with failing(self.where):
            found = self.listed()
        return sorted(found, key=lambda e: (e.host, e.said["from_wall_ns"] or 0, e.log))

    def logs(self) -> list[str]:
        """The ids of all recordings. No entry is read."""
        names = [n.removesuffix(".json") for n in self.store.names(RECORDINGS)]
        return [n for n in names if UUID.fullmatch(n)]

    def is_indexed(self) -> bool:
        """Whether most heads of entries are read from one file."""
        folder, _, name = index.NAME.rpartition("/")
        return isinstance(self.store, Local) and name in self.store.names(folder)

    def listed(self) -> list[Entry]:
        store = self.store
        now = index.states(store) if isinstance(store, Local) else {}
        indexed = index.read(store, now, self.whole) if isinstance(store, Local) else {}
        names = self.logs()
        new = [n for n in names if n not in indexed]
        many = isinstance(store, Local) and len(new) > index.NEW_MAX
        found = self.read(new, index.Shared(self.whole) if many else None)
        if isinstance(store, Local) and many:
            said = {**indexed, **{e.log: e.said for e in found}}
            index.write(store, now, {log: one for log, one in said.items() if log in now})
        return found + [Entry(log, indexed[log]) for log in names if log in indexed]

    def read(self, logs: Sequence[str], shared: index.Shared | None) -> list[Entry]:
        """The entries of these recordings that can be read. `shared`: their heads; ten thousand
        whole ones would take a gigabyte.
        """

        def some(logs: Sequence[str]) -> list[Entry]:
            found = [e for e in map(self.entry, logs) if e is not None]
            return (
                found
                if shared is None
                else [Entry(e.log, shared.head(e.log, e.said)) for e in found]
            )

        chunks = [logs[at : at + AT_ONCE] for at in range(0, len(logs), AT_ONCE)]
        with ThreadPoolExecutor(READERS) as pool:
            return [e for chunk in pool.map(some, chunks) for e in chunk]

    def whole(self, log: str) -> Mapping[str, Any]:
        """What an entry says, with its files."""
        found = self.entry(log)
        if found is None:
            what = self.unreadable.get(log, f"{RECORDINGS}/{log}.json was removed meanwhile")
            raise Failure(f"{self.where}: {what}")
        return found.said

    def add(self, path: str | os.PathLike[str], labels: Mapping[str, str] | None = None) -> Added:
        """Adds a log. The cost is that of the log, however much the dataset has already."""
        with open_log(path) as log:
            own = identity(log)
            with failing(self.where), self.store.held(own.log):
                before = self.entry(own.log)
                if before is not None:
                    return Added(same(before, own, log, labels or {}), new=False)
                with self.store.staged() as staged:
                    writer = Writer(log, labels or {}, own, staged)
                    files, entry = writer.write()
                    self.store.publish(staged, files, entry)
                added = self.entry(own.log)
        if added is None:
            raise Failure(f"{self.where}: {own.log} was removed while it was added")
        return Added(added, new=True, said=writer.said)

    def remove(self, entry: Entry) -> None:
        """The entry first: from then on there is no such recording."""
        with failing(self.where), self.store.held(entry.log):
            self.store.remove([entry.name, *entry.files(shared=False)])
        cache.remove(self.store, entry.log)

    @contextlib.contextmanager
    def opened(
        self, entry: Entry, *, locked: bool = False, writable: Sequence[Path] = ()
    ) -> Iterator[Log]:
        """A recording as a log. Of a store that is far away, its files are fetched for as long."""
        if isinstance(self.store, Local):
            with open_log(self.store.folder / entry.name, locked=locked, writable=writable) as log:
                yield log
            return
        with (
            self.fetched(entry) as folder,
            open_log(folder / entry.name, locked=locked, writable=writable) as log,
        ):
            yield log

    @contextlib.contextmanager
    def fetched(self, entry: Entry) -> Iterator[Path]:
        """A folder with the files of a recording, of a store that is far away."""
        with self.store.staged() as staged:
            # Not the derived tables: they are made of the others.
            parts = [*entry.events.values(), *(p for p in entry.tables.values() if not p.schema)]
            files = [p.path for p in parts if p.path]
            for name in [entry.name, str(entry.said["meta"]), *files]:
                (staged / name).parent.mkdir(parents=True, exist_ok=True)
                self.store.fetch(name, staged / name)
            yield staged


def same(before: Entry, own: Identity, log: Log, labels: Mapping[str, str]) -> Entry:
    """The recording that is in the dataset already, if it is the same."""
    if before.said["checksum"] != own.checksum:
        had, has = before.said["events_logged"], sum(e.logged for e in log.events.values())
        what = "was cut or continued" if had != has else "or what klogger makes of it has changed"
        raise Failure(
            f"{log.path}: the dataset has this recording ({own.log}) with other content: {had:,}"
            f" events, and now {has:,}: it {what}",
            help=f"'klogger dataset remove DATASET {own.log}', then add it again",
        )
    if labels and dict(labels) != dict(before.labels):
        raise Failure(
            f"{log.path}: the dataset has this recording ({own.log}) with other labels:"
            f" {said(before.labels) or 'none'}",
            help=f"'klogger dataset remove DATASET {own.log}', then add it again",
        )
    return before


def said(labels: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in labels.items())


def is_dataset(where: str | os.PathLike[str]) -> bool:
    """Whether a command is given a dataset, and not a log."""
    text = os.fspath(where)
    return "://" in text or os.path.isfile(os.path.join(text, MANIFEST))


def open(where: str | os.PathLike[str], *, create: bool = False) -> Dataset:
    if not is_utf8(os.path.abspath(where)):
        raise Failure(
            f"{os.fspath(where)}: the name is not UTF-8, and queries cannot name its files",
            help="rename the folder",
        )
    store = store_of(where)
    with failing(store.where):
        found = manifest(store, create=create)
    check_format(store.where, found)
    return Dataset(store)


@contextlib.contextmanager
def failing(where: str) -> Iterator[None]:
    """What a full disk, or a store that cannot be reached, ends with: one message."""
    try:
        yield
    except OSError as error:
        said = str(error).removeprefix(f"{where}: ")
        raise Failure(f"{where}: {said}") from error


def manifest(store: Store, *, create: bool) -> bytes:
    try:
        return store.read(MANIFEST)
    except FileNotFoundError:
        if not create:
            raise Failure(
                f"{store.where}: not a dataset: it has no {MANIFEST}",
                help="'klogger dataset add DIR LOG...' makes one",
            ) from None
        if store.names("."):
            raise Failure(
                f"{store.where}: is there, is not empty, and is no dataset",
                help="name a new folder",
            ) from None
        found = json.dumps({"klogger dataset": FORMAT}).encode()
        if isinstance(store, Local):
            outputs.folder(store.folder)
        store.write(MANIFEST, found)
        return found


def check_format(where: str, manifest: bytes) -> None:
    try:
        version = json.loads(manifest)["klogger dataset"]
    except (ValueError, KeyError, TypeError):
        raise Failure(f"{where}/{MANIFEST}: not the manifest of a dataset") from None
    if version != FORMAT:
        raise Failure(
            f"{where}: a dataset of version {version}, and this klogger knows version {FORMAT}",
            help="use the version of klogger that wrote it, or a newer one",
        )


def named(entries: Iterable[Entry], name: str) -> Entry:
    """A recording by its UUID, or the beginning of it."""
    listed = list(entries)
    found = [e for e in listed if e.log.startswith(name)] if len(name) >= 4 else []
    if len(found) == 1:
        return found[0]
    if found:
        raise Failure(f"{len(found)} recordings begin with {name}")
    close = did_you_mean(name, [e.log for e in listed])
    raise Failure(f"no recording '{name}'", help=close or "'klogger dataset list DIR' lists them")


def match(entry: Entry, conditions: Mapping[str, str]) -> bool:
    """Whether a recording has these labels, or is of this host, kernel or command."""
    return all(value_of(entry, name) == value for name, value in conditions.items())


def value_of(entry: Entry, name: str) -> str:
    return entry.value(name if name in ("host", "kernel", "command") else f"label.{name}")
