# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A video recorder of 2006 on today's file systems: do files of a disk that is always nearly full
become more and more fragmented?
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from klogger import executor
from klogger.analysis import Column, Picture
from klogger.executor import Result, Rows
from klogger.failure import Failure
from klogger_lab import disk
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, result

from . import _model, _pvrsim

SEED = 20060718
# XFS refuses smaller ones, and of a smaller one btrfs takes more than half for itself. On a smaller
# disk fewer files are written until nothing changes.
MEGABYTES = {"ext4": 128, "xfs": 320, "btrfs": 320}
# A byte here is so many of the source's; what goes by while the model disk seeks.
SCALE, GAP = 1000, 676 << 10
MEMORY = Path("/dev/shm")
KINDS = {
    "ext4": ["mkfs.ext4", "-q", "-m", "0"],
    "xfs": ["mkfs.xfs", "-q"],
    "btrfs": ["mkfs.btrfs", "-q"],
}
NAMES = {"ext4": "ext4", "xfs": "XFS", "btrfs": "btrfs"}
STREAMS = (1, 2, 4)
# The last ones are left out if there is no time.
CHOSEN = [(kind, streams) for streams in STREAMS for kind in KINDS]
# Of an arm: to make the disk, to record and to analyse; and the least time to write files.
BEFORE, LEAST = 1.6, 2.4
# As many as the source's; the time is up before.
FILES = 2500
# The source's: fragments by the model, and speed of reading (fresh is 1), by streams, of ext3.
PAPER_LEVEL = 11
PAPER_SPEED = {1: 0.96, 2: 0.77, 4: 0.8}
SIMULATED = [(0.02, 33.3), (0.05, 11.1), (0.10, 5.3), (0.20, 2.6)]
# Files of an allocator in memory until nothing changes any more, as many as the source's.
TURNS = 10_000
# What it and the theory may differ by, for m and s as shares of fragments.
NEAR = 0.1


@contextlib.contextmanager
def mounted(folder: Path, kind: str) -> Iterator[disk.Disk]:
    try:
        with disk.loop_disk(folder, MEGABYTES[kind], mkfs=KINDS[kind]) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def place(plan: Plan) -> Path:
    """Where the disks are: in memory, if there is room for two."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(MEMORY).free > 2 * max(MEGABYTES.values()) << 20:
            return MEMORY / f"klogger-recorder-{os.getpid()}"
    return plan.folder / "disks"


def here(kind: str) -> bool:
    try:
        disk.find(KINDS[kind][0])
    except Failure:
        return False
    return kind in Path("/proc/filesystems").read_text().split()


def arms(plan: Plan) -> list[Arm]:
    possible = [pair for pair in CHOSEN if here(pair[0])]
    if not possible:
        raise Failure("there is no ext4, XFS or btrfs, or no mkfs", help="apt-get install xfsprogs")
    many = len(possible)
    while many > 1 and plan.seconds / many < BEFORE + LEAST:
        many -= 1
    each = plan.seconds / many
    writing = max(int(each - BEFORE), 1)
    made = []
    for kind, streams in possible[:many]:
        folder = Path(f"{place(plan)}-{kind}{streams}")
        script = Path(_pvrsim.__file__).resolve()
        words = [sys.executable, script, folder / "mounted", streams, FILES, SEED, writing]
        name = f"{NAMES[kind]}, {streams} at a time"
        parameters: dict[str, int | float | str] = {"kind": kind, "streams": streams}
        around = partial(mounted, folder, kind)
        command = [str(word) for word in words]
        made.append(Arm(name, command, each, parameters, around=around))
    return made


@dataclass
class Found:
    """What an arm found: by the log, and by the maps that the workload asked for."""

    run: Run
    closed: list[int]
    last: dict[int, int]
    space: dict[str, Any]
    logged: dict[int, int]
    sizes: dict[int, int]
    speed: float

    @property
    def free(self) -> float:
        """m: with the room of the file that is deleted before the next one is written."""
        return float(self.space["free"]) + self.file

    @property
    def file(self) -> float:
        return float(self.space["mean"]) / float(self.space["total"])

    @property
    def level(self) -> float:
        return sum(self.logged.values()) / max(len(self.logged), 1)

    @property
    def predicted(self) -> float | None:
        return _model.level(self.free, self.file)

    @property
    def full_speed(self) -> float:
        """If the files were as long as the source's, in as many fragments, and each step a seek."""
        whole = SCALE * sum(self.sizes.values())
        steps = sum(many - 1 for many in self.logged.values())
        return whole / max(whole + steps * GAP, 1)

    def means(self, parts: int) -> list[float]:
        """Of files as they were closed, by when."""
        size = max(len(self.closed) // parts, 1)
        cut = [self.closed[n : n + size] for n in range(0, size * parts, size)]
        return [sum(one) / len(one) for one in cut if one]

    @property
    def turns(self) -> float:
        """Files written for each fragment on the disk. The distance to where nothing changes falls
        to 1/e in one turn, because each deletion glues fragments of one file only.
        """
        return int(self.space["made"]) / max(sum(self.logged.values()), 1)

    @property
    def settled(self) -> bool:
        """Two turns, and the last two quarters differ by less than a tenth."""
        *_, third, fourth = self.means(4)
        return self.turns >= 2 and abs(fourth - third) <= max(0.1 * third, 0.25)


def found_in(run: Run) -> Found:
    assert run.log is not None
    lines = [json.loads(line) for line in run.output.splitlines()]
    closed = [one["fragments"] for one in lines if "last" in one and not one["last"]]
    last = {one["inode"]: one["fragments"] for one in lines if one.get("last")}
    chosen = [a for a in executor.choose(run.log) if a.name in ("fragments", "predicted_seeks")]
    answers = {r.analysis.name: r for r in executor.run_all(run.log, chosen)}
    rows = answers["fragments"].table.records()
    logged = {row["inode"]: row["fragments"] for row in rows if row["inode"] in last}
    seeks = [r for r in answers["predicted_seeks"].table.records() if r["inode"] in last]
    sizes = {row["inode"]: row["bytes"] for row in rows if row["inode"] in last}
    speed = sum(r["fresh"] for r in seeks) / max(sum(r["now"] for r in seeks), 1)
    return Found(run, closed, last, lines[-1], logged, sizes, speed)


def levels(found: list[Found]) -> Result:
    columns = [
        Column("disk", "", False, "disk; its file system, and streams written at a time"),
        Column("files", "count", False, "files that were written; the last ones are there"),
        Column("free", "share", False, "part of the disk that is free when a file was deleted, m"),
        Column("file", "share", False, "part of the disk that a file has, s"),
        Column("predicted", "", False, "1/(2m - s)"),
        Column("fragments", "", True, "mean fragments of the files that are there, by the log"),
        Column("ratio", "", False, "fragments / predicted"),
        Column("turns", "", False, "files that were written, for each fragment on the disk"),
        Column(
            "settled", "", False, "two turns, and the last two quarters differ by under a tenth"
        ),
        Column("speed", "share", False, "of reading, on a model disk; 1 for files in one piece"),
        Column("full_speed", "share", False, "the same, if files were a thousand times as long"),
        Column("paper_speed", "share", False, "the source's, of ext3, with as many streams"),
    ]
    rows: list[list[Any]] = []
    for one in found:
        predicted = one.predicted
        ratio = one.level / predicted if predicted else None
        rows.append([
            one.run.arm.name, one.space["made"], one.free, one.file, rounded(predicted),
            rounded(one.level), rounded(ratio), rounded(one.turns), "yes" if one.settled else "no",
            one.speed, one.full_speed, PAPER_SPEED[int(one.run.arm.parameters["streams"])],
        ])  # fmt: skip
    points = [[row[0], row[5]] for row in rows]
    name = f"1/(2m - s) for {found[0].run.arm.name}"
    points += [[name, rounded(found[0].predicted) or 0], ["paper, model", PAPER_LEVEL]]
    rows.append(
        ["paper, model", 2500, 0.05, 0.01, 11.11, PAPER_LEVEL, 0.99, None, "yes", None, None, None]
    )
    picture = Picture("bars", {"x": "fragments", "y": "disk"})
    question = "How fragmented are files when it no longer becomes worse?"
    return result(
        "levels", "Levels", question, columns, rows, picture, Rows(["disk", "fragments"], points),
        notes=[
            "The source wrote 500 MB to 5 GB a file on 138 GB; these are a thousandth of it.",
            "A seek takes as long as 676 KiB: a quarter of a file here, and nothing beside the"
            " source's. So the speed of these files is much lower.",
            "The source's speeds have the effect of metadata between the data as well.",
        ],
    )  # fmt: skip


def rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 2)


def over_time(found: list[Found]) -> Result:
    parts = 8
    columns = [
        Column("disk", "", False, "disk; its file system, and streams written at a time"),
        Column("eighth", "count", False, "eighth; of the files, in the order in which they closed"),
        Column("fragments", "", True, "mean fragments of a file when it was closed"),
    ]
    rows = [
        [one.run.arm.name, number + 1, rounded(mean)]
        for one in found
        for number, mean in enumerate(one.means(parts))
    ]
    picture = Picture("matrix", {"x": "eighth", "y": "disk", "size": "fragments"})
    question = "Do files become more fragmented with each that is written?"
    return result("turnover", "Turnover", question, columns, rows, picture)


def theory() -> tuple[Result, list[Check]]:
    columns = [
        Column("free", "share", False, "part of the disk that is free when a file was deleted, m"),
        Column("predicted", "", False, "1/(2m - s), where a file has 1 % of the disk"),
        Column("simulated", "", True, f"an allocator in memory, after {TURNS:,} files"),
        Column("ratio", "", False, "simulated / predicted"),
        Column("fragments", "share", False, "part of the fragments that is free then"),
        Column("exact", "", False, "(1 - m + s)/(2m - s), of parts of the fragments"),
        Column("paper", "", False, "the source's number"),
    ]
    rows, found = [], []
    for free, paper in SIMULATED:
        predicted = _model.level(free, 0.01) or 0.0
        made = _model.simulated(20_000, 200, free, TURNS, SEED)
        ratio = made.fragments / predicted
        rows.append([free, rounded(predicted), rounded(made.fragments), rounded(ratio), made.free,
                     rounded(made.exact), paper])  # fmt: skip
        text = f"{made.fragments:.2f} simulated, {made.exact:.2f} by the theory"
        near = abs(made.fragments / made.exact - 1) <= NEAR
        found.append(Check(f"the theory with {100 * free:.0f} % free", near, text))
    question = "What does the theory say, and an allocator that knows nothing but free space?"
    notes = [
        "m has the room of the file that is deleted: a disk that is kept 5 % free has an m of 6 %"
        " if a file has 1 % of it. Without other free space m is s.",
        "The theory counts fragments. In bytes it is an approximation: with much free space, what"
        " is free is in longer pieces than files are.",
    ]
    made_result = result("theory", "Theory", question, columns, rows, notes=notes)
    return made_result, found


def checks(found: list[Found]) -> Iterator[Check]:
    for one in found:
        same = sum(one.logged.get(inode) == many for inode, many in one.last.items())
        text = f"{same} of {len(one.last)} files as FIEMAP tells them"
        yield Check(f"maps on {one.run.arm.name}", same == len(one.last) > 0, text)
    for one in found:
        assert one.run.log is not None
        device = one.run.oracle.number
        asked = one.run.log.rows("SELECT count(*) FROM MAPPED")[0][0]
        told = len(one.closed) + len(one.last)
        # A map with more extents than one answer holds is asked for in parts.
        text = f"{asked} in the log, {told} by the program, on device {device}"
        yield Check(f"questions for maps on {one.run.arm.name}", asked >= told, text)


def sentences(found: list[Found]) -> Iterator[str]:
    settled = sum(one.settled for one in found)
    yield f"Fragmentation had settled in {settled} of {len(found)} arms, by the last files written."
    worst, best = max(found, key=lambda f: f.level), min(found, key=lambda f: f.level)
    for one in (worst, best):
        yield (
            f"{one.run.arm.name}: {one.level:.1f} fragments a file, where free space alone"
            f" predicts {one.predicted or 0:.1f}; the source's model had {PAPER_LEVEL}."
        )


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    found = [found_in(run) for run in runs]
    simulated, near = theory()
    answer = Answer([levels(found), over_time(found), simulated], list(sentences(found)))
    answer.checks += [*checks(found), *near]
    absent = [NAMES[kind] for kind in KINDS if not here(kind)]
    if absent:
        answer.cannot.append(f"{', '.join(absent)}: not on this machine")
    if len(found) < len(CHOSEN):
        answer.cannot.append(f"{len(CHOSEN) - len(found)} arms: no time; a longer --budget has")
    answer.cannot.append(
        "NTFS, ReiserFS, FAT and the disk's own seeks: the small disk is in memory, and has none"
    )
    return answer


STUDY = Study(
    name="recorder",
    title="A video recorder's disk",
    question="Do files of a disk that is always nearly full become more and more fragmented?",
    paper="The Effects of Filesystem Fragmentation (OLS 2006), figures and text",
    found="No: at 5 % free, files have 11 fragments in the model, and stay so; ext3 was read at"
    " 0.96 of its speed after one stream, 0.77 after two.",
    schemata=("extents",),
    arms=arms,
    analyse=analyse,
    seconds=60,
    least_seconds=12,
)
