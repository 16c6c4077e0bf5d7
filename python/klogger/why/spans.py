# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The time of each thread, cut where its state changes.

An event of a thread is a point; the state between two points follows from the first of them, if the
second one can follow it. If it cannot, or if events are missing in between, the state is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from klogger.why import points as of_points
from klogger.why.events import IN_CALL, IN_FAULT, Array, Events
from klogger.why.points import LEAVES, SCHEDULING, Point, Threads, untils


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
    Point.GONE: State.GONE, Point.RENUMBERED: State.GONE,
}  # fmt: skip
STATES = np.array([AFTER.get(kind, State.UNKNOWN) for kind in Point])
# Whether the second point of the scheduler can come next; nothing comes after the end.
NEXT = np.zeros((len(Point), len(Point)), dtype=bool)
NEXT[Point.BACK, [*LEAVES, Point.RENUMBERED]] = True
NEXT[[Point.PREEMPTED, Point.EARLY, Point.WOKEN, Point.BORN], Point.BACK] = True
NEXT[[Point.BLOCKED, Point.ASLEEP], Point.WOKEN] = True
NEXT[[Point.BEFORE, Point.LOST]] = True
NEXT[:, Point.LOST] = True


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


def find(events: Events) -> Spans:
    threads, points = of_points.find(events)
    return cut(events, threads, points)


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
