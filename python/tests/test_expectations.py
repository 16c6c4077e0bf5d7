# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each analysis of each schema against answers worked out by hand. One more case is one
more file.
"""

from __future__ import annotations

from pathlib import Path

import axes
import pytest
import support

import klogger
from klogger import executor, expectation
from klogger.drawing import NOBODY, ON_PAGE, Palette, Theme
from klogger.executor import Rows
from klogger.pictures import draw

CASES = sorted(support.SCHEMATA.glob("*/expect/*.expect"))


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parents[1].name}/{p.stem}")
def test_expectation(path: Path, tmp_path: Path) -> None:
    case = expectation.read(path)
    log = klogger.open(expectation.make(case, tmp_path / "x.klog-parquet"), locked=True)
    with executor.Session(log) as session:
        one = session.find(case.schema, case.analysis)
        assert one is not None, f"no analysis '{case.analysis}'"
        result = session.run(one)
    assert result.status in ("answer", "empty"), result.reason
    for section, given in (("table", result.table), ("picture", result.points)):
        if section in case.rows:
            assert picked(given, case.columns[section]) == case.rows[section]
    if "finding" in case.texts:
        assert result.findings == case.texts["finding"]
    drawn = draw(result, Palette(), Theme())
    if drawn is not None and result.analysis.picture.kind != "timeline":
        assert axes.faults_of(drawn) == []
        on_page = draw(result, Palette(), ON_PAGE, subjects=NOBODY)
        assert [fault for fault in axes.faults_of(on_page) if fault.startswith("Y:")] == []
    warnings = case.texts.get("warning", [])
    assert [w[: len(t)] for w, t in zip(result.warnings, warnings, strict=True)] == warnings


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
