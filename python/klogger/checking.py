# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Checks an analysis without a log: its header, its SQL against the empty tables of its schema and
of those whose events it asks for, its picture; and what it answers to the logs of its expectations.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import klogger
from klogger import analysis, derived, executor, expectation, rules, smalllog, spans, statements
from klogger.analysis import Analysis, Fault
from klogger.executor import Result
from klogger.failure import Failure

SECTIONS = ("table", "picture", "finding", "warning")


@dataclass(frozen=True)
class Told:
    """A fault as people read it, and its parts. Lines and columns begin with 1; None: in none."""

    text: str
    message: str
    line: int | None = None
    column: int | None = None
    help: str | None = None


@dataclass
class Checked:
    path: Path
    expectations: int = 0
    told: list[Told] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        return [told.text for told in self.told]


def told(one: Analysis, faults: Iterable[Fault]) -> list[Told]:
    """Faults of its header, and of its columns."""
    return [
        Told(
            fault.shown(one.path, one.text),
            fault.message,
            fault.line or None,
            fault.column(one.text) + 1 if 0 < fault.line <= len(one.text) else None,
            fault.help or None,
        )
        for fault in faults
    ]


def told_of(result: Result) -> Told:
    """Why it has no answer: mostly its SQL, in a line of the file."""
    if isinstance(result.failure, statements.Rejected):
        fault = result.failure.fault
        line, column = (fault.line, fault.column + 1) if fault.line else (None, None)
        help = fault.meant() if fault.close else None
        return Told(result.reason, fault.message, line, column, help)
    help = result.failure.help if result.failure else None
    return Told(
        result.reason, result.failure.message if result.failure else result.reason, help=help
    )


def check(path: Path) -> Checked:
    found = Checked(path)
    try:
        source = schema_of(path)
        one = parsed(path, source)
        sources = [source, *others(one, source)]
        events = {event.name: event for event in smalllog.events_of(*sources)}
        if path.name != analysis.SPANS:
            found.told += told(one, rules.check(one, events))
        if found.told:
            return found
        with tempfile.TemporaryDirectory(prefix="klogger-") as folder:
            empty = smalllog.empty_log(Path(folder) / "empty", *sources)
            found.told += faults_on(one, empty)
            if not found.told:
                for faults in compared(one, source, Path(folder)):
                    found.expectations += 1
                    found.told += [Told(text, text) for text in faults]
    except Failure as failure:
        found.told.append(Told(f"{path}: {failure}", failure.message, help=failure.help))
    return found


def parsed(path: Path, source: str) -> Analysis:
    """An analysis, or the spans of a schema as one."""
    name = smalllog.name_of(source)
    if path.name != analysis.SPANS:
        return analysis.parse(path, name)
    return spans.of_file(path, name)


def others(one: Analysis, source: str) -> list[str]:
    """The schemata that have the events which its own does not have, such as `files`: it is for
    logs that were recorded with both.
    """
    own = {event.name.upper() for event in smalllog.events_of(source)}
    asked = {event.upper() for event in [*one.events, *one.costs]} - own
    found = {analysis.declaring(event, one.schema) for event in asked}
    return sorted(found - {one.schema})


def schema_of(path: Path) -> str:
    """The file of the schema that an analysis belongs to: in the folder above `analyses` or
    `derived`, or next to it.
    """
    folder = path.absolute().parent
    above = folder.name in ("analyses", analysis.DERIVED)
    for place in (folder.parent, folder) if above else (folder,):
        files = sorted(place.glob("*.klogger"))
        named = [file for file in files if file.stem == place.name]
        if named or len(files) == 1:
            return str((named or files)[0])
    raise Failure(
        "there is no schema that it belongs to",
        help="put it into the folder 'analyses' beside the schema, or next to the schema",
    )


def faults_on(one: Analysis, log: Path) -> list[Told]:
    """Of its SQL, and of the columns that it gives."""
    with klogger.open(log, locked=True) as opened, executor.Session(opened) as session:
        result = session.run(one)
        if result.status in ("failed", "not_recorded"):
            return [told_of(result)]
        if one.path.name == analysis.SPANS:
            return [Told(text, text) for text in result.warnings]
        if one.path.parent.name == analysis.DERIVED:
            try:
                derived.prepare(one, session.prepared(one))
            except Failure as failure:
                return [Told(str(failure), failure.message, help=failure.help)]
        for name in ("samples", "histogram"):
            if not getattr(one, name):
                continue
            where = f"{one.path}, section '{name}'"
            try:
                statements.execute_whole(session.prepared(one), one.placed(name), where)
            except Failure as failure:
                return [Told(str(failure), failure.message, help=failure.help)]
    faults = []
    for section, rows in (("table", result.table), ("picture", result.points)):
        if section in one.sections:
            faults += rules.check_columns(one, section, rows.names)
    return told(one, faults)


def compared(one: Analysis, source: str, folder: Path) -> Iterator[list[str]]:
    """What differs from each expectation."""
    schema = Path(source).parent
    for number, path in enumerate(sorted(schema.glob("expect/*.expect"))):
        try:
            case = expectation.read(path, source)
            if case.analysis != one.name:
                continue
            log = expectation.make(case, folder / str(number))
        except (ValueError, OSError) as error:
            yield [f"{path}: {error}"]
            continue
        with klogger.open(log, locked=True) as opened, executor.Session(opened) as session:
            yield [f"{path}: {text}" for text in differences(case, session.run(one))]


def differences(case: expectation.Expectation, result: Result) -> list[str]:
    if result.status not in ("answer", "empty"):
        return [result.reason]
    found = []
    for section, given in (("table", result.table), ("picture", result.points)):
        if section not in case.rows:
            continue
        columns = case.columns[section]
        if unknown := [c for c in columns if c not in given.names]:
            found.append(f"section '{section}' has no column {', '.join(unknown)}")
            continue
        rows = [[expectation.shown(r[c]) for c in columns] for r in given.records()]
        found += unlike(section, case.rows[section], rows)
    if "finding" in case.texts:
        wanted, said = ([[text] for text in of] for of in (case.texts["finding"], result.findings))
        found += unlike("finding", wanted, said)
    return found


def unlike(section: str, expected: list[list[str]], given: list[list[str]]) -> list[str]:
    if expected == given:
        return []
    number = next(
        (n for n, (a, b) in enumerate(zip(expected, given, strict=False), 1) if a != b),
        min(len(expected), len(given)) + 1,
    )
    row = [" ".join(of[number - 1]) if number <= len(of) else "no row" for of in (expected, given)]
    return [f"section '{section}', row {number}: expected: {row[0]}; is: {row[1]}"]
