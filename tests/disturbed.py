# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tests whose oracle needs something of the machine that this one did not give while they ran.

Such a test names its condition, measures it during the run, and looks at what it measured when the
oracle fails, or where the oracle means nothing without the condition. A test without a verdict is
no success: tests/tally.py counts them, and a run with more than a few fails.
"""

import os
import resource
import time
from pathlib import Path
from typing import NoReturn

import pytest

PREFIX = "disturbed: "


def disturbed(why: str) -> NoReturn:
    """Ends the test without a verdict: `why` says what was measured of the condition that the test
    needs.
    """
    pytest.skip(PREFIX + why)


class Quiet:
    """The condition that the test has the CPUs to itself: while it is entered, `taken` is measured.

    That is the share of all CPUs' time that went to programs that are neither this one nor were
    started, and waited for, by it; or to other machines of the same hypervisor.
    """

    # What the services of an idle machine take is less.
    MOST = 0.1

    def __enter__(self) -> "Quiet":
        self.began = self.now()
        return self

    def __exit__(self, *_) -> None:
        before, after = self.began, self.now()
        passed, busy, own = (b - a for a, b in zip(before, after, strict=True))
        self.taken = max(0.0, busy - own) / (passed * (os.cpu_count() or 1))

    @staticmethod
    def now() -> tuple[float, float, float]:
        """Seconds: of the clock; of all CPUs but idle ones; of this process and its children."""
        words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, words)
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        own = sum(use.ru_utime + use.ru_stime for use in uses)
        return time.monotonic(), busy, own

    def check(self, failed: str) -> None:
        """Ends the test: without a verdict if the machine was not quiet, else as a failure."""
        if self.taken > self.MOST:
            disturbed(f"{failed}; others took {self.taken:.0%} of the CPUs meanwhile")
        pytest.fail(failed)
