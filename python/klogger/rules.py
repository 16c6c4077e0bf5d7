# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The rules that every analysis keeps: its header, its picture, and the columns of its answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from klogger.analysis import CHOICES, KINDS, MARKS, Analysis, Column, Fault
from klogger.failure import did_you_mean
from klogger.units import UNITS


def check(analysis: Analysis, events: Iterable[str]) -> list[Fault]:
    """The faults of an analysis that can be seen without running it; `events` are those of its
    schema.
    """
    known = {e.upper(): e for e in events}
    faults = list(analysis.faults)
    if faults and not analysis.text:
        # It cannot be read.
        return faults
    for key in ("title", "question", "events", "columns"):
        if not getattr(analysis, key):
            written = "column NAME" if key == "columns" else key
            help = f"write '-- {written}: ...'"
            faults.append(Fault(f"no {key}", help=help))
    if "table" not in analysis.sections:
        faults.append(Fault("no section 'table'", help="write a line '-- table' above the query"))
    for key, named in (("events", analysis.events), ("costs", analysis.costs)):
        for event in dict.fromkeys(named):
            if event.upper() not in known:
                close = did_you_mean(event, known.values()) or ""
                line = analysis.line_with(key)
                faults.append(Fault(f"the schema has no event {event}", line, event, close))
    for column in analysis.columns.values():
        faults += column_faults(analysis, column)
    for name in analysis.includes:
        if not (analysis.folder / f"{name}.sql").is_file():
            line = analysis.line_with("include")
            faults.append(Fault(f"no file {name}.sql to include", line, name))
    return faults + check_picture(analysis)


# Units of numbers that are added up over the rows of several recordings.
ADDED = ("count", "ns", "s", "bytes")


def rule_of(column: Column) -> str:
    """How a column combines over recordings, with `-- combine: sum`. Empty: it must say."""
    if column.rule or not column.unit:
        return column.rule or "key"
    return "sum" if column.unit in ADDED else ""


def rule_fault(analysis: Analysis, name: str) -> Fault | None:
    """Of a column of the table that has no rule and needs one."""
    column = analysis.columns.get(name)
    if column is None or rule_of(column):
        return None
    return Fault(
        f"column {name}: the {column.unit} of several recordings is no sum of theirs",
        analysis.line_with(f"column {name}"),
        name,
        f"say what it is, as in '-- column {name} [{column.unit}, A/B]'; or apart: left out",
    )


def named_faults(analysis: Analysis, column: Column) -> list[Fault]:
    """What a rule names must be there. Histograms are found when the query is run."""
    if not column.rule:
        return []
    line = analysis.line_with(f"column {column.name}")
    if analysis.combine != "sum":
        what = f"column {column.name}: '{column.rule}' is for '-- combine: sum'"
        return [Fault(what, line, column.rule, "write '-- combine: sum'")]
    of_histogram = column.rule[0] in "0."
    names = [] if of_histogram else re.findall(r"\w+", column.rule.removeprefix("of "))
    plain = "/" not in column.rule and " " not in column.rule
    return [
        Fault(
            f"column {column.name}: there is no column {name}",
            line,
            name,
            did_you_mean(name, analysis.columns) or "",
        )
        for name in ([] if plain else names)
        if name not in analysis.columns and name != "seconds"
    ]


def column_faults(analysis: Analysis, column: Column) -> list[Fault]:
    line = analysis.line_with(f"column {column.name}")
    found = []
    if column.unit not in UNITS:
        known = ", ".join(sorted(filter(None, UNITS)))
        close = did_you_mean(column.unit, [*UNITS, *MARKS]) or ""
        what = f"column {column.name}: unknown unit '{column.unit}'; known: {known}"
        found.append(Fault(what, line, column.unit, close))
    found += named_faults(analysis, column)
    if not column.doc:
        what = f"column {column.name} is not documented"
        found.append(Fault(what, line, column.name, "say after the ':' what it holds"))
    return found


def check_picture(analysis: Analysis) -> list[Fault]:
    picture, line = analysis.picture, analysis.line_with("picture")
    if picture is None:
        return []
    kind = picture.kind
    if kind not in KINDS:
        what = f"unknown kind of picture '{kind}'; known: {', '.join(KINDS)}"
        return [Fault(what, line, kind, did_you_mean(kind, KINDS) or "")]
    must, may = KINDS[kind]
    given = set(picture.parts)
    faults = [Fault(f"a {kind} needs {p}=...", line, kind) for p in sorted(must - given)]
    for part in sorted(given - must - may):
        close = did_you_mean(part, sorted((must | may) - given)) or ""
        help = close or f"it has: {', '.join(sorted(must | may))}"
        faults.append(Fault(f"a {kind} has no part '{part}'", line, f"{part}=", help))
    for part, known in CHOICES.items():
        value = picture.parts.get(part, known[0])
        if value not in known:
            what = f"unknown {part} '{value}'; known: {', '.join(known)}"
            faults.append(Fault(what, line, f"{part}={value}", did_you_mean(value, known) or ""))
    if picture.parts.get("scale") == "log" and picture.parts.get("zoom") == "ends":
        faults.append(Fault("zoom=ends has linear scales", line, "scale=log", "remove one of them"))
    return faults


def check_columns(analysis: Analysis, section: str, names: Iterable[str]) -> list[Fault]:
    """Faults in the columns that a section gave."""
    names = list(names)
    faults = [
        Fault(
            f"column {n} of section '{section}' is not documented",
            analysis.lines.get(section, 0),
            n,
            did_you_mean(n, set(analysis.columns) - set(names))
            or f"write '-- column {n}: what it holds'",
        )
        for n in names
        if n not in analysis.columns
    ]
    if section == "table" and analysis.combine == "sum":
        faults += [fault for n in names if (fault := rule_fault(analysis, n)) is not None]
    return faults + check_drawn_columns(analysis, section, names)


def check_drawn_columns(analysis: Analysis, section: str, names: Iterable[str]) -> list[Fault]:
    """Columns that the picture is drawn from, and that are not there."""
    names = list(names)
    if analysis.picture is None or section != analysis.drawn:
        return []
    return [
        Fault(
            f"the picture uses column {c}, which section '{section}' does not have",
            analysis.line_with("picture"),
            c,
            did_you_mean(c, names) or "",
        )
        for p, c in analysis.picture.parts.items()
        if p not in CHOICES and c not in names
    ]


# Of each kind of picture, the parts that are numbers; the others are names.
NUMBERS = {
    "cdf": ("x", "y"), "bars": ("x",), "stacked": ("x",), "histogram": ("x", "x2", "y"),
    "timeline": ("x", "x2", "y", "y2"), "matrix": ("size",),
    "flame": ("x",),
}  # fmt: skip


def check_numbers(
    analysis: Analysis, section: str, names: list[str], rows: list[list[Any]]
) -> list[Fault]:
    """Values that cannot be drawn, because they are no numbers."""
    places = {}
    if analysis.picture is not None and section == analysis.drawn:
        parts = analysis.picture.parts
        for part in NUMBERS[analysis.picture.kind]:
            if part in parts:
                places[parts[part]] = ("picture", parts[part])
    for column in analysis.columns.values():
        if column.bar or column.unit == "spark":
            places[column.name] = (f"column {column.name}", column.name)
    faults = []
    for name, (start, marked) in places.items():
        lists = name in analysis.columns and analysis.columns[name].unit == "spark"
        at = names.index(name) if name in names else -1
        bad = (
            next((r[at] for r in rows if not drawable(r[at], lists=lists)), None)
            if at >= 0
            else None
        )
        if bad is not None:
            kind = "a list of numbers" if lists else "a number"
            what = f"column {name} is not {kind}, but for example {str(bad)[:40]!r}"
            faults.append(Fault(what, analysis.line_with(start), marked))
    return faults


def drawable(value: Any, *, lists: bool) -> bool:
    if lists and isinstance(value, (list, tuple)):
        return all(drawable(v, lists=False) for v in value)
    return value is None or (not lists and isinstance(value, (int, float)))
