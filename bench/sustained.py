# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The highest rate that goes to disk without a loss: all CPUs log for some seconds, faster from
step to step.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from measure import FAULTS, NOT_HERE, why
from rivals import RIVALS, SMALL_KB, Kept, ring

from klogger_lab.bench import events
from klogger_lab.bench.engines import BPF
from klogger_lab.bench.events import FLOOR
from klogger_lab.bench.loop import Bench, Loop, info, prepare, recording
from klogger_lab.bench.rate import disk_rate

SECONDS = 5
# Hits a millisecond on each CPU; 0 is as many as they can.
STEPS = (25, 50, 100, 150, 200, 300, 400, 500, 750, 1000, 1500, 2000, 3000, 0)
# A step is tried so often: what others do on the machine may have been the reason.
TRIES = 2
MANY = 5
GOAL, GOAL_TIMES = 3_000_000, 1.5


@dataclass(frozen=True)
class Step:
    """Events that all CPUs made together, a second, and how many of them are in the file."""

    asked: int
    made: int
    kept: int
    seconds: float
    bytes: int

    @property
    def rate(self) -> float:
        return self.made / self.seconds

    @property
    def lost(self) -> int:
        return self.made - self.kept


@dataclass(frozen=True)
class Found:
    """The fastest step without a loss, and the first with one, if any."""

    best: Step | None
    lossy: Step | None


def climb(step: Callable[[int], Step], steps: Sequence[int] = STEPS, tries: int = TRIES) -> Found:
    """Faster from step to step, until one loses events each time that it is tried."""
    best = None
    for asked in steps:
        for _ in range(tries):
            found = step(asked)
            if found.lost <= 0:
                break
        else:
            return Found(best, found)
        if best is None or found.rate > best.rate:
            best = found
    return Found(best, None)


@contextmanager
def klogger(bench: Bench, tools, pids: Sequence[int], _kb: int) -> Iterator[Kept]:
    """With its own settings."""
    log, kept = tools.folder / "sustained.klog", Kept()
    with recording(bench, pids, log, []):
        yield kept
    kept.events = sum(e["logged"] for e in info(log)["events"] if e["name"] == events.TWO_INTS.name)
    kept.bytes = log.stat().st_size
    log.unlink()


def one_step(tools, loops: Sequence[Loop], attach: Callable, times: int, per_ms: int) -> Step:
    with attach(tools, [loop.pid for loop in loops], SMALL_KB) as kept:
        for loop in loops:
            loop.ask("flood", len(FLOOR), SECONDS * 10**9, per_ms)
        said = [loop.answer() for loop in loops]
    seconds = max(one["ns"] for one in said) / 1e9
    made = sum(one["hits"] for one in said) * times
    return Step(per_ms * 1000 * len(loops) * times, made, kept.events or 0, seconds, kept.bytes)


def arms_of(tools) -> tuple[Bench, dict[str, tuple[Callable, int]]]:
    """By name: what attaches, and how many events a hit makes."""
    benches = []
    for times in (1, MANY):
        folder = tools.folder / f"sustained-{times}"
        folder.mkdir()
        event = dataclasses.replace(events.TWO_INTS, times=times)
        benches.append(prepare(BPF.name, BPF.hits, [event], folder))
    return benches[0], {
        "klogger": (partial(klogger, benches[0]), 1),
        **{
            n: (RIVALS[n].attach, 1)
            for n in ("trace-cmd record", "perf record", "bpftrace", "BPF ring buffer")
        },
        f"klogger, {MANY} events a hit": (partial(klogger, benches[1]), MANY),
        f"BPF ring buffer, {MANY} events a hit": (partial(ring, times=MANY), MANY),
    }


def sustained(tools) -> list[str]:
    """One table for all of them: the best rate, what comes of it, and what was too much."""
    bench, arms = arms_of(tools)
    rows, rates = [], {}
    with ExitStack() as stack:
        loops = [stack.enter_context(Loop(bench, cpu)) for cpu in range(os.cpu_count())]
        for name, (attach, times) in arms.items():
            try:
                found = climb(partial(one_step, tools, loops, attach, times))
            except FAULTS as error:
                rows.append(f"| {name} | {NOT_HERE}: {why(error)} | | |")
                continue
            rates[name] = found.best.rate if found.best else 0.0
            rows.append(row(name, found))
    return [
        "## Sustained",
        "",
        (
            f"The fastest of the steps that lost nothing in {SECONDS} s: {len(loops)} CPUs hit"
            f" `{tools.place}` at"
        ),
        (
            "once, two ints an event, into a file on disk. klogger with its own settings, the"
            " others with as much"
        ),
        (
            f"buffer, {SMALL_KB // 1024} MiB for each CPU; readers and loops share the CPUs. A step"
            " that loses is"
        ),
        f"tried {TRIES} times. Lost is what was made and is not in the file.",
        "",
        "| | events/s | MiB/s to the file | the step that lost |",
        "|---|---|---|---|",
        *rows,
        "",
        *verdicts(rates, disk_rate(tools.folder)),
    ]


def row(name: str, found: Found) -> str:
    best, lossy = found.best, found.lossy
    rate = f"{best.rate:,.0f}" if best else "no step without a loss"
    disk = f"{best.bytes / best.seconds / 2**20:.1f}" if best else ""
    after = (
        f"{lossy.rate:,.0f} events/s lost {lossy.lost / lossy.made:.1%}"
        if lossy
        else "no step lost any"
    )
    return f"| {name} | {rate} | {disk} | {after} |"


def verdicts(rates: dict[str, float], disk: float) -> list[str]:
    ours = rates.get("klogger")
    others = {n: r for n, r in rates.items() if not n.startswith("klogger") and "a hit" not in n}
    lines = [f"The disk takes {disk / 2**20:,.0f} MiB/s."]
    if ours is None or not others:
        return [*lines, f"- klogger: {NOT_HERE}"]
    name, best = max(others.items(), key=lambda item: item[1])
    lines += [
        "",
        (
            f"- klogger: {ours:,.0f} events/s, to be at least {GOAL:,}:"
            f" {'yes' if ours >= GOAL else 'no'}"
        ),
    ]
    if best > 0:
        said = "yes" if ours / best >= GOAL_TIMES else "no"
        what = f"klogger / the best of the others, {name}"
        lines.append(f"- {what}: {ours / best:.2f}, to be at least {GOAL_TIMES}: {said}")
    return lines
