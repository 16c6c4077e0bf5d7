# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The disks of a `simulated` machine: they work on a few requests at a time, and write the events
of the schema `block`. And what is true of the waits for them, request by request.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulated_tasks import Cpu, Interval, Task, name_of
from simulated_waits import BLOCK, INODES, SOFT, Wait

from klogger.why.bins import Bin

if TYPE_CHECKING:
    from simulated import Machine

KINDS = {0: "read", 1: "write"}
FLUSHED = "write with flushes"
# A thread of the kernel that writes files for others.
FLUSHER = 990
MAJOR = 7
ON_DISK = ("disk", "page fault from disk")
WRITES = ("pwrite64", "fsync")


@dataclass(eq=False)
class Request:
    disk: int
    pid: int
    kind: int
    file: int
    kernel: bool
    flushed: bool
    asked: int
    issued: int = 0
    done: int = 0
    waiter: Task | None = None
    # It was asked for during the recording.
    known: bool = False

    @property
    def owner(self) -> tuple[str, int]:
        is_of_file = self.kernel and self.file and not self.flushed
        return ("file", self.file) if is_of_file else ("thread", self.pid)


@dataclass
class Disk:
    """`tags`: so many requests may wait or be worked on; `room`: may be worked on."""

    machine: Machine
    number: int
    tags: int
    room: int
    queue: list[Request] = field(default_factory=list)
    works: list[Request] = field(default_factory=list)
    waiters: list[Task] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.queue) + len(self.works) >= self.tags

    def ask(self, task: Task, kind: int, file: int, by_kernel: bool) -> None:
        """For a thread that waits until it is done."""
        one = Request(self.number, FLUSHER if by_kernel else task.pid, kind, file, by_kernel,
                      self.machine.often(0.2), self.machine.now, waiter=task)  # fmt: skip
        task.request = one
        self.queue.append(one)
        self.issue()

    def ask_late(self, task: Task, kind: int, file: int, wait: object) -> None:
        """If it waits still."""
        if task.request is wait:
            self.ask(task, kind, file, True)

    def issue(self) -> None:
        while self.queue and len(self.works) < self.room:
            one = self.queue.pop(0)
            # One that asks for flushes is not known to wait for its driver.
            one.issued = one.asked if one.flushed else self.machine.now
            self.works.append(one)
            self.machine.at(self.machine.some(40), self.completes, one)

    def completes(self, one: Request) -> None:
        machine = self.machine
        if machine.now in machine.completed or machine.now == one.issued:
            machine.at(machine.step, self.completes, one)
            return
        machine.completed.add(machine.now)
        one.done = machine.now
        one.known = machine.recording and one.asked >= machine.begin
        cpu = machine.random.choice(machine.cpus)
        self.works.remove(one)
        self.log(one, cpu)
        if machine.recording:
            machine.requests.append(one)
        if one.waiter and one.waiter.request is one:
            machine.wake(one.waiter, SOFT, BLOCK, cpu=cpu, request=one)
        if self.waiters and machine.often(0.8):
            waiter = self.waiters.pop(0)
            if waiter.wait.kind.stage:
                machine.wake(waiter, SOFT, BLOCK, cpu=cpu, request=one)
        self.issue()

    def log(self, one: Request, cpu: Cpu) -> None:
        """Of one that was asked for before the recording no times are known."""
        took, queued = (one.done - one.issued, one.issued - one.asked) if one.known else (0, 0)
        name, more = "RQ_FLUSHED", {}
        if not one.flushed:
            name, (device, inode) = "RQ_DONE", INODES.get(one.file, (0, 0))
            more = {"queued": queued, "kind": one.kind, "inode": inode, "file_system": device,
                    "kernel": one.kernel}  # fmt: skip
        self.machine.log(name, cpu.number, pid=one.pid, took=took, device=MAJOR << 20 | self.number,
                         **more)  # fmt: skip


@dataclass
class DiskWait:
    """Of a thread; `request`: what woke it. `kind`: see `simulated_waits`."""

    task: Task
    wait: Wait
    since: int
    until: int
    request: Request | None


class Truth:
    """Of the waits for disks, when the recording has ended."""

    def __init__(self, requests: list[Request], rows: list[tuple[str, dict[str, int]]],
                 calls: dict[str, int]) -> None:  # fmt: skip
        self.requests = requests
        self.writers: dict[int, Counter[str]] = {}
        for name, row in rows:
            if name == "BLOCKED" and row["call"] in [calls[one] for one in WRITES]:
                self.writers.setdefault(row.get("object", 0), Counter())[name_of(row["pid"])] += 1

    def name(self, one: Request) -> str:
        writers = self.writers.get(one.file) if one.owner[0] == "file" else None
        return min(writers, key=lambda who: (-writers[who], who)) if writers else name_of(one.pid)

    def most(self, disk: int, owner: tuple[str, int], since: int, until: int) -> str:
        took: Counter[str] = Counter()
        for one in self.requests:
            is_other = one.known and one.disk == disk and one.owner != owner
            if is_other and since < one.done <= until:
                took[self.name(one)] += one.done - one.issued
        return min(took, key=lambda name: (-took[name], name), default="")

    def guess(self, wait: DiskWait) -> Request | None:
        """For who waits for a page, and is woken by something else."""
        if not wait.wait.kind.pages:
            return None
        during = [one for one in self.requests if wait.since <= one.done <= wait.until]
        of_file = [one for one in during if one.file and not one.flushed
                   and one.file == wait.wait.object]  # fmt: skip
        own = [one for one in during if one.pid == wait.task.pid]
        return (of_file or own or [None])[-1]

    def pieces(self, wait: DiskWait, old: Interval) -> list[Interval]:
        one = wait.request or self.guess(wait)
        if one is None or not one.known or old.bin.kind not in ON_DISK:
            return [old]
        own = ("thread", wait.task.pid)
        device = f"{MAJOR}:{one.disk}"
        if wait.request and wait.wait.kind.stage:
            who = self.most(one.disk, own, wait.since, wait.until)
            text = f"{f'behind {who}, ' if who else ''}{wait.wait.kind.stage.format(device)}"
            return [piece(old, wait.since, wait.until, text, sure=True)]
        return self.stages(wait, one, old, f"{FLUSHED if one.flushed else KINDS[one.kind]} on"
                           f" {device}")  # fmt: skip

    def stages(self, wait: DiskWait, one: Request, old: Interval, what: str) -> list[Interval]:
        since, until = wait.since, wait.until
        done = until if wait.request else one.done
        asked, issued = (min(max(time, since), done) for time in (one.asked, one.issued))
        ahead = [other.done for other in self.requests if other.known and other.disk == one.disk
                 and other.owner != one.owner and other.issued < one.issued
                 and issued < other.done < one.done]  # fmt: skip
        passed = max(ahead, default=issued)
        made = []
        for begin, end, text, word in (
            (since, asked, f"before {what}", "beside"),
            (asked, issued, f"queued {what}", "behind"),
            (issued, passed, what, "behind"),
            (passed, done, what, ""),
            (done, until, f"after {what}", ""),
        ):
            who = self.most(one.disk, one.owner, begin, end) if word else ""
            said = f"{word} {who}, {text}" if who else text
            if end > begin:
                made.append(piece(old, begin, end, said, sure=wait.request is not None))
        return made


def piece(old: Interval, since: int, until: int, text: str, *, sure: bool) -> Interval:
    text = f"{text}{'' if sure else ', probably'}: {old.bin.what}"
    return Interval(since, until, Bin("waited", old.bin.kind, text, sure), None)
