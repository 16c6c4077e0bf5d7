# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The points in the time of each thread where its state may change: its own events, the beginnings
of what is logged at its end, and losses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from klogger.why.events import ENDED, NS_MAX, Array, Events, is_sorted
from klogger.why.threads import OWN, Threads


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

# `woken`: of what was woken early, the row of its wake-up. Aligned, as numpy computes with copies
# of columns that are not.
POINT = np.dtype(
    [
        ("time", "i8"),
        ("thread", "i4"),
        ("ref", "i4"),
        ("woken", "i4"),
        ("kind", "i1"),
    ],
    align=True,
)
BYTES = np.dtype((np.void, POINT.itemsize))
# Threads are worked on together that have about so many events: arrays of that many stay in the
# caches of a CPU.
GROUP = 1 << 17


def find(events: Events, threads: Threads) -> Iterator[Array]:
    """Of all threads, some at a time, ordered by thread and time."""
    rows = {name: by_thread(threads, table) for name, table in with_numbers(events)}
    count = np.sum([np.diff(one.start) for one in rows.values()], axis=0)
    for group in groups(count):
        some = Some(events, threads, rows, *group)
        points = merged([some.scheduling(), *some.within()])
        yield with_losses(events, threads, points)
        del points


def groups(count: Array) -> list[tuple[int, int]]:
    """Runs of threads with about so many events, of which each thread has `count`."""
    if not len(count):
        return []
    which = np.cumsum(count + 1) // GROUP
    first = np.flatnonzero(np.r_[True, which[1:] != which[:-1]])
    return list(zip(first.tolist(), [*first[1:].tolist(), len(count)], strict=True))


def with_numbers(events: Events) -> list[tuple[str, Array]]:
    """The tables that points are from. A thread that executes a program gets the number of its
    process: its own ends.
    """
    executed = events.tables["PROCESS_EXEC"]
    old = executed[(executed["old_pid"] != executed["pid"]) & (executed["old_pid"] > 0)].copy()
    old["pid"] = old["old_pid"]
    return [*((name, events.tables[name]) for name in (*OWN, "PROCESS_EXIT")), ("RENUMBERED", old)]


@dataclass
class ByThread:
    """The rows of a table by thread: those of thread `i` are `order[start[i]:start[i + 1]]`."""

    table: Array
    order: Array
    start: Array


def by_thread(threads: Threads, table: Array) -> ByThread:
    life = threads.at(table["pid"], table["time"])
    count = len(threads.pid)
    # Sorting by 16 bits takes a fraction of the time.
    narrow = life.astype("u2") if count < 0xFFFF else np.where(life < 0, count, life)
    order = np.argsort(narrow, kind="stable").astype("i4")
    sizes = np.bincount(life[life >= 0], minlength=count)
    return ByThread(table, order, np.r_[0, np.cumsum(sizes)])


@dataclass
class Some:
    """The threads from one to before another."""

    events: Events
    threads: Threads
    rows: dict[str, ByThread]
    first: int
    behind: int

    def points(self, name: str, kind: int) -> Array:
        """A point for each event of a table; rows of the table are their `ref`."""
        one = self.rows[name]
        bounds = one.start[self.first : self.behind + 1]
        rows = one.order[bounds[0] : bounds[-1]]
        made = np.zeros(len(rows), POINT)
        made["time"] = one.table["time"][rows]
        made["thread"] = np.repeat(np.arange(self.first, self.behind), np.diff(bounds))
        made["kind"] = kind
        made["ref"] = rows
        return made

    def scheduling(self) -> Array:
        """The points of the scheduler, with those wake-ups that end a wait."""
        blocked = self.points("BLOCKED", Point.BLOCKED)
        state = self.events.tables["BLOCKED"]["state"][blocked["ref"]]
        blocked["kind"][state & ENDED != 0] = Point.GONE
        starts = np.zeros(self.behind - self.first, POINT)
        starts["thread"] = np.arange(self.first, self.behind)
        starts["time"] = self.threads.first[self.first : self.behind]
        born = self.threads.born[self.first : self.behind]
        starts["kind"] = np.where(born, Point.BORN, Point.BEFORE)
        points = ordered(np.concatenate([
            starts, self.points("BACK", Point.BACK), blocked,
            self.points("PREEMPTED", Point.PREEMPTED), self.points("WOKEN", Point.WOKEN),
            self.points("SLEPT_BEFORE", Point.ASLEEP), self.points("RENUMBERED", Point.RENUMBERED),
        ]))  # fmt: skip
        # Threads are listed while they do things: what they did before that says more.
        kind = points["kind"]
        asleep = np.flatnonzero(kind == Point.ASLEEP)
        listed_late = asleep[kind[asleep - 1] != Point.BEFORE]
        return without_early(np.delete(points, listed_late) if len(listed_late) else points)

    def within(self) -> list[Array]:
        """Begins and ends of system calls and page faults."""
        tables = self.events.tables
        still = self.points("UNRETURNED", Point.CALL_END)
        open_ = tables["UNRETURNED"]["so_far"][still["ref"]]
        # Its rows come behind those of CALLED.
        still["ref"] += len(tables["CALLED"])
        still = self.with_begins(still, Point.CALL, open_)
        called = self.points("CALLED", Point.CALL_END)
        faulted = self.points("FAULTED", Point.FAULT_END)
        took = tables["FAULTED"]["took"][faulted["ref"]]
        return [
            self.with_begins(called, Point.CALL, self.call_times(called)),
            still[still["kind"] == Point.CALL],
            self.with_begins(faulted, Point.FAULT, took),
            self.points("PROCESS_EXIT", Point.ENDS),
        ]

    def with_begins(self, ends: Array, kind: int, took: Array) -> Array:
        """Of events that are logged at the end, each behind its begin: so they nearly are in
        order. None begins before its thread.
        """
        begins = np.maximum(ends["time"] - took, self.threads.first[ends["thread"]])
        made: Array = np.repeat(ends, 2)
        made["time"][::2] = begins
        made["kind"][::2] = kind
        has_begin = begins < ends["time"]
        if has_begin.all():
            return made
        kept = np.repeat(has_begin, 2)
        kept[1::2] = True
        return np.asarray(made.view(BYTES)[kept].view(POINT))

    def call_times(self, called: Array) -> Array:
        """The first call of a thread may have begun before the recording, or before the thread:
        then it began with it. Of another one that took no time the begin was missed.
        """
        took = self.events.tables["CALLED"]["took"][called["ref"]]
        thread = called["thread"]
        first = np.r_[True, thread[1:] != thread[:-1]][: len(thread)]
        return np.where(first & (took == 0), NS_MAX, took)


def ordered(points: Array) -> Array:
    """By thread, time and kind."""
    if not len(points):
        return points
    bits, first = widths(points)
    if not bits:
        return points[np.lexsort((points["kind"], points["time"], points["thread"]))]
    order = np.argsort(keys(points, bits, first), kind="stable")
    return points.view(BYTES)[order].view(POINT)


def merged(parts: list[Array]) -> Array:
    """All of them, by thread, time and kind. The longest one, which may be most of the memory, is
    in order already, unless the log is damaged.
    """
    parts = sorted(parts, key=len)
    many, few = parts.pop(), ordered(np.concatenate(parts))
    bits, first = widths(many, few)
    if not bits or not is_sorted(key := keys(many, bits, first)):
        return ordered(np.concatenate([few, many]))
    places = np.searchsorted(key, keys(few, bits, first), side="right")
    # As bytes: field by field it takes three times as long.
    return np.insert(many.view(BYTES), places, few.view(BYTES)).view(POINT)


def widths(*parts: Array) -> tuple[int, int]:
    """The bits of times and kinds, if threads fit into the others of 63, else 0; and the number of
    the first thread.
    """
    some = [one for one in parts if len(one)]
    bits = max((int(one["time"].max()) for one in some), default=0).bit_length() + 4
    first = min((int(one["thread"].min()) for one in some), default=0)
    last = max((int(one["thread"].max()) for one in some), default=0)
    return (bits if bits + (last - first).bit_length() <= 63 else 0), first


def keys(points: Array, bits: int, first: int) -> Array:
    """Numbers in the order of thread, time and kind; times are none before 0."""
    made = points["thread"].astype("i8")
    made -= first
    made <<= bits
    time = points["time"] << 4
    made |= time
    made |= points["kind"]
    return made


def without_early(points: Array) -> Array:
    """A wake-up counts if its thread waits. One that comes while the thread is still on its way to
    wait makes the wait end when it begins. Changes the points.
    """
    kind, thread = np.ascontiguousarray(points["kind"]), points["thread"]
    same = np.r_[thread[1:] == thread[:-1], False]
    woken = kind == Point.WOKEN
    waits = (kind == Point.BLOCKED) | (kind == Point.ASLEEP)
    after_wait = np.r_[False, (waits & same)[:-1]]
    idle = np.flatnonzero(woken & ~after_wait)
    if not len(idle):
        return points
    others = np.flatnonzero(~woken)
    # Those that have no CPU in between, as the next one says.
    early = np.flatnonzero((kind == Point.BLOCKED) & same)
    early = early[kind[early + 1] == Point.BACK]
    last_woken = np.r_[-1, idle][np.searchsorted(idle, early)]
    before = np.r_[-1, others][np.searchsorted(others, early)]
    is_early = last_woken > before
    early, last_woken = early[is_early], last_woken[is_early]
    points["kind"][early] = Point.EARLY
    points["woken"][early] = points["ref"][last_woken]
    kept = np.ones(len(points), bool)
    kept[idle] = False
    return points.view(BYTES)[kept].view(POINT)


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
    ran, gone = kind[at] == Point.BACK, np.isin(kind[at], (Point.GONE, Point.RENUMBERED))
    cpu = np.full(len(points), -1)
    cpu[ran] = events.tables["BACK"]["cpu"][points["ref"][at[ran]]]
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
