# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How long the arms of a study are, so that all of it fits the budget."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from klogger_lab.machine import Machine, machine
from klogger_lab.study import discover, planning
from klogger_lab.study.model import Arm, Plan

Make = Callable[[float], list[Arm]]
# Its arms are chosen by what this machine has, and it asks other loggers for that.
ASKS = "loggers"


def equal(count: int, least: float = 0.0) -> Make:
    return lambda seconds: [Arm(f"{n}", ["x"], max(seconds / count, least)) for n in range(count)]


def test_recordings_and_the_analysis_are_part_of_the_budget() -> None:
    """12 s: 1.2 s for the analysis, 1 s for the study, 1 s for each of four recordings."""
    assert planning.room(12) == pytest.approx(9.8)
    seconds = planning.arm_seconds(12, equal(4))
    assert seconds == pytest.approx(5.8, abs=0.1)
    assert planning.needed(equal(4)(seconds)) <= 9.8


def test_what_is_not_recorded_has_no_recording() -> None:
    assert planning.needed([Arm("a", [], 2.0), Arm("b", ["x"], 2.0)]) == 4 + planning.OVERHEAD


def test_a_study_may_leave_arms_out() -> None:
    def make(seconds: float) -> list[Arm]:
        count = min(max(int(seconds / 0.5), 2), 9)
        return equal(count, 0.5)(seconds)

    seconds = planning.arm_seconds(12, make)
    assert len(make(seconds)) == 6
    assert planning.needed(make(seconds)) <= planning.room(12)
    assert len(make(planning.arm_seconds(60, make))) == 9


def test_less_than_the_least_does_not_fit() -> None:
    """Nine arms of half a second, each with its recording: 13.5 s."""
    assert not planning.fits(16, equal(9, 0.5))
    assert planning.fits(16.2, equal(9, 0.5))
    assert planning.arm_seconds(5, equal(9, 0.5)) == pytest.approx(0, abs=0.1)


@pytest.fixture(scope="module")
def here() -> Machine:
    return machine()


@pytest.mark.parametrize("name", sorted(set(discover.files()) - {ASKS}))
@pytest.mark.parametrize("factor", [1, 1.5, 3, 10])
def test_each_study_fits_its_least_budget_and_any_other(
    name: str, factor: float, here: Machine, tmp_path: Path
) -> None:
    study = discover.load(discover.files()[name]).study

    def make(seconds: float) -> list[Arm]:
        return list(study.arms(Plan(here, seconds, tmp_path, lambda *_, **__: Path(os.devnull))))

    budget = study.least_seconds * factor
    assert planning.fits(budget, make), f"{name} in {budget} s"
