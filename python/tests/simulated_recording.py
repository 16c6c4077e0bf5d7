# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`play` makes one recording of a `simulated` machine, with the truth about it."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from simulated import Machine
from simulated_disks import FLUSHER, KINDS
from simulated_tasks import Task, name_of
from simulated_threads import World
from simulated_waits import CALLS, INODES, OBJECTS, STACKS

from klogger.why.bins import Bin
from klogger.why.events import COLUMNS, REQUESTS, Array, Events, gaps_of, table_of


@dataclass
class Recording:
    """`parts`: of each thread, what is true; `since`: when the command was executed."""

    events: Events
    machine: Machine
    tasks: list[Task]
    command: Task
    since: int

    def own(self) -> dict[tuple[str, Bin], int]:
        found: dict[tuple[str, Bin], int] = {}
        for task in self.tasks:
            for one in task.parts:
                key = name_of(task.pid), one.bin
                found[key] = found.get(key, 0) + one.until - one.since
        return found

    def followed(self, tasks: list[Task], since: int = 0) -> dict[tuple[str, Bin], int]:
        found: dict[tuple[str, Bin], int] = {}
        for task in tasks:
            follow(task, since, self.machine.now, (), found)
        return found

    def lose(self, gaps: list[tuple[int, int, int]]) -> None:
        """Of each gap, the events of its CPU (-1: of all) between its ends are not in the log."""
        kept = [
            (name, row)
            for name, row in self.machine.rows
            if not any(
                since < row["time"] < until and cpu in (row["cpu"], -1)
                for cpu, since, until in gaps
            )
        ]
        self.events.tables = tables_of(kept)
        self.events.gaps = gaps_of(gaps)


def follow(
    task: Task, since: int, until: int, chain: tuple[Task, ...], found: dict[tuple[str, Bin], int]
) -> int:
    """Adds what a thread did in this time, and those that it waited for. Returns how much of the
    time it was there.
    """
    there = 0
    for one in task.parts:
        begin, end = max(since, one.since), min(until, one.until)
        if end <= begin:
            continue
        there += end - begin
        rest = end - begin
        if one.target and one.target is not task and one.target not in chain:
            rest -= follow(one.target, begin, end, (*chain, task), found)
        if rest:
            key = name_of(task.pid), one.bin
            found[key] = found.get(key, 0) + rest
    return there


def play(seed: int, interrupts: bool = False, events: int = 0, disks: bool = False) -> Recording:
    """`events`: how many at least. `disks`: mostly for these the threads wait."""
    machine = Machine(seed, interrupts)
    world = World(machine, disks)
    wanted = events or machine.random.randint(20, 250)
    for number in range(machine.random.randint(2, 6)):
        task = world.add(scoped=number == 0 or machine.often(0.6))
        machine.enqueue(task, machine.random.choice(machine.cpus))
    before = machine.random.choice((0, 0, 50, 300)) * machine.step
    executes = before + machine.some(300)
    since: int | None = None
    until(machine, before)
    # One that still lives, and whose number nobody had before.
    command = next((one for one in machine.tasks if one.scoped and one.status != "dead"),
                   machine.tasks[0])  # fmt: skip
    machine.starts()
    limit = machine.now + 100_000 * machine.step
    while machine.heap and machine.now < limit:
        if len(machine.rows) >= wanted and not in_faults(machine):
            break
        due = since is None and machine.heap[0][0] > executes and machine.now > machine.begin
        if due and command.status == "runs":
            since = machine.now
            machine.log("PROCESS_EXEC", command.cpu, pid=command.pid)
        step(machine)
    machine.stops()
    return recorded(machine, command, since)


def in_faults(machine: Machine) -> bool:
    """When it ends, no page fault is under way: the log does not say of those."""
    return any(one.kind == "page fault" for task in machine.tasks for one in task.modes)


def step(machine: Machine) -> None:
    machine.now, _, what, more = heapq.heappop(machine.heap)
    what(*more)


def until(machine: Machine, time: int) -> None:
    while machine.heap and machine.heap[0][0] <= time:
        step(machine)
    machine.now = time


def recorded(machine: Machine, command: Task, since: int | None) -> Recording:
    events = Events(
        begin=machine.begin,
        end=machine.now,
        tables=tables_of(machine.rows),
        gaps=gaps_of([]),
        names={pid: name_of(pid) for pid in (*(task.pid for task in machine.tasks), FLUSHER)},
        calls=dict(CALLS),
        stacks=dict(STACKS),
        objects=dict(OBJECTS),
        inodes=dict(INODES),
        kinds=dict(KINDS),
        whole=True,
        cpus=len(machine.cpus),
    )
    tasks = seen(machine)
    for task in tasks:
        # Nobody follows to a thread that is not in the log.
        task.parts = [
            one if one.target in tasks else one._replace(target=None) for one in task.parts
        ]
    return Recording(events, machine, tasks, command, since or machine.begin)


def tables_of(rows: list[tuple[str, dict[str, int]]]) -> dict[str, Array]:
    tables: dict[str, list[dict[str, int]]] = {name: [] for name in COLUMNS}
    for name, row in rows:
        tables[name].append(row)
    return {name: table_of(name, found) for name, found in tables.items()}


def seen(machine: Machine) -> list[Task]:
    """Those that have an event of their own; a number may have been that of another one before."""
    found = set()
    for name, row in machine.rows:
        if name not in ("TAKEN", "PROCESS_EXEC", "PROCESS_EXIT", *REQUESTS):
            had = [one for one in machine.tasks if one.scoped and one.pid == row["pid"]]
            found.add(next(one for one in reversed(had) if one.born <= row["time"]))
    return [task for task in machine.tasks if task in found]
