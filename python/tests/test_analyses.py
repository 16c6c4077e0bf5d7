# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The rules that every analysis keeps, and what is said of one that does not."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
import support

import klogger
from klogger import analysis, executor, expectation, pictures, rules

ANALYSES = sorted(
    p for p in support.SCHEMATA.glob("*/analyses/*.sql") if not p.name.startswith("_")
)
GOOD = """-- title: T
-- question: Q?
-- events: SCHEDIN
-- picture: bars x=n y=program
-- column program: program
-- column n [count]: how often,
--   counted
-- note: N

-- table
SELECT 'a' AS program, 1 AS n;
"""


@pytest.mark.parametrize("path", ANALYSES, ids=lambda p: f"{p.parents[1].name}/{p.stem}")
def test_analysis_keeps_the_rules(path: Path) -> None:
    """Those of its text. Of the columns of its answer, see test_expectations."""
    schema = path.parents[1].name
    case = a_case_of(path)
    one = analysis.parse(path, schema)
    assert rules.check(one, [e.name for e in support.events_of(schema, *case.others)]) == []
    assert path.read_text().startswith("-- SPDX-License-Identifier: GPL-2.0-only\n")


def test_analyses_of_the_small_log_keep_the_rules(small_log: Path) -> None:
    log = klogger.open(small_log, locked=True)
    for result in executor.run_all(log, executor.choose(log)):
        one = result.analysis
        assert result.status in ("answer", "empty"), result.reason
        assert rules.check_columns(one, "table", result.table.names) == [], one.name
        assert rules.check_columns(one, one.drawn, result.points.names) == [], one.name


def a_case_of(path: Path) -> expectation.Expectation:
    """An expectation of this analysis: its log has what the analysis needs."""
    return next(case for case in cases_in(path.parents[1]) if case.analysis == path.stem)


@functools.cache
def cases_in(folder: Path) -> list[expectation.Expectation]:
    return [expectation.read(path) for path in sorted(folder.glob("expect/*.expect"))]


def parsed(tmp_path: Path, text: str) -> analysis.Analysis:
    path = tmp_path / "x.sql"
    path.write_text(text)
    return analysis.parse(path, "scheduler")


def test_header(tmp_path: Path) -> None:
    one = parsed(tmp_path, GOOD)
    assert rules.check(one, ["SCHEDIN"]) == []
    assert one.columns["n"] == analysis.Column("n", "count", False, "how often, counted")
    assert one.picture == analysis.Picture("bars", {"x": "n", "y": "program"})
    assert one.sections == {"table": "SELECT 'a' AS program, 1 AS n"}


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("-- title: T\n", "", "no title"),
        ("-- table\n", "", "no section 'table'"),
        ("SCHEDIN", "SCHEDINN", "the schema has no event SCHEDINN"),
        ("[count]", "[counts]", "column n: unknown unit 'counts'; known: "),
        ("program: program", "program:", "column program is not documented"),
        ("bars x", "pie x", "unknown kind of picture 'pie'; known: "),
        ("x=n ", "", "a bars needs x=..."),
        ("y=program", "y=program size=n", "a bars has no part 'size'"),
        ("y=program", "y=program scale=cubic", "unknown scale 'cubic'; known: linear, log"),
        ("-- note: N", "-- include: _none", "no file _none.sql to include"),
    ],
)
def test_faults(tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in GOOD
    faults = rules.check(parsed(tmp_path, GOOD.replace(old, new)), ["SCHEDIN"])
    assert len(faults) == 1
    assert faults[0].message.startswith(fault)


def test_column_that_is_not_documented(tmp_path: Path) -> None:
    one = parsed(tmp_path, GOOD)
    faults = rules.check_columns(one, "table", ["program", "n", "m"])
    assert [f.message for f in faults] == ["column m of section 'table' is not documented"]
    faults = rules.check_columns(one, "table", ["program"])
    assert [f.message for f in faults] == [
        "the picture uses column n, which section 'table' does not have"
    ]


def test_unknown_header_key(tmp_path: Path) -> None:
    one = parsed(tmp_path, GOOD.replace("title:", "titel:"))
    assert one.said(one.faults) == (
        f"{one.path}:1:4: unknown header key 'titel'\n"
        "  line 1: -- titel: T\n"
        "             ^^^^^\n"
        "  help: did you mean title?"
    )


def test_all_kinds_of_pictures_can_be_drawn() -> None:
    assert set(pictures.PICTURES) == set(analysis.KINDS) - analysis.ON_PAGES


def test_the_documentation_shows_each_kind() -> None:
    docs = support.ROOT / "docs"
    text = (docs / "analyses.md").read_text()
    for kind, (must, may) in analysis.KINDS.items():
        shown = re.search(rf"\*\*`{kind}`\*\* .*?!\[[^]]+\]\(([^)]+)\)", text, re.S)
        assert shown is not None
        assert (docs / shown[1]).read_bytes().startswith(b"\x89PNG")
        given = re.search(rf"\*\*`{kind}`\*\* \(([^)]*)\)", text)
        assert given is not None
        words = set(re.findall(r"\w+", given[1]))
        assert words == must | may
        example = re.search(rf"`-- picture: {kind} ([^`]*)`", text)
        assert example is not None
        parts = {word.partition("=")[0] for word in example[1].split()}
        assert must <= parts <= must | may


def test_wrong_sql_is_said_with_its_place(tmp_path: Path, small_log: Path) -> None:
    one = parsed(tmp_path, GOOD.replace("1 AS n", "nn"))
    log = klogger.open(small_log, locked=True)
    (result,) = executor.run_all(log, [one])
    assert result.status == "failed"
    assert "x.sql, section 'table': Referenced column \"nn\" was not found" in result.reason
