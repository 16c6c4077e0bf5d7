# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is said of operations beside their bins: by the value of a field, and of the slowest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from klogger.why.bins import GROUPS, Bin, Bins
from klogger.why.choice import Chosen
from klogger.why.events import Array, Sums
from klogger.why.follow import Overlaps
from klogger.why.operations import Operations

# Values of a field, and the slowest operations, that are told apart.
KINDS_MOST, SLOWEST_MOST = 1000, 5


@dataclass
class Kind:
    """Operations of one value of a field, or a single one (`pid`, `since`): ns of all, of the one
    in the middle and of the longest; by group; and the bin with most time.
    """

    value: str
    ns: int
    times: int
    median: int
    longest: int
    groups: dict[str, int]
    most: Bin
    most_ns: int
    pid: int = 0
    since: int = 0

    def as_json(self) -> dict[str, Any]:
        where = {"thread": self.pid, "from_ns": self.since} if self.pid else {"value": self.value}
        return {**where, "ns": self.ns, "times": self.times, "median_ns": self.median,
                "longest_ns": self.longest, **self.groups, "most": self.most.as_json(),
                "most_ns": self.most_ns}  # fmt: skip


@dataclass
class Operated:
    """What is said of operations: by value, most time first, if there is a field; the slowest."""

    what: str
    by: str
    times: int
    median: int
    longest: int
    kinds: list[Kind]
    slowest: list[Kind]

    def as_json(self) -> dict[str, Any]:
        return {"what": self.what, "by": self.by, "times": self.times, "median_ns": self.median,
                "longest_ns": self.longest, "kinds": [one.as_json() for one in self.kinds],
                "slowest": [one.as_json() for one in self.slowest]}  # fmt: skip


@dataclass
class Shares:
    """How much time each owner of spans spent in each bin: three columns, by owner and bin."""

    owner: Array
    bin: Array
    ns: Array

    def of(self, owner: int, bins: Bins) -> tuple[dict[str, int], Bin, int]:
        """By group; and the bin with most."""
        low, high = np.searchsorted(self.owner, [owner, owner + 1])
        sums, most, most_ns = dict.fromkeys(GROUPS, 0), Bin(GROUPS[-1], ""), 0
        for number, ns in zip(self.bin[low:high].tolist(), self.ns[low:high].tolist(), strict=True):
            sums[bins[number].group] += ns
            if ns > most_ns:
                most, most_ns = bins[number], ns
        return sums, most, most_ns


def shares(overlaps: Overlaps, spans: Chosen, owner: Array, rows: Array) -> Shares:
    """`owner`: a number for each of the spans `rows`."""
    width = int(overlaps.parts.bin.max(initial=0)) + 1
    found = Sums()
    each = overlaps.of(spans.lives[rows], spans.since[rows], spans.until[rows])
    for span, part, begin, end in each:
        found.add(owner[span] * width + overlaps.parts.bin[part], end - begin)
    key, ns = found.all()
    return Shares(key // width, key % width, ns)


def of(found: Operations, spans: Chosen, overlaps: Overlaps, bins: Bins, pids: Array) -> Operated:
    took = spans.until - spans.since
    made = Operated(found.what, found.by, len(took), int(np.median(took)), int(took.max()), [], [])
    slow = np.argsort(-took, kind="stable")[:SLOWEST_MOST]
    parts = shares(overlaps, spans, np.arange(len(slow)), slow)
    for at, row in enumerate(slow.tolist()):
        groups, most, most_ns = parts.of(at, bins)
        ns = int(took[row])
        made.slowest.append(Kind("", ns, 1, ns, ns, groups, most, most_ns,
                                 int(pids[spans.lives[row]]), int(spans.since[row])))  # fmt: skip
    if found.by:
        made.kinds = kinds(found.value[spans.operation].astype(str), spans, overlaps, bins)
    return made


def kinds(value: Array, spans: Chosen, overlaps: Overlaps, bins: Bins) -> list[Kind]:
    """Most time first."""
    took = spans.until - spans.since
    values, owner = np.unique(value, return_inverse=True)
    ns = np.bincount(owner, took).astype("i8")
    parts = shares(overlaps, spans, owner, np.arange(len(took)))
    order = np.argsort(owner, kind="stable")
    begins = np.searchsorted(owner[order], np.arange(len(values) + 1))
    made = []
    for at in np.argsort(-ns, kind="stable")[:KINDS_MOST].tolist():
        own = took[order[begins[at] : begins[at + 1]]]
        made.append(Kind(str(values[at]), int(ns[at]), len(own), int(np.median(own)),
                         int(own.max()), *parts.of(at, bins)))  # fmt: skip
    return made
