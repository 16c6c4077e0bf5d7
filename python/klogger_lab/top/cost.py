# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How often the screen may change: all that `klogger top` does is to stay below 10 % of one CPU.

The recorder works all the time, the rest only for a frame. What the recorder leaves of the budget
is for the frames: the more one costs, the longer is the time to the next.
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

BUDGET = 0.10
# What is aimed at. No measurement sees all: the end of a frame's processes, a frame that costs more
# than the last ones.
AIM = 0.09
# If the recorder alone needs the budget, frames still get a little: else nothing would be seen.
LEAST = 0.01
# Of old measurements, in the average of what a frame costs.
KEPT = 0.5
LONGEST = 300.0


@dataclass(frozen=True)
class Cost:
    """`share`: of one CPU, of the recorder and the frames since the first one; `recorder`: of the
    recorder alone, in the last interval; `frame`: CPU seconds of a frame; `every`: seconds from one
    frame to the next.
    """

    share: float
    recorder: float
    frame: float
    every: float
    stretched: bool

    def said(self) -> str:
        """For the screen."""
        if not self.stretched:
            return f"every {self.every:.3g} s"
        return f"every {self.every:.3g} s, to stay below {BUDGET:.0%} of a CPU"


def own_seconds() -> float:
    """The CPU time of this process, and of those it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Meter:
    """`recorder`: the CPU seconds of the recorder up to now; `own`: of all else."""

    def __init__(
        self,
        every: float,
        recorder: Callable[[], float],
        own: Callable[[], float] = own_seconds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.every = every
        self.recorder, self.own, self.clock = recorder, own, clock
        self.last = (clock(), recorder(), own())
        self.first: tuple[float, float, float] | None = None
        self.frame: float | None = None
        self.cost = Cost(0.0, 0.0, 0.0, every, stretched=False)

    @contextlib.contextmanager
    def asked(self) -> Iterator[None]:
        """What a user asks for in between is not a part of the next frame."""
        before = self.own()
        yield
        time, recorder, own = self.last
        self.last = (time, recorder, own + self.own() - before)

    def frame_made(self) -> Cost:
        """To be called when a frame is complete."""
        now = (self.clock(), self.recorder(), self.own())
        passed = max(now[0] - self.last[0], 1e-3)
        recorder = max(now[1] - self.last[1], 0.0) / passed
        spent = max(now[2] - self.last[2], 0.0)
        # One that costs more is believed at once, one that costs less after a while.
        self.frame = max(spent, KEPT * (self.frame or 0.0) + (1 - KEPT) * spent)
        self.last = now
        if self.first is None:
            # What is loaded for the first frame is not loaded again.
            self.first = now
        left = max(AIM - recorder, LEAST)
        wanted = min(self.frame / left, LONGEST)
        since = now[0] - self.first[0]
        share = (now[1] - self.first[1] + now[2] - self.first[2]) / since if since else recorder
        stretched = wanted > self.every
        self.cost = Cost(share, recorder, self.frame, max(wanted, self.every), stretched)
        return self.cost
