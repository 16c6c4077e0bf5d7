# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A waterfall in characters: a line for each span, with bars to scale on an axis of time."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from klogger.units import show
from klogger.waterfall import RUNNING, Line, Waterfall, title_of

LAYER_WIDTH = 11
TOOK_WIDTH = 8
# Of the bars, at least.
BARS_MIN = 26
WAITS, GOES_ON, OPEN = "█", "▒", "▶"


def lines(found: Waterfall, columns: int) -> list[str]:
    """In so many columns."""
    room = columns - LAYER_WIDTH - TOOK_WIDTH - 4
    what = max(min(max(len(line.what) for line in found.lines), room - BARS_MIN), 8)
    bars = room - what
    indent = " " * (LAYER_WIDTH + what + 2)
    head = textwrap.wrap(
        f"Operation {found.id}: {title_of(found)}", columns, subsequent_indent="  "
    )
    axis, ticks = axis_of(found.took, bars)
    drawn = [drawn_of(line, found.took, what, bars) for line in without_repeats(found.lines)]
    return [*head, "", indent + ticks, indent + axis, *drawn, "", *legend(found, columns)]


def without_repeats(given: Iterable[Line]) -> Iterable[tuple[str, Line]]:
    """The name of a layer is at its first line only."""
    last = ""
    for line in given:
        yield ("" if line.layer == last else line.layer), line
        last = line.layer


def axis_of(took: int, width: int) -> tuple[str, str]:
    """A line with marks, and the line above it with their times."""
    marks = 3 if width < 40 else 5
    line, labels = ["─"] * width, [" "] * (width + TOOK_WIDTH + 1)
    for number in range(marks):
        place = round(number * (width - 1) / (marks - 1))
        line[place] = "├" if number == 0 else "┤" if number == marks - 1 else "┼"
        label = show(took * number / (marks - 1), "ns")
        start = place if number == 0 else min(place - len(label) // 2, len(labels) - len(label))
        labels[start : start + len(label)] = label
    return "".join(line), "".join(labels).rstrip()


def drawn_of(named: tuple[str, Line], took: int, what: int, width: int) -> str:
    layer, line = named
    cells = [" "] * width
    fill = WAITS if line.waits else GOES_ON
    for begin, end in line.bars:
        first = min(begin * width // took, width - 1)
        # Something is seen of each.
        last = max(first + 1, min(-(-end * width // took), width))
        cells[first:last] = fill * (last - first)
    if line.open:
        cells[-1] = OPEN
    words = line.what if len(line.what) <= what else line.what[: what - 1] + "…"
    text = f"{layer:<{LAYER_WIDTH}} {words:<{what}} {''.join(cells)} "
    return text + f"{show(line.ns, 'ns'):>{TOOK_WIDTH}}"


def legend(found: Waterfall, columns: int) -> list[str]:
    parts = [f"{WAITS} it waited", f"{GOES_ON} others, or not known whether it waited"]
    if any(line.open for line in found.lines):
        parts.append(f"{OPEN} not ended with the log")
    if any(line.layer == RUNNING for line in found.lines):
        parts[0] = f"{WAITS} it waited, or ran"
    share = found.unexplained / found.took
    said = f"In no span: {show(found.unexplained, 'ns')}, {share:.0%} of its time."
    rows = [parts[0]]
    for part in parts[1:]:
        if len(rows[-1]) + 3 + len(part) <= columns:
            rows[-1] += "   " + part
        else:
            rows.append(part)
    return [*rows, said]
