# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kinds of pictures. Each is drawn here once, from whatever columns an analysis names; see docs/analyses.md.

A picture is a Vega-Lite specification, made with Altair. Its colours for text and lines come from a `Theme`, so that
the same picture fits a page that may be light or dark, and a PNG.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import altair as alt

from klogger.analysis import Analysis
from klogger.run import Result
from klogger.units import duration, printable, show

WIDTH = 720
# Okabe and Ito's colours, which colour-blind people can tell apart, then darker and lighter ones of the same hues. All
# can be seen on white and on dark grey.
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c6bb1", "#a6761d", "#66a61e", "#b15928",
    "#17a2b8", "#e7298a",
)  # fmt: skip
OTHER = "#999999"
# A field of a matrix is not wider than this.
FIELD_WIDTH = 90
# With more columns than this, a number has no room in its field.
FIELDS_LABELLED = 18
# The rows join the specification when it is done: Altair would check each of them.
DATA = alt.NamedData("rows")
# Pictures with a scale that the reader can move.
ZOOMED = ("cdf", "histogram", "timeline")
# Which ticks of a logarithmic axis have a label: 1, 10, 100, or 1, 2, 5, 10 if the axis is shorter than two decades.
LOG_LABEL = (
    "indexof(domain('x')[1] / domain('x')[0] > 100 ? [1] : [1, 2, 5],"
    " round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9)))) >= 0"
)
TICKS_NS = tuple(float(10**k) for k in range(0, 13))


@dataclass
class Palette:
    """One colour for each name of a kind (program, CPU, ...), the same in all pictures of a report."""

    known: dict[str, dict[str, str]] = field(default_factory=dict)

    def colour(self, kind: str, name: str) -> str:
        if name == "other":
            return OTHER
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
    """What a kind of picture needs to know."""

    analysis: Analysis
    records: list[dict[str, Any]]
    parts: dict[str, str]
    palette: Palette
    theme: Theme
    subjects: Subjects = NOBODY
    live: bool = False

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


def draw(
    result: Result, palette: Palette, theme: Theme, width: int | str = WIDTH, subjects: Subjects | None = None
) -> dict[str, Any] | None:
    """The specification of an answer's picture, or None if it has none.

    With `subjects` it is for a page: the reader can zoom, and threads or programs can be selected.
    """
    picture = result.analysis.picture
    if picture is None or result.status != "answer" or not result.points.rows:
        return None
    records = [{k: printable(v) if isinstance(v, str) else v for k, v in r.items()} for r in result.points.records()]
    live = subjects is not None
    drawing = Drawing(result.analysis, records, dict(picture.parts), palette, theme, subjects or NOBODY, live)
    chart = PICTURES[picture.kind](drawing)
    if not drawing.records:
        # Nothing is left: a logarithmic axis has no 0.
        return None
    spec: dict[str, Any] = configure(chart, theme).to_dict()
    spec["datasets"] = {DATA.name: drawing.records}
    if picture.kind == "matrix" and (narrow := FIELD_WIDTH * len(drawing.values("x"))) < WIDTH:
        width = narrow
    spec["width"] = width
    if live:
        enliven(spec, drawing, picture.kind)
    return spec


def enliven(spec: dict[str, Any], d: Drawing, kind: str) -> None:
    """Zoom, and a signal `klogger_picked`: all marks but those of the thread or program of that name are faint."""
    params: list[dict[str, Any]] = spec.setdefault("params", [])
    layers = spec.get("layer", [spec])
    if kind in ZOOMED:
        held = "[event.ctrlKey || event.metaKey]"
        params.append({"name": "klogger_zoom", "bind": "scales", "select": {
            "type": "interval", "encodings": ["x"], "zoom": f"wheel!{held}"}})  # fmt: skip
        for layer in layers:
            layer["mark"]["clip"] = True
    named = [d.parts[p] for p in ("colour", "row", "y", "x") if p in d.parts and d.subjects.fill(d.values(p))]
    params.append({"name": "klogger_picked", "value": None})
    spec["usermeta"] = {"names": named}
    if named:
        tests = ["klogger_picked === null", *(f"datum[{json.dumps(n)}] === klogger_picked" for n in named)]
        for layer in layers:
            layer["encoding"]["opacity"] = {"condition": {"test": " || ".join(tests), "value": 1}, "value": 0.13}


def configure(chart: Any, theme: Theme) -> Any:
    font = "system-ui, 'DejaVu Sans', sans-serif"
    return (
        chart.configure(background=theme.background or "transparent", font=font, padding=8)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=theme.text, titleColor=theme.text, gridColor=theme.grid, domainColor=theme.grid,
            tickColor=theme.grid, labelFontSize=12, titleFontSize=13, titleFontWeight="normal", labelLimit=220,
            titlePadding=10,
        )
        .configure_legend(
            labelColor=theme.text, titleColor=theme.text, labelFontSize=12, titleFontSize=12,
            titleFontWeight="normal", labelLimit=200, symbolSize=120, symbolStrokeWidth=3,
        )
        .configure_header(labelColor=theme.text, titleColor=theme.text, labelFontSize=12)
    )  # fmt: skip


def axis_of(drawing: Drawing, part: str, **more: Any) -> alt.Axis:
    """Ticks and labels in the column's unit."""
    unit = drawing.unit(part)
    if unit in ("ns", "s"):
        ns = "datum.value" if unit == "ns" else "datum.value * 1e9"
        more["labelExpr"] = duration_expression(ns)
        if drawing.live and drawing.is_log():
            more["labelExpr"] = f"{LOG_LABEL} ? {more['labelExpr']} : ''"
            more["labelOverlap"] = False
        elif drawing.live:
            more["tickCount"] = 7
        elif drawing.is_log() and unit == "ns":
            more["values"] = decades(drawing.numbers(part))
        elif unit == "ns":
            more["values"] = round_ticks(max(drawing.numbers(part), default=0))
    elif unit == "share":
        more["format"] = ".0%"
    elif unit == "count":
        more["labelExpr"] = "datum.value >= 1e6 ? format(datum.value / 1e6, ',') + ' M' : format(datum.value, ',')"
        more.setdefault("tickMinStep", 1)
        more.setdefault("tickCount", 7)
    return alt.Axis(title=drawing.title(part), **more)


def duration_expression(ns: str) -> str:
    """A Vega expression for a number of ns as `10 µs`."""
    steps = "".join(
        f"({ns}) < {limit} ? format(({ns}) / {factor}, '.3~r') + ' {unit}' : "
        for limit, factor, unit in (("999.5", "1", "ns"), ("999.5e3", "1e3", "µs"), ("999.5e6", "1e6", "ms"))
    )
    return f"({ns}) == 0 ? '0' : {steps}format(({ns}) / 1e9, ',.3~r') + ' s'"


def decades(numbers: list[float]) -> list[float]:
    positive = [n for n in numbers if n > 0]
    low, high = min(positive, default=1), max(positive, default=1)
    return [t for t in TICKS_NS if low / 10 < t < high * 10]


def round_ticks(top: float) -> list[float]:
    """About six round numbers from 0 to `top`."""
    if top <= 0:
        return [0.0]
    rough = top / 6
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
    return [step * k for k in range(int(top / step) + 1)]


def log_or_linear(drawing: Drawing, part: str) -> alt.Scale:
    if not drawing.is_log():
        return alt.Scale(nice=False)
    positive = [n for n in drawing.numbers(part) if n > 0]
    return alt.Scale(type="log", nice=False, domain=[min(positive, default=1), max(max(positive, default=1), 10)])


def colour_of(drawing: Drawing, part: str = "colour") -> alt.Color:
    """The palette's colours. Numbers are in their order, names in that of earlier pictures; `other` comes last."""
    # A scale tells 0 from "0".
    for record in drawing.records:
        record[drawing.column(part)] = str(record[drawing.column(part)])
    names, title = drawing.values(part), drawing.title(part)
    known = list(drawing.palette.known.get(title, ()))
    names.sort(key=lambda n: (n == "other", known.index(n) if n in known else len(known)))
    if all(n.isdigit() for n in names):
        names.sort(key=int)
    if len(names) > len(COLOURS):
        scale = alt.Scale(domain=names, scheme="turbo")
    else:
        scale = alt.Scale(domain=names, range=[drawing.palette.colour(title, n) for n in names])
    legend = alt.Legend(title=title, columns=1 + (len(names) - 1) // 16)
    return alt.Color(f"{drawing.column(part)}:N", scale=scale, sort=names, legend=legend)


def tooltip(drawing: Drawing) -> list[alt.Tooltip]:
    """All columns of the picture; durations as text, since a tooltip knows no units."""
    found = []
    for name in [n for record in drawing.records[:1] for n in record if not n.startswith("klogger_")]:
        column = drawing.analysis.columns.get(name)
        unit = column.unit if column else ""
        if unit in ("ns", "s"):
            factor = 1 if unit == "ns" else 1e9
            shown = f"{name} "
            for record in drawing.records:
                record[shown] = duration(float(record[name] or 0) * factor)
            found.append(alt.Tooltip(f"{shown}:N", title=name))
        elif unit == "share":
            found.append(alt.Tooltip(f"{name}:Q", title=name, format=".1%"))
        elif unit == "count":
            found.append(alt.Tooltip(f"{name}:Q", title=name, format=","))
        else:
            found.append(alt.Tooltip(f"{name}:N", title=name))
    return found


def band_height(count: int, *, at_least: int = 120) -> int:
    return max(at_least, 24 * count + 20)


def cdf(d: Drawing) -> Any:
    """Steps that rise to 1: which part of the things is not longer than x."""
    d.records = [r for r in d.records if not d.is_log() or (r[d.column("x")] or 0) > 0]
    encoding: dict[str, Any] = {
        "x": alt.X(f"{d.column('x')}:Q", axis=axis_of(d, "x"), scale=log_or_linear(d, "x")),
        "y": alt.Y(f"{d.column('y')}:Q", axis=axis_of(d, "y", tickCount=5), scale=alt.Scale(domain=[0, 1])),
    }
    if "colour" in d.parts:
        encoding["color"] = colour_of(d)
        encoding["order"] = alt.Order(f"{d.column('y')}:Q")
    line = alt.Chart(DATA, height=360).mark_line(interpolate="step-after", strokeWidth=2.2, clip=True)
    return line.encode(**encoding, tooltip=tooltip(d))


def bars(d: Drawing) -> Any:
    """A horizontal bar for each y, in the order of the rows."""
    names = d.values("y")
    scale = log_or_linear(d, "x")
    more: dict[str, Any] = {}
    if d.is_log():
        # Such a scale has no 0 for bars to begin at.
        low = min((n for n in d.numbers("x") if n > 0), default=1) / 2
        scale, more = alt.Scale(type="log", nice=False, domainMin=low), {"x2": alt.datum(low)}
    return (
        alt.Chart(DATA, height=band_height(len(names)))
        .mark_bar(color=COLOURS[0])
        .encode(
            **more,
            x=alt.X(f"{d.column('x')}:Q", axis=axis_of(d, "x"), scale=scale),
            y=alt.Y(f"{d.column('y')}:N", sort=names, axis=alt.Axis(title=d.title("y"), labelLimit=200)),
            tooltip=tooltip(d),
        )
    )


def stacked(d: Drawing) -> Any:
    """A horizontal bar for each y, made of parts by colour. The longest of all begins at the top, as the rows do."""
    names = d.values("y")
    totals: dict[Any, float] = {}
    for record in d.records:
        totals[record[d.column("y")]] = totals.get(record[d.column("y")], 0) + float(record[d.column("x")] or 0)
    colour = colour_of(d)
    order = sorted(d.values("colour"), key=lambda n: (n == "other", n))
    for record in d.records:
        record["klogger_order"] = order.index(record[d.column("colour")])
    axis = axis_of(d, "x")
    if d.unit("x") == "ns":
        axis = axis_of(d, "x", values=round_ticks(max(totals.values())))
    return (
        alt.Chart(DATA, height=band_height(len(names)))
        .mark_bar()
        .encode(
            x=alt.X(f"{d.column('x')}:Q", stack="zero", axis=axis, scale=alt.Scale(nice=False)),
            y=alt.Y(f"{d.column('y')}:N", sort=names, axis=alt.Axis(title=None, labelLimit=200)),
            color=colour,
            order=alt.Order("klogger_order:Q"),
            tooltip=tooltip(d),
        )
    )


def histogram(d: Drawing) -> Any:
    """Bins that the analysis has made, from x to x2; with a colour they stand on each other."""
    columns = [d.column("x"), d.column("x2"), d.column("y")]
    base = alt.Chart(DATA, height=300)
    encoding: dict[str, Any] = {
        "x": alt.X(f"{columns[0]}:Q", axis=axis_of(d, "x"), scale=log_or_linear(d, "x")),
        "x2": alt.X2(columns[1]),
        "tooltip": tooltip(d),
    }
    if "colour" not in d.parts:
        y = alt.Y(f"{columns[2]}:Q", axis=axis_of(d, "y"))
        return base.mark_rect(color=COLOURS[0], stroke=None).encode(**encoding, y=y, y2=alt.datum(0))
    stack_by(d, columns[0], columns[2])
    axis = axis_of(d, "y")
    encoding["y"] = alt.Y("klogger_low:Q", axis=axis, title=d.title("y"))
    return base.mark_rect(stroke=None).encode(**encoding, y2=alt.Y2("klogger_high"), color=colour_of(d))


def stack_by(d: Drawing, x: str, y: str) -> None:
    """Adds from where to where each bar reaches; Vega-Lite stacks no bars that have an x2."""
    top: dict[Any, float] = {}
    order = {str(name): i for i, name in enumerate(d.values("colour"))}
    for record in sorted(d.records, key=lambda r: order[str(r[d.column("colour")])]):
        low = top.get(record[x], 0.0)
        record["klogger_low"] = low
        top[record[x]] = record["klogger_high"] = low + float(record[y] or 0)


def timeline(d: Drawing) -> Any:
    """Bars from x to x2 in one row for each value; y and y2 (0 to 1) are places within the row."""
    row = d.column("row")
    rows = sorted(d.values("row"), key=lambda v: (isinstance(v, str), v))
    height = 0.86
    for record in d.records:
        base = rows.index(record[row])
        low = float(record[d.parts["y"]]) if "y" in d.parts else 0.0
        high = float(record[d.parts["y2"]]) if "y2" in d.parts else 1.0
        # The first row is at the top, and what comes first in a row is at its bottom.
        record["klogger_low"] = base + 1 - height * low - (1 - height) / 2
        record["klogger_high"] = base + 1 - height * high - (1 - height) / 2
    label = " : ".join(f"datum.value == {i + 0.5} ? '{d.title('row')} {v}'" for i, v in enumerate(rows))
    places = [i + 0.5 for i in range(len(rows))]
    axis = alt.Axis(title=None, values=places, labelExpr=f"{label} : ''", grid=False, ticks=False, domain=False)
    size = max(16, min(90, 900 // len(rows)))
    end = max(d.numbers("x2"))
    return (
        alt.Chart(DATA, height=max(90, size * len(rows)))
        .mark_rect(stroke=None)
        .encode(
            x=alt.X(f"{d.column('x')}:Q", axis=axis_of(d, "x"), scale=alt.Scale(domain=[0, end], nice=False)),
            x2=alt.X2(d.column("x2")),
            y=alt.Y("klogger_low:Q", axis=axis, scale=alt.Scale(domain=[len(rows), 0], nice=False)),
            y2=alt.Y2("klogger_high"),
            color=colour_of(d),
            tooltip=tooltip(d),
        )
    )


def matrix(d: Drawing) -> Any:
    """A field for each pair; its colour and a number say how many. The colours' scale is log if they differ by much."""
    xs, ys = (in_order(d, part) for part in ("x", "y"))
    numbers = d.numbers("size")
    column = d.analysis.columns.get(d.column("size"))
    is_share = column is not None and column.unit == "share"
    top, low = max(numbers), min([n for n in numbers if n > 0], default=1)
    wide = top / low > 30
    colours = [d.theme.heat[1]] * 2 if top == low else list(d.theme.heat)
    scale = alt.Scale(range=colours, type="log" if wide else "linear", domain=[low, top])
    d.records = [r for r in d.records if (r[d.column("size")] or 0) > 0]
    for record in d.records:
        number = float(record[d.column("size")])
        record["klogger_label"] = show(number, "share") if is_share else short(number)
        record["klogger_dark"] = number > (low * top) ** 0.5 if wide else number >= (low + top) / 2
    height = 44 if len(ys) <= 8 else 30 if len(ys) <= FIELDS_LABELLED else 14
    base = alt.Chart(DATA, height=height * len(ys)).encode(
        x=alt.X(f"{d.column('x')}:N", sort=xs, axis=alt.Axis(
            title=d.title("x"), labelAngle=0 if max(len(str(x)) for x in xs) < 5 else -40, grid=False)),
        y=alt.Y(f"{d.column('y')}:N", sort=ys, axis=alt.Axis(title=d.title("y"), grid=False)),
        tooltip=tooltip(d),
    )  # fmt: skip
    labelled = len(xs) <= FIELDS_LABELLED
    legend = None if labelled else alt.Legend(title=d.title("size"), gradientLength=110, format=",~g", tickMinStep=1)
    rects = base.mark_rect(cornerRadius=2).encode(color=alt.Color(f"{d.column('size')}:Q", scale=scale, legend=legend))
    if not labelled:
        return rects
    dark = alt.condition("datum.klogger_dark", alt.value("#ffffff"), alt.value("#222222"))
    return rects + base.mark_text(fontSize=11).encode(text="klogger_label:N", color=dark)


def in_order(d: Drawing, part: str) -> list[Any]:
    """Numbers by size; names in the order of the rows, but `other` last."""
    values = d.values(part)
    if all(isinstance(v, int) for v in values):
        return sorted(values)
    return sorted(values, key=lambda v: v == "other")


def short(number: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            scaled = number / {"G": 1e9, "M": 1e6, "k": 1e3}[unit]
            return f"{scaled:.1f}{unit}" if scaled < 99.95 else f"{scaled:.0f}{unit}"
    return f"{number:.0f}" if number == round(number) else f"{number:.2g}"


PICTURES: dict[str, Callable[[Drawing], Any]] = {
    "cdf": cdf,
    "bars": bars,
    "stacked": stacked,
    "histogram": histogram,
    "timeline": timeline,
    "matrix": matrix,
}
