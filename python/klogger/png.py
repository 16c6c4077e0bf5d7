# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Pictures as PNG files."""

from __future__ import annotations

from klogger import extras
from klogger.drawing import Palette, Theme
from klogger.executor import Result
from klogger.pictures import draw
from klogger.units import printable

SCALE = 1.6
PALETTE = Palette()


def render(result: Result, palette: Palette = PALETTE) -> bytes | None:
    """A PNG of an answer's picture with its title and question, or None if it has no picture."""
    spec = draw(result, palette, Theme())
    if spec is None:
        return None
    spec["title"] = {
        "text": printable(result.analysis.title), "subtitle": printable(result.analysis.question),
        "anchor": "start", "fontSize": 16, "subtitleFontSize": 13, "subtitlePadding": 4,
        "offset": 14, "frame": "group", "color": "#222222", "subtitleColor": "#555555",
    }  # fmt: skip
    return bytes(extras.PICTURES.load().vegalite_to_png(spec, scale=SCALE))
