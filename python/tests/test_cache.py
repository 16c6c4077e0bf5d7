# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a dataset keeps of analyses: the same answers, and none that is out of date."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import support
from recordings import Datasets, log_of

from klogger import dataset
from klogger.dataset import cache, checks, compact, fleet, work
from klogger.dataset.cache import FOLDER, Cache, Kept
from klogger.dataset.engine import LASTING, NOT_SQL
from klogger.dataset.store import HIDDEN
from klogger.failure import Failure

STRANGER = 65534
QUANTA = ("quanta",)


@pytest.fixture
def three(tmp_path: Path, datasets: Datasets) -> dataset.Dataset:
    return datasets.copy(tmp_path, ("host0", "host1", "host2"))


def asked(into: dataset.Dataset, names: tuple[str, ...] = QUANTA) -> list[Any]:
    found = fleet.answers(into, into.entries(), names, by=["host"])
    return [found.damage, *((r.status, r.warnings, r.table.rows) for r in found.results)]


@pytest.fixture
def worked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The recordings that were worked on, and were not known."""
    found: list[str] = []
    before: Callable[..., work.Done] = work.Work.done

    def done(own: work.Work, engine: Any, log: str) -> work.Done:
        found.append(log)
        return before(own, engine, log)

    monkeypatch.setattr(work.Work, "done", done)
    return found


def test_the_second_report_has_only_to_combine(three: dataset.Dataset, worked: list[str]) -> None:
    first = asked(three)
    assert len(worked) == 3
    assert len(first[1][2]) == 6
    assert asked(three) == first
    assert len(worked) == 3
    # Another analysis is not known, nor is another recording.
    asked(three, ("quanta", "switches"))
    assert len(worked) == 6
    three.add(log_of(Path(three.where).parent, 3, "host3"))
    assert len(asked(three)[1][2]) == 8
    assert len(worked) == 7
    assert checks.check(three).stray == []


@pytest.mark.full("takes more than 3 s")
def test_what_has_changed_is_worked_on_again(
    three: dataset.Dataset, worked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "schemata"
    shutil.copytree(support.SCHEMATA, copied)
    monkeypatch.setenv("KLOGGER_SCHEMATA", str(copied))
    first = asked(three)
    assert asked(three) == first
    assert len(worked) == 3
    # The analysis, and what it includes.
    for name in ("quanta", "_quantum"):
        file = copied / "scheduler" / "analyses" / f"{name}.sql"
        file.write_text(file.read_text().replace("count(*)", "count(*) + 0", 1))
        before = len(worked)
        assert asked(three) == first
        assert len(worked) == before + 3
    entry = three.entries()[0]
    file = Path(three.where) / entry.name
    file.write_text(json.dumps(json.loads(file.read_text()) | {"checksum": "other"}))
    assert asked(three) == first
    assert worked[-1] == entry.log
    assert len(worked) == 10


def kept_files(into: dataset.Dataset) -> list[Path]:
    return sorted((Path(into.where) / FOLDER).rglob("*.*"))


@pytest.mark.full("takes more than 3 s")
def test_damage_is_noticed(three: dataset.Dataset, worked: list[str]) -> None:
    first = asked(three)
    for suffix in (".parquet", ".json"):
        (file,) = [f for f in kept_files(three) if f.suffix == suffix]
        file.write_bytes(file.read_bytes()[:-9] + b"123456789")
        before = len(worked)
        assert asked(three) == first
        assert len(worked) == before + 3
        shutil.rmtree(Path(three.where) / FOLDER)
        asked(three)


@pytest.mark.full("takes more than 3 s")
def test_what_is_removed_is_not_kept(three: dataset.Dataset, worked: list[str]) -> None:
    asked(three)
    gone, *_ = three.entries()
    three.remove(gone)
    assert not any(gone.log.encode() in f.read_bytes() for f in kept_files(three))
    assert len(asked(three)[1][2]) == 4
    assert len(worked) == 3


@pytest.mark.full("takes more than 3 s")
def test_compact_keeps_what_is_found(
    three: dataset.Dataset, worked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Reports make no larger batches.
    monkeypatch.setattr(cache, "GROWTH", 0)
    first = asked(three)
    folder = kept_files(three)[0].parent
    stale = folder.with_name("scheduler-quanta-0123")
    shutil.copytree(folder, stale)
    three.add(log_of(Path(three.where).parent, 3, "host3"))
    more = asked(three)
    assert more[1][2][:6] == first[1][2]
    assert len(kept_files(three)) == 6
    compact.compact(three)
    assert len(kept_files(three)) == 2
    assert asked(three) == more
    assert len(worked) == 4


def test_answers_of_very_many_recordings_are_kept(tmp_path: Path) -> None:
    """Of 160 files, which have so little memory that each cannot have a reader; only the rows that
    are wanted, of whatever names.
    """
    files, each = 160, 64
    kept = []
    with duckdb.connect() as connection:
        for file in range(files):
            path = tmp_path / f"{file}.parquet"
            first = file * each
            connection.execute(
                f'COPY (SELECT ({first} + n)::VARCHAR AS "klogger log", n AS filename,'
                f" {file} AS file, 'x' || n AS log, 0.5 AS a, 0.5 AS b, 0.5 AS c, 0.5 AS d"
                f" FROM range({each}) t(n)) TO '{path}' (FORMAT parquet)"
            )
            # The last one of each file is not wanted.
            for n in range(first, first + each - 1):
                kept.append(cache.Kept(str(n), "", 1.0, "answer", "", (), (str(path),)))
        out = tmp_path / "out.parquet"
        cache.copy(kept, out)
        rows = connection.execute(f"SELECT \"klogger log\", filename, file FROM '{out}'").fetchall()
    logs = [k.log for k in kept]
    assert rows == [(log, int(log) % each, int(log) // each) for log in logs]


@pytest.mark.full("takes more than 3 s")
def test_a_dataset_that_cannot_be_written(three: dataset.Dataset, worked: list[str]) -> None:
    (Path(three.where) / FOLDER).write_text("")
    first = fleet.answers(three, three.entries(), QUANTA)
    (note,) = first.notes
    assert note.startswith("nothing is kept for the next report: ")
    assert [r.table.rows for r in first.results] == [
        r.table.rows for r in fleet.answers(three, three.entries(), QUANTA).results
    ]
    assert len(worked) == 6


@pytest.mark.skipif(os.geteuid() != 0, reason="files of two users")
def test_nothing_is_kept_where_the_folder_for_it_is_of_somebody_else(
    three: dataset.Dataset,
) -> None:
    hidden = Path(three.where) / HIDDEN
    hidden.mkdir(exist_ok=True)
    os.chown(hidden, STRANGER, STRANGER)
    found = Cache(three.store, hidden.parent)
    found.keep("key", [Kept("log", "sum", 1.0, "empty", "none", (), ())])
    assert "belongs to user" in found.fault


@pytest.mark.skipif(os.geteuid() != 0, reason="files of two users")
def test_a_dataset_of_another_user_is_written_by_root(three: dataset.Dataset) -> None:
    folder = Path(three.where)
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, STRANGER, STRANGER)
    (folder / HIDDEN).mkdir(exist_ok=True)
    lock = folder / HIDDEN / "compact.lock"
    lock.touch()
    for path in (folder / HIDDEN, lock):
        os.chown(path, STRANGER, STRANGER)
    with three.store.held("compact"):
        three.store.write("entry", b"1")
        three.store.write("entry", b"2")
    assert (folder / "entry").read_bytes() == b"2"
    # But not what a third user has put there.
    os.chown(folder / HIDDEN, STRANGER - 1, STRANGER)
    with pytest.raises(Failure, match="belongs to user"):
        three.store.write("entry", b"3")


@pytest.mark.parametrize(
    ("text", "lasts"),
    [
        ("-- a\nCREATE TEMP TABLE x AS SELECT 1;\nSET VARIABLE a = 1; UPDATE x SET a = 1", False),
        ("CREATE OR REPLACE TEMP MACRO f() AS 'create table'", False),
        ("SELECT 1\nCREATE TABLE x (a INTEGER)", True),
        ("SELECT 1; create view v AS SELECT 1", True),
        ("CREATE OR REPLACE MACRO f() AS 1", True),
        ("SELECT ';'; set threads = 4", True),
        ("DROP VIEW klogger.span", True),
        ("INSERT INTO klogger.gap SELECT 1", True),
        ('delete from "klogger"."cost"', True),
        ("UPDATE recording SET to_ns = 1", True),
        ("INSERT INTO recordings SELECT 1", False),
    ],
)
def test_what_may_last_until_the_next_recording(text: str, lasts: bool) -> None:
    assert bool(LASTING.search(NOT_SQL.sub(" ", text))) == lasts
