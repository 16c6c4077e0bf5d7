# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a hit costs that logs two ints: klogger, the floor, and others at the same place; one CPU, and all at once."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bpf import floor
from measure import NOT_HERE, cell, goal, rounds_of
from rivals import LARGE_KB, RIVALS, why_no_lttng

from klogger.bench import events, health, stats
from klogger.bench.cost import one_pass
from klogger.bench.events import EMPTY, REFERENCE, TWO_INTS
from klogger.bench.loop import ENGINES, Bench, Loop, info, prepare, recording

KLOGGER, FLOOR_NAME = "klogger, two ints", "floor: program + clock"
# The event's cost as a multiple of another's, at most.
GOALS = {FLOOR_NAME: 1.15, "ftrace event": 0.55, "perf record": 0.15, "bpftrace": 0.35, "BPF ring buffer": 0.9}
# All CPUs at once against one.
ALL_GOAL = 1.1
ARMS = (REFERENCE, EMPTY)


@contextmanager
def of_floor(tools, clock: bool):
    with floor(tools.place, clock, tools.clang):
        yield


def others(tools) -> dict[str, Callable]:
    """By name: what attaches it to loops."""
    return {
        "empty program": lambda _: of_floor(tools, False),
        FLOOR_NAME: lambda _: of_floor(tools, True),
        **{n: lambda pids, rival=rival: rival.attach(tools, pids, LARGE_KB) for n, rival in RIVALS.items()},
    }


def blocks(bench: Bench, loops: Sequence[Loop]) -> list[stats.Blocks]:
    """By loop; all of them at once."""
    for loop in loops:
        loop.ask("rounds", bench.engine.rounds, *(events.FLOOR.index(arm) for arm in ARMS))
    return [dict(zip(ARMS, loop.answer()["blocks"], strict=True)) for loop in loops]


def other_hit(bench: Bench, loops: Sequence[Loop], attach: Callable) -> list[float]:
    """The same loops, with something else attached to what they hit: what it adds, by loop."""
    before = blocks(bench, loops)
    with attach([loop.pid for loop in loops]):
        during = blocks(bench, loops)
    passes = map(stats.Pass, during, before, blocks(bench, loops))
    return [stats.added(one, EMPTY, EMPTY, REFERENCE) for one in passes]


def klogger_hit(bench: Bench, loop: Loop, log: Path) -> dict[str, float]:
    taken = one_pass(bench, [TWO_INTS], loop, [], log)
    count = taken.counts[TWO_INTS.name]
    if count.logged != count.hits:
        raise RuntimeError(f"of {count.hits:,} hits {count.logged:,} were logged")
    names = {KLOGGER: TWO_INTS.name, "klogger, disabled": events.OFF}
    return {name: stats.added(taken.blocks, arm, EMPTY, REFERENCE) for name, arm in names.items()}


def probe_hit(tools) -> list[str]:
    """The cost of a hit that logs two ints, over that of a program which only reads the clock."""
    folder = tools.folder / "hit"
    folder.mkdir()
    bench = prepare(ENGINES["bpf"], [TWO_INTS], folder)
    before = health.ticks(tools.cpu)
    with Loop(bench, tools.cpu) as loop:
        arms = {KLOGGER: lambda: klogger_hit(bench, loop, folder / "hit.klog")}
        for name, attach in others(tools).items():
            arms[name] = lambda name=name, attach=attach: {name: other_hit(bench, [loop], attach)[0]}
        results, missing = rounds_of(arms, tools.rounds)
        clocks = [loop.rounds(bench.engine.rounds, [0])]
    fault = health.fault(clocks, bench.engine.block * 100, health.between(before, health.ticks(tools.cpu)))
    missing = {**missing, "LTTng": why_no_lttng()}
    names = ["empty program", FLOOR_NAME, "klogger, disabled", KLOGGER, *RIVALS]
    tools.keep("hit", {name: results[name] for name in names if name in results and not fault})
    return [
        "## One probe hit",
        "",
        f"`{tools.place}`, hit by one process on one CPU. Added to a hit without a program, in ns of that process's CPU",
        "time, as `klogger bench` measures it (docs/bench.md); the others are attached to the same loop, with readers on",
        f"the other CPUs, and {LARGE_KB // 1024} MiB of buffer for each CPU.",
        "",
        "| | ns | times the floor |",
        "|---|---|---|",
        *(row(name, results.get(name), results.get(FLOOR_NAME), fault) for name in names if name not in missing),
        *(f"| {name} | {NOT_HERE}: {why} | |" for name, why in missing.items()),
        "",
        *(goal(f"klogger / {n}", results.get(KLOGGER), results.get(n), most, fault) for n, most in GOALS.items()),
        "",
        *(f"- {rival.name}: {rival.how.replace('PLACE', tools.place)}" for rival in RIVALS.values()),
    ]


def row(name: str, values: list[float] | None, unit: list[float] | None, fault: str) -> str:
    if fault or not values or not unit:
        return f"| {name} | {NOT_HERE}: {fault or 'nothing was measured'} | |"
    base = stats.spread(unit).median
    text = cell(values)
    return f"| {name} | {text} | {'' if text.startswith(NOT_HERE) else cell([v / base for v in values], 2, 0.1)} |"


def klogger_all(bench: Bench, loops: Sequence[Loop], log: Path) -> list[float]:
    """What the event takes more than the empty probe, by loop."""
    arms = (EMPTY, TWO_INTS.name)
    at = [events.FLOOR.index(EMPTY), len(events.FLOOR)]
    with recording(bench, [loop.pid for loop in loops], log, []):
        for loop in loops:
            loop.ask("rounds", bench.engine.rounds, *at)
        said = [dict(zip(arms, loop.answer()["blocks"], strict=True)) for loop in loops]
    (count,) = [e for e in info(log)["events"] if e["name"] == TWO_INTS.name]
    log.unlink()
    if count["lost"]:
        raise RuntimeError(f"{count['lost']:,} events were lost")
    return [stats.over(one, TWO_INTS.name, EMPTY) for one in said]


def all_cpus(tools) -> list[str]:
    """What an event costs on each CPU while all of them log, against one that logs alone."""
    folder = tools.folder / "all"
    folder.mkdir()
    bench = prepare(ENGINES["bpf"], [TWO_INTS], folder)
    shared = {n: others(tools)[n] for n in ("ftrace event", "BPF ring buffer")}
    with ExitStack() as stack:
        loops = [stack.enter_context(Loop(bench, cpu)) for cpu in range(os.cpu_count())]
        arms = {KLOGGER: lambda: pair(KLOGGER, loops, lambda some: klogger_all(bench, some, folder / "all.klog"))}
        for name, attach in shared.items():
            arms[name] = lambda n=name, a=attach: pair(n, loops, lambda some: other_hit(bench, some, a))
        results, missing = rounds_of(arms, tools.rounds)
    lines = [
        "## All CPUs at once",
        "",
        f"The same event on {len(loops)} CPUs at once, against one of them alone, by turns: ns more than an empty probe",
        "for klogger, and than nothing attached for the others. The mean of the CPUs.",
        "",
        "| | one CPU | all at once |",
        "|---|---|---|",
    ]
    for name in arms:
        cells = [cell(results[key]) if key in results else NOT_HERE for key in (f"{name}, one", f"{name}, all")]
        lines.append(f"| {name} | {missing[name]} | |" if name in missing else f"| {name} | {' | '.join(cells)} |")
    of = [results.get(f"{KLOGGER}, {which}") for which in ("all", "one")]
    return [*lines, "", goal("klogger, all CPUs / one CPU", *of, ALL_GOAL, paired=True)]


def pair(name: str, loops: Sequence[Loop], measure: Callable[[Sequence[Loop]], list[float]]) -> dict[str, float]:
    one, every = measure(loops[-1:]), measure(loops)
    return {f"{name}, one": one[0], f"{name}, all": sum(every) / len(every)}
