# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the threads of a `simulated` machine do: each has a script of random steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from simulated import Machine
from simulated_disks import Disk
from simulated_tasks import Mode, Script, Task
from simulated_waits import (
    BLOCK,
    FILE,
    KINDS,
    NET_RX,
    OTHER,
    PIPE,
    SOCKET,
    SOFT,
    THREAD,
    TIMER,
    Wait,
)

COMMAND, OUTSIDER = 100, 900
THREADS_MAX = 12


@dataclass
class Lock:
    """Of the program or of the kernel: the one who unlocks wakes the first that waits."""

    kind: str
    address: int
    owner: Task | None = None
    queue: list[Task] = field(default_factory=list)


@dataclass
class Pipe:
    object: int
    full: bool = False
    queue: list[Task] = field(default_factory=list)


class World:
    def __init__(self, machine: Machine, disks: bool = False) -> None:
        self.machine = machine
        self.locks = [Lock("futex", 0x7F0000001000), Lock("futex", 0x7F0000001040)]
        self.mutex = Lock("mutex", 0)
        self.pipes = [Pipe(PIPE), Pipe(PIPE + 1)]
        self.disks = [
            Disk(
                machine, number, machine.random.choice((2, 4, 50)), machine.random.choice((1, 2, 9))
            )
            for number in range(2)
        ]
        self.steps: list[Callable[[Task], Script]] = [
            self.compute, self.compute, self.simple_call, self.minor, self.major, self.locked,
            self.locked, self.lock_late, self.reads, self.writes, self.sleep, self.poll, self.child,
            self.child, self.in_kernel, self.in_kernel, self.disk, self.requested, self.requested,
            self.requested, self.asynchronous, self.stop, self.pause, self.signals, self.signals,
            self.reclaim, self.receives, self.forks, self.forks,
            *[self.requested] * (40 if disks else 0),
        ]  # fmt: skip

    def script(self, task: Task, child: bool) -> Script:
        if child:
            yield self.run()
            self.machine.leave(task)
        short = child and self.machine.often(0.6)
        for _ in range(self.machine.random.randint(*((0, 3) if short else (2, 30)))):
            yield from self.machine.random.choice(self.steps)(task)
        yield from self.exits(task)

    def exits(self, task: Task) -> Script:
        machine = self.machine
        machine.enter(task, "system call", "exit_group")
        task.pinned = True
        yield self.run()
        machine.ran(task)
        machine.log("PROCESS_EXIT", task.cpu, pid=task.pid)
        task.exits = task.told = machine.recording
        task.pinned = False
        if task.parent:
            machine.wake(task.parent, THREAD, waker=task)
        yield self.run()
        yield "exit", None

    def run(self, upto: int = 20) -> tuple[str, int]:
        return "run", self.machine.some(upto)

    def wait(self, kind: str, argument: int = 0, thing: int = 0) -> tuple[str, Wait]:
        return "block", Wait(KINDS[kind], argument, thing, slept=False)

    def compute(self, task: Task) -> Script:
        yield self.run(60)

    def simple_call(self, task: Task) -> Script:
        self.machine.enter(task, "system call", "kill")
        yield self.run()
        if self.machine.often(0.3):
            yield from self.minor(task)
        self.machine.leave(task)

    def minor(self, task: Task) -> Script:
        self.machine.enter(task, "page fault", "minor")
        yield self.run(5)
        self.machine.leave(task)

    def major(self, task: Task) -> Script:
        self.machine.enter(task, "page fault", "major")
        yield self.run(5)
        self.machine.at(self.machine.some(40), self.machine.wake, task, SOFT, BLOCK)
        yield self.wait("fault")
        yield self.run(5)
        self.machine.leave(task)

    def acquire(self, task: Task, lock: Lock) -> Script:
        while lock.owner:
            lock.queue.append(task)
            yield self.wait(lock.kind, lock.address)
            if task in lock.queue:
                lock.queue.remove(task)
            yield self.run(3)
        lock.owner = task

    def release(self, task: Task, lock: Lock) -> None:
        lock.owner = None
        if lock.queue:
            self.machine.wake(lock.queue.pop(0), THREAD, waker=task)

    def locked(self, task: Task) -> Script:
        lock = self.machine.random.choice(self.locks)
        self.machine.enter(task, "system call", "futex")
        yield self.run(3)
        yield from self.acquire(task, lock)
        self.machine.leave(task)
        yield from self.machine.random.choice(
            (self.compute, self.minor, self.major, self.sleep, self.disk)
        )(task)
        self.machine.enter(task, "system call", "futex")
        yield self.run(2)
        self.release(task, lock)
        yield self.run(2)
        self.machine.leave(task)

    def lock_late(self, task: Task) -> Script:
        """Waits for a lock until it has waited too long."""
        lock = self.locks[0]
        self.machine.enter(task, "system call", "futex")
        yield self.run(3)
        if lock.owner:
            self.machine.at(self.machine.some(30), self.machine.wake, task, TIMER)
            yield self.wait("futex", lock.address)
            yield self.run(3)
        self.machine.leave(task)

    def in_kernel(self, task: Task) -> Script:
        self.machine.enter(task, "system call", "unlink")
        yield self.run(3)
        yield from self.acquire(task, self.mutex)
        yield self.run(40)
        self.release(task, self.mutex)
        yield self.run(3)
        self.machine.leave(task)

    def reads(self, task: Task) -> Script:
        yield from self.moves(task, "read", full=False)

    def writes(self, task: Task) -> Script:
        yield from self.moves(task, "write", full=True)

    def moves(self, task: Task, call: str, full: bool) -> Script:
        """Waits while the pipe is `full`, or not, makes it the other, and wakes who waits."""
        pipe = self.machine.random.choice(self.pipes)
        self.machine.enter(task, "system call", call)
        yield self.run(5)
        if pipe.full == full:
            pipe.queue.append(task)
            self.gives_up(task)
            yield self.wait(call, 3, pipe.object)
            if task in pipe.queue:
                pipe.queue.remove(task)
            yield self.run(5)
        pipe.full = full
        if pipe.queue:
            self.machine.wake(pipe.queue.pop(0), THREAD, waker=task)
        yield self.run(5)
        self.machine.leave(task)

    def gives_up(self, task: Task) -> None:
        """So that nobody waits for ever: something else wakes it, as a signal would."""
        if self.machine.often(0.8):
            self.machine.at(self.machine.some(150), self.machine.wake, task, THREAD)

    def sleep(self, task: Task) -> Script:
        self.machine.enter(task, "system call", "nanosleep")
        yield self.run(3)
        self.machine.at(self.machine.some(60), self.machine.wake, task, TIMER)
        yield self.wait("sleep", 0x7FFE0000)
        yield self.run(3)
        self.machine.leave(task)

    def poll(self, task: Task) -> Script:
        source, number = self.machine.random.choice(
            ((TIMER, 0), (THREAD, 0), (SOFT, NET_RX), (SOFT, NET_RX))
        )
        yield from self.for_events(task, "poll", "poll", source, number)

    def receives(self, task: Task) -> Script:
        source, number = self.machine.random.choice(((THREAD, 0), (SOFT, NET_RX), (SOFT, NET_RX)))
        yield from self.for_events(task, "recvfrom", "receive", source, number)

    def for_events(self, task: Task, call: str, kind: str, source: int, number: int) -> Script:
        self.machine.enter(task, "system call", call)
        yield self.run(3)
        self.machine.at(self.machine.some(60), self.machine.wake, task, source, number)
        yield self.wait(kind, 5, SOCKET if kind == "receive" else 0)
        yield self.run(3)
        self.machine.leave(task)

    def child(self, task: Task) -> Script:
        """Waits until a child ends, as for a process or as for a thread."""
        mine = [one for one in self.machine.tasks if one.parent is task and one.status != "dead"]
        if not mine:
            return
        call, kind = self.machine.random.choice((("wait4", "child"), ("futex", "futex")))
        self.machine.enter(task, "system call", call)
        yield self.run(3)
        if any(one.status != "dead" and not one.exits for one in mine):
            self.gives_up(task)
            yield self.wait(kind, 2**64 - 1)
            yield self.run(3)
        self.machine.leave(task)

    def disk(self, task: Task) -> Script:
        self.machine.enter(task, "system call", "pread64")
        yield self.run(5)
        self.machine.at(self.machine.some(50), self.machine.wake, task, SOFT, BLOCK)
        yield self.wait("disk", 4, FILE)
        yield self.run(5)
        self.machine.leave(task)

    def requested(self, task: Task) -> Script:
        """Of a disk with requests; by the thread itself, or, later, for it."""
        machine = self.machine
        disk, file = machine.random.choice(self.disks), machine.random.choice((FILE, OTHER))
        call, kind = machine.random.choice(
            (("pread64", "disk"), ("fsync", "fsync"), ("pread64", "direct"), ("pwrite64", ""))
        )
        machine.enter(task, "system call", call)
        yield self.run(5)
        if call == "pwrite64":
            yield from self.room(task, disk, file)
        else:
            self.ask(task, disk, file, kind)
            yield self.wait(kind, 4, file)
            task.request = None
        yield self.run(5)
        machine.leave(task)

    def ask(self, task: Task, disk: Disk, file: int, kind: str) -> None:
        machine, number = self.machine, int(kind == "fsync")
        if kind != "direct" and machine.often(0.4):
            task.request = coming = object()
            machine.at(machine.some(30), disk.ask_late, task, number, file, coming)
        else:
            disk.ask(task, number, file if kind != "direct" else 0, machine.often(0.3))

    def room(self, task: Task, disk: Disk, file: int) -> Script:
        """Waits until the device has room, and then for nothing."""
        if not (disk.works or disk.queue):
            return
        disk.waiters.append(task)
        self.gives_up(task)
        yield self.wait(self.machine.random.choice(("full", "throttle")), 4, file)
        if task in disk.waiters:
            disk.waiters.remove(task)
        if not disk.is_full:
            disk.ask(task, 1, 0, by_kernel=False)
            task.request = None

    def asynchronous(self, task: Task) -> Script:
        self.machine.enter(task, "system call", "io_getevents")
        yield self.run(5)
        self.machine.random.choice(self.disks).ask(task, 0, 0, by_kernel=False)
        yield self.wait("events", 4)
        task.request = None
        yield self.run(5)
        self.machine.leave(task)

    def reclaim(self, task: Task) -> Script:
        self.machine.enter(task, "system call", "unlink")
        yield self.run(5)
        self.machine.at(self.machine.some(50), self.machine.wake, task, TIMER)
        yield self.wait("reclaim")
        yield self.run(5)
        self.machine.leave(task)

    def stop(self, task: Task) -> Script:
        yield self.run(5)
        self.gives_up(task)
        yield self.wait("stop")
        yield self.run(5)

    def pause(self, task: Task) -> Script:
        self.machine.enter(task, "system call", "pause")
        yield self.run(5)
        self.gives_up(task)
        yield self.wait("pause")
        yield self.run(5)
        self.machine.leave(task)

    def signals(self, task: Task) -> Script:
        """Wakes whoever waits for a signal, or is stopped by one."""
        self.machine.enter(task, "system call", "kill")
        yield self.run(5)
        for other in self.machine.tasks:
            if other.scoped and other.wait.kind in (KINDS["stop"], KINDS["pause"]):
                self.machine.wake(other, THREAD, waker=task)
        yield self.run(5)
        self.machine.leave(task)

    def forks(self, task: Task) -> Script:
        machine = self.machine
        if sum(one.status != "dead" for one in machine.tasks if one.scoped) >= THREADS_MAX:
            return
        machine.enter(task, "system call", "clone")
        yield self.run(5)
        new = self.add(True, task)
        machine.log("PROCESS_FORK", task.cpu, pid=new.pid, parent=task.pid)
        machine.enqueue(new, machine.random.choice(machine.cpus))
        yield self.run(5)
        machine.leave(task)

    def add(self, scoped: bool, parent: Task | None = None) -> Task:
        """A new thread, which is not yet in a queue of a CPU."""
        machine = self.machine
        if not scoped:
            pid = OUTSIDER + len(machine.tasks)
        elif parent and machine.free and machine.often(0.5):
            pid = machine.free.pop(0)
        else:
            pid = COMMAND + len(machine.tasks)
        task = Task(pid, scoped, born=machine.now, since=machine.now, parent=parent)
        task.known = machine.recording and parent is not None
        task.may = (0, 1, 2, len(machine.cpus))[pid % 4]
        task.script = self.script(task, parent is not None) if scoped else self.outsider(task)
        if parent:
            task.modes.append(Mode("system call", "clone", machine.now))
            machine.count(task)
        machine.tasks.append(task)
        return task

    def outsider(self, task: Task) -> Script:
        while True:
            yield self.run(40)
            self.machine.at(self.machine.some(100), self.machine.wake, task, TIMER)
            yield self.wait("sleep")
