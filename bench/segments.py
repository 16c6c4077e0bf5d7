# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A recording in segments: the highest rate that loses nothing while five of them end in a second,
and the memory of a recorder that keeps the newest.
"""

import os
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from rivals import Kept
from sustained import SECONDS, climb, one_step, row

from klogger_lab.bench import events
from klogger_lab.bench.engines import BPF
from klogger_lab.bench.events import FLOOR
from klogger_lab.bench.loop import Bench, Loop, info, prepare, recording

RING = ("--buffer-size", "4M")
SEGMENT = ("--segment", "200ms")
# How long memory is watched, of which the first part is left out: buffers are made when they are
# needed first.
WATCHED, WARM = 330, 60
RATE = 100_000
KEEP = ("--segment", "2s", "--keep", "5")


@contextmanager
def divided(bench: Bench, tools, pids: Sequence[int], _kb: int) -> Iterator[Kept]:
    folder, kept = tools.folder / "divided", Kept()
    with recording(bench, pids, folder, [*RING, *SEGMENT]):
        yield kept
    kept.events = logged(folder)
    kept.bytes = sum(path.stat().st_size for path in folder.iterdir())
    shutil.rmtree(folder)


def logged(folder: Path) -> int:
    found = info(folder)["events"]
    return sum(e["logged"] for e in found if e["name"] == events.TWO_INTS.name)


def resident(pid: int) -> int:
    """VmRSS, KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def watched(bench: Bench, tools, loops: Sequence[Loop]) -> tuple[list[int], int, int]:
    """Memory in each second, segments that were begun, and bytes on disk at most."""
    folder, memory, most = tools.folder / "kept", [], 0
    with recording(bench, [loop.pid for loop in loops], folder, [*RING, *KEEP]) as pid:
        for loop in loops:
            loop.ask("flood", len(FLOOR), WATCHED * 10**9, RATE // 1000 // len(loops))
        begin = time.monotonic()
        while len(memory) < WATCHED - 5:
            time.sleep(max(0.0, begin + len(memory) + 1 - time.monotonic()))
            memory.append(resident(pid))
            most = max(most, sum(size(path) for path in folder.iterdir()))
        for loop in loops:
            loop.answer()
    begun = max(segment["number"] for segment in info(folder)["segments"])
    shutil.rmtree(folder)
    return memory, begun, most


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def segments(tools) -> list[str]:
    folder = tools.folder / "segments-bench"
    folder.mkdir()
    bench = prepare(BPF.name, BPF.hits, [events.TWO_INTS], folder)
    with ExitStack() as stack:
        loops = [stack.enter_context(Loop(bench, cpu)) for cpu in range(os.cpu_count())]
        found = climb(partial(one_step, tools, loops, partial(divided, bench), 1))
        memory, begun, most = watched(bench, tools, loops)
    warm = memory[WARM:]
    slope = statistics.linear_regression(range(len(warm)), warm).slope * 3600
    minutes = [memory[at : at + 60] for at in range(0, len(memory), 60)]
    return [
        "## Segments",
        "",
        f"The fastest of the steps that lost nothing in {SECONDS} s, as above, with a new segment",
        "each 200 ms and rings of 4 MiB.",
        "",
        "| | events/s | MiB/s to the files | the step that lost |",
        "|---|---|---|---|",
        row("klogger --segment 200ms", found),
        "",
        f"The memory (VmRSS) of a recorder at {RATE:,} events/s with `{' '.join(KEEP)}`, each",
        f"second for {len(memory)} s, in which {begun} segments were begun; there were never more",
        f"than {most / 2**20:.1f} MiB on disk.",
        "",
        "| minute | least, KiB | most, KiB |",
        "|---|---|---|",
        *(f"| {n} | {min(part):,} | {max(part):,} |" for n, part in enumerate(minutes, 1)),
        "",
        f"From the second minute on it changes by {slope:,.0f} KiB an hour.",
    ]
