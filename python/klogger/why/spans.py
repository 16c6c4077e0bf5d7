# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The time of each thread, cut where its state changes.

An event of a thread is a point; the state between two points follows from the first of them, if the
second one can follow it. If it cannot, or if events are missing in between, the state is not known.

The time of a thread with many events is cut into pieces, each with as many points on both sides as
its spans depend on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from klogger.why import points as of_points
from klogger.why.events import IN_CALL, IN_FAULT, Array, Events
from klogger.why.points import LEAVES, SCHEDULING, Point, untils
from klogger.why.threads import Threads

# Of about so many points.
PIECE = 1 << 17


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
STATES = np.array([AFTER.get(kind, State.UNKNOWN) for kind in Point], "i1")
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


@dataclass
class Piece:
    """Of the points of some threads those from `first` to before `behind`, which are known in full:
    those before and behind them are only there to tell what is known of these.
    """

    points: Array
    first: int
    behind: int


def find(events: Events, threads: Threads) -> Iterator[Spans]:
    """Of all threads, some at a time."""
    for points in of_points.find(events, threads):
        for piece in pieces(points):
            yield cut(events, threads, piece)


def pieces(points: Array) -> Iterator[Piece]:
    """A piece begins where its thread gets a CPU. What it is doing there follows from the two ends
    or begins of system calls before, if no page fault is under way at the first of them; and what
    it was doing before is not told by anything behind the next one.
    """
    first, since = 0, 0
    if len(points) > PIECE:
        at, before, behind = places(points)
        while (here := int(np.searchsorted(at, first + PIECE))) < len(at):
            yield Piece(points[since : behind[here]], first - since, int(at[here]) - since)
            first, since = int(at[here]), int(before[here])
    yield Piece(points[since:], first - since, len(points) - since)


def places(points: Array) -> tuple[Array, Array, Array]:
    """Where a piece may begin, from where on its points must be known for that, and up to where
    those of the piece before.
    """
    kind, thread = np.ascontiguousarray(points["kind"]), points["thread"]
    calls = np.flatnonzero(CALLS[kind])
    back = np.flatnonzero(kind == Point.BACK)
    coming = np.searchsorted(calls, back)
    inside = (coming >= 2) & (coming < len(calls))
    back, coming = back[inside], coming[inside]
    before, behind = calls[coming - 2], calls[coming]
    faults = np.r_[0, np.flatnonzero(FAULTS[kind])]
    fault = faults[np.searchsorted(faults[1:], before, side="right")]
    in_fault = (kind[fault] == Point.FAULT) & (thread[fault] == thread[before])
    good = (thread[before] == thread[behind]) & ~in_fault
    return back[good], before[good], behind[good] + 1


# A return from a signal's handler has no number, nor has a call that a debugger has forbidden.
NO_NUMBER = -3
EXITS = -2
NOT_IN_CALL = -1


CALLS = np.isin(list(Point), [Point.CALL, Point.CALL_END, Point.ENDS])
FAULTS = np.isin(list(Point), [Point.FAULT, Point.FAULT_END])
OFF = np.isin(list(Point), LEAVES)


@dataclass
class Order:
    """The points of a piece, column by column. `here`: their places; `first`: that of the first
    point of the same thread.
    """

    kind: Array
    thread: Array
    ref: Array
    here: Array
    first: Array


def order_of(points: Array) -> Order:
    kind, thread, ref = (np.ascontiguousarray(points[n]) for n in ("kind", "thread", "ref"))
    here = np.arange(len(points), dtype="i4")
    begins = np.r_[True, thread[1:] != thread[:-1]][: len(points)]
    first = np.maximum.accumulate(np.where(begins, here, 0))
    return Order(kind, thread, ref, here, first)


def cut(events: Events, threads: Threads, piece: Piece) -> Spans:
    points = piece.points
    order = order_of(points)
    kind, thread, here = order.kind, order.thread, order.here
    time = np.ascontiguousarray(points["time"])
    until = untils(events, threads, points)
    scheduled = SCHEDULING[kind]
    at = np.maximum.accumulate(np.where(scheduled, here, 0))
    state = np.where(at >= order.first, STATES[kind[at]], State.UNKNOWN)
    following = next_of(scheduled, order)
    fits = (following < 0) | NEXT[kind[at], kind[following]]
    state = np.where(fits | (state == State.GONE), state, State.UNKNOWN)
    number = calls_of(events, order)
    fault = faults_of(events, order)
    unsure = unsure_of(events, order, number, fault)
    next_kind = np.where(np.r_[thread[1:] == thread[:-1], False], np.r_[kind[1:], -1], -1)
    inside = until > time
    inside[: piece.first] = inside[piece.behind :] = False
    kept = np.flatnonzero(inside)
    at, following = at[kept], following[kept]
    return Spans(
        threads, thread[kept], time[kept], until[kept], state[kept], kind[at], order.ref[at],
        points["woken"][at], number[kept], fault[kept], unsure[kept],
        np.where(following >= 0, kind[following], -1),
        np.where(following >= 0, order.ref[following], -1),
        at, kind[kept], next_kind[kept],
    )  # fmt: skip


def next_of(chosen: Array, order: Order) -> Array:
    """For each point the next chosen one of its thread, behind it; -1: none."""
    here, thread = order.here, order.thread
    if not len(here):
        return here
    far = len(here)
    coming = np.minimum.accumulate(np.where(chosen, here, far)[::-1])[::-1]
    found = np.append(coming[1:], np.int32(far))
    good = found < far
    found[~good] = 0
    return np.where(good & (thread[found] == thread), found, -1)


def last_of(chosen: Array, order: Order) -> Array:
    """For each point the last chosen one of its thread, itself included; -1: none."""
    found = np.maximum.accumulate(np.where(chosen, order.here, -1))
    return np.where(found >= order.first, found, -1)


def calls_of(events: Events, order: Order) -> Array:
    """The system call that a thread is in from each point on."""
    called, open_ = events.tables["CALLED"]["call"], events.tables["UNRETURNED"]["call"]
    kind, ref = order.kind, order.ref
    begins, ends = kind == Point.CALL, kind == Point.ENDS
    found = np.full(len(kind), NOT_IN_CALL, "i4")
    rows = np.flatnonzero(begins & (ref < len(called)))
    found[rows] = called[ref[rows]]
    rows = np.flatnonzero(begins & (ref >= len(called)))
    found[rows] = open_[ref[rows] - len(called)]
    found[begins & (found < 0)] = NO_NUMBER
    found[ends] = EXITS
    at = last_of(CALLS[kind], order)
    return np.where(at >= 0, found[at], NOT_IN_CALL)


def faults_of(events: Events, order: Order) -> Array:
    kind = order.kind
    found = np.zeros(len(kind), "i1")
    rows = np.flatnonzero(kind == Point.FAULT)
    if not len(rows):
        return found
    found[rows] = 1 + events.tables["FAULTED"]["major"][order.ref[rows]]
    at = last_of(FAULTS[kind], order)
    return np.where(at >= 0, found[at], 0)


def unsure_of(events: Events, order: Order, number: Array, fault: Array) -> Array:
    """A thread leaves its CPU in a system call, or in a page fault, whose end is not in the log:
    since when it was in it is not known, nor how long it will be. Or nothing says yet whether it is
    in a system call that it was in at first.
    """
    kind, here = order.kind, order.here
    off, calls = OFF[kind], CALLS[kind]
    says_call, says_fault, in_program = what_leaves(events, order)
    before = np.maximum(here - 1, 0)
    out = (number[before] == NOT_IN_CALL) & says_call | (fault[before] == 0) & says_fault
    # Nothing but the end is known of an exit whose beginning is missing, or of such a call.
    out = off & out | (kind == Point.GONE) & (number[before] != EXITS)
    out |= (kind == Point.CALL_END) & (number[before] == NOT_IN_CALL)
    wrong = out & (here > order.first)
    unsure = np.zeros(len(kind), bool)
    if wrong.any():
        marks = off | calls
        last, coming = last_of(marks, order), next_of(marks, order)
        unsure = ((last >= 0) & wrong[last]) | ((coming >= 0) & wrong[coming])
    if len(events.tables["CALLED"]) or len(events.tables["UNRETURNED"]):
        unsure |= unsure_at_first(order, calls | in_program)
    # A page fault that is in the log is the innermost of all.
    return np.asarray(unsure & (fault == 0))


def what_leaves(events: Events, order: Order) -> tuple[Array, ...]:
    """Of points where a thread leaves its CPU: whether it says to be in a system call or in a page
    fault whose begin was seen, or in no system call.
    """
    call, why = np.zeros(len(order.kind), "i4"), np.zeros(len(order.kind), "i4")
    for one in LEAVES:
        rows = np.flatnonzero(order.kind == one)
        table = events.tables["PREEMPTED" if one == Point.PREEMPTED else "BLOCKED"]
        call[rows] = table["call"][order.ref[rows]]
        why[rows] = table["why"][order.ref[rows]]
    return why & IN_CALL != 0, why & IN_FAULT != 0, call < 0


def unsure_at_first(order: Order, says: Array) -> Array:
    """Up to the first point that says whether it is in a system call: what is in none there was in
    none before, or its return would be in the log, unless events are lost.
    """
    none_before = last_of(says, order) < 0
    if not none_before.any():
        return none_before
    coming = next_of(says | (order.kind == Point.LOST), order)
    return np.asarray(none_before & ((coming < 0) | (order.kind[coming] == Point.LOST)))
