# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `xfs` has what the kernel's own counters have, where both are at the same place; the
formats that xfs_db finds on the disk; the extents of FIEMAP; and waits that were planted.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import xfs_load
from oracles import Log, answers
from xfs_checks import check_counters, check_formats, opened

from klogger_lab.disk import Disk, loop_disk, unmount

HERE = Path(__file__).resolve().parent
SCHEMA = HERE.parents[1] / "schemata/xfs/xfs.klogger"
# A log of the least size, which is soon full.
SMALL = ["mkfs.xfs", "--unsupported", "-q", "-l", "size=1536b"]


@contextmanager
def small(tmp_path: Path, mkfs=SMALL) -> Iterator[Disk]:
    with loop_disk(tmp_path / "xfs-disk", 96, mkfs=mkfs) as disk:
        yield disk


@contextmanager
def frozen(disk: Disk) -> Iterator[None]:
    """Frozen at the beginning, and when it goes away again no more."""
    subprocess.run(["fsfreeze", "-f", disk.folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", disk.folder], check=False, capture_output=True)


def recorded(recorder, disk: Disk, what: str, *more, options=()) -> tuple[Log, dict, Path]:
    """A recording of all that happens on this disk while the load runs."""
    load = [sys.executable, xfs_load.__file__, what, disk.folder, *more]
    words = ["-s", SCHEMA, "-a", "--device", disk.text, *options]
    done, path = recorder.run(*words, "--", *load)
    assert done.code == 0, done.err
    log = opened(recorder.klogger, path)
    assert log.rows("SELECT event, text FROM ledger WHERE key = 'probe_not_attached'") == []
    return log, json.loads(done.out), path


@pytest.mark.full("takes more than 3 s")
def test_the_kernels_own_counters(recorder, tmp_path):
    with small(tmp_path) as disk, frozen(disk):
        log, told, path = recorded(
            recorder, disk, "counters", disk.name, options=("--set", "inodes=true")
        )
    delta = check_counters(log, told)
    assert delta["push_ail", 1] > 0
    assert ("extent_alloc", 0) in delta
    space = answers(recorder.klogger, path, "--analysis", "log_space")["log_space"]
    assert sum(row["sleeps"] for row in space) == delta["push_ail", 1]


def test_formats_are_those_on_the_disk(recorder, tmp_path):
    with small(tmp_path) as disk:
        log, told, path = recorded(recorder, disk, "formats")
        unmount(disk.folder)
        try:
            found = xfs_load.look(str(disk.device), json.dumps(told))
        finally:
            subprocess.run(["mount", disk.device, disk.folder], check=True)
    emptied = check_formats(log, told, found)
    rows = answers(recorder.klogger, path, "--analysis", "formats")["formats"]
    assert {row["switches"] for row in rows if row["inode"].endswith(f":{emptied}")} == {6}


def check_fsyncs(log: Log, told: dict, rows_of: dict) -> None:
    """They are those of the program, by its own clock."""
    rows = [took for (took,) in log.rows("SELECT took FROM XFS_FSYNCED ORDER BY time")]
    # Four more come when the files in pieces are made.
    own = told["took"]
    assert len(rows) == log.count("XFS_FSYNC") == len(own) + 4 == 3 * 53 + 4
    assert all(logged <= took for logged, took in zip(rows, own, strict=False))
    # What lies between is the way into the kernel; on a busy machine, of some it is much.
    nearest = sorted(took - logged for logged, took in zip(rows, own, strict=False))
    assert nearest[len(nearest) // 2] < 50_000
    assert log.one("SELECT count(*) FROM XFS_FSYNCED WHERE result <> 0 OR asleep > took") == 0
    (row,) = [r for r in rows_of["xfs_fsyncs"] if "python" in r["program"]]
    parts = ("data", "checkpoint", "log", "flush", "other", "awake")
    assert row["took"] == sum(rows) == sum(row[part] for part in parts)
    # Each of them had its data and the log to wait for.
    assert row["log"] > 0 and row["data"] > 0


def check_held(log: Log, told: dict, rows_of: dict, disk: Disk) -> None:
    """Another thread is in the middle of a long write to the file."""
    assert log.count("XFS_LOCK_WAIT") == log.count("XFS_LOCK_WAITED")
    (row,) = [r for r in rows_of["xfs_locks"] if r["lock"] == "IOLOCK"]
    assert row["inode"] == f"{disk.name}:{told['inode']}"
    # The writer of one byte may have been kept from running instead, at most now and then.
    assert 6 <= row["waits"] <= 2 * len(told["took"])
    own = sum(told["took"])
    lasted = log.one("""
        SELECT sum(took) FROM XFS_LOCK_WAITED WHERE lock = 2 AND tid = (
            SELECT min(tid) FROM XFS_LOCK_WAITED WHERE lock = 2)
    """)
    # On a busy machine, it also waits for a CPU.
    assert 0.1 * own < lasted < own


def check_extents(told: dict[int, int], rows_of: dict, disk: Disk) -> None:
    """They are those of FIEMAP."""
    table = {row["inode"]: row for row in rows_of["xfs_extents"]}
    (large, cut) = (table[f"{disk.name}:{inode}"] for inode in told)
    assert [large["extents"], cut["extents"]] == list(told.values())
    assert (large["tree"], large["to_tree"], large["to_list"]) == ("tree", 1, 0)
    assert (cut["tree"], cut["to_tree"], cut["to_list"]) == ("list", 1, 1)


def fiemap(file: str) -> int:
    text = subprocess.run(["filefrag", "-v", file], capture_output=True, text=True, check=True)
    return len(re.findall(r"^ +\d+:", text.stdout, re.M))


@pytest.mark.full("takes more than 3 s")
def test_waits_and_extents(recorder, tmp_path):
    with small(tmp_path) as disk:
        log, told, path = recorded(recorder, disk, "planted")
        extents = {inode: fiemap(file) for file, inode in told["pieces"]["inodes"].items()}
    rows_of = answers(recorder.klogger, path)
    check_fsyncs(log, told["fsyncs"], rows_of)
    check_held(log, told["held"], rows_of, disk)
    check_extents(extents, rows_of, disk)


@pytest.mark.full("takes more than 3 s")
def test_a_full_table_is_a_loss(recorder, tmp_path):
    with small(tmp_path) as disk:
        try:
            log, _, _ = recorded(recorder, disk, "gone", options=("--set", "ending=1"))
        finally:
            subprocess.run(["fsfreeze", "-u", disk.folder], check=False)
    missing = log.one("SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'state_full'")
    assert missing > 0
    # Those that had no place are counted, one by one.
    assert log.count("INACTIVE") + missing == 997
