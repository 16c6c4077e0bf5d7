# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`import klogger`, as docs/python.md describes it."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
import support

import klogger
from klogger.answers import Report


@pytest.fixture
def log(small_log: Path) -> klogger.Log:
    return klogger.open(small_log)


def with_decodings(out: Path) -> Path:
    """A log whose events say which fields have texts, as the exporter writes it."""
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    con.execute(
        "INSERT INTO SCHEDOUT VALUES (20, 0, 1, 7, 120, 1, 0, 0), (10, 1, 2, 7, 120, 0, 0, 0)"
    )
    support.write_log(con, out, processes=[(7, "sh", 0, None)])
    con.execute(f"CREATE TABLE e AS FROM '{out}/event.parquet'")
    ((fields,),) = con.execute("SELECT fields FROM e WHERE name = 'SCHEDOUT'").fetchall()
    found = json.loads(fields)
    for one in found:
        if one["name"] == "state":
            one["decode"] = {"table": "task_state"}
        if one["name"] == "prio":
            one["decode"] = {"table": "no_such_decoding"}
        if one["name"] == "pid":
            one["decode"] = "thread"
        if one["name"] == "next":
            one["decode"], one["shape"] = {"table": "task_state"}, {"array": 2}
    con.execute("UPDATE e SET fields = $1 WHERE name = 'SCHEDOUT'", [json.dumps(found)])
    con.execute(f"COPY e TO '{out}/event.parquet'")
    return out


def test_log_is_closed_by_with(small_log: Path) -> None:
    with klogger.open(small_log) as log:
        assert log.sql("SELECT count(*) AS n FROM SCHEDIN").df()["n"].tolist() == [40]
    with pytest.raises(duckdb.ConnectionException):
        log.rows("SELECT 1")


def test_a_prompt_shows_one_line(small_log: Path) -> None:
    with klogger.open(small_log) as log:
        shown = repr(log)
    events = sum(event.logged for event in log.events.values())
    types = sum(1 for event in log.events.values() if event.logged)
    assert shown == f"<klogger.Log {small_log.name}: {events} events of {types} types>"
    assert repr(log) == shown, "closed"


def test_events_are_in_the_order_of_time(log: klogger.Log) -> None:
    found = log.events("schedin").df()
    assert len(found) == log.events["SCHEDIN"].logged == 40
    assert found["time"].is_monotonic_increasing
    assert list(found.columns) == ["time", "cpu", "serial", "pid", "prio", "tgid"]


def test_events_have_texts_where_the_schema_has_them(tmp_path: Path) -> None:
    with klogger.open(with_decodings(tmp_path / "x.klog-parquet")) as log:
        assert log.events("SCHEDOUT").df()["state"].tolist() == ["0", "S"]
        assert log.events("SCHEDOUT", raw=True).df()["state"].tolist() == [0, 1]
        # Of what has no function, and of lists, the numbers.
        assert log.events("SCHEDOUT").df()["prio"].tolist() == [120, 120]
        assert log.events("SCHEDOUT").df()["next"].tolist() == [0, 0]


def test_event_that_is_not_there(log: klogger.Log) -> None:
    with pytest.raises(klogger.Failure) as failure:
        log.events("SCHEDINN")
    assert failure.value.message == "the log has no event 'SCHEDINN'"
    assert failure.value.help == "did you mean SCHEDIN or SCHEDOUT?"
    with pytest.raises(klogger.Failure, match="it has: "):
        log.events("zzz")


def test_wrong_queries_say_what_was_meant(log: klogger.Log) -> None:
    with pytest.raises(klogger.Failure) as failure:
        log.sql("SELECT tme\nFROM SCHEDIN")
    assert "line 1: SELECT tme" in str(failure.value)
    assert "did you mean time?" in str(failure.value)
    with pytest.raises(klogger.Failure, match="SCHEDIN"):
        log.sql("SELECT * FROM SCHEDINN")


def test_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(klogger.Failure) as failure:
        klogger.open(tmp_path / "x.klog")
    assert failure.value.message == f"{tmp_path}/x.klog: no such file"


def test_ledger(log: klogger.Log, tmp_path: Path) -> None:
    assert log.ledger.fetchall() == []
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    entry = {"key": "ring_full", "count": 3, "cpu": 0}
    out = support.write_log(con, tmp_path / "x.klog-parquet", processes=[], ledger=[entry])
    with klogger.open(out) as lossy:
        assert lossy.ledger.df()[["key", "count"]].values.tolist() == [["ring_full", 3]]


def test_analyses(log: klogger.Log) -> None:
    assert (
        log.analyses()["quanta"]
        == "How long does a program run before its CPU is given to another?"
    )


def test_report(log: klogger.Log) -> None:
    found = log.report("quanta", "migrations")
    assert isinstance(found, Report)
    assert [a.name for a in found] == ["quanta", "migrations"]
    quanta = found["quanta"]
    assert quanta.status == "answer"
    assert quanta.df()["quanta"].sum() == 40
    assert quanta.units["p50"] == "ns"
    assert len(quanta.points()) == len(quanta.result.points.rows) > 0
    assert (quanta.svg() or "").startswith("<svg")
    assert found.findings
    assert "quanta" in repr(found)
    with pytest.raises(klogger.Failure, match="did you mean quanta"):
        found["quantas"]
    with pytest.raises(klogger.Failure, match="no analysis 'nothing'"):
        log.report("nothing")
    # A report leaves the log as it was.
    assert log.sql("SELECT count(*) FROM SCHEDIN").fetchall() == [(40,)]


def test_report_of_an_empty_log(empty_log: Path) -> None:
    with klogger.open(empty_log) as log:
        found = log.report()
    assert {a.status for a in found} <= {"empty", "not_recorded", "answer"}
    assert found["quanta"].df().empty
    assert "Nothing" not in found._repr_html_() and found["quanta"].reason in found._repr_html_()


def test_notebook_sees_pictures_and_no_markup_of_the_log(tmp_path: Path) -> None:
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    con.execute("INSERT INTO SCHEDIN VALUES (1000, 0, 1, 7, 120, 7)")
    con.execute("INSERT INTO SCHEDOUT VALUES (9000, 0, 2, 7, 120, 1, 0, 0)")
    out = support.write_log(
        con, tmp_path / "x.klog-parquet", processes=[(7, "<b>\x1b[1m", 0, None)], end=10_000
    )
    with klogger.open(out) as log:
        text = log.report("quanta")._repr_html_()
    assert "<b>" not in text and "\x1b" not in text
    assert text.count("<svg") == 1 and "<script" not in text


def test_report_is_saved_as_a_page(
    small_log: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with klogger.open(small_log) as log:
        report = log.report("quanta")
    report.save(tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text()
    assert (
        text.startswith("<!doctype html>") and 'id="quanta"' in text and 'id="switches"' not in text
    )
    assert capsys.readouterr().out == ""
    with pytest.raises(klogger.Failure, match="cannot write"):
        report.save(tmp_path / "x.html" / "y.html")
    monkeypatch.chdir(tmp_path)
    report.save("--html")
    assert (tmp_path / "--html").read_text() == text


def test_report_sees_no_other_files(small_log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "analyses"
    folder.mkdir(parents=True)
    (tmp_path / "secret.csv").write_text("a\n1\n")
    (folder / "read.sql").write_text(
        "-- title: T\n-- question: Q?\n-- events: SCHEDIN\n-- column a: a\n\n"
        f"-- table\nSELECT a FROM '{tmp_path}/secret.csv';\n"
    )
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    file = str(tmp_path / "mine" / "mine.klogger")
    meta = {"schemas": [{"name": "mine", "file": file}]}
    out = support.write_log(con, tmp_path / "x.klog-parquet", processes=[], meta=meta)
    with klogger.open(out) as log:
        assert log.report("read")["read"].status == "failed"
