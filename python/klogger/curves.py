# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where curves from 0 to 1 begin and end, for pictures, and for figures on a terminal, which do
without the library that draws pictures: it takes long to load.
"""

from __future__ import annotations

from collections.abc import Iterable

# Which part at each end is drawn larger.
END = 0.1

Curve = list[tuple[float, float]]


def span(curves: Iterable[Curve], low: float, high: float) -> tuple[float, float]:
    """From where the first of the curves reaches one height to where the last reaches the other."""
    return apart(min(reached(c, low) for c in curves), max(reached(c, high) for c in curves))


def reached(curve: Curve, height: float) -> float:
    points = sorted(curve)
    return next((x for x, y in points if y >= height), points[-1][0])


def apart(low: float, high: float) -> tuple[float, float]:
    """Wider, if it is hardly more than a point."""
    return (low, high) if high - low > 1e-9 * abs(high) else (min(low, 0.0), max(high, low + 1))
