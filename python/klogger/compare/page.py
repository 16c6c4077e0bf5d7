# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A comparison as one HTML file: intervals as marks on a line, distributions as curves. Only flame
graphs need a script.

Everything that comes from a log is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from klogger import flame
from klogger.compare import Compared
from klogger.compare.comparison import SIDES, ComparedAnalysis, Curve, Metric
from klogger.compare.text import CHANGED, LABELS, cells, conclusion
from klogger.document import document, file_of, question, scripts, text, warnings
from klogger.drawing import label

DIFFERENCES = 40
# Of each analysis: those with the greatest change come first.
CURVES = 4
HEADS = ("", "what", "", "A", "B", "change", "between", "seen from", "less or more")
# Stacks that B has not: those with most time.
GONE = 5
# A mark at the edge is a change of at least this factor.
FACTOR_MAX = 2.0
MARK_WIDTH, MARK_HEIGHT = 150, 16
WIDTH, HEIGHT = 460, 230
LEFT, RIGHT, TOP, BOTTOM = 62, 10, 8, 40


def page(found: Compared) -> str:
    comparison = found.comparison
    differences = comparison.metrics("worse", "better", "differs")
    sides = "".join(f"<p><b>{side.name}</b> {text(side.line())}</p>" for side in found.sides)
    concluded = "".join(f"<p>{text(line)}</p>" for line in conclusion(comparison))
    shown = table(differences[:DIFFERENCES], whole_names=True) if differences else ""
    graphs = {one.analysis.name: graph(one) for one in comparison.analyses if any(one.stacks)}
    return document(
        " and ".join(f"{side.name}: {side.runs[0].file}" for side in found.sides),
        sides + warnings(found.remarks) + concluded + shown,
        [(c.analysis.name, title(c)) for c in comparison.analyses],
        "".join(section(one) for one in comparison.analyses),
        style=file_of("compare.css"),
        scripts=scripts({}, None, graphs) if graphs else "",
    )


def graph(one: ComparedAnalysis) -> dict[str, Any]:
    picture = one.analysis.picture
    unit = one.analysis.columns[picture.parts["x"]].unit if picture else ""
    return flame.as_json(flame.difference(*one.stacks), unit, compared=True)


def flame_of(one: ComparedAnalysis) -> str:
    """The place of a flame graph, and what its colours say."""
    left = [(value, stack) for stack, value in one.stacks[0].items() if stack not in one.stacks[1]]
    gone = sum(value for value, _ in left)
    whole = sum(one.stacks[0].values()) or 1.0
    said = (
        "As wide as in B; red is more than in A, blue less, of one run. What was found is shown, "
        f"whether or not chance explains it. Stacks that B has not were {gone / whole:.1%} of A."
    )
    items = "".join(
        f"<li>{value / whole:.1%}: {text(' < '.join(stack.split(flame.SEPARATOR)[:-4:-1]))}</li>"
        for value, stack in sorted(left, reverse=True)[:GONE]
    )
    return (
        f'{flame.figure(one.analysis.name)}<p class="note">{text(said)}</p>'
        f'<ul class="note">{items}</ul>'
    )


def title(one: ComparedAnalysis) -> str:
    return one.analysis.title or one.analysis.name


def section(one: ComparedAnalysis) -> str:
    name = text(one.analysis.name)
    parts = [
        f'<section id="{name}"><h2>{text(title(one))}</h2>',
        question(one.analysis.question),
    ]
    if one.status != "answer":
        parts.append(f'<p class="warning">Not compared: {text(one.reason)}</p>')
    parts.append(warnings(one.warnings))
    if any(one.stacks):
        parts.append(flame_of(one))
    curves = [picture(c, one) for c in chosen_curves(one)]
    parts.append(f'<div class="curves">{"".join(curves)}</div>' if curves else "")
    parts.append(table(one.metrics, whole_names=False) if one.metrics else "")
    rest = "; ".join(f"{count:,} {reason}" for reason, count in one.left_out.items())
    parts.append(f'<p class="note">Not shown: {text(rest)}.</p>' if rest else "")
    return "".join(parts) + "</section>"


def chosen_curves(one: ComparedAnalysis) -> list[Curve]:
    """Of what changed most, if anything did; else of what there is most of."""
    change = {m.what: 0.0 for m in one.metrics}
    for m in one.metrics:
        if m.verdict in CHANGED and m.contrast.is_ratio:
            change[m.what] = max(change[m.what], abs(m.contrast.change))
    return sorted((c for c in one.curves if c.what in change), key=lambda c: -change[c.what])[
        :CURVES
    ]


def table(metrics: list[Metric], *, whole_names: bool) -> str:
    head = "".join(f"<th{number(i)}>{h}</th>" for i, h in enumerate(HEADS))
    rows = []
    for m in metrics:
        what = f"{m.analysis}: {', '.join(m.what)}" if whole_names else ", ".join(m.what)
        shown = [LABELS[m.verdict], what, m.statistic.replace("_", " "), *cells(m)]
        row = "".join(f"<td{number(i)}>{text(c)}</td>" for i, c in enumerate(shown))
        rows.append(f'<tr class="{m.verdict}">{row}<td>{mark(m)}</td></tr>')
    tall = " tall" if len(metrics) > 15 and not whole_names else ""
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll{tall}" tabindex="0">{body}</div>'


def number(column: int) -> str:
    return ' class="number"' if 3 <= column <= 7 else ""


def mark(metric: Metric) -> str:
    """The change and its interval: the middle is no change, each side the same factor."""
    d = metric.difference
    if d is None or d.low is None or d.high is None or not d.is_ratio:
        return ""
    middle, y = MARK_WIDTH / 2, MARK_HEIGHT / 2

    def place(change: float) -> float:
        part = math.log(max(1 + change, 1e-9)) / math.log(FACTOR_MAX)
        return middle + max(-1.0, min(part, 1.0)) * (middle - 4)

    low, here, high = (f"{place(x):.1f}" for x in (d.low, d.change, d.high))
    return (
        f'<svg width="{MARK_WIDTH}" height="{MARK_HEIGHT}" '
        f'viewBox="0 0 {MARK_WIDTH} {MARK_HEIGHT}" role="img" '
        f'aria-label="{text(cells(metric)[3])}"><path class="grid" d="M{middle} 0V{MARK_HEIGHT}"/>'
        f'<path class="range" d="M{low} {y}H{high}"/>'
        f'<circle class="dot" cx="{here}" cy="{y}" r="4"/></svg>'
    )


def picture(curve: Curve, one: ComparedAnalysis) -> str:
    """Both distributions: which part of the values is not greater than x. The x axis is
    logarithmic.
    """
    column = one.analysis.columns[one.value]
    positive = [x for side in (curve.a, curve.b) for x, _ in side if x > 0]
    low, high = min(positive, default=1.0), max(positive, default=10.0)
    high = max(high, low * 1.5)

    def x_of(value: float) -> float:
        part = math.log(max(value, low) / low) / math.log(high / low)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def y_of(part: float) -> float:
        return TOP + (1 - part) * (HEIGHT - TOP - BOTTOM)

    lines = "".join(
        f'<path class="curve {side.lower()}" '
        f'd="{steps([(x_of(x), y_of(y)) for x, y in points], y_of(0))}"/>'
        for side, points in zip(SIDES, (curve.a, curve.b), strict=True)
    )
    what = ", ".join(curve.what) or title(one)
    counts = ", ".join(f"{n:,} in {side}" for side, n in zip(SIDES, curve.counts, strict=True))
    axis = text(first_clause(column.doc))
    greater = f"a value of B is greater than one of A in {curve.superiority:.0%} of pairs"
    return (
        f'<figure><svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{text(what)}">{y_axis(y_of)}'
        f"{x_axis(ticks(low, high), x_of, column.unit)}{lines}"
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" '
        f'text-anchor="middle">{axis}</text>'
        f'<text class="key-a" x="{LEFT + 8}" y="{TOP + 14}">A</text>'
        f'<text class="key-b" x="{LEFT + 24}" y="{TOP + 14}">B (dashed)</text></svg>'
        f"<figcaption><b>{text(what)}</b>: {counts}; {greater}</figcaption></figure>"
    )


def first_clause(doc: str) -> str:
    for end in (";", ". ", ":"):
        doc = doc.split(end, maxsplit=1)[0]
    return doc


def steps(points: list[tuple[float, float]], bottom: float) -> str:
    path, y_before = [f"M{points[0][0]:.1f} {bottom:.1f}"], bottom
    for x, y in points:
        path.append(f"L{x:.1f} {y_before:.1f}L{x:.1f} {y:.1f}")
        y_before = y
    return "".join(path)


def ticks(low: float, high: float) -> list[float]:
    """Powers of ten; with fewer than two of them, also their halves and fifths."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for steps_of in ((1,), (1, 2, 5), tuple(x / 2 for x in range(2, 20))):
        found = [
            m * 10.0**k
            for k in range(first, last + 1)
            for m in steps_of
            if low <= m * 10.0**k <= high
        ]
        if len(found) >= 2:
            break
    return found[:: 1 + len(found) // 8]


def x_axis(places: list[float], x_of: Callable[[float], float], unit: str) -> str:
    bottom = HEIGHT - BOTTOM
    return "".join(
        f'<path class="grid" d="M{x_of(x):.1f} {TOP}V{bottom}"/>'
        f'<text x="{x_of(x):.1f}" y="{bottom + 15}" '
        f'text-anchor="middle">{text(label(x, unit))}</text>'
        for x in places
    )


def y_axis(y_of: Callable[[float], float]) -> str:
    middle = y_of(0.5)
    name = (
        f'<text transform="translate(12 {middle:.0f}) rotate(-90)" text-anchor="middle">'
        "part not greater</text>"
    )
    return name + "".join(
        f'<path class="grid" d="M{LEFT} {y_of(p / 4):.1f}H{WIDTH - RIGHT}"/>'
        f'<text x="{LEFT - 6}" y="{y_of(p / 4) + 4:.1f}" text-anchor="end">{25 * p} %</text>'
        for p in range(5)
    )
