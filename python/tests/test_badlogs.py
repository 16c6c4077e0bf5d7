# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Logs as no kernel should write them, but as damage, bad clocks and odd programs do: every
analysis of every schema answers, or says why not, and no number of an answer is one that cannot be.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
import support
from logfile import LogFile

import klogger
from klogger import analysis, executor, figure, html, smalllog, terminal
from klogger.drawing import NOBODY, ON_PAGE, Palette
from klogger.executor import Result
from klogger.pictures import draw

SCHEMAS = sorted({p.parents[1].name for p in support.SCHEMATA.glob("*/analyses/*.sql")})
MS = 10**6
# Names that a program may give itself, as the exporter hands them on: what is no UTF-8 has become
# U+FFFD.
NAMES = [
    "\ufffd\ufffd\x1b[31m",
    "",
    " ",
    "a'b\"c;--",
    "{} {0} %s",
    "</script><b>",
    "x" * 15,
    "\u202eevil",
]
# The smallest and the largest value of each type.
LIMITS = {
    "BOOLEAN": (False, True),
    "TINYINT": (-(2**7), 2**7 - 1), "UTINYINT": (0, 2**8 - 1), "SMALLINT": (-(2**15), 2**15 - 1),
    "USMALLINT": (0, 2**16 - 1), "INTEGER": (-(2**31), 2**31 - 1), "UINTEGER": (0, 2**32 - 1),
    "BIGINT": (-(2**63), 2**63 - 1), "UBIGINT": (0, 2**64 - 1),
}  # fmt: skip


NEVER_NEGATIVE = {"ns", "s", "share", "count", "per_s", "bytes"}


@dataclass
class Case:
    """How a bad log differs from a good one. `when` gives the time of the i-th event of a CPU."""

    rows: int = 100
    cpus: tuple[int, ...] = (0, 1)
    when: Callable[[random.Random, int, int], int] = lambda lot, cpu, i: (
        i * MS // 10 + lot.randrange(50_000)
    )
    extreme: float = 0.0
    end: int | None = 20 * MS
    ledger: tuple[dict[str, Any], ...] = ()
    processes: bool = True


LOST = (
    {"key": "ring_full", "count": 5, "cpu": 0, "from_ns": 5 * MS, "to_ns": 6 * MS},
    {"key": "block_damaged", "severity": "error", "count": None, "from_ns": 0, "to_ns": None},
    {
        "key": "events_disabled",
        "severity": "notice",
        "count": 2**62,
        "cpu": 1,
        "from_ns": 30 * MS,
        "to_ns": 10 * MS,
    },
)
CASES = {
    "good": Case(),
    "nothing_and_killed": Case(rows=0, end=None, processes=False),
    "no_length": Case(rows=3, when=lambda lot, cpu, i: 0, end=0),
    "one_instant": Case(when=lambda lot, cpu, i: 7 * MS, end=None),
    "one_cpu_one_event_each": Case(rows=1, cpus=(0,)),
    "clock_of_a_cpu_is_behind": Case(when=lambda lot, cpu, i: i * MS // 10 - cpu * 3 * MS + 5 * MS),
    "clock_goes_back": Case(
        when=lambda lot, cpu, i: (i * MS // 10) if i < 50 else (i - 45) * MS // 10
    ),
    "before_the_start_and_after_the_end": Case(
        when=lambda lot, cpu, i: (i - 50) * MS // 10, end=4 * MS
    ),
    "days": Case(when=lambda lot, cpu, i: i * 2**40, end=2**48),
    "ids_out_of_range": Case(extreme=0.3),
    "nothing_but_extremes": Case(extreme=1.0, cpus=(-1, 0, 4095, 32767)),
    "losses_and_no_processes": Case(ledger=LOST, processes=False),
}  # fmt: skip


# Of what a log may have wrong, this has the most: each analysis has to do with it.
IN_THE_GATE = ("nothing_but_extremes",)
# What is asked here of each schema, the gate asks of these.
SHOWN_ONCE = ("futex",)
FULL = pytest.mark.full("the same of each schema with other faults takes minutes")


def some(names: Iterable[str], gate: tuple[str, ...]) -> list[Any]:
    """All, of which the gate has a part."""
    return [pytest.param(name, marks=() if name in gate else FULL) for name in names]


@pytest.mark.parametrize("case", some(CASES, IN_THE_GATE))
@pytest.mark.parametrize("schema", SCHEMAS)
def test_bad_log(schema: str, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All analyses of a schema, in all forms of output."""
    odd = watch_numbers(monkeypatch)
    # Pictures take most of the time.
    drawn = case in ("good", "no_length", "nothing_but_extremes")
    log = klogger.open(make(schema, CASES[case], tmp_path / "x.klog-parquet"), locked=True)
    faults = []
    for result in executor.run_all(log, chosen(log, schema)):
        found = faults_of(result, drawn=drawn) + [f"a value is {value}" for value in odd]
        faults += [f"{result.analysis.name}: {fault}" for fault in found]
        odd.clear()
    log.close()
    assert faults == []


@pytest.mark.parametrize("schema", some(SCHEMAS, SHOWN_ONCE))
def test_times_that_no_clock_has(schema: str, tmp_path: Path) -> None:
    """Centuries cannot be added up in 64 bits: then an analysis says so, with its file, and the
    others go on.
    """
    case = Case(when=lambda lot, cpu, i: lot.choice([-(2**62), 0, 2**62, i]), end=2**62)
    log = klogger.open(make(schema, case, tmp_path / "x.klog-parquet"), locked=True)
    for result in executor.run_all(log, chosen(log, schema)):
        if result.status == "failed":
            said = r"\.sql.*: (Overflow|.*out of range|Lists larger than)"
            assert re.search(said, result.reason), result.reason


@pytest.mark.parametrize("schema", some(SCHEMAS, SHOWN_ONCE))
def test_events_that_were_not_recorded(schema: str, tmp_path: Path) -> None:
    """Without any one of its events, an analysis says which, and how to record it; without all
    others it does not fail.
    """
    path = make(schema, Case(rows=20), tmp_path / "x.klog-parquet")
    events_of = support.events_of(*needed(schema))
    own = {event.name.upper() for event in events_of if event.schema != "klogger"}
    with contextlib.closing(klogger.open(path)) as log:
        named = [(one, {e.upper() for e in one.events}) for one in chosen(log, schema)]
        for missing in sorted({event for _, events in named for event in events}):
            event = log.events.pop(missing)
            askers = [one for one, events in named if missing in events]
            for result in executor.run_all(log, askers):
                assert result.status == "not_recorded", result.analysis.name
                assert re.fullmatch(
                    rf"{missing} not recorded: use 'klogger record -s [\w,]+ -- COMMAND'",
                    result.reason,
                )
            log.events[missing] = event
    for one, others in ((one, own - events) for one, events in named if own - events):
        with contextlib.closing(klogger.open(path)) as log:
            for event in others:
                log.connection.execute(f"DROP VIEW main.{log.events.pop(event).name}")
            (result,) = executor.run_all(log, [one])
            assert result.status != "failed", result.reason
            if result.status == "not_recorded":
                assert re.fullmatch(
                    r"\w+ not recorded: use 'klogger record -s [\w,]+ -- COMMAND'", result.reason
                )
                assert result.reason.split()[0] in others


def chosen(log: klogger.Log, schema: str) -> list[analysis.Analysis]:
    return [a for a in executor.choose(log) if a.schema == schema]


def events_named(path: Path) -> list[str]:
    found = re.findall(r"^-- events: (.*)$", path.read_text(), re.M)
    return [e.upper() for line in found for e in re.split(r"[,\s]+", line) if e]


@functools.cache
def events_in(schema: str) -> frozenset[str]:
    return frozenset(event.name.upper() for event in support.events_of(schema))


def needed(schema: str) -> tuple[str, ...]:
    """The schema, and those whose events its analyses ask for."""
    wanted = {e for p in support.SCHEMATA.glob(f"{schema}/analyses/*.sql") for e in events_named(p)}
    found = [schema]
    for event in sorted(wanted):
        if not any(event in events_in(name) for name in found):
            found.append(next(name for name in support.schemata() if event in events_in(name)))
    return tuple(found)


def make(schema: str, case: Case, out: Path) -> Path:
    """A log with each event of the schema, drawn by lot, but always the same."""
    lot = random.Random(schema)
    con = duckdb.connect()
    schemata = needed(schema)
    events = support.events_of(*schemata)
    support.create_tables(con, events)
    serials = dict.fromkeys(case.cpus, 0)
    for event in [e for e in events if e.schema != "klogger"]:
        described = con.execute(
            f"SELECT column_name, column_type FROM (DESCRIBE {event.name})"
        ).fetchall()
        rows = []
        for i in range(case.rows):
            cpu = lot.choice(case.cpus)
            serials[cpu] += 1
            fields = [value(lot, name, kind, case.extreme) for name, kind in described[3:]]
            rows.append([case.when(lot, cpu, i), cpu, serials[cpu], *fields])
        # The exporter merges the CPUs by time.
        smalllog.insert(con, event.name, sorted(rows, key=lambda row: row[0]))
    processes = [(10 + i, name, 0, None) for i, name in enumerate(NAMES)]
    # One that changes its name, and one that ends before it begins.
    processes += [(12, "\ufffdlater", 7 * MS, None), (10, "", 6 * MS, 5 * MS)]
    return support.write_log(
        con, out, schema=schemata, processes=processes if case.processes else [],
        ledger=list(case.ledger), end=case.end, cpus=len(case.cpus),
    )  # fmt: skip


def value(lot: random.Random, name: str, kind: str, extreme: float) -> Any:
    """A small number, so that events belong together; or an end of the type's range."""
    if kind.endswith("[]"):
        return [value(lot, name, kind.removesuffix("[]"), extreme) for _ in range(3)]
    if kind == "VARCHAR":
        return lot.choice(NAMES)
    if lot.random() < extreme:
        return lot.choice(LIMITS[kind])
    if name in ("pid", "tid", "tgid", "next", "waker", "parent", "child"):
        return lot.choice((0, 10, 11, 12, 13))
    return lot.choice((0, 1, 1, 2, 3, 64, 100))


def watch_numbers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Collects what is no number; `plain` makes nothing of it, which would hide a
    division by zero.
    """
    odd: list[float] = []
    plain = executor.plain

    def watched(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            odd.append(value)
        return plain(value)

    monkeypatch.setattr(executor, "plain", watched)
    return odd


def faults_of(result: Result, *, drawn: bool = True) -> list[str]:
    if result.status == "failed":
        return [result.reason]
    tables = [result.table] if result.points is result.table else [result.table, result.points]
    found = [fault for rows in tables for fault in impossible(result, rows.records())]
    for text in [*result.findings, *result.warnings]:
        if re.search(r"(?<![\w.])-[\d.,]+ ?(ns|µs|ms|s|%)(?!\w)|\b(nan|inf|None|NULL)\b", text):
            found.append(f"says: {text}")
    return found + shown(result, drawn)


def impossible(result: Result, records: list[dict[str, Any]]) -> list[str]:
    """Numbers that nothing can have: times, counts and shares below 0.

    Events drawn by lot have one thread on two CPUs at once, so that shares may well be above 1.
    """
    found = set()
    for record in records:
        for name, value in record.items():
            column = result.analysis.columns.get(name)
            if column is None or not isinstance(value, (int, float)) or isinstance(value, bool):
                continue
            if value < 0 and column.unit in NEVER_NEGATIVE:
                found.add(f"{name} is {value}")
    return sorted(found)[:5]


def shown(result: Result, drawn: bool) -> list[str]:
    """What is wrong with the forms in which it is shown; an exception is the test's failure."""
    out = io.StringIO()
    terminal.print_result(terminal.console(out), result, None)
    lines = out.getvalue().splitlines() + figure.lines(result)
    spec = draw(result, Palette(), ON_PAGE, subjects=NOBODY) if drawn else None
    section = html.section_of(result, "picture" if spec else "", NOBODY)
    found = [f"a line has {len(line)} columns" for line in lines if len(line) > 100]
    found += (
        ["a control character on the terminal"] if any("\x1b" in line for line in lines) else []
    )
    return found + (["markup that is not ours"] if "<b>" in section else [])


def test_the_checks_of_this_file_find_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An analysis that divides by zero and subtracts the wrong way round."""
    text = (
        "-- title: T\n-- question: Q?\n-- events: SCHEDIN\n-- column a [ns]: a\n\n"
        "-- table\nSELECT -5 AS a, 'nan'::DOUBLE AS c;\n\n-- finding\nSELECT 'It took -5 ns.';\n"
    )
    file = support.own_analysis(tmp_path, "bad", text)
    meta = {"schemas": [{"name": "mine", "file": file}]}
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    log = klogger.open(
        support.write_log(con, tmp_path / "x.klog-parquet", processes=[], end=1000, meta=meta)
    )
    odd = watch_numbers(monkeypatch)
    (result,) = [r for r in executor.run_all(log, executor.choose(log)) if r.analysis.name == "bad"]
    assert faults_of(result) == ["a is -5", "says: It took -5 ns."]
    assert len(odd) == 1


def test_times_before_the_start_are_held_to_it(tmp_path: Path) -> None:
    made = LogFile()
    for name in ("TICK", "TOCK"):
        made.event(name, "a:i32", schema="mine")
    for number, time in enumerate((-5000, -1, 0, 7)):
        made.add(0, time, "TICK", a=number)
    made.add(1, 3, "TOCK")
    log = klogger.open(made.write(tmp_path / "x.klog"))
    assert log.rows("SELECT time FROM TICK ORDER BY a") == [(0,), (0,), (0,), (7,)]
    said = "SELECT severity, source, event, count, from_ns, to_ns, text FROM ledger"
    ((*words, text),) = log.rows(f"{said} WHERE key = 'before_start'")
    assert words == ["notice", "reading", "TICK", 2, 0, 0]
    assert text.startswith("events have times before the start of the log")


def test_wrong_sql_is_said_with_file_and_line(tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "analyses"
    folder.mkdir(parents=True)
    head = "-- title: T\n-- question: Q?\n-- events: SCHEDIN\n-- column a: a\n\n"
    (folder / "one.sql").write_text(f"{head}-- table\nSELECT 1 AS a,\n  pidd AS b\nFROM SCHEDIN;\n")
    (folder / "two.sql").write_text(
        f"{head}CREATE TEMP TABLE t AS\n  SELEC 1;\n\n-- table\nSELECT 1 AS a;\n"
    )
    meta = {"schemas": [{"name": "mine", "file": str(tmp_path / "mine" / "mine.klogger")}]}
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    log = klogger.open(
        support.write_log(con, tmp_path / "x.klog-parquet", processes=[], end=1000, meta=meta)
    )
    one, two = [
        r for r in executor.run_all(log, executor.choose(log)) if r.analysis.schema == "mine"
    ]
    assert one.status == two.status == "failed"
    assert one.reason.startswith(f"{folder}/one.sql, section 'table': ")
    assert "\n  line 8:   pidd AS b\n" in one.reason and "did you mean pid" in one.reason
    assert two.reason.startswith(f"{folder}/two.sql: ") and "\n  line 7:   SELEC 1;\n" in two.reason
