# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What keyed state takes: a key that is put and taken again, with an empty table and with one of a
million keys.
"""

import ctypes
import os
import statistics
from pathlib import Path

from measure import cell, spread

import klogger
from klogger_lab.recorder import Recorder

SCHEMA = Path(__file__).resolve().parent / "places" / "state.klogger"
LOOP, STATE, THREAD, FILL = range(4)
PAIRS = 16
BLOCKS = 401
MANY = 960_000
MOST_NS = 60
ARMS = {
    STATE: "a state `by ulong` of 1,000,000 entries",
    THREAD: "a state `by thread`",
}


def hits(rounds: int) -> None:
    """In turns, so that what disturbs the machine disturbs all: first with an empty table, then
    with a full one, whose keys are far apart in memory.
    """
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    for full in (False, True):
        if full:
            for first in range(0, MANY, PAIRS):
                prctl(1000, FILL, first, 0, 0)
        for block in range(rounds * BLOCKS):
            # Keys that were not used before, where the table is full.
            first = MANY * 2 + (block * PAIRS if full else 0)
            for arm in (LOOP, *ARMS):
                prctl(1000, arm, first, 0, 0)


def measured(tools) -> dict[tuple[int, bool], list[float]]:
    """By arm, and whether the table is full: ns of a pair, without the loop around it; the median
    of the blocks of each round.
    """
    path = tools.folder / "state.klog"
    options = ["-s", SCHEMA, "-o", path, "--buffer-size", "16M", f"-p{os.getpid()}"]
    os.sched_setaffinity(0, {tools.cpu})
    try:
        with Recorder(options, tools.folder / "state.err") as recorder:
            recorder.wait_started()
            hits(tools.rounds)
    finally:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    log = klogger.open(path, quiet=False)
    try:
        rows = log.rows('SELECT how, took, found FROM "COST" ORDER BY time')
    finally:
        log.close()
    if any(found != PAIRS for _, _, found in rows):
        raise RuntimeError("a key that was put was not found")
    return by_arm([(how, took) for how, took, _ in rows], tools.rounds)


def by_arm(rows: list[tuple[int, int]], rounds: int) -> dict[tuple[int, bool], list[float]]:
    """Each arm has as many blocks with an empty table as it has with a full one."""
    found: dict[tuple[int, bool], list[float]] = {}
    took = {arm: [ns for how, ns in rows if how == arm] for arm in (LOOP, *ARMS)}
    for arm in ARMS:
        for n in range(2 * rounds):
            part = slice(n * BLOCKS, (n + 1) * BLOCKS)
            pair = statistics.median(took[arm][part]) - statistics.median(took[LOOP][part])
            found.setdefault((arm, n >= rounds), []).append(pair / PAIRS)
    return found


def state(tools) -> list[str]:
    found = measured(tools)
    rows = [
        f"| {text} | {cell(found[arm, False])} | {cell(found[arm, True])} |"
        for arm, text in ARMS.items()
    ]
    own = spread(found[STATE, False]).median
    return [
        "## Keyed state", "",
        "A key that is put and taken again, in ns of the clock: 16 pairs in a program"
        " (`bench/places/state.klogger`), without the loop around them.", "",
        f"| | empty | with {MANY:,} keys, a new one each time |", "|---|---|---|", *rows, "",
        f"- put and take of a state by a number: {own:.1f} ns, to be at most {MOST_NS}:"
        f" {'yes' if own <= MOST_NS else 'no'}", "",
    ]  # fmt: skip
