# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Estimates with their errors, and what two of them say about a difference. Independent of logs and
of units.

What varies is a unit: a run, or, with one run on each side, a slice of the run's time. Values
within a unit depend on each other, so that only whole units are resampled. The spread that a
bootstrap of k units finds is that of k units around their own mean, which is too small by (k - 1) /
k; and it is known only roughly, which Student's t makes up for.

Ratios are judged, not differences: a time that is 10 % longer is 10 % longer at 1 µs and at 1 s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 1000
# Bins of a histogram to each doubling: 0.54 % wide.
BINS = 128
# Added to the bins of positive numbers, so that those of negative ones can be their mirror.
ORIGIN = 1 << 20
QUANTILES = {"p50": 0.5, "p99": 0.99}
# A quantile needs so many values beyond it, and any statistic so many at all.
VALUES_BEYOND = 10
VALUES_MIN = 20
# Slices of a run in which there is something; of fewer, the spread would be a guess.
SLICES_MIN = 8
# The smallest difference that could have been seen is one that is seen in 8 of 10 comparisons.
POWER = 0.8


@dataclass(frozen=True)
class Histogram:
    """`counts` has a row for each slice of time and a column for each bin; `sums` the sum of values
    of each slice.
    """

    bins: NDArray[np.int64]
    counts: Floats
    sums: Floats

    @property
    def n(self) -> int:
        return round(float(self.counts.sum()))


@dataclass(frozen=True)
class Contrast:
    """What was found on both sides, and how sure `change` is: a logarithm of the ratio if
    `is_ratio`.

    `df` 0: the error is not known.
    """

    a: float
    b: float
    change: float
    error: float
    df: int
    is_ratio: bool


@dataclass(frozen=True)
class Difference:
    """From A to B. A part of A's value (0.2: 20 % more), or in A's unit if `is_ratio` is false.

    `low` and `high` bound it; `least`: the increase that could have been seen. None: not known.
    """

    change: float
    is_ratio: bool
    low: float | None = None
    high: float | None = None
    least: float | None = None

    @property
    def seen(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def statistics(histogram: Histogram, weights: Floats) -> dict[str, Floats]:
    """Each statistic for each row of `weights`, which say how often each slice counts."""
    cumulated = weights @ histogram.counts.cumsum(axis=1)
    total = cumulated[:, -1]
    found = {"mean": (weights @ histogram.sums) / total}
    low, high = edges(histogram.bins)
    rows = np.arange(len(total))
    for name, part in QUANTILES.items():
        target = part * total
        place = np.minimum((cumulated < target[:, None]).sum(axis=1), len(low) - 1)
        inside = cumulated[rows, place] - np.where(place > 0, cumulated[rows, place - 1], 0)
        # How far into the bin: without this, a quantile could not move by less than a bin.
        share = np.clip(1 - (cumulated[rows, place] - target) / np.maximum(inside, 1e-300), 0, 1)
        found[name] = low[place] + share * (high[place] - low[place])
    return found


def edges(bins: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Where bins begin and end; see `extract.BIN`."""
    sign = np.sign(bins)
    exponent = np.where(sign == 0, 0, np.abs(bins) - ORIGIN)
    inner, outer = np.exp2(exponent / BINS), np.exp2((exponent + 1) / BINS)
    return np.where(sign > 0, inner, sign * outer), np.where(sign > 0, outer, sign * inner)


def point(histogram: Histogram) -> dict[str, float]:
    found = statistics(histogram, np.ones((1, len(histogram.counts))))
    return {name: float(values[0]) for name, values in found.items()}


def enough(name: str, n: int) -> bool:
    beyond = n * (1 - QUANTILES.get(name, 0))
    return n >= VALUES_MIN and beyond >= VALUES_BEYOND


def resampled(histogram: Histogram, seed: list[int]) -> dict[str, tuple[float, Floats]]:
    """Of one run: each statistic, and its values over resamples of the slices."""
    used = histogram.counts.sum(axis=1) > 0
    kept = Histogram(histogram.bins, histogram.counts[used], histogram.sums[used])
    k = len(kept.counts)
    weights = np.random.default_rng(seed).multinomial(k, np.full(k, 1 / k), RESAMPLES).astype(float)
    here = point(kept)
    return {name: (here[name], values) for name, values in statistics(kept, weights).items()}


def slices_used(histogram: Histogram) -> int:
    return int((histogram.counts.sum(axis=1) > 0).sum())


def of_slices(
    a: tuple[float, Floats], b: tuple[float, Floats], slices: tuple[int, int]
) -> Contrast:
    """One run on each side: a statistic of both, with its resamples."""
    is_ratio = all(value > 0 and bool((many > 0).all()) for value, many in (a, b))
    scaled = [
        (np.log(value), np.log(many)) if is_ratio else (value, many) for value, many in (a, b)
    ]
    squares = sum(
        float(np.var(many)) * k / (k - 1) for (_, many), k in zip(scaled, slices, strict=True)
    )
    change = float(scaled[1][0] - scaled[0][0])
    # Of both together there are more, up to twice as many. But neighbouring slices are not quite
    # independent.
    return Contrast(a[0], b[0], change, math.sqrt(squares), min(slices) - 1, is_ratio)


def of_runs(a: list[float], b: list[float], *, whole: bool = False) -> Contrast:
    """Several runs on one side at least. The values are means; geometric ones, if all are above 0.

    To resample the runs of both sides around their means has a known outcome, so that nothing is
    drawn: the spread of all of them together. A side with one run is taken to vary as the other one
    does. `whole`: the values are counts of something, which are not known better than to a whole
    number even if all runs agree.
    """
    is_ratio = min(a + b) > 0
    one, other = (np.log(x) if is_ratio else np.asarray(x, dtype=float) for x in (a, b))
    means = float(one.mean()), float(other.mean())
    values = (math.exp(means[0]), math.exp(means[1])) if is_ratio else means
    df, change = len(a) + len(b) - 2, means[1] - means[0]
    squares = float(((one - means[0]) ** 2).sum() + ((other - means[1]) ** 2).sum())
    step = (1 / min(values) if is_ratio else 1.0) if whole else 0.0
    spread = max(squares / max(df, 1), step**2 / 12)
    # Equal to the last digit on either side, and yet different: no estimate of the variation.
    df = 0 if spread == 0 and change != 0 else df
    return Contrast(*values, change, math.sqrt(spread * (1 / len(a) + 1 / len(b))), df, is_ratio)


def difference(found: Contrast, alpha: float) -> Difference:
    """With the interval that misses the true change with the probability `alpha`."""
    shown = growth if found.is_ratio else float
    if found.df < 1:
        return Difference(shown(found.change), found.is_ratio)
    reach = student(1 - alpha / 2, found.df) * found.error
    least = reach + student(POWER, found.df) * found.error
    low, high = shown(found.change - reach), shown(found.change + reach)
    return Difference(shown(found.change), found.is_ratio, low, high, shown(least))


def growth(logarithm: float) -> float:
    return math.expm1(min(logarithm, 700.0))


@lru_cache(maxsize=4096)
def student(p: float, df: int) -> float:
    """Quantile of Student's t above the middle, for a whole number of degrees of freedom."""
    if df > 500:
        return NormalDist().inv_cdf(p)
    low, high = 0.0, 1.0
    while student_cdf(high, df) < p and high < 1e12:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, df) < p else (low, middle)
    return high


def student_cdf(t: float, df: int) -> float:
    """The closed form: a sum of powers of a cosine."""
    angle = math.atan(t / math.sqrt(df))
    sine, cosine = math.sin(angle), math.cos(angle)
    term = total = cosine if df % 2 else 1.0
    for k in range(2 + df % 2, df - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if df % 2 == 0:
        return 0.5 + sine * total / 2
    return 0.5 + (angle + (sine * total if df > 1 else 0.0)) / math.pi


def superiority(a: Histogram, b: Histogram) -> float:
    """Of a value of A and one of B, how likely B's is the greater; 0.5 if neither is."""
    bins = np.union1d(a.bins, b.bins)
    parts = []
    for one in (a, b):
        whole = np.zeros(len(bins))
        whole[np.searchsorted(bins, one.bins)] = one.counts.sum(axis=0)
        parts.append(whole / whole.sum())
    below = parts[0].cumsum() - parts[0]
    return float((parts[1] * (below + parts[0] / 2)).sum())
