# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The critical path of one thread: for each moment of its time, the thread at which following ends,
and what that one did. Cut into columns of equal time, for a picture.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from klogger.failure import Failure
from klogger.why.events import Array
from klogger.why.follow import Leaves

COLUMNS = 1000
# Bits of a number of a thread, and of a node.
BITS = 26


@dataclass
class Path:
    """From `since` to `until`, in ns since the log began. `ns`: by `key`, which is a column, a life
    of a thread and a node, ascending.
    """

    since: int
    until: int
    key: Array = field(default_factory=lambda: np.zeros(0, "i8"))
    ns: Array = field(default_factory=lambda: np.zeros(0, "i8"))

    @property
    def edges(self) -> Array:
        """Where columns begin, and where the last one ends."""
        number = max(min(COLUMNS, self.until - self.since), 1)
        return self.since + (self.until - self.since) * np.arange(number + 1) // number

    def add(self, found: Leaves) -> None:
        edges = self.edges
        first = np.searchsorted(edges, found.since, side="right") - 1
        last = np.searchsorted(edges, found.until, side="left") - 1
        if max(found.thread.max(initial=0), found.node.max(initial=0)) >> BITS:
            raise Failure("there are too many chains of waits for a picture",
                          help="choose a part of the time with --between")  # fmt: skip
        number = np.where(found.until > found.since, last - first + 1, 0)
        leaf = np.repeat(np.arange(len(number)), number)
        column = first[leaf] + np.arange(len(leaf)) - np.repeat(np.cumsum(number) - number, number)
        begin = np.maximum(found.since[leaf], edges[column])
        end = np.minimum(found.until[leaf], edges[column + 1])
        key = (column << 2 * BITS) + (found.thread[leaf] << BITS) + found.node[leaf]
        keys, which = np.unique(np.concatenate([self.key, key]), return_inverse=True)
        ns = np.concatenate([self.ns, end - begin])
        self.key = keys
        self.ns = np.bincount(which, ns, minlength=len(keys)).astype("i8")

    @property
    def cells(self) -> tuple[Array, Array, Array, Array]:
        """Column, life, node and ns of each."""
        low = (1 << BITS) - 1
        return self.key >> 2 * BITS, self.key >> BITS & low, self.key & low, self.ns
