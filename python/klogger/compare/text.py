# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A comparison for the terminal, and as JSON."""

from __future__ import annotations

from typing import Any

from klogger import terminal
from klogger.compare import Compared
from klogger.compare.comparison import CONFIDENCE, VERDICTS, ComparedAnalysis, Comparison, Metric
from klogger.compare.stats import Difference
from klogger.units import plain, show

DIFFERENCES = 20
# Verdicts on what has changed by more than what is known to be chance.
CHANGED = ("worse", "better", "differs", "alone")
# If only greater changes than this are seen in half of the metrics, there is something to be done
# about it.
COARSE = 0.2
# Of each analysis, where all of them are shown.
ROWS = 5
COLOURS = {
    "worse": "red",
    "better": "green",
    "differs": "cyan",
    "same": "dim",
    "alone": "yellow",
    "unknown": "dim",
}
LABELS = {
    "worse": "worse",
    "better": "better",
    "differs": "differs",
    "same": "same",
    "alone": "not known",
    "unknown": "?",
}


def write(out: terminal.Console, found: Compared, *, everything: bool) -> None:
    heads = [((side.name, "bold"), side.line()) for side in found.sides]
    terminal.print_pairs(out, heads, gap=2)
    terminal.print_warnings(out, found.remarks)
    out.print()
    for line in conclusion(found.comparison):
        terminal.print_line(out, line)
    write_differences(out, found.comparison)
    silent = (
        [] if everything else [one for one in found.comparison.analyses if not says_anything(one)]
    )
    for one in found.comparison.analyses:
        if one not in silent:
            write_analysis(out, one, everything=everything)
    if silent:
        names = ", ".join(one.analysis.name for one in silent)
        out.print()
        hint(out, f"Not shown, as nothing can be judged there: {names}.")
        hint(out, "'--analysis NAME' shows the values of one.")


def hint(out: terminal.Console, text: str) -> None:
    terminal.print_line(out, (text, "dim"))


def write_differences(out: terminal.Console, comparison: Comparison) -> None:
    """Those of all analyses, the greatest first."""
    differences = comparison.metrics(*CHANGED)
    if not differences:
        return
    lossy = {c.analysis.name for c in comparison.analyses if c.warnings}
    out.print()
    print_table(out, differences[:DIFFERENCES], lossy, whole_names=True)
    rest = len(differences) - DIFFERENCES
    if rest > 0:
        hint(out, f"  and {rest:,} more: see the analyses below, or --format json")
    if any(m.analysis in lossy for m in differences):
        hint(out, "  !: events are missing, or were left out; the analysis below says which")


def says_anything(one: ComparedAnalysis) -> bool:
    return one.status != "answer" or any(m.verdict != "unknown" for m in one.metrics)


def conclusion(found: Comparison) -> list[str]:
    """The answer in words: what differs, and what a difference must be to be seen."""
    seen, same = found.metrics("worse", "better", "differs"), found.metrics("same")
    lines = []
    if seen:
        counts = ", ".join(
            f"{len(found.metrics(v))} {v}" for v in ("worse", "better") if found.metrics(v)
        )
        some = (
            f"{len(seen):,} of {found.tested:,} metrics differ{f' ({counts})' if counts else ''}."
        )
        lines.append(
            f"{some} In {100 * (1 - CONFIDENCE):.0f} % of comparisons at most, one of "
            "these or more is chance."
        )
    elif alone := found.metrics("alone"):
        lines.append(
            f"Not known: {len(alone):,} of {metrics_of(found.tested)} changed by more than each"
            " run varies within itself. Whether two runs of the same thing differ by as much, one"
            " run on each side cannot say; three of each can."
        )
    elif found.tested:
        lines.append(f"No difference seen in {metrics_of(found.tested)}.")
    else:
        none = "" if found.analyses else " The schemata of these logs bring no analyses."
        lines.append(f"Nothing could be judged.{none}")
    least = sorted(
        d.least for m in same if (d := m.difference) and d.is_ratio and d.least is not None
    )
    if least and not found.alone:
        half, all_of = percent(least[(len(least) - 1) // 2]), percent(least[-1])
        lines.append(
            f"Of {metrics_of(len(least))} without one, a change of {half} would have been seen in"
            f" half (8 times of 10), and one of {all_of} in all."
        )
        if least[(len(least) - 1) // 2] > COARSE:
            lines.append(
                "More runs of each, or fewer metrics (--analysis, --metric), "
                "would show smaller ones."
            )
    unknown = len(found.metrics("unknown"))
    if unknown:
        lines.append(
            f"{metrics_of(unknown)} cannot be judged: {VERDICTS['unknown'].split(':')[0]}."
        )
    return lines


def metrics_of(count: int) -> str:
    return f"{count:,} metric{'' if count == 1 else 's'}"


def write_analysis(out: terminal.Console, one: ComparedAnalysis, *, everything: bool) -> None:
    terminal.print_title(out, one.analysis)
    if one.status != "answer":
        style = "red" if one.status == "failed" else "yellow"
        terminal.print_line(out, (f"  not compared: {one.reason}", style))
    terminal.print_warnings(out, one.warnings)
    shown = one.metrics if everything else first(one.metrics)
    if shown:
        print_table(out, shown, set(), whole_names=False)
    more = len(one.metrics) - len(shown)
    unknown = 0 if everything else sum(m.verdict == "unknown" for m in one.metrics)
    judged = f", {unknown:,} of which cannot be judged" if unknown else ""
    rest = [f"{metrics_of(more)}{judged}: --analysis {one.analysis.name}"] if more else []
    rest += [f"{count:,} {reason}" for reason, count in one.left_out.items()]
    if rest:
        hint(out, f"  not shown: {'; '.join(rest)}")


def first(metrics: list[Metric]) -> list[Metric]:
    """Those of the first few rows of which something can be said."""
    judged = [m for m in metrics if m.verdict != "unknown"]
    few = set(list(dict.fromkeys(m.what for m in judged))[:ROWS])
    return [m for m in judged if m.what in few]


def print_table(
    out: terminal.Console, metrics: list[Metric], lossy: set[str], *, whole_names: bool
) -> None:
    """`whole_names`: of differences from all analyses; what could have been seen is of no interest
    then.
    """
    known = any(m.known for m in metrics)
    heads = [
        "A",
        "B",
        "change",
        *(["between"] if known else []),
        *(["seen from"] if known and not whole_names else []),
    ]
    rows = []
    for metric in metrics:
        what = ", ".join(metric.what)
        name = f"{metric.analysis}: {what}" if whole_names else what
        label = LABELS[metric.verdict] + (" !" if metric.analysis in lossy else "")
        rows.append([label, name, metric.statistic.replace("_", " "), *cells(metric)[: len(heads)]])
    heads = ["", "metric" if whole_names else "what", "", *heads]
    styles = [COLOURS[metric.verdict] for metric in metrics]
    # Names give way, numbers do not.
    terminal.print_cells(out, heads, rows, styles, texts=3, gives_way=1)


def cells(metric: Metric) -> tuple[str, str, str, str, str]:
    """A, B, change, interval, and the least change that would have been seen."""
    a, b = (show(value, metric.unit) for value in (metric.contrast.a, metric.contrast.b))
    d = metric.difference
    if d is None:
        return a, b, "", "", ""
    change = amount(d.change, d, metric)
    if d.low is None or d.high is None or d.least is None:
        return a, b, change, "", ""
    low, high = amount(d.low, d, metric), amount(d.high, d, metric)
    if low.endswith(" %") and high.endswith(" %"):
        low = low.removesuffix(" %")
    return a, b, change, f"{low} .. {high}", least(d, metric)


def least(d: Difference, metric: Metric) -> str:
    return amount(d.least or 0.0, d, metric).lstrip("+")


def amount(change: float, d: Difference, metric: Metric) -> str:
    """A change in percent, or as a factor where percents would be long; or in the metric's unit."""
    if d.is_ratio:
        return percent(change, sign=True)
    shown = show(float(change), metric.unit)
    return shown if change < 0 else f"+{shown}"


def percent(part: float, *, sign: bool = False) -> str:
    if part >= 9.995:
        return f"×{1 + part:,.0f}" if part < 1e6 else "×>1e6"
    digits = 0 if abs(part) >= 0.995 else 1 if abs(part) >= 0.0095 else 2
    return f"{100 * part:{'+' if sign else ''}.{digits}f} %"


def as_json(found: Compared, failing: list[Metric]) -> dict[str, Any]:
    comparison = found.comparison
    return {
        "confidence": CONFIDENCE,
        "tested": comparison.tested,
        "sides": {
            side.name: [
                {"file": run.file, "command": run.command, "seconds": run.seconds,
                 "events": run.events,
                 "missing": run.lost, **{"recorded": dict(run.same)}}
                for run in side.runs
            ]
            for side in found.sides
        },
        "remarks": found.remarks,
        "conclusion": conclusion(comparison),
        "failed": [m.name for m in failing],
        "metrics": [metric_json(m) for m in comparison.metrics()],
        "analyses": [analysis_json(one) for one in comparison.analyses],
    }  # fmt: skip


def metric_json(metric: Metric) -> dict[str, Any]:
    d, c = metric.difference, metric.contrast
    return {
        "name": metric.name, "analysis": metric.analysis, "what": list(metric.what),
        "statistic": metric.statistic, "unit": metric.unit, "better": metric.better,
        "verdict": metric.verdict, "a": plain(c.a), "b": plain(c.b),
        "change": plain(d and d.change), "low": plain(d and d.low), "high": plain(d and d.high),
        "seen_from": plain(d and d.least), "is_ratio": c.is_ratio,
    }  # fmt: skip


def analysis_json(one: ComparedAnalysis) -> dict[str, Any]:
    curves = [
        {"what": list(c.what), "values": c.counts, "b_is_greater": c.superiority,
         "a": [list(p) for p in c.a], "b": [list(p) for p in c.b]}
        for c in one.curves
    ]  # fmt: skip
    return {
        "name": one.analysis.name, "schema": one.analysis.schema, "title": one.analysis.title,
        "question": one.analysis.question, "status": one.status, "reason": one.reason,
        "warnings": one.warnings, "left_out": one.left_out, "curves": curves,
    }  # fmt: skip
