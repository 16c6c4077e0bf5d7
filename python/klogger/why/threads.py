# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The threads of a log. A number may be used again: each that has it is a life of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from klogger.why.events import ENDED, NS_MAX, Array, Events

# Tables of events that only the threads of a log have.
OWN = ("BACK", "BLOCKED", "PREEMPTED", "WOKEN", "CALLED", "UNRETURNED", "FAULTED", "SLEPT_BEFORE")
# Of kthreadd, which makes all other threads of the kernel: the second one since the kernel began.
KTHREADD = 2
# Of the thread that has a CPU while no other one wants it: its time is nobody's.
IDLE = 0
# Numbers of threads are smaller, unless the log is damaged: the kernel's limit.
PID_MAX = 1 << 22


class Places:
    """Where numbers are in a sorted list of them."""

    def __init__(self, numbers: Array) -> None:
        self.numbers = numbers
        self.table: Array | None = None
        if len(numbers) and numbers[0] >= 0 and numbers[-1] <= PID_MAX:
            # One more for all that are not in it.
            self.table = np.full(int(numbers[-1]) + 2, -1, "i4")
            self.table[numbers] = np.arange(len(numbers))

    def of(self, values: Array) -> Array:
        """-1: not in the list."""
        if not len(self.numbers):
            return np.full(len(values), -1, "i4")
        if self.table is not None:
            behind = len(self.table) - 1
            return np.asarray(
                self.table[np.where((values < 0) | (values > behind), behind, values)]
            )
        found = np.minimum(np.searchsorted(self.numbers, values), len(self.numbers) - 1)
        return np.where(self.numbers[found] == values, found, -1).astype("i4")


@dataclass
class Threads:
    """Lives of threads. `first[i]`: when it began, or was first seen, `born[i]`: it was made during
    the recording, `kernel[i]`: it is the kernel's. Ordered by number and time.
    """

    pid: Array
    first: Array
    born: Array
    kernel: Array = field(default_factory=lambda: np.zeros(0, bool))

    @property
    def counts(self) -> Array:
        """Whether the time of each is somebody's: all but the idle thread's is."""
        return np.asarray(self.pid != IDLE)

    @cached_property
    def numbers(self) -> tuple[Places, Array, Array]:
        """The numbers; the first life of each, and how many it has."""
        numbers, first, count = np.unique(self.pid, return_index=True, return_counts=True)
        return Places(numbers), first.astype("i4"), count

    def at(self, pids: Array, times: Array) -> Array:
        """The lives that have these numbers at these times; -1: none is known."""
        if not len(self.pid) or not len(pids):
            return np.full(len(pids), -1, "i4")
        numbers, first, count = self.numbers
        place = numbers.of(pids)
        life = first[place]
        life[(place < 0) | (self.first[life] > np.maximum(times, 0))] = -1
        again = np.flatnonzero((life >= 0) & (count[place] > 1))
        life[again] = self.last_begun(place[again], times[again])
        return life

    def last_begun(self, place: Array, times: Array) -> Array:
        """Of numbers that several have: who was the last to begin."""
        width = int(max(self.first.max(), times.max(initial=0))) + 1
        which = np.repeat(np.arange(len(self.numbers[2])), self.numbers[2])
        keys = place.astype("i8") * width + np.maximum(times, 0)
        return np.searchsorted(which * width + self.first, keys, side="right") - 1


def lives(events: Events) -> Threads:
    """All threads that have any event of their own."""
    born = events.tables["PROCESS_FORK"]
    seen = [events.tables[name] for name in OWN]
    numbers = np.unique(np.concatenate([np.unique(table["pid"]) for table in [*seen, born]]))
    places = Places(numbers)
    first, last = spans_of(places, seen, events.end)
    # Who has an event before it is made, or is not made at all, was there before.
    begun = np.full(len(numbers), events.end + 1)
    begun[places.of(born["pid"])[::-1]] = born["time"][::-1]
    rows = [(int(pid), events.begin, False) for pid in numbers[first < begun]]
    rows += [
        (int(pid), int(time), True) for pid, time in zip(born["pid"], born["time"], strict=True)
    ]
    rows += reused(events, places, seen, last)
    rows.sort()
    found = Threads(
        *(np.array([row[i] for row in rows], dtype=t) for i, t in enumerate(("i8", "i8", "?")))
    )
    return replace(found, kernel=of_kernel(events, found))


def of_kernel(events: Events, threads: Threads) -> Array:
    """A child of kthreadd that executes a program, as a helper of the kernel, is none."""
    kernel = ~threads.born & np.isin(threads.pid, sorted(events.kernel))
    made, executed = events.tables["PROCESS_FORK"], events.tables["PROCESS_EXEC"]
    made = made[made["parent"] == KTHREADD]
    kernel[threads.at(made["pid"], made["time"])] = True
    life = threads.at(executed["pid"], executed["time"])
    kernel[life[life >= 0]] = False
    return kernel


def spans_of(places: Places, tables: list[Array], end: int) -> tuple[Array, Array]:
    """The times of the first and of the last row of each number, in tables ordered by time."""
    first, last = np.full(len(places.numbers), end), np.full(len(places.numbers), -1)
    for table in tables:
        place, time = places.of(table["pid"]), table["time"]
        # Of several values for one place, the last one stays.
        here = np.full(len(first), end)
        here[place[::-1]] = time[::-1]
        first = np.minimum(first, here)
        here = np.full(len(first), -1)
        here[place] = time
        last = np.maximum(last, here)
    return first, last


def reused(
    events: Events, places: Places, seen: list[Array], last: Array
) -> list[tuple[int, int, bool]]:
    """Who has events after the end of a thread with its number, and whose beginning is lost."""
    blocked, born = events.tables["BLOCKED"], events.tables["PROCESS_FORK"]
    gone = blocked[blocked["state"] & ENDED != 0]
    # Nearly all end and have no event after that. What they did before does not matter.
    ends = np.full(len(places.numbers) + 1, NS_MAX)
    place = places.of(gone["pid"])
    again = place[last[place] > gone["time"]]
    if not len(again):
        return []
    chosen = np.isin(place, again)
    np.minimum.at(ends, place[chosen], gone["time"][chosen])
    tables = [
        some[some["time"] >= ends[places.of(some["pid"])]]
        for some in (table[np.searchsorted(table["time"], ends.min()) :]
                     for table in [*seen, born, gone])
    ]  # fmt: skip
    gone, born = tables[-1], tables[-2]
    pid, time = (np.concatenate([table[name] for table in tables]) for name in ("pid", "time"))
    behind = len(pid) - len(gone)
    here = np.arange(len(pid))
    is_gone, is_end = here >= behind, here >= behind - len(born)
    order = np.lexsort((is_gone, time, pid))
    pid, time, is_gone, is_end = pid[order], time[order], is_gone[order], is_end[order]
    again = np.flatnonzero(is_gone[:-1] & ~is_end[1:] & (pid[1:] == pid[:-1])) + 1
    return [(int(pid[at]), int(time[at]), False) for at in again]
