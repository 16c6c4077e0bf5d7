# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Outliers as one HTML file without a script: each beside the values of its peers.

Everything that comes from a log is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from klogger.compare.outliers import Found, Outlier
from klogger.compare.outliers_text import conclusion, effect_of, head, sentence, what, who
from klogger.document import document, file_of, question, text
from klogger.drawing import label, linear_ticks, log_ticks

# Of a page: the greatest effects come first.
DRAWN = 100
# Pixels.
WIDTH, HEIGHT, MARGIN = 720, 76, 40
TOP, BOTTOM = 20, 50
# Between the labels of two ticks; and of a value to the median, if their labels could touch.
LABEL_GAP, LABELS_NEAR = 56, 120
# A logarithmic axis is at least this long, and an axis ends this part beyond its values.
RATIO_LEAST, BEYOND = 1.5, 0.04


def page(where: str, found: Found, by: Sequence[str], commands: Sequence[str]) -> str:
    """`commands`: to open the log of each outlier."""
    shown = list(zip(found.outliers, commands, strict=True))[:DRAWN]
    left = len(found.outliers) - len(shown)
    lines = [*conclusion(found), *([f"and {left:,} more: --format json has them"] if left else [])]
    return document(
        f"Outliers of {head(where, found)}",
        "".join(f"<p>{text(line)}</p>" for line in lines),
        [],
        "".join(section(one, by, command) for one, command in shown),
        style=file_of("outliers.css"),
    )


def section(one: Outlier, by: Sequence[str], command: str) -> str:
    return (
        f"<section><h2>{text(effect_of(one))} {text(who(one))}</h2>"
        f"{question(sentence(one, by))}"
        f"<figure>{picture(one)}</figure><pre>{text(command)}</pre></section>"
    )


def picture(one: Outlier) -> str:
    """A stroke for each of the peers, or for so many of their quantiles; their median, and who
    is not like them.
    """
    place, ticks = axis(one)
    strokes = "".join(f"M{place(x):.1f} {TOP + 8}V{BOTTOM - 4}" for x in one.others)
    middle, here = place(one.median), place(one.value)
    # The name stands on the side where the median's label is not.
    is_near = abs(here - middle) < LABELS_NEAR
    anchor = "start" if (here >= middle) == is_near else "end"
    name = here + math.copysign(LABELS_NEAR / 4, here - middle) * is_near
    numbers = "".join(
        f'<path class="grid" d="M{place(x):.1f} {BOTTOM}v5"/><text x="{place(x):.1f}" '
        f'y="{BOTTOM + 18}" text-anchor="middle">{text(label(x, one.unit))}</text>'
        for x in labelled(ticks, place)
    )
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{text(what(one))}">'
        f'<path class="grid" d="M{MARGIN} {BOTTOM}H{WIDTH - MARGIN}"/>{numbers}'
        f'<path class="peers" d="{strokes}"/>'
        f'<path class="median" d="M{middle:.1f} {TOP}V{BOTTOM}"/>'
        f'<text x="{middle:.1f}" y="{TOP - 6}" text-anchor="middle">median</text>'
        f'<circle class="outlier" cx="{here:.1f}" cy="{(TOP + BOTTOM) / 2 + 2:.1f}" r="6"/>'
        f'<text class="who" x="{name:.1f}" y="{TOP - 6}" text-anchor="{anchor}">{text(one.of)}'
        "</text></svg>"
    )


def axis(one: Outlier) -> tuple[Callable[[float], float], list[float]]:
    """Where a value is, and the ticks. Of ratios it is logarithmic."""
    low, high = min(*one.others, one.value), max(*one.others, one.value)
    if one.is_ratio:
        high = max(high, low * RATIO_LEAST)
        more = (high / low) ** BEYOND
        low, high = low / more, high * more
        scale: Callable[[float], float] = math.log
        ticks = log_ticks(low, high)
    else:
        more = BEYOND * (high - low)
        low, high = low - more, high + more
        scale, ticks = float, linear_ticks(low, high)
    first, last = scale(low), scale(high)

    def place(value: float) -> float:
        return MARGIN + (WIDTH - 2 * MARGIN) * (scale(value) - first) / (last - first)

    return place, ticks


def labelled(ticks: Sequence[float], place: Callable[[float], float]) -> list[float]:
    """The ticks whose labels do not touch each other."""
    found: list[float] = []
    for x in ticks:
        if not found or place(x) - place(found[-1]) >= LABEL_GAP:
            found.append(x)
    return found
