# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How each engine is measured. Which engines there are, and whether they can record here, klogger
says (`klogger list --engines`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from klogger import program
from klogger.failure import Failure
from klogger_lab.bench.events import CLOCK, EMPTY, OFF, STORE


@dataclass(frozen=True)
class Hits:
    """`block` is the hits of a block, a prime number: short beside what disturbs it, long beside
    readings of a clock.

    After `rounds` blocks of each arm, with a pause between two rounds, a pass is over.
    """

    block: int
    rounds: int
    pause_ns: int
    buffer_option: str
    buffer_size: str
    # Whether the loop hits a place of the kernel, else it logs.
    in_kernel: bool


@dataclass(frozen=True)
class Engine:
    """`floor`: what the arms are that are no events of the schema. `hits`: of the loop whose events
    are recorded; None if the engine measures itself.
    """

    name: str
    hits: Hits | None
    floor: Mapping[str, str]
    notes: tuple[str, ...]


BPF = Engine(
    "bpf",
    Hits(211, 600, 0, "--buffer-size", "4M", in_kernel=True),
    {
        EMPTY: "a probe that does nothing",
        CLOCK: "a probe that reads the clock",
        STORE: "a probe that reads the clock and stores 16 bytes",
        OFF: "a probe whose event is off",
    },
    (
        "Added to a hit of tracepoint {place}, which takes {bare} with nothing attached. In it:"
        " the call of the probe, the tests whether the event is on and its thread in scope, the"
        " clock, taking space, storing constants.",
        "Not in it: what the schema's own C does to get its values, the tracepoint itself, and the"
        " recorder, which has threads of its own. Of several events of one hit, only the first"
        " pays for the probe and the clock.",
    ),
)
# The recorder of programs has no real-time priority, and needs time of its own to empty a ring.
PROGRAM = Hits(1009, 300, 2_000_000, "--user-buffer", "4M", in_kernel=False)
USER = Engine(
    "user",
    PROGRAM,
    {
        CLOCK: "reading the clock",
        STORE: "reading the clock and storing 16 bytes",
        OFF: "an event that is off",
    },
    (
        "Added to an empty loop. In it: the test whether the event is on, the clock, taking "
        "space, storing constants.",
        "Not in it: what the program does to get its values, and the recorder, "
        "which has another thread.",
    ),
)
KERNEL = Engine(
    "kernel",
    None,
    {
        CLOCK: "reading the clock, in a program",
        STORE: "reading the clock and storing 16 bytes, in a program",
    },
    (
        "What the engine's modules measure themselves (/proc/sys/klogger/benchmarks), with"
        " interrupts off, the loop included. Not in it: the tracepoint and its call, whether the"
        " event is on, and what the schema's own C does.",
    ),
)
ENGINES = {engine.name: engine for engine in (BPF, USER, KERNEL)}


def check_available(name: str) -> None:
    """Whether klogger can record with it here."""
    for choice in program.answer("list", "--engines"):
        if choice["name"] == name:
            if not choice["available"]:
                raise Failure(choice["why_not"], help=choice["help"])
            return
    raise Failure(f"klogger has no engine '{name}'")
