# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Figure 5: how long programs really run before their CPU is given to another."""

from __future__ import annotations

from typing import Any

from klogger.analysis import Picture
from klogger.durations import duration
from klogger.executor import Result
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, column

from . import _common as common

# 90th percentiles that the paper names (Xine and MPlayer, wget, find, copy, make). The loop's is
# the maximum quantum.
PAPER = {
    "lone loop": 100e6, "player": 100e3, "network copy": 100e3, "find": 100e3, "copy": 100e3,
    "compile": 1e6,
}  # fmt: skip
# Whose quanta are those of an arm. Of a compile, all that it started.
PROGRAMS = {
    "lone loop": "spin", "loop and daemon": "spin", "two loops": "spin", "round robin": "spin",
    "player": "player", "network copy": "fetch", "find": "find", "copy": "quanta",
}  # fmt: skip
DAEMON_MS = 200
# What an arm needs to be worth anything, how many there are, and with how few of them the study
# still says something.
LEAST_S = 0.8
ARMS, FEWEST = 9, 4
UNIT = "#include <stdio.h>\n" + "\n".join(
    f'int f{k}(int x) {{ for (int i = 0; i < x; i++) x ^= i * {k}; return x + printf("%d", x); }}'
    for k in range(40)
)


def arms(plan: Plan) -> list[Arm]:
    program = plan.build("quanta.c")
    cpu = plan.machine.cpus - 1
    units = [plan.folder / f"unit{i}.c" for i in range(2 * plan.machine.cpus)]
    for unit in units:
        unit.write_text(UNIT)
    compile_all = (
        f"printf '%s\\n' unit*.c | xargs -P {plan.machine.cpus} -n 1 cc -O2 -c -o /dev/null"
    )
    commands: dict[str, list[Any]] = {
        "lone loop": ["spin", 1, cpu, "fair", 0],
        "loop and daemon": ["spin", 1, cpu, "fair", DAEMON_MS],
        "compile": ["repeat", "sh", "-c", compile_all],
        "find": ["repeat", "find", "/usr", "-name", "no such name"],
        "player": ["player"],
        "copy": ["copy", plan.folder, 100 if plan.seconds > 20 else 10],
        "network copy": ["netcopy"],
        "two loops": ["spin", 2, cpu, "fair", 0],
        "round robin": ["spin", 2, cpu, "rr", 0],
    }
    # The last ones are left out first.
    commands = dict(list(commands.items())[: max(int(plan.seconds / LEAST_S), FEWEST)])
    seconds = max(plan.seconds / len(commands), LEAST_S)
    return [
        Arm(
            name,
            [program, words[0], f"{seconds:.2f}", *map(str, words[1:])],
            seconds,
            around=common.around,
        )
        for name, words in commands.items()
    ]


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    rows, points = [], []
    cutters: dict[str, tuple[str, int]] = {}
    for run in runs:
        cursor = common.quanta(common.log_of(run))
        where = "whole" + (
            f" AND program = '{PROGRAMS[run.arm.name]}'" if run.arm.name in PROGRAMS else ""
        )
        rows.append(row(cursor, run.arm.name, where))
        points += curve(cursor, run.arm.name, where)
        cutters[run.arm.name] = cutter(cursor, where)
        cursor.close()
    table = quanta_table([r for r in rows if r[1]], points)
    by_name = {str(r[0]): r for r in rows if r[1]}
    checks = [common.check_switches(runs), common.check_cpu_time(runs), common.check_lost(runs)]
    checks += daemon_check([r for r in runs if r.arm.name == "loop and daemon"])
    answer = Answer([table], sentences(by_name, cutters), checks)
    if len(runs) < ARMS:
        answer.cannot.append(
            f"{ARMS - len(runs)} of {ARMS} programs were left out, for which there was no time"
            " (a greater --budget)."
        )
    return answer


def row(cursor: Any, arm: str, where: str) -> list[Any]:
    found = cursor.execute(f"""
        SELECT count(*), count(*) FILTER (ns < 100000) / count(*), quantile_disc(ns, 0.5),
               quantile_disc(ns, 0.9), max(ns)
        FROM (SELECT to_ns - from_ns AS ns FROM quantum WHERE {where})""").fetchone()
    return [arm, *found, PAPER.get(arm)]


def curve(cursor: Any, arm: str, where: str) -> list[list[Any]]:
    found = cursor.execute(f"""
        SELECT ns, sum(n) OVER (ORDER BY ns) / sum(n) OVER () FROM (
            SELECT max(ns) AS ns, count(*) AS n
            FROM (SELECT greatest(to_ns - from_ns, 1) AS ns FROM quantum WHERE {where})
            GROUP BY floor(16 * log2(ns))) ORDER BY ns""").fetchall()
    return [[ns, part, arm] for ns, part in found]


def cutter(cursor: Any, where: str) -> tuple[str, int]:
    """Who took the CPU most often, and how often."""
    found = cursor.execute(f"""
        SELECT klogger.label(t.comm, next), count(*) AS n FROM quantum
        LEFT JOIN klogger.thread AS t ON t.pid = next
        WHERE {where} AND state = 0 AND next NOT IN (SELECT pid FROM klogger.recorder)
        GROUP BY 1 ORDER BY n DESC, 1""").fetchone()
    return (str(found[0]), int(found[1])) if found else ("no thread", 0)


def quanta_table(rows: list[list[Any]], points: list[list[Any]]) -> Result:
    columns = [
        column("arm", "program"),
        column("quanta", "effective quanta", "count"),
        column("under_100us", "shorter than 100 µs", "share", bar=True),
        column("p50", "half are shorter", "ns"),
        column("p90", "nine of ten are shorter", "ns"),
        column("max", "the longest", "ns"),
        column("paper_p90", "nine of ten are shorter, in the paper (Linux 2.6.9)", "ns"),
    ]
    others = [
        column("quantum", "length of an effective quantum", "ns"),
        column("part", "quanta that are not longer", "share"),
    ]
    picture = Picture("cdf", {"x": "quantum", "y": "part", "colour": "arm", "scale": "log"})
    question = "How long does a program run before its CPU is given to another?"
    return common.figure(
        "quanta", "Effective quanta", question, columns, rows, picture, others=others, points=points
    )


def sentences(rows: dict[str, list[Any]], cutters: dict[str, tuple[str, int]]) -> list[str]:
    said = []
    short = [name for name, r in rows.items() if name in PAPER and r[2] >= 0.9]
    long = [
        name
        for name, r in rows.items()
        if name in ("player", "find", "copy", "network copy") and r[2] < 0.9
    ]
    if short:
        said.append(
            f"As in the paper, nine of ten quanta are shorter than 100 µs: {', '.join(short)}."
        )
    if long:
        said.append(f"Not so here: {', '.join(f'{n} ({100 * rows[n][2]:.0f} %)' for n in long)}.")
    if "compile" in rows:
        said.append(
            f"Compile: nine of ten are shorter than {duration(rows['compile'][4])}; the paper"
            " has 1 ms."
        )
    if "round robin" in rows:
        said.append(
            f"Two loops under round robin run {duration(rows['round robin'][5])} at most, which"
            " is the paper's quantum of 100 ms if kernel.sched_rr_timeslice_ms is 100."
        )
    if "two loops" in rows:
        said.append(
            f"Two fair loops on one CPU change places after {duration(rows['two loops'][3])}"
            " (half of the quanta)."
        )
    for name in ("lone loop", "loop and daemon"):
        if name in rows and name in cutters:
            who, times = cutters[name]
            said.append(
                f"The {name}: its longest quantum is {duration(rows[name][5])}; cut most often"
                f" by {who} ({times} times)."
            )
    return said


def daemon_check(runs: list[Run]) -> list[Check]:
    """The daemon that was planted: each time that it woke, and a thread of the loop had the CPU, it
    cut a quantum.
    """
    checks = []
    for run in runs:
        said = common.reports(run, "daemon")
        if not said:
            continue
        wakes, pid = said[0]["count"], said[0]["tid"]
        cursor = common.quanta(common.log_of(run))
        cuts = common.one(cursor, "SELECT count(*) FROM quantum WHERE state = 0 AND next = $1", pid)
        ran = common.one(cursor, "SELECT count(*) FROM quantum WHERE pid = $1", pid)
        cursor.close()
        ok = ran >= wakes and cuts <= ran + 1 and cuts >= 1
        text = (
            f"woke {wakes} times by its own count; ran {ran} times and cut {cuts} quanta of the"
            " loop by the log"
        )
        checks.append(Check("planted daemon", ok, text))
    return checks


STUDY = Study(
    name="quanta",
    title="Effective quanta",
    question="Does the maximum length of a time quantum matter?",
    paper="Figure 5",
    found=(
        "Nine of ten quanta of all programs but a compile and a loop last less than 100 µs; even"
        " the loop reaches the maximum of 100 ms in only 40 % of its quanta, because daemons wake"
        " five times a second."
    ),
    schemata=("scheduler",),
    arms=arms,
    analyse=analyse,
    seconds=90,
    least_seconds=12,
)
