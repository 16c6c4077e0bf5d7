# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The points in the time of each thread where its state may change: its own events, the beginnings
of what is logged at its end, and losses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from klogger.why.events import ENDED, NS_MAX, Array, Events


class Point(IntEnum):
    """Kinds of points, in the order that they have at one time: the thread is first seen; something
    ends, something begins; it leaves its CPU; and the rest.
    """

    BEFORE = 0  # the recording begins, and nothing is known of the thread yet
    BORN = 1
    ASLEEP = 2  # it waits already when the recording begins
    FAULT_END = 3
    CALL_END = 4
    CALL = 5
    FAULT = 6
    ENDS = 7  # it exits; it runs on until it leaves the CPU for the last time
    BLOCKED = 8
    PREEMPTED = 9
    EARLY = 10  # blocked, but woken already
    WOKEN = 11
    BACK = 12
    LOST = 13  # from here on nothing is known, up to the next event of the scheduler
    GONE = 14
    RENUMBERED = 15  # its number ends: it has executed a program, and has that of its process


# Those of the scheduler.
SCHEDULING = np.isin(list(Point), [
    Point.BEFORE, Point.BORN, Point.BLOCKED, Point.PREEMPTED, Point.EARLY, Point.WOKEN, Point.BACK,
    Point.ASLEEP, Point.LOST, Point.GONE, Point.RENUMBERED,
])  # fmt: skip
# Where a thread leaves its CPU.
LEAVES = (Point.BLOCKED, Point.PREEMPTED, Point.EARLY, Point.GONE)

# Tables of events that only the threads of a log have.
OWN = ("BACK", "BLOCKED", "PREEMPTED", "WOKEN", "CALLED", "UNRETURNED", "FAULTED", "SLEPT_BEFORE")
# `woken`: of what was woken early, the row of its wake-up.
POINT = np.dtype(
    [
        ("thread", "i8"),
        ("time", "i8"),
        ("kind", "i1"),
        ("ref", "i8"),
        ("cpu", "i4"),
        ("woken", "i8"),
    ]
)


@dataclass
class Threads:
    """Lives of threads: a number may be used again. `first[i]`: when it began, or was first seen,
    `born[i]`: it was made during the recording. Ordered by number and time.
    """

    pid: Array
    first: Array
    born: Array

    def at(self, pids: Array, times: Array) -> Array:
        """The lives that have these numbers at these times; -1: none is known."""
        if not len(self.pid):
            return np.full(len(pids), -1)
        numbers, which = np.unique(self.pid, return_inverse=True)
        width = int(max(self.first.max(), times.max(initial=0))) + 1
        asked = np.minimum(np.searchsorted(numbers, pids), len(numbers) - 1)
        keys = asked * width + np.maximum(times, 0)
        found = np.searchsorted(which * width + self.first, keys, side="right") - 1
        known = (numbers[asked] == pids) & (found >= 0) & (which[found] == asked)
        return np.where(known, found, -1)


def find(events: Events) -> tuple[Threads, Array]:
    """Of all threads, ordered by thread and time."""
    threads = lives(events)
    points = ordered(np.concatenate([scheduling(events, threads), *within(events, threads)]))
    return threads, with_losses(events, threads, points)


def lives(events: Events) -> Threads:
    """All threads that have any event of their own."""
    born = events.tables["PROCESS_FORK"]
    seen = [events.tables[name] for name in OWN]
    pids = np.unique(np.concatenate([table["pid"] for table in seen] + [born["pid"]]))
    # Who has an event before it is made, or is not made at all, was there before.
    first = {int(pid): events.end for pid in pids}
    for table in seen:
        found, at = np.unique(table["pid"], return_index=True)
        for pid, time in zip(found, table["time"][at], strict=True):
            first[int(pid)] = min(first[int(pid)], int(time))
    made, at = np.unique(born["pid"], return_index=True)
    begun = dict(zip(made.tolist(), born["time"][at].tolist(), strict=True))
    rows = [
        (pid, events.begin, False)
        for pid, time in first.items()
        if pid not in begun or time < begun[pid]
    ]
    rows += [
        (int(pid), int(time), True) for pid, time in zip(born["pid"], born["time"], strict=True)
    ]
    rows += reused(events, seen)
    rows.sort()
    return Threads(
        *(np.array([row[i] for row in rows], dtype=t) for i, t in enumerate(("i8", "i8", "?")))
    )


def reused(events: Events, seen: list[Array]) -> list[tuple[int, int, bool]]:
    """Who has events after the end of a thread with its number, and whose beginning is lost."""
    blocked, born = events.tables["BLOCKED"], events.tables["PROCESS_FORK"]
    gone = blocked[blocked["state"] & ENDED != 0]
    tables = [*seen, born, gone]
    pid, time = (np.concatenate([table[name] for table in tables]) for name in ("pid", "time"))
    last = len(pid) - len(gone)
    here = np.arange(len(pid))
    is_gone, is_end = here >= last, here >= last - len(born)
    order = np.lexsort((is_gone, time, pid))
    pid, time, is_gone, is_end = pid[order], time[order], is_gone[order], is_end[order]
    again = np.flatnonzero(is_gone[:-1] & ~is_end[1:] & (pid[1:] == pid[:-1])) + 1
    return [(int(pid[at]), int(time[at]), False) for at in again]


def points_of(threads: Threads, table: Array, times: Array, kind: int, chosen: Array) -> Array:
    rows = np.flatnonzero(chosen)
    made = np.zeros(len(rows), POINT)
    made["time"] = times[rows]
    made["thread"] = threads.at(table["pid"][rows].astype("i8"), made["time"])
    made["kind"] = kind
    made["ref"] = rows
    made["cpu"] = table["cpu"][rows]
    return made[made["thread"] >= 0]


def ordered(points: Array) -> Array:
    return points[np.lexsort((points["kind"], points["time"], points["thread"]))]


def scheduling(events: Events, threads: Threads) -> Array:
    """The points of the scheduler, with those wake-ups that end a wait."""
    tables = events.tables
    blocked = tables["BLOCKED"]
    ended = blocked["state"] & ENDED != 0
    parts = [
        points_of(threads, tables[name], tables[name]["time"], kind, chosen)
        for name, kind, chosen in (
            ("BACK", Point.BACK, tables["BACK"]["time"] >= 0),
            ("BLOCKED", Point.BLOCKED, ~ended),
            ("BLOCKED", Point.GONE, ended),
            ("PREEMPTED", Point.PREEMPTED, tables["PREEMPTED"]["time"] >= 0),
            ("WOKEN", Point.WOKEN, tables["WOKEN"]["time"] >= 0),
            ("SLEPT_BEFORE", Point.ASLEEP, tables["SLEPT_BEFORE"]["time"] >= 0),
        )
    ]
    parts.append(renumbered(tables["PROCESS_EXEC"], threads))
    starts = np.zeros(len(threads.pid), POINT)
    starts["thread"] = np.arange(len(threads.pid))
    starts["time"] = threads.first
    starts["kind"] = np.where(threads.born, Point.BORN, Point.BEFORE)
    starts["cpu"] = -1
    points = ordered(np.concatenate([starts, *parts]))
    # Threads are listed while they do things: what they did before that says more.
    kind = points["kind"]
    listed_late = (kind == Point.ASLEEP) & (np.r_[Point.BEFORE, kind[:-1]] != Point.BEFORE)
    return without_early(points[~listed_late])


def renumbered(executed: Array, threads: Threads) -> Array:
    """A thread that executes a program gets the number of its process: its own ends."""
    old = executed[executed["old_pid"] != executed["pid"]].copy()
    old["pid"] = old["old_pid"]
    return points_of(threads, old, old["time"], Point.RENUMBERED, old["pid"] > 0)


def without_early(points: Array) -> Array:
    """A wake-up counts if its thread waits. One that comes while the thread is still on its way to
    wait makes the wait end when it begins.
    """
    kind, thread = points["kind"], points["thread"]
    woken = kind == Point.WOKEN
    waits = (kind == Point.BLOCKED) | (kind == Point.ASLEEP)
    after_wait = np.r_[False, waits[:-1] & (thread[1:] == thread[:-1])]
    counts = ~woken | after_wait
    here = np.arange(len(points))
    last_woken = np.maximum.accumulate(np.where(woken & ~after_wait, here, -1))
    last_other = np.maximum.accumulate(np.where(~woken, here, -1))
    before = np.r_[-1, last_other[:-1]]
    ended_by_back = np.r_[(kind[1:] == Point.BACK) & (thread[1:] == thread[:-1]), False]
    early = (kind == Point.BLOCKED) & ended_by_back & (last_woken > before)
    points = points.copy()
    points["kind"][early] = Point.EARLY
    points["woken"][early] = points["ref"][last_woken[early]]
    return np.asarray(points[counts])


def with_losses(events: Events, threads: Threads, points: Array) -> Array:
    """Where events are missing, nothing is known from the last point before on. While a thread
    runs, its events are those of its CPU; who waits may be woken from any.
    """
    gaps, kind, time = events.gaps, points["kind"], points["time"]
    if not len(gaps) or not len(points):
        return points
    here = np.arange(len(points))
    at = np.maximum.accumulate(np.where(SCHEDULING[kind], here, 0))
    until = untils(events, threads, points)
    ran, gone, cpu = (
        kind[at] == Point.BACK,
        np.isin(kind[at], (Point.GONE, Point.RENUMBERED)),
        points["cpu"][at],
    )
    cuts = np.zeros(len(points), dtype=bool)
    cuts[~ran] = touched(gaps, time[~ran], until[~ran])
    everywhere = gaps["cpu"] == -1
    for one in np.unique(np.r_[cpu[ran], -1]):
        rows = ran & (cpu == one)
        cuts[rows] = touched(gaps[everywhere | (gaps["cpu"] == one)], time[rows], until[rows])
    cuts &= ~gone
    lost = points[cuts]
    lost["kind"] = Point.LOST
    # After all else of its time.
    return ordered(np.concatenate([points, lost]))


def untils(events: Events, threads: Threads, points: Array) -> Array:
    """When the next point of the thread is, or its number has another thread, or the log ends."""
    if not len(points):
        return np.zeros(0, "i8")
    thread, time, pid = points["thread"], points["time"], threads.pid
    ends = np.r_[np.where(pid[1:] == pid[:-1], threads.first[1:], events.end), events.end]
    after = np.where(thread[1:] == thread[:-1], time[1:], ends[thread[:-1]])
    return np.asarray(np.r_[after, ends[thread[-1]]])


def touched(gaps: Array, since: Array, until: Array) -> Array:
    """Whether any of the gaps is in these spans of time. One of no length is 1 ns long."""
    if not len(gaps):
        return np.zeros(len(since), bool)
    gaps = np.sort(gaps, order="since")
    ends = np.maximum.accumulate(np.maximum(gaps["until"], gaps["since"] + 1))
    last = np.searchsorted(gaps["since"], until, side="left") - 1
    return np.asarray((last >= 0) & (ends[last] > since))


def within(events: Events, threads: Threads) -> list[Array]:
    """Begins and ends of system calls and page faults."""
    tables = events.tables
    called, faulted, open_ = (tables[n] for n in ("CALLED", "FAULTED", "UNRETURNED"))
    still = begins_of(threads, open_, Point.CALL, open_["so_far"])
    still["ref"] += len(called)
    return [
        begins_of(threads, called, Point.CALL, call_times(threads, called)),
        all_of(threads, called, Point.CALL_END),
        still,
        begins_of(threads, faulted, Point.FAULT, faulted["took"]),
        all_of(threads, faulted, Point.FAULT_END),
        all_of(threads, tables["PROCESS_EXIT"], Point.ENDS),
    ]


def all_of(threads: Threads, table: Array, kind: int) -> Array:
    return points_of(threads, table, table["time"], kind, np.ones(len(table), bool))


def begins_of(threads: Threads, table: Array, kind: int, took: Array) -> Array:
    """Of events that are logged at the end; none begins before its thread."""
    made = all_of(threads, table, kind)
    begins = np.maximum(made["time"] - took[made["ref"]], threads.first[made["thread"]])
    kept = begins < made["time"]
    made["time"] = begins
    return np.asarray(made[kept])


def call_times(threads: Threads, called: Array) -> Array:
    """The first call of a thread may have begun before the recording, or before the thread: then it
    began with it. Of another one that took no time the begin was missed.
    """
    made = all_of(threads, called, Point.CALL_END)
    rows = made["ref"][np.unique(made["thread"], return_index=True)[1]]
    took = called["took"].copy()
    took[rows] = np.where(took[rows] == 0, NS_MAX, took[rows])
    return took
