# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the threads did that a thread waited for, for the time that it waited: and those that they
waited for, and so on. Each wait for a thread is replaced by what that thread did meanwhile, so that
the sum stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from klogger.failure import Failure
from klogger.why.events import Array
from klogger.why.parts import NOBODY, Parts

# A chain of more threads is cut; each thread of a chain is another one.
DEPTH_MAX = 32
TOP = 0


@dataclass(frozen=True)
class Node:
    """One step of a chain: a program that was in a bin, for the node above."""

    above: int
    program: int
    bin: int


@dataclass
class Followed:
    """`leaves`: for each place where following ends its node; ns without the amounts; the amounts;
    when it was, and of which thread.
    """

    nodes: list[Node]
    node: Array
    ns: Array
    amounts: Array
    since: Array
    until: Array
    thread: Array
    cut: int = 0


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


@dataclass
class Overlaps:
    """The parts of threads by time."""

    parts: Parts
    width: int = 0
    key: Array = field(default_factory=lambda: np.zeros(0, "i8"))
    end: Array = field(default_factory=lambda: np.zeros(0, "i8"))

    def __post_init__(self) -> None:
        parts = self.parts
        self.width = int(parts.until.max(initial=0)) + 2
        threads = int(parts.thread.max(initial=0)) + 1
        if self.width * (threads + 1) >= 2**63:
            raise Failure(
                "the recording is too long for so many threads",
                help="cut it with 'klogger cat --from TIME --to TIME -o SHORT.klog'",
            )
        self.key = parts.thread * self.width + parts.since
        self.end = parts.thread * self.width + parts.until

    def of(self, thread: Array, since: Array, until: Array) -> tuple[Array, Array, Array, Array]:
        """For each overlap of a span and a part: the numbers of both, begin and end."""
        low = np.searchsorted(self.end, thread * self.width + since, side="right")
        high = np.searchsorted(self.key, thread * self.width + until, side="left")
        count = np.maximum(high - low, 0)
        span = np.repeat(np.arange(len(thread)), count)
        part = np.arange(len(span)) - np.repeat(np.cumsum(count) - count, count) + low[span]
        begin = np.maximum(self.parts.since[part], since[span])
        end = np.minimum(self.parts.until[part], until[span])
        return span, part, begin, end


def follow(
    parts: Parts, roots: Array, since: Array, until: Array, program: Array, bound: bool = True
) -> Followed:
    """`program`: a number for the name of each thread. `bound`: follow; else only the roots."""
    overlaps = Overlaps(parts)
    nodes = [Node(-1, -1, -1)]
    known: dict[Node, int] = {}
    queue = Queue(roots, since, until, np.full(len(roots), TOP),
                  np.zeros((len(roots), 0), "i8"))  # fmt: skip
    done: list[tuple[Array, ...]] = []
    cut = 0
    number = numbering(nodes, known)
    for depth in range(DEPTH_MAX):
        if not len(queue.thread):
            break
        span, part, begin, end = overlaps.of(queue.thread, queue.since, queue.until)
        done.append(holes(queue, span, end - begin))
        node = number(queue.node[span], program[parts.thread[part]], parts.bin[part])
        target = parts.target[part] if bound else np.full(len(part), NOBODY)
        chain = np.concatenate([queue.chain[span], queue.thread[span][:, None]], axis=1)
        circle = (target >= 0) & (chain == target[:, None]).any(axis=1)
        cut += int(circle.sum())
        goes_on = (target >= 0) & ~circle & (depth + 1 < DEPTH_MAX)
        done.append(leaves(parts, part, begin, end, node, ~goes_on))
        queue = Queue(target[goes_on], begin[goes_on], end[goes_on], node[goes_on],
                      chain[goes_on])  # fmt: skip
    ends = [np.concatenate(column) for column in zip(*done, strict=True)]
    return Followed(nodes, ends[0], ends[1], ends[2], ends[3], ends[4], ends[5], cut)


def numbering(nodes: list[Node], known: dict[Node, int]) -> Callable[[Array, Array, Array], Array]:
    def number(above: Array, program: Array, bin_: Array) -> Array:
        programs, width = int(program.max(initial=0)) + 1, int(bin_.max(initial=0)) + 1
        keys = (above * programs + program) * width + bin_
        unique, which = np.unique(keys, return_inverse=True)
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


def holes(queue: Queue, span: Array, ns: Array) -> tuple[Array, ...]:
    """What of a wait the thread that it was for was not there: it stays a wait. A root that was not
    there has no such time."""
    covered = np.bincount(span, ns, minlength=len(queue.thread)).astype("i8")
    rest = np.where(queue.node == TOP, 0, queue.until - queue.since - covered)
    rows = np.flatnonzero(rest > 0)
    above = queue.chain[rows, -1] if queue.chain.shape[1] else np.zeros(0, "i8")
    return (queue.node[rows], rest[rows], np.zeros((len(rows), 3), "i8"), queue.since[rows],
            queue.until[rows], above)  # fmt: skip


def leaves(
    parts: Parts, part: Array, begin: Array, end: Array, node: Array, chosen: Array
) -> tuple[Array, ...]:
    part, begin, end = part[chosen], begin[chosen], end[chosen]
    whole = np.maximum(parts.ns[part], 1)
    low, high = (begin - parts.since[part]) / whole, (end - parts.since[part]) / whole
    left = end - begin
    amounts = np.zeros((len(part), parts.amounts.shape[1]), "i8")
    for column, amount in enumerate(parts.amounts[part].T):
        share = np.floor(amount * high).astype("i8") - np.floor(amount * low).astype("i8")
        amounts[:, column] = np.minimum(share, left)
        left = left - amounts[:, column]
    return node[chosen], left, amounts, begin, end, parts.thread[part]
