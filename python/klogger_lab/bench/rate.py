# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which rate the recorder can follow: floods on all CPUs at once, faster and faster, into rings of
several sizes.

Each step is a recording, whose own counts say what became of the events that were made.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from klogger.failure import Failure
from klogger_lab.bench import events
from klogger_lab.bench.engines import Hits
from klogger_lab.bench.events import FLOOR
from klogger_lab.bench.loop import Bench, Loop, info, prepare, recording

# Several events a hit, or the loops would spend most of their time on the way to the place.
EVENTS_A_HIT = 5
TWO_INTS = dataclasses.replace(events.TWO_INTS, times=EVENTS_A_HIT)
# Events a millisecond on each CPU; 0 is as many as it can.
STEPS = (250, 500, 1000, 2000, 4000, 0)
BUFFERS = ("1M", "4M", "16M")
LOOK = 0.02
# A thread that spends so much of its time in one state is held up by it.
MOSTLY = 0.5
DISK_BYTES = 64 << 20


@dataclass(frozen=True)
class Step:
    """`asked` for and `offered` by all CPUs together, events a second; asked is 0 for as many as
    they can.

    `lossless_s`: how long it went before the first event was lost; None if none was. `bound`: by
    what it was.
    """

    buffer: str
    asked: int
    offered: float
    seconds: float
    made: int
    logged: int
    lost: int
    bytes: int
    lossless_s: float | None
    recorder_cpus: float
    bound: str


def measure(
    engine: str, hits: Hits, cpus: Sequence[int], buffers: Sequence[str], seconds: float,
    folder: Path,
    progress: Callable[[str], None],
) -> list[Step]:  # fmt: skip
    bench = prepare(engine, hits, [TWO_INTS], folder)
    found = []
    with contextlib.ExitStack() as stack:
        loops = [stack.enter_context(Loop(bench, cpu)) for cpu in cpus]
        for size, per_ms in itertools.product(buffers, STEPS):
            asked = per_ms * 1000 * len(loops)
            progress(
                f"rings of {size}, {f'{asked:,} events a second' if asked else 'as many as it can'}"
            )
            found.append(
                one_step(bench, loops, size, asked, round(seconds * 1e9), folder / "rate.klog")
            )
    return found


def one_step(
    bench: Bench, loops: Sequence[Loop], size: str, asked: int, ns: int, log: Path
) -> Step:
    pids = [loop.pid for loop in loops]
    with (
        recording(bench, pids, log, [bench.hits.buffer_option, size]) as recorder,
        Watch(recorder) as watch,
    ):
        for loop in loops:
            loop.ask("flood", len(FLOOR), ns, asked // 1000 // len(loops) // EVENTS_A_HIT)
        answers = [loop.answer() for loop in loops]
    said = info(log)
    log.unlink()
    return step_of(size, said, asked, answers, watch)


def step_of(
    size: str,
    said: Mapping[str, Any],
    asked: int,
    answers: Sequence[Mapping[str, Any]],
    watch: Watch,
) -> Step:
    event = next(e for e in said["events"] if e["name"] == TWO_INTS.name)
    made = sum(one["hits"] for one in answers) * EVENTS_A_HIT
    if event["logged"] + event["lost"] != made:
        raise Failure(
            f"of {made:,} events the log has {event['logged']:,}, and {event['lost']:,} as lost"
        )
    begun = min(one["start_ns"] for one in answers)
    losses = [
        e["from_ns"] for e in said["ledger"] if e.get("event") == event["name"] and e.get("from_ns")
    ]
    seconds = max(one["ns"] for one in answers) / 1e9
    return Step(
        size, asked, made / seconds, seconds, made, event["logged"], event["lost"], event["bytes"],
        (min(losses) - begun) / 1e9 if losses else None, watch.cpu_s / seconds,
        watch.bound() if event["lost"] else "",
    )  # fmt: skip


class Watch:
    """What the recorder's threads do meanwhile: CPU time, and how often each was seen in which
    state.
    """

    def __init__(self, pid: int) -> None:
        self.tasks = Path(f"/proc/{pid}/task")
        self.seen: dict[str, Counter[str]] = {}
        self.cpu_s = 0.0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look)

    def __enter__(self) -> Watch:
        self.cpu_s = -self.cpu()
        self.thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.over.set()
        self.thread.join()
        self.cpu_s += self.cpu()

    def threads(self) -> dict[str, list[str]]:
        """By thread id: what is in its `stat` from its state on."""
        found = {}
        with contextlib.suppress(OSError):
            for task in self.tasks.iterdir():
                with contextlib.suppress(OSError):
                    found[task.name] = (task / "stat").read_text().rpartition(")")[2].split()
        return found

    def cpu(self) -> float:
        ticks = sum(int(fields[11]) + int(fields[12]) for fields in self.threads().values())
        return ticks / os.sysconf("SC_CLK_TCK")

    def look(self) -> None:
        while not self.over.wait(LOOK):
            for tid, fields in self.threads().items():
                self.seen.setdefault(tid, Counter())[fields[0]] += 1

    def bound(self) -> str:
        return bound(self.seen.values())


def bound(seen: Collection[Counter[str]]) -> str:
    """By what a recorder that loses events is held up: what its busiest thread does most of the
    time.
    """

    def most(state: str) -> float:
        return max(
            (counter[state] / counter.total() for counter in seen if counter.total()), default=0.0
        )

    if most("D") >= MOSTLY:
        return "the disk"
    # Running, or waiting for a CPU: to the state they are the same.
    if most("R") >= MOSTLY:
        return "the recorder's CPU time"
    return "the ring's size"


def disk_rate(folder: Path) -> float:
    """Bytes a second that the file system takes, on the disk at last."""
    block = os.urandom(1 << 20)
    file = folder / "disk"
    begun = time.monotonic()
    try:
        with file.open("wb") as out:
            for _ in range(DISK_BYTES // len(block)):
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise Failure(f"cannot write {file}: {error.strerror}") from None
    finally:
        file.unlink(missing_ok=True)
    return DISK_BYTES / (time.monotonic() - begun)
