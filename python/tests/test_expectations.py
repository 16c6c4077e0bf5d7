# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each analysis of each schema against answers worked out by hand. One more case is one
more file.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import axes
import pytest
import support

import klogger
from klogger import executor, expectation, rules
from klogger.drawing import NOBODY, ON_PAGE, Palette, Theme
from klogger.executor import Result, Rows
from klogger.pictures import draw

CASES = sorted(support.SCHEMATA.glob("*/expect/*.expect"))


# Whose pictures the gate draws: together they have all kinds.
DRAWN = ("block", "scheduler")
FULL = pytest.mark.full("to draw the pictures takes as long as to find the answers")


def name_of(path: Path) -> str:
    return f"{path.parents[1].name}/{path.stem}"


@functools.cache
def answer_of(path: Path) -> Result:
    """Of the analysis, from a log of its own. Its pictures are another test's."""
    case = expectation.read(path)
    with tempfile.TemporaryDirectory() as folder:
        made = expectation.make(case, Path(folder) / "x.klog-parquet")
        with klogger.open(made, locked=True) as log, executor.Session(log) as session:
            one = session.find(case.schema, case.analysis)
            assert one is not None, f"no analysis '{case.analysis}'"
            return session.run(one)


@pytest.mark.parametrize("path", CASES, ids=name_of)
def test_expectation(path: Path) -> None:
    case = expectation.read(path)
    result = answer_of(path)
    assert result.status in ("answer", "empty"), result.reason
    if case.analysis != "spans":
        one = result.analysis
        assert rules.check_columns(one, "table", result.table.names) == []
        assert rules.check_columns(one, one.drawn, result.points.names) == []
    for section, given in (("table", result.table), ("picture", result.points)):
        if section in case.rows:
            assert picked(given, case.columns[section]) == case.rows[section]
    if "finding" in case.texts:
        assert result.findings == case.texts["finding"]
    warnings = case.texts.get("warning", [])
    assert [w[: len(t)] for w, t in zip(result.warnings, warnings, strict=True)] == warnings


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path.parents[1].name in DRAWN else FULL, id=name_of(path))
        for path in CASES
    ],
)
def test_picture(path: Path) -> None:
    """It is one of Vega-Lite's, and its axes can be read."""
    result = answer_of(path)
    drawn = draw(result, Palette(), Theme())
    if drawn is None:
        return
    axes.check(drawn)
    on_page = draw(result, Palette(), ON_PAGE, subjects=NOBODY)
    axes.check(on_page)
    if result.analysis.picture.kind != "timeline":
        assert axes.faults_of(drawn) == []
        assert [fault for fault in axes.faults_of(on_page) if fault.startswith("Y:")] == []


def picked(given: Rows, columns: list[str]) -> list[list[str]]:
    return [[expectation.shown(record[c]) for c in columns] for record in given.records()]


def test_each_analysis_has_an_expectation() -> None:
    analyses = {
        (p.parents[1].name, p.stem)
        for p in support.SCHEMATA.glob("*/analyses/*.sql")
        if not p.name.startswith("_")
    }
    expected = {(p.parents[1].name, expectation.read(p).analysis) for p in CASES}
    assert analyses - expected == set()
