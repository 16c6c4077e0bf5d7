# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Axes that stay where they are from one frame to the next, as long as they show the new rows well.
Then a browser has only to exchange the rows of a picture.
"""

from __future__ import annotations

import math
from typing import Any

# An axis stays unless what is new fills less than this part of it.
FILLED = 0.5
# One that must be longer is made longer than it must be, for the next frames.
ROOM = 0.15


def steady(spec: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """The specification with the scales that it had, where they still fit. Without `before` it
    stays as it is.
    """
    return hold(spec, before) if before is not None else spec


def hold(new: Any, old: Any) -> Any:
    """The same, with held scales. Parts that are not alike keep what they have."""
    if isinstance(new, dict) and isinstance(old, dict):
        held = {k: hold(v, old.get(k)) if k != "datasets" else v for k, v in new.items()}
        if isinstance(new.get("scale"), dict) and isinstance(old.get("scale"), dict):
            held["scale"] = scale(new["scale"], old["scale"])
        return held
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [hold(n, o) for n, o in zip(new, old, strict=True)]
    return new


def scale(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    log = new.get("type") == "log"
    if is_number(new.get("domainMax")) and is_number(old.get("domainMax")):
        top = bounds((0, new["domainMax"]), (0, old["domainMax"]), log=False)[1]
        return {**new, "domainMax": top}
    ours, theirs = new.get("domain"), old.get("domain")
    if is_range(ours) and is_range(theirs):
        return {**new, "domain": list(bounds(ours, theirs, log=log))}
    return new


def bounds(new: Any, old: Any, *, log: bool) -> tuple[float, float]:
    """The old ones if they fit, else the new ones with room above."""
    if log and min(*new, *old) <= 0:
        return new[0], new[1]
    inner, outer = (math.log, math.exp) if log else (float, float)
    low, high = inner(new[0]), inner(new[1])
    first, last = inner(old[0]), inner(old[1])
    if first <= low and high <= last and high - low >= FILLED * (last - first):
        return old[0], old[1]
    # What has a natural end (a share: 1) does not grow beyond it.
    return new[0], outer(high + ROOM * (high - low)) if high > last else new[1]


def is_range(value: Any) -> bool:
    """Two numbers that rise: not a list of names, not an axis upside down."""
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(map(is_number, value))
        and value[0] < value[1]
    )


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
