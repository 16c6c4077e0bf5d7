# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Who had each CPU, as far as the events say: those of threads in scope, and TAKEN."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from klogger.why.events import Array, Events

NOT_SEEN = -1


@dataclass
class Occupants:
    """Changes of each CPU in the order of time. `pid[i]` has the CPU from `time[i]` on,
    `before[i]` until then; `first`: of each CPU the place of its first change.
    """

    first: dict[int, tuple[int, int]]
    time: Array
    pid: Array
    before: Array


def find(events: Events) -> Occupants:
    tables = [
        (events.tables["BACK"], "pid", "prev"),
        (events.tables["TAKEN"], "pid", "prev"),
        (events.tables["BLOCKED"], "next", "pid"),
        (events.tables["PREEMPTED"], "next", "pid"),
    ]
    columns = [(t["cpu"], t["time"], t[new], t[old]) for t, new, old in tables]
    cpu, time, pid, before = (np.concatenate(column) for column in zip(*columns, strict=True))
    # A switch between two threads in scope is there twice.
    order = np.lexsort((time, cpu))
    cpu, time, pid, before = cpu[order], time[order], pid[order], before[order]
    first = {}
    for one in np.unique(cpu).tolist():
        low, high = np.searchsorted(cpu, [one, one + 1])
        first[one] = (int(low), int(high))
    return Occupants(first, time, pid, before)


def during(found: Occupants, cpu: Array, since: Array, until: Array) -> tuple[Array, ...]:
    """Cuts spans of time where their CPU changes hands: for each piece the number of its span, its
    begin and end, and who had the CPU.
    """
    low, high = np.zeros(len(cpu), "i8"), np.zeros(len(cpu), "i8")
    for one, (at, behind) in found.first.items():
        rows = cpu == one
        low[rows] = at + np.searchsorted(found.time[at:behind], since[rows], side="right")
        high[rows] = at + np.searchsorted(found.time[at:behind], until[rows], side="left")
    count = np.maximum(high - low, 0)
    span = np.repeat(np.arange(len(cpu)), count + 1)
    step = np.arange(len(span)) - np.repeat(np.cumsum(count + 1) - count - 1, count + 1)
    change = low[span] + step - 1
    begin = np.where(
        step == 0,
        since[span],
        found.time[np.minimum(change, len(found.time) - 1)] if len(found.time) else 0,
    )
    last = step == count[span]
    end = np.where(last, until[span], np.r_[begin[1:], 0])
    who = owners(found, cpu[span], change, step)
    kept = end > begin
    return span[kept], begin[kept], end[kept], who[kept]


def owners(found: Occupants, cpu: Array, change: Array, step: Array) -> Array:
    """Who has the CPU from a change on; before the first one in a span, who had it until then."""
    if not len(found.time):
        return np.full(len(cpu), NOT_SEEN)
    cpus, which = np.unique(cpu, return_inverse=True)
    firsts = np.array([found.first.get(c, (0, 0)) for c in cpus.tolist()]).reshape(-1, 2)[which]
    at = np.clip(change, 0, len(found.time) - 1)
    following = np.clip(change + 1, 0, len(found.time) - 1)
    own = (change >= firsts[:, 0]) & (change < firsts[:, 1])
    next_own = (change + 1 >= firsts[:, 0]) & (change + 1 < firsts[:, 1])
    # What the next change says of before is true up to the last change of this CPU that was seen,
    # or for the whole span, if there was none.
    who = np.where(own, found.pid[at], NOT_SEEN)
    said = np.where(next_own, found.before[following], NOT_SEEN)
    return np.where(next_own & (step == 0), said, np.where(own, who, said))
