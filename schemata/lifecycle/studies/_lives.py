# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study `threads`: from the call that creates a thread to its first run and to its end, how
many creations there are in a second, and what a thread takes of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import linear_regression
from typing import Any

import duckdb

from klogger.analysis import Picture
from klogger.durations import duration
from klogger.executor import Result, Rows
from klogger_lab.study.model import Arm, Check, Plan, Run, column

from . import _limits
from ._libraries import figure, first, here, listed, log_of, program, reports

# Numbers of threads that live at once, and how often each is made in the least time.
LEVELS = {1: 101, 10: 19, 100: 3, 1000: 1}
MOST = 10_000
ROUNDS_MAX, MOST_TIMES = 6, 3
# Seconds of an arm with LEVELS once, and of MOST threads, on a machine that does other things too.
BASE_SECONDS, MOST_SECONDS = 0.8, 3.0
# What MOST threads may take of memory.
MOST_MEMORY = 2 << 30
STACK = 64 * 1024
PAGE = 4096
CLONE_THREAD = 0x10000
# So many threads at once at most are in the picture of the phases.
FEW = 100
# A switch that the kernel did not report is in no log.
SWITCHES_MISSED = 0.02
PHASES = {
    "call_to_start": "in the library and in clone()",
    "start_to_woken": "until it is on a run queue",
    "woken_to_run": "until it has a CPU",
    "run_to_code": "until its function runs",
    "done_to_end": "from its return to its end",
}


def why_not_most(plan: Plan) -> str | None:
    """Why there must not be MOST threads at once here, if there is time for them."""
    if plan.machine.memory and plan.machine.memory < 2 * MOST_MEMORY:
        return "they would take more than half of the memory."
    left = _limits.threads_left()
    if left < 2 * MOST:
        return f"the machine may have only {left:,} more."
    return None


def seconds_of(plan: Plan) -> float:
    """Of each arm: a third of the time is for these."""
    return max(plan.seconds / 3 / max(len(here(threads=True)), 1), BASE_SECONDS)


def has_most(plan: Plan) -> bool:
    return seconds_of(plan) >= BASE_SECONDS + MOST_SECONDS and why_not_most(plan) is None


def arms(plan: Plan) -> list[Arm]:
    made = []
    whole, most = seconds_of(plan), has_most(plan)
    rounds = int((whole - (MOST_SECONDS if most else 0)) / BASE_SECONDS)
    rounds = min(max(rounds, 1), ROUNDS_MAX)
    words = [str(word) for level, n in LEVELS.items() for word in (level, n * rounds)]
    took = rounds * BASE_SECONDS
    if most:
        times = min(max(int((whole - took) / MOST_SECONDS), 1), MOST_TIMES)
        words += [str(MOST), str(times)]
        took += times * MOST_SECONDS
    for library in here(threads=True):
        made += [
            Arm(
                f"lives, {library.name}",
                [program(plan, library, "lives.c"), *words],
                took,
                {"part": "lives", "library": library.name},
            ),
            _limits.arm(plan, library),
        ]
    return made


@dataclass
class Lives:
    """What the log of an arm says of its threads, by number of threads at once."""

    library: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    # Of some levels: time from the call to the thread's function, share of threads, level.
    curve: list[tuple[int, float, int]] = field(default_factory=list)
    rates: list[tuple[int, float]] = field(default_factory=list)
    said: int = 0
    started: int = 0
    ended: int = 0
    out_of_order: int = 0
    without_run: int = 0
    memory: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)


def look(library: str, run: Run) -> Lives:
    found = Lives(library, memory=reports(run, "with"), failed=reports(run, "failed"))
    bare = {r["level"]: r for r in reports(run, "without")}
    for one in found.memory:
        one["without"] = bare.get(one["level"], {})
    said = reports(run, "lives")
    log = log_of(run)
    cursor = log.cursor()
    tell(cursor, said, log.start_ns)
    found.said, found.started, found.ended = first(cursor, COUNTS)
    cursor.execute(LIFE)
    found.out_of_order, found.without_run = first(cursor, DISORDER)
    names = ["level", "threads", *PHASES, "total", "total_p99", "first_round", "end_p99"]
    found.rows = [dict(zip(names, row, strict=True)) for row in cursor.execute(LEVEL).fetchall()]
    found.curve = cursor.execute(CURVE).fetchall()
    found.rates = cursor.execute(RATE).fetchall()
    cursor.close()
    return found


def tell(cursor: duckdb.DuckDBPyConnection, said: list[dict[str, Any]], start: int) -> None:
    """The table `said`: a row for each thread that the program made, in times of the log."""
    cursor.execute(
        "CREATE TEMP TABLE said (level INT, tgid INT, round INT, tid INT, called BIGINT,"
        " returned BIGINT, runs BIGINT, done BIGINT)"
    )
    for one in said:
        columns = list(zip(*one["rows"], strict=True)) or [()] * 5
        tids, times = columns[0], [[t - start for t in c] for c in columns[1:]]
        unnested = ", ".join(f"unnest({listed(c)})" for c in (tids, *times))
        cursor.execute(
            f"INSERT INTO said SELECT {int(one['level'])}, {int(one['pid'])},"
            f" {int(one['round'])}, {unnested}"
        )


# By the program; by the log: threads that were made, and threads that ended and were not the first.
COUNTS = f"""
    WITH mine AS (SELECT DISTINCT tgid FROM said)
    SELECT (SELECT count(*) FROM said),
        (SELECT count(*) FROM STARTED JOIN mine USING (tgid) WHERE flags & {CLONE_THREAD} <> 0),
        (SELECT count(*) FROM ENDED JOIN mine USING (tgid) WHERE pid <> tgid)"""
# Numbers of threads are used again, so each event is the first with the number after the one before
# it. One that was not logged leaves NULL.
LIFE = f"""
    CREATE TEMP TABLE life AS
    SELECT s.*, b.time AS started, q.time AS woken, i.time AS ran, e.time AS ended
    FROM said AS s
    ASOF LEFT JOIN (
        SELECT pid, time FROM STARTED WHERE flags & {CLONE_THREAD} <> 0
    ) AS b ON s.tid = b.pid AND s.called <= b.time
    ASOF LEFT JOIN (
        SELECT pid, time FROM ADD_TO_RUNQ WHERE is_new = 1
    ) AS q ON s.tid = q.pid AND s.called <= q.time
    ASOF LEFT JOIN (SELECT pid, time FROM SCHEDIN) AS i ON s.tid = i.pid AND s.called <= i.time
    ASOF LEFT JOIN (SELECT pid, time FROM ENDED) AS e ON s.tid = e.pid AND s.called <= e.time"""
DISORDER = """
    SELECT count(*) FILTER (NOT coalesce(called <= started AND started <= woken AND woken <= runs
            AND runs <= done AND done <= ended AND called <= returned, false)),
        count(*) FILTER (NOT coalesce(woken <= ran AND ran <= runs, false))
    FROM life"""
LEVEL = """
    SELECT level, count(*), quantile_disc(started - called, 0.5),
        quantile_disc(woken - started, 0.5), quantile_disc(ran - woken, 0.5) FILTER (ran <= runs),
        quantile_disc(runs - ran, 0.5) FILTER (ran <= runs), quantile_disc(ended - done, 0.5),
        quantile_disc(runs - called, 0.5), quantile_disc(runs - called, 0.99),
        quantile_disc(runs - called, 0.5) FILTER (round = 0), quantile_disc(ended - done, 0.99)
    FROM life GROUP BY level ORDER BY level"""
# Eight points for each doubling are enough.
CURVE = """
    SELECT ns, sum(n) OVER mine / sum(n) OVER (PARTITION BY level) AS part, level FROM (
        SELECT level, max(runs - called) AS ns, count(*) AS n FROM life WHERE runs > called
        GROUP BY level, floor(8 * log2(runs - called))
    ) WINDOW mine AS (PARTITION BY level ORDER BY ns) ORDER BY level, ns"""
# From one creation to the next of the same round, by how many threads live: 1, 2, 5, 10, 20 ...
RATE = """
    WITH step AS (
        SELECT row_number() OVER mine AS live, started - lag(started) OVER mine AS ns
        FROM life WINDOW mine AS (PARTITION BY tgid, round ORDER BY started)
    ), decade AS (
        SELECT *, (10 ** floor(log10(live)))::BIGINT AS ten FROM step WHERE ns IS NOT NULL
    )
    SELECT ten * CASE WHEN live >= 5 * ten THEN 5 WHEN live >= 2 * ten THEN 2 ELSE 1 END AS least,
        1e9 * count(*) / sum(ns)
    FROM decade GROUP BY 1 HAVING count(*) >= 10 AND sum(ns) > 0 ORDER BY 1"""


def lifecycle(all_lives: Sequence[Lives]) -> Result:
    columns = [
        column("library", "C library"),
        column("live", "threads that live at the same time", "count"),
        column("threads", "threads made", "count"),
        column("create", "from the call that creates a thread to its function, half of them", "ns",
               bar=True),
        column("create_p99", "the same, 99 of 100", "ns"),
        column("create_first", "half of those of the first round, which have new stacks", "ns"),
        *(column(name, f"of it, half of them: {text}", "ns")
          for name, text in PHASES.items() if name != "done_to_end"),
        column("end", "from the return of its function to the thread's end, half of them", "ns"),
        column("end_p99", "the same, 99 of 100", "ns"),
    ]  # fmt: skip
    rows, points = [], []
    for lives in all_lives:
        for r in lives.rows:
            rows.append([
                lives.library, r["level"], r["threads"], r["total"], r["total_p99"],
                r["first_round"], *(r[name] for name in PHASES if name != "done_to_end"),
                r["done_to_end"], r["end_p99"],
            ])  # fmt: skip
            # With more threads only the wait for a CPU can be seen.
            if r["level"] <= FEW:
                points += [
                    [r[name] or 0, f"{lives.library}, {r['level']:,}", text]
                    for name, text in PHASES.items()
                ]
    return figure(
        "lifecycle",
        ("A thread's life", "How long does it take until a new thread runs, and until it is gone?"),
        columns,
        rows,
        Picture("stacked", {"x": "ns", "y": "threads_of", "colour": "phase"}),
        Rows(["ns", "threads_of", "phase"], points),
        [
            column("ns", "medians", "ns"),
            column("threads_of", "library, threads at once"),
            column("phase", "phase"),
        ],
        [
            "The creating thread goes on at once, and others want the CPUs too. So some threads"
            " wait long for theirs, which is in the columns of 99 of 100. All threads of a round"
            " end at the same moment.",
            "Medians of phases do not add up to the median of the whole. The picture has those of"
            f" at most {FEW} threads.",
        ],
    )


def first_run(all_lives: Sequence[Lives]) -> Result:
    columns = [
        column("ns", "from the call that creates a thread to its function", "ns"),
        column("part", "threads that took no longer", "share"),
        column("live", "library, threads at once"),
    ]
    points = [
        [ns, part, f"{x.library}, {level:,}"]
        for x in all_lives
        for ns, part, level in x.curve
        if level not in (10, 100)
    ]
    rows = [
        [r["total_p99"], 0.99, f"{x.library}, {r['level']:,}"] for x in all_lives for r in x.rows
    ]
    return figure(
        "first_run",
        ("From call to first run", "How long does it take until a new thread runs its function?"),
        columns,
        rows,
        Picture("cdf", {"x": "ns", "y": "part", "colour": "live", "scale": "log"}),
        Rows([c.name for c in columns], points),
    )


def rate(all_lives: Sequence[Lives]) -> Result:
    columns = [
        column("library", "C library"),
        column("live", "threads that live already, at least", "count"),
        column("per_s", "creations in a second", "per_s", bar=True),
    ]
    rows = [[x.library, least, per_s] for x in all_lives for least, per_s in x.rates]
    points = [[per_s, f"{name}, {least:,}", name] for name, least, per_s in rows]
    return figure(
        "rate",
        ("Creations per second", "Does it get slower with the number of threads that live?"),
        columns,
        rows,
        Picture("stacked", {"x": "per_s", "y": "live_of", "colour": "library"}),
        Rows(["per_s", "live_of", "library"], points),
        [column("live_of", "library, threads that live already")],
        ["While events are logged, which takes a part of the time."],
    )


@dataclass
class Slopes:
    """Bytes that each thread adds."""

    library: str
    resident: float
    status: float
    mapped: float
    tables: float
    kernel: float


def slopes(lives: Lives) -> Slopes | None:
    """By all numbers of threads, of which the largest weighs most."""
    if len(lives.memory) < 2:
        return None
    threads = [m["threads"] for m in lives.memory]

    def slope(name: str) -> float:
        more = [1024 * (m[name] - m["without"].get(name, 0)) for m in lives.memory]
        return float(linear_regression(threads, more).slope)

    return Slopes(lives.library, *map(slope, ("Rss", "VmRSS", "VmSize", "VmPTE", "KernelStack")))


def memory(found: Sequence[Slopes]) -> Result:
    columns = [
        column("library", "C library"),
        column("resident", "bytes of resident memory that each thread adds", "bytes", bar=True),
        column("VmRSS", "the same by /proc/PID/status, which may be behind", "bytes"),
        column("mapped", "address space that each adds (VmSize)", "bytes"),
        column("tables", "page tables that each adds (VmPTE)", "bytes"),
        column("kernel_stack", "kernel stacks that each adds; of the whole machine", "bytes"),
    ]
    rows = [[s.library, s.resident, s.status, s.mapped, s.tables, s.kernel] for s in found]
    note = (
        "The slope over the numbers of threads, by smaps_rollup and status of /proc/PID. The stacks"
        " are of 64 KiB, of which a thread touches what its library and its function use."
    )
    return figure(
        "memory", ("Memory of a thread", "What does one more thread take?"), columns, rows,
        Picture("bars", {"x": "resident", "y": "library"}), notes=[note],
    )  # fmt: skip


def sentences(all_lives: Sequence[Lives]) -> list[str]:
    """From the call to the first run, with the fewest and with the most threads; what failed."""
    said = []
    for x in all_lives:
        if x.rows:
            least, most = x.rows[0], x.rows[-1]
            said.append(
                f"{x.library}: from pthread_create() to the thread's function"
                f" {duration(least['total'])} with {least['level']:,} at a time,"
                f" {duration(most['total'])} with {most['level']:,} (99 of 100 within"
                f" {duration(most['total_p99'])})."
            )
        said += [
            f"{x.library}: of {f['level']:,} threads, {f['made']:,} could be made; then"
            f" pthread_create() returned {f['errno']} ({f['error']})."
            f" {_limits.machine_limits()}."
            for f in x.failed
        ]
    return said


def checks(all_lives: Sequence[Lives], found: Sequence[Slopes]) -> list[Check]:
    made = []
    for x in all_lives:
        made += [
            Check(
                f"threads, {x.library}",
                x.said == x.started == x.ended > 0,
                f"{x.said:,} made by the program's own count; by the log {x.started:,} started and"
                f" {x.ended:,} ended",
            ),
            Check(
                f"order, {x.library}",
                x.out_of_order == 0 and x.without_run <= SWITCHES_MISSED * x.said + 2,
                f"call, start, wake-up, function, return, end: not in this order, by the clocks of"
                f" program and log, for {x.out_of_order:,} of {x.said:,} threads; without a first"
                f" run in between: {x.without_run:,} (the kernel does not report each switch: 2 %"
                " may be)",
            ),
            counted(x),
        ]
    made += [
        Check(
            f"memory, {s.library}",
            0.95 * PAGE <= s.resident <= STACK + PAGE,
            f"each thread adds {s.resident / 1024:.1f} KiB of resident memory; at least about a"
            f" page of its stack, at most its stack of {STACK // 1024} KiB and a page",
        )
        for s in found
    ]
    return made


def counted(lives: Lives) -> Check:
    """What the kernel counts in /proc/PID/status while all of a round live."""
    wrong = [m for m in lives.memory if m["Threads"] != m["threads"] + 1]
    shown = ", ".join(f"{m['Threads']:,}" for m in wrong or lives.memory)
    return Check(
        f"live threads, {lives.library}",
        bool(lives.memory) and not wrong,
        f"the kernel counted {shown}, with the first thread; the program made"
        f" {', '.join(format(m['threads'], ',') for m in wrong or lives.memory)}",
    )
