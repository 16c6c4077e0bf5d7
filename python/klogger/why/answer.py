# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The answer: of which threads, how long, in which bins, and because of whom."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from klogger import losses
from klogger.failure import Failure
from klogger.log import Log
from klogger.log import open as opened
from klogger.sqltext import literal
from klogger.why import choice as choosing
from klogger.why import disks, follow, operated, parts, threads
from klogger.why import events as reading
from klogger.why.bins import COULD_RUN, GROUPS, RAN, Bin, Bins
from klogger.why.choice import Choice
from klogger.why.events import Array, Events, Sums
from klogger.why.follow import Followed, Node
from klogger.why.operated import Operated
from klogger.why.operations import RECORD
from klogger.why.path import Path
from klogger.why.threads import Threads

CHAINS = 3
# Chains of less of the elapsed time say nothing.
LEAST = 0.005
# The bins of the amounts that have no place in time.
AMOUNT_BINS = (
    (RAN, "interrupts and soft interrupts", ""),
    (RAN, "stolen by the hypervisor", ""),
    (RAN, "klogger's own cost", "as measured before"),
)


@dataclass
class Line:
    """One bin: ns, how many stretches of time, and the longest of them, with its thread."""

    program: str
    bin: Bin
    ns: int = 0
    times: int = 0
    longest: int = 0
    since: int = 0
    until: int = 0
    pid: int = 0

    def add(self, ns: int, times: int, longest: int, since: int, until: int, pid: int) -> None:
        self.ns += ns
        self.times += times
        if longest > self.longest:
            self.longest, self.since, self.until, self.pid = longest, since, until, pid

    def as_json(self) -> dict[str, Any]:
        longest = {"ns": self.longest, "from_ns": self.since, "to_ns": self.until,
                   "thread": self.pid}  # fmt: skip
        return {"program": self.program, **self.bin.as_json(), "ns": self.ns, "times": self.times,
                "longest": longest}  # fmt: skip


@dataclass
class Chain:
    """Who waited for whom, from the first to what the last one did."""

    steps: list[Line]


@dataclass
class Thread:
    pid: int
    name: str
    elapsed: int
    groups: dict[str, int]
    most: Bin | None
    most_ns: int

    def as_json(self) -> dict[str, Any]:
        most = self.most.as_json() if self.most else None
        return {"thread": self.pid, "name": self.name, "elapsed_ns": self.elapsed, **self.groups,
                "most": most, "most_ns": self.most_ns}  # fmt: skip


@dataclass
class Walk:
    """The critical path in columns, `edges` apart: of each column what was done, by the thread's
    name, its number, a bin and ns. `edges` has one more.
    """

    edges: list[int]
    columns: list[list[tuple[str, int, Bin, int]]]


@dataclass
class Answer:
    """`own`: in what bins the time of the chosen threads is. `followed`: the same, with each wait
    for a thread replaced by what that one did meanwhile. Both sum up to `elapsed`. `stacks` and
    `path`: if they are asked for.
    """

    title: str
    elapsed: int
    chosen: list[int]
    own: list[Line] = field(default_factory=list)
    followed: list[Line] = field(default_factory=list)
    chains: list[Chain] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    operated: Operated | None = None
    stacks: list[tuple[list[str], int]] = field(default_factory=list)
    path: Walk | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title, "elapsed_ns": self.elapsed, "threads_chosen": self.chosen,
            "bins": [line.as_json() for line in self.own],
            "followed": [line.as_json() for line in self.followed],
            "because": [[step.as_json() for step in chain.steps] for chain in self.chains],
            "threads": [one.as_json() for one in self.threads], "notes": self.notes,
            "operations": self.operated.as_json() if self.operated else None,
        }  # fmt: skip


def of_file(
    file: str | os.PathLike[str],
    choose: Callable[[Log], Choice] = lambda _: Choice(),
    progress: Callable[[str], None] = lambda _: None,
) -> Answer:
    """Opens the log, and reads from it whose time is asked for."""
    log = opened(file, quiet=False, locked=True)
    try:
        return of_log(log, choose(log), progress)
    finally:
        log.close()


def of_log(log: Log, choice: Choice, progress: Callable[[str], None] = lambda _: None) -> Answer:
    if "BLOCKED" not in log.events:
        raise Failure(
            f"{log.path} has no events of the schema {reading.SCHEMA}",
            help=f"record with '{RECORD}', or 'klogger record -s {reading.SCHEMA}'",
        )
    progress("reading")
    answer = of_events(reading.read(log), choice, progress, command_of(log))
    answer.notes += notes(log) + disks.hint(log, ((line.bin, line.ns) for line in answer.own))
    return answer


def notes(log: Log) -> list[str]:
    """What the ledger has to say of an answer that is made from all events of the schema."""
    return losses.warnings(log, reading.COLUMNS)


# What the recorder's thread is called that starts the command, and until it executes a program the
# command, too. So are those of other recorders.
COMMAND = "klogger/command"


def command_of(log: Log) -> int | None:
    """The process that the recorder started: its child, as far as numbers are those of the kernel's
    (in a container they may not be).
    """
    recorder = log.preamble.get("recorder")
    own = recorder.get("pid") if isinstance(recorder, dict) else None
    if "PROCESS_EXISTS" not in log.events or not log.preamble.get("workload"):
        return None
    order = [f"ppid = {own} DESC"] if isinstance(own, int) else []
    if "PROCESS_EXEC" in log.events:
        order.append("pid IN (SELECT pid FROM PROCESS_EXEC) DESC")
    found = log.rows(
        f"SELECT pid FROM PROCESS_EXISTS WHERE comm = {literal(COMMAND)} AND pid NOT IN (SELECT pid"
        f" FROM klogger.recorder) ORDER BY {', '.join([*order, 'time'])} LIMIT 1"
    )
    return int(found[0][0]) if found else None


def of_events(
    events: Events,
    choice: Choice,
    progress: Callable[[str], None] = lambda _: None,
    command: int | None = None,
) -> Answer:
    progress("threads")
    events = reading.checked(events)
    bins = Bins()
    lived = threads.lives(events)
    whole = parts.find(events, lived, bins)
    own_lives = choosing.lives_of(events, lived, command)
    if len(own_lives):
        whole = choosing.since_exec(whole, events, lived, int(own_lives[0]))
    # The parts say all that is needed from here on, and take as much memory.
    events.tables.clear()
    picked = choosing.chosen(events, lived, whole, choice, own_lives)
    names = [events.name(int(pid)) for pid in lived.pid]
    unique = sorted(set(names))
    numbers = {name: number for number, name in enumerate(unique)}
    program = np.array([numbers[name] for name in names] or [0], dtype="i8")
    progress("who waited for whom")
    overlaps = follow.Overlaps(whole)
    spans_of = (picked.lives, picked.since, picked.until)
    path = None
    if choice.pictured and len(picked.lives) == 1:
        path = Path(int(picked.since[0]), int(picked.until[0]))
    own, followed = follow.follow(overlaps, *spans_of, program, each=path.add if path else ignore)
    pids = lived.pid
    answer = Answer(
        title=picked.title,
        elapsed=own.whole,
        chosen=sorted({int(p) for p in pids[picked.lives]}),
        own=lines(own, bins, unique, pids),
        followed=lines(followed, bins, unique, pids),
        chains=chains(followed, bins, unique, pids),
        threads=table(lived, whole, bins, events),
        stacks=stacks(followed, bins, unique) if choice.pictured else [],
        path=walk(path, followed, bins, pids, events) if path else None,
    )
    if choice.operations is not None:
        answer.operated = operated.of(choice.operations, picked, overlaps, bins, pids)
    answer.notes += picked.notes
    if followed.left:
        answer.notes.append(f"{followed.left:,} waits were not followed: there are too many")
    if followed.cut:
        answer.notes.append(f"{followed.cut:,} waits for each other in a circle were not followed")
    return answer


def lines(found: Followed, bins: Bins, names: list[str], pids: Array) -> list[Line]:
    """By program and bin, the most time first."""
    made: dict[tuple[str, Bin], Line] = {}

    def line(program: int, one: Bin) -> Line:
        return made.setdefault((names[program], one), Line(names[program], one))

    for number, end in found.ends.items():
        node = found.nodes[number]
        line(node.program, bins[node.bin]).add(
            end.ns, end.times, end.longest, end.since, end.until, int(pids[end.thread])
        )
        for ns, times, what in zip(end.amounts, end.amount_times, AMOUNT_BINS, strict=True):
            line(node.program, Bin(*what)).add(int(ns), int(times), 0, 0, 0, 0)
    return sorted(
        (one for one in made.values() if one.ns), key=lambda one: (-one.ns, one.program, one.bin)
    )


def chains(found: Followed, bins: Bins, names: list[str], pids: Array) -> list[Chain]:
    """Those that cost most: of the nodes below a wait for somebody, those with most time."""
    least = found.whole * LEAST
    deep = [(-end.ns, n) for n, end in found.ends.items()
            if found.nodes[n].above > follow.TOP and end.ns >= least]  # fmt: skip
    total = totals(found)
    made = []
    for _, number in sorted(deep)[:CHAINS]:
        steps, at, end = [], number, found.ends[number]
        while at > follow.TOP:
            node: Node = found.nodes[at]
            steps.append(Line(names[node.program], bins[node.bin], total[at]))
            at = node.above
        steps[0].ns = end.ns
        steps[0].add(0, end.times, end.longest, end.since, end.until, int(pids[end.thread]))
        made.append(Chain(steps[::-1]))
    return made


def ignore(_: follow.Leaves) -> None:
    pass


def stacks(found: Followed, bins: Bins, names: list[str]) -> list[tuple[list[str], int]]:
    """What ends at each node, in ns, with the way to it: program, group, bin; and for each that is
    followed below, program and bin.
    """
    ways: list[list[str]] = [[]]
    for node in found.nodes[1:]:
        one, program = bins[node.bin], names[node.program]
        own = [f"{program}: {one.group}, {one.text}"]
        first = [program, one.group, one.text or one.kind]
        ways.append(ways[node.above] + own if node.above > follow.TOP else first)
    return [(ways[number], end.whole) for number, end in found.ends.items() if end.whole]


def walk(path: Path, found: Followed, bins: Bins, pids: Array, events: Events) -> Walk:
    made = Walk(path.edges.tolist(), [[] for _ in path.edges[1:]])
    for column, life, node, ns in zip(*(each.tolist() for each in path.cells), strict=True):
        pid = int(pids[life])
        bin_ = bins[found.nodes[node].bin]
        made.columns[column].append((events.name(pid), pid, bin_, ns))
    return made


def totals(found: Followed) -> list[int]:
    """The time of each node with all that is below it. A node has a greater number than that
    above it.
    """
    sums = [found.ends[n].whole if n in found.ends else 0 for n in range(len(found.nodes))]
    for number in range(len(sums) - 1, follow.TOP, -1):
        above = found.nodes[number].above
        if above > follow.TOP:
            sums[above] += sums[number]
    return sums


# So many parts are summed up at a time.
BATCH = 1 << 18


def cells(whole: parts.Parts, width: int) -> tuple[Array, Array, Array]:
    """Threads, the bins that each has, and ns. There may be too many of both for a matrix."""
    found = Sums()
    for first in range(0, len(whole.thread), BATCH):
        rows = slice(first, first + BATCH)
        found.add(whole.thread[rows].astype("i8") * width + whole.bin[rows],
                  whole.until[rows] - whole.since[rows])  # fmt: skip
    key, ns = found.all()
    return key // max(width, 1), key % max(width, 1), ns


def table(lived: Threads, whole: parts.Parts, bins: Bins, events: Events) -> list[Thread]:
    """All threads, first those that were on a CPU longest, or could have been."""
    pids = lived.pid
    thread, bin_, ns = cells(whole, len(bins.all))
    group = np.array([GROUPS.index(one.group) for one in bins.all], dtype="i8")
    sums = np.zeros((len(pids), len(GROUPS)), "i8")
    np.add.at(sums, (thread, group[bin_]), ns)
    # The longest of each that is not on a CPU comes first.
    order = np.lexsort((bin_, -ns, thread))
    order = order[group[bin_[order]] != GROUPS.index(RAN)]
    owner, first = np.unique(thread[order], return_index=True)
    most = dict(zip(owner.tolist(), order[first].tolist(), strict=True))
    made = []
    for at in np.flatnonzero(lived.counts).tolist():
        pid, row, longest = int(pids[at]), sums[at].tolist(), most.get(at)
        made.append(Thread(pid, events.name(pid), sum(row), dict(zip(GROUPS, row, strict=True)),
                           None if longest is None else bins[int(bin_[longest])],
                           0 if longest is None else int(ns[longest])))  # fmt: skip
    return sorted(made, key=lambda one: (-one.groups[RAN] - one.groups[COULD_RUN], one.pid))
