# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The spans of threads with their bins: intervals without holes and overlaps.

Of an interval on a CPU, three amounts are known of which nobody knows when they were: interrupts,
what the hypervisor took, and what logging cost. They are spread over the stay on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from klogger.why import disks, ended, ends, occupants, requests, spans
from klogger.why.bins import COULD_RUN, RAN, UNKNOWN, Bins
from klogger.why.ends import Ends
from klogger.why.events import NONE, NS_MAX, THROTTLED, Array, Events, distinct
from klogger.why.occupants import Occupants
from klogger.why.points import Point
from klogger.why.requests import Requests
from klogger.why.spans import EXITS, NO_NUMBER, NOT_IN_CALL, Spans, State
from klogger.why.threads import Threads

AMOUNTS = ("interrupts", "stolen", "logging")


@dataclass
class Parts:
    """Sorted by thread and time. `target`: the thread that the wait was for; NONE: for none that
    is known. `amounts`: ns of AMOUNTS, a column each, that are not time of the bin.
    """

    thread: Array
    since: Array
    until: Array
    bin: Array
    target: Array
    amounts: Array

    @property
    def ns(self) -> Array:
        return self.until - self.since

    def copied(self, change: Callable[[Array], Array]) -> Parts:
        return Parts(*(change(column) for column in vars(self).values()))

    def without(self, first: int, behind: int) -> Parts:
        """All others, in the same memory."""
        left = len(self.thread) - (behind - first)
        for column in vars(self).values() if first < behind else ():
            column[first:left] = column[behind:]
        return self.copied(lambda column: column[:left])

    def lasted(self, threads: int, end: int) -> tuple[Array, Array]:
        """When each thread was there first and last; `end` and 0: never."""
        bounds = np.searchsorted(self.thread, np.arange(threads + 1))
        some = np.flatnonzero(np.diff(bounds))
        first, last = np.full(threads, end), np.zeros(threads, "i8")
        first[some] = self.since[bounds[some]]
        last[some] = self.until[bounds[some + 1] - 1]
        return first, last


def find(events: Events, threads: Threads, bins: Bins) -> Parts:
    busy, served, others = occupants.find(events), requests.find(events), ends.find(events)
    # Each event cuts the time of its thread once or twice.
    room = 2 * sum(len(table) for table in events.tables.values()) + len(threads.pid)
    whole, count = empty(room), 0
    for found in spans.find(events, threads):
        some = of_spans(events, found, bins, busy, served, others)
        behind = count + len(some.thread)
        if behind > room:
            room = 2 * behind
            whole = resized(whole, room)
        if some.amounts.itemsize > whole.amounts.itemsize:
            whole.amounts = whole.amounts.astype("i8")
        fill(whole, count, some)
        count = behind
    return whole.copied(lambda column: column[:count])


def empty(room: int) -> Parts:
    """Room for so many parts. What of it is not used takes no memory, nor do amounts that are 0."""
    thread, bin_, target = (np.empty(room, "i4") for _ in range(3))
    since, until = np.empty(room, "i8"), np.empty(room, "i8")
    return Parts(thread, since, until, bin_, target, no_amounts(room, "u4"))


def no_amounts(count: int, kind: str) -> Array:
    """Each amount is a column, whose values are next to each other."""
    return np.zeros((len(AMOUNTS), count), kind).T


def resized(parts: Parts, room: int) -> Parts:
    made = empty(room)
    made.amounts = made.amounts.astype(parts.amounts.dtype)
    fill(made, 0, parts)
    return made


def fill(whole: Parts, first: int, some: Parts) -> None:
    behind = first + len(some.thread)
    for name in ("thread", "since", "until", "bin", "target"):
        getattr(whole, name)[first:behind] = getattr(some, name)
    for column, amount in zip(whole.amounts.T, some.amounts.T, strict=True):
        if amount.any():
            column[first:behind] = amount


def of_spans(
    events: Events, found: Spans, bins: Bins, busy: Occupants, served: Requests, others: Ends
) -> Parts:
    bin_ = of_ran(events, found, bins)
    target = np.full(len(found), NONE, "i4")
    waited = np.flatnonzero(found.state == State.WAITED)
    bin_[waited], target[waited] = ended.of_waits(events, found, waited, bins, others)
    unknown = np.flatnonzero(found.state == State.UNKNOWN)
    bin_[unknown] = of_unknown(found, unknown, bins)
    amounts = amounts_of(events, found)
    is_whole = (found.state != State.QUEUED) & (found.state != State.GONE)
    rows, since, until, queued = of_queues(events, found, bins, busy)
    on_disk = disks.split(events, found, waited, bins, bin_, served)
    if len(on_disk.rows):
        is_whole[on_disk.rows] = False
        rows, since, until, queued = (
            np.concatenate(both) for both in zip((rows, since, until, queued),
                                                 vars(on_disk).values(), strict=True)
        )  # fmt: skip
    whole = np.flatnonzero(is_whole)
    if not len(rows) and len(whole) == len(found):
        return Parts(found.thread, found.since, found.until, bin_, target, amounts)
    order = np.argsort(np.r_[whole, rows], kind="stable")
    none = np.full(len(rows), NONE, "i4")
    return Parts(
        np.r_[found.thread[whole], found.thread[rows]][order],
        np.r_[found.since[whole], since][order],
        np.r_[found.until[whole], until][order],
        np.r_[bin_[whole], queued][order],
        np.r_[target[whole], none][order],
        np.concatenate([amounts[whole], np.zeros((len(rows), len(AMOUNTS)), amounts.dtype)])[order],
    )


def of_ran(events: Events, found: Spans, bins: Bins) -> Array:
    own = bins.number(RAN, "user code")
    kernel = bins.number(RAN, "kernel thread")
    minor = bins.number(RAN, "page fault", "minor")
    major = bins.number(RAN, "page fault", "major")
    ends = bins.number(RAN, "system call", "exit")
    unsure = bins.number(UNKNOWN, "lost", "it ran; the end of its system call is missing")
    # None is less than that.
    numbers, which = distinct(found.number - np.int64(NO_NUMBER))
    numbers += NO_NUMBER
    by_call = {
        int(n): bins.number(RAN, "system call", events.call(int(n))) for n in numbers[numbers >= 0]
    }
    no_number = bins.number(RAN, "system call", "without a number")
    by_call |= {EXITS: ends, NOT_IN_CALL: own, NO_NUMBER: no_number}
    chosen = np.array([by_call[n] for n in numbers.tolist()], dtype="i4")[which]
    chosen[(chosen == own) & found.threads.kernel[found.thread]] = kernel
    chosen[found.fault == 1] = minor
    chosen[found.fault == 2] = major
    chosen[found.unsure] = unsure
    return chosen


def of_unknown(found: Spans, rows: Array, bins: Bins) -> Array:
    before = bins.number(UNKNOWN, "before", "its first event")
    lost = bins.number(UNKNOWN, "lost", "events are missing")
    odd = bins.number(UNKNOWN, "not seen", "a switch that no event and no loss tells of")
    wake = bins.number(UNKNOWN, "lost", "its wake-up is not in the log")
    kind, leaves = found.kind[rows], found.leaves[rows]
    waiting = (kind == Point.BLOCKED) | (kind == Point.ASLEEP)
    return np.select(
        [kind == Point.BEFORE, waiting & (leaves == Point.BACK), kind == Point.LOST],
        [before, wake, lost], odd,
    )  # fmt: skip


def of_queues(events: Events, found: Spans, bins: Bins, busy: Occupants) -> tuple[Array, ...]:
    """Span, begin, end and bin of what a thread spent without a CPU that it could have used."""
    rows = np.flatnonzero(found.state == State.QUEUED)
    back = events.tables["BACK"]
    given = found.leaves[rows] == Point.BACK
    cpu = np.full(len(rows), -1)
    cpu[given] = back["cpu"][found.leaver[rows[given]]]
    span, since, until, who = occupants.during(busy, cpu, found.since[rows], found.until[rows])
    rows, cpu = rows[span], cpu[span]
    key = np.zeros(len(rows), QUEUED)
    key["who"], key["preempted"] = who, found.kind[rows] == Point.PREEMPTED
    key["throttled"] = begun(events, found, rows, "why") & THROTTLED != 0
    key["may"] = begun(events, found, rows, "cpus")
    # Which CPU it was does not matter, unless it is the only one.
    key["cpu"] = np.where(key["may"] == 1, cpu, 0)
    unique, which = np.unique(ended.codes(key), return_inverse=True)
    numbers = [queue_bin(events, bins, *key[at].item()) for at in ended.firsts(which, len(unique))]
    return rows, since, until, np.array(numbers, dtype="i4")[which]


# What the bin of such a stretch is from. `may`: on so many CPUs; 0: that is not known.
QUEUED = np.dtype([("who", "i8"), ("preempted", "?"), ("throttled", "?"), ("may", "i8"),
                   ("cpu", "i8")])  # fmt: skip


def begun(events: Events, found: Spans, rows: Array, name: str) -> Array:
    """A column of the event with which each thread began to wait for a CPU; 0: it has none."""
    said = np.zeros(len(rows), "i8")
    for point, table, row in (
        (Point.PREEMPTED, "PREEMPTED", found.ref), (Point.WOKEN, "WOKEN", found.ref),
        (Point.EARLY, "WOKEN", found.woken),
    ):  # fmt: skip
        here = found.kind[rows] == point
        said[here] = events.tables[table][name][row[rows][here]]
    return said


def queue_bin(
    events: Events, bins: Bins, who: int, preempted: bool, is_throttled: bool, may: int, cpu: int
) -> int:
    if is_throttled:
        return bins.number(COULD_RUN, "throttled", "by the quota of its control group")
    if who == 0:
        return bins.number(COULD_RUN, "wake-up", "of an idle CPU")
    where = affinity(events, may, cpu)
    if who == occupants.NOT_SEEN:
        return bins.number(COULD_RUN, "queued", f"behind what is not in the log{where}")
    if preempted:
        return bins.number(COULD_RUN, "preempted", f"by {events.program(who)}{where}")
    return bins.number(COULD_RUN, "queued", f"behind {events.program(who)}{where}")


def affinity(events: Events, may: int, cpu: int) -> str:
    """That a thread may use some CPUs only. Where there is one, that says nothing."""
    if may == 1 and events.cpus != 1:
        return ", on the only CPU that it may use" + (f" ({cpu})" if cpu >= 0 else "")
    if 1 < may < events.cpus:
        return f", on one of {may} CPUs that it may use"
    return ""


def amounts_of(events: Events, found: Spans) -> Array:
    """Of each span on a CPU the three amounts, which are never more than the span. Nearly all fit
    into 32 bits, and there are more of them than of all else.
    """
    ns = np.where(found.state == State.RAN, found.ns, 0)
    left = ns.copy()
    made = no_amounts(len(found), "i8" if ns.max(initial=0) >> 32 else "u4")
    for column, name in enumerate(("interrupted", "stolen")):
        if (total := totals(events, found, ns, name)).any():
            made[:, column] = np.minimum(spread(found, ns, total), left)
            left -= made[:, column]
    made[:, 2] = np.minimum(logging(events, found), left)
    return made


def totals(events: Events, found: Spans, ns: Array, name: str) -> Array:
    """An amount of each stay on a CPU, at its last span."""
    total = np.zeros(len(found), "i8")
    for points, table in (((Point.BLOCKED, Point.GONE, Point.EARLY), "BLOCKED"),
                          ((Point.PREEMPTED,), "PREEMPTED")):  # fmt: skip
        here = np.flatnonzero(np.isin(found.leaves, points) & (ns > 0))
        total[here] = events.tables[table][name][found.leaver[here]]
    return total


def spread(found: Spans, ns: Array, total: Array) -> Array:
    """An amount of each stay on a CPU, spread over its spans by their length, to the last ns."""
    begins = np.r_[True, found.quantum[1:] != found.quantum[:-1]]
    group = np.cumsum(begins) - 1
    whole = np.bincount(group, ns).astype("i8")[group]
    total = np.minimum(total, whole)
    upto = np.cumsum(ns)
    first = np.maximum.accumulate(np.where(begins, upto - ns, 0))
    share = total / np.maximum(whole, 1)
    high = np.floor((upto - first) * share).astype("i8")
    low = np.floor((upto - ns - first) * share).astype("i8")
    return np.asarray(np.where(upto - first == whole, total, high) - low)


def logging(events: Events, found: Spans) -> Array:
    """What the probes took that hit in a span: half of it before their point, half behind it; of a
    switch, what its probe does behind the switch.
    """

    def cost(name: str) -> float:
        return events.costs.get(name, 0.0)

    after, before = np.zeros(len(Point) + 1), np.zeros(len(Point) + 1)
    for point, name in (
        (Point.CALL, "CALLED"), (Point.CALL_END, "CALLED"), (Point.FAULT, "FAULTED"),
        (Point.FAULT_END, "FAULTED"),
    ):  # fmt: skip
        after[point] = before[point] = cost(name) / 2
    after[Point.BACK] = cost("BACK")
    return np.minimum(after[found.opens] + before[found.closes], NS_MAX).astype("i8")
