# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which findings a report begins with, and in which order."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path

import duckdb
import pytest
import support

import klogger
from klogger import executor, expectation, findings, summary
from klogger.analysis import Analysis
from klogger.cli import report
from klogger.executor import Result, weight_of


def result(name: str, *weights: float | None, status: str = "answer") -> Result:
    texts = [f"{name} {number}" for number in range(len(weights))]
    return Result(
        Analysis(name, Path(f"{name}.sql"), "s"), status, findings=texts, weights=list(weights)
    )


def first(*results: Result) -> list[str]:
    return [f.text for f in findings.first(results, 3)]


def test_the_heaviest_of_each_analysis_comes_first() -> None:
    assert first(
        result("a", 0.1), result("b", 0.2, 0.9, 0.8), result("c", 0.3), result("d", 0.2)
    ) == [
        "b 1",
        "c 0",
        "d 0",
    ]


def test_few_analyses_say_more_each() -> None:
    assert first(result("a", 0.1, 0.2), result("b", 0.15)) == ["a 1", "b 0", "a 0"]
    assert first(result("a", 0.1), result("b")) == ["a 0"]
    assert first() == []


def test_what_explains_next_to_nothing_is_left_out() -> None:
    """Beside what is a thousand times as heavy. Alone, it is what there is."""
    assert first(result("a", 0.0004, 0.0), result("b", None), result("c", 0.5)) == ["c 0", "b 0"]
    assert first(result("a", 0.0004, 0.0), result("b", None)) == ["a 0", "b 0"]


def test_seconds_of_an_hour_are_told() -> None:
    hour = 3600
    said = first(result("slept", 3000 / hour), result("waited", 15 / hour), result("x", 0.1 / hour))
    assert said == ["slept 0", "waited 0"]


def test_equals_keep_the_order_of_the_analyses() -> None:
    assert first(*(result(name, None) for name in "abcd")) == ["a 0", "b 0", "c 0"]


def test_what_is_no_answer_finds_nothing() -> None:
    assert first(result("a", 1.0, status="failed"), result("b", 0.1)) == ["b 0"]


@pytest.mark.parametrize(
    ("row", "weight"),
    [
        (["x"], None),
        (["x", None], None),
        (["x", "much"], None),
        (["x", True], None),
        (["x", 0], 0.0),
        (["x", 0.5], 0.5),
        (["x", -1], 0.0),
        (["x", 17], 1.0),
    ],
)
def test_weight(row: list[object], weight: float | None) -> None:
    assert weight_of(row) == weight


def schema_with(tmp_path: Path, **queries: str) -> str:
    """A schema file; its analyses have these findings."""
    folder = tmp_path / "mine" / "analyses"
    folder.mkdir(parents=True)
    for name, query in queries.items():
        (folder / f"{name}.sql").write_text(
            f"-- title: {name}\n-- question: Q?\n-- events: SCHEDIN\n-- column a: a\n\n"
            f"-- table\nSELECT 1 AS a;\n\n-- finding\n{query};\n"
        )
    return str(tmp_path / "mine" / "mine.klogger")


def test_they_come_in_the_order_of_the_section(small_log: Path, tmp_path: Path) -> None:
    """The first takes long, and DuckDB has a thread for each part."""
    slow = "FROM range(30_000_000) t(i) HAVING sum(sqrt(i)) > 0"
    file = schema_with(tmp_path, own=f"SELECT 'First.' {slow} UNION ALL SELECT 'Second.'")
    log = copy_with_schema(small_log, tmp_path / "x.klog-parquet", file)
    with klogger.open(log, locked=True) as opened, executor.Session(opened) as session:
        one = session.find("mine", "own")
        assert one is not None
        assert session.run(one).findings == ["First.", "Second."]


def test_their_order_lasts_as_long_as_any_connection_needs_it(small_log: Path) -> None:
    """DuckDB has one setting for all of them, and analyses are run at the same time."""
    setting = "SELECT current_setting('preserve_insertion_order')"
    with klogger.open(small_log, locked=True) as opened:
        one, other = opened.cursor(), opened.cursor()
        assert opened.rows(setting) == [(False,)]
        with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
            first.enter_context(opened.order.kept(one))
            second.enter_context(opened.order.kept(other))
            assert opened.rows(setting) == [(True,)]
            first.close()
            assert opened.rows(setting) == [(True,)]
            second.close()
            assert opened.rows(setting) == [(False,)]


def test_warnings_are_a_set_and_those_left_out_come_last(small_log: Path, tmp_path: Path) -> None:
    many = "SELECT format('{:02}', i % 30) FROM range(90) t(i) ORDER BY i DESC"
    file = schema_with(tmp_path, own=f"SELECT 'Said.';\n\n-- warning\n{many}")
    log = copy_with_schema(small_log, tmp_path / "x.klog-parquet", file)
    with klogger.open(log, locked=True) as opened, executor.Session(opened) as session:
        one = session.find("mine", "own")
        assert one is not None
        found = session.run(one)
        assert (found.status, found.findings) == ("answer", ["Said."])
        own = [said for said in found.warnings if said.isdigit()]
        assert own == [f"{number:02}" for number in range(executor.TEXTS_MAX)]


def test_every_output_begins_with_them(
    capsys: pytest.CaptureFixture[str],
    small_log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = schema_with(
        tmp_path,
        light="SELECT 'Something light.', 0.06 AS weight",
        heavy="SELECT 'Something heavy.', 0.75 AS weight",
        nothing="SELECT NULL, 1.0 AS weight",
        unsure="SELECT 'Something.', NULL AS weight",
        most="SELECT * FROM (VALUES ('Most of all.', 1::DECIMAL(4, 2)), ('Less.', 0.5))",
    )
    log = copy_with_schema(small_log, tmp_path / "x.klog-parquet", file)
    page = tmp_path / "x.html"
    assert report.main([str(log), "--format", "json", "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(f["text"], f["weight"], f["analysis"]) for f in found["findings"]] == [
        ("Most of all.", 1.0, "most"),
        ("Something heavy.", 0.75, "heavy"),
        ("Less.", 0.5, "most"),
        ("Something light.", 0.06, "light"),
        ("Something.", None, "unsure"),
    ]
    assert {a["name"]: a["weights"] for a in found["analyses"]} == {
        "heavy": [0.75], "light": [0.06], "most": [1.0, 0.5], "nothing": [], "unsure": [None],
    }  # fmt: skip
    assert report.main([str(log)]) == 0
    lines = capsys.readouterr().out.splitlines()
    bullets = [line.rstrip() for line in lines if line.startswith(" •")]
    assert bullets[:5] == [
        " • Most of all.  [most]",
        " • Something heavy.  [heavy]",
        " • Less.  [most]",
        " • Something light.  [light]",
        " • Something.  [unsure]",
    ]
    items = page.read_text().split('<ol class="findings">')[1].split("</ol>")[0]
    assert [item.split(" <a")[0] for item in items.split("<li>")[1:]] == [
        "Most of all.",
        "Something heavy.",
        "Less.",
        "Something light.",
        "Something.",
    ]


def copy_with_schema(log: Path, to: Path, file: str) -> Path:
    """A copy of a log whose events are all those of the schema `file`."""
    to.mkdir()
    for table in log.iterdir():
        (to / table.name).write_bytes(table.read_bytes())
    con = duckdb.connect()
    con.execute(f"CREATE TABLE e AS SELECT * REPLACE ('mine' AS schema) FROM '{log}/event.parquet'")
    con.execute(f"COPY e TO '{to}/event.parquet'")
    meta = json.loads((log / "meta.json").read_text())
    meta["preamble"]["schemas"] = [{"name": "mine", "file": file, "user": False}]
    (to / "meta.json").write_text(json.dumps(meta))
    return to


@pytest.mark.parametrize(("took", "weight"), [("1us", 0.003), ("100us", 0.3)])
def test_calls_weigh_as_much_as_the_time_that_they_took(
    tmp_path: Path, took: str, weight: float
) -> None:
    """And not their share of all calls: three failed opens stood before seconds of waiting."""
    case = expectation.Expectation(tmp_path, "files", "files", "guessed")
    for number in (1, 2, 3):
        case.log += [
            f"{number}us 0 NAMED file={number} path=/d/{number}",
            f"{number}us 0 LOOK file={number} result=-2 call=openat tid=10 took={took}",
        ]
    case.log += ["process 10 prog", "end 1ms"]
    log = expectation.make(case, tmp_path / "x.klog-parquet")
    with klogger.open(log, locked=True) as opened:
        (one,) = executor.run_all(opened, executor.choose(opened, ["guessed"]))
    assert one.weights == [pytest.approx(weight)]


def test_a_choice_that_matched_no_thread_is_told(tmp_path: Path) -> None:
    log = support.empty_log(tmp_path / "x.klog-parquet", "lifecycle")
    meta = json.loads((log / "meta.json").read_text())
    meta["preamble"]["recorder"] = {"threads": {"comms": ["nosuchname"]}}
    (log / "meta.json").write_text(json.dumps(meta))
    with klogger.open(log) as opened:
        opened.events["MARK"] = dataclasses.replace(
            opened.events["ENDED"], name="MARK", schema="klogger", logged=1
        )
        warnings = summary.summary(opened).warnings
    assert warnings == [
        "no event was logged of threads named nosuchname: perhaps no thread matched"
    ]
