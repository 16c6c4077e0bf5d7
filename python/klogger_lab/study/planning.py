# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long the arms of a study may be, so that all of it takes no longer than its budget: the arms,
a second for each to start and end its recording and to open its log, and the analysis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from klogger_lab.study.model import Arm

# Seconds that a recording takes to begin and to end, and its log to be opened.
OVERHEAD = 1.0
# Seconds to begin and to end a study, and the part of the budget that its analysis takes.
START = 1.0
ANALYSIS = 0.1
# Halvings of what is not known of the time for the arms.
STEPS = 7


def room(budget: float) -> float:
    """What is there for the arms and their recordings."""
    return max(budget * (1 - ANALYSIS) - START, 0.0)


def needed(arms: Sequence[Arm]) -> float:
    """What arms take with their recordings. One without a command is not recorded."""
    return sum(arm.seconds + (OVERHEAD if arm.command else 0.0) for arm in arms)


def fits(budget: float, make: Callable[[float], Sequence[Arm]]) -> bool:
    """Whether a study can be done in so little time at all."""
    return needed(make(arm_seconds(budget, make))) <= room(budget)


def arm_seconds(budget: float, make: Callable[[float], Sequence[Arm]]) -> float:
    """The most seconds for all arms with which what `make` plans fits; if nothing does, the least.

    With fewer seconds a study plans shorter arms, or leaves some out: how many, only it knows. So
    it is asked again and again.
    """
    high = room(budget)
    if needed(make(high)) <= room(budget):
        return high
    low = 0.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        if needed(make(middle)) <= room(budget):
            low = middle
        else:
            high = middle
    return low
