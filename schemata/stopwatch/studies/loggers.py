# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What one event costs, by logger: the paper's Table 1."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klogger.analysis import Column, Picture
from klogger.durations import duration
from klogger.executor import Rows
from klogger_lab.study.model import Answer, Check, Plan, Run, Study, result

from ._arms import BLOCKS, PAIRS, TRACED, arms, no_point

# With fewer, the bootstrap has too little to choose from.
ROUNDS_FOR_INTERVAL = 4
RESAMPLES = 1000
NO_COUNTERS = "no counters here"

# How each logger is measured: the arm, and the kind of block. Of those that are attached to the
# tracepoint, the cost is what a traced call takes more than the reference, less what it takes more
# when nothing is attached.
KERNEL = {"klogger, in the kernel": "klogger", "ftrace event": "ftrace", "perf record": "perf"}
PROGRAM = {
    "klogger, in a program": "klogger",
    "snprintf into memory": "memory",
    "write to trace_marker": "marker",
}
PAPER = (
    ("KLogger", 321.0, 35.66, 1.0, "", "6.55 ± 0.56"),
    ("LTT", 1844.0, 1090.24, 5.7, "", "69.0 ± 25.9"),
    ("printk", 4250.0, 40.80, 13.2, "", "227 ± 2.7"),
    ("hardware trap", 392.0, 1.95, 1.2, "", "N/A"),
)
COLUMNS = (
    Column(
        "logger", "", False, "logger; those of 2007 are the paper's, on a Pentium IV with 2.8 GHz"
    ),
    Column(
        "cycles",
        "",
        False,
        "for one event: median of the blocks' trimmed means, and single events' deviation",
    ),
    Column("time", "ns", False, "the same as time"),
    Column("ratio", "", False, "times the cost of klogger in the kernel; in 2007, times KLogger's"),
    Column("interval", "", False, "in which the ratio is with 95 % confidence"),
    Column("misses", "", False, "L1 cache misses; or why there is no number"),
)


@dataclass
class Samples:
    """Of one logger, in cycles: in each round, for each block, the cost of an event; and deviations
    of single ones.
    """

    rounds: list[list[float]] = field(default_factory=list)
    deviations: list[float] = field(default_factory=list)

    def cost(self, rounds: Sequence[Sequence[float]] | None = None) -> float:
        return statistics.median(value for one in rounds or self.rounds for value in one)

    def sd(self) -> float:
        return statistics.median(self.deviations)


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    by_arm: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        said = json.loads(run.output[run.output.index("{") :]) if run.log else run.oracle
        by_arm.setdefault(run.arm.name, []).append(said)
    beside = [run.oracle for run in runs if run.arm.name == "in a program" and run.oracle]
    found = of_programs(by_arm.get("in a program", []), beside) | of_kernel(by_arm)
    hz = statistics.median(said["hz"] for many in by_arm.values() for said in many)
    answer = Answer(checks=checks(by_arm, runs), cannot=missing(found))
    answer.results.append(table(found, hz, len(by_arm.get("in a program", []))))
    answer.sentences += sentences(found, hz)
    return answer


def usual(runs: Iterable[Mapping[str, Any]], kind: str) -> float:
    """What a block of this kind usually has as its mean, of all runs."""
    means: list[float] = [block[0] for said in runs for block in said["blocks"][kind]]
    return statistics.median(means)


def paired(
    said: Mapping[str, Any], kind: str, less: str, unit: float
) -> tuple[list[float], list[float]]:
    """For each block: how much longer `kind` took than `less`, in cycles; and the deviation of a
    single one.

    Who shares the CPU (a hyperthread, another virtual machine) slows both alike. `unit` is what
    `less` usually takes.
    """
    pairs = list(zip(said["blocks"][kind], said["blocks"][less], strict=True))
    return [(a[0] / b[0] - 1) * unit for a, b in pairs], [
        (a[1] ** 2 + b[1] ** 2) ** 0.5 for a, b in pairs
    ]


def of_programs(
    runs: Sequence[Mapping[str, Any]], beside: Sequence[Mapping[str, Any]]
) -> dict[str, Samples]:
    found: dict[str, Samples] = {}
    unit = usual([*runs, *beside], "empty")
    for name, kind in PROGRAM.items():
        for said in beside if kind == "marker" else runs:
            costs, deviations = paired(said, kind, "empty", unit)
            one = found.setdefault(name, Samples())
            one.rounds.append(costs)
            one.deviations += deviations
    return found


def of_kernel(by_arm: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Samples]:
    """The two calls differ a little by themselves, which the arm without a logger tells."""
    runs = {arm: by_arm.get(arm, []) for arm in ("nothing", *KERNEL.values())}
    if not runs["nothing"]:
        return {}
    unit = usual((said for many in runs.values() for said in many), "reference")
    nothing = [paired(said, "traced", "reference", unit)[0] for said in runs["nothing"]]
    base = statistics.median(value for one in nothing for value in one)
    found = {}
    for name, arm in KERNEL.items():
        one = Samples()
        for said in runs[arm]:
            costs, deviations = paired(said, "traced", "reference", unit)
            one.rounds.append([cost - base for cost in costs])
            one.deviations += deviations
        if one.rounds:
            found[name] = one
    return found


def interval(one: Samples, unit: Samples) -> str:
    """95 % of the ratios that other rounds would have had: the bootstrap, by whole rounds, the same
    for both.
    """
    rounds = list(zip(one.rounds, unit.rounds, strict=False))
    if len(rounds) < ROUNDS_FOR_INTERVAL:
        return "too few rounds"
    ratios = []
    for _ in range(RESAMPLES):
        chosen = random.choices(rounds, k=len(rounds))
        below = unit.cost([round[1] for round in chosen])
        if below > 0:
            ratios.append(one.cost([round[0] for round in chosen]) / below)
    ratios.sort()
    if not ratios:
        return ""
    return f"{ratios[int(len(ratios) * 0.025)]:.1f} to {ratios[int(len(ratios) * 0.975)]:.1f}"


def table(found: Mapping[str, Samples], hz: float, rounds: int) -> Any:
    unit = found.get("klogger, in the kernel")
    rows: list[list[Any]] = []
    for name, one in sorted(found.items(), key=lambda item: item[1].cost()):
        cost = one.cost()
        ratio, text = None, ""
        if unit is not None and unit.cost() > 0:
            ratio = round(cost / unit.cost(), 2)
            text = "" if one is unit else interval(one, unit)
        rows.append([name, spread(cost, one.sd()), cost / hz * 1e9, ratio, text, NO_COUNTERS])
    rows += [[name, "", None, None, "", why] for name, why in absent(found).items()]
    rows += [
        [f"{name} (2007)", spread(cost, sd), cost / 2.8, *more] for name, cost, sd, *more in PAPER
    ]
    shown = [[row[0], row[3]] for row in rows if row[3]]
    return result(
        "loggers",
        "Table 1: cost of one event",
        "What does one event of two integers cost the one who logs it?",
        COLUMNS,
        rows,
        Picture("bars", {"x": "ratio", "y": "logger"}),
        Rows(["logger", "ratio"], shown),
        notes=[
            (
                f"{rounds} rounds. In each, every logger has {BLOCKS} blocks of {PAIRS} events,"
                " each without its longest."
            ),
            (
                "A block counts as much less as its reference is slower than usual: who shares the"
                " CPU slows both."
            ),
            (
                "In a program, the empty pair is subtracted. In the kernel: the call that hits the"
                " tracepoint, less one that does not, less the same without a logger. Loggers were"
                " attached one at a time."
            ),
        ],
    )


def spread(cost: float, sd: float) -> str:
    return f"{cost:,.0f} ± {sd:,.0f}"


def absent(found: Mapping[str, Samples]) -> dict[str, str]:
    """Rivals without a number, and why."""
    missing = [name for name in KERNEL if name not in found]
    rows = {name: no_point() or "perf is not installed" for name in missing}
    return rows | {
        "printk": "would fill the kernel's log",
        "kprobe (a trap)": (
            "not measured here"
            if Path("/sys/bus/event_source/devices/kprobe").exists()
            else "this kernel has no kprobes"
        ),
        "LTTng": "needs its modules in the kernel",
    }


def missing(found: Mapping[str, Samples]) -> list[str]:
    lines = [f"{name}: {why}." for name, why in absent(found).items()]
    return [
        *lines,
        "L1 cache misses (the paper's second column): klogger reads no hardware counters.",
    ]


def sentences(found: Mapping[str, Samples], hz: float) -> list[str]:
    unit = found.get("klogger, in the kernel")
    lines = []
    if unit is not None and unit.cost() > 0:
        cost = unit.cost()
        lines.append(
            f"One event of klogger costs {cost:.0f} cycles ({duration(cost / hz * 1e9)}); in 2007"
            " it cost 321."
        )
        for name in ("ftrace event", "perf record"):
            if name in found:
                ratio = found[name].cost() / cost
                lines.append(
                    f"An event of {name.split()[0]} costs {ratio:.1f} times as much"
                    f" ({interval(found[name], unit)})."
                )
        lines.append("In 2007, LTT's cost 5.7 times as much as KLogger's, and printk's 13.2 times.")
    in_program = found.get("klogger, in a program")
    if in_program is not None and unit is not None and in_program.cost() > 0:
        text = found["snprintf into memory"].cost() / in_program.cost()
        lines.append(
            f"In a program, without a tracepoint around it, an event costs {in_program.cost():.0f}"
            f" cycles; a line of text in memory {text:.1f} times as much."
        )
    return lines


def checks(by_arm: Mapping[str, Sequence[Mapping[str, Any]]], runs: Sequence[Run]) -> list[Check]:
    """Each logger has logged what the program did: else its cost would be that of not logging."""
    found = []
    for arm, event in (("klogger", "PENDING"), ("in a program", "PENDING_USER")):
        logs = [run.log for run in runs if run.arm.name == arm and run.log]
        logged = sum(log.events[event].logged for log in logs)
        lost = sum(log.events[event].lost for log in logs)
        text = f"{logged:,} logged and {lost:,} lost of {TRACED * len(logs):,}"
        if logs:
            found.append(
                Check(f"events of the arm '{arm}'", logged + lost == TRACED * len(logs), text)
            )
    for arm in ("ftrace", "perf"):
        events = [said.get("events") for said in by_arm.get(arm, [])]
        known = [count for count in events if count is not None]
        lost = any(said.get("lost") for said in by_arm.get(arm, []))
        if known:
            text = (
                f"{sum(known):,} logged of {TRACED * len(known):,}{', some lost' if lost else ''}"
            )
            found.append(
                Check(f"events of the arm '{arm}'", lost or sum(known) == TRACED * len(known), text)
            )
    return found


STUDY = Study(
    name="loggers",
    title="What one event costs, by logger",
    question="What does one event of two integers cost, with klogger and with others?",
    paper="Table 1",
    found=(
        "KLogger took 321 cycles for an event, LTT 5.7 and printk 13.2 times as much; caches"
        " suffered alike."
    ),
    schemata=(),
    arms=arms,
    analyse=analyse,
    seconds=60,
    least_seconds=15,
)
