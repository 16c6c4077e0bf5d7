# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Sockets that threads wait for: their two ends, by what they are called, and what TCP did on the
way between these.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from klogger.log import Log

Array = npt.NDArray[Any]
Pair = tuple[str, str]

# Addresses of an end that is not connected, or not bound.
NOWHERE = ("0.0.0.0:0", "[::]:0")
# An address of IPv4, as a socket of IPv6 has it.
MAPPED = re.compile(r"^\[::ffff:([\d.]+)\](:\d+)$")
LOOPBACK = re.compile(r"^(127\.|\[::1\]:)")
INET = re.compile(r"^(\[.*\]|[\d.]+):\d+$")
# A server with more connections has one name for all of them.
CLIENTS_MOST = 8

# What TCP did in a wait for a socket: a delayed acknowledgement of its own or of the other end, and
# a retransmission by either.
DELAYED_OWN, DELAYED_OTHER, RETRANSMITTED = 1, 2, 4
DELAYED = 2  # in TCP_TIMER.timer


class Socket(NamedTuple):
    """`bound`: of a local one, its name or that of the other end. `peer`: the process there, as the
    kernel noted when they were connected; 0: not known.
    """

    source: str
    destination: str
    bound: str = ""
    peer: int = 0

    @property
    def is_inet(self) -> bool:
        return bool(INET.match(self.source))

    @property
    def is_connected(self) -> bool:
        return self.is_inet and self.destination not in NOWHERE

    @property
    def is_local(self) -> bool:
        """Both ends are on this machine, as their addresses say."""
        if not self.is_connected:
            return not self.is_inet
        host = self.destination.rpartition(":")[0]
        return bool(LOOPBACK.match(self.destination)) or host == self.source.rpartition(":")[0]

    @property
    def pair(self) -> Pair:
        return self.source, self.destination


@dataclass
class Sockets:
    """`all`: by their keys. `delayed` and `sent_again`: times of delayed acknowledgements and of
    retransmissions, ascending, by the two ends, first that which did it.
    """

    all: dict[int, Socket] = field(default_factory=dict)
    delayed: dict[Pair, Array] = field(default_factory=dict)
    sent_again: dict[Pair, Array] = field(default_factory=dict)

    @cached_property
    def others(self) -> dict[int, int]:
        """The socket at the other end of each, if it is in the log."""
        by_pair = {one.pair: key for key, one in self.all.items() if one.is_connected}
        found = {key: by_pair.get(one.pair[::-1]) for key, one in self.all.items()}
        return {key: other for key, other in found.items() if other is not None}

    @cached_property
    def places(self) -> dict[int, str]:
        """What each is called: where its other end is."""
        ends = Counter(one.source for one in self.all.values() if one.is_connected)
        return {key: place(one, ends) for key, one in self.all.items()}

    def is_local(self, key: int) -> bool:
        return key in self.others or self.all[key].is_local


def place(one: Socket, ends: Counter[str]) -> str:
    if not one.is_inet:
        return one.bound
    if not one.is_connected:
        return f"at {one.source}"
    if ends[one.source] > CLIENTS_MOST:
        return f"clients of {one.source}"
    return one.destination


def plain(endpoint: str) -> str:
    """Both ends of a connection have one family then."""
    return MAPPED.sub(r"\1\2", endpoint)


def has(log: Log, event: str, schema: str) -> bool:
    """Other schemata may have events of these names."""
    return event in log.events and log.events[event].schema == schema


def read(log: Log) -> Sockets:
    if not has(log, "SOCKET_ENDS", "waits"):
        return Sockets()
    peers = dict(log.rows("SELECT object, peer FROM OBJECT WHERE peer <> 0"))
    found = log.rows(
        "SELECT object, endpoint(source), endpoint(destination), bound FROM SOCKET_ENDS"
        " ORDER BY time"
    )
    return Sockets(
        {key: Socket(plain(a), plain(b), bound or "", peers.get(key, 0))
         for key, a, b, bound in found},
        times(log, "TCP_TIMER", f"timer = {DELAYED}"), times(log, "RETRANSMITTED", "true"),
    )  # fmt: skip


def times(log: Log, event: str, condition: str) -> dict[Pair, Array]:
    if not has(log, event, "peers"):
        return {}
    rows = log.rows(
        f"SELECT endpoint(source), endpoint(destination), list(time ORDER BY time) FROM {event}"
        f" WHERE {condition} GROUP BY ALL"
    )
    return {(plain(a), plain(b)): np.array(found, "i8") for a, b, found in rows}


def flags(sockets: Sockets, spans: Iterable[tuple[int, Array, Array, Array]], count: int) -> Array:
    """What TCP did in waits for sockets. `spans`: the key of a socket; rows, which are below
    `count`, and begin and end of each.
    """
    made = np.zeros(count, "i8")
    for key, rows, since, until in spans:
        one = sockets.all.get(key)
        if one is None:
            continue
        own, other = (late(sockets.delayed.get(pair), since, until)
                      for pair in (one.pair, one.pair[::-1]))  # fmt: skip
        again = [last(sockets.sent_again.get(pair), since, until) >= 0
                 for pair in (one.pair, one.pair[::-1])]  # fmt: skip
        made[rows] = np.where(own | other, np.where(own, DELAYED_OWN, DELAYED_OTHER), 0)
        made[rows] |= np.where(again[0] | again[1], RETRANSMITTED, 0)
    return made


def late(found: Array | None, since: Array, until: Array) -> Array:
    """Whether the last one comes in the second half of the span: what it makes the other end do
    follows it closely. One at the beginning of a long wait says that there was no answer yet.
    """
    at = last(found, since, until)
    return np.asarray((at >= 0) & (until - at <= at - since))


def last(found: Array | None, since: Array, until: Array) -> Array:
    """The last of these times in each span; -1: none is."""
    if found is None or not len(found):
        return np.full(len(since), -1)
    at = np.searchsorted(found, until, side="right") - 1
    time = found[np.maximum(at, 0)]
    return np.where((at >= 0) & (time > since), time, -1)
