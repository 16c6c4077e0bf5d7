# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The difference of two commands, or of several runs of each, as a sum of differences of bins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from klogger.units import show
from klogger.why.answer import Answer
from klogger.why.bins import Bin
from klogger.why.events import Array
from klogger.why.text import Styled, cut, wrapped

# Resampled means, and the part of them between the two ends of an interval.
RESAMPLED, CONFIDENCE, SEED = 2000, 0.95, 1
# On each side; an interval from fewer runs says nothing.
RUNS_MIN = 3
PARTS_MOST = 12
# What is less of the whole change is summed up.
LEAST = 0.01


@dataclass
class Part:
    """Mean ns of both sides, and the interval of the difference, if it is known."""

    program: str
    bin: Bin | None
    a: float
    b: float
    low: float | None = None
    high: float | None = None

    @property
    def change(self) -> float:
        return self.b - self.a

    @property
    def is_sure(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def as_json(self) -> dict[str, Any]:
        named = self.bin.as_json() if self.bin else {}
        return {"program": self.program, **named, "a_ns": self.a, "b_ns": self.b,
                "change_ns": self.change, "low_ns": self.low, "high_ns": self.high}  # fmt: skip


@dataclass
class Explained:
    """`parts` have the greatest change first, and sum up to that of `whole`."""

    runs: tuple[int, int]
    whole: Part
    parts: list[Part]
    notes: list[str]

    def as_json(self) -> dict[str, Any]:
        return {"runs": list(self.runs), "whole": self.whole.as_json(),
                "parts": [part.as_json() for part in self.parts], "notes": self.notes}  # fmt: skip


def explain(a: Sequence[Answer], b: Sequence[Answer]) -> Explained:
    """Of the elapsed time, with waits for threads of the logs followed."""
    keys = sorted({(line.program, line.bin) for one in (*a, *b) for line in one.followed})
    sides = [np.array([times_of(one, keys) for one in side], dtype=float) for side in (a, b)]
    known = min(len(a), len(b)) >= RUNS_MIN
    ends = interval(*sides) if known else None
    parts = [
        Part(program, bin_, sides[0][:, at].mean(), sides[1][:, at].mean(),
             *((ends[0][at], ends[1][at]) if ends is not None else (None, None)))
        for at, (program, bin_) in enumerate(keys)
    ]  # fmt: skip
    totals = [side.sum(axis=1, keepdims=True) for side in sides]
    of_all = interval(*totals) if known else None
    low, high = (of_all[0][0], of_all[1][0]) if of_all is not None else (None, None)
    whole = Part("", None, totals[0].mean(), totals[1].mean(), low, high)
    parts.sort(key=lambda part: (-abs(part.change), part.program, part.bin))
    notes = list(dict.fromkeys(note for one in (*a, *b) for note in one.notes))
    return Explained((len(a), len(b)), whole, parts, notes)


def times_of(one: Answer, keys: Sequence[tuple[str, Bin]]) -> list[int]:
    found = {(line.program, line.bin): line.ns for line in one.followed}
    return [found.get(key, 0) for key in keys]


def interval(a: Array, b: Array) -> tuple[Array, Array]:
    """Of the difference of means, by resampling the runs of each side."""
    random = np.random.default_rng(SEED)
    means = [side[random.integers(0, len(side), (RESAMPLED, len(side)))].mean(axis=1)
             for side in (a, b)]  # fmt: skip
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means[1] - means[0], [outside, 1 - outside], axis=0)
    return low, high


def lines(found: Explained, columns: int) -> Iterator[Styled]:
    whole = found.whole
    percent = f" ({100 * whole.change / whole.a:+.1f} %)" if whole.a else ""
    runs = "" if found.runs == (1, 1) else f"; {found.runs[0]} and {found.runs[1]} runs"
    yield f"{signed(whole.change)} elapsed: {show(whole.a, 'ns')} to {show(whole.b, 'ns')}" \
        f"{percent}{runs}", "bold"  # fmt: skip
    if whole.low is not None and whole.high is not None:
        sure = "" if whole.is_sure else "; the runs do not tell whether there is a difference"
        yield f"between {signed(whole.low)} and {signed(whole.high)}{sure}", ""
    yield "", ""
    yield f"  {'change':>10}  {'A':>9}  {'B':>9}", "dim"
    least = LEAST * max(sum(abs(part.change) for part in found.parts), 1)
    shown = [part for part in found.parts[:PARTS_MOST] if abs(part.change) >= least]
    for part in shown:
        yield row(part, f"{part.program}: {part.bin.phrase if part.bin else ''}", columns), ""
    rest = found.parts[len(shown) :]
    if rest:
        others = Part("", None, sum(p.a for p in rest), sum(p.b for p in rest))
        yield row(others, f"{len(rest):,} others", columns), "dim"
    if whole.low is None and found.runs != (1, 1):
        yield "", ""
        yield f"With {RUNS_MIN} runs of each there are intervals.", "dim"
    for note in found.notes:
        yield from wrapped(f" ! {note}", columns, "   ", "yellow")


def row(part: Part, what: str, columns: int) -> str:
    mark = "?" if part.low is not None and not part.is_sure else " "
    text = (f"  {signed(part.change):>10}{mark} {show(part.a, 'ns'):>9}"
            f"  {show(part.b, 'ns'):>9}  {what}")  # fmt: skip
    return cut(text, columns)


def signed(ns: float) -> str:
    return f"{'-' if ns < 0 else '+'}{show(abs(ns), 'ns')}"
