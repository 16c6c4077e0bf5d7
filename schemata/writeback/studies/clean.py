# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How much of the time would a file system be clean, if it were synced and marked so when nothing
had changed it for a while: a server with and without access times, and a mail store.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from klogger import executor
from klogger.analysis import Column, Picture
from klogger.failure import Failure
from klogger_lab.disk import Disk, loop_disk
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, result

HERE = Path(__file__).resolve().parent
# Profile, and mount option. The source had noatime.
ARMS = (("server", "noatime"), ("server", "lazytime"), ("server", "strictatime"),
        ("postmark", "noatime"))  # fmt: skip
# Seconds that an arm takes beside its profile.
AROUND = 2.5
MEGABYTES = 64
MKFS = ["mkfs.ext4", "-q", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
# The idle time that stands for the source's second, because all times are a tenth.
SECOND = 100_000_000
# What the simulation and the program's own times may differ by.
SLACK = 0.1


def place() -> Path:
    memory = Path("/dev/shm")
    return (memory if memory.is_dir() else Path("/tmp")) / f"klogger-clean-{os.getpid()}"


def arms(plan: Plan) -> list[Arm]:
    each = max(plan.seconds / len(ARMS) - AROUND, 2.5)
    return [
        Arm(
            f"{profile}, {option}",
            [sys.executable, "-S", "-B", HERE / "_profile.py", profile, place() / "mounted",
             f"{each:.1f}"],
            each + AROUND,
            {"profile": profile, "option": option},
            around=lambda option=option: disk(option),
        )
        for profile, option in ARMS
    ]  # fmt: skip


@contextlib.contextmanager
def disk(option: str) -> Iterator[Disk]:
    folder = place()
    try:
        # With strictatime and lazytime alike each read changes the access time.
        options = "strictatime,lazytime" if option == "lazytime" else option
        with loop_disk(folder, MEGABYTES, mkfs=MKFS, mount_options=options) as made:
            yield made
    finally:
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()


def simulated(run: Run) -> list[dict[str, Any]]:
    """Rows of the analysis clean_time for the disk, by idle time."""
    assert run.log is not None
    chosen = [
        a for a in executor.choose(run.log) if (a.schema, a.name) == ("writeback", "clean_time")
    ]
    (answer,) = executor.run_all(run.log, chosen)
    if answer.status != "answer":
        raise Failure(f"arm '{run.arm.name}': {answer.reason}")
    rows = [row for row in answer.table.records() if row["device"] == run.oracle.text]
    if not rows:
        raise Failure(f"arm '{run.arm.name}': nothing made its file system dirty")
    return rows


def own_share(run: Run) -> float:
    """The clean part by the program's clock: dirty is each burst, and the idle time after it."""
    assert run.log is not None
    (row,) = run.log.rows("SELECT to_ns FROM klogger.recording")
    (sync,) = run.log.rows("SELECT coalesce(avg(took), 0) FROM SYNC_CALL WHERE result >= 0")
    wrote = json.loads(run.output.splitlines()[-1])["wrote"]
    # The files that are read are written before.
    dirty = SECOND + sync[0] + sum(last - first + SECOND + sync[0] for first, last in wrote)
    return max(0.0, 1 - dirty / row[0])


COLUMNS = [
    Column("arm", "", False, "what was done, and how the file system was mounted"),
    Column("idle", "ns", False, "idle time after which it is marked clean"),
    Column("clean", "share", True, "part of the time for which it is marked clean"),
    Column("cycles", "count", False, "times that it becomes dirty and clean again"),
    Column("superblocks", "count", False, "writes of the superblock for that"),
]


def analyse(_: Plan, runs: list[Run]) -> Answer:
    answer = Answer()
    tables = {run.arm.name: simulated(run) for run in runs}
    rows = [
        [name, row["idle"], row["clean"], row["cycles"], row["superblocks"]]
        for name, table in tables.items()
        for row in table
    ]
    question = "How much of the time is the file system clean, by idle time?"
    picture = Picture("cdf", {"x": "idle", "y": "clean", "colour": "arm", "scale": "log"})
    answer.results.append(result("clean", "Clean time", question, COLUMNS, rows, picture))
    shares = {
        name: next(row["clean"] for row in table if row["idle"] == SECOND)
        for name, table in tables.items()
    }
    answer.checks = [check for run in runs for check in checks_of(run, tables[run.arm.name])]
    strict, plain = shares["server, strictatime"], shares["server, noatime"]
    answer.checks.append(
        Check("access times keep it dirty", strict < plain, f"{strict:.2f}, without {plain:.2f}")
    )
    answer.sentences = [
        "At the idle time that stands for 1 s: "
        + "; ".join(f"{name} {100 * share:.0f} % clean" for name, share in shares.items())
        + ".",
        "The source measured what the mark costs, not how often it says clean: with postmark 43 %"
        f" more writes, with others less than 1 %. Here postmark needs"
        f" {tables['postmark, noatime'][0]['superblocks']} writes of the superblock.",
    ]
    answer.cannot = [
        "Times are a tenth of a server's: bursts of 20 ms each 2 s, for 200 ms each 20 s."
    ]
    return answer


def checks_of(run: Run, table: list[dict[str, Any]]) -> list[Check]:
    clean = [row["clean"] for row in table]
    found = [
        Check(
            f"no cleaner with a longer idle time, {run.arm.name}",
            clean == sorted(clean, reverse=True),
            ", ".join(f"{share:.3f}" for share in clean),
        )
    ]
    if run.arm.parameters["option"] != "strictatime":
        own = own_share(run)
        simulation = next(row["clean"] for row in table if row["idle"] == SECOND)
        found.append(
            Check(
                f"clean by the program's own times, {run.arm.name}",
                abs(own - simulation) <= SLACK,
                f"{simulation:.3f} simulated, {own:.3f} by its clock",
            )
        )
    return found


STUDY = Study(
    name="clean",
    title="A dirty bit",
    question="How much of the time would a file system be marked clean?",
    paper="Henson and others 2006, Table 1",
    found="It did not say. The mark cost less than 10 % of the time, but 48 % with postmark.",
    schemata=("writeback",),
    arms=arms,
    analyse=analyse,
    seconds=40,
    least_seconds=29,
)
