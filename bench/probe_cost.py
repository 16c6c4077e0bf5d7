# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a hit costs that logs two ints: klogger, the floor, and others at the same place; one CPU,
and all at once.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bpf import floor
from measure import NOT_HERE, cell, goal, quotient, rounds_of
from rivals import LARGE_KB, RIVALS, why_no_lttng
from speed import Ahead, Speed, added, at_once

from klogger_lab.bench import events, health, stats
from klogger_lab.bench.cost import one_pass
from klogger_lab.bench.engines import BPF
from klogger_lab.bench.events import EMPTY, REFERENCE, TWO_INTS
from klogger_lab.bench.loop import Bench, Loop, prepare

KLOGGER, FLOOR_NAME = "klogger, two ints", "floor: program + clock"
CLOCK_READ = "klogger, clock read"
# What klogger's probe does, step by step; all of them test whether the thread is in scope.
KLOGGERS = {
    "klogger, empty probe": EMPTY,
    "klogger, disabled": events.OFF,
    CLOCK_READ: events.CLOCK,
    "klogger, clock read and store": events.STORE,
    KLOGGER: TWO_INTS.name,
}
# The event's cost as a multiple of another's, at most.
GOALS = {
    FLOOR_NAME: 1.15,
    "ftrace event": 0.55,
    "perf record": 0.15,
    "bpftrace": 0.35,
    "BPF ring buffer": 0.9,
}
# Those that are measured on all CPUs at once, too.
SHARED = ("ftrace event", "BPF ring buffer")
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
        **{
            n: lambda pids, rival=rival: rival.attach(tools, pids, LARGE_KB)
            for n, rival in RIVALS.items()
        },
    }


def blocks(bench: Bench, loops: Sequence[Loop]) -> list[stats.Blocks]:
    arms = {arm: events.FLOOR.index(arm) for arm in ARMS}
    return at_once(loops, bench.hits.block, bench.hits.rounds, arms)


def other_hit(bench: Bench, loops: Sequence[Loop], attach: Callable, speed: Speed) -> list[float]:
    """The same loops, with something else attached to what they hit: what it adds, by loop, in
    references.
    """
    before = blocks(bench, loops)
    with attach([loop.pid for loop in loops]):
        during = blocks(bench, loops)
    after = blocks(bench, loops)
    speed.note(*before, *during, *after)
    return [added(stats.Pass(*one), EMPTY) for one in zip(during, before, after, strict=True)]


def klogger_hit(bench: Bench, loop: Loop, log: Path, speed: Speed) -> dict[str, float]:
    taken = one_pass(bench, [TWO_INTS], loop, [], log)
    count = taken.counts[TWO_INTS.name]
    if count.logged != count.hits:
        raise RuntimeError(f"of {count.hits:,} hits {count.logged:,} were logged")
    speed.note(taken.blocks.before, taken.blocks.during, taken.blocks.after)
    return {name: added(taken.blocks, arm) for name, arm in KLOGGERS.items()}


def probe_hit(tools) -> list[str]:
    """The cost of a hit that logs two ints, over that of a program which only reads the clock."""
    folder = tools.folder / "hit"
    folder.mkdir()
    bench = prepare(BPF.name, BPF.hits, [TWO_INTS], folder)
    before, speed = health.ticks(tools.cpu), Speed()
    with Ahead(bench, tools.cpu) as loop:
        arms = {KLOGGER: lambda: klogger_hit(bench, loop, folder / "hit.klog", speed)}
        for name, attach in others(tools).items():
            arms[name] = lambda name=name, attach=attach: {
                name: other_hit(bench, [loop], attach, speed)[0]
            }
        results, missing = rounds_of(arms, tools.rounds)
        clocks = [loop.rounds(bench.hits.rounds, [0])]
    results = speed.in_ns(results)
    fault = health.fault(
        clocks, bench.hits.block * 100, health.between(before, health.ticks(tools.cpu))
    )
    missing = {**missing, "LTTng": why_no_lttng()}
    names = ["empty program", FLOOR_NAME, *KLOGGERS, *RIVALS]
    tools.keep("hit", {name: results[name] for name in names if name in results and not fault})
    rows = [
        *(
            row(name, results.get(name), results.get(FLOOR_NAME), fault)
            for name in names
            if name not in missing
        ),
        *(f"| {name} | {NOT_HERE}: {why} | |" for name, why in missing.items()),
    ]
    goals = [
        goal(f"klogger / {n}", results.get(KLOGGER), results.get(n), most, fault)
        for n, most in GOALS.items()
    ]
    medians = {name: stats.spread(values).median for name, values in results.items()}
    return [
        *head_of_hits(tools.place, speed),
        *rows,
        "",
        *goals,
        *([] if fault else bounds(medians)),
        "",
        *(
            f"- {rival.name}: {rival.how.replace('PLACE', tools.place)}"
            for rival in RIVALS.values()
        ),
    ]


def head_of_hits(place: str, speed: Speed) -> list[str]:
    return [
        "## One probe hit",
        "",
        (
            f"`{place}`, hit by one process on one CPU. Added to a hit without a program, in"
            " ns of that"
        ),
        (
            "process's CPU time, as `klogger bench` measures it (docs/bench.md); the others are"
            " attached to the same"
        ),
        (
            f"loop, with readers on the other CPUs, and {LARGE_KB // 1024} MiB of buffer for each"
            " CPU. Each number is"
        ),
        (
            "a multiple of what a system call without a tracepoint takes in the same moment, so"
            " that the machine's"
        ),
        (
            f"changes of speed matter less; in ns, of its median, {speed.words()}. What is left of"
            " them: when others use"
        ),
        "the caches, tracers that touch more memory lose more.",
        "",
        "| | ns | times the floor |",
        "|---|---|---|",
    ]


def bounds(ns: dict[str, float]) -> list[str]:
    """Why a goal that is missed is missed: what no event with a time can do without."""
    needed = (FLOOR_NAME, KLOGGER, CLOCK_READ)
    missed = [
        n
        for n, most in GOALS.items()
        if n in ns and n != FLOOR_NAME and ns.get(KLOGGER, 0) > most * ns[n]
    ]
    if any(name not in ns for name in needed):
        return []
    event, floor_ns = ns[KLOGGER] - ns[CLOCK_READ], ns[FLOOR_NAME]
    lines = [
        f"- what bounds it: of klogger's {ns[KLOGGER]:.1f} ns, {ns[CLOCK_READ]:.1f} are the probe"
        " and the clock, which"
    ]
    lines += [
        f"  the floor has too ({floor_ns:.1f}); {event:.1f} are the event: finding the ring, taking"
        " space, storing."
    ]
    lines += [
        f"  The floor alone is {floor_ns / ns[name]:.2f} of {name}, to be at most {GOALS[name]}."
        for name in missed
    ]
    return lines


def row(name: str, values: list[float] | None, unit: list[float] | None, fault: str) -> str:
    if fault or not values or not unit:
        return f"| {name} | {NOT_HERE}: {fault or 'nothing was measured'} | |"
    base = stats.spread(unit).median
    text = cell(values)
    return (
        f"| {name} | {text} |"
        f" {'' if text.startswith(NOT_HERE) else cell([v / base for v in values], 2, 0.1)} |"
    )


def all_cpus(tools) -> list[str]:
    """What others' events cost on each CPU while all of them log, against one that logs alone."""
    folder = tools.folder / "all"
    folder.mkdir()
    bench, speed = prepare(BPF.name, BPF.hits, [TWO_INTS], folder), Speed()
    with ExitStack() as stack:
        loops = [stack.enter_context(Ahead(bench, cpu)) for cpu in range(os.cpu_count())]
        arms = {
            name: lambda n=name: pair(tools, n, bench, loops, speed)
            for name in (FLOOR_NAME, *SHARED)
        }
        results, missing = rounds_of(arms, tools.rounds)
    results = speed.in_ns(results)
    lines = [
        "## All CPUs at once: others",
        "",
        (
            f"{len(loops)} CPUs that hit at once, against one of them alone, by turns: ns more than"
            " with nothing"
        ),
        (
            f"attached, as multiples of a call without a tracepoint of {speed.words()}. The mean of"
            " the CPUs."
        ),
        "",
        "| | one CPU | all at once | ratio |",
        "|---|---|---|---|",
    ]
    for name in arms:
        if name in missing:
            lines.append(f"| {name} | {NOT_HERE}: {missing[name]} | | |")
            continue
        one, every = (results[f"{name}, {which}"] for which in ("one", "all"))
        found = quotient(every, one, paired=True)
        lines.append(
            f"| {name} | {cell(one)} | {cell(every)} | {f'{found:.2f}' if found else NOT_HERE} |"
        )
    return lines


def pair(tools, name: str, bench: Bench, loops: Sequence[Loop], speed: Speed) -> dict[str, float]:
    attach = others(tools)[name]
    one, every = (other_hit(bench, some, attach, speed) for some in (loops[-1:], loops))
    return {f"{name}, one": one[0], f"{name}, all": sum(every) / len(every)}
