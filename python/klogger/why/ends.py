# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Who is at the other end of a pipe or a socket, as far as the log has it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from klogger.why.events import Array, Events

# Calls that wait until the other end takes what they have.
WRITES = frozenset(("write", "writev", "pwritev2", "sendto", "sendmsg", "sendmmsg", "splice",
                    "vmsplice", "tee"))  # fmt: skip


@dataclass
class Ends:
    """`seen`: the programs whose threads waited for an object, to read or to write."""

    events: Events
    seen: dict[tuple[int, bool], set[str]]

    def of_pipe(self, key: int, writes: bool) -> str:
        """A program, if it is one only."""
        return one_of(self.seen.get((key, not writes), set()))

    def of_socket(self, key: int) -> str:
        sockets = self.events.sockets
        other = sockets.others.get(key)
        if other is not None:
            both = (self.seen.get((other, writes), set()) for writes in (False, True))
            return one_of(set().union(*both))
        peer = sockets.all[key].peer
        # Of a pair that one process has made, it is that process, whoever has the other end now.
        own = self.seen.get((key, False), set()) | self.seen.get((key, True), set())
        name = self.events.names.get(peer, "")
        return name if name not in own else ""


def one_of(names: set[str]) -> str:
    return next(iter(names)) if len(names) == 1 else ""


def find(events: Events) -> Ends:
    table = events.tables["BLOCKED"]
    wanted = [key for key, name in events.objects.items() if name.startswith(("pipe:", "socket:"))]
    if not wanted:
        return Ends(events, {})
    rows = np.flatnonzero(table["object"] != 0)
    keys, which = np.unique(table["object"][rows], return_inverse=True)
    kept = np.isin(keys, np.array(wanted, "u8"))[which]
    rows, which = rows[kept], which[kept]
    writes = events.among(table["call"][rows], WRITES.__contains__)
    seen: dict[tuple[int, bool], set[str]] = {}
    for at, is_write, pid in distinct(which, writes, table["pid"][rows]):
        seen.setdefault((int(keys[at]), bool(is_write)), set()).add(events.program(pid))
    return Ends(events, seen)


def distinct(which: Array, writes: Array, pid: Array) -> list[tuple[int, int, int]]:
    """Packed into one number each, as sorting rows of several takes long."""
    packed = which.astype("i8") << 33 | writes.astype("i8") << 32 | pid.astype("i8") & 0xFFFFFFFF
    return [(one >> 33, one >> 32 & 1, one & 0xFFFFFFFF) for one in np.unique(packed).tolist()]
