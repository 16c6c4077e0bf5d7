# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The clock of a host, compared with ours over the open connection, as NTP does it: it is asked for
its time again and again. Its answer was read between our question and its coming; so of the
exchange with the smallest round trip the offset is known to half of that, however the way there
and the way back differ.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from klogger_lab.collect.ssh import Ssh

EXCHANGES, FEWEST = 30, 5
READINGS = 50
# Seconds; of a slow connection there are fewer exchanges.
LONGEST = 3.0
# How far a clock may run away that was not compared again: a bad crystal.
DRIFT = 1e-4
# Without Python, each answer starts `date`, which costs a millisecond; some know only seconds.
HELPER = """
serve() {
    python3 -c '
import sys, time
print(sys.argv[1], "python3", flush=True)
while sys.stdin.buffer.readline():
    print(sys.argv[1], time.time_ns(), time.monotonic_ns(), flush=True)
' "$token" 2>/dev/null && return
    how=date
    case $(date +%N) in
        *[!0-9]* | '') how=seconds ;;
    esac
    echo "$token $how"
    while read -r _; do
        if [ $how = date ]; then echo "$token $(date +%s%N)"; else echo "$token $(date +%s)"; fi
    done
}
serve
"""


class Reference:
    """Our clock: CLOCK_REALTIME as it was at first, which nobody sets meanwhile."""

    def __init__(self) -> None:
        # Of several readings, that which was interrupted least.
        readings = [
            (time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(READINGS)
        ]
        before, wall, after = min(readings, key=lambda r: r[2] - r[0])
        self.base = wall - (before + after) // 2
        self.error = (after - before + 1) // 2

    def now(self) -> int:
        return time.monotonic_ns() + self.base


@dataclass(frozen=True)
class Span:
    """A value that is known to be in here."""

    low: int
    high: int

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2

    @property
    def error(self) -> int:
        return (self.high - self.low + 1) // 2

    def wider(self, by: int) -> Span:
        return Span(self.low - by, self.high + by)

    def hull(self, other: Span) -> Span:
        return Span(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True)
class Measured:
    """`realtime`: of the host, minus ours. `monotonic`: our CLOCK_REALTIME minus the host's
    CLOCK_MONOTONIC, which nobody sets; not known without Python there.
    """

    at_ns: int
    how: str
    exchanges: int
    round_trip_ns: int
    realtime: Span
    monotonic: Span | None


def measure(ssh: Ssh, reference: Reference) -> Measured | None:
    """None if the host gives no time."""
    with ssh.start(HELPER) as session:
        how = session.answer()
        found: list[Measured] = []
        until = time.monotonic() + LONGEST
        while how and len(found) < EXCHANGES and (len(found) < FEWEST or time.monotonic() < until):
            sent = reference.now()
            session.tell("\n")
            words = session.answer()
            one = exchange(how[0], words, sent, reference.now()) if words else None
            if one is None:
                break
            found.append(one)
        session.close_input()
    # What our own two clocks are not known to is a part of it.
    best = min(found, key=lambda m: m.realtime.error, default=None)
    if best is None:
        return None
    return replace(
        best, exchanges=len(found), realtime=best.realtime.wider(reference.error),
        monotonic=best.monotonic and best.monotonic.wider(reference.error),
    )  # fmt: skip


def exchange(how: str, words: list[str], sent: int, came: int) -> Measured | None:
    try:
        wall, *rest = map(int, words)
    except ValueError:
        return None
    # The second that has begun.
    whole = 10**9 if how == "seconds" else 0
    wall *= whole or 1
    monotonic = Span(sent - rest[0], came - rest[0]) if rest else None
    return Measured(
        sent, how, 1, came - sent, Span(wall - came, wall + whole - sent), monotonic
    )  # fmt: skip


@dataclass
class Clock:
    """What was measured of a host: before the recording and, if it was still there, after it."""

    measured: list[Measured] = field(default_factory=list)

    def realtime(self, until_ns: int) -> Span | None:
        return self.together([m.realtime for m in self.measured], until_ns)

    def monotonic(self, until_ns: int) -> Span | None:
        found = [m.monotonic for m in self.measured if m.monotonic]
        return self.together(found if len(found) == len(self.measured) else [], until_ns)

    def together(self, spans: list[Span], until_ns: int) -> Span | None:
        """A clock that drifts evenly was in all of this time between what it was at both ends."""
        if len(spans) == 1:
            return spans[0].wider(int(DRIFT * max(until_ns - self.measured[0].at_ns, 0)))
        return spans[0].hull(spans[-1]) if spans else None

    def as_json(self, until_ns: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, span in (
            ("realtime", self.realtime(until_ns)), ("monotonic", self.monotonic(until_ns))
        ):  # fmt: skip
            found[name] = span and {"offset_ns": span.middle, "error_ns": span.error}
        return found | {"measured": [asdict(m) for m in self.measured]}
