# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Crashes and dead-locks in a stream of events of the schemata `lifecycle` and `futex`.

A crash is a process that was ended by a signal whose default is a core dump, or by a SIGKILL that
the kernel sent of itself: out of memory, `cgroup.kill`, a hard limit of CPU time. A signal with a
handler is none, nor is one that somebody sends to end a process: SIGTERM, SIGINT, SIGKILL.

A dead-lock is a circle of threads, each of which waits for a lock that the next one holds. Who
holds a lock is known when a thread begins to wait (`WAIT.holder`), or is a guess (`WAIT.guess`). It
is a dead-lock if the circle lasts for `LASTS`: the events say so if it ends later than that, and as
long as nothing happens, `candidates` are to be looked at (`blocked.py`).
"""

from __future__ import annotations

import signal
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# As DUMPS in lifecycle.klogger.
DUMPS = frozenset({3, 4, 5, 6, 7, 8, 11, 24, 25, 31})
KILL = 9
# si_code of what the kernel sends without a cause of its own.
FROM_KERNEL = 0x80
DEFAULT = 0
# How long threads must wait for each other, in ns; as in the analysis `cycles`.
LASTS = 100_000_000
# A longer chain of threads is not followed.
THREADS_MAX = 64
# What is kept of processes that have ended, for the names in later events.
KEPT = 4096

Event = Mapping[str, Any]
# Threads, and the locks that they wait for.
Circle = frozenset[tuple[int, int]]


@dataclass
class Process:
    pid: int
    parent: int = 0
    program: str = ""

    @property
    def name(self) -> str:
        return f"{self.program.rsplit('/', 1)[-1] or 'process'}[{self.pid}]"


@dataclass
class Crash:
    """`time` is that of its end, in ns since the beginning."""

    process: Process
    parents: list[Process]
    time: int
    signal: int
    core: bool
    thread: int | None = None
    address: int | None = None
    stack: int = 0
    # The process that sent the signal, if another one did.
    sender: Process | None = None

    @property
    def signal_name(self) -> str:
        return signal_name(self.signal)


@dataclass(frozen=True)
class Wait:
    """A thread waits for a lock. `guessed`: who holds it is not known; it would be this thread if
    the lock were a mutex of glibc.
    """

    thread: int
    tgid: int
    lock: int
    holder: int
    since: int
    stack: int
    guessed: bool = False


@dataclass
class Deadlock:
    """Each thread waits for the lock that the next one holds, the last one for that of the first.
    `time`: when the last one began to wait. `lasted`: how long, if it is over.
    """

    waits: tuple[Wait, ...]
    process: Process
    time: int
    lasted: int | None = None

    @property
    def known(self) -> bool:
        return not any(wait.guessed for wait in self.waits)


@dataclass
class Fatal:
    """A signal that has taken effect in a process which may end by it."""

    thread: int
    address: int
    stack: int


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def number(event: Event, name: str) -> int:
    """A log may be damaged."""
    value = event.get(name)
    return value if isinstance(value, int) else 0


@dataclass
class Detector:
    processes: dict[int, Process] = field(default_factory=dict)
    tgids: dict[int, int] = field(default_factory=dict)
    fatal: dict[tuple[int, int], Fatal] = field(default_factory=dict)
    senders: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    crashed: set[int] = field(default_factory=set)
    ended: deque[Process] = field(default_factory=deque)
    waits: dict[int, Wait] = field(default_factory=dict)
    # Which threads wait for a lock of a process.
    waiters: dict[tuple[int, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    # Circles that have not lasted long enough yet, and those that were reported: by the threads,
    # and what each waits for.
    candidates: dict[Circle, Deadlock] = field(default_factory=dict)
    reported: set[Circle] = field(default_factory=set)
    # When the command began, which is the second program of the first process (`stream.JOIN`).
    root: int | None = None
    began: int = 0

    def feed(self, event: Event) -> Iterator[Crash | Deadlock]:
        """What an event shows, events being in the order of time."""
        match event.get("event"):
            case "STARTED":
                self.started(event)
            case "RAN":
                self.ran(event)
            case "SIGNALLED":
                self.signalled(event)
            case "DELIVERED":
                self.delivered(event)
            case "ENDED":
                yield from self.thread_ended(event)
            case "WAIT":
                self.waiting(event)
            case "WAITED":
                yield from self.wait_ended(number(event, "tid"), number(event, "time"))
            case "WOKE":
                yield from self.given_away(event)

    # Processes.

    def process(self, pid: int) -> Process:
        return self.processes.setdefault(pid, Process(pid))

    def started(self, event: Event) -> None:
        pid, tgid = number(event, "pid"), number(event, "tgid")
        parent = self.tgid(number(event, "parent"))
        self.tgids[pid] = tgid
        if pid == tgid:
            self.processes[pid] = Process(pid, parent, self.process(parent).program)
            self.crashed.discard(pid)

    def ran(self, event: Event) -> None:
        process = self.process(number(event, "pid"))
        process.program = str(event.get("program", ""))
        if self.root is None:
            self.root = process.pid
        elif self.root == process.pid and not self.began:
            self.began = number(event, "time")

    def tgid(self, pid: int) -> int:
        return self.tgids.get(pid, pid)

    def parents(self, process: Process) -> list[Process]:
        """The innermost first; those that are known."""
        found: list[Process] = []
        while process.parent in self.processes and len(found) < THREADS_MAX:
            process = self.processes[process.parent]
            found.append(process)
        return found

    def forget(self, process: Process) -> None:
        """Processes that ended long ago; until then, their children are named by them."""
        self.ended.append(process)
        while len(self.ended) > KEPT:
            old = self.ended.popleft()
            # Its number may be that of another process by now.
            if self.processes.get(old.pid) is old:
                self.crashed.discard(old.pid)
                del self.processes[old.pid]

    # Crashes.

    def signalled(self, event: Event) -> None:
        sig = number(event, "sig")
        if sig in DUMPS or sig == KILL:
            key = (self.tgid(number(event, "pid")), sig)
            self.senders[key] = (self.tgid(number(event, "sender")), number(event, "code"))

    def delivered(self, event: Event) -> None:
        sig = number(event, "sig")
        if sig in DUMPS and number(event, "action") == DEFAULT:
            self.fatal[number(event, "tgid"), sig] = Fatal(
                number(event, "tid"), number(event, "address"), number(event, "user_stack")
            )

    def thread_ended(self, event: Event) -> Iterator[Crash | Deadlock]:
        pid, tgid, code = number(event, "pid"), number(event, "tgid"), number(event, "code")
        time, sig = number(event, "time"), code & 127
        # All threads of a process end with the code of the one that was hit.
        if tgid not in self.crashed and self.is_crash(tgid, sig):
            self.crashed.add(tgid)
            yield self.crash(tgid, sig, code & 128 > 0, time)
        yield from self.wait_ended(pid, time)
        self.tgids.pop(pid, None)
        if event.get("last"):
            for one in [*DUMPS, KILL]:
                self.fatal.pop((tgid, one), None)
                self.senders.pop((tgid, one), None)
            self.forget(self.process(tgid))

    def is_crash(self, tgid: int, sig: int) -> bool:
        by_kernel = self.senders.get((tgid, sig), (0, 0))[1] == FROM_KERNEL
        return sig in DUMPS or (sig == KILL and by_kernel)

    def crash(self, tgid: int, sig: int, core: bool, time: int) -> Crash:
        process = self.process(tgid)
        found = Crash(process, self.parents(process), time, sig, core)
        fatal = self.fatal.get((tgid, sig))
        if fatal is not None:
            found.thread, found.stack = fatal.thread, fatal.stack
            if fatal.address or sig == signal.SIGSEGV:
                found.address = fatal.address
        sender, code = self.senders.get((tgid, sig), (tgid, 0))
        # A timer is no process.
        if sender and sender != tgid and code <= 0:
            found.sender = self.process(sender)
        return found

    # Dead-locks.

    def waiting(self, event: Event) -> None:
        thread, tgid, lock = number(event, "tid"), number(event, "tgid"), number(event, "lock")
        self.stop_waiting(thread)
        self.tgids.setdefault(thread, tgid)
        holder, guess = number(event, "holder"), number(event, "guess")
        wait = Wait(
            thread, tgid, lock, holder or guess, number(event, "time"),
            number(event, "user_stack"), guessed=holder == 0 and guess != 0,
        )  # fmt: skip
        self.waits[thread] = wait
        self.waiters[tgid, lock].add(thread)
        circle = self.circle(thread)
        if circle and key_of(circle) not in self.reported:
            found = Deadlock(circle, self.process(tgid), wait.since)
            self.candidates[key_of(circle)] = found

    def circle(self, thread: int) -> tuple[Wait, ...]:
        """From a thread through the holders of locks back to it; empty if that leads elsewhere."""
        found: list[Wait] = []
        at = thread
        while len(found) < THREADS_MAX:
            wait = self.waits.get(at)
            if wait is None or wait.holder == 0:
                return ()
            found.append(wait)
            at = wait.holder
            if at == thread:
                return tuple(found)
        return ()

    def stop_waiting(self, thread: int) -> bool:
        wait = self.waits.pop(thread, None)
        if wait is None:
            return False
        of_lock = self.waiters[wait.tgid, wait.lock]
        of_lock.discard(thread)
        if not of_lock:
            del self.waiters[wait.tgid, wait.lock]
        return True

    def wait_ended(self, thread: int, time: int) -> Iterator[Deadlock]:
        if self.stop_waiting(thread):
            yield from self.broken(thread, time)

    def given_away(self, event: Event) -> Iterator[Deadlock]:
        """Who wakes others holds the lock no longer; who holds it then, is not known."""
        thread, tgid, lock = number(event, "tid"), number(event, "tgid"), number(event, "lock")
        for waiter in list(self.waiters.get((tgid, lock), ())):
            if self.waits[waiter].holder == thread:
                self.waits[waiter] = replace(self.waits[waiter], holder=0)
                yield from self.broken(waiter, number(event, "time"))

    def broken(self, thread: int, time: int) -> Iterator[Deadlock]:
        """The circles through a thread are over: those that lasted long enough were dead-locks."""
        for key in [key for key in self.candidates if any(thread == one for one, _ in key)]:
            found = self.candidates.pop(key)
            if time - found.time >= LASTS:
                found.lasted = time - found.time
                self.reported.add(key)
                yield found

    def confirm(self, found: Deadlock) -> None:
        """It has lasted long enough: it is reported now, and not again."""
        key = key_of(found.waits)
        if self.candidates.pop(key, None) is not None:
            self.reported.add(key)


def key_of(waits: Iterable[Wait]) -> Circle:
    return frozenset((wait.thread, wait.lock) for wait in waits)
