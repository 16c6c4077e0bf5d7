# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Analyses over all recordings of a dataset: each recording by itself, wherever an executor runs
it (`work`), then their rows together.
"""

from __future__ import annotations

import contextlib
import math
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from klogger import analysis as analyses
from klogger.analysis import Analysis
from klogger.dataset import Dataset, Entry
from klogger.dataset.cache import Cache, Kept, key_of
from klogger.dataset.combine import Recording, Task, combine
from klogger.dataset.work import Chunk, Key, Part, Work, close_engines, word_of
from klogger.durations import duration
from klogger.executor import Result, Rows
from klogger.executors import Executor
from klogger.failure import Failure, did_you_mean

WARNINGS_MAX = 6
# Recordings are worked on in chunks: of so many recordings and events at most, and so many chunks
# at least.
CHUNK_MAX, EVENTS_MAX, CHUNKS_MIN = 64, 2_000_000, 16
# With so many new answers of recordings, they are kept: if the report is killed, they are not lost.
NEW_MAX = 20_000
# In s: an estimate that is made sooner is worth nothing.
ESTIMATE_AFTER = 3
# In s: whoever still waits then, is shown what the recordings so far give.
FIRST_AFTER = 4


@dataclass
class Fleet:
    """The answers, and which recordings they are of. `damage`: those that were left out."""

    entries: list[Entry]
    results: list[Result] = field(default_factory=list)
    damage: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def answers(
    dataset: Dataset,
    entries: Sequence[Entry],
    names: Sequence[str] = (),
    by: Sequence[str] = (),
    on: str | Executor = "here",
    progress: Callable[[str], None] = lambda _: None,
    first: Callable[[Fleet], None] | None = None,
) -> Fleet:
    """All analyses of the recordings, or those that are named; one answer for each group of
    recordings with the same values `by`. `first` is given, once, the answers of the recordings that
    are done after a few seconds, if others are not.
    """
    some = None if first is None else Provisional(first, by)
    with gathered(dataset, entries, names, on, progress, some) as (spread, taken, chosen):
        found = Fleet(taken.entries, damage=taken.damage, notes=taken.notes())
        combined = spread.combine(combined_or_failed, [taken.task(one, by) for one in chosen])
        for one, rows in zip(chosen, combined, strict=True):
            found.results.append(result_of(one, rows, taken.parts[one.schema, one.name]))
    return found


@contextlib.contextmanager
def gathered(
    dataset: Dataset,
    entries: Sequence[Entry],
    names: Sequence[str],
    on: str | Executor,
    progress: Callable[[str], None],
    first: Provisional | None = None,
) -> Iterator[tuple[Executor, Taken, list[Analysis]]]:
    """The rows of each recording, and the analyses that gave some; for as long as this is open."""
    known = of_entries(entries)
    check_names(names, known)
    chosen = [one for one in known if not names or one.name in names]
    with (
        executor(on) as spread,
        tempfile.TemporaryDirectory(prefix="klogger-", ignore_cleanup_errors=True) as folder,
        contextlib.closing(Progressed(progress, len(entries))) as told,
    ):
        taken = Taken(entries, Path(folder), Cache(dataset.store, Path(folder)))
        missing = taken.known(chosen)
        told.add(len(entries) - sum(map(len, missing.values())), at_once=True)
        for words, left in missing.items():
            for chunk in spread.map(Work(where_of(dataset), words, folder), chunks(left)):
                taken.add(chunk)
                told.add(len(chunk.done))
                if first is not None:
                    first.look(taken, chosen)
        taken.keep()
        taken.sort()
        yield spread, taken, taken.answered(chosen)
        # Not before: where no link to them can be made, the files that it removes are read above.
        taken.settle()


def executor(on: str | Executor) -> contextlib.AbstractContextManager[Executor]:
    """`on`: its name, or one that is used before and after."""
    from klogger import executors

    return executors.chosen(on) if isinstance(on, str) else contextlib.nullcontext(on)


def chunks(entries: Sequence[Entry]) -> list[str]:
    """The ids of some recordings each: few enough that all processes have some to do. The first
    ones have fewer, so that there is something to show soon.
    """
    most = min(max(len(entries) // CHUNKS_MIN, 1), CHUNK_MAX)
    found: list[list[str]] = []
    events = EVENTS_MAX
    for entry in entries:
        own = int(entry.said["events_logged"])
        if events + own > EVENTS_MAX or len(found[-1]) >= min(most, 2 ** (len(found) // 2)):
            found.append([])
            events = 0
        found[-1].append(entry.log)
        events += own
    return [" ".join(logs) for logs in found]


class Provisional:
    """Shows what the recordings so far give, once, if it takes long until all are done."""

    def __init__(self, told: Callable[[Fleet], None], by: Sequence[str]) -> None:
        self.told, self.by = told, by
        self.due = time.monotonic() + FIRST_AFTER

    def look(self, taken: Taken, chosen: Sequence[Analysis]) -> None:
        if time.monotonic() < self.due or len(taken.seconds) == len(taken.place):
            return
        self.due = math.inf
        taken.sort()
        found = Fleet(taken.entries)
        for one in taken.answered(chosen):
            rows = combined_or_failed(taken.task(one, self.by))
            found.results.append(result_of(one, rows, taken.parts[one.schema, one.name]))
        self.told(found)


class Progressed:
    """How many recordings are done, and how long the others may take."""

    def __init__(self, told: Callable[[str], None], total: int) -> None:
        self.told, self.total, self.count, self.free = told, total, 0, 0
        self.begun = time.monotonic()
        told(f"0 of {total:,} recordings")

    def add(self, count: int, *, at_once: bool = False) -> None:
        """`at_once`: they were known, and say nothing about how long the others take."""
        self.count += count
        self.free += count if at_once else 0
        took = time.monotonic() - self.begun
        left = took * (self.total - self.count) / max(self.count - self.free, 1)
        rest = f", {duration(left * 1e9)} left" if took > ESTIMATE_AFTER and left else ""
        self.told(f"{self.count:,} of {self.total:,} recordings{rest}")

    def close(self) -> None:
        """Nothing is left to be worked on in this process."""
        close_engines()


class Taken:
    """What has come of the recordings so far. Their rows are in files: there may be many."""

    def __init__(self, entries: Sequence[Entry], folder: Path, cache: Cache) -> None:
        self.cache = cache
        self.place = {e.log: (number, e) for number, e in enumerate(entries)}
        self.folder = folder
        self.parts: dict[Key, list[tuple[Entry, Part]]] = defaultdict(list)
        self.files: dict[Key, list[str]] = defaultdict(list)
        self.seconds: dict[str, float] = {}
        self.damage: dict[str, str] = {}
        # Of an analysis, where the rows of a recording are that were kept in the dataset.
        self.kept: dict[Key, dict[str, str]] = defaultdict(dict)
        # What is new, and is to be kept; and of which analyses there was some.
        self.new: dict[str, list[Kept]] = defaultdict(list)
        self.added: dict[str, None] = {}
        # By which recordings are grouped, and those so far.
        self.groups: tuple[tuple[str, ...], dict[str, Recording]] = ((), {})

    def known(self, chosen: Sequence[Analysis]) -> dict[tuple[str, ...], list[Entry]]:
        """Takes what the dataset has kept. Gives the recordings that are to be worked on, by the
        analyses that they lack.
        """
        checksums = {log: str(e.said["checksum"]) for log, (_, e) in self.place.items()}
        lacking: dict[str, list[str]] = {log: [] for log in self.place}
        whole: set[str] = set()
        for one in chosen:
            found = self.cache.find(key_of(one), checksums)
            self.take(one, found)
            whole.update(found)
            for log, (_, entry) in self.place.items():
                if log in found:
                    continue
                if one.schema in entry.said["schemata"]:
                    lacking[log].append(word_of(one))
        missing: dict[tuple[str, ...], list[Entry]] = defaultdict(list)
        for log, words in lacking.items():
            if words or log not in whole:
                # One that no analysis is for is opened all the same: it may be damaged.
                missing[tuple(words) or ("/",)].append(self.place[log][1])
        return missing

    @property
    def entries(self) -> list[Entry]:
        """Those of which the rows are there."""
        return [e for _, e in self.place.values() if e.log in self.seconds]

    def answered(self, chosen: Sequence[Analysis]) -> list[Analysis]:
        """The analyses that gave something."""
        return [one for one in chosen if (one.schema, one.name) in self.parts]

    def take(self, one: Analysis, found: Mapping[str, Kept]) -> None:
        """What was kept of an analysis."""
        if not found:
            return
        key = (one.schema, one.name)
        # Nearly all say the same, and are one.
        said: dict[tuple[str, str, tuple[str, ...]], Part] = {}
        parts, files = self.parts[key], self.kept[key]
        for log, (_, entry) in self.place.items():
            if (kept := found.get(log)) is not None:
                answer = (kept.status, kept.reason, kept.warnings)
                if answer not in said:
                    said[answer] = Part(*key, kept.status, kept.reason, kept.warnings)
                parts.append((entry, said[answer]))
                files[log] = kept.files[0] if kept.files else ""
                self.seconds[log] = kept.seconds

    def keep(self) -> None:
        """Keeps what is new in the dataset."""
        for key, new in self.new.items():
            self.cache.keep(key, new)
            self.added[key] = None
        self.new.clear()

    def settle(self) -> None:
        """Makes few files of what was kept. Nothing that was found is read any more."""
        for key in self.added:
            self.cache.settle(key)

    def notes(self) -> list[str]:
        fault = self.cache.fault
        return [f"nothing is kept for the next report: {fault}"] if fault else []

    def add(self, chunk: Chunk) -> None:
        for done in chunk.done:
            if done.damage:
                self.damage[done.log] = done.damage
                continue
            self.seconds[done.log] = done.seconds
            for part in done.parts:
                self.parts[part.schema, part.name].append((self.place[done.log][1], part))
        for key, contents in chunk.rows.items():
            for content in contents:
                file = self.folder / f"{len(self.files[key])}-{key[0]}-{key[1]}.parquet"
                file.write_bytes(content)
                self.files[key].append(str(file))
        self.note(chunk)
        if sum(map(len, self.new.values())) > NEW_MAX:
            self.keep()

    def note(self, chunk: Chunk) -> None:
        """What is to be kept. Of what failed, the reason may be gone the next time."""
        files = {key: self.files[key][-len(new) :] for key, new in chunk.rows.items() if new}
        for done in chunk.done:
            checksum = str(self.place[done.log][1].said["checksum"])
            for part in done.parts:
                if part.key and part.status != "failed":
                    own = files[part.schema, part.name] if part.status == "answer" else ()
                    self.new[part.key].append(
                        Kept(
                            done.log, checksum, done.seconds, part.status, part.reason,
                            part.warnings, tuple(own),
                        )
                    )  # fmt: skip

    def sort(self) -> None:
        """Executors give the recordings in any order; the answer does not depend on it."""
        for parts in self.parts.values():
            parts.sort(key=lambda pair: self.place[pair[0].log][0])
        self.damage = dict(sorted(self.damage.items()))

    def task(self, one: Analysis, by: Sequence[str]) -> Task:
        key = (one.schema, one.name)
        known = self.grouped(tuple(by))
        recordings = [
            known[e.log] for e, part in self.parts[key] if part.status in ("answer", "empty")
        ]
        return Task(
            one, tuple(by), tuple(recordings), tuple(self.files[key]), self.kept.get(key, {})
        )

    def grouped(self, by: tuple[str, ...]) -> Mapping[str, Recording]:
        """The recordings so far with their groups, which all analyses share."""
        if self.groups[0] != by or len(self.groups[1]) != len(self.seconds):
            found = {
                e.log: Recording(e.log, e.host, self.seconds[e.log], tuple(map(e.value, by)))
                for e in self.entries
            }
            self.groups = (by, found)
        return self.groups[1]


def where_of(dataset: Dataset) -> str:
    """As another process finds it."""
    return dataset.where if "://" in dataset.where else os.path.abspath(dataset.where)


def of_entries(entries: Sequence[Entry]) -> list[Analysis]:
    """Analyses of the schemata of all recordings, in the order of a report."""
    names = dict.fromkeys(str(s) for e in entries for s in e.said["schemata"])
    return analyses.find([{"name": name} for name in names])


def check_names(names: Sequence[str], known: Sequence[Analysis]) -> None:
    for name in names:
        if name not in [one.name for one in known]:
            close = did_you_mean(name, [one.name for one in known])
            listed = f"there are: {', '.join(one.name for one in known)}"
            raise Failure(f"no analysis '{name}'", help=close or listed)


def combined_or_failed(task: Task) -> tuple[Analysis, Rows] | Failure:
    try:
        return combine(task)
    except Failure as failure:
        return failure
    except duckdb.Error as error:
        return Failure(f"{task.analysis.path}: {str(error).splitlines()[0]}")


def result_of(
    one: Analysis,
    combined: tuple[Analysis, Rows] | Failure,
    parts: Sequence[tuple[Entry, Part]],
) -> Result:
    statuses = [part.status for _, part in parts]
    result = Result(one, warnings=warnings_of(parts))
    if isinstance(combined, Failure):
        result.status, result.reason, result.failure = "failed", str(combined), combined
        return result
    result.analysis, result.table = combined
    result.points = Rows()
    if not result.table.rows:
        worst = next(s for s in ("failed", "not_recorded", "empty", "answer") if s in statuses)
        result.status = "empty" if "empty" in statuses else worst
        result.reason = next((p.reason for _, p in parts if p.status == result.status), "")
    return result


def warnings_of(parts: Sequence[tuple[Entry, Part]]) -> list[str]:
    """Each warning with the recording that has it, or with how many have it; and those that could
    not answer.
    """
    texts: dict[str, list[Entry]] = defaultdict(list)
    for entry, part in parts:
        for text in part.warnings:
            texts[text].append(entry)
        if part.status in ("failed", "not_recorded"):
            texts[f"no answer: {part.reason}"].append(entry)
    said = []
    for text, entries in texts.items():
        only = f"{entries[0].host}, {entries[0].log[:8]}"
        who = only if len(entries) == 1 else f"{len(entries):,} of {len(parts):,} recordings"
        said.append(f"{who}: {text}")
    if len(said) <= WARNINGS_MAX:
        return said
    more = {e.log for entries in list(texts.values())[WARNINGS_MAX:] for e in entries}
    left = f"and {len(said) - WARNINGS_MAX:,} more warnings, of {len(more):,} recordings"
    return [*said[:WARNINGS_MAX], left]
