# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How much the times of writes vary, with a journal and without."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from klogger.analysis import Column, Picture
from klogger.executor import Rows
from klogger_lab.disk import PLACES, Disk, loop_disk
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, result

EXT4 = ["mkfs.ext4", "-q", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
MEGABYTES = 320
# Of an arm, besides its load: to make the file system, to fill and to remove it.
AROUND = 1.0
LEAST = 0.5
# Parts of a thousand at which a curve is drawn.
CURVE = [*range(0, 990, 10), *range(990, 1001)]


@dataclass(frozen=True)
class Kind:
    """A file system as an arm has it. `has_journal`: of ext4's."""

    name: str
    mkfs: tuple[str, ...]
    options: str = ""
    has_journal: bool = True


KINDS = (
    Kind("ordered", (*EXT4, "-J", "size=16")),
    Kind("no journal", (*EXT4, "-O", "^has_journal"), has_journal=False),
    Kind("writeback", (*EXT4, "-J", "size=16"), "data=writeback"),
    Kind("data journalled", (*EXT4, "-J", "size=16"), "data=journal"),
    Kind("small journal", (*EXT4, "-J", "size=4")),
    Kind("XFS", ("mkfs.xfs", "-q"), has_journal=False),
)


@contextlib.contextmanager
def disk_of(folder: Path, kind: Kind) -> Iterator[Disk]:
    with loop_disk(
        folder, MEGABYTES, mkfs=kind.mkfs, mount_options=kind.options, kind=fs_of(kind)
    ) as made:
        # The command does not know the device, and the name of the account has it.
        account = Path(f"/proc/fs/jbd2/{made.name}-8/info")
        link = folder / "info"
        link.symlink_to(account)
        try:
            yield made
        finally:
            link.unlink()


def fs_of(kind: Kind) -> str:
    return "xfs" if kind.name == "XFS" else "ext4"


def chosen() -> tuple[list[Kind], list[str]]:
    """The arms that the tools of this machine can make, and what is missing."""
    found, missing = [], []
    for kind in KINDS:
        if shutil.which(kind.mkfs[0], path=PLACES):
            found.append(kind)
        else:
            missing.append(f"{kind.name}: there is no {kind.mkfs[0]}")
    return found, missing


def arms(plan: Plan) -> list[Arm]:
    program = plan.build("journal.c")
    kinds, _ = chosen()
    seconds = plan.seconds / len(kinds) - AROUND
    if seconds < LEAST:
        kinds = kinds[: max(2, int(plan.seconds / (LEAST + AROUND)))]
        seconds = max(plan.seconds / len(kinds) - AROUND, LEAST)
    made = []
    for number, kind in enumerate(kinds):
        folder = plan.folder / f"disk{number}"
        command: list[str | Path] = [program, f"{seconds:.2f}", folder / "mounted"]
        command += [folder / "info"] if kind.has_journal else []
        made.append(
            Arm(
                kind.name, command, seconds + AROUND, {"seconds": seconds},
                around=partial(disk_of, folder, kind),
            )
        )  # fmt: skip
    return made


@dataclass
class Found:
    """An arm: what the program says, and the log."""

    name: str
    said: dict[str, Any]
    commits: int
    fsyncs: int
    waits: int
    waited: int
    checkpoints: int
    lost: int

    def at(self, what: str, thousandth: int) -> int:
        took = self.said[what]["took"]
        return int(took[thousandth]) if took else 0

    def fluctuation(self, what: str) -> float:
        return round(self.at(what, 999) / max(self.at(what, 500), 1), 1)

    @property
    def transactions(self) -> int | None:
        before, after = self.said["transactions"]
        return after - before if before >= 0 else None


def found_in(run: Run) -> Found:
    assert run.log is not None
    ((commits, fsyncs, waits, waited, checkpoints, lost),) = run.log.rows(f"""
        SELECT (SELECT count(*) FROM COMMIT_PHASE WHERE phase = 4 AND device = {run.oracle.number}),
            (SELECT count(*) FROM FSYNC WHERE device = {run.oracle.number}),
            (SELECT count(*) FROM HANDLE WHERE waited >= 10000 AND device = {run.oracle.number}),
            (SELECT coalesce(sum(waited), 0) FROM HANDLE
                WHERE waited >= 10000 AND device = {run.oracle.number}),
            (SELECT count(*) FROM CHECKPOINT WHERE device = {run.oracle.number}),
            (SELECT coalesce(sum(count), 0) FROM klogger.gap)
    """)
    said = json.loads(run.output)
    return Found(run.arm.name, said, commits, fsyncs, waits, int(waited), checkpoints, int(lost))


def checks_of(one: Found) -> list[Check]:
    """Where nothing is lost, the log has the commits that the journal counts, and the calls."""
    if one.lost or one.transactions is None:
        return []
    commits = f"{one.commits} in the log, {one.transactions} by /proc/fs/jbd2"
    calls = one.said["fsync"]["count"]
    return [
        Check(f"commits, {one.name}", one.commits == one.transactions, commits),
        Check(
            f"fsync(), {one.name}", one.fsyncs == calls, f"{one.fsyncs} in the log, {calls} called"
        ),
    ]


COLUMNS = [
    Column("arm", "", False, "file system"),
    Column("writes", "count", False, "of 64 KiB, through the page cache"),
    Column("p50", "ns", False, "half of the writes took no longer"),
    Column("p99", "ns", False, "99 of 100"),
    Column("p99_9", "ns", False, "999 of 1000"),
    Column("fluctuation", "", True, "p99.9 of a write divided by p50"),
    Column("metadata", "", False, "fluctuation of creating, renaming and removing a file"),
    Column("fsync", "", False, "fluctuation of fsync()"),
    Column("fsync_p50", "ns", False, "half of the calls of fsync() took no longer"),
    Column("commits", "count", False, "of the journal"),
    Column("waits", "count", False, "of 10 us or more, to enter the journal"),
    Column("waited", "ns", False, "time of these"),
    Column("checkpoints", "count", False, "times that the journal was full"),
]


def main_table(all_of: list[Found]) -> Any:
    rows: list[list[Any]] = [
        [
            one.name, one.said["write"]["count"], *(one.at("write", n) for n in (500, 990, 999)),
            *(one.fluctuation(what) for what in ("write", "metadata", "fsync")),
            one.at("fsync", 500), one.commits, one.waits, one.waited, one.checkpoints,
        ]
        for one in all_of
    ]  # fmt: skip
    return result(
        "fluctuation", "How much times vary", "How much longer do the longest writes take?",
        COLUMNS, rows, Picture("bars", {"x": "fluctuation", "y": "arm", "scale": "log"}),
        notes=[
            "The reports of 2013 and 2014 have no times: 'always fluctuates', 'stall'.",
            "Of fewer than 1000 writes, p99.9 is the longest: a larger --budget has more.",
        ],
    )  # fmt: skip


def curves(all_of: list[Found]) -> Any:
    points = Rows(
        ["arm", "took", "part"],
        [[one.name, one.at("write", n), n / 1000] for one in all_of for n in CURVE],
    )
    columns = [
        Column("arm", "", False, "file system"),
        Column("took", "ns", False, "time of a write of 64 KiB"),
        Column("part", "", False, "part of the writes"),
    ]
    picture = Picture(
        "cdf", {"x": "took", "y": "part", "colour": "arm", "scale": "log", "zoom": "ends"}
    )
    question = "How are the times of buffered writes distributed?"
    rows = [[one.name, one.at("write", 1000), 1] for one in all_of]
    return result("writes", "Buffered writes", question, columns, rows, picture, points)


def statements(all_of: list[Found]) -> Any:
    """What the page's sources say, beside what is so here."""
    by = {one.name: one for one in all_of}

    def pair(one: str, other: str, what: str) -> str:
        if one not in by or other not in by:
            return "not recorded"
        return f"{by[one].fluctuation(what)} and {by[other].fluctuation(what)}"

    full = ", ".join(one.name for one in all_of if one.checkpoints) or "none"
    rows = [
        ["writes fluctuate with a journal, not without", pair("ordered", "no journal", "write")],
        ["so do changes of directories", pair("ordered", "no journal", "metadata")],
        ["data=writeback stalls less than ordered", pair("writeback", "ordered", "write")],
        ["a small journal stalls writers", pair("small journal", "ordered", "metadata")],
        ["XFS is better, by its larger log", pair("XFS", "ordered", "write")],
        ["a journal that is full must be written first", f"full: {full}"],
    ]
    columns = [
        Column("paper", "", False, "what the reports say"),
        Column("today", "", False, "fluctuation of the two here"),
    ]
    return result("statements", "Statements", "What of the reports is so today?", columns, rows)


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    all_of = [found_in(run) for run in runs]
    answer = Answer(results=[main_table(all_of), curves(all_of), statements(all_of)])
    answer.checks = [check for one in all_of for check in checks_of(one)]
    with_it, without = all_of[0], all_of[1]
    answer.sentences.append(
        f"With an ordered journal 1 of 1000 writes takes {with_it.fluctuation('write'):.0f} times"
        f" as long as half of them, without a journal {without.fluctuation('write'):.0f} times."
    )
    worst = max(all_of, key=lambda one: one.fluctuation("metadata"))
    answer.sentences.append(
        f"Changes of directories vary most with '{worst.name}':"
        f" {worst.fluctuation('metadata'):.0f} times."
    )
    kinds, missing = chosen()
    left = [kind.name for kind in kinds[len(runs) :]]
    answer.cannot = missing + [f"{name}: no time; a larger --budget has it" for name in left]
    answer.cannot.append(
        "a slow disk: the file systems are files behind loop devices, where this machine's own"
        " disk or memory is"
    )
    return answer


STUDY = Study(
    name="journal",
    title="The journal and the times of writes",
    question="How much do the times of writes vary with a journal, and without?",
    paper="Ext4 workshop report (2013), LSF/MM and ext4 summit notes (2014)",
    found="Latency always fluctuates with a journal: writers stall behind a commit. No figures.",
    schemata=("ext4",),
    arms=arms,
    analyse=analyse,
    seconds=36,
    least_seconds=7,
)
