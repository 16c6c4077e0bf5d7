# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""ftrace as a second witness of the same switches.

Some kernels do not report every switch: in virtual machines whose kernel is not a stock one, a few switches hit no
tracepoint. The kernel's counters know of them, and no tracer does. The recorder is not to blame if its log has
whatever ftrace has.
"""

import os
import re
from collections import Counter
from pathlib import Path

INSTANCE = Path(f"/sys/kernel/tracing/instances/klogger-test-{os.getpid()}")
LINE = re.compile(r": sched_switch: prev_comm=.* prev_pid=(\d+) .* ==> next_comm=.* next_pid=(\d+) ")


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

    def clears(self, log, report: dict) -> bool:
        """Whether the log has, of each thread that reported, all the switches that ftrace has."""
        seen = Counter()
        for match in LINE.finditer(self.text):
            seen.update([("out", int(match[1])), ("in", int(match[2]))])
        for tid in {thread["tid"] for thread in report["threads"]}:
            if log.count("SCHEDOUT", f"pid = {tid}") < seen["out", tid]:
                return False
            if log.count("SCHEDIN", f"pid = {tid}") < seen["in", tid]:
                return False
        return True
