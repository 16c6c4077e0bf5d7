# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""An analysis: one SQL file with a header that says what it asks, what it needs, and how the answer
is drawn.

The header's form is described in docs/analyses.md. Nothing here runs SQL.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klogger import program, sources
from klogger.failure import Failure, did_you_mean

# `samples` is for `klogger compare` alone, `histogram` and `combine` are for datasets. They are
# kept apart from the others.
SECTIONS = ("table", "picture", "finding", "warning", "samples", "histogram", "combine")
# The file of a schema's folder that makes the spans of `klogger.span`.
SPANS = "spans.sql"
# The folder of a schema with its derived tables (`klogger.derived`).
DERIVED = "derived"
# Which change of a column is for the better.
BETTER = ("less", "more", "neither")
# What may stand beside its unit: a bar; that each row of a spark has a scale of its own.
MARKS = ("bar", "each", *BETTER)
# How the rows of several recordings become those of one answer, if not by SQL of the analysis: as
# they are, or those of the same key are added up.
COMBINED = ("keep", "sum")
# What may stand beside the unit of a column that is neither a key nor a sum of the rows': `max`; a
# quotient of two sums; a quantile of a histogram; `apart`: it is not in the combined answer.
RULES = re.compile(r"key|sum|max|min|most|apart|\w+/(\w+|\*)|(0?\.\d+ )?of \w+")
# What each kind of picture is drawn from: the parts that it must have, and those that it may have.
KINDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "cdf": (frozenset({"x", "y"}), frozenset({"colour", "scale", "zoom"})),
    "bars": (frozenset({"x", "y"}), frozenset({"scale"})),
    "stacked": (frozenset({"x", "y", "colour"}), frozenset()),
    "histogram": (frozenset({"x", "x2", "y"}), frozenset({"colour", "scale"})),
    "timeline": (frozenset({"x", "x2", "row", "colour"}), frozenset({"y", "y2", "rows"})),
    "matrix": (frozenset({"x", "y", "size"}), frozenset({"scale"})),
    "flame": (frozenset({"x", "y"}), frozenset()),
}
# What only a page can draw: no use without a pointer to ask it.
ON_PAGES = frozenset({"flame"})
# Parts that name no column, and what they may be; the first is what they are if they are not given.
CHOICES = {"scale": ("linear", "log"), "zoom": ("none", "ends"), "rows": ("high", "low")}
# What may be included: a file beside the analysis, or beside those of another schema.
INCLUDED = re.compile(r"(\.\./\.\./\w+/analyses/)?\w+")
HEADER_LINE = re.compile(
    r"--(?: (?P<key>[a-z]+)(?: (?P<name>\w+))?(?: \[(?P<unit>[^\]]*)\])?:)?(?P<text>.*)"
)


@dataclass(frozen=True)
class Column:
    """`unit` is one of `units.UNITS` or empty; `bar`: a bar is drawn beside the numbers; `each`: a
    spark's rows have scales of their own; `better`: less, more, neither.

    `better` is empty if the header does not say: then less is better of what is a time, and neither
    of all else.
    """

    name: str
    unit: str
    bar: bool
    doc: str
    better: str = ""
    rule: str = ""
    each: bool = False


@dataclass(frozen=True)
class Picture:
    kind: str
    parts: Mapping[str, str]


@dataclass(frozen=True)
class Fault:
    """What is wrong, in a line of the file (0: in none), below `marked` of it."""

    message: str
    line: int = 0
    marked: str = ""
    help: str = ""

    def column(self, lines: list[str]) -> int:
        """Where in its line what is marked begins, from 0."""
        text = lines[self.line - 1]
        word = re.search(rf"(?<!\w){re.escape(self.marked)}(?!\w)", text)
        return word.start() if word else max(text.find(self.marked), 0)

    def shown(self, path: Path, lines: list[str]) -> str:
        """With its place, and a caret below what is marked."""
        if not 0 < self.line <= len(lines):
            return f"{path}: {self.message}" + (f"\n  help: {self.help}" if self.help else "")
        text, column = lines[self.line - 1], self.column(lines)
        label = f"  line {self.line}: "
        shown = [f"{path}:{self.line}:{column + 1}: {self.message}", label + text]
        shown.append(" " * (len(label) + column) + "^" * max(len(self.marked), 1))
        return "\n".join([*shown, *([f"  help: {self.help}"] if self.help else [])])


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
    combine: str = ""
    # The SQL of the sections `histogram` and `combine`.
    histogram: str = ""
    combination: str = ""
    # Where in the file each section begins, and "setup".
    lines: dict[str, int] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    # Of the header: it costs the analysis its answer.
    faults: list[Fault] = field(default_factory=list)
    # What it includes, by name, as far as it was read: once for a report, of however many logs.
    included: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def said(self, faults: Iterable[Fault]) -> str:
        return "\n".join(fault.shown(self.path, self.text) for fault in faults)

    @property
    def drawn(self) -> str:
        """The section whose rows the picture is drawn from."""
        return "picture" if "picture" in self.sections else "table"

    @property
    def folder(self) -> Path:
        """Where the files are that it includes. The file of spans, and the folder of derived
        tables, are beside that folder.
        """
        beside = self.path.parent
        if beside.name == DERIVED:
            return beside.parent / "analyses"
        return beside / "analyses" if self.path.name == SPANS else beside

    def including(self, name: str) -> str:
        """The text of a file that it includes. Raises what `sources.read` does."""
        if name not in self.included:
            self.included[name] = sources.read(self.folder / f"{name}.sql", schemata())
        return self.included[name]

    def whole(self) -> str:
        """All its SQL, with that of the files that it includes, as far as they can be read."""
        parts = [self.setup, *self.sections.values(), self.samples, self.histogram]
        for name in self.includes:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                parts.append(self.including(name))
        return "\n".join(parts)

    def line_with(self, start: str) -> int:
        """The line of the header that begins so; 0 if there is none."""
        wanted = f"-- {start}"
        return next((n for n, line in enumerate(self.text, 1) if line.startswith(wanted)), 0)

    def placed(self, section: str) -> str:
        """The SQL of a section, of "setup", or of one that is kept apart, below as many empty lines
        as make its line numbers those of the file.
        """
        apart = {
            "setup": self.setup, "samples": self.samples, "histogram": self.histogram,
            "combine": self.combination,
        }  # fmt: skip
        text = apart[section] if section in apart else self.sections[section]
        return "\n" * (self.lines.get(section, 1) - 1) + text


KEYS = (
    "title", "question", "events", "picture", "column", "note", "empty", "include", "costs",
    "order", "combine",
)  # fmt: skip
# A line of a header that was to be one with a key.
KEY = re.compile(r"-- ?(?P<key>[A-Za-z_]+)(?: \w+)?(?: \[[^\]]*\])? ?:")


def parse(path: Path, schema: str) -> Analysis:
    """Reads an analysis. What is wrong with its header is in its `faults`."""
    try:
        return parse_text(path, schema, sources.read(path, schemata()))
    except OSError as error:
        fault = Fault(f"cannot be read: {error.strerror}", help=remedy(error))
    except UnicodeDecodeError as error:
        fault = Fault(f"byte {error.start} is not UTF-8 text")
    return Analysis(path.stem, path, schema, faults=[fault])


def parse_text(path: Path, schema: str, text: str) -> Analysis:
    """An analysis with this text. `path`: where it is from."""
    analysis = Analysis(path.stem, path, schema)
    lines = analysis.text = text.splitlines()
    end = next((i for i, line in enumerate(lines) if not line.startswith("--")), len(lines))
    for number, key, name, unit, value in header_entries(lines[:end]):
        try:
            set_entry(analysis, key, name, unit, value)
        except ValueError as error:
            marked = word[0] if (word := re.match("'([^']*)'", str(error))) else key
            analysis.faults.append(Fault(str(error), number, marked.strip("'"), HEADER_HELP))
    analysis.faults += stray_keys(lines[:end])
    split_sections(analysis, lines[end:], end + 1)
    return analysis


HEADER_HELP = "docs/analyses.md describes the header"
OWN_HELP = (
    "only files are read that are yours or root's and that nobody else can write: copy the folder"
    " of the schema, or name the folder above it in KLOGGER_SCHEMATA if you trust its owner"
)


def remedy(error: OSError) -> str:
    return OWN_HELP if isinstance(error, sources.Refused) else ""


def stray_keys(lines: list[str]) -> list[Fault]:
    """Keys that there are not, which would else be a part of the line before."""
    found = []
    for number, line in enumerate(lines, 1):
        match = KEY.match(line)
        if match is None or "SPDX" in line:
            continue
        whole = HEADER_LINE.fullmatch(line)
        if whole is not None and whole["key"] in KEYS:
            continue
        word = match["key"]
        close = did_you_mean(word, KEYS) if word not in KEYS else f"write '-- {word}: ...'"
        known = f"there are: {', '.join(KEYS)}"
        found.append(Fault(f"unknown header key '{word}'", number, word, close or known))
    return found


def header_entries(lines: list[str]) -> list[tuple[int, str, str, str, str]]:
    """(line, key, name, unit, text); lines that are indented by more than one space continue the
    one before. Without those of unknown keys.
    """
    entries: list[tuple[int, str, str, str, str]] = []
    for number, line in enumerate(lines, 1):
        match = HEADER_LINE.fullmatch(line)
        if match is None or (match["key"] is None and not match["text"].strip()) or "SPDX" in line:
            continue
        key = match["key"]
        if key is not None:
            name, unit = match["name"] or "", match["unit"] or ""
            entries.append((number, key, name, unit, match["text"].strip()))
        elif entries:
            at, key, name, unit, text = entries[-1]
            entries[-1] = (at, key, name, unit, f"{text} {match['text'].strip()}".strip())
    return [entry for entry in entries if entry[1] in KEYS]


def set_entry(analysis: Analysis, key: str, name: str, unit: str, value: str) -> None:
    words = tuple(w for w in re.split(r"[,\s]+", value) if w)
    match key:
        case "combine" if value not in COMBINED:
            raise ValueError(f"'{value}' is neither of {', '.join(COMBINED)}")
        case "title" | "question" | "empty" | "combine":
            setattr(analysis, key, value)
        case "events" | "costs":
            setattr(analysis, key, words)
        case "order":
            if not re.fullmatch(r"-?\d{1,9}", value):
                raise ValueError(f"'{value}' is not a number")
            analysis.order = int(value)
        case "include":
            for word in words:
                if not INCLUDED.fullmatch(word):
                    raise ValueError(f"'{word}' is neither NAME nor ../../SCHEMA/analyses/NAME")
            analysis.includes += words
        case "note":
            analysis.notes.append(value)
        case "picture":
            analysis.picture = Picture(words[0] if words else "", dict(part(w) for w in words[1:]))
        case "column":
            marks = [w.strip() for w in unit.split(",")] if unit else []
            analysis.columns[name] = column_of(name, marks, value)


def column_of(name: str, marks: list[str], doc: str) -> Column:
    rules = [m for m in marks if RULES.fullmatch(m)]
    better = [m for m in marks if m in BETTER]
    units = [m for m in marks if m not in (*MARKS, *rules)]
    return Column(
        name, units[0] if units else "", "bar" in marks, doc, better[0] if better else "",
        rules[0] if rules else "", "each" in marks,
    )  # fmt: skip


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
    analysis.histogram = analysis.sections.pop("histogram", "")
    analysis.combination = analysis.sections.pop("combine", "")


def find(schemas: Iterable[Mapping[str, Any]]) -> list[Analysis]:
    """The analyses of the schemas that a log was recorded with, in the order of schemas
    and names.
    """
    found = []
    for schema in schemas:
        name = str(schema.get("name", ""))
        chosen = [parse(path, name) for path in files_of(name, str(schema.get("file", "")))]
        found += sorted(chosen, key=lambda a: (a.order, a.name))
    return found


def searched(schemas: Iterable[Mapping[str, Any]]) -> str:
    """Why a log has no analyses: for schemata of the user's own, where they would be."""
    schemas = list(schemas)
    if refused(schemas):
        return "those of its schemata are not read"
    files = [Path(str(s.get("file", ""))) for s in schemas]
    own = [str(file.parent / "analyses") for file in files if file.is_absolute()]
    return f"there are none in {' and '.join(own)}" if own else "the log's schemata bring none"


def files_of(name: str, file: str) -> list[Path]:
    """The analyses of a schema: those of the first place that has any. Beside the file, they are in
    the folder `analyses`, or files with a header next to it. A file name without a folder is that
    of a bundled schema.
    """
    places: list[list[Path]] = []
    if os.path.isabs(file) and re.fullmatch(r".*\.klogger(\.conf.*)?", file):
        beside = Path(file).parent
        places += [files_in(beside / "analyses"), [p for p in files_in(beside) if has_header(p)]]
    if re.fullmatch(r"\w+", name):
        places += [files_in(base / name / "analyses") for base in schemata()]
    return next((found for found in places if found), [])


def refused(schemas: Iterable[Mapping[str, Any]]) -> list[str]:
    """The folders with analyses beside the files of a log's schemata that are not read, and why."""
    found = []
    for schema in schemas:
        file = str(schema.get("file", ""))
        for folder in folders_of("", file):
            for place in (folder / "analyses", folder):
                try:
                    sources.names_in(place, schemata())
                except sources.Refused as error:
                    found.append(f"{place} is not read: it {error.strerror}; {OWN_HELP}")
                    break
                except OSError:
                    continue
    return list(dict.fromkeys(found))


def spans_of(name: str, file: str) -> Path | None:
    """The file with a schema's spans, from the first place that has it, as with its analyses."""
    places = folders_of(name, file)
    return next((place / SPANS for place in places if SPANS in names_of(place)), None)


def derived_of(name: str, file: str) -> list[Path]:
    """The files of a schema's derived tables, from the first place that has any."""
    places = (files_in(place / DERIVED) for place in folders_of(name, file))
    return next((found for found in places if found), [])


def folders_of(name: str, file: str) -> list[Path]:
    """Where a schema may be: beside its file, if that has a folder, or under its name."""
    places = []
    if os.path.isabs(file) and re.fullmatch(r".*\.klogger(\.conf.*)?", file):
        places.append(Path(file).parent)
    if re.fullmatch(r"\w+", name):
        places += [base / name for base in schemata()]
    return places


def files_in(folder: Path) -> list[Path]:
    names = (n for n in names_of(folder) if n.endswith(".sql") and not n.startswith(("_", ".")))
    return sorted(folder / name for name in names if name != SPANS)


def names_of(folder: Path) -> list[str]:
    """None of a folder that is not there or is not to be trusted: `refused` says so."""
    try:
        return sources.names_in(folder, schemata())
    except OSError:
        return []


def has_header(path: Path) -> bool:
    """Whether it is an analysis, and not some other SQL."""
    try:
        head = sources.read(path, schemata()).splitlines()[:40]
    except (OSError, UnicodeDecodeError):
        return False
    return any(re.match("-- (title|question|events):", line) for line in head)


def declaring(event: str, first: str) -> str:
    """The schema that has an event; `first` if it has it, or if none does."""
    files = [path for base in schemata() for path in sorted(base.glob("*/*.klogger"))]
    files.sort(key=lambda path: path.stem != first)
    texts = {path: text for path in files if (text := schema_text(path))}
    # To ask klogger for the events of a schema, which may have them from a text that it includes,
    # takes a second.
    declared = re.compile(rf"^\s*event\s+{re.escape(event)}\b", re.IGNORECASE | re.MULTILINE)
    for path, text in texts.items():
        if declared.search(text):
            return path.stem
    named = re.compile(rf"\b{re.escape(event)}\b", re.IGNORECASE)
    for path, text in texts.items():
        if named.search(text) and event.upper() in events_of(path):
            return path.stem
    return first


COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@functools.lru_cache(64)
def schema_text(file: Path) -> str:
    """The text of a schema, without its comments; empty if it cannot be read."""
    try:
        return COMMENT.sub(" ", sources.read(file, schemata()))
    except (OSError, UnicodeDecodeError):
        return ""


def events_of(file: Path) -> frozenset[str]:
    """The names of a schema's events, in upper case; none, if klogger cannot read it."""
    try:
        return frozenset(str(event["name"]).upper() for event in read(file.resolve())["events"])
    except (Failure, KeyError, TypeError):
        # Not kept: next time it may be possible, for instance if klogger took too long.
        return frozenset()


def declared_in(file: Path) -> frozenset[str]:
    """The names of a schema's fields and decodings, in lower case; none, if klogger cannot read
    it.
    """
    try:
        found = read(file.resolve())
        fields = [str(field["name"]) for event in found["events"] for field in event["fields"]]
        return frozenset(
            name.lower() for name in [*fields, *(str(one["name"]) for one in found["decodings"])]
        )
    except (Failure, KeyError, TypeError):
        return frozenset()


@functools.cache
def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = program.answer("show", str(file), timeout=30)
    return found


def schemata() -> list[Path]:
    """Where folders of schemata may be: those of $KLOGGER_SCHEMATA, those of the user, those that
    'make install' installed with this program, those of the wheel, those of the source tree.
    `klogger list` has the same order (crates/cli/src/own_schemata.rs).
    """
    named = os.environ.get("KLOGGER_SCHEMATA", "").split(":")
    config = os.environ.get("XDG_CONFIG_HOME")
    home = Path(config) if config else Path.home() / ".config"
    places = [Path(name) for name in named if name] + [home / "klogger" / "schemata"]
    own = program.own_file()
    if own is not None:
        places.append(own.resolve().parent.parent / "share" / "klogger" / "schemata")
    package = Path(__file__).resolve().parent
    return [*places, package / "schemata", package.parents[1] / "schemata"]
