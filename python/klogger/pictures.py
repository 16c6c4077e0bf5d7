# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kinds of pictures. Each is drawn here once, from whatever columns an analysis names; see
docs/analyses.md.

A picture is a Vega-Lite specification, made with Altair. Its colours for text and lines come from a
`Theme`, so that the same picture fits a page that may be light or dark, and a PNG.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import altair as alt

from klogger.analysis import ON_PAGES
from klogger.drawing import (
    COLOURS,
    DATA,
    NOBODY,
    TICKS_MIN,
    Drawing,
    Palette,
    Subjects,
    Theme,
    axis_of,
    colour_of,
    lines_of,
    log_domain,
    log_or_linear,
    log_ticks,
    names_of,
    round_ticks,
    tooltip,
)  # fmt: skip
from klogger.ends import ends
from klogger.executor import Result
from klogger.units import printable, show

WIDTH = 720
# Pixels of a name beside its row.
LABEL_LIMIT = 260
# A field of a matrix is not wider than this.
FIELD_WIDTH = 90
# With more columns than this, a number has no room in its field.
FIELDS_LABELLED = 18
# Pixels of a row that has room for the ends of its scale.
SCALED = 50
# Pictures with a scale that the reader can move.
ZOOMED = ("cdf", "histogram", "timeline")


def draw(
    result: Result,
    palette: Palette,
    theme: Theme,
    width: int | str = WIDTH,
    subjects: Subjects | None = None,
    *,
    checked: bool = True,
) -> dict[str, Any] | None:
    """The specification of an answer's picture; None if it has none, or if a page draws it itself.

    With `subjects` it is for a page: the reader can zoom, and threads or programs can be selected.
    `checked`: whether Altair compares it with its schema, which takes half of the time.
    """
    picture = result.analysis.picture
    if picture is None or result.status != "answer" or not result.points.rows:
        return None
    if picture.kind in ON_PAGES:
        return None
    records = [
        {k: printable(v) if isinstance(v, str) else v for k, v in r.items()}
        for r in result.points.records()
    ]
    live = subjects is not None
    drawing = Drawing(
        result.analysis, records, dict(picture.parts), palette, theme, subjects or NOBODY, live
    )
    drawing.spans = picture.kind in ("cdf", "histogram")
    chart = PICTURES[picture.kind](drawing)
    if not drawing.records:
        # Nothing is left: a logarithmic axis has no 0.
        return None
    spec: dict[str, Any] = configure(chart, theme).to_dict(validate=checked)
    spec["datasets"] = {DATA.name: drawing.records}
    if picture.kind == "matrix" and (narrow := FIELD_WIDTH * len(drawing.values("x"))) < WIDTH:
        width = narrow
    if "hconcat" not in spec:
        spec["width"] = width
    if live:
        enliven(spec, drawing, picture.kind)
    return spec


def enliven(spec: dict[str, Any], d: Drawing, kind: str) -> None:
    """Zoom, and a signal `klogger_picked`: all marks but those of the thread or program of that
    name are faint.
    """
    layers = layers_of(spec)
    if kind in ZOOMED:
        held = "[event.ctrlKey || event.metaKey]"
        for number, panel in enumerate(layers if "hconcat" in spec else [spec]):
            panel.setdefault("params", []).append({
                "name": f"klogger_zoom{number or ''}", "bind": "scales", "select": {
                "type": "interval", "encodings": ["x"], "zoom": f"wheel!{held}"}})  # fmt: skip
        for layer in layers:
            layer["mark"]["clip"] = True
    params: list[dict[str, Any]] = spec.setdefault("params", [])
    named = [
        d.parts[p]
        for p in ("colour", "row", "y", "x")
        if p in d.parts and d.subjects.fill(d.values(p))
    ]
    params.append({"name": "klogger_picked", "value": None})
    spec["usermeta"] = {"names": named}
    if named:
        tests = [
            "klogger_picked === null",
            *(f"datum[{json.dumps(n)}] === klogger_picked" for n in named),
        ]
        for layer in layers:
            layer["encoding"]["opacity"] = {
                "condition": {"test": " || ".join(tests), "value": 1},
                "value": 0.13,
            }


def layers_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """All parts with marks of their own."""
    inner = [one for key in ("layer", "hconcat", "vconcat") for one in spec.get(key, [])]
    return [layer for one in inner for layer in layers_of(one)] if inner else [spec]


def configure(chart: Any, theme: Theme) -> Any:
    font = "system-ui, 'DejaVu Sans', sans-serif"
    return (
        chart.configure(background=theme.background or "transparent", font=font, padding=8)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=theme.text, titleColor=theme.text, gridColor=theme.grid,
            domainColor=theme.grid, tickColor=theme.grid, labelFontSize=12, titleFontSize=13,
            titleFontWeight="normal", labelLimit=220, titlePadding=10,
        )
        .configure_legend(
            labelColor=theme.text, titleColor=theme.text, labelFontSize=12, titleFontSize=12,
            titleFontWeight="normal", labelLimit=200, symbolSize=120, symbolStrokeWidth=3,
        )
        .configure_header(labelColor=theme.text, titleColor=theme.text, labelFontSize=12)
    )  # fmt: skip


def band_height(count: int, *, at_least: int = 120) -> int:
    return max(at_least, 24 * count + 20)


def cdf(d: Drawing) -> Any:
    """Steps that rise to 1: which part of the things is not longer than x."""
    if d.parts.get("zoom") == "ends":
        return ends(d)
    d.records = [r for r in d.records if not d.is_log() or (r[d.column("x")] or 0) > 0]
    encoding: dict[str, Any] = {
        "x": alt.X(f"{d.column('x')}:Q", axis=axis_of(d, "x"), scale=log_or_linear(d)),
        "y": alt.Y(
            f"{d.column('y')}:Q", axis=axis_of(d, "y", tickCount=5), scale=alt.Scale(domain=[0, 1])
        ),
    }
    if "colour" in d.parts:
        encoding["color"] = colour_of(d)
        encoding["order"] = alt.Order(f"{d.column('y')}:Q")
    line = alt.Chart(DATA, height=360).mark_line(
        interpolate="step-after", strokeWidth=2.2, clip=True
    )
    return line.encode(**encoding, tooltip=tooltip(d))


def axis_of_names(d: Drawing, count: int) -> alt.Axis:
    """Of rows. A long title would make the picture higher than its rows need."""
    title = lines_of(d.title("y"), band_height(count) + 30)
    # Else the title stands on names of more than 200 pixels.
    return alt.Axis(title=title, labelLimit=LABEL_LIMIT, maxExtent=LABEL_LIMIT + 20)


def bars(d: Drawing) -> Any:
    """A horizontal bar for each y, in the order of the rows."""
    names = d.values("y")
    scale, axis = (
        alt.Scale(nice=False, domainMax=top_of(d, "x", max(d.numbers("x")))),
        axis_of(d, "x"),
    )
    more: dict[str, Any] = {}
    if d.is_log():
        # Such a scale has no 0 for bars to begin at.
        low, high = log_domain(d.numbers("x"))
        low /= 2
        scale, more = alt.Scale(type="log", nice=False, domain=[low, high]), {"x2": alt.datum(low)}
        if not d.live:
            axis = axis_of(d, "x")
            axis.values = log_ticks(low, high)
    return (
        alt.Chart(DATA, height=band_height(len(names)))
        .mark_bar(color=COLOURS[0])
        .encode(
            **more,
            x=alt.X(f"{d.column('x')}:Q", axis=axis, scale=scale),
            y=alt.Y(f"{d.column('y')}:N", sort=names, axis=axis_of_names(d, len(names))),
            tooltip=tooltip(d),
        )
    )


def top_of(d: Drawing, part: str, top: float) -> float:
    """Where a linear axis from 0 ends. There are no three whole numbers from 0 to 1."""
    return max(top, TICKS_MIN - 1) if d.unit(part) == "count" else top or 1.0


def stacked(d: Drawing) -> Any:
    """A horizontal bar for each y, made of parts by colour. The longest of all begins at the top,
    as the rows do.
    """
    names = d.values("y")
    totals: dict[Any, float] = {}
    for record in d.records:
        totals[record[d.column("y")]] = totals.get(record[d.column("y")], 0) + float(
            record[d.column("x")] or 0
        )
    colour = colour_of(d)
    # As the legend has them.
    order = names_of(d, "colour")
    for record in d.records:
        record["klogger_order"] = order.index(record[d.column("colour")])
    axis = axis_of(d, "x")
    top = top_of(d, "x", max(totals.values()))
    if d.unit("x") == "ns" and not d.live:
        axis = axis_of(d, "x", values=round_ticks(top))
    return (
        alt.Chart(DATA, height=band_height(len(names)))
        .mark_bar()
        .encode(
            x=alt.X(
                f"{d.column('x')}:Q",
                stack="zero",
                axis=axis,
                scale=alt.Scale(nice=False, domainMax=top),
            ),
            y=alt.Y(f"{d.column('y')}:N", sort=names, axis=axis_of_names(d, len(names))),
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
        "x": alt.X(f"{columns[0]}:Q", axis=axis_of(d, "x"), scale=log_or_linear(d)),
        "x2": alt.X2(columns[1]),
        "tooltip": tooltip(d),
    }
    if "colour" not in d.parts:
        y = alt.Y(
            f"{columns[2]}:Q",
            axis=axis_of(d, "y"),
            scale=alt.Scale(domainMax=top_of(d, "y", max(d.numbers("y")))),
        )
        return base.mark_rect(color=COLOURS[0], stroke=None).encode(
            **encoding, y=y, y2=alt.datum(0)
        )
    stack_by(d, columns[0], columns[2])
    axis = axis_of(d, "y")
    top = top_of(d, "y", max(r["klogger_high"] for r in d.records))
    encoding["y"] = alt.Y(
        "klogger_low:Q", axis=axis, title=d.title("y"), scale=alt.Scale(domainMax=top)
    )
    return base.mark_rect(stroke=None).encode(
        **encoding, y2=alt.Y2("klogger_high"), color=colour_of(d)
    )


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
    rows = in_order(d, "row")
    low_rows = d.parts.get("rows") == "low"
    size = 24 if low_rows else max(16, min(90, 900 // len(rows)))
    is_scaled = "y2" in d.parts and d.unit("y2") == "share" and size >= SCALED
    edge = 0.14 if is_scaled else 0.07
    for record in d.records:
        bottom = rows.index(record[row]) + 1 - edge
        low = float(record[d.parts["y"]]) if "y" in d.parts else 0.0
        high = float(record[d.parts["y2"]]) if "y2" in d.parts else 1.0
        # The first row is at the top, and what comes first in a row is at its bottom.
        record["klogger_low"] = bottom - (1 - 2 * edge) * low
        record["klogger_high"] = bottom - (1 - 2 * edge) * high
    # Names are data: an expression that was made of them would be evaluated.
    start = "" if low_rows else f"{d.title('row')} "
    labels = alt.param(name="klogger_rows", value=[f"{start}{v}" for v in rows])
    axis = axis_of_rows(len(rows), edge if is_scaled else None, LABEL_LIMIT if low_rows else None)
    end = max(d.numbers("x2"))
    # The last bar ends later than it begins.
    ticks = {"values": round_ticks(end)} if d.unit("x") == "ns" and not d.live else {}
    return (
        alt.Chart(DATA, height=max(90, size * len(rows)))
        .mark_rect(stroke=None)
        .encode(
            x=alt.X(
                f"{d.column('x')}:Q",
                axis=axis_of(d, "x", **ticks),
                scale=alt.Scale(domain=[0, end], nice=False),
            ),
            x2=alt.X2(d.column("x2")),
            y=alt.Y("klogger_low:Q", axis=axis, scale=alt.Scale(domain=[len(rows), 0], nice=False)),
            y2=alt.Y2("klogger_high"),
            color=colour_of(d),
            tooltip=tooltip(d),
        )
        .add_params(labels)
    )


def axis_of_rows(count: int, edge: float | None, limit: int | None) -> alt.Axis:
    """The names of rows (`klogger_rows`). `edge`: the part of a row above what stands for 100 %,
    and below 0 %, if these have labels.
    """
    places, label = [row + 0.5 for row in range(count)], "klogger_rows[floor(datum.value)]"
    if edge is not None:
        places = [row + place for row in range(count) for place in (edge, 0.5, 1 - edge)]
        part = "datum.value - floor(datum.value)"
        label = f"{part} < 0.4 ? '100 %' : {part} > 0.6 ? '0 %' : {label} + '   50 %'"
    return alt.Axis(
        title=None, values=places, labelExpr=label, labelOverlap=False, grid=edge is not None,
        ticks=edge is not None, domain=False, labelLimit=limit or alt.Undefined,
    )  # fmt: skip


def matrix(d: Drawing) -> Any:
    """A field for each pair; its colour and a number say how many. The colours' scale is log if
    they differ by much.
    """
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
            title=d.title("x"), labelAngle=0 if max(len(str(x)) for x in xs) < 5 else -40,
            grid=False)),
        y=alt.Y(f"{d.column('y')}:N", sort=ys, axis=alt.Axis(
            title=d.title("y"), grid=False, labelLimit=LABEL_LIMIT, maxExtent=LABEL_LIMIT + 20
        )),
        tooltip=tooltip(d),
    )  # fmt: skip
    labelled = len(xs) <= FIELDS_LABELLED
    legend = (
        None
        if labelled
        else alt.Legend(title=d.title("size"), gradientLength=110, format=",~g", tickMinStep=1)
    )
    rects = base.mark_rect(cornerRadius=2).encode(
        color=alt.Color(f"{d.column('size')}:Q", scale=scale, legend=legend)
    )
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
