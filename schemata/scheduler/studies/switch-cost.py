# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Figure 7, and the cost of a context switch: copies of a sorter on one CPU, and what the scheduler
does meanwhile.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from klogger.analysis import Picture
from klogger.durations import duration
from klogger.executor import Result
from klogger.statements import execute_whole
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, column, result

from . import _common as common

COPIES = [1, 2, 4, 8, 16, 32]
FEW = [1, 2, 8, 32]
CALLS = Path(__file__).resolve().parents[2] / "switching" / "analyses" / "_call.sql"
PAPER_CYCLES, PAPER_CYCLES_SD = 3608, 1630
# ms in switches, and throughput: 8 copies sorted 0.3 % more than one.
PAPER_MS = {1: 30.2, 8: 13.24}
# The longest calls, in which the CPU was stolen or did something else, are no part of an average;
# of few calls all are.
TRIMMED, FEWEST_TRIMMED = 0.01, 20
PARTS = ("choosing", "changing", "no switch")


def arms(plan: Plan) -> list[Arm]:
    program = plan.build("sorters.c")
    copies = COPIES if plan.seconds >= 3 * len(COPIES) else FEW
    seconds = max(plan.seconds / len(copies) - 0.2, 1)
    array = (plan.machine.l2 or 1 << 20) // 2
    cpu = plan.machine.cpus - 1
    return [
        Arm(
            f"{n} copies",
            [program, str(n), f"{seconds:.2f}", str(cpu), str(array)],
            seconds + 0.2,
            {"copies": n, "cpu": cpu, "array": array},
            around=common.around,
        )
        for n in copies
    ]


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    if not any(common.log_of(run).events["SCHED_ENTER"].logged for run in runs):
        text = (
            "what a call of the scheduler costs: this kernel has no tracepoint at its beginning and"
            " end (Linux 6.15 has)"
        )
        return Answer(checks=[common.check_switches(runs)], cannot=[text])
    hertz = mhz()
    seen = [look(run) for run in runs]
    checks = [
        common.check_switches(runs),
        common.check_cpu_time(runs),
        common.check_lost(runs),
        *pairs(runs),
    ]
    return Answer([throughput(seen), costs(seen, hertz)], sentences(seen, hertz), checks)


def mhz() -> float:
    """The clock of the CPUs as they are sold, to turn times into cycles; 0 if it is not known."""
    found = re.search(r"^cpu MHz\s*: ([\d.]+)", Path("/proc/cpuinfo").read_text(), re.M)
    return float(found[1]) if found else 0.0


def look(run: Run) -> dict[str, Any]:
    """One arm: what was sorted, and the calls of the scheduler on that CPU."""
    said, log, cpu = common.reports(run, "sorter"), common.log_of(run), run.arm.parameters["cpu"]
    cursor = log.cursor()
    execute_whole(cursor, CALLS.read_text(), str(CALLS))
    found = cursor.execute(f"""
        WITH ranked AS (
            SELECT what, ns, row_number() OVER (PARTITION BY what ORDER BY ns) AS rank,
                   count(*) OVER (PARTITION BY what) AS calls
            FROM call_part WHERE cpu = {cpu}
        ), kept AS (
            SELECT *,
                   rank <= calls - if(calls >= {FEWEST_TRIMMED}, ceil({TRIMMED} * calls), 0) AS kept
            FROM ranked
        )
        SELECT what, count(*), sum(ns), quantile_disc(ns, 0.5), avg(ns) FILTER (kept),
               stddev_samp(ns) FILTER (kept)
        FROM kept GROUP BY what""").fetchall()
    part = {
        what: {"calls": calls, "total": float(total), "p50": p50, "mean": mean, "sd": sd}
        for what, calls, total, p50, mean, sd in found
    }
    # Both schemata log at sched_switch, one after the other: the time between is what one event
    # costs.
    event = common.one(
        cursor,
        """
        SELECT quantile_disc(abs(o.time - c.time), 0.5) FROM (
            SELECT * FROM SCHEDOUT WHERE time > (SELECT max(t) FROM (
                SELECT min(time) AS t FROM SCHEDOUT UNION ALL SELECT min(time) FROM CPU_SWITCH))
        ) AS o JOIN CPU_SWITCH AS c ON o.cpu = c.cpu AND o.next = c.next AND o.pid = c.prev
            AND c.time BETWEEN o.time - 20000 AND o.time + 20000""",
    )
    cursor.close()
    return {
        "copies": int(run.arm.parameters["copies"]),
        "compared": sum(r["count"] for r in said),
        "cpu_s": sum(r["cpu_ns"] for r in said) / 1e9,
        "parts": part,
        "seconds": log.seconds(),
        "event": event,
    }


def total(one: dict[str, Any], what: str) -> float:
    return float(one["parts"].get(what, {}).get("total", 0.0))


def time_in_scheduler(one: dict[str, Any]) -> float:
    """Of each second."""
    return float(sum(total(one, what) for what in PARTS) / one["seconds"])


def throughput(seen: list[dict[str, Any]]) -> Result:
    columns = [
        column("copies", "copies of the sorter"),
        column(
            "compared",
            "values compared by all of them; a sort always compares the same number",
            "count",
        ),
        column("per_cpu_s", "values compared in a second of their CPU time", "per_s"),
        column("against_one", "the same, in parts of what one copy does", "share"),
        column("scheduler", "time in the scheduler in a second, on that CPU", "ns", bar=True),
        column("of_one", "that time, in parts of what it is with one copy", "share"),
        column("paper_of_one", "the same in the paper, Linux 2.4.29", "share"),
    ]
    others = [
        column("time", "time in the scheduler in a second", "ns"),
        column("what", "part of its work"),
    ]
    base = seen[0]["compared"] / seen[0]["cpu_s"] if seen and seen[0]["cpu_s"] else 0
    alone = time_in_scheduler(seen[0]) if seen else 0
    rows, points = [], []
    for s in seen:
        rate = s["compared"] / s["cpu_s"] if s["cpu_s"] else 0
        spent, paper = time_in_scheduler(s), PAPER_MS.get(s["copies"])
        rows.append(
            [
                s["copies"],
                s["compared"],
                rate,
                rate / base if base else None,
                spent,
                spent / alone if alone else None,
                paper and paper / PAPER_MS[1],
            ]
        )
        points += [[total(s, what) / s["seconds"], s["copies"], what] for what in PARTS]
    picture = Picture("stacked", {"x": "time", "y": "copies", "colour": "what"})
    question = "Do several copies sort more than one, and what does the scheduler do meanwhile?"
    return common.figure(
        "throughput", "Sorting", question, columns, rows, picture, others=others, points=points
    )


def costs(seen: list[dict[str, Any]], hertz: float) -> Result:
    columns = [
        column("copies", "copies of the sorter"),
        column("what", "a call that switched, its parts, and one that did not switch"),
        column("calls", "calls of the scheduler on that CPU", "count"),
        column("mean", "average, without the longest 1 %", "ns"),
        column("sd", "standard deviation, without the longest 1 %", "ns"),
        column("p50", "half of the calls are shorter", "ns"),
        column("cycles", "the average in cycles of the CPU's nominal clock"),
    ]
    rows = [
        [
            s["copies"],
            what,
            p["calls"],
            p["mean"],
            p["sd"],
            p["p50"],
            round(p["mean"] * hertz / 1000) if hertz and p["mean"] else None,
        ]
        for s in seen
        for what, p in sorted(
            s["parts"].items(), key=lambda item: ("switch", *PARTS).index(item[0])
        )
    ]
    question = "What does a call of the scheduler cost?"
    notes = [f"The paper: a switch takes {PAPER_CYCLES} ± {PAPER_CYCLES_SD} cycles on Linux 2.6.9."]
    return result("costs", "Calls of the scheduler", question, columns, rows, notes=notes)


def sentences(seen: list[dict[str, Any]], hertz: float) -> list[str]:
    said = []
    switch = max(
        (s["parts"]["switch"] for s in seen if "switch" in s["parts"]),
        key=lambda p: p["calls"],
        default=None,
    )
    if switch:
        said.append(cost_of(switch, hertz))
        medians = [s["parts"]["switch"]["p50"] for s in seen if "switch" in s["parts"]]
        if len(medians) > 1:
            said.append(
                "That is of the arm with most switches; the medians of all arms are"
                f" {duration(min(medians))} to {duration(max(medians))}."
            )
    events = [s["event"] for s in seen if s["event"] is not None]
    if events:
        said.append(
            "Each event that is logged in between is a part of that: about"
            f" {duration(common.median(events))} here."
        )
    if len(seen) > 1 and seen[0]["copies"] == 1 and all(s["cpu_s"] for s in seen):
        said += against_one(seen)
    return said


def cost_of(switch: dict[str, Any], hertz: float) -> str:
    def cycles(ns: float) -> str:
        return f"{ns * hertz / 1000:.0f}"

    text = f"Half of the switches take at most {duration(switch['p50'])} in the scheduler"
    if hertz:
        text += f", {cycles(switch['p50'])} cycles at {hertz:.0f} MHz"
    if switch["sd"] is not None and switch["calls"] >= FEWEST_TRIMMED:
        text += f"; on average {duration(switch['mean'])} ± {duration(switch['sd'])}"
        if hertz:
            text += f", {cycles(switch['mean'])} ± {cycles(switch['sd'])} cycles"
        text += ", without the longest 1 %"
    return f"{text}. In the paper, {PAPER_CYCLES} ± {PAPER_CYCLES_SD} cycles."


def against_one(seen: list[dict[str, Any]]) -> list[str]:
    """What several copies do, and what the scheduler does then, beside one copy."""
    alone, *several = seen
    copies = (
        " and ".join(str(s["copies"]) for s in several)
        if len(several) < 3
        else (f"{several[0]['copies']} to {several[-1]['copies']}")
    )
    rates = [s["compared"] / s["cpu_s"] for s in seen]
    changes = sorted(100 * (rate / rates[0] - 1) for rate in rates[1:])
    changed = [
        f"{abs(change):.1f} % {'more' if change > 0 else 'less'}"
        for change in (changes[0], changes[-1])
    ]
    change = changed[0] if changed[0] == changed[1] else f"between {changed[0]} and {changed[1]}"
    best = seen[rates.index(max(rates))]["copies"]
    most = "one copy sorts most" if best == 1 else f"{best} copies sort most"
    times = [duration(ns) for ns in sorted(time_in_scheduler(s) for s in several)]
    between = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    return [
        (
            f"In a second of CPU time, {copies} copies sort {change} than one;"
            f" {most}. In the paper 8 did, 0.3 % more than one."
        ),
        (
            f"The scheduler has {duration(time_in_scheduler(alone))} of each second with one"
            f" copy, and {between} with {copies}. In the paper it had 44 % of the time with 8"
            " that it had with one: a loop over all threads, which is gone."
        ),
    ]


def pairs(runs: list[Run]) -> list[Check]:
    """Calls begin and end, and a switch is a switch in both schemata."""
    entered = left = switched = changed = out = seen_out = 0
    for run in runs:
        cursor = common.log_of(run).cursor()
        query = """SELECT (SELECT count(*) FROM SCHED_ENTER), (SELECT count(*) FROM SCHED_LEAVE),
            (SELECT count(*) FROM SCHED_LEAVE WHERE switched <> 0),
            (SELECT count(*) FROM CPU_SWITCH)"""
        counts = cursor.execute(query).fetchone() or (0, 0, 0, 0)
        entered, left, switched, changed = (
            a + b for a, b in zip((entered, left, switched, changed), counts, strict=True)
        )
        for r in common.reports(run, "sorter"):
            out += common.one(cursor, "SELECT count(*) FROM SCHEDOUT WHERE pid = $1", r["tid"])
            seen_out += common.one(
                cursor, "SELECT count(*) FROM CPU_SWITCH WHERE prev = $1", r["tid"]
            )
        cursor.close()
    allowed = 0.001 * entered + 20 * len(runs)
    return [
        Check(
            "calls",
            abs(entered - left) <= allowed and abs(switched - changed) <= allowed,
            f"{entered:,} calls began and {left:,} ended; {switched:,} of them say that they"
            f" switched, {changed:,} switches were logged (may differ by {allowed:,.0f}: probes are"
            " attached one after another)",
        ),
        Check(
            "two schemata",
            out == seen_out,
            f"sorters left the CPU {out:,} times by scheduler, {seen_out:,} by switching",
        ),
    ]


STUDY = Study(
    name="switch-cost",
    title="What a switch costs",
    question="What does a context switch cost, and does it cost more with more programs?",
    paper="Figure 7; section 9.1",
    found=(
        "A switch took 3608 ± 1630 cycles. On Linux 2.4.29, eight copies of a sorter did 0.3 % more"
        " than one: with one the scheduler went through all threads at nearly every call, 30.2 ms"
        " in all, and with eight seldom, 13.24 ms."
    ),
    schemata=("scheduler", "switching"),
    arms=arms,
    analyse=analyse,
    seconds=60,
    least_seconds=11,
)
