# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The time of each thread, cut where its state changes.

An event of a thread is a point; the state between two points follows from the first of them, if the
second one can follow it. If it cannot, or if events are missing in between, the state is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from klogger.why.events import ENDED, IN_CALL, IN_FAULT, NS_MAX, Array, Events


class Point(IntEnum):
    """Kinds of points, in the order that they have at one time: what ends, what begins, then that
    it leaves its CPU, and the rest.
    """

    FAULT_END = 0
    CALL_END = 1
    CALL = 2
    FAULT = 3
    ENDS = 4  # it exits; it runs on until it leaves the CPU for the last time
    BLOCKED = 5
    PREEMPTED = 6
    EARLY = 7  # blocked, but woken already
    WOKEN = 8
    BORN = 9
    BACK = 10
    BEFORE = 11  # the recording begins, and nothing is known of the thread yet
    ASLEEP = 12  # the same, but it waits
    LOST = 13  # from here on nothing is known, up to the next event of the scheduler
    GONE = 14


class State(IntEnum):
    RAN = 0
    QUEUED = 1
    WAITED = 2
    UNKNOWN = 3
    GONE = 4


# What a point of the scheduler makes of its thread.
AFTER = {
    Point.BLOCKED: State.WAITED, Point.PREEMPTED: State.QUEUED, Point.EARLY: State.QUEUED,
    Point.WOKEN: State.QUEUED, Point.BORN: State.QUEUED, Point.BACK: State.RAN,
    Point.BEFORE: State.UNKNOWN, Point.ASLEEP: State.WAITED, Point.LOST: State.UNKNOWN,
    Point.GONE: State.GONE,
}  # fmt: skip
SCHEDULING = np.array([kind in AFTER for kind in Point])
STATES = np.array([AFTER.get(kind, State.UNKNOWN) for kind in Point])
# Where a thread leaves its CPU.
LEAVES = (Point.BLOCKED, Point.PREEMPTED, Point.EARLY, Point.GONE)
# Whether the second point of the scheduler can come next; nothing comes after the end.
NEXT = np.zeros((len(Point), len(Point)), dtype=bool)
NEXT[Point.BACK, LEAVES] = True
NEXT[[Point.PREEMPTED, Point.EARLY, Point.WOKEN, Point.BORN], Point.BACK] = True
NEXT[[Point.BLOCKED, Point.ASLEEP], Point.WOKEN] = True
NEXT[[Point.BEFORE, Point.LOST]] = True
NEXT[:, Point.LOST] = True


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


@dataclass
class Spans:
    """Sorted by thread and time, without holes between the first and the last of each thread.

    `ref`: the row of the event that `state` is from, in the table of `kind`: the point of the
    scheduler. `woken`: the row of its wake-up, if it was woken early. `number`: of the system call;
    -1: in none. `fault`: 0 none, 1 minor, 2 major. `unsure`: it ran, but in what is not known.
    `leaves`, `leaver`: kind and row of the next point of the scheduler, -1: none. `quantum`: equal
    for all spans between two points of the scheduler. `opens`, `closes`: the kinds of the points,
    of any kind, between which it is; -1: it lasts until the log ends.
    """

    threads: Threads
    thread: Array
    since: Array
    until: Array
    state: Array
    kind: Array
    ref: Array
    woken: Array
    number: Array
    fault: Array
    unsure: Array
    leaves: Array
    leaver: Array
    quantum: Array
    opens: Array
    closes: Array

    def __len__(self) -> int:
        return len(self.since)

    @property
    def ns(self) -> Array:
        return self.until - self.since


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


def find(events: Events) -> Spans:
    threads = lives(events)
    points = ordered(np.concatenate([scheduling(events, threads), *within(events, threads)]))
    return cut(events, threads, with_losses(events, threads, points))


def lives(events: Events) -> Threads:
    """All threads that have any event of their own."""
    born = events.tables["PROCESS_FORK"]
    seen = [
        events.tables[name]
        for name in ("BACK", "BLOCKED", "PREEMPTED", "WOKEN", "CALLED", "FAULTED", "SLEPT_BEFORE")
    ]
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
    rows.sort()
    return Threads(
        *(np.array([row[i] for row in rows], dtype=t) for i, t in enumerate(("i8", "i8", "?")))
    )


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
    starts = np.zeros(len(threads.pid), POINT)
    starts["thread"] = np.arange(len(threads.pid))
    starts["time"] = threads.first
    starts["kind"] = np.where(threads.born, Point.BORN, Point.BEFORE)
    starts["cpu"] = -1
    points = ordered(np.concatenate([starts, *parts]))
    return without_early(points)


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
    gaps, kind, thread, time = events.gaps, points["kind"], points["thread"], points["time"]
    if not len(gaps) or not len(points):
        return points
    here = np.arange(len(points))
    at = np.maximum.accumulate(np.where(SCHEDULING[kind], here, 0))
    until = untils(events, threads, points)
    ran, gone, cpu = kind[at] == Point.BACK, kind[at] == Point.GONE, points["cpu"][at]
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
    return np.r_[np.where(thread[1:] == thread[:-1], time[1:], ends[thread[:-1]]), ends[thread[-1]]]


def touched(gaps: Array, since: Array, until: Array) -> Array:
    """Whether any of the gaps is in these spans of time. One of no length is 1 ns long."""
    if not len(gaps):
        return np.zeros(len(since), bool)
    gaps = np.sort(gaps, order="since")
    ends = np.maximum.accumulate(np.maximum(gaps["until"], gaps["since"] + 1))
    last = np.searchsorted(gaps["since"], until, side="left") - 1
    return (last >= 0) & (ends[last] > since)


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
    return made[kept]


def call_times(threads: Threads, called: Array) -> Array:
    """The first call of a thread may have begun before the recording, or before the thread: then it
    began with it. Of another one that took no time the begin was missed.
    """
    made = all_of(threads, called, Point.CALL_END)
    rows = made["ref"][np.unique(made["thread"], return_index=True)[1]]
    took = called["took"].copy()
    took[rows] = np.where(took[rows] == 0, NS_MAX, took[rows])
    return took


# A return from a signal's handler has no number, nor has a call that a debugger has forbidden.
NO_NUMBER = -3
EXITS = -2
NOT_IN_CALL = -1


def cut(events: Events, threads: Threads, points: Array) -> Spans:
    kind, thread, time, ref = (points[n] for n in ("kind", "thread", "time", "ref"))
    here = np.arange(len(points))
    begins = np.r_[True, thread[1:] != thread[:-1]] if len(points) else np.zeros(0, dtype=bool)
    first = np.maximum.accumulate(np.where(begins, here, 0)) if len(points) else here
    until = untils(events, threads, points)
    scheduled = SCHEDULING[kind]
    at = np.maximum.accumulate(np.where(scheduled, here, 0)) if len(points) else here
    state = np.where(at >= first, STATES[kind[at]], State.UNKNOWN)
    following = next_of(scheduled, thread, here)
    fits = (following < 0) | NEXT[kind[at], kind[following]]
    state = np.where(fits | (state == State.GONE), state, State.UNKNOWN)
    number = calls_of(events, points, first)
    fault = faults_of(events, points, first)
    unsure = unsure_of(events, points, first, number, fault)
    kept = until > time
    return Spans(
        threads, thread[kept], time[kept], until[kept], state[kept], kind[at][kept],
        ref[at][kept], points["woken"][at][kept], number[kept], fault[kept], unsure[kept],
        np.where(following >= 0, kind[following], -1)[kept],
        np.where(following >= 0, ref[following], -1)[kept],
        at[kept], kind[kept],
        np.where(np.r_[thread[1:] == thread[:-1], False], np.r_[kind[1:], -1], -1)[kept],
    )  # fmt: skip


def next_of(chosen: Array, thread: Array, here: Array) -> Array:
    """For each point the next chosen one of its thread, behind it; -1: none."""
    if not len(here):
        return here
    far = len(here)
    coming = np.minimum.accumulate(np.where(chosen, here, far)[::-1])[::-1]
    found = np.r_[coming[1:], far]
    good = found < far
    found = np.where(good, found, 0)
    return np.where(good & (thread[found] == thread), found, -1)


def last_of(chosen: Array, here: Array, first: Array) -> Array:
    """For each point the last chosen one of its thread, itself included; -1: none."""
    if not len(here):
        return here
    found = np.maximum.accumulate(np.where(chosen, here, -1))
    return np.where(found >= first, found, -1)


def calls_of(events: Events, points: Array, first: Array) -> Array:
    """The system call that a thread is in from each point on."""
    kind, ref = points["kind"], points["ref"]
    here = np.arange(len(points))
    marks = np.isin(kind, [Point.CALL, Point.CALL_END, Point.ENDS])
    at = last_of(marks, here, first)
    numbers = np.r_[events.tables["CALLED"]["call"], events.tables["UNRETURNED"]["call"], 0]
    inside = (at >= 0) & (kind[at] == Point.CALL)
    found = numbers[np.where(inside, ref[at], -1)]
    found = np.where(inside, np.where(found < 0, NO_NUMBER, found), NOT_IN_CALL)
    return np.where((at >= 0) & (kind[at] == Point.ENDS), EXITS, found)


def faults_of(events: Events, points: Array, first: Array) -> Array:
    kind, ref = points["kind"], points["ref"]
    here = np.arange(len(points))
    at = last_of((kind == Point.FAULT) | (kind == Point.FAULT_END), here, first)
    inside = (at >= 0) & (kind[at] == Point.FAULT)
    major = np.r_[events.tables["FAULTED"]["major"], 0]
    return np.where(inside, 1 + major[np.where(inside, ref[at], -1)], 0)


def unsure_of(events: Events, points: Array, first: Array, number: Array, fault: Array) -> Array:
    """A thread leaves its CPU in a system call, or in a page fault, whose end is not in the log:
    since when it was in it is not known, nor how long it will be. Or nothing says yet whether it is
    in a system call that it was in at first.
    """
    kind, thread = points["kind"], points["thread"]
    here = np.arange(len(points))
    off = np.isin(kind, LEAVES)
    calls = np.isin(kind, [Point.CALL, Point.CALL_END, Point.ENDS])
    says_call, says_fault, in_program = what_leaves(events, points)
    before = np.maximum(here - 1, 0)
    out = (number[before] == NOT_IN_CALL) & says_call | (fault[before] == 0) & says_fault
    # Nothing but the end is known of an exit whose beginning is missing, or of such a call.
    out = off & out | (kind == Point.GONE) & (number[before] != EXITS)
    out |= (kind == Point.CALL_END) & (number[before] == NOT_IN_CALL)
    wrong = out & (here > first)
    marks = off | calls
    last, coming = last_of(marks, here, first), next_of(marks, thread, here)
    unsure = ((last >= 0) & wrong[last]) | ((coming >= 0) & wrong[coming])
    if len(events.tables["CALLED"]) or len(events.tables["UNRETURNED"]):
        unsure |= unsure_at_first(points, first, calls | in_program)
    # A page fault that is in the log is the innermost of all.
    return np.asarray(unsure & (fault == 0))


def what_leaves(events: Events, points: Array) -> tuple[Array, ...]:
    """Of points where a thread leaves its CPU: whether it says to be in a system call or in a page
    fault whose begin was seen, or in no system call.
    """
    call, why = np.zeros(len(points), "i8"), np.zeros(len(points), "i8")
    for one in LEAVES:
        rows = points["kind"] == one
        table = events.tables["PREEMPTED" if one == Point.PREEMPTED else "BLOCKED"]
        call[rows] = table["call"][points["ref"][rows]]
        why[rows] = table["why"][points["ref"][rows]]
    return why & IN_CALL != 0, why & IN_FAULT != 0, call < 0


def unsure_at_first(points: Array, first: Array, says: Array) -> Array:
    """Up to the first point that says whether it is in a system call: what is in none there was in
    none before, or its return would be in the log, unless events are lost.
    """
    kind, thread = points["kind"], points["thread"]
    here = np.arange(len(points))
    coming = next_of(says | (kind == Point.LOST), thread, here)
    none_before = last_of(says, here, first) < 0
    return np.asarray(none_before & ((coming < 0) | (kind[coming] == Point.LOST)))
