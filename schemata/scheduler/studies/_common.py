# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the studies of the scheduler share: reading what their programs said, and checking the log
against it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from klogger.analysis import CHOICES, Column, Picture
from klogger.executor import Result, Rows
from klogger.log import Log
from klogger.statements import execute_whole
from klogger_lab.study import model
from klogger_lab.study.model import Check, Run

FOLDER = Path(__file__).resolve().parents[1] / "analyses"
# A switch that the kernel did not report is in no log. There are few; machines differ.
SWITCHES_MISSED = 0.005


def figure(
    name: str,
    title: str,
    question: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Any]],
    picture: Picture,
    *,
    others: Sequence[Column],
    points: Sequence[Sequence[Any]],
    notes: Sequence[str] = (),
) -> Result:
    """A table with a picture whose points are not the table's rows: they are the parts of the
    picture, in its order.

    `others` are the columns that only the points have.
    """
    names = [c for p, c in picture.parts.items() if p not in CHOICES]
    made = model.result(
        name,
        title,
        question,
        [*columns, *others],
        [],
        picture,
        Rows(names, [list(p) for p in points]),
        (),
        notes,
    )
    made.table = Rows([c.name for c in columns], [list(r) for r in rows])
    return made


def reports(run: Run, role: str | None = None) -> list[dict[str, Any]]:
    """The lines of JSON that an arm's programs printed; a line that was cut off is none."""
    found = []
    for line in run.output.splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if isinstance(one, dict) and (role is None or one.get("role") == role):
            found.append(one)
    return found


def log_of(run: Run) -> Log:
    assert run.log is not None
    return run.log


def quanta(log: Log) -> duckdb.DuckDBPyConnection:
    """A connection that has the table `quantum`. Close it."""
    cursor = log.cursor()
    execute_whole(cursor, (FOLDER / "_quantum.sql").read_text(), "_quantum.sql")
    return cursor


def one(cursor: duckdb.DuckDBPyConnection, query: str, *values: Any) -> Any:
    row = cursor.execute(query, list(values)).fetchone()
    return row[0] if row else None


def check_switches(runs: Iterable[Run]) -> Check:
    """The log has the switches that the kernel counted for each thread that reported, until it did
    so.
    """
    counted = logged = threads = 0
    for run in runs:
        cursor, start = log_of(run).cursor(), log_of(run).start_ns
        mine = [r for r in reports(run) if "nvcsw" in r]
        cursor.execute("CREATE TEMP TABLE said (tid INTEGER, until BIGINT)")
        if mine:
            cursor.executemany(
                "INSERT INTO said VALUES (?, ?)", [(r["tid"], r["time_ns"] - start) for r in mine]
            )
        query = "SELECT count(*) FROM SCHEDOUT JOIN said ON pid = tid AND time <= until"
        logged += one(cursor, query)
        counted += sum(r["nvcsw"] + r["nivcsw"] for r in mine)
        threads += len(mine)
        cursor.close()
    allowed = SWITCHES_MISSED * counted + threads
    return Check(
        "switches",
        threads > 0 and abs(logged - counted) <= allowed,
        f"the log has {logged:,} switches of {threads:,} threads, getrusage counted {counted:,}"
        f" (may differ by {allowed:,.0f}: this kernel does not report each of them)",
    )


def check_cpu_time(runs: Iterable[Run]) -> Check:
    """The sum of the quanta is the CPU time. Time that a hypervisor took away is in the log, but
    not in the account.
    """
    said = summed = 0
    for run in runs:
        cursor, start = quanta(log_of(run)), log_of(run).start_ns
        for r in (r for r in reports(run) if "cpu_ns" in r):
            query = (
                "SELECT coalesce(sum(least(to_ns, $2) - from_ns), 0) FROM quantum WHERE pid = $1"
                " AND from_ns < $2"
            )
            summed += one(cursor, query, r["tid"], r["time_ns"] - start)
            said += r["cpu_ns"]
        cursor.close()
    low, high = 0.95 * said, 1.05 * said + stolen(runs)
    return Check(
        "CPU time",
        said > 0 and low <= summed <= high,
        f"the quanta sum up to {summed / 1e9:.3f} s, the threads' clocks say {said / 1e9:.3f} s (5"
        " % may be missing; of what there is more, the hypervisor took up to"
        f" {stolen(runs) / 1e9:.3f} s away)",
    )


def stolen(runs: Iterable[Run]) -> float:
    """Nanoseconds that a hypervisor had CPUs of this machine, while the arms ran (see `around`)."""
    return sum(
        float(run.oracle.get("stolen_ns", 0)) for run in runs if isinstance(run.oracle, dict)
    )


def busy_ns(cursor: duckdb.DuckDBPyConnection, low: int, high: int) -> float:
    """CPU time of all threads of the machine, by CPU_SWITCH, which is logged for all of them."""
    return float(
        one(
            cursor,
            f"""
        WITH step AS (
            SELECT cpu, time, next AS pid FROM CPU_SWITCH
            UNION ALL SELECT cpu, -1, arg_min(prev, time) FROM CPU_SWITCH GROUP BY cpu
        ), stretched AS (
            SELECT pid, time, lead(time, 1, {high}) OVER (PARTITION BY cpu ORDER BY time) AS until
            FROM step
        )
        SELECT coalesce(sum(greatest(least(until, {high}) - greatest(time, {low}), 0)), 0)
        FROM stretched WHERE pid <> 0""",
        )
    )


# What a study needs of the schema `switching` to see the whole machine, and no more.
ALL_SWITCHES = tuple(
    f"--disable={e}" for e in ("SCHED_ENTER", "SCHED_LEAVE", "NR_RUNNING", "NEED_RESCHED")
)


def check_busy(run: Run) -> Check:
    """The time that the log has for all threads is what the CPUs were not idle."""
    machine = reports(run, "machine")
    begun, ended = machine[0], machine[-1]
    log = log_of(run)
    low, high = begun["time_ns"] - log.start_ns, ended["time_ns"] - log.start_ns
    cursor = log.cursor()
    summed = busy_ns(cursor, low, high)
    cpus = one(cursor, "SELECT len(cpus) FROM klogger.recording")
    cursor.close()
    busy = (high - low) * cpus - (ended["idle_ns"] - begun["idle_ns"])
    # /proc/stat counts in hundredths of a second, on each CPU.
    allowed = 0.03 * (high - low) * cpus + 20e6 * cpus
    return Check(
        f"busy time, {run.arm.name}",
        abs(summed - busy) <= allowed,
        f"all threads by the log: {summed / 1e9:.3f} s; {cpus} CPUs without idle (/proc/stat):"
        f" {busy / 1e9:.3f} s (may differ by {allowed / 1e9:.3f} s)",
    )


@contextlib.contextmanager
def around() -> Iterator[dict[str, float]]:
    """For `Arm.around`: what the hypervisor took away from this machine while the arm ran."""
    seen: dict[str, float] = {}
    before = steal_ns()
    yield seen
    seen["stolen_ns"] = steal_ns() - before


def steal_ns() -> float:
    words = Path("/proc/stat").read_text().split(maxsplit=10)
    return int(words[8]) * 1e9 / os.sysconf("SC_CLK_TCK")


def check_lost(runs: Iterable[Run]) -> Check:
    """Whether logs are complete. What is missing makes the other checks fail as well."""
    lost = {run.arm.name: sum(e.lost for e in log_of(run).events.values()) for run in runs}
    bad = [f"{name}: {n:,}" for name, n in lost.items() if n]
    return Check("losses", not bad, f"events lost: {', '.join(bad) or 'none'}")


def median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else float("nan")
