# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""loop_yield: processes that do nothing but give up their CPU."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

from klogger.analysis import Picture
from klogger.failure import Failure
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, column, result

from . import _common as common

# Switches a second that were reported for the old and the new (O(1)) scheduler in January 2002.
# Of 4 processes on 2 CPUs. (16 on 8 CPUs: 108,400 and 6,118,000.)
PAPER = {"all CPUs": (241_000, 977_500)}
# These arms log some 10 MB a second.
LONGEST_S = 3.0


def arms(plan: Plan) -> list[Arm]:
    program, cpus = plan.build("yielders.c"), plan.machine.cpus
    planned = {
        "one alone": (1, cpus - 1),
        "two on one CPU": (2, cpus - 1),
        "eight on one CPU": (8, cpus - 1),
        "all CPUs": (2 * cpus, -1),
    }
    # Each runs twice: without a log, and with one.
    seconds = min(max(plan.seconds / len(planned) / 2, 0.3), LONGEST_S)
    return [
        Arm(
            name,
            [program, str(n), f"{seconds:.2f}", str(cpu)],
            2 * seconds,
            {"processes": n, "seconds": seconds},
            ["--buffer-size=16M"],
            around=partial(unlogged, [program, str(n), f"{seconds:.2f}", str(cpu)]),
        )
        for name, (n, cpu) in planned.items()
    ]


@contextlib.contextmanager
def unlogged(command: list[Any]) -> Iterator[dict[str, int]]:
    """Yields, and switches by the kernel's count, of the same processes before the recording
    begins.
    """
    done = subprocess.run(
        [str(w) for w in command], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise Failure(done.stderr.strip() or f"{command[0]} failed")
    said = [json.loads(line) for line in done.stdout.splitlines()]
    yield {
        "yields": sum(r["count"] for r in said),
        "switches": sum(r["nvcsw"] + r["nivcsw"] for r in said),
    }


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    seen = [look(run) for run in runs]
    columns = [
        column("arm", "processes that yield"),
        column("yields", "calls of sched_yield, by their own count", "count"),
        column("switches", "times that one of them left its CPU", "count"),
        column("changed", "switches for each yield", "share"),
        column("per_second", "switches in a second, on all CPUs", "per_s", bar=True),
        column("unlogged", "the same without logging, by getrusage", "per_s"),
        column("cpus", "CPUs that they ran on", "count"),
        column("paper_old", "switches a second on 2 CPUs in 2002, old scheduler", "per_s"),
        column("paper_new", "switches a second on 2 CPUs in 2002, O(1) scheduler", "per_s"),
    ]
    rows = [
        [
            s["arm"],
            s["yields"],
            s["switches"],
            s["switches"] / max(s["yields"], 1),
            s["switches"] / s["seconds"],
            s["unlogged"],
            s["cpus"],
            *PAPER.get(s["arm"], (None, None)),
        ]
        for s in seen
    ]
    picture = Picture("bars", {"x": "per_second", "y": "arm"})
    table = result("yield", "Yields", "How often can the CPU change hands?", columns, rows, picture)
    checks = [common.check_switches(runs), involuntary(seen), common.check_lost(runs)]
    return Answer([table], sentences({s["arm"]: s for s in seen}), checks)


def look(run: Run) -> dict[str, Any]:
    said = common.reports(run, "yielder")
    cursor = common.log_of(run).cursor()
    pids = ", ".join(str(r["tid"]) for r in said) or "NULL"
    found = cursor.execute(f"""
        SELECT count(*), count(*) FILTER (state = 0), count(DISTINCT cpu)
        FROM SCHEDOUT WHERE pid IN ({pids})""").fetchone()
    cursor.close()
    switches, preempted, cpus = found or (0, 0, 0)
    return {
        "arm": run.arm.name,
        "yields": sum(r["count"] for r in said),
        "switches": switches,
        "preempted": preempted,
        "cpus": cpus,
        "seconds": float(run.arm.parameters["seconds"]),
        "unlogged": (
            run.oracle["switches"] / float(run.arm.parameters["seconds"]) if run.oracle else None
        ),
        "nivcsw": sum(r["nivcsw"] for r in said),
    }


def involuntary(seen: list[dict[str, Any]]) -> Check:
    """The kernel counts a yield as involuntary; so must the log."""
    logged, counted = sum(s["preempted"] for s in seen), sum(s["nivcsw"] for s in seen)
    allowed = common.SWITCHES_MISSED * counted + 20
    text = (
        f"{logged:,} switches with state 0 in the log, {counted:,} involuntary ones by getrusage"
        f" (may differ by {allowed:,.0f})"
    )
    return Check("yields are involuntary", abs(logged - counted) <= allowed, text)


def sentences(seen: dict[str, dict[str, Any]]) -> list[str]:
    said = []
    for name in ("one alone", "two on one CPU"):
        if name in seen and seen[name]["yields"]:
            s = seen[name]
            said.append(
                f"{name[0].upper()}{name[1:]}: {100 * s['switches'] / s['yields']:.1f} % of the"
                " yields changed the thread."
            )
    for name in ("two on one CPU", "all CPUs"):
        if name in seen and seen[name]["unlogged"] and seen[name]["switches"]:
            said.append(slowed(seen[name]))
    if "all CPUs" in seen and seen.get("two on one CPU", {}).get("switches"):
        said += growth(seen["two on one CPU"], seen["all CPUs"])
    return said


def slowed(one: dict[str, Any]) -> str:
    """Each switch logs two events; at this rate they are a large part of the work."""
    logged = one["switches"] / one["seconds"]
    return (
        f"{one['arm'][0].upper()}{one['arm'][1:]}: {logged:,.0f} switches a second while they are"
        f" logged, two events each; {one['unlogged']:,.0f} without logging,"
        f" {one['unlogged'] / logged:.1f} times as many."
    )


def growth(one: dict[str, Any], more: dict[str, Any]) -> list[str]:
    """The study's question; by what was counted without the log, if it was."""
    known = one["unlogged"] and more["unlogged"]
    few, many = (s["unlogged"] if known else s["switches"] / s["seconds"] for s in (one, more))
    times, cpus = many / few, more["cpus"]
    if cpus < 2:
        return []
    verdict = "grows with the CPUs" if times > 0.75 * cpus else "grows, by less than the CPUs do"
    if times < 1.1:
        verdict = "does not grow with the CPUs"
    return [
        f"{cpus} CPUs together make {many:,.0f} switches a"
        f" second{' without logging' if known else ''}, one makes {few:,.0f}: the rate {verdict}"
        f" ({times:.2f} times as many). In 2002, the old scheduler made fewer on 8 CPUs than on 2,"
        " for all of them shared one queue; the O(1) scheduler made 6.3 times as many."
    ]


STUDY = Study(
    name="yield",
    title="Yields",
    question="How many switches a second can the scheduler make, and does that grow with the CPUs?",
    paper="loop_yield, O(1) scheduler announcement of January 2002",
    found=(
        "2 CPUs: 241,000 switches a second with the old scheduler, 977,500 with the O(1) scheduler;"
        " 8 CPUs: 108,400 and 6,118,000."
    ),
    schemata=("scheduler",),
    arms=arms,
    analyse=analyse,
    seconds=20,
    least_seconds=9,
)
