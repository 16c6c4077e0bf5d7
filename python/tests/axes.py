# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whether a picture is one of Vega-Lite's, and what is written on its axes, as it is drawn."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Any

import altair
import vl_convert

# Vega says of each axis, for those who cannot see it, what it is; its labels follow, and its title
# after them.
AXIS = re.compile(r'aria-label="([XY])-axis(?: titled (\'.*?\'))? for an? (\w+) scale[^"]*"')

CUT = re.compile(r'role-(?:axis|legend)-title"[^>]*>\s*<text[^>]*>([^<]*…)</text>')


@dataclass
class Axis:
    side: str
    title: str
    scale: str
    labels: list[str]


def check(spec: dict[str, Any]) -> None:
    """Against the schema of Vega-Lite, which Altair has. The renderer passes over what it does not
    know.
    """
    assert spec["$schema"] == altair.SCHEMA_URL
    altair.Chart.from_dict({key: part for key, part in spec.items() if key != "datasets"})


def axes_of(spec: dict[str, Any]) -> list[Axis]:
    return axes_in(vl_convert.vegalite_to_svg(spec))


def axes_in(svg: str) -> list[Axis]:
    found = []
    places = list(AXIS.finditer(svg))
    for place, after in zip(places, [*places[1:], None], strict=True):
        text = svg[place.end() : after.start() if after else len(svg)]
        labels = re.search(r"role-axis-label(.*?)</g>", text, re.S)
        shown = re.findall(
            r"<text[^>]*?(opacity=\"0\")?[^>]*>([^<]*)</text>", labels[1] if labels else ""
        )
        words = [html.unescape(word) for hidden, word in shown if word.strip() and not hidden]
        found.append(Axis(place[1], html.unescape(place[2] or ""), place[3], words))
    return found


def faults_of(spec: dict[str, Any]) -> list[str]:
    """Axes without a name, names that are cut off, axes of numbers with fewer than three labels, or
    labels alike.
    """
    svg = vl_convert.vegalite_to_svg(spec)
    faults = [f"cut off: {title}" for title in CUT.findall(svg)]
    for axis in axes_in(svg):
        faults += [f"cut off: {label}" for label in axis.labels if label.endswith("…")]
        if axis.scale in ("linear", "log"):
            if len(set(axis.labels)) < 3:
                faults.append(f"{axis.side}: only {axis.labels} on the axis {axis.title}")
            if len(set(axis.labels)) < len(axis.labels):
                faults.append(f"{axis.side}: labels are alike: {axis.labels}")
        if not axis.title:
            faults.append(f"{axis.side}: the axis has no name")
    return faults
