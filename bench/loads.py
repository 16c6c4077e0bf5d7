# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""LTTng's table 2 of 2006, today: what recording takes of the CPUs under four loads."""

import json
import os
import shutil
import statistics
import sys
from pathlib import Path

from measure import run, spread

HERE = Path(__file__).resolve().parent
# What each load was in 2006: CPU %, probes %, daemon %, MiB/s, events/s.
LOADS = {
    "fetch": ("fetching pages", "1.15", "0.053", "0.27", "0.19", "5,476"),
    "find": ("find", "15.38", "1.150", "0.39", "2.28", "120,282"),
    "gcc": ("find and gcc", "63.79", "1.720", "0.56", "3.24", "179,255"),
    "ping": ("find, gcc and a flood of packets", "98.60", "8.500", "0.96", "16.17", "884,545"),
}
PAIRS = 5
# What a program and all that it has waited for take: of the load, inside of the recording; and of all together.
TIMED = """
import json, resource, subprocess, sys, time
start = time.monotonic()
code = subprocess.run(sys.argv[2:], check=False).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
json.dump({"wall": time.monotonic() - start, "cpu": used.ru_utime + used.ru_stime}, open(sys.argv[1], "w"))
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
    counts = {key: sum(event[key] for event in shown["events"]) for key in ("logged", "lost", "bytes")}
    return {**used, **counts, "recorder": max(0.0, whole - used["cpu"] - idle)}


def row(name: str, pairs: list[tuple[dict, dict]], each_ns: float | None) -> str:
    cpus = os.cpu_count()
    wall = statistics.median(b["wall"] for _, b in pairs)
    shares = [(b["cpu"] - a["cpu"]) / b["wall"] / cpus * 100 for a, b in pairs]
    events = statistics.median(b["logged"] + b["lost"] for _, b in pairs) / wall
    cells = [
        f"{statistics.median(a['cpu'] / a['wall'] for a, _ in pairs) / cpus * 100:.1f}",
        f"{spread(shares):.2f}",
        f"{events * each_ns / cpus / 1e7:.2f}" if each_ns else "",
        f"{statistics.median(b['recorder'] for _, b in pairs) / wall / cpus * 100:.2f}",
        f"{statistics.median(b['bytes'] for _, b in pairs) / wall / 2**20:.2f}",
        f"{events:,.0f}",
        f"{sum(b['lost'] for _, b in pairs):,}",
    ]
    return f"| {name} | {' | '.join(cells)} |"


def lttng_2006(tools) -> list[str]:
    """By pairs: a run without a recorder, and one with it."""
    for program in ("curl", "ping"):
        if not shutil.which(program):
            raise RuntimeError(f"no {program}: apt-get install curl iputils-ping")
    each = tools.kept.get("hit", {}).get("klogger, two ints")
    rows = []
    for load, (name, *print_2006) in LOADS.items():
        pairs = [(one(tools, load, False), one(tools, load, True)) for _ in range(min(PAIRS, tools.rounds))]
        rows.append(row(name, pairs, statistics.median(each) if each else None))
        cpu, probes, daemon, disk, events = print_2006
        rows.append(f"| in 2006 | {cpu} | | {probes} | {daemon} | {disk} | {events} | |")
    return [
        "## LTTng's loads of 2006",
        "",
        "The scheduler schema, system calls and page faults (schema `traps`) of all that the load starts;",
        f"{PAIRS} pairs of",
        f"a run without and a run with a recorder, their medians. Shares are of {os.cpu_count()} CPUs while the",
        "load runs. Probes,",
        "measured: CPU time of the load with a recorder less that without, with the quartiles; counted: events,",
        "each as long as",
        "one of two ints in the table of hits. LTTng logged the whole system on one CPU.",
        "",
        "| load | CPU % | probes %, measured | probes %, counted | recorder % | MiB/s | events/s | lost |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "To be at most 2.3 % for probes and recorder of the first three, without a loss.",
    ]
