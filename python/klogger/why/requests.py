# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The requests of block devices that were done, from the events of the schema `block`: when each
was asked for, when the driver got it, for whom it was, and how much a device did for others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from klogger.why.events import FLUSHED, NONE, REQUESTS, Array, Events

STEPS = 32
# Calls that make the kernel write a file, and of which a thread waits for the pages of the file.
DIRTYING = frozenset((
    "write", "writev", "pwrite64", "pwritev", "pwritev2", "fsync", "fdatasync", "sync_file_range",
    "fallocate", "ftruncate", "sendfile", "copy_file_range", "splice",
))  # fmt: skip


@dataclass
class Requests:
    """In the order in which they were done: `time`, on which `cpu`. `asked`, `issued`: when it was
    asked for, and when its driver got it; `time`, if that was before the recording. `file`: the
    place of its file among `files` (of the device of the file system, and its inode); NONE: none.
    `owner`: equal for those that are for the same thread, or, of those that the kernel's threads
    ask for, for the same file. `name`: the place in `names` of the program that it was for; NONE:
    not known.
    """

    files: Array
    names: list[str]
    time: Array
    cpu: Array
    asked: Array
    issued: Array
    device: Array
    kind: Array
    pid: Array
    file: Array
    owner: Array
    name: Array

    def __len__(self) -> int:
        return len(self.time)

    @cached_property
    def work(self) -> dict[int, list[Work]]:
        """By device: what it did for each program."""
        made: dict[int, list[Work]] = {}
        for device, on in groups(self.device, np.arange(len(self))):
            for name, rows in groups(self.name, on):
                if name != NONE:
                    own = {owner: self.sums(some) for owner, some in groups(self.owner, rows)}
                    made.setdefault(device, []).append(Work(name, self.sums(rows), own))
        return made

    def sums(self, rows: Array) -> Running:
        return Running(self.time[rows], np.r_[0, np.cumsum(self.time[rows] - self.issued[rows])])

    def most(self, device: Array, owner: Array, since: Array, until: Array) -> Array:
        """For each of these spans of time the program for whose requests the device took most time,
        of those that were done in it, but for those of the owner. NONE: none.
        """
        most, who = np.zeros(len(device), "i8"), np.full(len(device), NONE)
        for number, here in groups(device, np.arange(len(device))):
            owners = dict(groups(owner, here))
            for work in self.work.get(number, ()):
                took = np.zeros(len(device), "i8")
                took[here] = work.all.between(since[here], until[here])
                for one in owners.keys() & work.of.keys():
                    own = owners[one]
                    took[own] -= work.of[one].between(since[own], until[own])
                more = here[took[here] > most[here]]
                most[more], who[more] = took[more], work.name
        return who

    def last_ahead(self, rows: Array, since: Array) -> Array:
        """For each of these requests, when the last one was done that its device had got before it,
        of another owner. `since`, or when it was issued itself: none was done after that.
        """
        found = np.maximum(self.issued[rows], since)
        for device, on in groups(self.device, np.arange(len(self))):
            here = np.flatnonzero(self.device[rows] == device)
            low = np.searchsorted(self.time[on], found[here], side="right")
            at = np.searchsorted(on, rows[here]) - 1
            own = self.owner[on]
            begins = np.r_[True, own[1:] != own[:-1]]
            run = np.maximum.accumulate(np.where(begins, np.arange(len(on)), 0))
            # One step back in time for all that have not found theirs yet, over all that are of the
            # same owner: devices mostly keep the order, so few steps are enough for nearly all.
            for _ in range(STEPS):
                left = np.flatnonzero(at >= low)
                if not len(left):
                    break
                one, row = on[at[left]], rows[here[left]]
                ahead = self.is_ahead(one, row)
                found[here[left[ahead]]] = self.time[one[ahead]]
                is_own = self.owner[one] == self.owner[row]
                before = np.where(is_own, run[at[left]], at[left]) - 1
                at[left] = np.where(ahead, -1, before)
            for place in np.flatnonzero(at >= low).tolist():
                some, row = on[low[place] : at[place] + 1], rows[here[place]]
                some = some[self.is_ahead(some, row)]
                if len(some):
                    found[here[place]] = self.time[some[-1]]
        return found

    def is_ahead(self, other: Array, row: Array) -> Array:
        is_other = self.owner[other] != self.owner[row]
        return np.asarray((self.issued[other] < self.issued[row]) & is_other)


def groups(keys: Array, rows: Array) -> Iterator[tuple[int, Array]]:
    """Those of the rows that have the same key, in their order."""
    order = rows[np.argsort(keys[rows], kind="stable")]
    sorted_ = keys[order]
    firsts = np.flatnonzero(np.r_[True, sorted_[1:] != sorted_[:-1]][: len(order)])
    for first, behind in zip(firsts.tolist(), [*firsts[1:].tolist(), len(order)], strict=False):
        yield int(sorted_[first]), order[first:behind]


@dataclass
class Running:
    """`upto[n]`: ns that a device had the first n of some requests, which were done at `time`."""

    time: Array
    upto: Array

    def between(self, since: Array, until: Array) -> Array:
        """Of those that were done after `since`, and not after `until`."""
        low = np.searchsorted(self.time, since, side="right")
        high = np.searchsorted(self.time, until, side="right")
        return np.asarray(self.upto[np.maximum(low, high)] - self.upto[low])


@dataclass
class Work:
    """What a device did for a program: in all, and for each owner of requests."""

    name: int
    all: Running
    of: dict[int, Running]


def find(events: Events) -> Requests:
    tables = [events.tables[name] for name in REQUESTS]
    time, cpu, took, device, pid = (
        np.concatenate([table[name] for table in tables]).astype("i8")
        for name in ("time", "cpu", "took", "device", "pid")
    )
    queued, kind, by_kernel = (
        np.concatenate([column(table, name) for table in tables])
        for name in ("queued", "kind", "kernel")
    )
    done, flushed, _ = map(len, tables)
    kind[done : done + flushed] = FLUSHED
    files, file = files_of(tables)
    order = np.argsort(time, kind="stable")
    name, names, owner = whose(events, pid, (by_kernel != 0) | in_kernel(events, pid), files, file)
    issued = time - np.minimum(took, time)
    queued[issued == time] = 0
    columns = (time, cpu, issued - queued, issued, device, kind, pid, file, owner, name)
    return Requests(files, names, *(values[order] for values in columns))


def column(table: Array, name: str) -> Array:
    if name in (table.dtype.names or ()):
        return np.asarray(table[name]).astype("i8")
    return np.zeros(len(table), "i8")


FILE = np.dtype([("device", "u4"), ("inode", "u8")])


def files_of(tables: list[Array]) -> tuple[Array, Array]:
    """All files whose pages are read or written, and the place of that of each request."""
    each = np.zeros(sum(map(len, tables)), FILE)
    each["device"] = np.concatenate([column(table, "file_system") for table in tables])
    each["inode"] = np.concatenate([
        table["inode"] if "inode" in (table.dtype.names or ()) else np.zeros(len(table), "u8")
        for table in tables
    ])  # fmt: skip
    files, place = np.unique(each, return_inverse=True)
    return files, np.where(each["inode"] == 0, NONE, place)


def place_of(files: Array, device: Array, inode: Array) -> Array:
    """Where files are in a sorted list of them; NONE: nowhere."""
    asked = np.zeros(len(inode), FILE)
    asked["device"], asked["inode"] = device, inode
    at = np.searchsorted(files, asked)
    if not len(files):
        return np.full(len(asked), NONE)
    at = np.minimum(at, len(files) - 1)
    return np.where((files[at] == asked) & (asked["inode"] != 0), at, NONE)


def in_kernel(events: Events, pid: Array) -> Array:
    return np.isin(pid, sorted(events.kernel))


def whose(
    events: Events, pid: Array, by_kernel: Array, files: Array, file: Array
) -> tuple[Array, list[str], Array]:
    """The program that each request is for, all of them, and the owner of each request. What a
    thread of the kernel asks for is for the program that was seen to write the file.
    """
    owner = np.where(by_kernel & (file != NONE), -2 - file, pid)
    unique, which = np.unique(owner, return_inverse=True)
    writers = writers_of(events, files)
    asker = np.zeros(len(unique), "i8")
    asker[which] = pid
    called = [
        "" if one == 0 else writers.get(-2 - one) or events.program(by)
        for one, by in zip(unique.tolist(), asker.tolist(), strict=True)
    ]
    names = sorted({name for name in called if name})
    numbers = {name: number for number, name in enumerate(names)} | {"": NONE}
    place = np.array([numbers[name] for name in called], dtype="i8")
    return place[which] if len(which) else np.zeros(0, "i8"), names, owner


def writers_of(events: Events, files: Array) -> dict[int, str]:
    """By the place of a file, the program whose threads waited most often while they wrote it."""
    blocked = events.tables["BLOCKED"]
    dirtying = events.among(blocked["call"], DIRTYING.__contains__)
    blocked = blocked[dirtying & (blocked["object"] != 0)]
    pairs, times = np.unique(blocked[["object", "pid"]], return_counts=True)
    seen: dict[int, dict[str, int]] = {}
    for (thing, pid), count in zip(pairs.tolist(), times.tolist(), strict=True):
        device, inode = events.inodes.get(thing, (0, 0))
        place = int(place_of(files, np.array([device]), np.array([inode], "u8"))[0])
        if place != NONE:
            of = seen.setdefault(place, {})
            name = events.program(pid)
            of[name] = of.get(name, 0) + count
    return {place: max(sorted(of), key=lambda name: of[name]) for place, of in seen.items()}
