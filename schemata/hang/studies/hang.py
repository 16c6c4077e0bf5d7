# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A chain of threads that hang, made on purpose: when the log shows it, and when the kernel reports
it.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klogger import executor
from klogger.analysis import Column, Picture
from klogger.durations import duration
from klogger.failure import Failure
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, result

HERE = Path(__file__).resolve().parent
SETTINGS = Path("/proc/sys/kernel")
# What an arm takes beside its seconds: to make a file system, and to let the threads go to sleep.
AROUND = 3
# In the order in which the workload starts them.
NAMES = ("writer1", "writer2", "memory", "mapper", "reader")
# For the arms in which nothing hangs.
SHORT = 2.5

THREADS = [
    Column("thread", "", False, "thread, in the order in which they began to wait"),
    Column("call", "", False, "system call that it was in"),
    Column("waits_for", "", False, "who made it wait, and how"),
    Column("depth", "count", False, "threads between it and the root"),
    Column("began", "ns", False, "after the freeze: the wait begins, with its stack and lock"),
    Column("after_1s", "ns", False, "after the freeze: a report of all that sleep for 1 s"),
    Column("kernel", "ns", False, "after the freeze: the kernel's report; nothing: it has none"),
]
REPORTS = [
    Column("arm", "", False, "what the threads did"),
    Column("threshold", "", False, "who sleeps in D for so long is reported"),
    Column("reports", "count", True, "sleeps that are reported"),
    Column("for_locks", "count", False, "of threads that wait for a lock or a frozen file system"),
    Column("in_vain", "count", False, "of others, which went on by themselves: false alarms"),
]
POINTS = [
    Column("moment", "ns", False, "time after the freeze"),
    Column("until", "ns", False, "time after the freeze"),
    Column("row", "", False, "thread"),
    Column("phase", "", False, "what was known"),
]


def timeout_of(plan: Plan) -> int:
    """Seconds after which the kernel reports; it may take twice as long."""
    return max(2, min(10, int((plan.seconds - 2 * (SHORT + AROUND) - AROUND) / 2.5)))


def arms(plan: Plan) -> list[Arm]:
    missing = [name for name in ("mkfs.ext4", "fsfreeze") if not shutil.which(name)]
    if missing:
        raise Failure(f"this machine lacks {', '.join(missing)}", "apt-get install e2fsprogs")
    environment = {"WORKLOAD_PROGRAM": str(plan.build("../workload.c"))}
    timeout = timeout_of(plan)

    def arm(what: str, name: str, seconds: float, **more: Any) -> Arm:
        command = [HERE.parent / "workload", str(seconds), what]
        return Arm(
            name,
            command,
            seconds + AROUND,
            {"what": what},
            record=("--set", "stuck=1s"),
            environment=environment,
            **more,
        )

    return [
        arm("busy", "a disk is busy", SHORT),
        arm("vfork", "a child is slow", SHORT),
        # The last thread is to sleep for two times the kernel's timeout.
        arm("freeze", "a file system is frozen", 2 * timeout + 1, around=lambda: detector(timeout)),
    ]


@contextlib.contextmanager
def detector(timeout: int) -> Iterator[bool]:
    """The kernel's own, with so many seconds; false if there is none. What was set is restored."""
    wanted = {"hung_task_timeout_secs": timeout, "hung_task_warnings": 1000}
    if not all((SETTINGS / name).exists() for name in wanted):
        yield False
        return
    before: dict[Path, str] = {}
    # Who else changes them waits.
    with (SETTINGS / "hung_task_timeout_secs").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            for name, value in wanted.items():
                path = SETTINGS / name
                before[path] = path.read_text()
                path.write_text(str(value))
            yield True
        finally:
            for path, text in before.items():
                path.write_text(text)


@dataclass
class Seen:
    """What the analyses say of one arm."""

    run: Run
    tables: dict[str, list[dict[str, Any]]]


def seen(one: Run) -> Seen:
    assert one.log is not None
    wanted = ("cycles", "causes", "collateral", "waits_for", "stuck", "early")
    chosen = [a for a in executor.choose(one.log) if a.schema == "hang" and a.name in wanted]
    answers = {r.analysis.name: r for r in executor.run_all(one.log, chosen)}
    for name, found in answers.items():
        if found.status in ("failed", "not_recorded"):
            raise Failure(f"arm '{one.arm.name}': {name}: {found.reason}")
    return Seen(one, {name: found.table.records() for name, found in answers.items()})


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    answer = Answer(cannot=cannot(runs))
    every = [seen(one) for one in runs]
    frozen = next(one for one in every if one.run.arm.parameters["what"] == "freeze")
    answer.results.append(knowable(frozen))
    answer.results.append(reports(every))
    answer.sentences = sentences(plan, frozen, every)
    answer.checks = checks(frozen, every)
    return answer


def moments(one: Seen) -> list[dict[str, Any]]:
    """Of each thread that was drawn in: when it began to wait, and when it was known to hang."""
    log = one.run.log
    assert log is not None
    ((began,),) = log.rows("SELECT min(time) FROM FS_FROZEN WHERE frozen AND result = 0")
    hung = dict(log.rows("SELECT thread(pid, min(time)), min(time) FROM HANG GROUP BY pid"))
    waits = {row["waiter"]: row for row in one.tables["waits_for"]}
    rows = []
    for row in one.tables["collateral"]:
        name, joined = row["thread"], row["joined"]
        wait = waits.get(name, {})
        rows.append(
            {
                "thread": name,
                "call": row["call"],
                "waits_for": f"{wait.get('holder')} ({wait.get('known')})",
                "depth": row["depth"],
                "began": joined - began,
                "after_1s": joined - began + 10**9 if row["lasted"] >= 10**9 else None,
                "kernel": hung[name] - began if name in hung else None,
                "until": joined - began + row["lasted"],
            }
        )
    return rows


def knowable(one: Seen) -> Any:
    rows = moments(one)
    points = []
    for row in rows:
        known = row["after_1s"] or row["until"]
        told = row["kernel"] or row["until"]
        points += [
            [row["began"], known, row["thread"], "in the log"],
            [known, told, row["thread"], "reported after 1 s"],
        ]
        if row["kernel"]:
            points.append([told, row["until"], row["thread"], "reported by the kernel"])
    picture = Picture("timeline", {"x": "moment", "x2": "until", "row": "row", "colour": "phase"})
    made = result(
        "knowable",
        "The moment at which each was knowable",
        "When could it be known that each thread hangs, and when did the kernel say so?",
        THREADS,
        [[row[c.name] for c in THREADS] for row in rows],
        picture,
        executor.Rows([c.name for c in POINTS], points),
        notes=["The kernel does not report sleeps that SIGKILL can end, as those for the lock of an"
               " address space."],
    )  # fmt: skip
    made.analysis.columns.update({c.name: c for c in POINTS})
    return made


def reports(every: list[Seen]) -> Any:
    rows = [
        [one.run.arm.name, *(row[c.name] for c in REPORTS[1:])]
        for one in every
        for row in one.tables["early"]
    ]
    return result(
        "reports",
        "Reports after 1, 5 and 10 seconds",
        "What would reports have said that do not wait for the kernel's, and how often in vain?",
        REPORTS,
        rows,
    )


def sentences(plan: Plan, frozen: Seen, every: list[Seen]) -> list[str]:
    rows = moments(frozen)
    told = [row["kernel"] for row in rows if row["kernel"]]
    last = max((row["began"] for row in rows), default=0)
    said = [
        f"{len(rows)} threads were drawn in within {duration(last)} of the freeze; each is in the"
        " log with its stack, its lock and the thread that it waits for as soon as it sleeps."
    ]
    if told:
        said.append(
            f"The kernel, which was told to look every {timeout_of(plan)} s, reported"
            f" {len(told)} of them, the first {duration(min(told))} after the freeze. By default"
            " it looks every 120 s."
        )
    in_vain = sum(
        row["in_vain"] for one in every for row in one.tables["early"] if row["threshold"] == "1 s"
    )
    said.append(f"Of the reports after 1 s, in all arms, {in_vain} would have been in vain.")
    said.append("The source is a report of a bug of 2.4.17 and measured nothing.")
    return said


def planted(text: str) -> dict[str, int]:
    """Threads that the workload has seen asleep, and their ids."""
    return {name: int(tid) for name, tid in re.findall(r"^(\w+) (\d+) D ", text, re.M)}


def checks(frozen: Seen, every: list[Seen]) -> list[Check]:
    log = frozen.run.log
    assert log is not None
    threads = planted(frozen.run.output)
    (cause, *_) = [c for c in frozen.tables["causes"] if c["kind"] == "frozen file system"] or [{}]
    stuck = {row["thread"] for row in frozen.tables["stuck"]}
    named = {f"{name}[{tid}]" for name, tid in threads.items()}
    chain = [row["thread"].split("[")[0] for row in frozen.tables["collateral"]]
    hung = {tid for (tid,) in log.rows("SELECT DISTINCT pid FROM HANG")}
    cycles = sum(len(one.tables["cycles"]) for one in every)
    return [
        Check(
            "all who hang have one root",
            cause.get("threads") == len(NAMES) and set(threads) == set(NAMES),
            f"{cause.get('threads')} threads in the log, {len(threads)} by the program;"
            f" {cause.get('root')}",
        ),
        Check("in the order in which they began", chain == list(NAMES), ", ".join(chain)),
        Check("stuck is who /proc says sleeps", stuck >= named, f"{len(stuck)}, {len(named)}"),
        Check(
            "what the kernel reports is stuck",
            hung <= set(threads.values()),
            f"{len(hung)} threads reported, {len(hung & set(threads.values()))} of them in the log",
        ),
        Check("no dead-lock is found, for there is none", cycles == 0, f"{cycles} found"),
    ]


def cannot(runs: list[Run]) -> list[str]:
    said = [
        "A dead-lock of two kernel threads, and the crash of a program that has mapped a display's"
        " memory: both need a module, so they are tests in a guest: pytest"
        " tests/guest/test_hang.py.",
        "The driver and the kernel of the source: today remap_pfn_range() marks what it maps as I/O"
        " that is not dumped.",
        "An unmount that hangs: today it is refused while a thread waits for the file system.",
    ]
    if not any(one.oracle for one in runs):
        said.append("The kernel's own reports: this one does not look for hung tasks.")
    return said


STUDY = Study(
    name="hang",
    title="When a hang can be known",
    question="When does the log show who hangs and why, and when does the kernel report it?",
    paper="Kernel Traffic #150 (Z. Brown, 14 January 2002)",
    found=(
        "Nothing was measured: a program that crashed with a mapped frame buffer hung in D state,"
        " and ps, top and the unmount of the root file system with it. One developer saw why."
    ),
    schemata=("hang",),
    arms=arms,
    analyse=analyse,
    seconds=60,
    least_seconds=26,
)
