# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The head of a report: what is missing, what several answers warn of, and the findings; the same
in the terminal, on the page and in JSON.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
import support

import klogger
from klogger import ledger, losses, remarks
from klogger.analysis import Analysis
from klogger.cli import report
from klogger.executor import Result

RING = "the ring was full. Remedy: use a larger ring"
EXCLUDED = "--cpu or --where excluded events, which were not counted. Remedy: none needed"
LOST = {"key": "ring_full", "event": "SCHEDIN", "from_ns": 10, "to_ns": 20, "text": RING}


def entry(key: str, severity: str, text: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "severity": severity, "count": 0, "text": text, **more}


LEDGER = [
    {**LOST, "cpu": 0, "count": 3},
    {**LOST, "cpu": 1, "count": 4, "from_ns": 2_000_000_000, "to_ns": 2_500_000_000},
    entry("excluded", "info", f"only SCHEDOUT with: prio < 120: {EXCLUDED}", event="SCHEDOUT"),
    entry("excluded", "info", f"only events of CPU 0: {EXCLUDED}"),
    entry("ring_grown", "info", "from 64 KiB to 128 KiB: a ring was replaced", cpu=1),
]


def warned(name: str, *warnings: str) -> Result:
    return Result(Analysis(name, Path(f"{name}.sql"), "s"), warnings=list(warnings))


@pytest.fixture
def lossy(tmp_path: Path) -> Path:
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    for at in range(40):
        pid, start = 10 + at % 2, at * 50_000
        con.execute(f"INSERT INTO SCHEDIN VALUES ({start}, 0, {2 * at}, {pid}, 120, {pid})")
        con.execute(
            f"INSERT INTO SCHEDOUT VALUES ({start + 50_000}, 0, {2 * at + 1}, {pid}, 120, 0, 0, 0)"
        )
    processes = [(10, "a", 0, None), (11, "b", 0, None)]
    return support.write_log(
        con, tmp_path / "x.klog-parquet", processes=processes, end=3 * 10**9, ledger=LEDGER
    )


def said(capsys: pytest.CaptureFixture[str], log: Path, *words: str) -> str:
    assert report.main([str(log), *words]) == 0
    return capsys.readouterr().out


def test_what_two_answers_warn_of_is_said_once() -> None:
    results = [warned("a", "x", "y", "x"), warned("b", "x", "z"), warned("c")]
    said = remarks.shared(results)
    assert said == [remarks.Remark("x", ("a", "b"))]
    assert [remarks.own(r, said) for r in results] == [["y"], ["z"], []]


def test_what_the_head_says_is_not_repeated() -> None:
    results = [warned("a", "x", "y")]
    assert remarks.shared(results, ["x"]) == [remarks.Remark("x", ("a",))]


def test_many_analyses_are_counted() -> None:
    assert remarks.Remark("x", tuple("abcd")).names() == "a, b, c, d"
    assert remarks.Remark("x", tuple("abcdef")).names() == "a, b, c, d and 2 more"


def test_the_ledger_has_a_row_for_each_kind(lossy: Path) -> None:
    found = ledger.read(klogger.open(lossy))
    assert [kind.cells() for kind in found.kinds] == [
        ("ring_full", "SCHEDIN", "CPU 0, 1", "0.000000 s to 2.500000 s", "7"),
        ("excluded", "SCHEDOUT", "", "", ""),
    ]
    assert [kind.advice() for kind in found.kinds] == [
        "the ring was full. Use a larger ring",
        "only SCHEDOUT with: prio < 120; only events of CPU 0: --cpu or --where excluded events,"
        " which were not counted. None needed",
    ]
    assert found.losses() == ["ring_full (7): the ring was full. Use a larger ring"]


def test_moments_are_seconds_since_the_start() -> None:
    assert ledger.when(1_500_000_000, 1_600_000_000) == "1.500000 s to 1.600000 s"
    assert ledger.when(1_500_000_000, None) == "from 1.500000 s"
    assert ledger.when(1_500_000_000, 1_500_000_100) == "1.500000 s"
    assert ledger.when(None, 5) == ""


def test_what_was_excluded_is_said_of_the_answers_that_it_touches(lossy: Path) -> None:
    log = klogger.open(lossy)
    cpu = "only events of CPU 0; others are neither in the log nor counted, as requested"
    condition = cpu.replace("events of CPU 0", "SCHEDOUT with: prio < 120")
    assert losses.excluded(log, ["SCHEDIN"]) == [cpu]
    assert losses.excluded(log, ["SCHEDOUT"]) == [condition, cpu]
    assert losses.excluded(log) == [condition, cpu]


def test_each_remedy_and_each_warning_stand_once(
    capsys: pytest.CaptureFixture[str], lossy: Path, tmp_path: Path
) -> None:
    page = tmp_path / "x.html"
    said(capsys, lossy, "--html", str(page))
    on_page = re.sub(r"<script.*", "", page.read_text(), flags=re.DOTALL)
    on_page = on_page.partition('<section id="events">')[0]
    for text in (said(capsys, lossy), on_page):
        flat = " ".join(text.split())
        assert flat.count("se a larger ring") == 1
        assert flat.count("others are neither in the log nor counted") == 2
        assert flat.count("7 events are missing (SCHEDIN; CPU 0, 1; 0.000000 s to 2.500000 s)") == 1


def test_terminal_page_and_json_begin_with_the_same_findings(
    capsys: pytest.CaptureFixture[str], lossy: Path, tmp_path: Path
) -> None:
    page = tmp_path / "x.html"
    said(capsys, lossy, "--html", str(page))
    listed = re.search(r'<ol class="findings">(.*?)</ol>', page.read_text(), re.DOTALL)
    assert listed
    on_page = re.findall(r'<a href="#(\w+)">', listed[1])
    answers = json.loads(said(capsys, lossy, "--format", "json"))
    assert [f["analysis"] for f in answers["findings"]] == on_page
    head = " ".join(said(capsys, lossy).partition("Effective quanta")[0].split())
    places = [head.index(" ".join(f["text"].split())) for f in answers["findings"]]
    assert len(on_page) == 5 and places == sorted(places)


def test_json_has_the_ledger_and_whom_a_warning_is_about(
    capsys: pytest.CaptureFixture[str], lossy: Path
) -> None:
    found = json.loads(said(capsys, lossy, "--format", "json"))
    assert [(kind["key"], kind["count"]) for kind in found["ledger"]] == [
        ("ring_full", 7), ("excluded", 0),
    ]  # fmt: skip
    about = {w["text"]: w["analyses"] for w in found["warnings"]}
    condition = next(text for text in about if text.startswith("only SCHEDOUT with"))
    assert "quanta" in about[condition] and "migrations" not in about[condition]
