# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""ftrace as a second witness of the same switches.

Some kernels do not report every switch: in virtual machines whose kernel is not a stock one, a few
switches of an idle CPU reach only one tracer of several, or none. The kernel's counters know of
them. The recorder is right if its log has whatever ftrace has.
"""

import itertools
import os
import re
from collections import Counter
from typing import NamedTuple

import pytest

from klogger_lab import tracefs

LINE = re.compile(
    r"\[(\d+)\] .* (\d+)\.(\d{6}): sched_switch: prev_comm=.* prev_pid=(\d+) .* ==> next_comm=.*"
    r" next_pid=(\d+) "
)


class Ftrace:
    """A buffer of ftrace of our own, with all hits of some events (`sched/sched_switch`) while it
    is entered.

    tracefs is mounted for it, if need be; where that cannot be, the test is skipped.
    """

    numbers = itertools.count()

    def __init__(self, *events: str, kib: int = 65536, clock: str = "local"):
        if why := tracefs.why_not():
            pytest.skip(why)
        self.events, self.kib, self.clock = events, kib, clock
        self.folder = tracefs.ROOT / f"instances/klogger-test-{os.getpid()}-{next(self.numbers)}"

    def __enter__(self):
        self.folder.mkdir()
        try:
            (self.folder / "trace_clock").write_text(self.clock)
            (self.folder / "buffer_size_kb").write_text(str(self.kib))
            for event in self.events:
                (self.folder / "events" / event / "enable").write_text("1")
        except OSError:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        try:
            (self.folder / "events/enable").write_text("0")
            self.text = (self.folder / "trace").read_text(errors="replace")
            stats = "".join(file.read_text() for file in self.folder.glob("per_cpu/cpu*/stats"))
        finally:
            self.end()
        # What it overwrote or had no space for.
        self.lost = sum(map(int, re.findall(r"(?:overrun|dropped events): (\d+)", stats)))

    def end(self):
        (self.folder / "events/enable").write_text("0")
        self.folder.rmdir()


class Switch(NamedTuple):
    """Thread `before` was switched out, thread `after` was switched in. The time is
    CLOCK_MONOTONIC's.
    """

    cpu: int
    time_ns: int
    before: int
    after: int


class Witness(Ftrace):
    """Records all switches of the machine for as long as it is entered."""

    def unreported(self) -> int:
        """How many switches the kernel did, but did not report: whom a CPU switches to, it must
        switch from next.
        """
        running, count = {}, 0
        for switch in self.switches():
            count += running.get(switch.cpu, switch.before) != switch.before
            running[switch.cpu] = switch.after
        return count

    def __init__(self):
        super().__init__("sched/sched_switch", clock="mono")

    def switches(self) -> list[Switch]:
        """Those of each CPU in their order."""
        found = (map(int, match.groups()) for match in LINE.finditer(self.text))
        return [
            Switch(cpu, s * 1_000_000_000 + us * 1000, before, after)
            for cpu, s, us, before, after in found
        ]

    def clears(self, log, report: dict) -> bool:
        """Whether the log has, of each thread that reported, all the switches that ftrace has."""
        seen = Counter()
        for switch in self.switches():
            seen.update([("out", switch.before), ("in", switch.after)])
        for tid in {thread["tid"] for thread in report["threads"]}:
            if log.count("SCHEDOUT", f"pid = {tid}") < seen["out", tid]:
                return False
            if log.count("SCHEDIN", f"pid = {tid}") < seen["in", tid]:
                return False
        return True
