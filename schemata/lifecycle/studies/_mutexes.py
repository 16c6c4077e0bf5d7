# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study `threads`: how many system calls a lock operation costs, alone and with others, and
what becomes of a lock whose holder ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from klogger.analysis import Picture
from klogger.executor import Result, Rows
from klogger_lab.study.model import Arm, Check, Plan, Run, column

from ._libraries import figure, first, here, log_of, program, reports

PAIRS = 100_003
# Round trips of two threads; seconds that 2, 4 and 8 threads share a mutex.
TRIPS_LEAST, TRIPS_MOST = 2_003, 20_011
SHARE_LEAST, SHARE_MOST = 0.1, 0.8
# The rest of an arm.
REST = 0.4
# Switches to wait, of both threads, for each round trip.
SWITCHES, TOLERANCE = 2.0, 0.2
# A switch that the kernel did not report is in no log.
SWITCHES_MISSED = 0.005


def arms(plan: Plan) -> list[Arm]:
    libraries = here(threads=True)
    each = min(max((plan.seconds / 6 / len(libraries) - REST) / 3, SHARE_LEAST), SHARE_MOST)
    trips = TRIPS_LEAST if each < SHARE_MOST / 2 else TRIPS_MOST
    return [
        Arm(
            f"mutexes, {library.name}",
            [program(plan, library, "mutexes.c"), str(PAIRS), f"{each:.2f}", str(trips)],
            3 * each + REST,
            {"part": "mutexes", "library": library.name},
            record=["-s", "futex"],
        )
        for library in libraries
    ]


@dataclass
class Locked:
    """What the log says of a mutex that `threads` threads used; `held`: what they counted while
    they held it.
    """

    library: str
    threads: int
    pairs: int
    held: int
    took_ns: int
    waits: int
    returned: int
    again: int
    wakes: int
    woken: int
    none: int
    asleep: int
    # Calls of the whole process.
    process: int

    @property
    def each(self) -> float:
        return (self.waits + self.wakes) / max(self.pairs, 1)


@dataclass
class Turns:
    library: str
    trips: int
    logged: int
    counted: int


@dataclass
class Robust:
    library: str
    owner_died: bool
    again: int
    waits: int
    by_owner: int
    calls_of_owner: int


# Of the mutex at $1, of $2 bytes, in the process $3. What -11 is, is EAGAIN: the mutex had changed.
LOCK = """
    WITH waits AS (SELECT * FROM WAIT WHERE tgid = $3 AND lock >= $1 AND lock < $1 + $2),
        waited AS (SELECT * FROM WAITED WHERE tgid = $3 AND lock >= $1 AND lock < $1 + $2),
        woke AS (SELECT * FROM WOKE WHERE tgid = $3 AND lock >= $1 AND lock < $1 + $2)
    SELECT (SELECT count(*) FROM waits),
        (SELECT count(*) FROM waited WHERE result = 0),
        (SELECT count(*) FROM waited WHERE result = -11),
        (SELECT count(*) FROM woke),
        (SELECT coalesce(sum(result) FILTER (result > 0), 0)::BIGINT FROM woke),
        (SELECT count(*) FROM woke WHERE result = 0),
        (SELECT coalesce(sum(asleep::DOUBLE), 0)::BIGINT FROM waited),
        (SELECT count(*) FROM WAIT WHERE tgid = $3) + (SELECT count(*) FROM WOKE WHERE tgid = $3)"""
# A robust mutex: waits for it that its owner, $4, has woken, and the owner's own calls to wake.
ROBUST = """
    SELECT (SELECT count(*) FROM WAITED
            WHERE tgid = $3 AND lock >= $1 AND lock < $1 + $2 AND result = 0),
        (SELECT count(*) FROM WAITED
            WHERE tgid = $3 AND lock >= $1 AND lock < $1 + $2 AND result = 0 AND waker = $4),
        (SELECT count(*) FROM WOKE WHERE tid = $4 AND lock >= $1 AND lock < $1 + $2)"""
TURNS = "SELECT count(*) FROM SCHEDOUT WHERE pid = $1 AND state <> 0 AND time BETWEEN $2 AND $3"


def locks(library: str, run: Run) -> list[Locked]:
    cursor = log_of(run).cursor()
    found = [
        Locked(
            library, r["threads"], r["pairs"], r["held"], r["took_ns"],
            *first(cursor, LOCK, r["lock"], r["size"], r["pid"]),
        )
        for r in reports(run, "lock")
    ]  # fmt: skip
    cursor.close()
    return found


def turns(library: str, run: Run) -> Turns:
    log = log_of(run)
    start, cursor = log.start_ns, log.cursor()
    said = reports(run, "turns")
    logged = sum(
        first(cursor, TURNS, r["tid"], r["from_ns"] - start, r["to_ns"] - start)[0] for r in said
    )
    cursor.close()
    return Turns(
        library, max((r["trips"] for r in said), default=0), logged, sum(r["nvcsw"] for r in said)
    )


def robust(library: str, run: Run) -> list[Robust]:
    cursor = log_of(run).cursor()
    found = [
        Robust(
            library, r["owner_died"], r["again"],
            *first(cursor, ROBUST, r["lock"], r["size"], r["pid"], r["owner"]),
        )
        for r in reports(run, "robust")
    ]  # fmt: skip
    cursor.close()
    return found


def futex_ratio(found: Sequence[Locked]) -> Result:
    columns = [
        column("library", "C library"),
        column("threads", "threads that share a mutex", "count"),
        column("pairs", "times it was locked and unlocked, by the program's count", "count"),
        column("calls", "system calls for it, for each time", "", bar=True),
        column("waits", "calls to wait", "count"),
        column("again", "of these, returned at once, for the mutex had changed (EAGAIN)", "count"),
        column("wakes", "calls to wake", "count"),
        column("none", "of these, found nobody to wake", "count"),
        column("asleep", "time asleep, of all threads", "ns"),
        column("pair", "time for one pair, of all threads together", "ns"),
    ]
    rows = [
        [
            x.library, x.threads, x.pairs, round(x.each, 4), x.waits, x.again, x.wakes, x.none,
            x.asleep, x.took_ns / max(x.pairs, 1),
        ]
        for x in found
    ]  # fmt: skip
    points = [
        [calls / max(x.pairs, 1), f"{x.library}, {x.threads}", kind]
        for x in found
        for calls, kind in ((x.waits, "to wait"), (x.wakes, "to wake"))
    ]
    return figure(
        "futex_ratio",
        ("System calls per lock", "How often does a mutex need the kernel?"),
        columns,
        rows,
        Picture("stacked", {"x": "each", "y": "threads_of", "colour": "kind"}),
        Rows(["each", "threads_of", "kind"], points),
        [
            column("each", "system calls for each time that the mutex is locked and unlocked"),
            column("threads_of", "library, threads"),
            column("kind", "call"),
        ],
        [
            "With one thread the mutex is never contended. With more, each holder works for half a"
            " microsecond, and sleeps in one of 61 holds."
        ],
    )


def hand_off(found: Sequence[Turns]) -> Result:
    columns = [
        column("library", "C library"),
        column("trips", "round trips of a turn between two threads on one CPU", "count"),
        column("switches", "switches to wait, of both threads, by the log", "count"),
        column("counted", "the same, as getrusage() counted them", "count"),
        column("each", "for each round trip", "", bar=True),
    ]
    rows = [
        [x.library, x.trips, x.logged, x.counted, round(x.logged / max(x.trips, 1), 3)]
        for x in found
    ]
    question = "How often do two threads wait that take turns with a condition variable?"
    return figure("hand_off", ("Taking turns", question), columns, rows)


def sentences(found: Sequence[Locked]) -> list[str]:
    said = []
    for name in dict.fromkeys(x.library for x in found):
        mine = [x for x in found if x.library == name]
        alone = sum(x.process for x in mine if x.threads == 1)
        others = ", ".join(f"{x.each:.3f} with {x.threads}" for x in mine if x.threads > 1)
        said.append(
            f"{name}: {alone} futex calls for {PAIRS:,} uncontended locks; contended, for each"
            f" lock and unlock: {others} threads."
        )
    return said


def checks(
    found: Sequence[Locked], taken: Sequence[Turns], ended: Sequence[Robust], shared: dict[str, Any]
) -> list[Check]:
    made = []
    for x in found:
        if x.threads == 1:
            text = f"{x.process:,} futex calls of the process for {x.pairs:,} pairs"
            made.append(Check(f"uncontended, {x.library}", x.process == 0 < x.pairs, text))
            continue
        text = (
            f"{x.waits + x.wakes:,} futex calls for {x.pairs:,} pairs, {x.wakes:,} of them to wake;"
            f" they woke {x.woken:,}, and {x.returned:,} waits were ended so; {x.held:,} were"
            " counted by who held it"
        )
        ok = 0 < x.wakes <= x.pairs == x.held and x.waits > 0 and x.woken == x.returned
        made.append(Check(f"{x.threads} threads, {x.library}", ok, text))
    for t in taken:
        allowed = SWITCHES_MISSED * t.counted + 2
        text = (
            f"{t.logged:,} switches for {t.trips:,} round trips, {SWITCHES:g} ± {TOLERANCE} each;"
            f" getrusage() counted {t.counted:,} (may differ by {allowed:.0f}: the kernel does not"
            " report each)"
        )
        ok = (
            t.trips > 0
            and abs(t.logged / t.trips - SWITCHES) <= TOLERANCE
            and abs(t.logged - t.counted) <= allowed
        )
        made.append(Check(f"taking turns, {t.library}", ok, text))
    for r in ended:
        text = (
            f"the next locker got {'EOWNERDEAD' if r.owner_died else 'no EOWNERDEAD'}; it waited"
            f" {r.waits} times, and was woken {r.by_owner} times by the owner, which ended, by"
            f" {'a call of its library' if r.calls_of_owner else 'the kernel'}"
        )
        ok = r.owner_died and r.again == 0 and r.waits == r.by_owner > 0
        made.append(Check(f"robust mutex, {r.library}", ok, text))
    for name, one in shared.items():
        text = f"{one['held']:,} counted by two processes that share it, of {one['pairs']:,}"
        made.append(Check(f"shared mutex, {name}", one["held"] == one["pairs"], text))
    return made


def shared_of(runs: Sequence[tuple[str, Run]]) -> dict[str, Any]:
    return {name: one for name, run in runs for one in reports(run, "shared")}
