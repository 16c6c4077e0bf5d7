# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Checks an analysis without a log: its header, its SQL against the empty tables of its schema, its
picture; and what it answers to the logs of its expectations.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import klogger
from klogger import analysis, executor, expectation, rules, smalllog
from klogger.analysis import Analysis
from klogger.executor import Result
from klogger.failure import Failure

SECTIONS = ("table", "picture", "finding", "warning")


@dataclass
class Checked:
    path: Path
    expectations: int = 0
    faults: list[str] = field(default_factory=list)


def check(path: Path) -> Checked:
    found = Checked(path)
    try:
        source = schema_of(path)
        one = analysis.parse(path, smalllog.name_of(source))
        events = {event.name: event for event in smalllog.events_of(source)}
        found.faults += [f.shown(path, one.text) for f in rules.check(one, events)]
        if found.faults:
            return found
        with tempfile.TemporaryDirectory(prefix="klogger-") as folder:
            empty = smalllog.empty_log(Path(folder) / "empty", source)
            found.faults += faults_on(one, empty)
            if not found.faults:
                for faults in compared(one, source, Path(folder)):
                    found.expectations += 1
                    found.faults += faults
    except Failure as failure:
        found.faults.append(f"{path}: {failure}")
    return found


def schema_of(path: Path) -> str:
    """The file of the schema that an analysis belongs to: in the folder above `analyses`, or next
    to it.
    """
    folder = path.absolute().parent
    for place in (folder.parent, folder) if folder.name == "analyses" else (folder,):
        files = sorted(place.glob("*.klogger"))
        named = [file for file in files if file.stem == place.name]
        if named or len(files) == 1:
            return str((named or files)[0])
    raise Failure(
        "there is no schema that it belongs to",
        help="put it into the folder 'analyses' beside the schema, or next to the schema",
    )


def faults_on(one: Analysis, log: Path) -> list[str]:
    """Of its SQL, and of the columns that it gives."""
    with klogger.open(log, locked=True) as opened, executor.Session(opened) as session:
        result = session.run(one)
        if result.status in ("failed", "not_recorded"):
            return [result.reason]
        if one.samples:
            executor.execute(
                session.prepared(one), one.placed("samples"), f"{one.path}, section 'samples'"
            )
    faults = []
    for section, rows in (("table", result.table), ("picture", result.points)):
        if section in one.sections:
            faults += rules.check_columns(one, section, rows.names)
    return [fault.shown(one.path, one.text) for fault in faults]


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
