# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Curves from 0 to 1 whose two ends are drawn larger, each with axes of its own, beside the middle.

On one axis, a few long ones make a line of all that is usual, and what they are themselves is a
line below 100 %.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from klogger.curves import END, Curve, span
from klogger.drawing import (
    Drawing,
    Spec,
    axis_of,
    colour_of,
    linear_ticks,
    lines_of,
    log_ticks,
    name,
    names_of,
    number,
    tooltip,
)

# Width and height.
MIDDLE = (340, 400)
SIDE = (240, 142)
# Where a few curves are one line, each is seen beside the next.
STROKES = (4.4, 2.6, 1)
# A number on the x axis has so much room.
LABEL_WIDTH = 55
PERCENT = ".6~%"


def ends(d: Drawing) -> Spec:
    least = least_step(d)
    for record in d.records:
        part = float(record[d.column("y")] or 0)
        record["klogger_head"], record["klogger_tail"] = max(part, least), max(1 - part, least)
    # Both add to the records, so each is made once.
    shared: Spec = {"tooltip": tooltip(d), "order": number(d.column("y"))}
    if "colour" in d.parts:
        shared["color"] = colour_of(d)
        if len(names := names_of(d, "colour")) <= len(STROKES):
            widths = {"domain": names, "range": list(STROKES[: len(names)])}
            shared["strokeWidth"] = name(d.column("colour"), scale=widths, sort=names, legend=None)
    middle = number(d.column("y"), axis=axis_of(d, "y", tickCount=5), scale={"domain": [0, 1]})
    head = end_axis(d, "klogger_head", least, "datum.value", reverse=False)
    tail = end_axis(d, "klogger_tail", least, "1 - datum.value", reverse=True)
    sides = [
        panel(d, "the longest tenth", SIDE, (1 - END, 1), tail, shared),
        panel(d, "the shortest tenth", SIDE, (0, END), head, shared),
    ]
    whole = panel(d, "without both ends", MIDDLE, (END, 1 - END), middle, shared)
    return {"hconcat": [whole, {"vconcat": sides}]}


def least_step(d: Drawing) -> float:
    """Where a logarithmic axis of parts ends, which has no 0: half as much as the first and the
    last step.
    """
    parts = [float(r[d.column("y")] or 0) for r in d.records]
    return (
        min([p for part in parts for p in (part, 1 - part) if 1e-12 < p < END], default=END / 50)
        / 2
    )


def end_axis(d: Drawing, field: str, least: float, shown: str, *, reverse: bool) -> Spec:
    axis = {
        "title": lines_of(d.title("y"), SIDE[1] + 20), "values": log_ticks(least, END),
        "labelOverlap": False, "labelExpr": f"format({shown}, '{PERCENT}')",
    }  # fmt: skip
    scale = {"type": "log", "domain": [least, END], "reverse": reverse}
    return number(field, axis=axis, scale=scale)


def panel(
    d: Drawing,
    title: str,
    size: tuple[int, int],
    parts: tuple[float, float],
    y: Spec,
    shared: Spec,
) -> Spec:
    """The curves between two heights."""
    width, height = size
    low, high = span(curves_of(d), *parts)
    axis = axis_of(d, "x")
    if not d.live:
        ticks = linear_ticks(low, high)
        axis["values"] = ticks if len(ticks) <= width // LABEL_WIDTH else ticks[::2]
    scale = {"domain": [low, high], "nice": False, "zero": False}
    heading = {
        "text": title, "anchor": "start", "fontSize": 12, "fontWeight": "normal",
        "color": d.theme.text,
    }  # fmt: skip
    return {
        "width": width,
        "height": height,
        "title": heading,
        "mark": {"type": "line", "interpolate": "step-after", "clip": True},
        "encoding": {"x": number(d.column("x"), axis=axis, scale=scale), "y": y, **shared},
    }


def curves_of(d: Drawing) -> Iterable[Curve]:
    curves: dict[Any, Curve] = {}
    for record in d.records:
        name = record[d.parts["colour"]] if "colour" in d.parts else ""
        curves.setdefault(name, []).append(
            (float(record[d.column("x")] or 0), float(record[d.column("y")] or 0))
        )
    return curves.values()
