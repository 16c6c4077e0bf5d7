# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What each event costs, from recordings of a loop that hits one arm after the other."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klogger_lab.bench import health, stats
from klogger_lab.bench.events import EMPTY, FLOOR, REFERENCE, STORE, Event
from klogger_lab.bench.health import Stolen
from klogger_lab.bench.loop import Bench, Loop, info, recording
from klogger_lab.bench.stats import Cost, Pass

# So few lost events do not change the medians. With more, the cost of losing an event would be
# measured.
LOST_MOST = 0.01


@dataclass(frozen=True)
class Count:
    """Hits that the loop made, and what the logs say became of them. Bytes are those of
    the logged.
    """

    hits: int = 0
    logged: int = 0
    lost: int = 0
    bytes: int = 0

    def plus(self, other: Count) -> Count:
        return Count(
            self.hits + other.hits,
            self.logged + other.logged,
            self.lost + other.lost,
            self.bytes + other.bytes,
        )

    @property
    def each(self) -> float | None:
        return self.bytes / self.logged if self.logged else None


@dataclass
class Costs:
    """The answer, by arm. `over_empty`: more than a probe that does nothing. `bare_ns`: a hit with
    nothing attached.

    `counts` is empty if nothing was recorded.
    """

    engine: str
    # The tracepoint that was hit, if any.
    place: str = ""
    added: dict[str, Cost] = field(default_factory=dict)
    over_empty: dict[str, Cost] = field(default_factory=dict)
    counts: dict[str, Count] = field(default_factory=dict)
    bare_ns: float = 0.0
    stolen: Stolen = field(default_factory=lambda: Stolen(0, 0))
    passes: int = 0
    rounds: int = 0
    block: int = 0
    # Why nothing can be measured here.
    fault: str = ""


@dataclass(frozen=True)
class Taken:
    """A pass: its blocks, what the loop saw of the clocks, and what became of the hits."""

    blocks: Pass
    clocks: Sequence[Mapping[str, Any]]
    counts: Mapping[str, Count]


def measure(
    bench: Bench, events: Sequence[Event], cpu: int, passes: int, options: Sequence[str],
    folder: Path, progress: Callable[[str], None],
) -> Costs:  # fmt: skip
    before = health.ticks(cpu)
    taken = []
    with Loop(bench, cpu) as loop:
        for number in range(passes):
            progress(f"pass {number + 1} of {passes}")
            taken.append(one_pass(bench, events, loop, options, folder / "bench.klog"))
    found = Costs(bench.engine, bench.place.name if bench.place else "", passes=passes)
    found.rounds, found.block = bench.hits.rounds, bench.hits.block
    found.stolen = health.between(before, health.ticks(cpu))
    settle(found, taken)
    return found


def one_pass(
    bench: Bench, events: Sequence[Event], loop: Loop, options: Sequence[str], log: Path
) -> Taken:
    names = [*FLOOR, *(e.name for e in events)]
    rounds, bare = bench.hits.rounds, [FLOOR.index(REFERENCE), FLOOR.index(EMPTY)]
    before = loop.rounds(rounds, bare)
    with recording(bench, [loop.pid], log, options):
        during = loop.rounds(rounds, range(len(names)))
    after = loop.rounds(rounds, bare)
    hits = rounds * bench.hits.block
    of = {e["name"]: e for e in info(log)["events"]}
    log.unlink()
    counts = {
        e.name: Count(hits, of[e.name]["logged"], of[e.name]["lost"], of[e.name]["bytes"])
        for e in events
    }
    said = (during, before, after)
    return Taken(
        Pass(*(dict(zip(names, one["blocks"], strict=False)) for one in said)), said, counts
    )


def settle(found: Costs, taken: Sequence[Taken]) -> None:
    """From the passes to the answer."""
    for one in taken:
        for name, count in one.counts.items():
            found.counts[name] = found.counts.get(name, Count()).plus(count)
    passes = [one.blocks for one in taken]
    found.bare_ns = statistics.median(statistics.median(one.before[EMPTY]) for one in passes)
    block_ns = found.block * statistics.median(
        statistics.median(one.during[STORE]) for one in passes
    )
    found.fault = health.fault(
        [said for one in taken for said in one.clocks], block_ns, found.stolen
    )
    # In a program there are no probes, and the empty one is the reference itself.
    floor = FLOOR[1:] if found.place else FLOOR[2:]
    for arm in [*floor, *found.counts]:
        found.added[arm] = cost(
            found, arm, [stats.added(one, arm, EMPTY, REFERENCE) for one in passes]
        )
        if found.place:
            found.over_empty[arm] = cost(
                found, arm, [stats.over(one.during, arm, EMPTY) for one in passes]
            )


def cost(found: Costs, arm: str, values: Sequence[float]) -> Cost:
    if found.fault:
        return Cost(None, found.fault)
    count = found.counts.get(arm)
    if count is not None and count.logged + count.lost != count.hits:
        return Cost(
            None, f"of {count.hits:,} hits the log has {count.logged:,}, and {count.lost:,} as lost"
        )
    if count is not None and count.lost > LOST_MOST * count.hits:
        return Cost(
            None,
            f"{count.lost / count.hits:.0%} of its events were lost; try a larger --buffer-size",
        )
    return stats.judge(values)
