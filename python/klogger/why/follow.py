# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the threads did that a thread waited for, for the time that it waited: and those that they
waited for, and so on. Each wait for a thread is replaced by what that thread did meanwhile, so that
the sum stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from klogger.failure import Failure
from klogger.why.events import Array, distinct
from klogger.why.parts import AMOUNTS, Parts

# A chain of more threads is cut; each thread of a chain is another one.
DEPTH_MAX = 32
# So many overlaps of spans and parts are worked on at a time.
BATCH = 1 << 17
# So many overlaps are followed below the first level. Of many threads that all wait for one, each
# overlaps with all that this one did.
OVERLAPS_MAX = 30 << 20
TOP = 0


@dataclass(frozen=True)
class Node:
    """One step of a chain: a program that was in a bin, for the node above."""

    above: int
    program: int
    bin: int


@dataclass
class End:
    """What ends at a node, all stretches of time together: ns without the amounts; the amounts, and
    in how many stretches they are; the longest stretch, when it was, and of which thread.
    """

    ns: int = 0
    times: int = 0
    longest: int = 0
    since: int = 0
    until: int = 0
    thread: int = -1
    amounts: Array = field(default_factory=lambda: np.zeros(len(AMOUNTS), "i8"))
    amount_times: Array = field(default_factory=lambda: np.zeros(len(AMOUNTS), "i8"))

    @property
    def whole(self) -> int:
        return self.ns + int(self.amounts.sum())


@dataclass
class Followed:
    """`ends`: by the number of its node. `cut`: waits in a circle, which were not
    followed; `left`: those that were not because there are too many."""

    nodes: list[Node] = field(default_factory=lambda: [Node(-1, -1, -1)])
    ends: dict[int, End] = field(default_factory=dict)
    cut: int = 0
    left: int = 0

    @property
    def whole(self) -> int:
        return sum(end.whole for end in self.ends.values())

    def add(self, some: dict[int, End]) -> None:
        for number, other in some.items():
            end = self.ends.setdefault(number, End())
            end.ns += other.ns
            end.times += other.times
            end.amounts += other.amounts
            end.amount_times += other.amount_times
            if other.longest > end.longest or end.thread < 0:
                end.longest, end.thread = other.longest, other.thread
                end.since, end.until = other.since, other.until


def summed(found: Leaves) -> dict[int, End]:
    """Node by node."""
    nodes, which = distinct(found.node)
    sums, times = totals(which, found.ns, len(nodes)), np.bincount(which)
    amounts, amount_times = np.zeros((2, len(nodes), len(AMOUNTS)), "i8")
    for column, amount in enumerate(found.amounts.T):
        some = np.flatnonzero(amount)
        amounts[:, column] = totals(which[some], amount[some], len(nodes))
        amount_times[:, column] = np.bincount(which[some], minlength=len(nodes))
    return {
        int(nodes[at]): End(
            int(sums[at]), int(times[at]), int(found.ns[row]), int(found.since[row]),
            int(found.until[row]), int(found.thread[row]), amounts[at], amount_times[at],
        )
        for at, row in enumerate(longest(which, found.ns, len(nodes)).tolist())
    }  # fmt: skip


def totals(which: Array, ns: Array, count: int) -> Array:
    """The sum for each of the numbers up to `count`; floating-point numbers would be inexact."""
    made = np.zeros(count, "i8")
    np.add.at(made, which, ns)
    return made


def longest(which: Array, ns: Array, count: int) -> Array:
    """The row with most for each of the numbers up to `count`, the last one of several."""
    most = np.zeros(count, "i8")
    np.maximum.at(most, which, ns)
    rows = np.flatnonzero(ns == most[which])
    made = np.zeros(count, "i8")
    made[which[rows]] = rows
    return made


@dataclass
class Leaves:
    """Stretches of time at which following ends. `amounts`: a column each."""

    node: Array
    ns: Array
    amounts: Array
    since: Array
    until: Array
    thread: Array

    def at(self, rows: Array) -> Leaves:
        rest = (self.since[rows], self.until[rows], self.thread[rows])
        return Leaves(self.node[rows], self.ns[rows], self.amounts.T[:, rows].T, *rest)


@dataclass
class Queue:
    """Spans of time of threads that are looked at next. `chain`: the threads above, a column each
    level. `node`: where they stand.
    """

    thread: Array
    since: Array
    until: Array
    node: Array
    chain: Array


class Overlaps:
    """The parts of threads by time."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.width = int(parts.until.max(initial=0)) + 2
        threads = int(parts.thread.max(initial=0)) + 1
        if self.width * (threads + 1) >= 2**63:
            raise Failure(
                "the recording is too long for so many threads",
                help="cut it with 'klogger cat --from TIME --to TIME -o SHORT.klog'",
            )
        self.key = parts.thread.astype("i8")
        self.key *= self.width
        self.key += parts.since

    def places(self, thread: Array, since: Array, until: Array) -> tuple[Array, Array]:
        """For each span, the first of the parts in it, and how many they are."""
        before, parts = thread.astype("i8") * self.width, self.parts
        low = np.searchsorted(self.key, before + since, side="right")
        # The one before may reach into it.
        at = np.maximum(low - 1, 0)
        if len(self.key):
            low -= (low > 0) & (parts.thread[at] == thread) & (parts.until[at] > since)
        high = np.searchsorted(self.key, before + until, side="left")
        return low, np.maximum(high - low, 0)

    def of(
        self,
        thread: Array,
        since: Array,
        until: Array,
        places: tuple[Array, Array] | None = None,
    ) -> Iterator[tuple[Array, Array, Array, Array]]:
        """For each overlap of a span and a part: the numbers of both, begin and end."""
        low, count = places or self.places(thread, since, until)
        upto = np.cumsum(count)
        behind = low + count
        for first in range(0, int(upto[-1]) if len(upto) else 0, BATCH):
            place = np.arange(first, min(first + BATCH, int(upto[-1])))
            span = np.searchsorted(upto, place, side="right")
            part = behind[span] - (upto[span] - place)
            begin = np.maximum(self.parts.since[part], since[span])
            end = np.minimum(self.parts.until[part], until[span])
            yield span, part, begin, end


def follow(
    overlaps: Overlaps,
    roots: Array,
    since: Array,
    until: Array,
    program: Array,
    each: Callable[[Leaves], None] = lambda _: None,
) -> tuple[Followed, Followed]:
    """What the roots did themselves, whoever they waited for; and the same followed. `program`: a
    number for the name of each thread. `each`: is given all stretches of time at which following
    ends.
    """

    def ends(some: Leaves) -> None:
        found.add(summed(some))
        each(some)

    found = Followed()
    own = Followed(found.nodes)
    number = numbering(found.nodes)
    queue = Queue(roots, since, until, np.full(len(roots), TOP),
                  np.zeros((len(roots), 0), "i8"))  # fmt: skip
    room = OVERLAPS_MAX
    for depth in range(DEPTH_MAX):
        places = overlaps.places(queue.thread, queue.since, queue.until)
        if depth:
            room -= int(places[1].sum())
        if room < 0:
            found.left = len(queue.thread)
            ends(holes(queue, np.zeros(len(queue.thread), "i8"), queue.until))
            break
        covered, coming = np.zeros(len(queue.thread), "i8"), []
        there = queue.until.copy()
        for one in overlaps.of(queue.thread, queue.since, queue.until, places):
            span, part, begin, end = one
            np.add.at(covered, span, end - begin)
            np.minimum.at(there, span, begin)
            node = number(queue.node[span], program[overlaps.parts.thread[part]],
                          overlaps.parts.bin[part])  # fmt: skip
            goes_on, chain, circles = followed(overlaps.parts, queue, span, part)
            if depth + 1 == DEPTH_MAX:
                goes_on, chain = goes_on[:0], chain[:0]
            found.cut += circles
            stays = np.ones(len(part), bool)
            stays[goes_on] = False
            if depth:
                kept = (column[stays] for column in (part, begin, end, node))
                ends(leaves(overlaps.parts, *kept))
            else:
                all_ = leaves(overlaps.parts, part, begin, end, node)
                own.add(sums := summed(all_))
                if len(goes_on):
                    ends(all_.at(stays))
                else:
                    found.add(sums)
                    each(all_)
            coming.append(Queue(overlaps.parts.target[part[goes_on]].astype("i8"), begin[goes_on],
                                end[goes_on], node[goes_on], chain))  # fmt: skip
        ends(holes(queue, covered, there))
        if not any(len(one.thread) for one in coming):
            break
        queue = together(coming)
    return own, found


def followed(parts: Parts, queue: Queue, span: Array, part: Array) -> tuple[Array, Array, int]:
    """Which of these overlaps are waits for a thread, and the threads above each; and how many
    others are, of threads that wait for each other in a circle.
    """
    target = parts.target[part]
    rows = np.flatnonzero(target >= 0)
    above = span[rows]
    chain = np.concatenate([queue.chain[above], queue.thread[above][:, None]], axis=1)
    circle = (chain == target[rows][:, None]).any(axis=1)
    return rows[~circle], chain[~circle], int(circle.sum())


def together(parts: list[Queue]) -> Queue:
    return Queue(
        *(np.concatenate([getattr(one, name) for one in parts])
          for name in ("thread", "since", "until", "node", "chain"))
    )  # fmt: skip


Numbering = Callable[[Array, Array, Array], Array]


def numbering(nodes: list[Node]) -> Numbering:
    """What gives numbers to nodes, by the node above, program and bin of each."""
    known: dict[Node, int] = {}

    def number(above: Array, program: Array, bin_: Array) -> Array:
        programs, width = int(program.max(initial=0)) + 1, int(bin_.max(initial=0)) + 1
        keys = (above * programs + program) * width + bin_
        unique, which = distinct(keys)
        made = []
        for key in unique.tolist():
            rest, bin_number = divmod(key, width)
            above_number, program_number = divmod(rest, programs)
            node, last = Node(above_number, program_number, bin_number), nodes[above_number]
            # Threads of one program in a queue are one step, however many they are.
            if (last.program, last.bin) == (node.program, node.bin):
                made.append(node.above)
                continue
            if node not in known:
                known[node] = len(nodes)
                nodes.append(node)
            made.append(known[node])
        return np.array(made, dtype="i8")[which]

    return number


def holes(queue: Queue, covered: Array, there: Array) -> Leaves:
    """What of a wait the thread that it was for was not there: it stays a wait. That is before the
    thread was there first, or behind its end. A root that was not there has no such time.
    """
    rest = np.where(queue.node == TOP, 0, queue.until - queue.since - covered)
    before = np.minimum(there - queue.since, rest)
    first, last = np.flatnonzero(before > 0), np.flatnonzero(rest > before)
    rows = np.r_[first, last]
    ns = np.r_[before[first], (rest - before)[last]]
    since = np.r_[queue.since[first], (queue.until - rest + before)[last]]
    above = queue.chain[rows, -1] if queue.chain.shape[1] else np.zeros(0, "i8")
    amounts = np.zeros((len(rows), len(AMOUNTS)), "i8")
    return Leaves(queue.node[rows], ns, amounts, since, since + ns, above)


def leaves(parts: Parts, part: Array, begin: Array, end: Array, node: Array) -> Leaves:
    """Of a piece of a part, as much of each amount as the piece is of the part."""
    since, until = parts.since[part], parts.until[part]
    # Most are whole.
    cut = np.flatnonzero((begin > since) | (end < until))
    whole = np.maximum(until[cut] - since[cut], 1)
    low, high = (begin[cut] - since[cut]) / whole, (end[cut] - since[cut]) / whole
    left = end - begin
    amounts = np.zeros((len(AMOUNTS), len(part)), "i8")
    for column, made in enumerate(amounts):
        made[:] = parts.amounts[part, column]
        some = made[cut]
        made[cut] = np.floor(some * high).astype("i8") - np.floor(some * low).astype("i8")
        np.minimum(made, left, out=made)
        left -= made
    return Leaves(node, left, amounts.T, begin, end, parts.thread[part].astype("i8"))
