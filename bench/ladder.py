# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What each field adds: klogger's events of one size after the other, warm and cold, on one CPU and
on all at once.
"""

import dataclasses
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from measure import NOT_HERE, cell, goal, quotient, rounds_of, run, trimmed
from speed import Ahead, Speed, at_once, relative

from klogger_lab.bench import events
from klogger_lab.bench.engines import BPF
from klogger_lab.bench.events import CLOCK, EMPTY, FLOOR, OFF, REFERENCE, Event
from klogger_lab.bench.loop import Bench, Loop, info, prepare, recording, show

HERE = Path(__file__).resolve().parent
# All CPUs at once against one.
ALL_GOAL = 1.1
RUNGS = {
    EMPTY: "a probe that does nothing",
    CLOCK: "a probe that reads the clock",
    OFF: "an event that is off",
    "ONE_INT": "1 int",
    "TWO_INTS": "2 ints",
    "EIGHT_INTS": "8 ints",
    "STRING_16": "a text of 16 bytes, with 7 letters",
    "WITH_STACK": "an int and a stack",
}
WARM_HITS, COLD_HITS = 5000, 300
# What is written before a cold hit, as a multiple of the second-level cache.
COLD_TIMES = 4
L2_KB_UNKNOWN = 2048


class Stack(Event):
    """The generated schema logs constants; a stack needs a call."""

    def call(self) -> str:
        return f"klogger({self.name}, number, klogger_stack())"


def rungs() -> list[Event]:
    found = events.of_schema(show(str(HERE / "ladder.klogger")))
    return [Stack(**vars(e)) if e.name == "WITH_STACK" else e for e in found]


def arms_of(all_events: Sequence[Event]) -> dict[str, int]:
    """The arms of the ladder, with their numbers in a loop."""
    names = [*FLOOR, *(e.name for e in all_events)]
    return {name: names.index(name) for name in RUNGS}


def over_empty(
    bench: Bench, loops: Sequence[Loop], arms: dict[str, int], log: Path, speed: Speed
) -> dict[str, float]:
    """What each arm takes more than the empty probe, in references, on all loops at once; the mean
    of the loops.
    """
    numbers = {REFERENCE: FLOOR.index(REFERENCE), **arms}
    with recording(bench, [loop.pid for loop in loops], log, []):
        said = at_once(loops, bench.hits.block, bench.hits.rounds, numbers)
    check_lost(log)
    speed.note(*said)
    costs = {arm: [relative(one, arm, EMPTY) for one in said] for arm in arms}
    return {arm: sum(values) / len(values) for arm, values in costs.items()}


def check_lost(log: Path) -> None:
    lost = {e["name"]: e["lost"] for e in info(log)["events"] if e["lost"]}
    log.unlink()
    if lost:
        raise RuntimeError(
            ", ".join(f"{count:,} of {name} were lost" for name, count in lost.items())
        )


def ladder(tools) -> list[str]:
    """In nanoseconds, by blocks that take turns."""
    folder = tools.folder / "ladder"
    folder.mkdir()
    bench = prepare(BPF.name, BPF.hits, rungs(), folder)
    arms, log, speed = arms_of(rungs()), folder / "ladder.klog", Speed()
    with ExitStack() as stack:
        loops = [stack.enter_context(Ahead(bench, cpu)) for cpu in range(os.cpu_count())]

        def of(some: Sequence[Loop], which: str) -> dict[str, float]:
            return {
                f"{arm}, {which}": ns
                for arm, ns in over_empty(bench, some, arms, log, speed).items()
            }

        both = {"both": lambda: of([loops[tools.cpu]], "one") | of(loops, "all")}
        results, missing = rounds_of(both, tools.rounds)
    if missing:
        raise RuntimeError(missing["both"])
    results = speed.in_ns(results)
    lines = [
        "## The ladder",
        "",
        (
            f"Events of one size after the other (`bench/ladder.klogger`) at `{tools.place}`, in ns"
            " more than an empty"
        ),
        (
            f"probe; {len(loops)} CPUs at once against one of them alone, in recordings that take"
            " turns. As multiples"
        ),
        f"of a call without a tracepoint of {speed.words()}.",
        "",
        "| | one CPU | all at once |",
        "|---|---|---|",
    ]
    for arm, words in RUNGS.items():
        if arm != EMPTY:
            cells = " | ".join(cell(results[f"{arm}, {which}"]) for which in ("one", "all"))
            lines.append(f"| {words} | {cells} |")
    lines += [f"| an int and a hardware counter | {NOT_HERE}: {no_counters()} | |", ""]
    of_two, of_clock = (
        [results[f"{arm}, {which}"] for which in ("all", "one")] for arm in ("TWO_INTS", CLOCK)
    )
    clock = quotient(*of_clock, paired=True)
    return [
        *lines,
        goal("2 ints, all CPUs / one CPU", *of_two, ALL_GOAL, paired=True),
        (
            "- the same of a probe that only reads the clock:"
            f" {f'{clock:.2f}' if clock else NOT_HERE}."
        ),
    ]


def no_counters() -> str:
    """Why there is no such rung, and no cache misses."""
    here = (
        "" if Path("/sys/bus/event_source/devices/cpu").exists() else ", and this machine has none"
    )
    return f"klogger reads no hardware counters{here}"


def l2_kb() -> int:
    """Of this machine's second-level cache."""
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if (index / "level").read_text().strip() == "2":
            return int((index / "size").read_text().strip().removesuffix("K"))
    return L2_KB_UNKNOWN


def single_bench(bench: Bench, folder: Path) -> Bench:
    program = folder / "single"
    run(["gcc", "-O2", "-I", folder, HERE / "single.c", "-o", program])
    return dataclasses.replace(bench, program=program)


def cycles(loop: Loop, hits: int, cold_kb: int, arms: dict[str, int]) -> dict[str, list[int]]:
    loop.ask("cycles", hits, cold_kb, *arms.values())
    return dict(zip(["pair", *arms], loop.answer()["cycles"], strict=True))


def paper(tools) -> list[str]:
    """In cycles of single hits, as the paper has them: mean and deviation, the worst thousandth
    trimmed.
    """
    folder = tools.folder / "paper"
    folder.mkdir()
    bench = single_bench(prepare(BPF.name, BPF.hits, rungs(), folder), folder)
    arms, cold_kb = arms_of(rungs()), COLD_TIMES * l2_kb()
    found: dict[str, dict[str, list[int]]] = {"warm": {}, "cold": {}}
    with Ahead(bench, tools.cpu) as loop:
        for _ in range(tools.rounds):
            for which, hits, kb in (("warm", WARM_HITS, 0), ("cold", COLD_HITS, cold_kb)):
                said = {"bare": cycles(loop, hits, kb, {EMPTY: arms[EMPTY]})[EMPTY]}
                with recording(bench, [loop.pid], folder / "paper.klog", []):
                    said |= cycles(loop, hits, kb, arms)
                check_lost(folder / "paper.klog")
                for name, values in said.items():
                    found[which].setdefault(name, []).extend(values)
    return [
        "## Single hits, in cycles",
        "",
        (
            "In the paper's format: mean and standard deviation, the worst thousandth left out, of"
            " single hits"
        ),
        (
            "between two ordered readings of the TSC; the mean of the empty pair is subtracted. A"
            " hit is a system"
        ),
        "call; `more` is the mean over that of the same call with nothing attached. Warm:",
        (
            f"{WARM_HITS * tools.rounds:,} hits of each kind, by turns. Cold:"
            f" {COLD_HITS * tools.rounds:,}, and before"
        ),
        (
            f"each {cold_kb // 1024} MiB are written, {COLD_TIMES} times the second-level cache."
            " The third level,"
        ),
        "which all CPUs share, is not emptied.",
        "",
        "| | warm | more | cold | more |",
        "|---|---|---|---|---|",
        *(
            paper_row(found, name, words)
            for name, words in {"bare": "nothing attached", **RUNGS}.items()
        ),
        "",
        (
            f"The empty pair: {trimmed(found['warm']['pair'])[0]:.1f} cycles. Cache misses:"
            f" {no_counters()}. In print:"
        ),
        "KLogger 321 ± 36 cycles for two ints in a kernel of 2007.",
    ]


def paper_row(found: dict[str, dict[str, list[int]]], name: str, words: str) -> str:
    cells = []
    for of in found.values():
        pair, bare = trimmed(of["pair"])[0], trimmed(of["bare"])[0]
        mean, sd = trimmed(of[name])
        cells += [f"{mean - pair:.0f} ± {sd:.0f}", "" if name == "bare" else f"{mean - bare:.0f}"]
    return f"| {words} | {' | '.join(cells)} |"
