# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whether threads wait for their locks for so long, by what the kernel says of them now.

In a dead-lock nothing happens, and so there are no events that would show that it lasts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from klogger_lab.watch.detect import LASTS, Circle, Deadlock, Detector, Wait

# What a thread does: its system call, and how often it has slept.
State = tuple[str, str]


@dataclass
class Watched:
    """A circle that was seen: when, and what its threads did then."""

    since: float
    states: list[State]


@dataclass
class Blocked:
    seen: dict[Circle, Watched] = field(default_factory=dict)

    def look(self, detector: Detector) -> list[Deadlock]:
        """The dead-locks among the candidates: those whose threads have not moved for `LASTS`."""
        now = time.monotonic()
        found = []
        for key in [key for key in self.seen if key not in detector.candidates]:
            del self.seen[key]
        for key, candidate in list(detector.candidates.items()):
            states = [state_of(wait) for wait in candidate.waits]
            waiting = [state for state in states if state is not None]
            before = self.seen.get(key)
            if len(waiting) < len(states):
                # Its end is in the events to come.
                self.seen.pop(key, None)
            elif before is None or before.states != waiting:
                self.seen[key] = Watched(now, waiting)
            elif now - before.since >= LASTS / 1e9:
                detector.confirm(candidate)
                found.append(candidate)
        return found


def state_of(wait: Wait) -> State | None:
    """None if it does not wait for this lock (any more)."""
    folder = Path(f"/proc/{wait.tgid}/task/{wait.thread}")
    try:
        # Number and arguments of the system call, the first of which is the address of the lock.
        call = (folder / "syscall").read_text().split()
        switches = (folder / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2]
    except OSError:
        return None
    if len(call) < 2 or not call[1].startswith("0x") or int(call[1], 16) != wait.lock:
        return None
    return " ".join(call), switches.split("\n", 1)[0].strip()
