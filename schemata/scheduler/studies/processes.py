# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""lat_proc: how long it takes to make a process, and where it starts."""

from __future__ import annotations

from typing import Any

from klogger.analysis import Picture
from klogger.durations import duration
from klogger.executor import Result
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, column

from . import _common as common

# Microseconds with the old and the new (O(1)) scheduler in January 2002.
PAPER = {
    "fork + exit": (440.0, 168.7),
    "fork + exec": (491.6, 279.7),
    "fork + sh": (3545.0, 2874.0),
}
MODES = {"fork + exit": "exit", "fork + exec": "exec", "fork + sh": "sh"}


def arms(plan: Plan) -> list[Arm]:
    program = plan.build("births.c")
    seconds = max(plan.seconds / len(MODES), 0.5)
    return [
        Arm(name, [program, mode, f"{seconds:.2f}"], seconds, {"seconds": seconds})
        for name, mode in MODES.items()
    ]


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    seen = [look(run) for run in runs]
    checks = [common.check_switches(runs), births_check(seen), common.check_lost(runs)]
    return Answer([table(seen)], sentences(plan, seen), checks)


def look(run: Run) -> dict[str, Any]:
    """The parent's own times, and those of the log: of its children only, not of the shell's."""
    log, parent, born = (
        common.log_of(run),
        common.reports(run, "parent")[0],
        common.reports(run, "births")[0],
    )
    cursor = log.cursor()
    life = f"""
        SELECT f.cpu, f.time, i.time - f.time AS ran, i.cpu AS ran_on, e.time - f.time AS execed,
               x.time - f.time AS ended
        FROM (SELECT * FROM FORK WHERE parent = {parent["tid"]} AND tgid = child) AS f
        ASOF LEFT JOIN SCHEDIN AS i ON f.child = i.pid AND f.time <= i.time
        ASOF LEFT JOIN EXEC AS e ON f.child = e.pid AND f.time <= e.time
        ASOF LEFT JOIN EXIT AS x ON f.child = x.pid AND f.time <= x.time"""
    found = cursor.execute(f"""
        SELECT count(*), quantile_disc(ran, 0.5), quantile_disc(execed, 0.5),
               quantile_disc(ended, 0.5),
               count(*) FILTER (ran_on = cpu) / nullif(count(ran), 0), count(execed), count(ended)
        FROM ({life})""").fetchone()
    curve = cursor.execute(f"""
        SELECT ns, sum(n) OVER (ORDER BY ns) / sum(n) OVER () FROM (
            SELECT max(ended) AS ns, count(*) AS n FROM ({life}) WHERE ended > 0
            GROUP BY floor(8 * log2(ended))
        ) ORDER BY ns""").fetchall()
    cursor.close()
    forks, ran, execed, ended, same, execs, ends = found or (0, *[None] * 6)
    return {
        "arm": run.arm.name,
        "births": born["births"],
        "each": born["took_ns"] / max(born["births"], 1),
        "forks": forks,
        "ran": ran,
        "execed": execed,
        "ended": ended,
        "same": same,
        "execs": execs,
        "ends": ends,
        "curve": curve,
    }


def table(seen: list[dict[str, Any]]) -> Result:
    columns = [
        column("arm", "what is made"),
        column("made", "processes", "count"),
        column("each", "time for one, by the program's own clock", "ns", bar=True),
        column("first_run", "from fork to the first run, half of them", "ns"),
        column("to_exec", "from fork to exec, half of them", "ns"),
        column("to_exit", "from fork to the end, half of them", "ns"),
        column("same_cpu", "started on the CPU of the parent", "share"),
        column("paper_old", "time for one with the old scheduler of 2002", "ns"),
        column("paper_new", "time for one with the O(1) scheduler", "ns"),
    ]
    rows = [
        [
            s["arm"],
            s["births"],
            s["each"],
            s["ran"],
            s["execed"],
            s["ended"],
            s["same"],
            *(1000 * us for us in PAPER[s["arm"]]),
        ]
        for s in seen
    ]
    others = [
        column("time", "from fork to the end of the process", "ns"),
        column("part", "processes that took no longer", "share"),
    ]
    points = [[ns, part, s["arm"]] for s in seen for ns, part in s["curve"]]
    picture = Picture("cdf", {"x": "time", "y": "part", "colour": "arm", "scale": "log"})
    question = "How long does it take to make a process, and where does it start?"
    return common.figure(
        "processes", "Processes", question, columns, rows, picture, others=others, points=points
    )


def births_check(seen: list[dict[str, Any]]) -> Check:
    """Each process that the program made was forked once, and ended; each that became another
    program called exec.
    """
    bad = [
        f"{s['arm']}: {s['births']:,} made, {s['forks']:,} forks, {s['execs']:,} execs,"
        f" {s['ends']:,} exits"
        for s in seen
        if not s["births"] == s["forks"] == s["ends"]
        or s["execs"] != (0 if s["arm"] == "fork + exit" else s["births"])
    ]
    return Check(
        "births",
        not bad,
        "; ".join(bad)
        or f"{sum(s['births'] for s in seen):,} processes, each with fork, exec and exit",
    )


def sentences(plan: Plan, seen: list[dict[str, Any]]) -> list[str]:
    said = [
        "One process takes " + ", ".join(f"{duration(s['each'])} ({s['arm']})" for s in seen) + "."
    ]
    if [s["each"] for s in seen] == sorted(s["each"] for s in seen):
        said.append(
            "The order is that of 2002: exit is quicker than exec, and exec quicker than a shell."
        )
    same = [s["same"] for s in seen if s["same"] is not None]
    if same and plan.machine.cpus > 1:
        said.append(
            f"{100 * min(same):.0f} to {100 * max(same):.0f} % of the children start on the CPU of"
            f" their parent; by chance it would be {100 / plan.machine.cpus:.0f} %. The O(1)"
            " scheduler kept them there, which made it quick."
        )
    return said


STUDY = Study(
    name="processes",
    title="Making processes",
    question="How long does it take to make a process, and where does it start?",
    paper="lat_proc, O(1) scheduler announcement of January 2002",
    found=(
        "fork + exit 440 µs with the old scheduler and 169 µs with the O(1) scheduler, which starts"
        " the child on the CPU of its parent; fork + exec 492 and 280 µs, fork + sh 3545 and"
        " 2874 µs."
    ),
    schemata=("scheduler",),
    arms=arms,
    analyse=analyse,
    seconds=20,
    least_seconds=7,
)
