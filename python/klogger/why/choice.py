# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whose time is asked for, and from when to when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from klogger.failure import Failure
from klogger.units import printable
from klogger.why.events import Array, Events
from klogger.why.operations import RECORD, Operations, Slowest
from klogger.why.parts import Parts
from klogger.why.threads import Threads


@dataclass
class Choice:
    """Whose time: of the command that was recorded, or of threads by their number, their name or
    the number of their process; and from when to when, in ns since the log began. None: as far as
    the log goes. `operations`: only of these, or of the slowest of them; of all threads, if
    none are asked for. `pictured`: with what pictures need.
    """

    threads: Sequence[int] = ()
    programs: Sequence[str] = ()
    processes: Sequence[int] = ()
    since: int | None = None
    until: int | None = None
    operations: Operations | None = None
    slowest: Slowest | None = None
    pictured: bool = False


@dataclass
class Chosen:
    """Spans of lives of threads. `operation`: the number of the operation that each is."""

    lives: Array
    since: Array
    until: Array
    title: str
    operation: Array = field(default_factory=lambda: np.zeros(0, "i8"))
    notes: list[str] = field(default_factory=list)


def lives_of(events: Events, threads: Threads, command: int | None) -> Array:
    """Those of the command's first thread. Another thread that executes a program has its number
    from then on: that is one more.
    """
    found = np.flatnonzero(threads.pid == (-1 if command is None else command))
    executed = events.tables["PROCESS_EXEC"]
    other = executed["old_pid"][executed["pid"] == command] if len(found) else np.zeros(0, "i4")
    return found if ((other > 0) & (other != command)).any() else found[:1]


def since_exec(whole: Parts, events: Events, threads: Threads, first: int) -> Parts:
    """The command begins when its program does: before that, it waits for the recorder."""
    executed = events.tables["PROCESS_EXEC"]
    times = executed["time"][executed["pid"] == threads.pid[first]]
    if not len(times):
        return whole
    begin, behind = np.searchsorted(whole.thread, [first, first + 1])
    since = np.searchsorted(whole.until[begin:behind], times[0], side="right") + begin
    left = whole.without(int(begin), int(since))
    if since < behind and left.since[begin] < times[0]:
        left.since[begin] = times[0]
        ns = left.until[begin] - left.since[begin]
        left.amounts[begin] = np.minimum(left.amounts[begin], ns)
    return left


def chosen(
    events: Events, threads: Threads, whole: Parts, choice: Choice, command: Array
) -> Chosen:
    """`command`: the lives of its first thread, which are meant if nobody is asked for."""
    if not len(threads.pid):
        raise Failure("the log has no events of any thread", help=f"record with '{RECORD}'")
    begins, ends = whole.lasted(len(threads.pid), events.end)
    rows, title = asked_for(events, threads, choice, command)
    since = np.maximum(begins, choice.since if choice.since is not None else events.begin)
    until = np.minimum(ends, choice.until if choice.until is not None else events.end)
    if choice.operations is not None:
        return operations(choice, choice.operations, threads, rows, since, until)
    lives = np.flatnonzero(rows & (until > since))
    if not len(lives):
        raise Failure(
            "the threads that are asked for were not there at that time",
            help="'klogger info FILE' says when the log begins and ends",
        )
    return Chosen(lives, since[lives], until[lives], title)


def asked_for(
    events: Events, threads: Threads, choice: Choice, command: Array
) -> tuple[Array, str]:
    """Whether each life is, and what they are called."""
    names = np.array([events.name(int(pid)) for pid in threads.pid])
    if choice.threads or choice.programs or choice.processes:
        groups = np.array([events.groups.get(int(p), -1) for p in threads.pid])
        rows = np.isin(threads.pid, list(choice.threads)) | np.isin(groups, list(choice.processes))
        rows |= np.isin(names, list(choice.programs))
        numbers = (*choice.threads, *choice.processes)
        asked = [f"{events.names[n]}[{n}]" if n in events.names else str(n) for n in numbers]
        title = ", ".join([*asked, *choice.programs])
        if not rows.any():
            raise Failure(
                f"no thread of the log is called '{title}'",
                help="it has: " + ", ".join(map(printable, sorted(set(names.tolist()))[:8])),
            )
        return rows, title
    if len(command) and choice.operations is None:
        return np.isin(np.arange(len(threads.pid)), command), str(names[command[0]])
    return threads.counts, "all threads"


def operations(
    choice: Choice, found: Operations, threads: Threads, rows: Array, since: Array, until: Array
) -> Chosen:
    """Those of the lives `rows`, as far as these were there, in whole."""
    lives = threads.at(found.pid, found.since)
    there = lives >= 0
    there[there] = (
        rows[lives[there]]
        & (found.since[there] >= since[lives[there]])
        & (found.until[there] <= until[lives[there]])
        & (found.until[there] > found.since[there])
    )
    kept = np.flatnonzero(there)
    if choice.slowest is not None:
        kept = kept[choice.slowest.of((found.until - found.since)[kept])]
    if not len(kept):
        raise Failure(f"no {found.what} is of these threads, and at that time",
                      help="leave out --thread, --program and --between")  # fmt: skip
    return Chosen(lives[kept], found.since[kept], found.until[kept], found.what, kept, found.notes)
