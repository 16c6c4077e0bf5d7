# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""ftrace as a second witness of the same switches.

Some kernels do not report every switch: in virtual machines whose kernel is not a stock one, a few switches of an idle
CPU reach only one tracer of several, or none. The kernel's counters know of them. The recorder is not to blame if its
log has whatever ftrace has.
"""

import os
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

INSTANCE = Path(f"/sys/kernel/tracing/instances/klogger-test-{os.getpid()}")
LINE = re.compile(
    r"\[(\d+)\] .* (\d+)\.(\d{6}): sched_switch: prev_comm=.* prev_pid=(\d+) .* ==> next_comm=.* next_pid=(\d+) "
)


class Switch(NamedTuple):
    """Thread `before` was switched out, thread `after` was switched in. The time is CLOCK_MONOTONIC's."""

    cpu: int
    time_ns: int
    before: int
    after: int


class Witness:
    """Records all switches of the machine for as long as it is entered."""

    def __enter__(self):
        INSTANCE.mkdir()
        (INSTANCE / "trace_clock").write_text("mono")
        (INSTANCE / "buffer_size_kb").write_text("65536")
        (INSTANCE / "events/sched/sched_switch/enable").write_text("1")
        return self

    def __exit__(self, *_):
        (INSTANCE / "events/sched/sched_switch/enable").write_text("0")
        self.text = (INSTANCE / "trace").read_text(errors="replace")
        INSTANCE.rmdir()

    def switches(self) -> list[Switch]:
        """Those of each CPU in their order."""
        found = (map(int, match.groups()) for match in LINE.finditer(self.text))
        return [Switch(cpu, s * 1_000_000_000 + us * 1000, before, after) for cpu, s, us, before, after in found]

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
