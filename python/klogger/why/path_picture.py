# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Draws a critical path: a row for each thread, time to the right, an arrow at each hand-over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from klogger.document import text
from klogger.drawing import COLOURS, OTHER, PALE, label, linear_ticks
from klogger.units import show
from klogger.why.answer import Walk
from klogger.why.bins import COULD_RUN, RAN, UNKNOWN, Bin

STYLE = """
svg.path { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg.path .grid { stroke: var(--line); fill: none; }
svg.path text { fill: var(--text); }
svg.path .axis { fill: var(--faint); }
svg.path .row { fill: var(--row); }
svg.path .hand { stroke: var(--text); stroke-width: .8; fill: none; opacity: .7; }
svg.path .tip { fill: var(--text); opacity: .7; }
.keys { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .85rem; margin: .4rem 0; }
.keys i {
  display: inline-block; width: .9em; height: .9em; margin-right: .35em; vertical-align: -1px;
}
"""
# Threads with a row of their own; kinds of bins with a colour; arrows that a reader can follow.
ROWS_MOST, KINDS_MOST, HANDS_MOST = 14, 10, 120
WIDTH, LEFT, RIGHT, TOP = 1000, 150, 12, 24
ROW, SPACE = 20, 8
LETTERS = 22
# Threads with less of the elapsed time have a row together.
LEAST = 0.002
# Of a column that one thread has.
WHOLE = 0.5
FIXED = {RAN: "#0072b2", COULD_RUN: "#e69f00", UNKNOWN: PALE}
REST = "all others"


@dataclass(frozen=True)
class Row:
    name: str
    pid: int

    @property
    def label(self) -> str:
        name = self.name if len(self.name) <= LETTERS - 9 else self.name[: LETTERS - 10] + "…"
        return f"{name}[{self.pid}]" if self.pid else name


@dataclass(frozen=True)
class Stretch:
    """Columns in which a row was in one bin, from `first` to `last`; `part`: how much of them."""

    first: int
    last: int
    bin: Bin
    part: float


def picture(walk: Walk) -> str:
    rows = rows_of(walk)
    colours = colours_of(walk)
    places = {row: TOP + at * (ROW + SPACE) for at, row in enumerate(rows)}
    bottom = TOP + len(rows) * (ROW + SPACE)
    hands = list(hand_overs(walk, rows))
    drawn = [
        *axis(walk, bottom),
        *(shape for row, y in places.items() for shape in row_of(walk, row, rows, y, colours)),
        *(arrow(walk, column, places[a], places[b]) for column, a, b in hands[:HANDS_MOST]
          if len(hands) <= HANDS_MOST),
    ]  # fmt: skip
    note = ""
    if len(hands) > HANDS_MOST:
        note = (f'<p class="note">{len(hands):,} hand-overs and more, too many for arrows:'
                " --between or --operation shows a part.</p>")  # fmt: skip
    return (
        f'<div class="keys">{keys(colours)}</div>'
        f'<figure><svg class="path" viewBox="0 0 {WIDTH} {bottom + 6}" role="img">'
        f"<title>Critical path</title>{''.join(drawn)}</svg></figure>{note}"
    )


def rows_of(walk: Walk) -> list[Row]:
    """Those with most time, in the order in which they are first seen; then one for the rest."""
    time: Counter[Row] = Counter()
    for column in walk.columns:
        for name, pid, _, ns in column:
            time[Row(name, pid)] += ns
    least = (walk.edges[-1] - walk.edges[0]) * LEAST
    kept = {row for row, ns in time.most_common(ROWS_MOST) if ns >= least}
    made = [row for row in time if row in kept]
    return made + ([Row(REST, 0)] if len(time) > len(kept) else [])


def colours_of(walk: Walk) -> dict[str, str]:
    time: Counter[str] = Counter()
    for column in walk.columns:
        for *_, one, ns in column:
            time[key_of(one)] += ns
    free = [colour for colour in COLOURS if colour not in FIXED.values()]
    found: dict[str, str] = {}
    for name, _ in time.most_common(KINDS_MOST):
        found[name] = FIXED[name] if name in FIXED else free.pop(0) if free else OTHER
    if len(time) > len(found):
        found[REST] = OTHER
    return found


def key_of(one: Bin) -> str:
    return one.group if one.group in FIXED else f"{one.group}: {one.kind}"


def keys(colours: dict[str, str]) -> str:
    return "".join(
        f'<span><i style="background:{colour}"></i>{text(name)}</span>'
        for name, colour in colours.items()
    )


def x_of(walk: Walk, ns: float) -> float:
    whole = max(walk.edges[-1] - walk.edges[0], 1)
    return LEFT + (WIDTH - LEFT - RIGHT) * (ns - walk.edges[0]) / whole


def axis(walk: Walk, bottom: int) -> Iterator[str]:
    for tick in linear_ticks(0, max(walk.edges[-1] - walk.edges[0], 1)):
        x = x_of(walk, walk.edges[0] + tick)
        yield f'<path class="grid" d="M{x:.1f} {TOP - 6}V{bottom}"/>'
        yield (f'<text class="axis" x="{x:.1f}" y="{TOP - 11}" text-anchor="middle">'
               f"{text(label(tick, 'ns') if tick else '0')}</text>")  # fmt: skip


def row_of(walk: Walk, row: Row, rows: list[Row], y: int, colours: dict[str, str]) -> Iterator[str]:
    right = WIDTH - RIGHT - LEFT
    yield f'<rect class="row" x="{LEFT}" y="{y}" width="{right}" height="{ROW}"/>'
    yield (f'<text x="{LEFT - 8}" y="{y + ROW - 6}" text-anchor="end">{text(row.label)}'
           f"<title>{text(row.name)}</title></text>")  # fmt: skip
    for one in stretches(walk, row, rows):
        since, until = walk.edges[one.first], walk.edges[one.last + 1]
        left, width = x_of(walk, since), x_of(walk, until) - x_of(walk, since)
        height = max(ROW * one.part, 1.5)
        colour = colours.get(key_of(one.bin), OTHER)
        when = f"from {show(since - walk.edges[0], 'ns')} on, {show(until - since, 'ns')}"
        words = f"{row.label} {one.bin.group}, {one.bin.text}: {when}"
        yield (
            f'<rect x="{left:.2f}" y="{y + ROW - height:.1f}" width="{width:.2f}"'
            f' height="{height:.1f}" fill="{colour}"><title>{text(words)}</title></rect>'
        )


def stretches(walk: Walk, row: Row, rows: list[Row]) -> Iterator[Stretch]:
    """Neighbouring columns that say the same are one."""
    last: Stretch | None = None
    for at, column in enumerate(walk.columns):
        here = [(ns, one) for name, pid, one, ns in column if of(name, pid, rows) == row]
        if not here:
            continue
        whole = max(walk.edges[at + 1] - walk.edges[at], 1)
        part = round(sum(ns for ns, _ in here) / whole, 1)
        most = max(here)[1]
        if last and last.last == at - 1 and (last.bin, last.part) == (most, part):
            last = Stretch(last.first, at, most, part)
            continue
        if last:
            yield last
        last = Stretch(at, at, most, part)
    if last:
        yield last


def of(name: str, pid: int, rows: list[Row]) -> Row:
    one = Row(name, pid)
    return one if one in rows else rows[-1]


def hand_overs(walk: Walk, rows: list[Row]) -> Iterator[tuple[int, Row, Row]]:
    """Where one thread has most of a column, and another one of the next."""
    before: Row | None = None
    for at, column in enumerate(walk.columns):
        time: Counter[Row] = Counter()
        for name, pid, _, ns in column:
            time[of(name, pid, rows)] += ns
        if not time:
            continue
        (most, ns), *_ = time.most_common(1)
        if ns < WHOLE * (walk.edges[at + 1] - walk.edges[at]):
            continue
        if before is not None and most != before:
            yield at, before, most
        before = most


def arrow(walk: Walk, column: int, before: int, after: int) -> str:
    x = x_of(walk, walk.edges[column])
    down = after > before
    begin, end = (before + ROW, after) if down else (before, after + ROW)
    tip = end - 5 if down else end + 5
    return (
        f'<path class="hand" d="M{x:.1f} {begin}V{end}"/>'
        f'<path class="tip" d="M{x:.1f} {end}L{x - 3:.1f} {tip}H{x + 3:.1f}Z"/>'
    )
