# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Fewer and larger files: the tables of all recordings of a host in one file each, a pack. Also
removes what belongs to no recording: of writers that were killed, and of recordings that were
removed from a pack.

A pack is there before the first entry names it, and the files that it replaces go after the last
entry that named them.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import duckdb

from klogger.dataset import Dataset, Entry, cache, checks, fleet
from klogger.dataset.store import Local
from klogger.dataset.write import digest
from klogger.folder import Part, entry
from klogger.log import connect
from klogger.sqltext import literal

PACK = "recording=pack-"


@dataclass
class Compacted:
    """Numbers of files."""

    before: int = 0
    packs: int = 0
    stray: int = 0


Place = tuple[str, tuple[tuple[str, str], ...]]


def compact(dataset: Dataset) -> Compacted:
    found = Compacted()
    with dataset.store.held("compact"):
        found.stray = sweep(dataset)
        places: dict[Place, list[tuple[Entry, str, Part]]] = defaultdict(list)
        for one in dataset.entries():
            for name, part in [*one.said["events"].items(), *one.said["tables"].items()]:
                if part.path:
                    folder = part.path.rsplit("/", 2)[0]
                    places[folder, part.form].append((one, name, part))
        replaced: dict[str, dict[str, Part]] = defaultdict(dict)
        old: set[str] = set()
        for (folder, _), parts in sorted(places.items()):
            files = {part.path for _, _, part in parts}
            if len(files) > 1 or has_others(dataset, parts):
                for one, name, part in pack(dataset, folder, parts):
                    replaced[one.log][name] = part
                old |= files
                found.packs += 1
        for log, parts_of in replaced.items():
            rewrite(dataset, log, parts_of)
        found.before = len(old)
        dataset.store.remove(sorted(old))
        sweep_cache(dataset)
    return found


def sweep_cache(dataset: Dataset) -> None:
    """Removes what was kept of analyses and recordings that are no more, or are others now."""
    entries = dataset.entries()
    keys = {cache.key_of(one) for one in fleet.of_entries(entries)}
    cache.sweep(dataset.store, keys, {(e.log, str(e.said["checksum"])) for e in entries})


def sweep(dataset: Dataset) -> int:
    """Removes files that no entry names. Of a recording that is being added, those that are in
    their places already are waited for: the writer holds its name.
    """
    gone = 0
    for name in checks.check(dataset, content=False).stray:
        log = name.partition("recording=")[2].partition("/")[0]
        if log and not name.startswith("recordings/"):
            with dataset.store.held(log):
                if dataset.entry(log) is None and log not in dataset.unreadable:
                    dataset.store.remove([name])
                    gone += 1
    return gone


def has_others(dataset: Dataset, parts: list[tuple[Entry, str, Part]]) -> bool:
    """Whether a pack has rows of recordings that were removed."""
    part = parts[0][2]
    if not part.log or not isinstance(dataset.store, Local):
        return False
    file = literal(str(dataset.store.folder / part.path))
    with duckdb.connect() as connection:
        ((rows,),) = connection.execute(
            f"SELECT sum(num_rows) FROM parquet_file_metadata({file})"
        ).fetchall()
    return int(rows) != sum(p.rows for _, _, p in parts)


def pack(
    dataset: Dataset, folder: str, parts: list[tuple[Entry, str, Part]]
) -> list[tuple[Entry, str, Part]]:
    """Writes one file with all rows."""
    place = f"{folder}/{PACK}{uuid.uuid4()}/part-0.parquet"
    with dataset.store.staged() as staged:
        file = staged / place
        file.parent.mkdir(parents=True)
        sources = [
            literal(str(local(dataset, path, staged)))
            for path in dict.fromkeys(part.path for _, _, part in parts)
        ]
        logs = ", ".join(literal(one.log) for one, _, _ in parts)
        with connect() as connection:
            connection.execute(
                f"COPY (SELECT * FROM read_parquet([{', '.join(sources)}],"
                f" hive_partitioning = false) WHERE log IN ({logs}))"
                f" TO {literal(str(file))} (FORMAT parquet, COMPRESSION zstd)"
            )
        size, content = file.stat().st_size, digest(file)
        dataset.store.publish(staged, [], place)
    return [
        (one, name, dataclasses.replace(part, path=place, bytes=size, sha256=content, log=one.log))
        for one, name, part in parts
    ]


def local(dataset: Dataset, name: str, staged: Path) -> Path:
    """A file of the dataset, where DuckDB can read it."""
    if isinstance(dataset.store, Local):
        return (dataset.store.folder / name).absolute()
    to = staged / f"{uuid.uuid4()}.parquet"
    dataset.store.fetch(name, to)
    return to


def rewrite(dataset: Dataset, log: str, parts: dict[str, Part]) -> None:
    with dataset.store.held(log):
        try:
            text = dataset.store.read(f"recordings/{log}.json")
        except FileNotFoundError:
            # It was removed meanwhile.
            return
        known = entry(text)
        found = json.loads(text)
        for kind in ("events", "tables"):
            for name in known[kind]:
                if name in parts:
                    found[kind][name] = parts[name].as_json()
        dataset.store.write(f"recordings/{log}.json", json.dumps(found).encode())
