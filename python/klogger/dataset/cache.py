# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What analyses gave of each recording, kept in the dataset, so that the next report has only to
combine it.

    cache/SCHEMA-NAME-KEY/BATCH.json       which recordings, with what each was answered
    cache/SCHEMA-NAME-KEY/BATCH.parquet    their rows, before they are combined

KEY is a hash of all that the rows depend on beside the recording: the SQL of the analysis and of
what it includes, klogger's own code, and the version of DuckDB. A recording is known by the
checksum of its content. So what has changed is not found, and is worked on again. A batch exists
when its JSON file does, which comes last and has the checksum of the other.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import tempfile
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import duckdb

import klogger
from klogger import analysis as analyses
from klogger import spans
from klogger.analysis import Analysis
from klogger.dataset.store import Local, Store
from klogger.dataset.write import digest, quoted
from klogger.failure import Failure
from klogger.sqltext import literal

FOLDER = "cache"
# When a report has ended, a batch is at least so many times as large as all smaller ones together:
# of 10,000 recordings there are at most 7 of each analysis, however many reports wrote them.
GROWTH = 4


class Kept(NamedTuple):
    """What an analysis gave of one recording. Its rows are in one of `files`, if it has some.

    There may be a hundred thousand, and a named tuple is made four times as fast as a data class.
    """

    log: str
    checksum: str
    seconds: float
    status: str
    reason: str
    warnings: tuple[str, ...]
    files: tuple[str, ...] = ()


def key_of(one: Analysis) -> str:
    """Of an analysis: the folder of its batches."""
    found = hashlib.sha256(code().encode())
    found.update("\n".join([*one.text, one.whole()]).encode())
    if uses_spans(one):
        found.update(all_sql().encode())
    return quoted(f"{one.schema}-{one.name}-{found.hexdigest()[:32]}")


def uses_spans(one: Analysis) -> bool:
    """Whether it needs SQL of other schemata of the log."""
    return bool(spans.asked(one.whole()))


@functools.cache
def code() -> str:
    """Of klogger itself. While it is developed, its version says too little."""
    root = Path(klogger.__file__).parent
    found = hashlib.sha256(duckdb.__version__.encode())
    for file in sorted([*root.glob("*.py"), *(root / "dataset").glob("*.py")]):
        found.update(file.read_bytes())
    return found.hexdigest()


def all_sql() -> str:
    """Of all schemata: any of them may make spans."""
    found = hashlib.sha256()
    for base in analyses.schemata():
        for file in sorted(base.glob("*/**/*.sql")):
            found.update(f"{file.name}\0".encode() + file.read_bytes())
    return found.hexdigest()


@dataclass
class Cache:
    """`fetched`: a folder for batches of a store that is far away. `fault`: why nothing more is
    kept.
    """

    store: Store
    fetched: Path
    fault: str = ""
    # Of an analysis, how many recordings each batch has.
    batches: dict[str, dict[str, int]] = field(default_factory=dict)

    def find(self, key: str, checksums: Mapping[str, str]) -> dict[str, Kept]:
        """What is known of these recordings, by their ids."""
        found: dict[str, Kept] = {}
        for batch in self.readable(key, self.store.names(f"{FOLDER}/{key}")):
            found.update((k.log, k) for k in batch if checksums.get(k.log) == k.checksum)
        return found

    def readable(self, key: str, names: Sequence[str]) -> list[list[Kept]]:
        """The batches among these files that are whole."""
        found, sizes = [], {}
        for name in (n.removesuffix(".json") for n in names if n.endswith(".json")):
            # Somebody may just have removed it, or it is damaged.
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, IndexError):
                found.append(self.batch(f"{FOLDER}/{key}/{name}"))
                sizes[name] = len(found[-1])
        self.batches[key] = sizes
        return found

    def batch(self, name: str) -> list[Kept]:
        """All of a batch, or an error."""
        said = json.loads(self.store.read(f"{name}.json"))
        answers = [(str(s), str(r), tuple(map(str, w))) for s, r, w in said["answers"]]
        files: tuple[str, ...] = ()
        if said["sha256"]:
            path = self.file(f"{name}.parquet")
            if digest(path) != said["sha256"]:
                raise ValueError(f"{name}.parquet is damaged")
            files = (str(path),)
        found = []
        for log, checksum, seconds, at, rows in said["recordings"]:
            status, reason, warnings = answers[at]
            own = files if rows else ()
            found.append(
                Kept(str(log), str(checksum), float(seconds), status, reason, warnings, own)
            )
        return found

    def file(self, name: str) -> Path:
        """Where DuckDB can read it."""
        to = self.fetched / name.replace("/", "-")
        if not isinstance(self.store, Local):
            if not to.exists():
                self.store.fetch(name, to)
            return to
        own = (self.store.folder / name).absolute()
        # A link, if there can be one: another report may remove it while this one reads it.
        with contextlib.suppress(OSError):
            os.link(own, to)
        return to if to.exists() else own

    def keep(self, key: str, kept: Sequence[Kept]) -> None:
        """Adds a batch. Where nothing can be written, nothing is kept."""
        if self.fault or not kept:
            return
        try:
            self.write(key, kept)
        except (OSError, Failure, duckdb.Error) as error:
            self.fault = str(error).splitlines()[0]

    def settle(self, key: str) -> None:
        """Makes few batches of those that were added, together with others that are small."""
        if self.fault:
            return
        few = small(self.batches.get(key, {}))
        try:
            if len(few) > 1:
                merge(self, key, few)
        except (OSError, Failure, duckdb.Error) as error:
            self.fault = str(error).splitlines()[0]

    def write(self, key: str, kept: Sequence[Kept]) -> None:
        batch = str(uuid.uuid4())
        self.batches.setdefault(key, {})[batch] = len(kept)
        name = f"{FOLDER}/{key}/{batch}"
        answers = list(dict.fromkeys((k.status, k.reason, k.warnings) for k in kept))
        places = {answer: at for at, answer in enumerate(answers)}
        with self.store.staged() as staged:
            (staged / name).parent.mkdir(parents=True)
            sha = copy(kept, staged / f"{name}.parquet")
            said = {
                "sha256": sha,
                "answers": answers,
                "recordings": [
                    (k.log, k.checksum, k.seconds, places[k.status, k.reason, k.warnings],
                     int(bool(k.files)))
                    for k in kept
                ],
            }  # fmt: skip
            (staged / f"{name}.json").write_text(json.dumps(said))
            self.store.publish(staged, [f"{name}.parquet"] if sha else [], f"{name}.json")


def copy(kept: Sequence[Kept], to: Path) -> str:
    """The rows of these recordings, of whatever files, in one file. Gives its checksum."""
    pairs = [(file, one.log) for one in kept for file in one.files]
    if not pairs:
        return ""
    files = ", ".join(map(literal, dict(pairs)))
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        connection.execute("SET memory_limit = '512MiB'")
        connection.execute(
            "CREATE TABLE wanted AS SELECT unnest($1::VARCHAR[]) AS file,"
            " unnest($2::VARCHAR[]) AS log", list(zip(*pairs, strict=True)),
        )  # fmt: skip
        # One reader for all files: with one for each, thousands of them take more memory than that.
        connection.execute(
            f'COPY (SELECT * EXCLUDE ("klogger file") FROM read_parquet([{files}],'
            " union_by_name = true, filename = 'klogger file') AS k"
            ' SEMI JOIN wanted AS w ON k."klogger file" = w.file AND k."klogger log" = w.log)'
            f" TO {literal(str(to))} (FORMAT parquet, COMPRESSION zstd)"
        )
    return digest(to)


def small(sizes: Mapping[str, int]) -> list[str]:
    """The batches that are to be made one: of the smallest, as many as leave only such that are
    much larger.
    """
    ordered = sorted(sizes, key=lambda name: sizes[name])
    total, wanted = 0, 0
    for count, name in enumerate(ordered, 1):
        if sizes[name] < GROWTH * total:
            wanted = count
        total += sizes[name]
    return ordered[:wanted]


def merge(
    cache: Cache,
    key: str,
    batches: Collection[str],
    wanted: Callable[[Kept], bool] = lambda _: True,
) -> None:
    """Makes one batch of these, with the recordings that are wanted. A reader that is just looking
    for one of the files that are removed works on its recordings anew.
    """
    names = [n for n in cache.store.names(f"{FOLDER}/{key}") if n.partition(".")[0] in batches]
    sizes = cache.batches.get(key, {})
    found: dict[str, Kept] = {}
    for batch in cache.readable(key, names):
        for kept in batch:
            if wanted(kept):
                found.setdefault(kept.log, kept)
    cache.batches[key] = {name: size for name, size in sizes.items() if name not in batches}
    if found:
        cache.write(key, list(found.values()))
    cache.store.remove([f"{FOLDER}/{key}/{name}" for name in sorted(names)])


def all_of(names: Sequence[str]) -> set[str]:
    """The batches that these files are of."""
    return {name.partition(".")[0] for name in names}


def remove(store: Store, log: str) -> None:
    """What analyses gave of a recording."""
    with tempfile.TemporaryDirectory(prefix="klogger-") as folder:
        cache = Cache(store, Path(folder))
        for key in store.names(FOLDER):
            names = store.names(f"{FOLDER}/{key}")
            if any(kept.log == log for batch in cache.readable(key, names) for kept in batch):
                merge(cache, key, all_of(names), lambda kept: kept.log != log)


def sweep(store: Store, keys: Collection[str], recordings: Collection[tuple[str, str]]) -> None:
    """Removes what no report finds any more. `keys`: those of the analyses as they are now;
    `recordings`: id and checksum of those that the dataset has.
    """
    with tempfile.TemporaryDirectory(prefix="klogger-") as folder:
        cache = Cache(store, Path(folder))
        for key in store.names(FOLDER):
            names = store.names(f"{FOLDER}/{key}")
            if key not in keys:
                store.remove([f"{FOLDER}/{key}/{name}" for name in names])
            elif len(names) > 2 or any(
                (kept.log, kept.checksum) not in recordings
                for batch in cache.readable(key, names)
                for kept in batch
            ):
                there = all_of(names)
                merge(cache, key, there, lambda kept: (kept.log, kept.checksum) in recordings)
