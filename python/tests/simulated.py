# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A small machine that plays threads, and writes down two things: the events of the schema `waits`
that a recording of it would have, and where the time of each thread truly went.

Nothing here is from klogger.why but the names of bins, so that a fault has to be made twice to
stay unseen. Times are even, the recording begins and ends at odd ones: no event is at its ends. No
thread does two things of the scheduler at one time, but several threads may.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from simulated_disks import DiskWait, Request, Truth
from simulated_tasks import Cpu, Interval, Mode, Task, name_of
from simulated_waits import HOLDER, NUMBERS, TIMER, Wait, expected

from klogger.why.bins import Bin

USER = Bin("ran", "user code")
EXIT = Bin("ran", "system call", "exit")
BEFORE = Bin("unknown", "before", "its first event")
EXITS = Bin("ran", "system call", "exit_group")
CODE = ("user code", "system call")
UNSURE = Bin("unknown", "lost", "it ran; the end of its system call is missing")
THROTTLED = Bin("could run", "throttled", "by the quota of its control group")
NOT_SEEN = Bin("could run", "queued", "behind what is not in the log")
ENDED = 0x80
IS_THROTTLED, IN_FAULT, IN_CALL, BY_REQUEST = 1, 2, 4, 8


class Machine:
    """`step`: all times are multiples of it. `interrupts`: they take time."""

    def __init__(self, seed: int, interrupts: bool = False) -> None:
        self.random = random.Random(seed)
        self.step = self.random.choice((2, 2, 20, 1000))
        self.interrupts = interrupts
        self.now = 0
        self.begin = 1
        self.recording = False
        self.heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.numbers = 0
        self.cpus = [Cpu(n) for n in range(self.random.randint(1, 4))]
        self.tasks: list[Task] = []
        self.free: list[int] = []
        self.rows: list[tuple[str, dict[str, int]]] = []
        # In scope, and counted by the schema as waiting for a CPU.
        self.queued = 0
        # Of disks: when requests were done, and which; and the waits that may be for one.
        self.completed: set[int] = set()
        self.requests: list[Request] = []
        self.disk_waits: dict[tuple[int, int], DiskWait] = {}

    def at(self, delay: int, what: Callable[..., None], *more: Any) -> None:
        self.numbers += 1
        heapq.heappush(self.heap, (self.now + delay, self.numbers, what, more))

    def some(self, upto: int) -> int:
        return self.random.randint(1, upto) * self.step

    def often(self, share: float) -> bool:
        return self.random.random() < share

    def log(self, table: str, cpu: int, **values: int) -> None:
        if self.recording:
            self.rows.append((table, {"time": self.now, "cpu": cpu, **values}))

    # What is true.

    def write(self, task: Task, bin_: Bin, target: Task | None = None, until: int = 0) -> None:
        """What it did from `task.since` on."""
        until = until or self.now
        since = max(task.since, self.begin)
        if self.recording and task.scoped and until > since:
            task.parts.append(Interval(since, until, bin_, target))
        task.since = until

    def ran(self, task: Task) -> None:
        self.write(task, self.mode(task) if task.known else BEFORE)

    def mode(self, task: Task) -> Bin:
        if task.exits:
            return EXIT
        for one in reversed(task.modes):
            # A page fault that began before the recording is not in the log.
            if one.kind != "page fault" or one.since >= self.begin:
                return Bin("ran", one.kind, one.what)
        return USER

    def waited_for_cpu(self, task: Task, cpu: Cpu | None) -> None:
        """By those who meanwhile had the CPU that it has now."""
        if not task.known:
            self.write(task, BEFORE)
        elif task.throttled:
            self.write(task, THROTTLED)
        elif cpu is None:
            self.write(task, limited(NOT_SEEN, task.limit, len(self.cpus), None))
        else:
            ends = [time for time, _ in cpu.history[1:]] + [self.now]
            for (_, who), end in zip(cpu.history, ends, strict=True):
                if end > task.since:
                    bin_ = limited(behind(task, who), task.limit, len(self.cpus), cpu.number)
                    self.write(task, bin_, until=end)

    # The scheduler.

    def switch(self, cpu: Cpu, state: int) -> None:
        """The thread on this CPU leaves it, and the next one comes. State 0: it could run on."""
        old, new = cpu.task, cpu.queue.pop(0) if cpu.queue else None
        next_pid, prev_pid = new.pid if new else 0, old.pid if old else 0
        if old:
            old.turn += 1
            self.ran(old)
        if old and old.scoped:
            self.leaves(old, cpu, next_pid, state)
        if new:
            if new.counted:
                self.queued -= 1
                new.counted = False
            self.waited_for_cpu(new, cpu)
        if new and new.scoped:
            new.known = self.recording
            self.log("BACK", cpu.number, pid=new.pid, prev=prev_pid)
        elif self.queued > 0:
            self.log("TAKEN", cpu.number, pid=next_pid, prev=prev_pid)
        cpu.task = new
        cpu.history.append((self.now, next_pid))
        if new:
            self.resume(new, cpu)

    def leaves(self, old: Task, cpu: Cpu, next_pid: int, state: int) -> None:
        stay = self.now - max(old.stay, self.begin)
        amount = self.random.randint(0, stay) if self.interrupts and self.recording else 0
        old.interrupts += amount if old.known else 0
        old.known = self.recording
        call, why = self.call_of(old), self.why(old)
        old.told |= self.recording and call < 0
        if state:
            kind, argument, thing, _ = old.wait
            more = {} if state == ENDED else {
                "argument": argument, "object": thing, "lock": kind.lock, "stack": kind.stack
            }  # fmt: skip
            self.log("BLOCKED", cpu.number, pid=old.pid, next=next_pid, interrupted=amount,
                     state=state, call=call, why=why, **more)  # fmt: skip
        else:
            self.count(old)
            why |= IS_THROTTLED * old.throttled
            old.limit = old.may
            self.log("PREEMPTED", cpu.number, pid=old.pid, next=next_pid, interrupted=amount,
                     call=call, why=why, cpus=old.may)  # fmt: skip

    def call_of(self, task: Task | None) -> int:
        for one in task.modes if task else ():
            if one.kind == "system call":
                return NUMBERS[one.what]
        return -1

    def why(self, task: Task) -> int:
        """As far as the schema knows: nothing of what began before the recording."""
        within = {one.kind for one in task.modes if self.seen_to_begin(task, one)}
        return IN_FAULT * ("page fault" in within) | IN_CALL * ("system call" in within)

    def seen_to_begin(self, task: Task, mode: Mode) -> bool:
        """A child does not enter the call that it returns from."""
        return mode.since >= self.begin and not (mode.what == "clone" and mode.since == task.born)

    def count(self, task: Task) -> None:
        if self.recording and task.scoped and not task.counted:
            task.counted = True
            self.queued += 1

    def resume(self, task: Task, cpu: Cpu) -> None:
        task.status, task.cpu = "runs", cpu.number
        task.since = task.stay = self.now
        self.at(self.some(30), self.slice, cpu, task, task.turn)
        if task.left:
            self.runs(task, task.left)
        else:
            self.advance(task)

    def runs(self, task: Task, ns: int) -> None:
        task.left, task.run_since = ns, self.now
        self.at(ns, self.has_run, task, task.turn)

    def has_run(self, task: Task, turn: int) -> None:
        if task.turn == turn and task.run_since + task.left == self.now:
            task.left = 0
            self.advance(task)

    def advance(self, task: Task) -> None:
        assert task.script
        what, value = next(task.script)
        if what == "run":
            self.runs(task, value)
        elif what == "block":
            self.block(task, value)
        else:
            task.status = "dead"
            self.switch(self.cpus[task.cpu], ENDED)
            if task.scoped:
                # Somebody has to ask for its end before its number is used again.
                self.at(self.step, self.free.append, task.pid)

    def slice(self, cpu: Cpu, task: Task, turn: int) -> None:
        """Its time slice ends, if it still has the CPU."""
        if task.turn != turn:
            return
        if cpu.queue and not task.pinned:
            self.preempt(cpu, task)
        else:
            self.at(self.some(30), self.slice, cpu, task, turn)

    def preempt(self, cpu: Cpu, task: Task) -> None:
        task.left = max(task.left - (self.now - task.run_since), self.step)
        task.status, task.preempted, task.throttled = "queued", True, self.often(0.1)
        task.early = False
        self.switch(cpu, 0)
        self.enqueue(task, self.random.choice(self.cpus) if self.often(0.3) else cpu)

    def block(self, task: Task, wait: Wait) -> None:
        """It leaves its CPU to wait; or is woken before it is off it."""
        task.wait = wait._replace(slept=not self.recording)
        task.status, task.preempted, task.throttled, task.early = "waits", False, False, False
        cpu = self.cpus[task.cpu]
        stay = max(task.stay, self.begin - 1)
        if task.scoped and self.now - stay >= 4 and self.often(0.08):
            then, now = self.random.randrange(stay + 2, self.now, 2), self.now
            self.now = then
            self.log("WOKEN", self.random.choice(self.cpus).number, pid=task.pid, source=TIMER,
                     call=-1, cpus=task.may)  # fmt: skip
            task.limit, self.now = task.may, now
            if self.often(0.7):
                self.count(task)
                task.status, task.early = "queued", True
        self.switch(cpu, wait.kind.state)
        if task.status == "queued":
            self.enqueue(task, self.random.choice(self.cpus))

    def wake(
        self, task: Task, source: int, number: int = 0, waker: Task | None = None,
        cpu: Cpu | None = None, request: Request | None = None,
    ) -> None:  # fmt: skip
        """`waker`: else what happens to run on the CPU, or on some CPU. `request`: by its end."""
        if task.status != "waits":
            return
        cpu = self.cpus[waker.cpu] if waker else cpu or self.random.choice(self.cpus)
        by = cpu.task
        call = self.call_of(by)
        name, what, follows = expected(
            task.wait, source, number, call, name_of(by.pid) if by else "", request is not None
        )
        target = by if follows and by and by.scoped else None
        if task.known:
            since = max(task.since, self.begin)
            self.disk_waits[id(task), since] = DiskWait(task, task.wait, since, self.now, request)
            self.write(task, Bin("waited", name, what), target)
        task.status, task.throttled, task.limit = "queued", self.often(0.05), task.may
        if task.scoped:
            self.count(task)
            self.log("WOKEN", cpu.number, pid=task.pid, waker=by.pid if by else 0, call=call,
                     source=source, number=number, cpus=task.may,
                     why=IS_THROTTLED * task.throttled + BY_REQUEST * bool(request))  # fmt: skip
        self.enqueue(task, self.random.choice(self.cpus))

    def enqueue(self, task: Task, cpu: Cpu) -> None:
        cpu.queue.append(task)
        if cpu.task is None:
            self.at(self.random.choice((0, 1, 2, 5)) * self.step, self.comes, cpu)
        elif self.often(0.3):
            self.at(0, self.is_preempted, cpu, cpu.task, cpu.task.turn)

    def comes(self, cpu: Cpu) -> None:
        if cpu.task is None and cpu.queue:
            self.switch(cpu, 0)

    def is_preempted(self, cpu: Cpu, task: Task, turn: int) -> None:
        if task.turn == turn and cpu.queue and not task.pinned and task.stay < self.now:
            self.preempt(cpu, task)

    # System calls and page faults.

    def enter(self, task: Task, kind: str, what: str) -> None:
        self.ran(task)
        task.told |= self.recording and kind == "system call"
        task.modes.append(Mode(kind, what, self.now))

    def leave(self, task: Task) -> None:
        self.ran(task)
        mode = task.modes.pop()
        took = self.now - mode.since if self.seen_to_begin(task, mode) else 0
        if not task.scoped:
            return
        if mode.kind == "system call":
            task.told = self.recording
            call = NUMBERS[mode.what]
            self.log("CALLED", task.cpu, pid=task.pid, took=took, call=call)
        elif took:
            major = mode.what == "major"
            self.log("FAULTED", task.cpu, pid=task.pid, took=took, major=major)

    # The recording.

    def starts(self) -> None:
        """All threads are listed, which takes some time: those that wait, and those that are dead
        and not gone.
        """
        self.recording, self.begin = True, self.now + 1
        slow = self.random.choice((0, 0, 20))
        for task in self.tasks:
            task.parts, task.counted, task.known, task.since = [], False, False, self.begin
            if task.scoped and slow:
                self.at(self.some(slow), self.lists, task, task.status)
            elif task.scoped:
                self.lists(task, task.status)

    def lists(self, task: Task, status: str) -> None:
        """`status`: when the recording began."""
        time, state = max(self.now, self.begin), task.wait.kind.state
        if status == "dead":
            state = ENDED
        elif task.status == "waits":
            self.write(task, BEFORE) if not task.known else None
            task.known = True
        elif not (task.known and task.status == "runs" and self.often(0.3)):
            # One that runs may be on its way to wait.
            return
        if status != "dead" or self.often(0.3):
            self.rows.append(("SLEPT_BEFORE", {
                "time": time, "cpu": 0, "pid": task.pid, "state": state,
                "call": self.call_of(task),
            }))  # fmt: skip

    def stops(self) -> None:
        self.now += 1
        for task in self.tasks:
            if task.status == "runs":
                self.ran(task)
            elif task.status == "queued" and not (task.early and task.known):
                self.waited_for_cpu(task, None)
            elif task.status != "dead" and not task.known:
                self.write(task, BEFORE)
            elif task.status != "dead":
                # That an early wake-up was that of this wait is seen when it has a CPU again.
                name, what, _ = expected(task.wait, None, 0, -1, "")
                self.write(task, Bin("waited", name, what))
            self.calls_at_end(task)
        truth = Truth(self.requests, self.rows, NUMBERS)
        for task in self.tasks:
            task.parts = [one._replace(bin=self.with_holder(one.bin)) for one in task.parts]
            task.parts = [piece for one in task.parts for piece in self.pieces(truth, task, one)]

    def with_holder(self, bin_: Bin) -> Bin:
        """Where no thread is known to have ended the wait for a pipe: who is seen to wait at its
        other end, if all of these have one name.
        """
        call, is_open, pipe = bin_.what.partition(HOLDER)
        if not is_open:
            return bin_
        other = NUMBERS["write" if call == "read" else "read"]
        names = {
            name_of(row["pid"]) for table, row in self.rows if table == "BLOCKED"
            and row.get("object") == int(pipe) and row["call"] == other
        }  # fmt: skip
        return bin_._replace(what=f"{call} ({names.pop()})" if len(names) == 1 else call)

    def pieces(self, truth: Truth, task: Task, one: Interval) -> list[Interval]:
        """Of a wait for a disk, by the stages of its request."""
        wait = self.disk_waits.get((id(task), one.since))
        return truth.pieces(wait, one) if wait and one.bin.group == "waited" else [one]

    def calls_at_end(self, task: Task) -> None:
        """A thread that is never seen to enter or leave a system call may be in one all the time.
        That it has begun to exit is not in the log before PROCESS_EXIT.
        """
        for one in task.modes if task.scoped else ():
            if (
                one.kind == "system call"
                and task.status != "dead"
                and self.seen_to_begin(task, one)
            ):
                self.log("UNRETURNED", task.cpu, pid=task.pid, so_far=self.now - one.since,
                         call=NUMBERS[one.what])  # fmt: skip
        instead = {EXITS: USER} if task.status == "dead" else {}
        if not task.told:
            instead = {one.bin: UNSURE for one in task.parts if one.bin.kind in CODE}
        task.parts = [one._replace(bin=instead.get(one.bin, one.bin)) for one in task.parts]


def behind(task: Task, who: int) -> Bin:
    if who == 0:
        return Bin("could run", "wake-up", "of an idle CPU")
    if task.preempted:
        return Bin("could run", "preempted", f"by {name_of(who)}")
    return Bin("could run", "queued", f"behind {name_of(who)}")


def limited(bin_: Bin, may: int, cpus: int, cpu: int | None) -> Bin:
    """`may`: so many CPUs could it use, as the log says; 0: it does not."""
    if bin_.kind not in ("preempted", "queued"):
        return bin_
    where = ""
    if may == 1 and cpus > 1:
        where = ", on the only CPU that it may use" + ("" if cpu is None else f" ({cpu})")
    elif 1 < may < cpus:
        where = f", on one of {may} CPUs that it may use"
    return bin_._replace(what=bin_.what + where)
