# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study `threads`: what happens from exec to main() of a program that does nothing, with each C
library, with and without a loader.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import duckdb

from klogger.analysis import Picture
from klogger.executor import Result, Rows
from klogger_lab.study.model import Arm, Check, Plan, Run, column

from ._libraries import figure, here, log_of, program, reports

TIMES_LEAST, TIMES_MOST = 5, 101
# Of an arm: to begin, and for each start.
BASE_SECONDS, START_SECONDS = 1.0, 0.004
# When exec lays out the new stack, the kernel counts pages that no fault has brought: so many
# faults at each start are in one count only.
FAULTS_APART = 2
# A page fault is drawn so long.
FAULT_NS = 1000
COUNTED = ("opens", "failed", "maps", "protects", "calls")


def kinds(plan: Plan) -> dict[str, Path]:
    """The programs that do nothing, by their names."""
    made = {}
    for library in here():
        if library.dynamic:
            made[f"{library.name}, dynamic"] = program(plan, library, "nothing.c")
        made[f"{library.name}, static"] = program(plan, library, "nothing.c", "-static")
    return made


def arms(plan: Plan) -> list[Arm]:
    programs = kinds(plan)
    each = len(programs) * START_SECONDS
    times = int((plan.seconds / 12 - BASE_SECONDS) / each)
    times = min(max(times, TIMES_LEAST), TIMES_MOST)
    command: list[str | Path] = [plan.build("starts.c"), str(times), *programs.values()]
    return [
        Arm(
            "starts",
            command,
            BASE_SECONDS + times * each,
            {"part": "starts", "programs": ";".join(programs)},
            record=["-s", "files,traps"],
            around=partial(straced, programs, plan.folder),
        )
    ]


@contextlib.contextmanager
def straced(programs: dict[str, Path], folder: Path) -> Iterator[dict[str, dict[str, int]]]:
    """What strace counts of one more start of each program, if there is a strace."""
    found: dict[str, dict[str, int]] = {}
    if shutil.which("strace") is not None:
        for name, file in programs.items():
            counts = folder / "strace"
            done = subprocess.run(
                ["strace", "-f", "-c", "-o", counts, file],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=dict(os.environ), check=False,
            )  # fmt: skip
            if done.returncode == 0 and counts.is_file():
                found[name] = parse(counts.read_text())
            counts.unlink(missing_ok=True)
    yield found


def parse(table: str) -> dict[str, int]:
    """The table of `strace -c`: share, seconds, µs per call, calls, errors if any, name."""
    calls: dict[str, int] = {}
    errors: dict[str, int] = {}
    for line in table.splitlines():
        words = line.split()
        if len(words) in (5, 6) and re.fullmatch(r"[\d.]+", words[0]) and words[3].isdigit():
            calls[words[-1]] = int(words[3])
            errors[words[-1]] = int(words[4]) if len(words) == 6 else 0
    calls.pop("total", None)
    opens = ("open", "openat")
    return {
        "opens": sum(calls.get(name, 0) for name in opens),
        "failed": sum(errors.get(name, 0) for name in opens),
        "maps": calls.get("mmap", 0),
        "protects": calls.get("mprotect", 0),
        # Its own exec is what begins a program.
        "calls": sum(calls.values()) - calls.get("execve", 0),
    }


@dataclass
class Started:
    """Medians of the starts of a program. `whole`: from exec to its end, as strace counts."""

    name: str
    starts: int
    to_main: float
    to_main_p99: float
    numbers: dict[str, float]
    whole: dict[str, list[int]]
    strace: dict[str, int] | None
    logged_faults: int
    counted_faults: int
    files: str
    # Of the quickest start: when something began and ended, since exec, and what it was.
    steps: list[tuple[int, int, str]]


# Of each start: what there was from exec until main() began, and, of calls, until the end. The
# program's own exec began before that; the call that ends it does not return, and strace does not
# count it. Processes have one thread.
STARTS = """
    CREATE TEMP TABLE started AS
    SELECT s.*, r.time AS execed, s.main - r.time AS ns
    FROM (SELECT unnest($1::BIGINT[]) AS program, unnest($2::BIGINT[]) AS pid,
        unnest($3::BIGINT[]) AS main) AS s
    ASOF JOIN (SELECT pid, time FROM RAN) AS r ON s.pid = r.pid AND s.main >= r.time"""
CALLS = """
    CREATE TEMP TABLE called AS
    SELECT s.program, s.pid, i.time < s.main AS early, i.id, o.ret
    FROM started AS s JOIN SYS_IN AS i ON i.pid = s.pid AND i.time > s.execed
    ASOF LEFT JOIN SYS_OUT AS o ON i.pid = o.pid AND i.id = o.id AND i.time <= o.time"""
NUMBERS = """
    SELECT count(*) FILTER (id IN $opens) AS opens,
        count(*) FILTER (id IN $opens AND ret < 0) AS failed,
        count(*) FILTER (id = $mmap) AS maps, count(*) FILTER (id = $mprotect) AS protects,
        count(id) FILTER (ret IS NOT NULL) AS calls
    FROM started AS s LEFT JOIN called AS c ON c.pid = s.pid AND (early OR NOT $early)
    WHERE s.program = $program GROUP BY s.pid"""
BYTES = """
    SELECT coalesce(sum(u.result), 0)::BIGINT AS mapped
    FROM started AS s LEFT JOIN (
        SELECT tid, time, result FROM READ
        WHERE place(call) LIKE '%mmap' AND result BETWEEN 0 AND 1000000000000
    ) AS u ON u.tid = s.pid AND u.time BETWEEN s.execed AND s.main
    WHERE s.program = $1 GROUP BY s.pid"""
# Below 4096 there is no page: these are faults of probes that read a path which is gone.
FAULTS = """
    SELECT count(f.time) FILTER (f.time BETWEEN s.execed AND s.main) AS early, count(f.time)
    FROM started AS s LEFT JOIN FAULT AS f ON f.pid = s.pid AND f.addr >= 4096
    WHERE s.program = $1 GROUP BY s.pid"""
FILES = """
    SELECT regexp_replace(n.path, '^.*/', '') AS file, min(l.time - s.execed) AS begun
    FROM started AS s JOIN LOOK AS l ON l.tid = s.pid AND l.time BETWEEN s.execed AND s.main
    JOIN NAMED AS n USING (file)
    WHERE s.program = $1 AND l.result >= 0 AND place(l.call) LIKE '%open%'
    GROUP BY ALL ORDER BY begun LIMIT 8"""
# How long a page fault takes is not logged.
STEPS = f"""
    WITH one AS (SELECT * FROM started WHERE program = $program ORDER BY ns LIMIT 1)
    SELECT i.time - one.execed AS begun, o.time - one.execed AS ended,
        CASE WHEN i.id IN $opens THEN 'open' WHEN i.id = $mmap THEN 'mmap'
            WHEN i.id = $mprotect THEN 'mprotect' ELSE 'other call' END AS what
    FROM one JOIN SYS_IN AS i ON i.pid = one.pid AND i.time BETWEEN one.execed AND one.main
    ASOF JOIN SYS_OUT AS o ON i.pid = o.pid AND i.id = o.id AND i.time <= o.time
    UNION ALL
    SELECT f.time - one.execed, f.time - one.execed + {FAULT_NS}, 'page fault'
    FROM one JOIN FAULT AS f ON f.pid = one.pid AND f.time BETWEEN one.execed AND one.main
    WHERE f.addr >= 4096
    ORDER BY begun"""
TOOK = "SELECT ns FROM started WHERE program = $1 ORDER BY ns"


def look(run: Run) -> list[Started]:
    log = log_of(run)
    start, cursor = log.start_ns, log.cursor()
    said = reports(run, "start")
    (calls,) = reports(run, "numbers")
    columns = [[r[name] for r in said] for name in ("program", "pid", "main_ns")]
    cursor.execute(STARTS, [*columns[:2], [ns - start for ns in columns[2]]])
    cursor.execute(CALLS)
    names = str(run.arm.parameters["programs"]).split(";")
    found = [
        started(
            cursor, calls, number, name, (run.oracle or {}).get(name),
            sum(r["all_faults"] for r in said if r["program"] == number),
        )
        for number, name in enumerate(names)
    ]  # fmt: skip
    cursor.close()
    return [one for one in found if one.starts]


def started(
    cursor: duckdb.DuckDBPyConnection,
    calls: dict[str, int],
    number: int,
    name: str,
    strace: dict[str, int] | None,
    counted_faults: int,
) -> Started:
    took, mapped, faults, files = (
        cursor.execute(query, [number]).fetchall() for query in (TOOK, BYTES, FAULTS, FILES)
    )
    early = counts(cursor, calls, number, early=True)
    return Started(
        name,
        len(took),
        median_of(ns for (ns,) in took),
        took[int(0.99 * (len(took) - 1))][0] if took else 0,
        {
            **{key: median_of(each) for key, each in early.items()},
            "bytes": median_of(m for (m,) in mapped),
            "faults": median_of(n for n, _ in faults),
        },
        counts(cursor, calls, number, early=False),
        strace,
        sum(n for _, n in faults),
        counted_faults,
        ", ".join(file for file, _ in files),
        cursor.execute(STEPS, of_calls(calls, number)).fetchall(),
    )


def counts(
    cursor: duckdb.DuckDBPyConnection, calls: dict[str, int], number: int, early: bool
) -> dict[str, list[int]]:
    """System calls of each start, until main() or until the end."""
    values = {**of_calls(calls, number), "early": early}
    rows = cursor.execute(NUMBERS, values).fetchall()
    return {key: [row[place] for row in rows] for place, key in enumerate(COUNTED)}


def of_calls(calls: dict[str, int], number: int) -> dict[str, Any]:
    """Values for a query about a program: the numbers of its calls."""
    return {
        "opens": [n for n in (calls["open"], calls["openat"]) if n >= 0],
        "mmap": calls["mmap"],
        "mprotect": calls["mprotect"],
        "program": number,
    }


def median_of(values: Iterable[float]) -> float:
    return float(median([*values] or [0]))


def loader(found: Sequence[Started]) -> Result:
    columns = [
        column("program", "program; its library, and how it is linked"),
        column("starts", "times it was started", "count"),
        column("to_main", "from exec to main(), half of them", "ns", bar=True),
        column("to_main_p99", "the same, 99 of 100", "ns"),
        column("opens", "files opened until main()", "count"),
        column("failed", "of these, not found", "count"),
        column("maps", "calls of mmap()", "count"),
        column("bytes", "of files mapped by it", "bytes"),
        column("protects", "calls of mprotect()", "count"),
        column("calls", "system calls", "count"),
        column("faults", "page faults", "count"),
        column("files", "files that were opened"),
    ]
    names = ("opens", "failed", "maps", "bytes", "protects", "calls", "faults")
    rows = [
        [
            s.name, s.starts, s.to_main, s.to_main_p99, *(s.numbers[name] for name in names),
            s.files or "none",
        ]
        for s in found
    ]  # fmt: skip
    return figure(
        "loader",
        ("From exec to main()", "What does it take to start a program that does nothing?"),
        columns,
        rows,
        Picture("bars", {"x": "to_main", "y": "program"}),
        notes=[
            "Medians. What the kernel maps by itself, the program and its loader, is in no call.",
            "While system calls and page faults are logged, which takes a part of the time.",
            "Before main() glibc asks the processor for its caches and features. On a virtual"
            " machine each of these instructions (cpuid) takes microseconds.",
        ],
    )


def startup(found: Sequence[Started]) -> Result:
    columns = [
        column("program", "program; its library, and how it is linked"),
        column("what", "what is done"),
        column("times", "how often", "count", bar=True),
        column("took", "how long in all", "ns"),
    ]
    rows = []
    for s in found:
        for what in dict.fromkeys(kind for _, _, kind in s.steps):
            mine = [(begun, ended) for begun, ended, kind in s.steps if kind == what]
            took = sum(ended - begun for begun, ended in mine) if what != "page fault" else None
            rows.append([s.name, what, len(mine), took])
    points = [[begun, ended, s.name, what] for s in found for begun, ended, what in s.steps]
    return figure(
        "startup",
        ("The quickest start of each", "What happens between exec and main()?"),
        columns,
        rows,
        Picture("timeline", {"x": "begun", "x2": "ended", "row": "program", "colour": "what"}),
        Rows(["begun", "ended", "program", "what"], points),
        [column("begun", "time since exec", "ns"), column("ended", "end of it", "ns")],
        [f"How long a page fault takes is not logged: each is drawn as {FAULT_NS} ns."],
    )


def cannot() -> list[str]:
    if shutil.which("strace") is not None:
        return []
    return ["Whether system calls until main() are those that strace counts: it is not here."]


def sentences(found: Sequence[Started]) -> list[str]:
    by_faults = sorted(found, key=lambda s: s.numbers["faults"])
    if not by_faults:
        return []
    return [
        "Page faults from exec to main(), from the fewest to the most: "
        + ", ".join(f"{s.numbers['faults']:.0f} ({s.name})" for s in by_faults)
        + "."
    ]


def checks(found: Sequence[Started]) -> list[Check]:
    made = []
    for s in found:
        if s.strace is not None:
            seen = {name: sorted(set(s.whole[name])) for name in COUNTED}
            text = "; ".join(
                f"{name} {', '.join(map(str, seen[name]))} by the log, {s.strace[name]} by strace"
                for name in COUNTED
            )
            ok = all(seen[name] == [s.strace[name]] for name in COUNTED)
            made.append(Check(f"system calls, {s.name}", ok, text))
        apart = FAULTS_APART * s.starts
        text = (
            f"{s.logged_faults:,} by the log, {s.counted_faults:,} by getrusage() in"
            f" {s.starts:,} starts (may differ by {apart:,}: what exec itself brings)"
        )
        made.append(
            Check(
                f"page faults, {s.name}",
                s.counted_faults > 0 and abs(s.logged_faults - s.counted_faults) <= apart,
                text,
            )
        )
    return made
