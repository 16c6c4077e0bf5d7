# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reports over very many recordings: what is read before the first rows are shown, and for the
second report, does not grow with their number. (Files are counted, and no time is taken.)
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recordings import Datasets, multiplied

from klogger import dataset
from klogger.cli import report
from klogger.dataset import Dataset, cache, fleet, index, sample
from klogger.dataset.store import Local
from klogger.executors.here import Here

QUANTA = ("quanta",)
Sized = Callable[[int], Dataset]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of the dataset that this process has read whole."""
    found: list[str] = []
    before = Local.read

    def read(own: Local, name: str) -> bytes:
        found.append(name)
        return before(own, name)

    monkeypatch.setattr(Local, "read", read)
    return found


@pytest.fixture
def of_size(tmp_path: Path, datasets: Datasets, monkeypatch: pytest.MonkeyPatch) -> Sized:
    """Datasets of so many recordings, whose heads are kept in one file if there are more than 5."""
    monkeypatch.setattr(index, "NEW_MAX", 5)
    monkeypatch.setattr(sample, "FEW", 6)

    def made(count: int) -> Dataset:
        into = datasets.copy(tmp_path / str(count), ("host0",))
        multiplied(into, into.entries()[0], count - 1)
        return dataset.open(into.where)

    return made


def test_first_rows_of_many_recordings(
    of_size: Sized,
    reads: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They come when a few entries have been read, and the answer is that of all recordings."""
    monkeypatch.setattr(sample, "RECORDINGS_MAX", 3)
    counts = []
    shown = sample.show

    def show(*given: object) -> None:
        shown(*given)  # type: ignore[arg-type]
        counts.append(len(reads))

    monkeypatch.setattr(sample, "show", show)
    for count in (8, 16):
        into = of_size(count)
        reads.clear()
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        assert report.main([into.where, "--analysis", "quanta", "--no-pager"]) == 0
        said = capsys.readouterr()
        # Lines end where the name of the folder leaves no room.
        out, err = (" ".join(text.split()) for text in said)
        assert f"Provisional, of 3 of {count} recordings" in err
        assert f"{count} recordings of {count} hosts" in out
        assert "Provisional" not in out
    # Now the heads are there, and there is no sample.
    assert report.main([into.where, "--analysis", "quanta", "--no-pager"]) == 0
    assert "Provisional" not in capsys.readouterr().err
    assert len(counts) == 2
    assert counts[0] == counts[1] < 8


def test_the_sample_is_of_what_is_asked_for(of_size: Sized) -> None:
    into = of_size(20)
    assert [e.host for e in sample.entries_of(into, {"host": "copy7"})] == ["copy7"]
    assert sample.entries_of(into, {"host": "nobody"}) == []
    few = sample.entries_of(into, {})
    assert len(few) == sample.RECORDINGS_MAX
    # What no recording of the sample has, others may have: it is not refused here.
    told: list[fleet.Fleet] = []
    sample.show(into, few, ["nothing"], [], Here(), told.append)
    assert told == []
    into.entries()
    assert sample.entries_of(into, {}) == []


def test_the_second_report_reads_as_many_files_of_any_dataset(
    of_size: Sized, reads: list[str]
) -> None:
    counts = []
    for count in (8, 24):
        into = of_size(count)
        first = fleet.answers(into, into.entries(), QUANTA)
        reads.clear()
        second = fleet.answers(into, into.entries(), QUANTA)
        assert [r.table.rows for r in first.results] == [r.table.rows for r in second.results]
        assert len(second.entries) == count
        counts.append(len(reads))
        assert not [name for name in reads if name.startswith("recordings/")]
    assert counts[0] == counts[1]


def test_a_report_makes_one_batch_of_small_ones(of_size: Sized) -> None:
    into = of_size(4)
    entries = into.entries()
    for count in (3, 4):
        found = fleet.answers(into, entries[:count], QUANTA)
    (folder,) = (Path(into.where) / cache.FOLDER).glob("scheduler-*")
    assert sorted(Path(name).suffix for name in os.listdir(folder)) == [".json", ".parquet"]
    again = fleet.answers(into, entries, QUANTA)
    assert [r.table.rows for r in again.results] == [r.table.rows for r in found.results]
    assert len(again.entries) == 4


def test_where_no_link_can_be_made_nothing_is_removed_too_early(
    of_size: Sized, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the folder for temporary files is on another file system."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    into = of_size(4)
    for count in (3, 4, 4):
        found = fleet.answers(into, into.entries()[:count], QUANTA)
        assert [r.status for r in found.results] == ["answer"], found.results
    (folder,) = (Path(into.where) / cache.FOLDER).glob("scheduler-*")
    assert len(os.listdir(folder)) == 2


def test_many_reports_keep_their_answers_in_few_files(of_size: Sized, tmp_path: Path) -> None:
    """Each adds that of one recording."""
    into = of_size(1)
    logs = [str(number) for number in range(60)]
    for number, log in enumerate(logs):
        kept = cache.Cache(into.store, tmp_path)
        assert kept.find("key", dict.fromkeys(logs, "sum")).keys() == set(logs[:number])
        kept.keep("key", [cache.Kept(log, "sum", 1.0, "empty", "none", ())])
        kept.settle("key")
        assert kept.fault == ""
        assert len(os.listdir(Path(into.where) / cache.FOLDER / "key")) <= 4


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ({}, []),
        ({"a": 5}, []),
        ({"a": 1, "b": 1}, ["a", "b"]),
        ({"a": 1, "b": 4}, []),
        ({"a": 10_000, "b": 1, "c": 2, "d": 3}, ["b", "c", "d"]),
        ({"a": 100, "b": 20, "c": 10}, ["c", "b", "a"]),
        ({"a": 1000, "b": 20, "c": 5}, []),
    ],
)
def test_which_batches_become_one(sizes: dict[str, int], wanted: list[str]) -> None:
    assert cache.small(sizes) == wanted


def test_the_number_of_batches_stays_small() -> None:
    """Of any number of reports: at most one more for each five times as many recordings."""
    sizes: dict[str, int] = {}
    for number in range(3000):
        sizes[str(number)] = 1
        merged = cache.small(sizes)
        if len(merged) > 1:
            sizes[f"of {number}"] = sum(sizes.pop(name) for name in merged)
        assert len(sizes) <= 6
    assert sum(sizes.values()) == 3000
