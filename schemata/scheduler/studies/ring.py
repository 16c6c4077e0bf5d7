# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""lat_ctx: a token goes round in a ring of processes, or of threads, each with a working set of its
own.
"""

from __future__ import annotations

from typing import Any

from klogger.analysis import Picture
from klogger.durations import duration
from klogger.executor import Result
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, column

from . import _common as common

SIZES, FEW_SIZES = [2, 8, 16, 32, 96], [2, 16, 96]
KIB = [0, 16, 64]
KINDS = ("processes", "threads")
# An arm that logs for longer tells no more.
LONGEST_S = 2.0


def arms(plan: Plan) -> list[Arm]:
    program = plan.build("ring.c")
    sizes = SIZES if plan.seconds > 1.5 * len(SIZES) * len(KIB) * len(KINDS) else FEW_SIZES
    seconds = min(max(plan.seconds / (len(sizes) * len(KIB) * len(KINDS)) - 0.2, 0.2), LONGEST_S)
    return [
        Arm(
            f"{n} {kind}, {kib} KiB",
            [program, str(n), kind, str(kib), f"{seconds:.2f}", str(plan.machine.cpus - 1)],
            seconds + 0.2,
            {"n": n, "kind": kind, "kib": kib},
            ["--buffer-size=16M"],
        )
        for kib in KIB
        for kind in KINDS
        for n in sizes
    ]


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    seen = [look(run) for run in runs]
    checks = [common.check_switches(runs), passes_check(seen), common.check_lost(runs)]
    return Answer([table(seen)], sentences(seen), checks)


def look(run: Run) -> dict[str, Any]:
    """`cpu_ns`: CPU time of all members for each pass, whatever else runs. `alone_ns`: the same
    without a switch.
    """
    ring, alone = common.reports(run, "ring")[0], common.reports(run, "alone")[0]
    members, log, start = (
        common.reports(run, "member"),
        common.log_of(run),
        common.log_of(run).start_ns,
    )
    pids = ", ".join(str(r["tid"]) for r in members)
    cursor = log.cursor()
    switches = common.one(
        cursor,
        f"""
        SELECT count(*) FROM SCHEDOUT
        WHERE pid IN ({pids}) AND time BETWEEN {ring["begin_ns"] - start}
          AND {ring["end_ns"] - start}""",
    )
    cursor.close()
    passes = sum(r["count"] for r in members)
    return {
        "n": int(run.arm.parameters["n"]),
        "kind": str(run.arm.parameters["kind"]),
        "kib": int(run.arm.parameters["kib"]),
        "passes": passes,
        "blocked": sum(r["nvcsw"] for r in members),
        "switches": switches,
        "cpu_ns": sum(r["cpu_ns"] for r in members) / max(passes, 1),
        "pass_ns": (ring["end_ns"] - ring["begin_ns"]) / max(passes, 1),
        "alone_ns": float(alone["ns"]),
    }


def table(seen: list[dict[str, Any]]) -> Result:
    columns = [
        column("n", "members of the ring"),
        column("kind", "what they are"),
        column("kib", "KiB that each adds up for each token"),
        column("passes", "times that the token was passed on", "count"),
        column("pass_ns", "for each pass, by the program's own clock", "ns"),
        column("cpu_ns", "CPU time of all members for each pass", "ns"),
        column("alone", "the same without a switch", "ns"),
        column("switch", "what a switch costs: the difference", "ns", bar=True),
    ]
    rows = [
        [
            s["n"],
            s["kind"],
            s["kib"],
            s["passes"],
            s["pass_ns"],
            s["cpu_ns"],
            s["alone_ns"],
            cost(s),
        ]
        for s in sorted(seen, key=lambda s: (s["kib"], s["kind"], s["n"]))
    ]
    others = [column("members", "members of the ring, and their working sets")]
    points = [[cost(s), f"{s['kib']:2} KiB, {s['n']:2} {s['kind']}"] for s in seen]
    picture = Picture("bars", {"x": "switch", "y": "members"})
    question = "What does a switch cost, by the size of the ring and of the working set?"
    return common.figure(
        "ring", "Switches", question, columns, rows, picture, others=others, points=points
    )


def cost(one: dict[str, Any]) -> float:
    return max(float(one["cpu_ns"] - one["alone_ns"]), 0.0)


def passes_check(seen: list[dict[str, Any]]) -> Check:
    """On one CPU, no process gets the token without a switch: each pass has one, and the log has
    them all.
    """
    passes, switches = sum(s["passes"] for s in seen), sum(s["switches"] for s in seen)
    text = (
        f"the token was passed on {passes:,} times, and members left the CPU {switches:,} times by"
        " the log"
    )
    return Check(
        "passes",
        passes > 0 and switches >= 0.99 * passes,
        f"{text} (at least once for each, less 1 %)",
    )


def sentences(seen: list[dict[str, Any]]) -> list[str]:
    said = []
    by = {(s["n"], s["kind"], s["kib"]): cost(s) for s in seen}
    two, two_threads = by.get((2, "processes", 0)), by.get((2, "threads", 0))
    if two is not None and two_threads is not None:
        said.append(
            f"Between two processes without working sets a switch costs {duration(two)},"
            f" between two threads of one process {duration(two_threads)}: the address space"
            f" makes {'+' if two > two_threads else ''}{duration(two - two_threads)}."
        )
    most = max(s["n"] for s in seen)
    large = by.get((most, "processes", max(KIB)))
    if two and large is not None:
        said.append(
            f"With {most} processes that touch {max(KIB)} KiB each it is {duration(large)}, for"
            " the caches are cold."
        )
    said.append(
        "The announcement of 2002 names the benchmark, but has no numbers of it. The cost of"
        " logging is part of these times."
    )
    return said


STUDY = Study(
    name="ring",
    title="A ring of processes",
    question="What does a context switch cost, with cold caches and another address space?",
    paper="lat_ctx, O(1) scheduler announcement of January 2002",
    found=(
        "The announcement has no numbers; in the discussion, changing the address space is said to"
        " be 70 % of a switch."
    ),
    schemata=("scheduler",),
    arms=arms,
    analyse=analyse,
    seconds=60,
    least_seconds=30,
)
