# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An analysis: one SQL file with a header that says what it asks, what it needs, and how the answer
is drawn.

The header's form is described in docs/analyses.md. Nothing here runs SQL.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klogger import program
from klogger.failure import Failure
from klogger.units import UNITS

# `samples` is for `klogger compare` alone, and is kept apart from the others.
SECTIONS = ("table", "picture", "finding", "warning", "samples")
# What may stand beside a column's unit: a bar; which change of it is for the better.
MARKS = ("bar", "less", "more", "neither")
# What each kind of picture is drawn from: the parts that it must have, and those that it may have.
KINDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "cdf": (frozenset({"x", "y"}), frozenset({"colour", "scale", "zoom"})),
    "bars": (frozenset({"x", "y"}), frozenset({"scale"})),
    "stacked": (frozenset({"x", "y", "colour"}), frozenset()),
    "histogram": (frozenset({"x", "x2", "y"}), frozenset({"colour", "scale"})),
    "timeline": (frozenset({"x", "x2", "row", "colour"}), frozenset({"y", "y2"})),
    "matrix": (frozenset({"x", "y", "size"}), frozenset({"scale"})),
}
# Parts that name no column, and what they may be; the first is what they are if they are not given.
CHOICES = {"scale": ("linear", "log"), "zoom": ("none", "ends")}
HEADER_LINE = re.compile(
    r"--(?: (?P<key>[a-z]+)(?: (?P<name>\w+))?(?: \[(?P<unit>[^\]]*)\])?:)?(?P<text>.*)"
)


@dataclass(frozen=True)
class Column:
    """`unit` is one of `units.UNITS` or empty; `bar`: a bar is drawn beside the numbers; `better`:
    less, more, neither.

    `better` is empty if the header does not say: then less is better of what is a time, and neither
    of all else.
    """

    name: str
    unit: str
    bar: bool
    doc: str
    better: str = ""


@dataclass(frozen=True)
class Picture:
    kind: str
    parts: Mapping[str, str]


@dataclass
class Analysis:
    name: str
    path: Path
    schema: str
    title: str = ""
    question: str = ""
    events: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()
    # Events whose own cost is subtracted.
    costs: tuple[str, ...] = ()
    picture: Picture | None = None
    columns: dict[str, Column] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    empty: str = ""
    order: int = 100
    setup: str = ""
    sections: dict[str, str] = field(default_factory=dict)
    samples: str = ""
    # Where in the file each section begins, and "setup".
    lines: dict[str, int] = field(default_factory=dict)

    def placed(self, section: str) -> str:
        """The SQL of a section, or of "setup", below as many empty lines as make its line numbers
        those of the file.
        """
        text = self.setup if section == "setup" else self.sections[section]
        return "\n" * (self.lines.get(section, 1) - 1) + text


def parse(path: Path, schema: str) -> Analysis:
    """Reads an analysis. Faults of its header raise a Failure that names the line."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: {error}") from None
    analysis = Analysis(path.stem, path, schema)
    lines = text.splitlines()
    end = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    for number, key, name, unit, value in header_entries(lines[:end]):
        try:
            set_entry(analysis, key, name, unit, value)
        except ValueError as error:
            raise Failure(
                f"{path}:{number}: {error}", help="docs/analyses.md describes the header"
            ) from None
    split_sections(analysis, lines[end:], end + 1)
    return analysis


def header_entries(lines: list[str]) -> list[tuple[int, str, str, str, str]]:
    """(line, key, name, unit, text); lines that are indented by more than one space continue the
    one before.
    """
    entries: list[tuple[int, str, str, str, str]] = []
    for number, line in enumerate(lines, 1):
        match = HEADER_LINE.fullmatch(line)
        if match is None or (match["key"] is None and not match["text"].strip()) or "SPDX" in line:
            continue
        if match["key"] is not None:
            entries.append(
                (
                    number,
                    match["key"],
                    match["name"] or "",
                    match["unit"] or "",
                    match["text"].strip(),
                )
            )
        elif entries:
            at, key, name, unit, text = entries[-1]
            entries[-1] = (at, key, name, unit, f"{text} {match['text'].strip()}".strip())
    return entries


def set_entry(analysis: Analysis, key: str, name: str, unit: str, value: str) -> None:
    words = tuple(w for w in re.split(r"[,\s]+", value) if w)
    match key:
        case "title" | "question" | "empty":
            setattr(analysis, key, value)
        case "events" | "costs":
            setattr(analysis, key, words)
        case "order":
            analysis.order = int(value)
        case "include":
            analysis.includes += words
        case "note":
            analysis.notes.append(value)
        case "picture":
            analysis.picture = Picture(words[0] if words else "", dict(part(w) for w in words[1:]))
        case "column":
            marks = [w.strip() for w in unit.split(",")] if unit else []
            units = [m for m in marks if m not in MARKS]
            better = [m for m in marks if m in MARKS and m != "bar"]
            analysis.columns[name] = Column(
                name, units[0] if units else "", "bar" in marks, value, better[0] if better else ""
            )
        case _:
            raise ValueError(f"unknown header key '{key}'")


def part(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise ValueError(f"'{word}' is not of the form part=column")
    return key, value


def split_sections(analysis: Analysis, lines: list[str], first: int) -> None:
    """A line `-- table` (or another of SECTIONS) begins that section; what stands before is set-up.

    `first` is the number of the first of `lines` in its file.
    """
    current = "setup"
    parts: dict[str, list[str]] = {current: []}
    for number, line in enumerate(lines, first):
        word = line.removeprefix("-- ").rstrip()
        if line.startswith("-- ") and word in SECTIONS:
            current = word
            parts[current] = []
        elif line.strip() or parts[current]:
            analysis.lines.setdefault(current, number)
            parts[current].append(line)
    texts = {name: "\n".join(body).strip() for name, body in parts.items()}
    analysis.setup = texts.pop("setup")
    analysis.sections = {name: text.rstrip(";").rstrip() for name, text in texts.items()}
    analysis.samples = analysis.sections.pop("samples", "")


def check(analysis: Analysis, events: Iterable[str]) -> list[str]:
    """The faults of an analysis that can be seen without running it; `events` are those of its
    schema.
    """
    known = {e.upper() for e in events}
    faults = [
        f"no {key}"
        for key in ("title", "question", "events", "columns")
        if not getattr(analysis, key)
    ]
    if "table" not in analysis.sections:
        faults.append("no section 'table'")
    named = [*analysis.events, *analysis.costs]
    faults += [
        f"the schema has no event {e}" for e in dict.fromkeys(named) if e.upper() not in known
    ]
    for column in analysis.columns.values():
        if column.unit not in UNITS:
            faults.append(
                f"column {column.name}: unknown unit '{column.unit}'; known: "
                f"{', '.join(sorted(UNITS))}"
            )
        if not column.doc:
            faults.append(f"column {column.name} is not documented")
    for name in analysis.includes:
        if not (analysis.path.parent / f"{name}.sql").is_file():
            faults.append(f"no file {name}.sql to include")
    return faults + check_picture(analysis.picture)


def check_picture(picture: Picture | None) -> list[str]:
    if picture is None:
        return []
    if picture.kind not in KINDS:
        return [f"unknown kind of picture '{picture.kind}'; known: {', '.join(KINDS)}"]
    must, may = KINDS[picture.kind]
    faults = [f"a {picture.kind} needs {p}=..." for p in sorted(must - set(picture.parts))]
    faults += [
        f"a {picture.kind} has no part '{p}'" for p in sorted(set(picture.parts) - must - may)
    ]
    for part, known in CHOICES.items():
        if picture.parts.get(part, known[0]) not in known:
            faults.append(f"unknown {part} '{picture.parts[part]}'; known: {', '.join(known)}")
    if picture.parts.get("scale") == "log" and picture.parts.get("zoom") == "ends":
        faults.append("zoom=ends has linear scales")
    return faults


def check_columns(analysis: Analysis, section: str, names: Iterable[str]) -> list[str]:
    """Faults in the columns that a section gave."""
    names = list(names)
    faults = [
        f"column {n} of section '{section}' is not documented"
        for n in names
        if n not in analysis.columns
    ]
    drawn = "picture" if "picture" in analysis.sections else "table"
    if analysis.picture is not None and section == drawn:
        used = [c for p, c in analysis.picture.parts.items() if p not in CHOICES]
        faults += [
            f"the picture uses column {c}, which section '{section}' does not have"
            for c in used
            if c not in names
        ]
    return faults


def find(schemas: Iterable[Mapping[str, Any]]) -> list[Analysis]:
    """The analyses of the schemas that a log was recorded with, in the order of schemas
    and names.
    """
    found = []
    for schema in schemas:
        name = str(schema.get("name", ""))
        for folder in folders(name, str(schema.get("file", ""))):
            paths = sorted(folder.glob("*.sql"))
            if paths:
                chosen = [parse(p, name) for p in paths if not p.name.startswith("_")]
                found += sorted(chosen, key=lambda a: (a.order, a.name))
                break
    return found


def folders(name: str, file: str) -> list[Path]:
    """Where the analyses of a schema may be, best first. A bare file name is one of a bundled
    schema.
    """
    places = []
    if os.path.isabs(file) and re.fullmatch(r".*\.klogger(\.conf.*)?", file):
        places.append(Path(file).parent / "analyses")
    if re.fullmatch(r"\w+", name):
        places += [base / name / "analyses" for base in schemata()]
    return [p for p in places if p.is_dir()]


def declaring(event: str, first: str) -> str:
    """The schema that has an event; `first` if it has it, or if none does."""
    files = [path for base in schemata() for path in sorted(base.glob("*/*.klogger"))]
    files.sort(key=lambda path: path.stem != first)
    for path in files:
        if event.upper() in events_of(path):
            return path.stem
    return first


@functools.cache
def events_of(file: Path) -> frozenset[str]:
    """The names of a schema's events, in upper case; none, if klogger cannot read it."""
    try:
        found = program.answer("show", str(file.resolve()), timeout=30)
        return frozenset(str(event["name"]).upper() for event in found["events"])
    except (Failure, KeyError, TypeError):
        return frozenset()


def schemata() -> list[Path]:
    """Where bundled schemata may be: $KLOGGER_SCHEMATA, the installed ones, those of the source
    tree.
    """
    named = os.environ.get("KLOGGER_SCHEMATA")
    here = Path(__file__).resolve()
    installed = [Path(sys.prefix), Path(sys.argv[0]).resolve().parent.parent]
    places = [Path(named)] if named else []
    places += [base / "share" / "klogger" / "schemata" for base in installed]
    return [*places, here.parents[2] / "schemata"]
