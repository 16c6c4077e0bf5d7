# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Figures 8 to 10: how much interrupts change the time of a fixed computation, and whether by their
handlers' time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from klogger import executor
from klogger.analysis import Column, Picture
from klogger.durations import duration
from klogger.executor import Result, Rows
from klogger.failure import Failure
from klogger_lab.study.model import Answer, Check, Plan, Run, Study, result

from ._loops import LOOPS, arms

HERE = Path(__file__).resolve().parent
PAPER = ["2007, Pentium IV", "raw", 780_000, None, None, 1_960_000, 0.4, 0.01]
# What a timer of 1 kHz must add: the hypervisor and the tick may each hide some.
PLANTED = (800.0, 1100.0)


TIMES = [
    Column("arm", "", False, "what happened besides"),
    Column(
        "what",
        "",
        False,
        "iterations; as they were, without the timer's handlers, or without all handlers",
    ),
    Column("min", "ns", False, "the shortest iteration"),
    Column("p50", "ns", False, "half of them take no longer"),
    Column("p99", "ns", False, "99 of 100 take no longer"),
    Column("max", "ns", False, "the longest"),
    Column("over_1", "share", False, "part that takes over 1 % longer than is usual in its block"),
    Column("over_50", "share", False, "part that takes over 50 % longer"),
]
POINTS = [
    Column("extra", "ns", False, "longer than usual in its block; below 0, shorter"),
    Column("part", "share", False, "part of the iterations that are not longer"),
    Column("series", "", False, "iterations"),
]
COSTS = [
    Column("arm", "", False, "what happened besides"),
    Column("class", "", False, "what interrupted"),
    Column("interrupts", "count", False, "of this class alone in their iteration"),
    Column("direct", "ns", False, "time in handlers, for each"),
    Column("indirect", "ns", False, "the computation takes longer, for each"),
    Column("low", "ns", False, "with 95 % confidence not less than this"),
    Column("high", "ns", False, "and not more than this"),
    Column("seen", "", False, "whether 0 is outside of these"),
]
DRAWN = [Column("shown", "", False, "arm, and what interrupted"), *COSTS]
ARMS_POINTS = [*POINTS[:2], Column("series", "", False, "what happened besides")]
ARMS_COLUMNS = [
    Column("arm", "", False, "what happened besides"),
    Column("iterations", "count", False, "in which the loop had its CPU all along"),
    Column("others", "count", False, "in which another thread had it: left out"),
    Column("timer_rate", "per_s", False, "timer interrupts of the CPU in each second of the loop"),
    Column("rate", "per_s", False, "all interrupts, without soft ones"),
    Column("handlers", "share", False, "part of the loop's time in their handlers"),
    Column(
        "steal",
        "ns",
        False,
        "time that the hypervisor took from this CPU, by the kernel's account at ticks",
    ),
]


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    answer = Answer(cannot=cannot(plan, runs))
    times, costs, general = [], [], []
    for one in runs:
        found = {r.analysis.name: r for r in noise_answers(one)}
        rows = found["noise_cdf"].table.records()
        times += [[one.arm.name, *(row[c.name] for c in TIMES[1:])] for row in rows]
        costs += [
            [one.arm.name, *(row[c.name] for c in COSTS[1:])]
            for row in found["indirect"].table.records()
        ]
        general.append(in_general(one))
        answer.checks += checks(one, rows)
        answer.sentences += sentences(one, found)
    answer.sentences += slopes(costs)
    answer.checks += planted(general)
    answer.results.append(figure_8(runs[0], [*times, PAPER]))
    answer.results.append(figure_of_arms(runs, general))
    answer.results.append(figure_10(costs))
    return answer


def noise_answers(one: Run) -> list[Result]:
    assert one.log is not None
    answers = list(
        executor.run_all(one.log, [a for a in executor.choose(one.log) if a.schema == "noise"])
    )
    for found in answers:
        if found.status in ("failed", "not_recorded"):
            raise Failure(f"arm '{one.arm.name}': {found.analysis.name}: {found.reason}")
    return answers


def in_general(one: Run) -> list[Any]:
    """A row of the table of arms. A second of the loop is one of its iterations, not of the pauses
    between blocks.
    """
    assert one.log is not None
    cursor = one.log.cursor()
    analyses = HERE.parent / "analyses"
    for file in (analyses / "../../interrupt/analyses/_handler.sql", analyses / "_iteration.sql"):
        cursor.execute(file.read_text())
    ((kept, others, seconds, every, handlers),) = cursor.execute("""
        SELECT count(*) FILTER (out_ns = 0), count(*) FILTER (out_ns > 0), sum(raw) / 1e9,
               sum(interrupts),
               sum(all_ns) / sum(raw)
        FROM iteration HAVING count(*) > 0""").fetchall() or [(0, 0, 1, 0, None)]
    ((timer,),) = cursor.execute(
        "SELECT count(*) FROM iteration_handler WHERE name = 'local_timer' AND begins"
    ).fetchall()
    # /proc/stat has steps of 10 ms.
    query = "SELECT max(total) - min(total) FROM STEAL WHERE cpu = $1"
    ((steal,),) = cursor.execute(query, [one.arm.parameters["cpu"]]).fetchall()
    cursor.close()
    return [one.arm.name, kept, others, timer / seconds, every / seconds, handlers, steal]


def checks(one: Run, rows: list[dict[str, Any]]) -> list[Check]:
    """Of one arm: the program's own count, the order of the series, and the kernel's count of timer
    interrupts.
    """
    assert one.log is not None
    name, said = one.arm.name, json.loads(one.output)
    logged = one.log.rows("SELECT count(*) FROM LOOP")[0][0]
    lost = sum(e.lost for e in one.log.events.values())
    text = f"{logged:,} in the log, {said['iterations']:,} by the loop's own count" + (
        f"; {lost:,} events lost" if lost else ""
    )
    made = [
        Check(
            f"{name}: iterations",
            logged == said["iterations"] or 0 < said["iterations"] - logged <= lost,
            text,
        )
    ]
    by = {row["what"]: row for row in rows}
    quantiles = ("p50", "p99", "max")
    ordered = (
        all(by["raw"][q] >= by["without timer"][q] >= by["clean"][q] for q in quantiles)
        if len(by) == 3
        else False
    )
    shown = ", ".join(
        f"{w} {duration(by[w]['p50'])}" for w in ("raw", "without timer", "clean") if w in by
    )
    made.append(
        Check(f"{name}: raw >= without timer >= clean", ordered, f"medians: {shown or 'none'}")
    )
    return [*made, *timer_check(one, said, lost)]


def timer_check(one: Run, said: dict[str, Any], lost: int) -> list[Check]:
    """The loop reads /proc/interrupts at its beginning and its end: between these the log must have
    as many.
    """
    assert one.log is not None
    cpu, counted, start = (
        int(one.arm.parameters["cpu"]),
        said.get("timer", -1),
        one.log.start_ns,
    )
    if counted < 0:
        return []
    during = f"time BETWEEN {said['began'] - start} AND {said['ended'] - start}"
    logged = one.log.rows(
        f"SELECT count(*) FROM VEC_IN WHERE kind = 0 AND cpu = {cpu} AND {during}"
    )[0][0]
    allowed = 3 + 0.02 * counted + lost
    text = (
        f"{logged:,} in the log while the loop ran; {counted:,} by /proc/interrupts, which it read"
        f" before and after (may differ by {allowed:,.0f})"
    )
    return [
        Check(
            f"{one.arm.name}: timer interrupts of CPU {cpu}", abs(logged - counted) <= allowed, text
        )
    ]


def planted(general: list[list[Any]]) -> list[Check]:
    rates = {row[0]: row[3] for row in general}
    if "1 kHz timer" not in rates:
        return []
    more = rates["1 kHz timer"] - rates["nothing else"]
    text = (
        f"adds {more:,.0f} timer interrupts a second ({PLANTED[0]:,.0f} to {PLANTED[1]:,.0f} are"
        " right)"
    )
    return [Check("1 kHz timer", PLANTED[0] <= more <= PLANTED[1], text)]


def sentences(one: Run, found: dict[str, Result]) -> list[str]:
    """What removing the handlers' time changes, which in 2007 was nothing."""
    by = {row["what"]: row for row in found["noise_cdf"].table.records()}
    if len(by) < 3:
        return [f"{one.arm.name}: no iteration had its CPU all along"]
    raw, clean = by["raw"], by["clean"]
    spread, left = raw["p99"] - raw["p50"], clean["p99"] - clean["p50"]
    gone = 1 - clean["over_1"] / raw["over_1"] if raw["over_1"] else 0
    like = "most of it goes; in 2007 nothing changed"
    if gone < 0.5:
        like = "some of it goes; in 2007 nothing changed"
    if gone < 0.05:
        like = "as in 2007, that changes nothing"
    text = (
        f"{one.arm.name}: {100 * raw['over_1']:.0f} % of the iterations take over 1 % longer than"
        f" usual, the longest {raw['max'] / max(raw['min'], 1):.1f} times the shortest (2007: over"
        f" 40 %, 2.5 times). Without the handlers' time it is {100 * clean['over_1']:.0f} %:"
        f" {like}. From the median to the 99th percentile are {duration(left)} instead of"
        f" {duration(spread)}."
    )
    worst = [
        f"{one.arm.name}: {finding[0].lower()}{finding[1:]}"
        for finding in found["noisy_neighbours"].findings[:1]
    ]
    return [*calibrated(one), text, *worst]


def calibrated(one: Run) -> list[str]:
    """Whether the loop was of 1 ms; says nothing if it was."""
    assert one.log is not None
    cursor = one.log.cursor()
    for file in (
        HERE.parent / "../interrupt/analyses/_handler.sql",
        HERE.parent / "analyses" / "_iteration.sql",
    ):
        cursor.execute(file.read_text())
    ((usual, low, high, nominal),) = cursor.execute(
        "SELECT median(usual), min(usual), max(usual), max(nominal) FROM iteration_kept"
    ).fetchall()
    cursor.close()
    failed, blocks = (
        json.loads(one.output).get("uncalibrated", 0),
        json.loads(one.output).get("blocks", 0),
    )
    said = []
    if max(abs(low - nominal), abs(high - nominal)) > 0.02 * nominal:
        said.append(
            f"{one.arm.name}: the computation is not of {duration(nominal)} all the time: without"
            f" handlers usually {duration(usual)}, in blocks of iterations {duration(low)} to"
            f" {duration(high)}. The CPU's speed changed, so each iteration is compared with its"
            " own block."
        )
    if failed:
        said.append(
            f"{one.arm.name}: in {failed:,} of {blocks:,} blocks the loop could not be calibrated"
            " within 1 %."
        )
    return said


def slopes(costs: list[list[Any]]) -> list[str]:
    """Whether interrupts cost more where more memory is used."""
    by = {(row[0], row[1]): row for row in costs}
    none, array = by.get(("packets, no memory", "IPI")), by.get(("packets, array", "IPI"))
    if none is None or array is None:
        return []
    says = [
        f"{duration(row[4])} ({duration(row[5])} to {duration(row[6])}) in a loop that {what}"
        for row, what in ((none, "uses no memory"), (array, "walks an array"))
    ]
    apart = array[5] > none[6]
    verdict = (
        "the difference is the caches' share"
        if apart
        else "no difference is seen: the caches' share is too small for this"
    )
    return [
        f"Beside its handlers, an interrupt for a packet costs {says[0]}, and {says[1]}: {verdict}."
    ]


def figure_8(one: Run, times: list[list[Any]]) -> Result:
    """Table of all arms; the picture is the paper's, so of the first one."""
    picture = Picture("cdf", {"x": "extra", "y": "part", "colour": "series", "zoom": "ends"})
    (cdf,) = [r for r in noise_answers(one) if r.analysis.name == "noise_cdf"]
    points = Rows(
        [c.name for c in POINTS], [[r["extra"], r["part"], r["what"]] for r in cdf.points.records()]
    )
    question = "How long does a computation of 1 ms take, as it was, and without handlers?"
    note = (
        f"The picture is of the arm '{one.arm.name}': 0 is what is usual without handlers in a"
        " block of iterations; the paper's is of whole iterations."
    )
    return drawn(
        result("figure_8", "Figure 8", question, [*TIMES, *POINTS], times, picture, notes=[note]),
        TIMES,
        points,
    )


def figure_of_arms(runs: list[Run], general: list[list[Any]]) -> Result:
    picture = Picture("cdf", {"x": "extra", "y": "part", "colour": "series", "zoom": "ends"})
    rows = []
    for one in runs:
        (cdf,) = [r for r in noise_answers(one) if r.analysis.name == "noise_cdf"]
        rows += [
            [r["extra"], r["part"], one.arm.name]
            for r in cdf.points.records()
            if r["what"] == "clean"
        ]
    points = Rows([c.name for c in ARMS_POINTS], rows)
    question = "How long does it take without handlers, beside what?"
    return drawn(
        result("arms", "Neighbours", question, [*ARMS_COLUMNS, *ARMS_POINTS], general, picture),
        ARMS_COLUMNS,
        points,
    )


def figure_10(costs: list[list[Any]]) -> Result:
    """What the paper saw by switching the caches off: what is left when the handlers' time is taken
    away.
    """
    picture = Picture("bars", {"x": "indirect", "y": "shown"})
    points = Rows([c.name for c in DRAWN], [[f"{row[0]}: {row[1]}", *row] for row in costs])
    question = "How much longer does the computation itself take for each interrupt?"
    note = (
        "Contains the way into the kernel and back, and most of the cost of logging (0.1 µs for"
        " each event)."
    )
    made = result("figure_10", "Figures 9 and 10", question, DRAWN, costs, picture, notes=[note])
    return drawn(made, COSTS, points)


def drawn(made: Result, columns: list[Column], points: Rows) -> Result:
    """The same with the table's own columns, and a picture of other points."""
    made.table.names = [c.name for c in columns]
    made.points = points
    return made


def cannot(plan: Plan, runs: list[Run]) -> list[str]:
    said = [
        (
            "Figure 9, cache misses of handlers: needs the CPU's counters, which the log does not"
            " have; the time that an interrupt costs besides its handlers stands for it."
        ),
        (
            "Figure 10, caches switched off: no system allows that today; a loop that uses no"
            " memory stands for it."
        ),
    ]
    if plan.machine.cpus < 2:
        said.append(
            "packets, IPIs, disk: what causes these must run on another CPU, and there is only one."
        )
    missing = [loop[0] for loop in LOOPS if loop[0] not in {one.arm.name for one in runs}]
    if missing and plan.machine.cpus > 1:
        said.append(f"not in this time: {'; '.join(missing)}. A longer --budget runs them.")
    if plan.machine.virtual:
        said.append(
            "This is a virtual machine: what the hypervisor takes is stolen time, which is shown;"
            " what else it does, and the speed of the real CPU, cannot be seen here."
        )
    return said


STUDY = Study(
    name="noise",
    title="Interrupts and a fixed computation",
    question=(
        "How much do interrupts change the time that a fixed computation takes, and is it their"
        " handlers' time?"
    ),
    paper="Figures 8, 9 and 10",
    found=(
        "Over 40 % of the repetitions of a loop of 1 ms took longer, 1 % over 1.5 ms, up to 1.96"
        " ms; removing the handlers' time changed nothing. With caches switched off it made the"
        " times equal: the damage was to the caches."
    ),
    schemata=("interrupt", "scheduler", "noise"),
    arms=arms,
    analyse=analyse,
    seconds=60,
    least_seconds=6,
)
