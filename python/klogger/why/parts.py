# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The spans of threads with their bins: intervals without holes and overlaps.

Of an interval on a CPU, three amounts are known of which nobody knows when they were: interrupts,
what the hypervisor took, and what logging cost. They are spread over the stay on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from klogger.why import occupants, spans, waits
from klogger.why.bins import COULD_RUN, RAN, UNKNOWN, WAITED, Bins
from klogger.why.events import NS_MAX, THROTTLED, Array, Events
from klogger.why.points import Point
from klogger.why.spans import EXITS, NO_NUMBER, NOT_IN_CALL, Spans, State

NOBODY = -1
AMOUNTS = ("interrupts", "stolen", "logging")


@dataclass
class Parts:
    """Sorted by thread and time. `target`: the thread that the wait was for; NOBODY: for none that
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


def find(events: Events, found: Spans, bins: Bins) -> Parts:
    ran = of_ran(events, found, bins)
    amounts = amounts_of(events, found)
    waited, target = of_waits(events, found, bins)
    unknown = of_unknown(found, bins)
    bin_ = np.select(
        [found.state == State.RAN, found.state == State.WAITED, found.state == State.UNKNOWN],
        [ran, waited, unknown], -1,
    )  # fmt: skip
    target = np.where(found.state == State.WAITED, target, NOBODY)
    whole = (found.state != State.QUEUED) & (found.state != State.GONE)
    queued = of_queues(events, found, bins)
    none = np.full(len(queued[0]), NOBODY)
    made = Parts(
        np.r_[found.thread[whole], queued[0]], np.r_[found.since[whole], queued[1]],
        np.r_[found.until[whole], queued[2]], np.r_[bin_[whole], queued[3]],
        np.r_[target[whole], none],
        np.concatenate([amounts[whole], np.zeros((len(none), len(AMOUNTS)), "i8")]),
    )  # fmt: skip
    order = np.lexsort((made.since, made.thread))
    return Parts(made.thread[order], made.since[order], made.until[order], made.bin[order],
                 made.target[order], made.amounts[order])  # fmt: skip


def of_ran(events: Events, found: Spans, bins: Bins) -> Array:
    own = bins.number(RAN, "user code")
    minor = bins.number(RAN, "page fault", "minor")
    major = bins.number(RAN, "page fault", "major")
    ends = bins.number(RAN, "system call", "exit")
    unsure = bins.number(UNKNOWN, "lost", "it ran; the end of its system call is missing")
    numbers = np.unique(found.number)
    by_call = {
        int(n): bins.number(RAN, "system call", events.call(int(n))) for n in numbers[numbers >= 0]
    }
    no_number = bins.number(RAN, "system call", "without a number")
    by_call |= {EXITS: ends, NOT_IN_CALL: own, NO_NUMBER: no_number}
    table = np.array([by_call[int(n)] for n in numbers], dtype="i8")
    chosen = table[np.searchsorted(numbers, found.number)] if len(numbers) else found.number
    chosen = np.where(found.fault == 1, minor, np.where(found.fault == 2, major, chosen))
    return np.where(found.unsure, unsure, chosen)


def of_unknown(found: Spans, bins: Bins) -> Array:
    before = bins.number(UNKNOWN, "before", "its first event")
    lost = bins.number(UNKNOWN, "lost", "events are missing")
    odd = bins.number(UNKNOWN, "not seen", "a switch that no event and no loss tells of")
    wake = bins.number(UNKNOWN, "lost", "its wake-up is not in the log")
    waiting = (found.kind == Point.BLOCKED) | (found.kind == Point.ASLEEP)
    return np.select(
        [found.kind == Point.BEFORE, waiting & (found.leaves == Point.BACK),
         found.kind == Point.LOST], [before, wake, lost], odd,
    )  # fmt: skip


def of_waits(events: Events, found: Spans, bins: Bins) -> tuple[Array, Array]:
    """Each wait's bin, and for which thread it was."""
    rows = np.flatnonzero(found.state == State.WAITED)
    bin_, target = np.full(len(found), -1), np.full(len(found), NOBODY)
    if not len(rows):
        return bin_, target
    keys, wakers = keys_of(events, found, rows)
    names, keys[:, 10] = names_of(events, wakers)
    unique, which = np.unique(keys, axis=0, return_inverse=True)
    judged = [
        waits.judge(events, waits.wait_of(key[:10], names[key[10]], key[11], key[12]))
        for key in as_ints(unique)
    ]
    numbers = np.array([bins.number(f.group, f.kind, f.what) for f in judged])
    follows = np.array([f.follows for f in judged])
    bin_[rows] = numbers[which.reshape(-1)]
    lives = found.threads.at(wakers.astype("i8"), found.until[rows])
    wanted = follows[which.reshape(-1)] & (wakers > 0) & (lives != found.thread[rows])
    target[rows] = np.where(wanted, lives, NOBODY)
    return bin_, target


def names_of(events: Events, pids: Array) -> tuple[list[str], Array]:
    """All names that these threads have, and the place of each in the list."""
    unique, which = np.unique(pids, return_inverse=True)
    called = [events.program(pid) if pid > 0 else "" for pid in unique.tolist()]
    names, place = np.unique(np.array(called, dtype=object), return_inverse=True)
    return names.tolist(), place.astype("i8")[which]


def as_ints(keys: Array) -> list[list[int]]:
    """Numbers of 64 bits were kept as signed ones."""
    return [
        [value % 2**64 if at in (5, 6) else value for at, value in enumerate(key)]
        for key in keys.tolist()
    ]


def keys_of(events: Events, found: Spans, rows: Array) -> tuple[Array, Array]:
    """What a wait is judged by, as `waits.Wait` has it; and who ended it."""
    blocked, asleep, woken = (events.tables[n] for n in ("BLOCKED", "SLEPT_BEFORE", "WOKEN"))
    is_asleep = found.kind[rows] == Point.ASLEEP
    has_end = found.leaves[rows] == Point.WOKEN
    b = np.where(is_asleep, 0, found.ref[rows])
    a = np.where(is_asleep, found.ref[rows], 0)
    w = np.where(has_end, found.leaver[rows], 0)

    def begun(name: str) -> Array:
        own = blocked[name][b].astype("i8") if len(blocked) else np.zeros(len(rows), "i8")
        other = (
            asleep[name][a].astype("i8")
            if len(asleep) and name in (asleep.dtype.names or ())
            else np.zeros(len(rows), "i8")
        )
        return np.where(is_asleep, other, own)

    def ended(name: str, without: int) -> Array:
        there = woken[name][w].astype("i8") if len(woken) else np.zeros(len(rows), "i8")
        return np.where(has_end, there, without)

    names = events.calls
    futexes = np.isin(begun("call"), [n for n, name in names.items() if "futex" in name])
    columns = [
        begun("call"), begun("stack"), begun("state"), begun("why"),
        (begun("lock") != 0).astype("i8"), np.where(futexes, begun("argument"), 0),
        begun("object"), has_end.astype("i8"), ended("source", 0), ended("number", 0),
        np.zeros(len(rows), "i8"), ended("call", -1), np.where(futexes, begun("tgid"), 0),
    ]  # fmt: skip
    return np.stack(columns, axis=1), ended("waker", 0)


def of_queues(events: Events, found: Spans, bins: Bins) -> tuple[Array, ...]:
    """Thread, begin, end and bin of what a thread spent without a CPU that it could have used."""
    rows = np.flatnonzero(found.state == State.QUEUED)
    back = events.tables["BACK"]
    given = found.leaves[rows] == Point.BACK
    cpu = np.where(given, back["cpu"][np.where(given, found.leaver[rows], 0)] if len(back) else -1,
                   -1)  # fmt: skip
    span, since, until, who = occupants.during(
        occupants.find(events), cpu, found.since[rows], found.until[rows]
    )
    rows = rows[span]
    preempted = found.kind[rows] == Point.PREEMPTED
    keys = np.stack([who, preempted, throttled(events, found, rows)], axis=1).astype("i8")
    unique, which = np.unique(keys, axis=0, return_inverse=True)
    numbers = np.array([queue_bin(events, bins, *key) for key in unique.tolist()], dtype="i8")
    chosen = numbers[which.reshape(-1)] if len(numbers) else np.zeros(0, "i8")
    return found.thread[rows], since, until, chosen


def throttled(events: Events, found: Spans, rows: Array) -> Array:
    """Whether its control group had used up its time when it began to wait for a CPU."""
    said = np.zeros(len(rows), bool)
    for point, name, row in (
        (Point.PREEMPTED, "PREEMPTED", found.ref), (Point.WOKEN, "WOKEN", found.ref),
        (Point.EARLY, "WOKEN", found.woken),
    ):  # fmt: skip
        here = found.kind[rows] == point
        said[here] = events.tables[name]["why"][row[rows][here]] & THROTTLED != 0
    return said


def queue_bin(events: Events, bins: Bins, who: int, preempted: int, is_throttled: int) -> int:
    if is_throttled:
        return bins.number(COULD_RUN, "throttled", "by the quota of its control group")
    if who == occupants.NOT_SEEN:
        return bins.number(COULD_RUN, "queued", "behind what is not in the log")
    if who == 0:
        return bins.number(COULD_RUN, "wake-up", "of an idle CPU")
    if preempted:
        return bins.number(COULD_RUN, "preempted", f"by {events.program(who)}")
    return bins.number(COULD_RUN, "queued", f"behind {events.program(who)}")


def amounts_of(events: Events, found: Spans) -> Array:
    """Of each span on a CPU the three amounts, which are never more than the span."""
    ns = np.where(found.state == State.RAN, found.ns, 0)
    left = ns.copy()
    made = np.zeros((len(found), len(AMOUNTS)), "i8")
    for column, name in enumerate(("interrupted", "stolen")):
        made[:, column] = np.minimum(spread(events, found, ns, name), left)
        left -= made[:, column]
    made[:, 2] = np.minimum(logging(events, found), left)
    return made


def spread(events: Events, found: Spans, ns: Array, name: str) -> Array:
    """An amount of each stay on a CPU, spread over its spans by their length, to the last ns."""
    if not len(ns):
        return ns
    total = np.zeros(len(found), "i8")
    for points, table in (((Point.BLOCKED, Point.GONE, Point.EARLY), "BLOCKED"),
                          ((Point.PREEMPTED,), "PREEMPTED")):  # fmt: skip
        here = np.isin(found.leaves, points) & (ns > 0)
        total[here] = events.tables[table][name][found.leaver[here]]
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


__all__ = ["AMOUNTS", "NOBODY", "WAITED", "Parts", "find", "spans"]
