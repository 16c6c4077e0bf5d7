# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The stalls that stall_causes.py has measured, and what the log of them says they waited for."""

from dataclasses import dataclass, field
from pathlib import Path

import klogger
from klogger import waterfall

# Of 100 stalls, and of their time.
FOUND = 0.95
UNEXPLAINED = 0.1
# The program's clock is read before and after the call.
SLACK_NS = 1000


@dataclass
class Stalls:
    """Of each cause: the waterfall of each stall, and how long it was by the program's clock."""

    found: dict[str, list[tuple[waterfall.Waterfall, int]]] = field(default_factory=dict)

    def check(self, cause: str, name: str, times: int) -> None:
        """Of what was planted as `cause`, nearly all must have the name, and little none."""
        stalls = [one for one, _ in self.found.get(cause, [])]
        assert len(stalls) == times
        missed = [one.causes for one in stalls if max(one.causes, key=one.causes.get) != name]
        assert len(missed) <= (1 - FOUND) * times, missed
        unexplained = sum(one.causes.get("unexplained", 0) for one in stalls)
        assert unexplained <= UNEXPLAINED * sum(one.took for one in stalls)


def read(path: Path, said: str) -> Stalls:
    """What the program said are its stalls, in the log at `path`."""
    stalls = Stalls()
    with klogger.open(path) as log:
        waterfall.prepare(log)
        start = log.meta["preamble"]["clock"]["start_ns"]
        calls: dict[int, list[tuple[int, int, int]]] = {}
        for pid, id, begun, ended in log.rows(
            "SELECT pid, id, from_ns, to_ns FROM klogger.operation WHERE to_ns IS NOT NULL"
        ):
            calls.setdefault(pid, []).append((id, begun + start, ended + start))
        for line in said.splitlines():
            cause, *numbers = line.split()
            tid, begun, ended = map(int, numbers)
            # The longest of the thread's calls between its two looks at the clock.
            within = [
                (until - since, id)
                for id, since, until in calls[tid]
                if begun - SLACK_NS <= since and until <= ended + SLACK_NS
            ]
            assert within, "no operation between two looks at the clock"
            one = waterfall.read(log, max(within)[1])
            stalls.found.setdefault(cause, []).append((one, ended - begun))
    return stalls
