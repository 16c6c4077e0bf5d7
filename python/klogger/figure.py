# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A figure in characters, for the terminal. What does not fit into them (timelines, matrices) is
for the page.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from klogger.analysis import CHOICES
from klogger.curves import END, span
from klogger.executor import Result
from klogger.units import BLOCKS, NOTHING, bar, printable, show

COLUMNS = 100
# Of what is drawn, where there is room for it.
WIDTH = 70
HEIGHT = 13
# Lines of a histogram: an even number, for a label in the middle.
BARS = 8
LABEL = 16
LETTERS = "abcdefghijklmnopqrstuvwxyz"
FILLS = "█▒▓░▚▞▪▫"
# Of names for nothing.
PALE = "·"


@dataclass(frozen=True)
class Axis:
    """From a value to a place from 0 to 1, and back."""

    low: float
    high: float
    unit: str
    log: bool

    def place(self, value: float) -> float:
        low, high = self.inner(self.low), self.inner(self.high)
        return (self.inner(value) - low) / (high - low) if high > low else 0.0

    def value(self, place: float) -> float:
        low, high = self.inner(self.low), self.inner(self.high)
        inner = low + place * (high - low)
        return 10**inner if self.log else inner

    def inner(self, value: float) -> float:
        return math.log10(value) if self.log else value


@dataclass(frozen=True)
class Room:
    """`columns` on the terminal; `width` of a figure beside its scale, and of bars beside names and
    numbers.
    """

    columns: int

    @property
    def width(self) -> int:
        return max(min(WIDTH, self.columns - 12), 20)

    @property
    def bars(self) -> int:
        return max(min(WIDTH - LABEL, self.columns - LABEL - 15), 10)


def lines(result: Result, columns: int = COLUMNS) -> list[str]:
    """The figure of a result in so many columns, or nothing."""
    picture = result.analysis.picture
    if picture is None or result.status != "answer" or picture.kind not in FIGURES:
        return []
    records = [r for r in result.points.records() if complete(r, picture.parts)]
    room = Room(columns)
    drawn = FIGURES[picture.kind](result, dict(picture.parts), records, room) if records else []
    return [line[:columns].rstrip() for line in drawn]


def complete(record: dict[str, Any], parts: Mapping[str, str]) -> bool:
    """Whether it has all that is drawn; on a logarithmic axis, nothing stands at 0."""
    x = record.get(parts["x"])
    columns = [column for part, column in parts.items() if part not in CHOICES]
    drawn = is_number(x) and all(record.get(column) is not None for column in columns)
    return drawn and (parts.get("scale") != "log" or float(x or 0) > 0)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def unit(result: Result, column: str) -> str:
    known = result.analysis.columns.get(column)
    return known.unit if known else ""


def title(result: Result, column: str) -> str:
    known = result.analysis.columns.get(column)
    text = known.doc if known and known.doc else column.replace("_", " ")
    for end in (";", ". ", ":"):
        text = text.split(end, maxsplit=1)[0]
    return printable(text)


def axis_of(result: Result, parts: dict[str, str], part: str, values: Sequence[float]) -> Axis:
    """A logarithmic axis begins at the least value, another one at 0."""
    log = part == "x" and parts.get("scale") == "log"
    low, high = min(values), max(values)
    return Axis(low if log else min(low, 0.0), high, unit(result, parts[part]), log)


def cdf(
    result: Result, parts: dict[str, str], records: list[dict[str, Any]], room: Room
) -> list[str]:
    """Steps, each curve with a letter of its own."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        name = str(record[parts["colour"]]) if "colour" in parts else ""
        curves.setdefault(name, []).append(
            (float(record[parts["x"]]), float(record[parts["y"]] or 0))
        )
    x, name = axis_of(result, parts, "x", [p for points in curves.values() for p, _ in points]), ""
    if parts.get("zoom") == "ends":
        x = Axis(*span(curves.values(), END, 1 - END), x.unit, log=False)
        name = "; without the shortest and the longest tenth, which a picture shows (--png, --html)"
    grid = [[" "] * room.width for _ in range(HEIGHT)]
    for letter, points in zip(LETTERS, curves.values(), strict=False):
        draw_steps(grid, letter, sorted(points), x)
    rows = [f"{height_label(i):>6} │{''.join(row)}" for i, row in enumerate(grid)]
    names = [
        f"{letter} {printable(name)}" for letter, name in zip(LETTERS, curves, strict=False) if name
    ]
    if len(curves) > len(LETTERS):
        names.append(f"and {len(curves) - len(LETTERS)} more")
    return [*rows, *below(x, title(result, parts["x"]) + name, room), *legend(names, room)]


def height_label(row: int) -> str:
    """At every third row of thirteen."""
    return "" if row % 3 else f"{1 - row / (HEIGHT - 1):.0%}"


def draw_steps(
    grid: list[list[str]], letter: str, points: list[tuple[float, float]], x: Axis
) -> None:
    """At each column, the height that the curve has reached there. Where curves meet, the first is
    seen.
    """
    at, height = 0, None
    width = len(grid[0])
    for column in range(width):
        edge = (column + 1) / width
        while at < len(points) and x.place(points[at][0]) <= edge:
            height = points[at][1]
            at += 1
        if height is not None:
            row = round((1 - min(max(height, 0.0), 1.0)) * (HEIGHT - 1))
            if grid[row][column] == " ":
                grid[row][column] = letter
        if at == len(points):
            break


def below(x: Axis, name: str, room: Room) -> list[str]:
    """The axis with its ticks, and what it is."""
    width = room.width
    ticks = [" "] * (width + 12)
    for k in range(5):
        label = show(x.value(k / 4), x.unit)
        start = min(
            max(round(k / 4 * (width - 1)) - len(label) // 2 + 8, 0), len(ticks) - len(label)
        )
        ticks[start : start + len(label)] = label
    indent = " " * 8
    words = textwrap.wrap(name, room.columns, initial_indent=indent, subsequent_indent=indent)
    return [" " * 7 + "└" + "─" * width, "".join(ticks).rstrip(), *words]


def legend(names: Sequence[str], room: Room) -> list[str]:
    found, line = [], ""
    for name in names:
        if line and len(line) + len(name) > room.width:
            found.append(line)
            line = ""
        line += name + "   "
    return [" " * 8 + text.rstrip() for text in [*found, line] if text.strip()]


def bars(
    result: Result, parts: dict[str, str], records: list[dict[str, Any]], room: Room
) -> list[str]:
    column = parts["x"]
    known = result.analysis.columns.get(column)
    if known is not None and known.bar and result.points is result.table:
        # The table has it.
        return []
    top = max(float(r[column]) for r in records)
    found = []
    for record in records[:24]:
        value = show(record[column], unit(result, column))
        drawn = bar(float(record[column]), top, room.bars - 12)
        found.append(f"  {name_of(record[parts['y']])} {value:>10} {drawn}".rstrip())
    return [*found, f"  {'':{LABEL}} {'':>10} {title(result, column)}"]


def name_of(value: Any) -> str:
    text = printable(str(value))
    return f"{text if len(text) <= LABEL else text[: LABEL - 1] + '…':<{LABEL}}"


def stacked(
    result: Result, parts: dict[str, str], records: list[dict[str, Any]], room: Room
) -> list[str]:
    """Bars made of parts; each kind of part has a pattern of its own."""
    kinds = list(dict.fromkeys(str(r[parts["colour"]]) for r in records))
    rows: dict[str, dict[str, float]] = {}
    for record in records:
        row = rows.setdefault(str(record[parts["y"]]), {})
        row[str(record[parts["colour"]])] = row.get(str(record[parts["colour"]]), 0.0) + float(
            record[parts["x"]]
        )
    top = max(sum(row.values()) for row in rows.values())
    fills, found = fills_of(kinds), []
    for name, row in list(rows.items())[:24]:
        total = show(sum(row.values()), unit(result, parts["x"]))
        in_order = {kind: row[kind] for kind in kinds if kind in row}
        drawn = stack(in_order, fills, top, room.bars)
        found.append(f"  {name_of(name)} {total:>10} {drawn}".rstrip())
    names = [f"{fill} {printable(kind)}" for kind, fill in fills.items()]
    return [*found, f"  {'':{LABEL}} {'':>10} {title(result, parts['x'])}", *legend(names, room)]


def fills_of(kinds: Sequence[str]) -> dict[str, str]:
    """The patterns of the kinds of parts."""
    named = [kind for kind in kinds if kind not in NOTHING]
    found = dict(zip(named, FILLS, strict=False))
    if len(named) > len(FILLS):
        del found[named[len(FILLS) - 1]]
        found["all others"] = FILLS[-1]
    return {kind: PALE for kind in kinds if kind in NOTHING} | found


def stack(row: dict[str, float], fills: Mapping[str, str], top: float, width: int) -> str:
    """Rounded at the ends of parts, so that the bar's length is that of the sum."""
    if top <= 0:
        return ""
    text, so_far = "", 0.0
    for kind, value in row.items():
        so_far += max(value, 0.0)
        fill = fills.get(kind, FILLS[-1])
        text += fill * (round(so_far / top * width) - len(text))
    return text


def histogram(
    result: Result, parts: dict[str, str], records: list[dict[str, Any]], room: Room
) -> list[str]:
    """Columns of blocks. A bin that is wider than a column fills several; narrower ones are summed
    up.
    """
    ends = [float(r[parts[p]]) for r in records for p in ("x", "x2") if is_number(r[parts[p]])]
    x = axis_of(result, parts, "x", ends)
    width = room.width
    heights = [0.0] * width
    whole: dict[tuple[int, int], float] = {}
    for record in records:
        first = min(int(x.place(float(record[parts["x"]])) * width), width - 1)
        last = max(first + 1, min(round(x.place(float(record[parts["x2"]])) * width), width))
        whole[first, last] = whole.get((first, last), 0.0) + float(record[parts["y"]] or 0)
    for (first, last), count in whole.items():
        for column in range(first, last):
            heights[column] += count
    top = max(heights)
    if top <= 0:
        return []
    rows = []
    # A label stands at the line that its value reaches to the top of; 0 is at the axis.
    labels = {BARS: top, BARS // 2: top / 2}
    for level in reversed(range(BARS)):
        cells = "".join(block(h / top * BARS - level) for h in heights)
        label = show(labels[level + 1], unit(result, parts["y"])) if level + 1 in labels else ""
        rows.append(f"{label:>6.6} │{cells}".rstrip())
    axis, *rest = below(
        x, f"{title(result, parts['x'])}; upwards: {title(result, parts['y'])}", room
    )
    return [*rows, f"{show(0, unit(result, parts['y'])):>6.6} {axis.lstrip()}", *rest]


def block(part: float) -> str:
    """A character that is filled from below; something is seen of all that is not 0."""
    return BLOCKS[min(max(math.ceil(part * 8 - 1e-9), 0), 8)]


FIGURES: dict[str, Callable[[Result, dict[str, str], list[dict[str, Any]], Room], list[str]]] = {
    "cdf": cdf,
    "bars": bars,
    "stacked": stacked,
    "histogram": histogram,
}
