# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study of useless work, of a log whose findings were worked out by hand: D1 of /c twice, D4 of
/d/x# 5 times, D16 of thread 11 20 times.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import support

import klogger
from klogger import expectation
from klogger_lab.machine import Machine
from klogger_lab.study import discover
from klogger_lab.study.model import Answer, Arm, Plan, Run

FOLDER = support.SCHEMATA / "useless"
FOUND = discover.load(FOLDER / "studies" / "dumbthings.py")
D1 = {"rule": "D1", "pid": 10, "planted": True, "object": "/c", "times": 2}
D4 = {"rule": "D4", "pid": 10, "planted": True, "object": "/d/x#", "times": 5}
D16 = {"rule": "D16", "pid": 11, "planted": True, "object": "thread 11", "times": 21}


def answer(tmp_path: Path, *zoo: dict[str, Any]) -> Answer:
    """Of the zoo alone."""
    path = tmp_path / "zoo.klog-parquet"
    case = expectation.read(FOLDER / "expect" / "findings.expect")
    log = klogger.open(expectation.make(case, path))
    machine = Machine(2, "6.1.0", "a CPU", 0, 0, 0, 250, False, "tsc")
    plan = Plan(machine, 60, tmp_path, lambda name: tmp_path / Path(name).stem)
    output = "\n".join(map(json.dumps, [{"runner": 99}, *zoo]))
    return FOUND.study.analyse(plan, [Run(Arm("zoo", ["true"], 1), log, output)])


def scored(given: Answer) -> dict[str, dict[str, Any]]:
    (score,) = [r for r in given.results if r.analysis.name == "score"]
    return {row[0]: dict(zip(score.table.names, row, strict=True)) for row in score.table.rows}


def checks(given: Answer) -> dict[str, bool]:
    return {check.name: check.ok for check in given.checks if not check.name.startswith("D23")}


def test_all_is_found(tmp_path: Path) -> None:
    given = answer(tmp_path, D1, D4, D16)
    assert {rule: row["recall"] for rule, row in scored(given).items()} == {
        "D1": 1, "D4": 1, "D16": 1,
    }  # fmt: skip
    assert checks(given) == {"recall": True, "precision": True, "twins": True}


@pytest.mark.full("takes more than 3 s")
def test_another_number_is_a_miss_and_a_false_finding(tmp_path: Path) -> None:
    given = answer(tmp_path, D1, {**D4, "times": 9}, D16)
    row = scored(given)["D4"]
    assert (row["found"], row["missed"], row["false"], row["recall"]) == (0, 1, 1, 0)
    assert row["why"] == "not found 9 times"
    assert checks(given) == {"recall": False, "precision": False, "twins": True}


@pytest.mark.full("takes more than 3 s")
def test_a_finding_in_a_twin(tmp_path: Path) -> None:
    given = answer(tmp_path, D1, D4, {**D16, "planted": False})
    assert scored(given)["D16"]["twins"] == 1
    assert not checks(given)["twins"]


def test_polls_at_no_steady_pace_are_a_miss_and_no_false_finding() -> None:
    score = FOUND.study.analyse.__globals__["score"]
    planted = {"rule": "D13", "pid": 10, "planted": True, "object": "/c", "times": 17}
    asked = {"rule": "D5", "pid": 10, "object": "/c", "times": 16}
    polled = {"rule": "D13", "pid": 10, "object": "/c", "times": 17}

    def said(*found: dict[str, Any]) -> list[tuple[str, int, int, int]]:
        made = score.scores([planted], found)
        return [(each.rule, each.true, len(each.missed), len(each.false)) for each in made]

    assert said(asked) == [("D13", 0, 1, 0)]
    assert said(polled) == [("D13", 1, 0, 0)]
    # Not both, nor of another file.
    assert said(polled, asked) == [("D5", 0, 0, 1), ("D13", 1, 0, 0)]
    assert said({**asked, "object": "/d"}) == [("D5", 0, 0, 1), ("D13", 0, 1, 0)]


def test_what_could_not_be_planted_is_said(tmp_path: Path) -> None:
    skipped = {"rule": "D11", "pid": 12, "planted": True, "skipped": "no interrupt"}
    given = answer(tmp_path, D1, D4, D16, skipped)
    assert "D11: no interrupt." in given.cannot
    assert scored(given)["D11"]["recall"] is None
    assert checks(given)["recall"]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_the_compiler_sees_d23(tmp_path: Path) -> None:
    (check,) = [c for c in answer(tmp_path, D1).checks if c.name == "D23 by gcc"]
    assert check.ok and check.text == "7 warnings of 7 planted, 0 in the twin"
