# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs the analyses of a log, each once. What comes out is plain data, which every output shows in
its own way.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb

from klogger import analysis as analyses
from klogger import costs, folders, general, losses, rules, spans
from klogger.analysis import Analysis
from klogger.failure import Failure, did_you_mean
from klogger.log import Log
from klogger.numerals import agreed
from klogger.sqltext import identifier
from klogger.statements import Connection, execute_whole, executed, include
from klogger.units import plain

# A log is untrusted, and a table of a million threads cannot be read.
ROWS_MAX = 2000
POINTS_MAX = 8000
TEXTS_MAX = 20

# What DuckDB says of a table that is not there. Events have names in capitals.
ABSENT = re.compile(r"Table with name ([A-Z][A-Z0-9_]*) does not exist")
# A field, or a function of a decoding.
UNKNOWN = re.compile(
    r'(?:Referenced column|does not have a column named|Function with name) "?(\w+)"?'
)


# A table that an analysis makes for itself.
TABLE = re.compile(r"\bCREATE\s+TEMP\s+TABLE\s+(\w+)", re.IGNORECASE)


@dataclass
class Rows:
    """A table of plain values. `left_out` rows did not fit."""

    names: list[str] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    left_out: int = 0

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.names, row, strict=True)) for row in self.rows]


@dataclass
class Result:
    """`status` is answer, empty, not_recorded or failed; `reason` says why it is not an answer.

    `weights` has a number from 0 to 1 for each of `findings`: the share of the recorded time or
    work that it explains; `None` for one that describes, and explains nothing.
    """

    analysis: Analysis
    status: str = "answer"
    reason: str = ""
    table: Rows = field(default_factory=Rows)
    points: Rows = field(default_factory=Rows)
    findings: list[str] = field(default_factory=list)
    weights: list[float | None] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    # Why it has failed, if it could be run at all.
    failure: Failure | None = None

    def as_json(self) -> dict[str, Any]:
        """As `klogger report --format json` has it (docs/json.md)."""
        one = self.analysis
        return {
            "name": one.name, "schema": one.schema, "title": one.title,
            "question": one.question, "status": self.status, "reason": self.reason,
            "findings": self.findings, "weights": self.weights, "warnings": self.warnings,
            "notes": one.notes,
            "columns": {n: {"unit": c.unit, "doc": c.doc} for n, c in one.columns.items()},
            "table": self.table.records(), "rows_left_out": self.table.left_out,
            "picture": self.points.records(),
        }  # fmt: skip


def of(log: Log) -> list[Analysis]:
    """The analyses of a log's schemata, and the general ones of those that bring none."""
    brought = analyses.find(log.schemas)
    return [*brought, *general.of(log, brought)]


def choose(log: Log, names: Iterable[str] = ()) -> list[Analysis]:
    """The analyses of a log, or those that are named."""
    found = of(log)
    wanted = list(names)
    if not wanted:
        return found
    by_name = {a.name: a for a in found}
    for name in wanted:
        if name not in by_name:
            close = did_you_mean(name, by_name)
            listed = (
                f"there are: {', '.join(by_name)}" if by_name else analyses.searched(log.schemas)
            )
            raise Failure(f"no analysis '{name}'", help=close or listed)
    return [by_name[n] for n in dict.fromkeys(wanted)]


# Of a result, from the connection that has what the analysis includes and sets up.
Filler = Callable[[Result, duckdb.DuckDBPyConnection], None]


class Session:
    """Analyses of one log. Those of one folder share a connection, so that what they include is
    computed once.
    """

    def __init__(self, log: Log, found: list[Analysis] | None = None) -> None:
        self.log = log
        self.found = found
        self.open: dict[Path, Connection] = {}

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        for cursor, _included in self.open.values():
            cursor.close()

    @functools.cached_property
    def analyses(self) -> list[Analysis]:
        return of(self.log) if self.found is None else self.found

    def connection(self, one: Analysis) -> Connection:
        """For what is in the folder of an analysis."""
        folder = one.folder
        if folder not in self.open:
            self.open[folder] = (self.log.cursor(), set())
        return self.open[folder]

    def run(self, one: Analysis, fill: Filler | None = None) -> Result:
        """`fill`: what is asked of its sections, if not all of them."""
        return run(self, one, fill or self.fill_all)

    def fill_all(self, result: Result, cursor: duckdb.DuckDBPyConnection) -> None:
        one = result.analysis
        for section in one.sections:
            match section:
                case "table":
                    result.table = section_rows(one, cursor, section)
                case "picture":
                    result.points = section_rows(one, cursor, section)
                case "finding":
                    # Of few rows: their order costs nothing.
                    with self.log.order.kept(cursor):
                        rows = section_rows(one, cursor, section).rows
                    said = [row for row in rows if row and row[0] is not None]
                    result.findings = [agreed(str(row[0])) for row in said]
                    result.weights = [weight_of(row) for row in said]
        result.warnings += own_warnings(one, cursor)
        if "picture" not in one.sections:
            result.points = result.table
        check_drawn(result)

    def run_all(
        self, chosen: Sequence[Analysis], progress: Callable[[str], None] | None = None
    ) -> list[Result]:
        """Runs analyses, of several folders at a time, and gives up what only one of them needs as
        soon as it is done.
        """

        def work(one: Analysis) -> Result:
            if progress is not None:
                progress(one.title or one.name)
            result = self.run(one)
            self.forget(one)
            return result

        # All connections are made here, and spans are filled, which takes those of several folders.
        runnable = [one for one in chosen if not one.faults and not lacking(self.log, one)]
        for one in runnable:
            self.connection(one)
            spans.fill_for(self.log, one.whole(), self.connection)
        return folders.each(chosen, work, self.connections, self.log.threads())

    def connections(self) -> list[duckdb.DuckDBPyConnection]:
        return [cursor for cursor, _included in self.open.values()]

    def forget(self, one: Analysis) -> None:
        """Drops the tables of its set-up: the next analysis has use for the memory."""
        if one.folder in self.open:
            cursor = self.open[one.folder][0]
            for name in TABLE.findall(one.setup):
                cursor.execute(f"DROP TABLE IF EXISTS temp.main.{identifier(name)}")

    def find(self, schema: str, name: str) -> Analysis | None:
        """`spans`: those of the schema, as an expectation asks for them."""
        if name == "spans":
            files = [str(s.get("file", "")) for s in self.log.schemas if s.get("name") == schema]
            return spans.as_analysis(schema, files[0] if files else "")
        return next((a for a in self.analyses if (a.schema, a.name) == (schema, name)), None)

    def prepared(self, one: Analysis) -> duckdb.DuckDBPyConnection:
        """The connection of an analysis, with the tables that it includes."""
        cursor, included = self.connection(one)
        spans.fill_for(self.log, one.whole(), self.connection)
        include(one, cursor, included)
        return cursor


def run_all(
    log: Log, chosen: Iterable[Analysis], progress: Callable[[str], None] | None = None
) -> Iterator[Result]:
    """The results of analyses, in their order."""
    with Session(log) as session:
        yield from session.run_all(list(chosen), progress)


def run(session: Session, one: Analysis, fill: Filler) -> Result:
    log, result = session.log, Result(one)
    if one.faults:
        result.status, result.reason = "failed", one.said(one.faults)
        return result
    missing = lacking(log, one)
    if missing:
        return not_recorded(result, missing)
    begun = time.monotonic()
    try:
        result.warnings += prepare(session, one)
        fill(result, session.connection(one)[0])
    except Failure as failure:
        absent = ABSENT.search(str(failure))
        if absent is not None and absent[1].upper() not in log.events:
            # Of a file that it includes, or of an older version of the schema.
            return not_recorded(result, [absent[1]])
        if older := of_older_schema(log, one, str(failure)):
            result.status, result.reason = "not_recorded", older
            return result
        result.status, result.reason, result.failure = "failed", str(failure), failure
        return result
    result.warnings += losses.warnings(log, one.events)
    result.warnings = list(dict.fromkeys(result.warnings))
    if one.costs:
        result.analysis = replace(one, notes=[*one.notes, costs.note(log.preamble, one.costs)])
    if not result.table.rows:
        result.status = "empty"
        result.reason = one.empty or "the log has no such events"
    result.seconds = time.monotonic() - begun
    return result


def lacking(log: Log, one: Analysis) -> list[str]:
    """The events that an analysis needs and the log does not have."""
    return [event for event in one.events if event.upper() not in log.events]


def of_older_schema(log: Log, one: Analysis, failure: str) -> str:
    """Why an analysis failed, if it needs what only a later version of the schema declares than
    that of the log; empty otherwise.
    """
    unknown = UNKNOWN.search(failure)
    if unknown is None:
        return ""
    name = unknown[1].lower()
    known = {field.name.lower() for event in log.events.values() for field in event.fields}
    known |= {str(row[0]).lower() for row in log.rows("SELECT decoding FROM klogger.decoding")}
    file = one.folder.parent / f"{one.schema}.klogger"
    if name in known or name not in analyses.declared_in(file):
        return ""
    return (
        f"the log is of an earlier version of '{one.schema}', without '{unknown[1]}': record it"
        " again for this answer"
    )


def not_recorded(result: Result, missing: list[str]) -> Result:
    """With the command that records them: the schemata that have the events, and the one that
    asks.
    """
    one = result.analysis
    schemata = dict.fromkeys(
        (one.schema, *(analyses.declaring(event, one.schema) for event in missing))
    )
    listed = " and ".join([", ".join(missing[:-1]), missing[-1]] if len(missing) > 1 else missing)
    result.status = "not_recorded"
    result.reason = (
        f"{listed} not recorded: use 'klogger record -s {','.join(schemata)} -- COMMAND'"
    )
    return result


def prepare(session: Session, one: Analysis) -> list[str]:
    """Gives the warnings of the spans that it asks for."""
    warnings = spans.fill_for(session.log, one.whole(), session.connection)
    cursor, included = session.connection(one)
    include(one, cursor, included)
    if one.setup:
        execute_whole(cursor, one.placed("setup"), str(one.path))
    return warnings


def check_drawn(result: Result) -> None:
    """What a picture or a bar is drawn from must be there, and a number where one is needed."""
    one = result.analysis
    faults = [*rules.check_picture(one)]
    for section, rows in (("table", result.table), ("picture", result.points)):
        if section == "table" or "picture" in one.sections:
            faults += rules.check_drawn_columns(one, section, rows.names)
            faults += rules.check_numbers(one, section, rows.names, rows.rows)
    if faults:
        raise Failure(one.said(faults))


def section_rows(one: Analysis, cursor: duckdb.DuckDBPyConnection, section: str) -> Rows:
    limit = {"picture": POINTS_MAX, "finding": TEXTS_MAX}.get(section, ROWS_MAX)
    where = f"{one.path}, section '{section}'"
    with executed(cursor, one.placed(section), where) as rows:
        return fetch(rows, limit)


def own_warnings(one: Analysis, cursor: duckdb.DuckDBPyConnection) -> list[str]:
    """They are a set, so they are sorted, and need no order of DuckDB's."""
    if "warning" not in one.sections:
        return []
    rows = section_rows(one, cursor, "warning").rows
    return sorted({agreed(str(row[0])) for row in rows if row and row[0] is not None})[:TEXTS_MAX]


def weight_of(row: list[Any]) -> float | None:
    """The second column of a finding, if there is one."""
    given = row[1] if len(row) > 1 else None
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        return None
    return min(max(float(given), 0.0), 1.0)


def fetch(cursor: duckdb.DuckDBPyConnection, limit: int) -> Rows:
    names = [d[0] for d in cursor.description or []]
    rows = Rows(names, [[plain(v) for v in row] for row in cursor.fetchmany(limit)])
    while more := cursor.fetchmany(10_000):
        rows.left_out += len(more)
    return rows
