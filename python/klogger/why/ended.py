# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The waits of threads: what is known of each, from the event with which it began, and from the
wake-up that ended it. Waits of which the same is known are judged together.
"""

from __future__ import annotations

import numpy as np

from klogger.why import sockets, waits
from klogger.why.bins import Bins
from klogger.why.ends import WRITES, Ends
from klogger.why.events import BY_REQUEST, Array, Events
from klogger.why.points import Point
from klogger.why.requests import groups
from klogger.why.spans import Spans

# What a wait is judged by, as `waits.Wait` has it; names of programs are numbers here.
KNOWN = np.dtype([
    ("call", "i8"), ("stack", "i8"), ("state", "i8"), ("why", "i8"), ("lock", "?"),
    ("argument", "u8"), ("object", "u8"), ("woken", "?"), ("source", "i8"), ("number", "i8"),
    ("waker", "i8"), ("waker_call", "i8"), ("process", "i8"), ("request", "?"), ("ready", "u8"),
    ("other", "i8"), ("tcp", "i8"),
])  # fmt: skip


def of_waits(
    events: Events, found: Spans, rows: Array, bins: Bins, ends: Ends
) -> tuple[Array, Array]:
    """The bin of each of these spans, and for which thread it was; -1: for none that is known."""
    wakers = woken(events, found, rows, "waker", 0)
    names, waker = names_of(events, wakers)
    known = known_of(events, found, rows)
    known["waker"] = waker
    names += at_other_ends(events, found, rows, known, ends, len(names))
    unique, which = np.unique(codes(known), return_inverse=True)
    judged = [judge(events, known[at], names) for at in firsts(which, len(unique))]
    numbers = np.array([bins.number(f.group, f.kind, f.what) for f in judged], dtype="i4")
    follows = np.array([f.follows for f in judged], dtype=bool)
    lives = found.threads.at(wakers, found.until[rows])
    wanted = follows[which] & (wakers > 0) & (lives != found.thread[rows])
    return numbers[which], np.where(wanted, lives, -1)


def judge(events: Events, known: Array, names: list[str]) -> waits.Found:
    values = dict(zip(KNOWN.names or (), known.item(), strict=True))
    for name in ("waker", "other"):
        values[name] = names[values[name]]
    return waits.judge(events, waits.Wait(**values))


def firsts(which: Array, count: int) -> list[int]:
    """Where each of the numbers up to `count` is for the first time."""
    found = np.zeros(count, "i8")
    found[which[::-1]] = np.arange(len(which))[::-1]
    return found.tolist()


def codes(known: Array) -> Array:
    """A number for each row, equal for equal rows: column by column, as most have few values."""
    made = np.zeros(len(known), "i8")
    for name in known.dtype.names or ():
        column = known[name]
        if not len(column) or (column == column[0]).all():
            continue
        unique, which = np.unique(column, return_inverse=True)
        made = made * len(unique) + which
        # So that the product stays below the square of the number of rows.
        made = np.unique(made, return_inverse=True)[1]
    return made


def names_of(events: Events, pids: Array) -> tuple[list[str], Array]:
    """All names that these threads have, and the place of each in the list."""
    unique, which = np.unique(pids, return_inverse=True)
    called = [events.program(pid) if pid > 0 else "" for pid in unique.tolist()]
    names, place = np.unique(np.array(called, dtype=object), return_inverse=True)
    return names.tolist(), place.astype("i8")[which]


def known_of(events: Events, found: Spans, rows: Array) -> Array:
    known = np.zeros(len(rows), KNOWN)
    begun = np.zeros(len(rows), events.tables["BLOCKED"].dtype)
    asleep = found.kind[rows] == Point.ASLEEP
    begun[~asleep] = events.tables["BLOCKED"][found.ref[rows[~asleep]]]
    before = events.tables["SLEPT_BEFORE"][found.ref[rows[asleep]]]
    for name in ("state", "call"):
        begun[name][asleep] = before[name]
    for name in ("call", "stack", "state", "why", "object"):
        known[name] = begun[name]
    known["lock"] = begun["lock"] != 0
    futexes = events.among(begun["call"], waits.FUTEX.match)
    known["argument"] = np.where(futexes, begun["argument"], 0)
    known["process"] = np.where(futexes, begun["tgid"], 0)
    known["woken"] = found.leaves[rows] == Point.WOKEN
    known["source"] = woken(events, found, rows, "source", 0)
    known["number"] = woken(events, found, rows, "number", 0)
    known["waker_call"] = woken(events, found, rows, "call", -1)
    known["request"] = woken(events, found, rows, "why", 0) & BY_REQUEST != 0
    known["ready"] = woken(events, found, rows, "ready", 0)
    return known


def at_other_ends(
    events: Events, found: Spans, rows: Array, known: Array, ends: Ends, first: int
) -> list[str]:
    """Fills in who is at the other end of what each wait is for, and what TCP did in between. The
    names; `first`: the number that the first of them gets, which stands for none.
    """
    thing = np.where(known["ready"] != 0, known["ready"], known["object"])
    known["other"] = first
    writes = events.among(known["call"], WRITES.__contains__)
    names, spans = [""], []
    for key, here in groups(thing, np.flatnonzero(thing != 0)):
        if key in events.sockets.all:
            at = rows[here]
            spans.append((key, here, found.since[at], found.until[at]))
            names.append(ends.of_socket(key))
            known["other"][here] = first + len(names) - 1
        elif events.objects.get(key, "").startswith("pipe:"):
            for is_write, some in groups(writes, here):
                names.append(ends.of_pipe(key, bool(is_write)))
                known["other"][some] = first + len(names) - 1
    known["tcp"] = sockets.flags(events.sockets, spans, len(rows))
    return names


def woken(events: Events, found: Spans, rows: Array, name: str, without: int) -> Array:
    """A column of the wake-up that ended each of these spans."""
    kind = events.tables["WOKEN"].dtype[name]
    made = np.full(len(rows), without, kind if kind.kind == "u" else "i8")
    has_end = found.leaves[rows] == Point.WOKEN
    made[has_end] = events.tables["WOKEN"][name][found.leaver[rows[has_end]]]
    return made
