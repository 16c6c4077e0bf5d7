# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""crash-story: a suite of programs of which some crash, watched while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from klogger.analysis import Column, Picture
from klogger.failure import Failure
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, result

WATCH = [sys.executable, "-m", "klogger_lab.cli.watch"]
CRASHES = {"segv": "SIGSEGV", "abort": "SIGABRT", "fpe": "SIGFPE"}
ABORT = CRASHES["abort"]
PLAIN = 8
# What a recording needs besides its command: to compile, to attach, to write.
START = 4.0
TIMEOUT = 240.0
ROUNDS_MAX = 8
# The overhead is that of a suite of so many programs that do nothing wrong.
LOAD = 500


@dataclass
class Outcome:
    """What the suite and its programs said, and what was found with the time of its report."""

    said: dict[str, list[list[str]]] = field(default_factory=dict)
    found: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    code: int = 0


def arms(plan: Plan) -> list[Arm]:
    suite = plan.build("crash_suite.c")
    each = START + 2.0
    loads = loads_of(suite)
    rounds = int((plan.seconds - each) / (sum(one[1] for one in loads.values())))
    rounds = max(1, min(rounds, ROUNDS_MAX))
    planned = [Arm("watched", [], each, around=partial(watched, suite, plan.folder))]
    for number in range(rounds):
        names = list(loads)
        random.shuffle(names)
        for name in names:
            command, seconds = loads[name]
            parameters = {"load": name, "round": number}
            around = partial(load, command, plan.folder)
            planned.append(Arm(f"{name}, {number + 1}", [], seconds, parameters, around=around))
    return planned


def loads_of(suite: Path) -> dict[str, tuple[list[str], float]]:
    """The arms that are compared: what runs the suite, and how long that takes."""
    command = [str(suite), "load", str(LOAD)]
    found = {
        "none": (command, 1.5),
        "watch": ([*WATCH, "-q", "--", *command], START + 1),
        "watch and files": ([*WATCH, "-q", "-s", "files", "--", *command], START),
    }
    if shutil.which("strace"):
        found["strace"] = (["strace", "-f", "-o", "strace.out", *command], 5.0)
    if shutil.which("gdb"):
        quiet = ["gdb", "-q", "-batch", "-ex", "set startup-with-shell off", "-ex", "run"]
        found["gdb"] = ([*quiet, "--args", *command], 2.5)
    return found


@contextlib.contextmanager
def watched(suite: Path, folder: Path) -> Iterator[Outcome]:
    """The suite under `klogger watch`, whose findings are read as they come."""
    fifo = folder / "findings"
    os.mkfifo(fifo)
    outcome = Outcome()
    options = ["--format", "json", "--report", str(fifo)]
    # Both ends, so that neither waits for the other.
    reader = os.open(fifo, os.O_RDWR)
    thread = threading.Thread(target=read_findings, args=(reader, outcome), daemon=True)
    thread.start()
    text, outcome.code = run([*WATCH, *options, "--", str(suite), "suite", str(PLAIN)], folder)
    os.write(reader, b"\n\n")
    thread.join(5)
    os.close(reader)
    outcome.said = words_of(text)
    yield outcome


def read_findings(reader: int, outcome: Outcome) -> None:
    """Until an empty line."""
    rest = b""
    while True:
        found = os.read(reader, 1 << 16)
        now = time.monotonic_ns()
        *lines, rest = (rest + found).split(b"\n")
        for line in lines:
            if not line:
                return
            outcome.found.append((now, json.loads(line)))


@contextlib.contextmanager
def load(command: Sequence[str], folder: Path) -> Iterator[dict[str, float]]:
    """How long the suite took by its own clock, and how much CPU time its programs took."""
    text, _ = run(command, folder)
    ((elapsed, cpu),) = words_of(text).get("elapsed") or [["0", "0"]]
    yield {"elapsed": int(elapsed), "cpu": int(cpu)}


def run(command: Sequence[str], folder: Path) -> tuple[str, int]:
    """What it prints, and its exit code; nothing of it is left."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            text, errors = process.communicate(timeout=TIMEOUT)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            raise
    if "elapsed" not in text:
        raise Failure(errors.strip() or f"{command[0]} has not run the suite")
    return text, process.returncode


def words_of(text: str) -> dict[str, list[list[str]]]:
    """The lines of the suite by their first word."""
    found: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        first, *rest = line.split() or [""]
        found.setdefault(first, []).append(rest)
    return found


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    outcome: Outcome = runs[0].oracle
    answer = Answer()
    ended = {int(pid): role for role, pid, _ in outcome.said.get("ended", [])}
    crashes = [one for one in outcome.found if one[1]["finding"] == "crash"]
    locks = [one for one in outcome.found if one[1]["finding"] == "deadlock"]
    answer.checks += of_crashes(ended, crashes)
    answer.checks += of_lines(outcome, crashes)
    answer.checks += of_dead_lock(outcome, locks)
    answer.checks.append(
        Check("the exit code says that something was found", outcome.code == 3, f"{outcome.code}")
    )
    answer.results.append(roles(ended, crashes, locks))
    answer.results.append(delays(outcome, crashes, locks))
    loads = by_load(runs[1:])
    answer.results.append(overhead(loads))
    answer.sentences += sentences(outcome, ended, crashes, loads)
    answer.cannot += missing(outcome, crashes, loads)
    return answer


def of_crashes(ended: dict[int, str], crashes: list[tuple[int, dict[str, Any]]]) -> list[Check]:
    """Precision and recall are those of programs, by what the suite did."""
    planted = {pid: CRASHES[role] for pid, role in ended.items() if role in CRASHES}
    found = {one["process"]["pid"]: one["signal_name"] for _, one in crashes}
    right = sum(planted.get(pid) == name for pid, name in found.items())
    precision, recall = right / max(len(crashes), 1), right / max(len(planted), 1)
    return [
        Check(
            "precision", precision == 1, f"{right} of {len(crashes)} reported crashes were planted"
        ),
        Check("recall", recall == 1, f"{right} of {len(planted)} crashes were reported"),
    ]


def has_line(outcome: Outcome, one: dict[str, Any]) -> bool:
    """Whether the line at which the program goes wrong, as it has said itself, is in the stack."""
    lines = {said[0]: said[2] for role in CRASHES for said in outcome.said.get(role, [])}
    line = lines.get(str(one["process"]["pid"]))
    return any(
        str(frame.get("source", "")).endswith(f"crash_suite.c:{line}") for frame in one["stack"]
    )


def of_lines(outcome: Outcome, crashes: list[tuple[int, dict[str, Any]]]) -> list[Check]:
    """Of faults. The stack of abort() begins in libc: see `missing`."""
    faults = [one for _, one in crashes if one["signal_name"] != ABORT]
    right = sum(has_line(outcome, one) for one in faults)
    text = f"{right} of {len(faults)} stacks of faults have the line of the fault"
    return [Check("lines of the source", right == len(faults), text)]


def of_dead_lock(outcome: Outcome, locks: list[tuple[int, dict[str, Any]]]) -> list[Check]:
    told = {int(pid): {int(a, 16), int(b, 16)} for pid, a, b in outcome.said.get("locks", [])}
    named = [
        told.get(one["process"]["pid"]) == {thread["lock"] for thread in one["threads"]}
        for _, one in locks
    ]
    text = f"{len(locks)} reported, {sum(named)} with both locks; {len(told)} planted"
    return [Check("the dead-lock", len(locks) == len(told) == sum(named), text)]


def roles(
    ended: dict[int, str],
    crashes: list[tuple[int, dict[str, Any]]],
    locks: list[tuple[int, dict[str, Any]]],
) -> Any:
    columns = [
        Column("program", "", False, "what it does"),
        Column("run", "count", False, "how many of them ran"),
        Column("crashes", "count", False, "that were reported as crashed"),
        Column("deadlocks", "count", False, "that were reported as dead-locked"),
    ]
    crashed = [one["process"]["pid"] for _, one in crashes]
    locked = [one["process"]["pid"] for _, one in locks]
    rows = []
    for role in dict.fromkeys(ended.values()):
        pids = [pid for pid, what in ended.items() if what == role]
        found = [sum(pid in pids for pid in many) for many in (crashed, locked)]
        rows.append([role, len(pids), *found])
    question = "Which programs of the suite were reported?"
    return result("reported", "Programs", question, columns, rows)


def said_at(outcome: Outcome, role: str) -> int | None:
    """When a program of the suite went wrong, by its own clock."""
    said = outcome.said.get(role)
    return int(said[0][1]) if said else None


def delays(
    outcome: Outcome,
    crashes: list[tuple[int, dict[str, Any]]],
    locks: list[tuple[int, dict[str, Any]]],
) -> Any:
    columns = [
        Column("finding", "", False, "what was reported"),
        Column("after", "ns", True, "from its own clock, just before, to the report"),
    ]
    names = {name: role for role, name in CRASHES.items()}
    rows = []
    for at, one in crashes:
        since = said_at(outcome, names.get(one["signal_name"], ""))
        if since is not None:
            rows.append([one["signal_name"], at - since])
    since = said_at(outcome, "deadlock")
    rows += [["dead-lock", at - since] for at, _ in locks[:1] if since is not None]
    picture = Picture("bars", {"x": "after", "y": "finding"})
    question = "How long after it happened was it reported?"
    return result("delays", "Delays", question, columns, rows, picture)


def by_load(runs: list[Run]) -> dict[str, list[dict[str, float]]]:
    found: dict[str, list[dict[str, float]]] = {}
    for one in runs:
        found.setdefault(str(one.arm.parameters["load"]), []).append(one.oracle)
    return found


def ratio(loads: dict[str, list[dict[str, float]]], name: str) -> float | None:
    """Of the medians of the elapsed times, to those without anything."""
    none, some = loads.get("none"), loads.get(name)
    if not none or not some:
        return None
    base = statistics.median(one["elapsed"] for one in none)
    return statistics.median(one["elapsed"] for one in some) / base if base else None


def overhead(loads: dict[str, list[dict[str, float]]]) -> Any:
    columns = [
        Column("arm", "", False, "what the suite was run by"),
        Column("elapsed", "ns", True, "for the suite, by its own clock: median"),
        Column("cpu", "ns", False, "CPU time of its programs: median"),
        Column("ratio", "", False, "elapsed, in times that without anything"),
        Column("least", "ns", False, "shortest of the rounds"),
        Column("most", "ns", False, "longest of the rounds"),
    ]
    rows = []
    for name, many in loads.items():
        elapsed = [one["elapsed"] for one in many]
        times = ratio(loads, name)
        rows.append([
            name, int(statistics.median(elapsed)),
            int(statistics.median(one["cpu"] for one in many)),
            f"{times:.2f}" if times is not None else "", int(min(elapsed)), int(max(elapsed)),
        ])  # fmt: skip
    rows.sort(key=lambda row: row[1])
    picture = Picture("bars", {"x": "elapsed", "y": "arm"})
    question = "How much longer does the suite take?"
    return result("overhead", "Overhead", question, columns, rows, picture)


def sentences(
    outcome: Outcome,
    ended: dict[int, str],
    crashes: list[tuple[int, dict[str, Any]]],
    loads: dict[str, list[dict[str, float]]],
) -> list[str]:
    said = [
        f"Of {len(ended)} programs, {len(crashes)} crashed; others handled their faults, or left"
        " a zombie, and were not reported. The source has measured nothing to compare with."
    ]
    times = {name: ratio(loads, name) for name in loads if name != "none"}
    parts = [f"{name} {value:.2f}" for name, value in times.items() if value is not None]
    if parts:
        said.append(f"The suite took, in times that without anything: {', '.join(parts)}.")
    return said


def missing(
    outcome: Outcome,
    crashes: list[tuple[int, dict[str, Any]]],
    loads: dict[str, list[dict[str, float]]],
) -> list[str]:
    aborted = [one for _, one in crashes if one["signal_name"] == ABORT]
    said = [
        "The stack of abort() does not lead out of libc here, which has no frame pointers: the"
        " line of the call is not in it."
        for one in aborted
        if not has_line(outcome, one)
    ]
    return said + [
        f"{name} is not installed here, and was not compared"
        for name in ("strace", "gdb")
        if name not in loads
    ]


STUDY = Study(
    name="crash-story",
    title="Crashes and dead-locks of a suite",
    question="Are the programs of a suite that crash or dead-lock found while it runs, and no"
    " others?",
    paper='A. Cagney, "The Frysk Execution Analysis Architecture", Linux Symposium 2006',
    found="It describes a monitored terminal that reports crashes of all that runs in it, and"
    " measured nothing.",
    schemata=("lifecycle", "futex"),
    arms=arms,
    analyse=analyse,
    seconds=90,
    least_seconds=30,
)
