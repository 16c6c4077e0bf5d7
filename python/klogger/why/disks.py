# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Waits for disks, cut by the stages of the request that each was for: `requests` has these."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from klogger.log import Log
from klogger.units import show
from klogger.why import ended
from klogger.why.bins import WAITED, Bin, Bins
from klogger.why.events import BY_REQUEST, NONE, Array, Events
from klogger.why.points import Point, touched
from klogger.why.requests import Requests, place_of
from klogger.why.spans import Spans

# The bins of waits that requests may explain.
KINDS = ("disk", "page fault from disk")
# Of less of the time nobody asks which requests it was.
SHARE = 0.1
COMMAND = "'klogger why -a -s block -- COMMAND'"


class Stage(IntEnum):
    BEFORE = 0  # nobody has asked for the request yet
    QUEUED = 1  # its driver does not have it yet
    DEVICE = 2
    AFTER = 3  # it is done, and the thread waits on
    FULL = 4  # the device has as many requests as it can have
    THROTTLED = 5


TEXTS = {
    Stage.BEFORE: "before {kind} on {device}", Stage.QUEUED: "queued {kind} on {device}",
    Stage.DEVICE: "{kind} on {device}", Stage.AFTER: "after {kind} on {device}",
    Stage.FULL: "for a free request of {device}", Stage.THROTTLED: "throttled on {device}",
}  # fmt: skip
# Functions in which a thread waits before it may ask.
FULL = re.compile(r"_*blk_mq_get_tag$")
THROTTLES = re.compile(r"_*(rq_qos_wait|wbt_wait|ioc_rqos_throttle|blkcg_iolatency_throttle"
                       r"|blkcg_maybe_throttle_current|blk_throtl_\w+|tg_drain\w*)$")  # fmt: skip
# Those in which it waits for a page or a buffer: the request need not be the one that wakes it.
PAGES = re.compile(r"_*(folio_wait|wait_on_page|wait_on_buffer|bit_wait_io|filemap_fault"
                   r"|filemap_fdatawait)")  # fmt: skip


@dataclass
class Match:
    """Waits for disks, as rows of spans, each with its request: the place among all. `woke`: its
    completion woke the thread; else it is the last one that fits. `sure`: and no other one can
    have. `stage`: DEVICE, or that in which the whole wait was.
    """

    rows: Array
    request: Array
    woke: Array
    sure: Array
    stage: Array


@dataclass
class Pieces:
    """Spans of time of some rows of spans, with their bins."""

    rows: Array
    since: Array
    until: Array
    bin: Array


def split(
    events: Events, found: Spans, rows: Array, bins: Bins, bin_: Array, served: Requests
) -> Pieces:
    """`rows`: the waits; `bin_`: of all spans. Of each row, the pieces are the whole wait; waits
    whose request is not known have none.
    """
    kinds = [bins[number].kind in KINDS for number in range(len(bins.all))]
    rows = rows[np.array(kinds, bool)[bin_[rows]]] if len(served) else rows[:0]
    if not len(rows):
        return Pieces(rows, rows, rows, rows)
    match = matched(events, found, rows, served)
    cuts = staged(found, match, served)
    rows = match.rows[cuts.at]
    bin_ = named(events, bins, bin_[rows], served, match, cuts)
    return Pieces(rows, cuts.since, cuts.until, bin_)


def matched(events: Events, found: Spans, rows: Array, served: Requests) -> Match:
    classes = classes_of(events, found, rows)
    request, woke = woken_by(events, found, rows, served)
    may_be = classes["page"] & ~classes["full"] & ~classes["throttle"]
    may_be &= (request == NONE) & (found.leaves[rows] == Point.WOKEN)
    guesses = np.flatnonzero(may_be)
    request[guesses] = last_that_fits(events, found, rows[guesses], served)
    own = served.pid[request] == found.threads.pid[found.thread[rows]]
    sure = woke & (own | events.whole)
    sure &= ~touched(events.missed, found.since[rows], found.until[rows])
    stage = np.select([classes["full"], classes["throttle"]], [Stage.FULL, Stage.THROTTLED],
                      Stage.DEVICE)  # fmt: skip
    kept = (request != NONE) & (served.issued[request] < served.time[request])
    return Match(rows[kept], request[kept], woke[kept], sure[kept], stage[kept])


CLASSES = np.dtype([("full", "?"), ("throttle", "?"), ("page", "?")])


def classes_of(events: Events, found: Spans, rows: Array) -> Array:
    """In what kinds of functions the threads wait."""
    stack = np.zeros(len(rows), "i8")
    here = found.kind[rows] == Point.BLOCKED
    stack[here] = events.tables["BLOCKED"]["stack"][found.ref[rows[here]]]
    unique, which = np.unique(stack, return_inverse=True)
    made = np.zeros(len(unique), CLASSES)
    for at, number in enumerate(unique.tolist()):
        frames = events.stacks.get(number, [])
        made[at] = tuple(any(one.match(frame) for frame in frames)
                         for one in (FULL, THROTTLES, PAGES))  # fmt: skip
    return made[which]


def woken_by(events: Events, found: Spans, rows: Array, served: Requests) -> tuple[Array, Array]:
    """The request whose completion woke each thread: the last one that was done on the CPU of the
    wake-up before it, in the same interrupt, as the wake-up says. And whether there is one.
    """
    request, wakes = np.full(len(rows), NONE), events.tables["WOKEN"]
    woken = np.flatnonzero(found.leaves[rows] == Point.WOKEN)
    wake = wakes[found.leaver[rows[woken]]]
    by_request = wake["why"] & BY_REQUEST != 0
    woken, wake = woken[by_request], wake[by_request]
    request[woken] = last_before(served.cpu, wake["cpu"], wake["time"], served)
    late = request[woken] != NONE
    late[late] = served.time[request[woken[late]]] >= found.since[rows[woken[late]]]
    request[woken[~late]] = NONE
    return request, request != NONE


def last_that_fits(events: Events, found: Spans, rows: Array, served: Requests) -> Array:
    """The last request that was done during the wait, of the file that the thread waits for, or
    that it had asked for itself.
    """
    device, inode = np.zeros(len(rows), "u4"), np.zeros(len(rows), "u8")
    here = np.flatnonzero(found.kind[rows] == Point.BLOCKED)
    things = events.tables["BLOCKED"]["object"][found.ref[rows[here]]]
    unique, which = np.unique(things, return_inverse=True)
    known = [events.inodes.get(thing, (0, 0)) for thing in unique.tolist()]
    device[here] = np.array([one for one, _ in known], "u4")[which]
    inode[here] = np.array([one for _, one in known], "u8")[which]
    ends, since = found.until[rows], found.since[rows]
    of_file = last_before(served.file, place_of(served.files, device, inode), ends, served)
    of_thread = last_before(served.pid, found.threads.pid[found.thread[rows]], ends, served)
    of_file[(of_file != NONE) & (served.time[of_file] < since)] = NONE
    of_thread[(of_thread != NONE) & (served.time[of_thread] < since)] = NONE
    return np.where(of_file != NONE, of_file, of_thread)


def last_before(keys: Array, wanted: Array, times: Array, served: Requests) -> Array:
    """The last request with this key that was done not after this time; NONE: none. Keys below 0
    are none.
    """
    count = len(served)
    key, time = np.r_[keys, wanted].astype("i8"), np.r_[served.time, times]
    asks = np.r_[np.zeros(count, bool), np.ones(len(wanted), bool)]
    order = np.lexsort((asks, time, key))
    last = np.maximum.accumulate(np.where(asks[order], NONE, np.arange(len(order))))
    found = np.empty(len(order), "i8")
    found[order] = np.where(last >= 0, order[last], NONE)
    found = found[count:]
    return np.where((found >= 0) & (keys[found] == wanted) & (wanted >= 0), found, NONE)


# What a wait is cut into, in this order. When nobody is ahead any more, what is left is the time of
# the request itself.
STAGES = (Stage.BEFORE, Stage.QUEUED, Stage.DEVICE, Stage.DEVICE, Stage.AFTER)
ALONE = 3


@dataclass
class Cuts:
    """Pieces of waits. `at`: the place of the match; `who`: the program that was ahead meanwhile,
    or NONE.
    """

    since: Array
    until: Array
    stage: Array
    at: Array
    who: Array


def staged(found: Spans, match: Match, served: Requests) -> Cuts:
    """Cuts the waits at the stages of their requests."""
    edges, whole = edges_of(found, match, served), match.stage != Stage.DEVICE
    device = served.device[match.request]
    own = found.threads.pid[found.thread[match.rows]]
    owner = np.where(whole, own, served.owner[match.request])
    made = []
    for number, stage in enumerate(STAGES):
        begin, end = edges[number], edges[number + 1]
        at = np.flatnonzero(end > begin)
        who = np.full(len(at), NONE)
        if number < ALONE:
            who = served.most(device[at], owner[at], begin[at], end[at])
        made.append((begin[at], end[at], np.where(whole[at], match.stage[at], stage), at, who))
    columns = [np.concatenate(column) for column in zip(*made, strict=True)]
    order = np.lexsort((columns[0], columns[3]))
    return Cuts(*(column[order] for column in columns))


def edges_of(found: Spans, match: Match, served: Requests) -> list[Array]:
    """Where the stages of each wait begin, and where the last one ends."""
    rows, request = match.rows, match.request
    since, until = found.since[rows], found.until[rows]
    done = np.minimum(np.maximum(served.time[request], since), until)
    asked = np.clip(served.asked[request], since, done)
    issued = np.clip(served.issued[request], asked, done)
    ahead = np.clip(served.last_ahead(request, issued), issued, done)
    # What remains is of the interrupt that wakes the thread.
    done[match.woke] = until[match.woke]
    whole = match.stage != Stage.DEVICE
    asked[whole] = issued[whole] = since[whole]
    ahead[whole] = done[whole] = until[whole]
    return [since, asked, issued, ahead, done, until]


# What the bin of a piece is from: that of the whole wait, and the rest.
KEY = np.dtype([("old", "i8"), ("stage", "i8"), ("who", "i8"), ("sure", "i8"), ("device", "i8"),
                ("kind", "i8")])  # fmt: skip


def named(
    events: Events, bins: Bins, bin_: Array, served: Requests, match: Match, cuts: Cuts
) -> Array:
    """The bins of pieces. `bin_`: of the whole waits."""
    request, key = match.request[cuts.at], np.zeros(len(cuts.at), KEY)
    for name, column in zip(KEY.names or (), (
        bin_, cuts.stage, cuts.who, match.sure[cuts.at], served.device[request],
        served.kind[request],
    ), strict=True):  # fmt: skip
        key[name] = column
    unique, which = np.unique(ended.codes(key), return_inverse=True)
    numbers = []
    for old, stage, who, sure, device, kind in key[ended.firsts(which, len(unique))].tolist():
        what = TEXTS[stage].format(kind=events.request_kind(kind), device=events.disk(device))
        # First what fits into a narrow terminal.
        ahead = f"{'behind' if stage else 'beside'} {served.names[who]}, " if who >= 0 else ""
        text = f"{ahead}{what}{'' if sure else ', probably'}: {bins[old].what}"
        numbers.append(bins.number(WAITED, bins[old].kind, text, of_request=bool(sure)))
    return np.array(numbers, "i4")[which]


def hint(log: Log, times: Iterable[tuple[Bin, int]]) -> list[str]:
    """How to know which requests waits for disks were for, if the log does not say."""
    each = list(times)
    whole = sum(ns for _, ns in each)
    unsure = sum(ns for one, ns in each if one.kind in KINDS and not one.of_request)
    if unsure < SHARE * whole or not unsure:
        return []
    if "RQ_DONE" not in log.events:
        share = show(unsure / whole, "share")
        said = f"{share} are waits for disks: {COMMAND} says for which requests, and who was ahead"
        return [said]
    if log.preamble.get("scope") != "all":
        return [f"requests that others asked for are not in the log: {COMMAND} has them"]
    return []
