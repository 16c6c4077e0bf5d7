# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kinds of pictures. Each is drawn here once, from whatever columns an analysis names; see
docs/analyses.md.

A picture is a Vega-Lite specification. Its colours for text and lines come from a
`Theme`, so that the same picture fits a page that may be light or dark, and a PNG.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from klogger.analysis import ON_PAGES
from klogger.drawing import (
    COLOURS,
    NOBODY,
    TICKS_MIN,
    Drawing,
    Palette,
    Spec,
    Subjects,
    Theme,
    axis_of,
    colour_of,
    lines_of,
    log_domain,
    log_or_linear,
    log_ticks,
    name,
    names_of,
    number,
    round_ticks,
    tooltip,
)  # fmt: skip
from klogger.ends import ends
from klogger.executor import Result
from klogger.units import printable, show

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.4.1.json"
# What the rows are called in a specification.
ROWS = "rows"
WIDTH = 720
# Pixels of a name beside its row.
LABEL_LIMIT = 260
# Of the axis with such names.
WIDE = {"labelLimit": LABEL_LIMIT, "maxExtent": LABEL_LIMIT + 20}
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
) -> dict[str, Any] | None:
    """The specification of an answer's picture; None if it has none, or if a page draws it itself.

    With `subjects` it is for a page: the reader can zoom, and threads or programs can be selected.
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
    spec = PICTURES[picture.kind](drawing)
    if not drawing.records:
        # Nothing is left: a logarithmic axis has no 0.
        return None
    spec |= {"$schema": SCHEMA, "config": configuration(theme), "data": {"name": ROWS}}
    spec["datasets"] = {ROWS: drawing.records}
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


def configuration(theme: Theme) -> Spec:
    texts = {"labelColor": theme.text, "titleColor": theme.text, "labelFontSize": 12}
    return {
        "background": theme.background or "transparent",
        "font": "system-ui, 'DejaVu Sans', sans-serif",
        "padding": 8,
        "view": {"stroke": None, "continuousWidth": 300, "continuousHeight": 300},
        "axis": {
            **texts, "gridColor": theme.grid, "domainColor": theme.grid, "tickColor": theme.grid,
            "titleFontSize": 13, "titleFontWeight": "normal", "labelLimit": 220,
            "titlePadding": 10,
        },
        "legend": {
            **texts, "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 200,
            "symbolSize": 120, "symbolStrokeWidth": 3,
        },
        "header": texts,
    }  # fmt: skip


def band_height(count: int, *, at_least: int = 120) -> int:
    return max(at_least, 24 * count + 20)


def cdf(d: Drawing) -> Spec:
    """Steps that rise to 1: which part of the things is not longer than x."""
    if d.parts.get("zoom") == "ends":
        return ends(d)
    d.records = [r for r in d.records if not d.is_log() or (r[d.column("x")] or 0) > 0]
    encoding: Spec = {
        "x": number(d.column("x"), axis=axis_of(d, "x"), scale=log_or_linear(d)),
        "y": number(d.column("y"), axis=axis_of(d, "y", tickCount=5), scale={"domain": [0, 1]}),
    }
    if "colour" in d.parts:
        encoding["color"] = colour_of(d)
        encoding["order"] = number(d.column("y"))
    return {
        "height": 360,
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2.2, "clip": True},
        "encoding": {**encoding, "tooltip": tooltip(d)},
    }


def axis_of_names(d: Drawing, count: int) -> Spec:
    """Of rows. A long title would make the picture higher than its rows need."""
    title = lines_of(d.title("y"), band_height(count) + 30)
    # Else the title stands on names of more than 200 pixels.
    return {"title": title, **WIDE}


def bars(d: Drawing) -> Spec:
    """A horizontal bar for each y, in the order of the rows."""
    names = d.values("y")
    scale: Spec = {"nice": False, "domainMax": top_of(d, "x", max(d.numbers("x")))}
    axis = axis_of(d, "x")
    more: Spec = {}
    if d.is_log():
        # Such a scale has no 0 for bars to begin at.
        low, high = log_domain(d.numbers("x"))
        low /= 2
        scale, more = {"type": "log", "nice": False, "domain": [low, high]}, {"x2": {"datum": low}}
        if not d.live:
            axis["values"] = log_ticks(low, high)
    return {
        "height": band_height(len(names)),
        "mark": {"type": "bar", "color": COLOURS[0]},
        "encoding": {
            **more,
            "x": number(d.column("x"), axis=axis, scale=scale),
            "y": name(d.column("y"), sort=names, axis=axis_of_names(d, len(names))),
            "tooltip": tooltip(d),
        },
    }


def top_of(d: Drawing, part: str, top: float) -> float:
    """Where a linear axis from 0 ends. There are no three whole numbers from 0 to 1."""
    return max(top, TICKS_MIN - 1) if d.unit(part) == "count" else top or 1.0


def stacked(d: Drawing) -> Spec:
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
    scale = {"nice": False, "domainMax": top}
    return {
        "height": band_height(len(names)),
        "mark": {"type": "bar"},
        "encoding": {
            "x": number(d.column("x"), stack="zero", axis=axis, scale=scale),
            "y": name(d.column("y"), sort=names, axis=axis_of_names(d, len(names))),
            "color": colour,
            "order": number("klogger_order"),
            "tooltip": tooltip(d),
        },
    }


def histogram(d: Drawing) -> Spec:
    """Bins that the analysis has made, from x to x2; with a colour they stand on each other."""
    columns = [d.column("x"), d.column("x2"), d.column("y")]
    mark: Spec = {"type": "rect", "stroke": None}
    encoding: Spec = {
        "x": number(columns[0], axis=axis_of(d, "x"), scale=log_or_linear(d)),
        "x2": {"field": columns[1]},
        "tooltip": tooltip(d),
    }
    if "colour" in d.parts:
        stack_by(d, columns[0], columns[2])
        scale = {"domainMax": top_of(d, "y", max(r["klogger_high"] for r in d.records))}
        axis, title = axis_of(d, "y"), d.title("y")
        encoding["y"] = number("klogger_low", axis=axis, title=title, scale=scale)
        encoding |= {"y2": {"field": "klogger_high"}, "color": colour_of(d)}
    else:
        mark["color"] = COLOURS[0]
        scale = {"domainMax": top_of(d, "y", max(d.numbers("y")))}
        encoding["y"] = number(columns[2], axis=axis_of(d, "y"), scale=scale)
        encoding["y2"] = {"datum": 0}
    return {"height": 300, "mark": mark, "encoding": encoding}


def stack_by(d: Drawing, x: str, y: str) -> None:
    """Adds from where to where each bar reaches; Vega-Lite stacks no bars that have an x2."""
    top: dict[Any, float] = {}
    order = {str(name): i for i, name in enumerate(d.values("colour"))}
    for record in sorted(d.records, key=lambda r: order[str(r[d.column("colour")])]):
        low = top.get(record[x], 0.0)
        record["klogger_low"] = low
        top[record[x]] = record["klogger_high"] = low + float(record[y] or 0)


def timeline(d: Drawing) -> Spec:
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
    labels = {"name": "klogger_rows", "value": [f"{start}{v}" for v in rows]}
    axis = axis_of_rows(len(rows), edge if is_scaled else None, LABEL_LIMIT if low_rows else None)
    end = max(d.numbers("x2"))
    # The last bar ends later than it begins.
    ticks = {"values": round_ticks(end)} if d.unit("x") == "ns" and not d.live else {}
    x_scale, y_scale = ({"domain": to, "nice": False} for to in ([0, end], [len(rows), 0]))
    return {
        "params": [labels],
        "height": max(90, size * len(rows)),
        "mark": {"type": "rect", "stroke": None},
        "encoding": {
            "x": number(d.column("x"), axis=axis_of(d, "x", **ticks), scale=x_scale),
            "x2": {"field": d.column("x2")},
            "y": number("klogger_low", axis=axis, scale=y_scale),
            "y2": {"field": "klogger_high"},
            "color": colour_of(d),
            "tooltip": tooltip(d),
        },
    }


def axis_of_rows(count: int, edge: float | None, limit: int | None) -> Spec:
    """The names of rows (`klogger_rows`). `edge`: the part of a row above what stands for 100 %,
    and below 0 %, if these have labels.
    """
    places, label = [row + 0.5 for row in range(count)], "klogger_rows[floor(datum.value)]"
    if edge is not None:
        places = [row + place for row in range(count) for place in (edge, 0.5, 1 - edge)]
        part = "datum.value - floor(datum.value)"
        label = f"{part} < 0.4 ? '100 %' : {part} > 0.6 ? '0 %' : {label} + '   50 %'"
    scaled = edge is not None
    return {
        "title": None, "values": places, "labelExpr": label, "labelOverlap": False,
        "grid": scaled, "ticks": scaled, "domain": False,
        **({"labelLimit": limit} if limit else {}),
    }  # fmt: skip


def matrix(d: Drawing) -> Spec:
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
    scale = {"range": colours, "type": "log" if wide else "linear", "domain": [low, top]}
    d.records = [r for r in d.records if (r[d.column("size")] or 0) > 0]
    for record in d.records:
        size = float(record[d.column("size")])
        record["klogger_label"] = show(size, "share") if is_share else short(size)
        record["klogger_dark"] = size > (low * top) ** 0.5 if wide else size >= (low + top) / 2
    height = 44 if len(ys) <= 8 else 30 if len(ys) <= FIELDS_LABELLED else 14
    angle = 0 if max(len(str(x)) for x in xs) < 5 else -40
    x_axis = {"title": d.title("x"), "labelAngle": angle, "grid": False}
    y_axis = {"title": d.title("y"), "grid": False, **WIDE}
    places = {
        "x": name(d.column("x"), sort=xs, axis=x_axis),
        "y": name(d.column("y"), sort=ys, axis=y_axis),
        "tooltip": tooltip(d),
    }
    labelled = len(xs) <= FIELDS_LABELLED
    bar = {"title": d.title("size"), "gradientLength": 110, "format": ",~g", "tickMinStep": 1}
    colour = number(d.column("size"), scale=scale, legend=None if labelled else bar)
    fields = {
        "mark": {"type": "rect", "cornerRadius": 2},
        "encoding": {**places, "color": colour},
    }
    if not labelled:
        return {"height": height * len(ys), **fields}
    on_dark = {"condition": {"test": "datum.klogger_dark", "value": "#ffffff"}, "value": "#222222"}
    labels = {
        "mark": {"type": "text", "fontSize": 11},
        "encoding": {**places, "text": name("klogger_label"), "color": on_dark},
    }
    return {"height": height * len(ys), "layer": [fields, labels]}


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


PICTURES: dict[str, Callable[[Drawing], Spec]] = {
    "cdf": cdf,
    "bars": bars,
    "stacked": stacked,
    "histogram": histogram,
    "timeline": timeline,
    "matrix": matrix,
}
