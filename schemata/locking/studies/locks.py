# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Figures 2 to 4 of the KLogger paper: CPU time lost spinning for locks, by load, parallelism and
lock.
"""

from __future__ import annotations

import os

from klogger import executor
from klogger.durations import duration
from klogger_lab.machine import Machine
from klogger_lab.study.model import Answer, Check, Plan, Run, Study

from ._figures import PAPER, PAPER_CPUS, Spun, figure2, figure3, figure4, leagues
from ._loads import LEVELS, arms, levels

# With fewer waits, two shares are not compared.
ENOUGH = 200


def spun(one: Run) -> Spun | None:
    """The answers of this schema's analyses to one log."""
    if one.log is None:
        return None
    wanted = ("waits", "spin_share", "by_class", "ratio_access")
    chosen = [a for a in executor.choose(one.log) if a.schema == "locking" and a.name in wanted]
    answers = {r.analysis.name: r for r in executor.run_all(one.log, chosen)}
    rows = {
        name: [dict(zip(r.table.names, row, strict=True)) for row in r.table.rows]
        for name, r in answers.items()
    }
    shares = {row["lock"]: row["share"] for row in rows.get("spin_share", [])}
    busy = sum(share for lock, share in shares.items() if lock in ("spin lock", "rwlock"))
    classes: dict[str, float] = {}
    whole = sum(shares.values())
    for row in rows.get("by_class", []):
        classes[row["class"]] = classes.get(row["class"], 0.0) + row["share"] * whole
    waits = rows.get("waits", [])
    contended = rows.get("ratio_access", [])
    ratio = contended[0].get("ratio") if contended else None
    named = f"{contended[0]['class']} {ratio:.1f} x {contended[1]['class']}" if ratio else "-"
    top = waits[0]["lock"] if waits else "-"
    return Spun(
        busy, sum(shares.values()) - busy, classes, sum(r["waits"] for r in waits), named, top
    )


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    answer = Answer()
    found = [(one, s) for one in runs if (s := spun(one)) is not None]
    loads = [(one, s) for one, s in found if one.arm.parameters["load"] != "planted"]
    answer.results = [figure2(loads), figure3(loads), figure4(loads), leagues(loads)]
    answer.sentences = sentences(plan.machine, loads)
    answer.checks = checks(found)
    answer.cannot = cannot(plan, loads)
    return answer


def sentences(machine: Machine, loads: list[tuple[Run, Spun]]) -> list[str]:
    said = []
    for load, (_, at32) in PAPER.items():
        mine = [
            (int(o.arm.parameters["processes"]), s.busy)
            for o, s in loads
            if o.arm.parameters["load"] == load
        ]
        if mine:
            count, share = max(mine, key=lambda m: m[1])
            paper_said = f"; in the paper it was {at32}, with 32"
            said.append(
                f"{load}: at most {100 * share:.2g} % of CPU time spinning, with {count}"
                f" processes{paper_said}."
            )
    said += compared(machine, loads)
    said.append(
        f"This machine has {machine.cpus} CPUs, the paper's had {PAPER_CPUS}: there cannot be more"
        f" who spin at the same time than {machine.cpus - 1}."
    )
    return said


def compared(machine: Machine, loads: list[tuple[Run, Spun]]) -> list[str]:
    """The compile in memory and on disk, with as many processes as there are CPUs, or nearly."""
    count = nearest(loads, machine.cpus)
    at = {
        str(o.arm.parameters["load"]): s
        for o, s in loads
        if int(o.arm.parameters["processes"]) == count
    }
    memory, disk = at.get("compile on tmpfs"), at.get("compile on disk")
    if memory is None or disk is None:
        return []
    if min(memory.waits, disk.waits) < ENOUGH:
        return [
            f"With {count} processes, too few waits were seen to compare the compiles on tmpfs and"
            " on disk."
        ]
    return [
        f"With {count} processes, the compile on tmpfs spun"
        f" {'more' if memory.busy > disk.busy else 'not more'} than that on disk:"
        f" {100 * memory.busy:.2g} % and {100 * disk.busy:.2g} %. The paper saw 3 % and 1 %. One"
        " run of each: a difference may be chance."
    ]


def nearest(loads: list[tuple[Run, Spun]], cpus: int) -> int:
    counts = sorted(
        {int(o.arm.parameters["processes"]) for o, _ in loads if o.arm.parameters["load"] in PAPER}
    )
    return min(counts, key=lambda n: (abs(n - cpus), n)) if counts else 0


def checks(found: list[tuple[Run, Spun]]) -> list[Check]:
    """Spinning is work of the kernel, so it cannot take more time than the kernel had, with what a
    host took.
    """
    made, worst_case = [], ("", 0.0, 0.0)
    for one, s in found:
        times = one.oracle or {}
        # Each CPU's account may be short by a tick.
        limit = sum(times.get(k, 0) for k in ("system", "irq", "softirq", "steal")) + 20e6 * (
            os.cpu_count() or 1
        )
        if one.log is None or not times:
            continue
        cpu_ns = one.log.sql(
            "SELECT (to_ns - from_ns) * len(cpus) FROM klogger.recording"
        ).fetchall()[0][0]
        spinning = (s.busy + s.mutex) * cpu_ns
        if spinning / max(limit, 1) >= worst_case[1] / max(worst_case[2], 1):
            worst_case = (one.arm.name, spinning, limit)
    if worst_case[0]:
        name, spinning, limit = worst_case
        text = (
            f"at most, with {name}: {duration(spinning)} spinning, {duration(limit)} in the"
            " kernel, stolen time included"
        )
        made.append(
            Check("spin time is not longer than time in the kernel", spinning <= limit, text)
        )
    for one, s in found:
        if one.arm.parameters["load"] == "planted":
            text = (
                "one thread holds the mmap lock long; the lock that was waited for most is:"
                f" {s.top_wait}"
            )
            made.append(
                Check("the planted lock is found", s.top_wait.startswith("mmap lock"), text)
            )
    return made


def cannot(plan: Plan, loads: list[tuple[Run, Spun]]) -> list[str]:
    said = [
        "How often a lock is taken without waiting: the kernel's tracepoints are hit by waits only."
    ]
    if not any(o.arm.parameters["load"] == "web" for o, _ in loads):
        said.append(
            "Compile in memory, and the web server: there is no tmpfs that can be written to."
        )
    if levels(plan) != LEVELS[0]:
        said.append(
            "All numbers of processes from 1 to 32: there was no time for them. Give it a larger"
            " --budget."
        )
    if loads and not any(s.busy for _, s in loads):
        said.append(
            "Spinning for spin locks: none was seen. Without paravirtual locks a virtual machine"
            " shows none, and with two CPUs the first waiter spins where no tracepoint is."
        )
    return said


STUDY = Study(
    name="locks",
    title="CPU time lost spinning for locks",
    question=(
        "Which part of all CPU time is lost spinning for locks of the kernel, and which locks are"
        " responsible?"
    ),
    paper="Figures 2 to 4",
    found=(
        "With 32 processes on 4 CPUs, over 20 % of all cycles went into spinning with a web server,"
        " over 15 % with a parallel compile, 6 % with a network server; nearly all of the compile's"
        " for the Big Kernel Lock."
    ),
    schemata=("locking",),
    arms=arms,
    analyse=analyse,
    seconds=120,
    least_seconds=12,
)
