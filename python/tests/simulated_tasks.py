# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The threads and CPUs of a `simulated` machine."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from simulated_waits import KINDS, Wait

from klogger.why.bins import Bin

SLEEPS = Wait(KINDS["sleep"], 0, 0, slept=False)


def name_of(pid: int) -> str:
    return f"program-{pid}"


class Interval(NamedTuple):
    since: int
    until: int
    bin: Bin
    target: Task | None


class Mode(NamedTuple):
    """A page fault or a system call; `what`: minor or major, or the call."""

    kind: str
    what: str
    since: int


Script = Generator[tuple[str, Any], None, None]


@dataclass(eq=False)
class Task:
    """A thread. `since`: what it does is written down until then. `known`: the log says what it
    does. `stay`: when it was given its CPU. `modes`: innermost last.
    """

    pid: int
    scoped: bool
    born: int = 0
    script: Script | None = None
    cpu: int = 0
    status: str = "queued"
    since: int = 0
    known: bool = False
    stay: int = 0
    # Of what it computes: how long still, and since when; `turn` changes when it leaves its CPU.
    left: int = 0
    run_since: int = 0
    turn: int = 0
    pinned: bool = False
    modes: list[Mode] = field(default_factory=list)
    exits: bool = False
    wait: Wait = SLEEPS
    preempted: bool = False
    throttled: bool = False
    # On so many CPUs may it run; and as far as the log says, since it has none.
    may: int = 0
    limit: int = 0
    early: bool = False
    counted: bool = False
    interrupts: int = 0
    # Something in the log says whether it was in a system call when it was first seen.
    told: bool = False
    parent: Task | None = None
    # Of a disk, that it waits for; or what is to make it, or None.
    request: object | None = None
    parts: list[Interval] = field(default_factory=list)

    @property
    def name(self) -> str:
        return name_of(self.pid)


@dataclass
class Cpu:
    number: int
    task: Task | None = None
    queue: list[Task] = field(default_factory=list)
    # Who has had it since when.
    history: list[tuple[int, int]] = field(default_factory=lambda: [(-1, 0)])
