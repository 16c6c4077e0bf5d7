# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What an event costs in the kernel engine: what its modules measure themselves, in
/proc/sys/klogger/benchmarks.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from klogger import program
from klogger.failure import Failure
from klogger_lab.bench import health, stats
from klogger_lab.bench.cost import Costs
from klogger_lab.bench.engines import KERNEL, PROGRAM, USER
from klogger_lab.bench.events import CLOCK, FLOOR, REFERENCE, STORE, Event
from klogger_lab.bench.loop import Loop, prepare
from klogger_lab.machine import CLOCKSOURCE

FILES = Path("/proc/sys/klogger/benchmarks")
CALIBRATE_MS = 100
ROUNDS = 100


def modules(schema: str, folder: Path) -> Path:
    """Builds them for the kernel that runs."""
    made = folder / "modules"
    program.klogger("build", "-s", schema, "-o", made)
    return made


def measure(
    schema: str, folder: Path, events: Sequence[Event], cpu: int, passes: int, work: Path,
    progress: Callable[[str], None],
) -> Costs:  # fmt: skip
    """`folder` has the modules. In each pass, each file is read once; the floor is a program's, on
    the same clock.
    """
    found = Costs(KERNEL.name, passes=passes)
    progress("the loop")
    bench = prepare(USER.name, PROGRAM, events, work)
    values: dict[str, list[float]] = {
        name: [] for name in (CLOCK, STORE, *(e.name for e in events))
    }
    reports = []
    # The thread that reads a file is the one that logs.
    os.sched_setaffinity(0, {cpu})
    before = health.ticks(cpu)
    with loaded(folder, schema), Loop(bench, cpu) as loop:
        loop.ask("ticks", CALIBRATE_MS)
        per_ns = ticks_per_ns(loop.answer())
        for number in range(passes):
            progress(f"pass {number + 1} of {passes}")
            reports.append(floor(loop, values))
            for event in events:
                values[event.name].append(read(event.name) / per_ns)
    found.stolen = health.between(before, health.ticks(cpu))
    found.fault = health.fault(
        reports, bench.hits.block * stats.spread(values[STORE]).median, found.stolen
    )
    for arm, costs in values.items():
        found.added[arm] = stats.Cost(None, found.fault) if found.fault else stats.judge(costs)
    return found


def floor(loop: Loop, values: dict[str, list[float]]) -> dict[str, Any]:
    """The clock in a program, by a loop that is not recorded."""
    arms = (REFERENCE, CLOCK, STORE)
    said = loop.rounds(ROUNDS, [FLOOR.index(arm) for arm in arms])
    blocks = dict(zip(arms, said["blocks"], strict=True))
    for arm in (CLOCK, STORE):
        values[arm].append(stats.over(blocks, arm, REFERENCE))
    return said


def read(event: str) -> int:
    """The mean of so many, in ticks of the engine's clock."""
    try:
        return int((FILES / event).read_text())
    except (OSError, ValueError) as error:
        raise Failure(f"{FILES / event}: {error}", help="is a recording running?") from None


def ticks_per_ns(said: dict[str, int]) -> float:
    """The engine's clock is the TSC where the kernel's is, and otherwise counts nanoseconds."""
    with contextlib.suppress(OSError):
        if CLOCKSOURCE.read_text().strip() == "tsc" and said["ticks"]:
            return said["ticks"] / said["ns"]
    return 1.0


@contextlib.contextmanager
def loaded(folder: Path, schema: str) -> Iterator[None]:
    """The core and the schema's module, for as long as they are needed. What is there already
    stays.
    """
    with contextlib.ExitStack() as stack:
        for name in ("klogger", f"klogger_{schema}"):
            if Path("/sys/module", name).exists():
                continue
            tool("insmod", str(folder / f"{name}.ko"))
            stack.callback(tool, "rmmod", name)
        yield


def tool(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{words[0]} {Path(words[1]).name}: {done.stderr.strip()}")
