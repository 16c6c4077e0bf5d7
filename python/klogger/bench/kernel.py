# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What an event costs in the kernel engine: what its modules measure themselves, in /proc/sys/klogger/benchmarks."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from klogger.bench import health, stats
from klogger.bench.cost import Costs
from klogger.bench.events import CLOCK, FLOOR, REFERENCE, STORE, Event
from klogger.bench.loop import ENGINES, Loop, klogger, prepare
from klogger.failure import Failure
from klogger.study.machine import CLOCKSOURCE

FILES = Path("/proc/sys/klogger/benchmarks")
CALIBRATE_MS = 100
ROUNDS = 100


def measure(
    schema: str, events: Sequence[Event], cpu: int, passes: int, folder: Path, progress: Callable[[str], None]
) -> Costs:
    """In each pass, each file is read once. The floor is a program's: both read the same clock."""
    if not Path("/proc/modules").exists():
        raise Failure("this kernel loads no modules, which the kernel engine is made of", help="try --engine bpf")
    progress("modules")
    klogger("build", "-s", schema, "-o", folder / "modules")
    found = Costs("kernel", passes=passes)
    bench = prepare(ENGINES["user"], events, folder)
    arms: dict[str, list[float]] = {name: [] for name in (CLOCK, STORE, *(e.name for e in events))}
    os.sched_setaffinity(0, {cpu})
    before = health.ticks(cpu)
    reports = []
    with loaded(folder / "modules"), Loop(bench, cpu) as loop:
        loop.ask("ticks", CALIBRATE_MS)
        per_ns = ticks_per_ns(loop.answer())
        for number in range(passes):
            progress(f"pass {number + 1} of {passes}")
            floor = loop.rounds(ROUNDS, [FLOOR.index(arm) for arm in (REFERENCE, CLOCK, STORE)])
            reports.append(floor)
            blocks = dict(zip((REFERENCE, CLOCK, STORE), floor["blocks"], strict=True))
            for arm in (CLOCK, STORE):
                arms[arm].append(stats.over(blocks, arm, REFERENCE))
            for event in events:
                arms[event.name].append(read(event.name) / per_ns)
    found.stolen = health.between(before, health.ticks(cpu))
    found.fault = health.fault(reports, bench.engine.block * stats.spread(arms[STORE]).median, found.stolen)
    for arm, values in arms.items():
        found.added[arm] = stats.Cost(None, found.fault) if found.fault else stats.judge(values)
    return found


def read(event: str) -> int:
    """The mean of so many, in ticks of the engine's clock."""
    try:
        return int((FILES / event).read_text())
    except (OSError, ValueError) as error:
        raise Failure(f"{FILES / event}: {error}", help="is somebody recording?") from None


def ticks_per_ns(said: dict[str, int]) -> float:
    """The engine's clock is the TSC where the kernel's is, and otherwise counts nanoseconds."""
    with contextlib.suppress(OSError):
        if CLOCKSOURCE.read_text().strip() == "tsc" and said["ticks"]:
            return said["ticks"] / said["ns"]
    return 1.0


@contextlib.contextmanager
def loaded(folder: Path) -> Iterator[None]:
    """The modules, the core first, for as long as they are needed. A core that is there already stays."""
    modules = sorted(folder.glob("*.ko"), key=lambda file: file.stem != "klogger")
    with contextlib.ExitStack() as stack:
        for file in modules:
            if file.stem == "klogger" and FILES.exists():
                continue
            tool("insmod", str(file))
            stack.callback(tool, "rmmod", file.stem)
        yield


def tool(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{words[0]} {Path(words[1]).name}: {done.stderr.strip()}")
