# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From 1 to 32 threads that write to files of their own: what becomes of throughput, of the size of
writes, and of the CPU time for each MiB.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klogger.analysis import Column, Picture
from klogger_lab.disk import Disk, loop_disk
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, result

# Mean size of a write, KiB, on 24 CPUs and 256 disks in 2006.
PAPER = {1: 1000, 2: 450, 4: 400, 8: 250, 16: 200, 32: 220}
FEW = (1, 4, 32)
# Seconds that an arm takes beside its writing: to make and mount a file system, and to unmount it.
AROUND = 2.0
MEGABYTES = 512
# So much is written in a second at most, and in all.
RATE = 160
MOST = 320
# Of the disk's pages may be dirty, so that writers are paused.
LIMIT = 16 << 20
MKFS = ["mkfs.ext4", "-q", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
# What the journal and the metadata may add to what is written.
OTHERS = 48 << 20
PAGE = 4096
MIB = 1 << 20


def place() -> Path:
    """In memory, where there is such a place: the writers are asked about, not a disk."""
    memory = Path("/dev/shm")
    return (memory if memory.is_dir() else Path("/tmp")) / f"klogger-writers-{os.getpid()}"


def arms(plan: Plan) -> list[Arm]:
    program = plan.build("writers.c")
    counts = tuple(PAPER) if plan.seconds >= len(PAPER) * (AROUND + 1) else FEW
    each = max(plan.seconds / len(counts) - AROUND, 0.5)
    megabytes = int(min(MOST, RATE * each))
    return [
        Arm(
            f"{count} writer{'s' * (count > 1)}",
            [program, place() / "mounted", str(count), str(megabytes), f"{each:.2f}"],
            each + AROUND,
            {"writers": count},
            around=disk,
        )
        for count in counts
    ]


@dataclass
class Counted:
    """What the kernel has counted of the disk during an arm: requests that write, and bytes."""

    disk: Disk
    writes: int = 0
    written: int = 0

    def add(self, sign: int) -> None:
        for line in Path("/proc/diskstats").read_text().splitlines():
            words = line.split()
            if words[2] == self.disk.name:
                self.writes += sign * int(words[7])
                self.written += sign * 512 * int(words[9])


@contextlib.contextmanager
def disk() -> Iterator[Counted]:
    folder = place()
    try:
        with loop_disk(folder, MEGABYTES, mkfs=MKFS, mount_options="noatime") as made:
            counted = Counted(made)
            with limited(made):
                counted.add(-1)
                yield counted
                counted.add(1)
    finally:
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()


@contextlib.contextmanager
def limited(made: Disk) -> Iterator[None]:
    """The limits of a loop device outlive its file."""
    limits = Path(f"/sys/class/bdi/{made.text}")
    if not (limits / "max_bytes").exists():
        yield
        return
    before = (limits / "max_ratio").read_text()
    try:
        (limits / "strict_limit").write_text("1")
        (limits / "max_bytes").write_text(str(LIMIT))
        yield
    finally:
        (limits / "strict_limit").write_text("0")
        (limits / "max_ratio").write_text(before)


@dataclass
class Seen:
    """What one arm has found."""

    writers: int
    told: dict[str, Any]
    counted: Counted
    dirtied: int
    data: int
    bios: int
    flusher: int
    in_order: float
    reclaimed: int
    paused: float
    lost: int


QUERY = """
SELECT (SELECT coalesce(sum(pages), 0)::BIGINT FROM DIRTY_PAGES WHERE device = {0} AND inode > 0),
    coalesce(sum(bytes), 0)::BIGINT, count(*), coalesce(sum(bytes) FILTER (via = 1), 0)::BIGINT,
    coalesce(avg((position >= before)::INTEGER), 1),
    (SELECT count(*) FROM RECLAIM_WRITE WHERE inode > 0),
    (SELECT coalesce(sum(took), 0) / 1e9 FROM WB_RESUMED WHERE device = {0} AND kind = 1),
    (SELECT coalesce(sum(count), 0)::BIGINT FROM klogger.gap)
FROM (
    SELECT *, lag(position + bytes, 1, 0) OVER (PARTITION BY inode ORDER BY time) AS before
    FROM WB_PAGES WHERE device = {0} AND inode > 0
)
"""


def seen(run: Run) -> Seen:
    assert run.log is not None
    (row,) = run.log.rows(QUERY.format(run.oracle.disk.number))
    return Seen(int(run.arm.parameters["writers"]), json.loads(run.output), run.oracle, *row)


COLUMNS = [
    Column("writers", "", False, "threads that write, each to a file of its own"),
    Column("throughput", "bytes", True, "bytes written in a second, until they are on the disk"),
    Column("mean", "bytes", False, "mean size of a bio with pages of a file"),
    Column("request", "bytes", False, "mean request to the disk, by the kernel's own counters"),
    Column("paper", "bytes", False, "mean write in 2006, on 24 CPUs and 256 disks"),
    Column("efficiency", "", False, "percent of one CPU for each MiB/s: the writers' own CPU time"),
    Column("flusher", "share", False, "part that flushers wrote; the rest was for the sync"),
    Column("in_order", "share", False, "bios that lie behind those before, in the same file"),
    Column("paused", "share", False, "of the writers' time, that they were paused"),
]


def row_of(one: Seen) -> list[Any]:
    seconds = max(one.told["seconds"], 1e-9)
    rate = one.told["bytes"] / seconds
    return [
        f"{one.writers:02}", int(rate), one.data // max(one.bios, 1),
        one.counted.written // max(one.counted.writes, 1), PAPER[one.writers] * 1024,
        round(100 * one.told["cpu"] / seconds / max(rate / MIB, 1e-9), 4),
        one.flusher / max(one.data, 1), one.in_order, one.paused / (seconds * one.writers),
    ]  # fmt: skip


def checks_of(one: Seen) -> list[Check]:
    name = f"{one.writers} writer{'s' * (one.writers > 1)}"
    written = one.told["bytes"]
    return [
        Check(
            f"pages that became dirty, {name}",
            one.dirtied * PAGE == written,
            f"{one.dirtied * PAGE:,} bytes logged, {written:,} written by the program",
        ),
        Check(
            f"bytes on the disk, {name}",
            one.data <= one.counted.written <= one.data + OTHERS,
            f"{one.data:,} of files logged; the disk got {one.counted.written:,}, with its journal",
        ),
    ]


def analyse(_: Plan, runs: list[Run]) -> Answer:
    every = [seen(run) for run in runs]
    rows = [row_of(one) for one in every]
    answer = Answer()
    question = "What becomes of throughput, size of writes and CPU time with more writers?"
    picture = Picture("bars", {"x": "throughput", "y": "writers"})
    answer.results.append(result("writers", "Writers", question, COLUMNS, rows, picture))
    answer.checks = [check for one in every for check in checks_of(one)]
    first, last = every[0], every[-1]
    means = [one.data / max(one.bios, 1) / 1024 for one in (first, last)]
    requests = [one.counted.written / max(one.counted.writes, 1) / 1024 for one in (first, last)]
    answer.sentences = [
        f"From {first.writers} to {last.writers} writers the mean write went from {means[0]:.0f} to"
        f" {means[1]:.0f} KiB, and the mean request to the disk from {requests[0]:.0f} to"
        f" {requests[1]:.0f} KiB; in 2006 writes went from {PAPER[first.writers]} to"
        f" {PAPER[last.writers]} KiB.",
        f"Reclaim of memory wrote {sum(one.reclaimed for one in every)} pages of files: what made"
        " writes small in 2006 was reclaim, which wrote pages in the order of their last use.",
    ]
    answer.cannot = [
        "24 CPUs and 256 disks: compare shapes, not MiB/s. The disk is a file in memory.",
        "CPU time of flushers: it is not in the efficiency.",
    ]
    if len(every) < len(PAPER):
        answer.cannot.append("2, 8 and 16 writers: there was no time for them (--budget).")
    return answer


STUDY = Study(
    name="writers",
    title="1 to 32 writers",
    question="Do writes get smaller, and dearer, when more threads write at the same time?",
    paper="Chinner and Higdon 2006, hbfs",
    found="Yes: from 1000 to 220 KiB, because reclaim of memory wrote pages out of order.",
    schemata=("writeback",),
    arms=arms,
    analyse=analyse,
    seconds=30,
    least_seconds=14,
)
