# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two recordings, or several of each: which metrics differ, by how much, and which could not have
been seen to.

All intervals hold at once with a probability of 95 %: each of m misses with 5 % / m (Bonferroni).
So a difference that is called one is chance in at most one comparison of twenty, however many
metrics there are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np

from klogger.analysis import Analysis
from klogger.compare import stats
from klogger.compare.extract import Measured, What, unit
from klogger.compare.stats import Contrast, Difference, Histogram
from klogger.failure import Failure, did_you_mean

CONFIDENCE = 0.95
SEED = 2007
# Of each analysis: the more is compared, the less can be seen.
ROWS_MAX = 10
TIMES = ("ns", "s")
SIDES = ("A", "B")
# Of a curve that is drawn.
POINTS_MAX = 160


@dataclass
class Metric:
    """`statistic` is one of a histogram, or a column of a table. `verdict` is one of VERDICTS."""

    analysis: str
    what: What
    statistic: str
    unit: str
    better: str
    contrast: Contrast
    difference: Difference | None = None
    verdict: str = ""

    @property
    def name(self) -> str:
        return "/".join([self.analysis, ", ".join(self.what), self.statistic])

    @property
    def known(self) -> bool:
        return self.contrast.df > 0

    def worsened(self) -> float | None:
        """By how much it is worse at least, as a part of A's value; None if that is not known, or
        neither is worse.
        """
        d, value = self.difference, self.contrast.a
        if d is None or d.low is None or d.high is None or self.better == "neither":
            return None
        least = d.low if self.better == "less" else -d.high
        if d.is_ratio or least <= 0:
            return least
        return least / abs(value) if value else float("inf")


VERDICTS = {
    "worse": "worse",
    "better": "better",
    "differs": "differs; neither way is better",
    "same": "no difference seen",
    "alone": "not known: more than each run varies within itself, but two runs of one thing "
    "may differ by as much",
    "unknown": "one value on each side, or values that do not vary: nothing can be said",
}


@dataclass
class Curve:
    """A distribution on both sides: values, and the part of all that is not greater."""

    what: What
    a: list[tuple[float, float]]
    b: list[tuple[float, float]]
    counts: tuple[int, int]
    superiority: float


@dataclass
class ComparedAnalysis:
    """An analysis. `status`: answer, or why nothing could be compared; `left_out` counts rows by
    why they were.
    """

    analysis: Analysis
    status: str = "answer"
    reason: str = ""
    warnings: list[str] = field(default_factory=list)
    # The column that the curves are of.
    value: str = ""
    metrics: list[Metric] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    # Of a flame graph: values by stack, of A and of B, each the mean of its runs.
    stacks: tuple[dict[str, float], dict[str, float]] = field(default_factory=lambda: ({}, {}))

    def leave_out(self, reason: str, count: int) -> None:
        if count:
            self.left_out[reason] = self.left_out.get(reason, 0) + count


@dataclass
class Comparison:
    analyses: list[ComparedAnalysis]
    runs: tuple[int, int]
    # Intervals that hold at once.
    tested: int = 0

    @property
    def alone(self) -> bool:
        """One run on each side: how much two runs of one thing differ is not known."""
        return self.runs == (1, 1)

    def metrics(self, *verdicts: str) -> list[Metric]:
        """Those with one of these verdicts, the greatest change first."""
        found = [
            m for c in self.analyses for m in c.metrics if not verdicts or m.verdict in verdicts
        ]
        return sorted(found, key=lambda m: (-size(m), m.name))


def size(metric: Metric) -> float:
    """A half is as much as a double. What was 0 cannot be put into proportion, and comes last."""
    return abs(metric.contrast.change) if metric.contrast.is_ratio else 0.0


def compare(
    a: Sequence[dict[str, Measured]], b: Sequence[dict[str, Measured]], patterns: Iterable[str] = ()
) -> Comparison:
    """Each side has the analyses of its runs, by name."""
    names = list(dict.fromkeys(n for run in [*a, *b] for n in run))
    found = Comparison(
        [compare_one(n, [r.get(n) for r in a], [r.get(n) for r in b]) for n in names],
        (len(a), len(b)),
    )
    choose(found, list(patterns))
    metrics = found.metrics()
    found.tested = sum(m.known for m in metrics)
    alpha = (1 - CONFIDENCE) / max(found.tested, 1)
    for metric in metrics:
        metric.difference = stats.difference(metric.contrast, alpha)
        metric.verdict = verdict_of(metric, alone=found.alone)
    return found


def choose(found: Comparison, patterns: list[str]) -> None:
    """Keeps the metrics whose whole name, or its last part, is like one of the patterns."""
    names = {m.name: m.statistic for m in found.metrics()}
    for pattern in patterns:
        if not any(matches(pattern, *both) for both in names.items()):
            close = did_you_mean(pattern, [*names, *names.values()])
            raise Failure(
                f"no metric '{pattern}' that both sides have",
                help=close or "without --metric, all are shown",
            )
    for one in found.analyses:
        if patterns:
            one.metrics = [
                m for m in one.metrics if any(matches(p, m.name, m.statistic) for p in patterns)
            ]
    if patterns:
        found.analyses = [one for one in found.analyses if one.metrics or one.status == "failed"]


def matches(pattern: str, name: str, statistic: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(statistic, pattern)


def verdict_of(metric: Metric, *, alone: bool = False) -> str:
    """`alone`: the interval has only what varies within a run. What varies from run to run makes it
    wider.
    """
    difference = metric.difference
    if difference is None or difference.low is None:
        return "unknown"
    if not difference.seen:
        return "same"
    if alone:
        return "alone"
    if metric.better == "neither":
        return "differs"
    return "worse" if (difference.change > 0) == (metric.better == "less") else "better"


def compare_one(name: str, a: list[Measured | None], b: list[Measured | None]) -> ComparedAnalysis:
    everyone = [m for m in [*a, *b] if m is not None]
    found = ComparedAnalysis(everyone[0].analysis)
    for side, runs in zip(SIDES, (a, b), strict=True):
        for number, one in enumerate(runs, 1):
            label = side if len(runs) == 1 else f"{side}{number}"
            if one is None or one.status != "answer":
                found.status, found.reason = why(found, label, one)
            if one is not None:
                found.warnings += [f"{label}: {w}" for w in one.warnings]
    if found.status != "answer":
        return found
    sides = [m for m in a if m is not None], [m for m in b if m is not None]
    if any(m.stacks for m in everyone):
        found.stacks = mean_stacks(sides[0]), mean_stacks(sides[1])
    elif found.analysis.samples:
        compare_samples(found, *sides)
    else:
        compare_rows(found, *sides)
    return found


def why(found: ComparedAnalysis, label: str, one: Measured | None) -> tuple[str, str]:
    """The status and reasons of an analysis that one more run cannot answer. A failure is the
    worst.
    """
    status, reason = (
        (one.status, one.reason)
        if one is not None
        else ("not_recorded", "its schema was not recorded")
    )
    before = f"{found.reason}; " if found.reason else ""
    worst = "failed" if "failed" in (status, found.status) else status
    return worst, f"{before}{label}: {reason}"


def better(analysis: Analysis, column: str) -> str:
    stated = analysis.columns[column].better if column in analysis.columns else ""
    return stated or ("less" if unit(analysis, column) in TIMES else "neither")


def compare_samples(found: ComparedAnalysis, a: list[Measured], b: list[Measured]) -> None:
    everyone = [*a, *b]
    one, column = found.analysis, a[0].value
    found.value = column
    for what in shared_kinds(found, everyone):
        sides = [m.histograms[what] for m in a], [m.histograms[what] for m in b]
        n = min(h.n for side in sides for h in side)
        contrasts = contrasts_of(f"{one.name}/{', '.join(what)}", *sides)
        usable = {s: c for s, c in contrasts.items() if stats.enough(s, n)}
        if not usable:
            found.leave_out("too few values, or all of them at one time", 1)
            continue
        for statistic, contrast in usable.items():
            metric = Metric(
                one.name, what, statistic, unit(one, column), better(one, column), contrast
            )
            found.metrics.append(metric)
        found.curves.append(curve(what, *(merged(side) for side in sides)))


def shared_kinds(found: ComparedAnalysis, everyone: list[Measured]) -> list[What]:
    """Those in all runs that have the greatest part of all values, or of their sum. Which is so is
    the same if A and B change places, so that the choice favours no difference.
    """
    weights: dict[What, float] = {}
    for one in everyone:
        n = sum(h.n for h in one.histograms.values()) or 1
        total = float(sum(abs(h.sums).sum() for h in one.histograms.values())) or 1.0
        for what, h in one.histograms.items():
            weights[what] = weights.get(what, 0) + max(h.n / n, float(abs(h.sums).sum()) / total)
    common = [w for w in weights if all(w in one.histograms for one in everyone)]
    found.leave_out("not in all runs", len(weights) - len(common))
    common.sort(key=lambda w: (-weights[w], w))
    found.leave_out(f"beyond the first {ROWS_MAX}", len(common[ROWS_MAX:]))
    return common[:ROWS_MAX]


def contrasts_of(name: str, a: list[Histogram], b: list[Histogram]) -> dict[str, Contrast]:
    if len(a) > 1 or len(b) > 1:
        runs = [[stats.point(h) for h in side] for side in (a, b)]
        return {
            s: stats.of_runs([r[s] for r in runs[0]], [r[s] for r in runs[1]]) for s in runs[0][0]
        }
    slices = stats.slices_used(a[0]), stats.slices_used(b[0])
    if min(slices) < stats.SLICES_MIN:
        return {}
    # Not the order in which metrics are looked at, but their names decide what is drawn.
    seed = [SEED, zlib.crc32(name.encode())]
    both = [stats.resampled(side[0], [*seed, i]) for i, side in enumerate((a, b))]
    return {s: stats.of_slices(both[0][s], both[1][s], slices) for s in both[0]}


def merged(histograms: list[Histogram]) -> Histogram:
    """All runs of a side as one."""
    bins = np.unique(np.concatenate([h.bins for h in histograms]))
    counts = np.zeros((1, len(bins)))
    for h in histograms:
        counts[0, np.searchsorted(bins, h.bins)] += h.counts.sum(axis=0)
    return Histogram(bins, counts, np.array([sum(float(h.sums.sum()) for h in histograms)]))


def curve(what: What, a: Histogram, b: Histogram) -> Curve:
    return Curve(what, points(a), points(b), (a.n, b.n), stats.superiority(a, b))


def points(h: Histogram) -> list[tuple[float, float]]:
    """Some points of the distribution, each exactly on it but for the width of its bin."""
    high = stats.edges(h.bins)[1]
    part = h.counts.sum(axis=0).cumsum() / h.n
    places = np.unique(
        np.linspace(0, len(high) - 1, min(POINTS_MAX, len(high))).round().astype(int)
    )
    return [(float(high[i]), float(part[i])) for i in places]


def mean_stacks(runs: list[Measured]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for run in runs:
        for stack, value in run.stacks.items():
            sums[stack] = sums.get(stack, 0.0) + value / len(runs)
    return sums


def compare_rows(found: ComparedAnalysis, a: list[Measured], b: list[Measured]) -> None:
    one, everyone = found.analysis, [*a, *b]
    rows = shared_rows(found, everyone)
    columns = [c for c in one.columns if any((r, c) in everyone[0].numbers for r in rows)]
    for row in rows:
        for column in columns:
            values = [[m.numbers.get((row, column)) for m in side] for side in (a, b)]
            numbers = [[v for v in side if v is not None] for side in values]
            if [len(n) for n in numbers] != [len(v) for v in values]:
                continue
            whole = all(v.is_integer() for side in numbers for v in side)
            metric = Metric(
                one.name,
                row,
                column,
                unit(one, column),
                better(one, column),
                one_row(numbers, whole),
            )
            found.metrics.append(metric)


def one_row(numbers: list[list[float]], whole: bool) -> Contrast:
    found = stats.of_runs(*numbers, whole=whole)
    return found if max(map(len, numbers)) > 1 else replace(found, df=0)


def shared_rows(found: ComparedAnalysis, everyone: list[Measured]) -> list[What]:
    """Those in all runs, the most important of all of them first; see `shared_kinds`."""
    places: dict[What, list[int]] = {}
    for one in everyone:
        for place, row in enumerate(one.rows):
            places.setdefault(row, []).append(place)
    common = [r for r in places if len(places[r]) == len(everyone)]
    found.leave_out("not in all runs", len(places) - len(common))
    common.sort(key=lambda r: (sum(places[r]), r))
    found.leave_out(f"beyond the first {ROWS_MAX}", len(common[ROWS_MAX:]))
    return common[:ROWS_MAX]
