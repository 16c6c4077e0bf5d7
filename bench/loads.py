# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""LTTng's table 2 of 2006, today: what recording takes of the CPUs under four loads."""

import json
import os
import shutil
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

from measure import NOT_HERE, run, spread

from klogger_lab.bench.stats import Spread

HERE = Path(__file__).resolve().parent
# What each load was in 2006: CPU %, probes %, daemon %, MiB/s, events/s.
LOADS = {
    "fetch": ("fetching pages", "1.15", "0.053", "0.27", "0.19", "5,476"),
    "find": ("find", "15.38", "1.150", "0.39", "2.28", "120,282"),
    "gcc": ("find and gcc", "63.79", "1.720", "0.56", "3.24", "179,255"),
    "ping": ("find, gcc and a flood of packets", "98.60", "8.500", "0.96", "16.17", "884,545"),
}
PAIRS = 5
# Of the first three; what LTTng's authors say of theirs.
GOALS, GOAL_PERCENT = ("fetch", "find", "gcc"), 2.3
# What a program and all that it has waited for take: of the load, inside of the recording; and of
# all together.
TIMED = """
import json, resource, subprocess, sys, time
start = time.monotonic()
code = subprocess.run(sys.argv[2:], check=False).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
took = {"wall": time.monotonic() - start, "cpu": used.ru_utime + used.ru_stime}
json.dump(took, open(sys.argv[1], "w"))
sys.exit(code)
"""
WHOLE = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], check=False, stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime)
sys.exit(code)
"""


def one(tools, load: str, recorded: bool) -> dict[str, float]:
    """CPU and wall time of the load, of its recorder, and what is in the log; seconds and bytes."""
    folder, said, log = (tools.folder / name for name in ("load", "load.json", "load.klog"))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    sources = HERE.parent / "tests/workloads"
    command = [sys.executable, "-c", TIMED, said, HERE / "loads.sh", load, folder, sources]
    if not recorded:
        run(command)
        return json.loads(said.read_text())
    record = [tools.klogger, "record", "-q", "-s", "scheduler", "-s", "traps", "-o", log, "--"]
    whole = float(run([sys.executable, "-c", WHOLE, *record, *command]))
    shown = json.loads(run([tools.klogger, "info", "--format", "json", log]))
    # What a recorder takes to start and to end is no part of the load.
    idle = float(run([sys.executable, "-c", WHOLE, *record, "true"]))
    used = json.loads(said.read_text())
    counts = {
        key: sum(event[key] for event in shown["events"]) for key in ("logged", "lost", "bytes")
    }
    return {**used, **counts, "recorder": max(0.0, whole - used["cpu"] - idle)}


@dataclass(frozen=True)
class Shares:
    """Of a load: percent of all CPUs, bytes and events a second. `counted` is 0 if a hit's cost is
    not known.
    """

    cpu: float
    measured: Spread
    counted: float
    recorder: float
    bytes: float
    events: float
    lost: int

    def row(self, name: str) -> str:
        counted = f"{self.counted:.2f}" if self.counted else ""
        more = (
            f"{self.recorder:.2f} | {self.bytes / 2**20:.2f} | {self.events:,.0f} | {self.lost:,}"
        )
        return f"| {name} | {self.cpu:.1f} | {self.measured:.2f} | {counted} | {more} |"

    def verdict(self, name: str, events_2006: float) -> str:
        if not self.counted:
            return f"- {name}: {NOT_HERE}, for the section of hits was not measured"
        whole = self.counted + self.recorder
        said = "yes" if whole <= GOAL_PERCENT and not self.lost else "no"
        times = f"{self.events / events_2006:.1f} times the events a second of 2006"
        return (
            f"- {name}: {whole:.2f} %, with {times}, to be at most {GOAL_PERCENT} without a loss:"
            f" {said}"
        )


def shares_of(pairs: list[tuple[dict, dict]], each_ns: float | None) -> Shares:
    cpus = os.cpu_count()
    wall = statistics.median(b["wall"] for _, b in pairs)
    events = statistics.median(b["logged"] + b["lost"] for _, b in pairs) / wall
    return Shares(
        statistics.median(a["cpu"] / a["wall"] for a, _ in pairs) / cpus * 100,
        spread([(b["cpu"] - a["cpu"]) / b["wall"] / cpus * 100 for a, b in pairs]),
        events * (each_ns or 0) / cpus / 1e7,
        statistics.median(b["recorder"] for _, b in pairs) / wall / cpus * 100,
        statistics.median(b["bytes"] for _, b in pairs) / wall,
        events,
        sum(b["lost"] for _, b in pairs),
    )


def lttng_2006(tools) -> list[str]:
    """By pairs: a run without a recorder, and one with it."""
    for program in ("curl", "ping"):
        if not shutil.which(program):
            raise RuntimeError(f"no {program}: apt-get install curl iputils-ping")
    each = tools.kept.get("hit", {}).get("klogger, two ints")
    rows, verdicts, turns = [], [], min(PAIRS, tools.rounds)
    for load, (name, *print_2006) in LOADS.items():
        pairs = [(one(tools, load, False), one(tools, load, True)) for _ in range(turns)]
        found = shares_of(pairs, statistics.median(each) if each else None)
        rows.append(found.row(name))
        cpu, probes, daemon, disk, events = print_2006
        rows.append(f"| in 2006 | {cpu} | | {probes} | {daemon} | {disk} | {events} | |")
        if load in GOALS:
            verdicts.append(found.verdict(name, float(events.replace(",", ""))))
    return [
        "## LTTng's loads of 2006",
        "",
        (
            "The scheduler schema, system calls and page faults (schema `traps`) of all that the"
            f" load starts; {turns}"
        ),
        (
            "pairs of a run without and a run with a recorder, their medians. Shares are of"
            f" {os.cpu_count()} CPUs"
        ),
        (
            "while the load runs. Probes, measured: CPU time of the load with a recorder less that"
            " without, with the"
        ),
        (
            "quartiles; counted: events, each as long as one of two ints in the table of hits."
            " LTTng logged the whole"
        ),
        "system on one CPU.",
        "",
        (
            "| load | CPU % | probes %, measured | probes %, counted | recorder % | MiB/s |"
            " events/s | lost |"
        ),
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "Probes, counted, and the recorder:",
        "",
        *verdicts,
    ]
