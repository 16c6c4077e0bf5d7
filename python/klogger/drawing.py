# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What all kinds of pictures are made with: colours, axes with their ticks and names, tooltips.

Parts of a picture are those of Vega-Lite's specification, as they stand in JSON.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from klogger import durations
from klogger.analysis import Analysis
from klogger.curves import apart
from klogger.units import NOTHING, show

# Okabe and Ito's colours, which colour-blind people can tell apart, then darker and lighter ones of
# the same hues. All can be seen on white and on dark grey.
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6bb1", "#a6761d",
    "#66a61e", "#b15928", "#17a2b8", "#e7298a",
)  # fmt: skip
OTHER = "#999999"
# What is left when the rest has names: grey, and after these.
REST = ("other", "others", "all others")
# Of names for nothing.
PALE = "#d4d4d4"
# Pixels of a letter of a title, and of the widest title of a legend.
LETTER_WIDTH = 7
LEGEND_WIDTH = 180
# A reader needs so many numbers on an axis.
TICKS_MIN = 3
# Which ticks of a logarithmic axis have a label: 1, 10, 100; if the axis is shorter, 1, 2, 5, 10;
# or all.
LOG_STEPS = ((1,), (1, 2, 5), (1, 2, 3, 4, 5, 6, 7, 8, 9))
LOG_LABEL = (
    "indexof(domain('x')[1] / domain('x')[0] > 1000 ? [1] : domain('x')[1] / domain('x')[0] > 20 ?"
    " [1, 2, 5] : [1, 2, 3, 4, 5, 6, 7, 8, 9],"
    " round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9)))) >= 0"
)


# A part of a specification.
Spec = dict[str, Any]


def number(column: str, **more: Any) -> Spec:
    """How the numbers of a column are shown."""
    return {"field": column, "type": "quantitative", **more}


def name(column: str, **more: Any) -> Spec:
    """How the names in a column are."""
    return {"field": column, "type": "nominal", **more}


@dataclass
class Palette:
    """One colour for each name of a kind (program, CPU, ...), the same in all pictures of
    a report.
    """

    known: dict[str, dict[str, str]] = field(default_factory=dict)

    def colour(self, kind: str, name: str) -> str:
        if name in REST:
            return OTHER
        if name in NOTHING:
            return PALE
        known = self.known.setdefault(kind, {})
        return known.setdefault(name, COLOURS[len(known) % len(COLOURS)])


@dataclass(frozen=True)
class Theme:
    """Colours of all that is not data. `currentColor` takes the page's own."""

    text: str = "#222222"
    grid: str = "#dddddd"
    background: str | None = "#ffffff"
    heat: tuple[str, str] = ("#dcebf7", "#08519c")


ON_PAGE = Theme(text="currentColor", grid="rgba(128, 128, 128, 0.25)", background=None)


@dataclass(frozen=True)
class Subjects:
    """The names of programs. A thread is PROGRAM[TID]."""

    programs: frozenset[str] = frozenset()

    def fill(self, values: Iterable[Any]) -> bool:
        """Whether a column holds names of threads or programs, and nothing else."""
        given = [v for v in values if v is not None and v != "other"]
        return bool(given) and all(isinstance(v, str) and self.has(v) for v in given)

    def has(self, name: str) -> bool:
        return name in self.programs or re.sub(r"\[\d+\]$", "", name) in self.programs


NOBODY = Subjects()


@dataclass
class Drawing:
    """What a kind of picture is drawn from."""

    analysis: Analysis
    records: list[dict[str, Any]]
    parts: dict[str, str]
    palette: Palette
    theme: Theme
    subjects: Subjects = NOBODY
    live: bool = False
    # Its x axis shows from the least value to the greatest; that of others, 0 as well.
    spans: bool = False

    def column(self, part: str) -> str:
        return self.parts[part]

    def title(self, part: str) -> str:
        """The first clause of the column's documentation."""
        column = self.analysis.columns.get(self.parts[part])
        text = column.doc if column and column.doc else self.parts[part]
        for end in (";", ". ", ":"):
            text = text.split(end)[0]
        return text

    def unit(self, part: str) -> str:
        column = self.analysis.columns.get(self.parts[part])
        return column.unit if column else ""

    def values(self, part: str) -> list[Any]:
        """The different values of a column, in the order of the rows."""
        return list(dict.fromkeys(r[self.parts[part]] for r in self.records))

    def is_log(self) -> bool:
        return self.parts.get("scale") == "log"

    def numbers(self, part: str) -> list[float]:
        return [float(r[self.parts[part]] or 0) for r in self.records]


def axis_of(drawing: Drawing, part: str, **more: Any) -> Spec:
    """Ticks and labels in the column's unit."""
    unit = drawing.unit(part)
    if unit in ("ns", "s"):
        ns = "datum.value" if unit == "ns" else "datum.value * 1e9"
        more["labelExpr"] = durations.vega(ns)
        if drawing.live and drawing.is_log():
            more["labelExpr"] = f"{LOG_LABEL} ? {more['labelExpr']} : ''"
            more["labelOverlap"] = False
        elif drawing.live:
            more["tickCount"] = 7
        elif not drawing.is_log() and unit == "ns":
            more.setdefault("values", round_ticks(max(drawing.numbers(part), default=0)))
    elif unit == "share":
        more["format"] = ".3~%"
    elif unit == "count":
        more["labelExpr"] = (
            "datum.value >= 1e6 ? format(datum.value / 1e6, ',') + ' M' : format(datum.value, ',')"
        )
        if not (part == "x" and drawing.is_log()):
            more.setdefault("tickMinStep", 1)
    if unit != "ns":
        more.setdefault("tickCount", 7)
    if part == "x" and not drawing.live and (drawing.is_log() or drawing.spans):
        low, high = domain_of(drawing)
        more["values"] = (
            log_ticks(low, high)
            if drawing.is_log()
            else linear_ticks(low, high, whole=unit == "count")
        )
        more["labelOverlap"] = False
    return {"title": drawing.title(part), **more}


def lines_of(title: str, pixels: int) -> list[str]:
    """Of a title that has no more room than this."""
    return textwrap.wrap(title, max(pixels // LETTER_WIDTH, 8))


def domain_of(drawing: Drawing) -> tuple[float, float]:
    """Of the x axis of what has no need to begin at 0."""
    numbers = drawing.numbers("x") + (drawing.numbers("x2") if "x2" in drawing.parts else [])
    if drawing.is_log():
        return log_domain(numbers)
    low, high = apart(min(numbers), max(numbers))
    return (
        (low, low + TICKS_MIN - 1)
        if drawing.unit("x") == "count" and high - low < TICKS_MIN - 1
        else (low, high)
    )


def label(value: float, unit: str) -> str:
    """A round number on an axis needs no more digits than it has: 1.00 ms is 1 ms."""
    number, _, rest = show(value, unit).partition(" ")
    shorter = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{shorter} {rest}".strip()


def linear_ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Round numbers from `low` to `high`, six or a few more, or less."""
    power = 10.0 ** math.ceil(math.log10(high - low))
    found: list[float] = []
    for step in (power * m for m in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)):
        if whole and step < 1:
            break
        found = [
            step * k
            for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        ]
        if len(found) > TICKS_MIN:
            break
    return found


def log_domain(numbers: list[float]) -> tuple[float, float]:
    """From the least number above 0 to the greatest; wider, if that is hardly more than a point."""
    positive = [n for n in numbers if n > 0]
    low, high = min(positive, default=1.0), max(positive, default=10.0)
    return (low, high) if high > 2 * low else (low / 2, high * 2)


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers of a logarithmic axis, and no more kinds of them than needed."""
    for steps in LOG_STEPS:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        found = [m * 10.0**k for k in powers for m in steps if low <= m * 10.0**k <= high]
        if len(found) >= TICKS_MIN:
            return found
    return linear_ticks(low, high)


def round_ticks(top: float) -> list[float]:
    """About six round numbers from 0 to `top`."""
    if top <= 0:
        return [0.0]
    rough = top / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    return [step * k for k in range(int(top / step) + 1)]


def log_or_linear(drawing: Drawing) -> Spec:
    domain = list(domain_of(drawing))
    if drawing.is_log():
        return {"type": "log", "nice": False, "domain": domain}
    return {"nice": False, "zero": False, "domain": domain}


def colour_of(drawing: Drawing, part: str = "colour") -> Spec:
    """The palette's colours. Numbers are in their order, names in that of earlier pictures; `other`
    comes last.
    """
    # In a scale, 0 and "0" are different values.
    for record in drawing.records:
        record[drawing.column(part)] = str(record[drawing.column(part)])
    names, title = names_of(drawing, part), drawing.title(part)
    if len(names) > len(COLOURS):
        scale = {"domain": names, "scheme": "turbo"}
    else:
        scale = {"domain": names, "range": [drawing.palette.colour(title, n) for n in names]}
    legend = {"title": lines_of(title, LEGEND_WIDTH), "columns": 1 + (len(names) - 1) // 16}
    return name(drawing.column(part), scale=scale, sort=names, legend=legend)


def names_of(drawing: Drawing, part: str) -> list[str]:
    names, known = drawing.values(part), list(drawing.palette.known.get(drawing.title(part), ()))
    names.sort(key=lambda n: (n in REST, known.index(n) if n in known else len(known)))
    numbers = {n: number_of(n) for n in names}
    return names if None in numbers.values() else sorted(names, key=lambda n: numbers[n] or 0)


def number_of(name: str) -> int | None:
    """Of 3, of `8 and more`; nothing is less than 0."""
    found = re.fullmatch(r"(\d+)( and more)?", name)
    return -1 if name in NOTHING else int(found[1]) if found else None


def tooltip(drawing: Drawing) -> list[Spec]:
    """All columns of the picture; durations as text, since tooltips have no units."""
    found = []
    for told in [
        n for record in drawing.records[:1] for n in record if not n.startswith("klogger_")
    ]:
        column = drawing.analysis.columns.get(told)
        unit = column.unit if column else ""
        if unit in ("ns", "s"):
            factor = 1 if unit == "ns" else 1e9
            shown = f"{told} "
            for record in drawing.records:
                record[shown] = durations.duration(float(record[told] or 0) * factor)
            found.append(name(shown, title=told))
        elif unit == "share":
            found.append(number(told, title=told, format=".1%"))
        elif unit == "count":
            found.append(number(told, title=told, format=","))
        else:
            found.append(name(told, title=told))
    return found
