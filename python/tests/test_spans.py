# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tables of spans and operations, made of the files `spans.sql` of a log's schemata."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import support

import klogger
from klogger import checking, executor, expectation

SCHEMA = """// SPDX-License-Identifier: GPL-2.0-only
schema mine "What is mine"

event WAITED "a thread has waited" { int pid as thread  ulong ns in ns }
"""
SPANS = """-- SPDX-License-Identifier: GPL-2.0-only
CREATE TEMP VIEW mine_span AS
SELECT pid, time - ns AS from_ns, time AS to_ns, 'lock' AS layer, 'a lock' AS what, NULL AS device,
       NULL AS inode, NULL AS helper, true AS waits
FROM WAITED;
"""
ANALYSIS = """-- SPDX-License-Identifier: GPL-2.0-only
-- title: Waits
-- question: Who waits?
-- events: WAITED
-- column waits [count]: waits

-- table
SELECT count(*) AS waits FROM klogger.span WHERE waits;
"""


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    file = tmp_path / "mine" / "mine.klogger"
    file.parent.mkdir()
    file.write_text(SCHEMA)
    (file.parent / "spans.sql").write_text(SPANS)
    (file.parent / "analyses").mkdir()
    (file.parent / "analyses" / "waits.sql").write_text(ANALYSIS)
    return file


@pytest.fixture
def log(schema: Path, tmp_path: Path) -> Path:
    return log_of(schema, tmp_path / "x.klog-parquet")


def log_of(schema: Path, out: Path, ns: int = 30) -> Path:
    con = duckdb.connect()
    support.create_tables(con, support.events_of(str(schema)))
    con.execute("INSERT INTO WAITED (time, cpu, serial, pid, ns) VALUES (100, 0, 1, 7, ?)", [ns])
    return support.write_log(con, out, schema=str(schema), processes=[(7, "waiter", 0, None)])


@pytest.fixture(params=["locked", "open"])
def opened(request: pytest.FixtureRequest, log: Path) -> Iterator[klogger.Log]:
    with klogger.open(log, locked=request.param == "locked") as found:
        yield found


def test_spans_are_made_when_they_are_asked_for(opened: klogger.Log) -> None:
    assert opened.rows("FROM klogger.span") == []
    opened.sql("SELECT 1")
    assert opened.filled == {}
    query = "SELECT schema, pid, from_ns, to_ns, layer, what, device, waits FROM klogger.span"
    wanted = [("mine", 7, 70, 100, "lock", "a lock", None, True)]
    assert opened.sql(query).fetchall() == wanted
    assert opened.sql("FROM klogger.span").fetchall() == opened.rows("FROM klogger.span")
    assert opened.filled == {"made_span": []}


def test_an_analysis_has_the_spans(opened: klogger.Log) -> None:
    (result,) = executor.run_all(opened, executor.choose(opened))
    assert (result.table.rows, result.warnings) == ([[1]], [])


FAULTS = {
    "no such table": ("mine_span", "my_span", "makes no temporary table or view 'mine_span'"),
    "no column": ("AS waits", "AS wait", "has no column 'waits'"),
    "another type": ("true AS waits", "'yes' AS waits", "column waits of mine_span is VARCHAR"),
    "one more": ("true AS waits", "true AS waits, 1 AS more", "has an unknown column 'more'"),
    "layer": ("'lock' AS", "'locks' AS", "unknown layer 'locks'"),
    "SQL": ("FROM WAITED", "FROM WAITING", "  line 5: FROM WAITING"),
    "value": ("pid,", "pid + 5000000000 AS pid,", "out of range"),
    "a file": ("FROM WAITED", "FROM '/etc/passwd'", "spans.sql"),
    "order": ("time AS to_ns", "time - 90 AS to_ns", "1 spans end before they begin"),
}


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_the_spans_and_a_warning(fault: str, schema: Path, log: Path) -> None:
    old, new, message = FAULTS[fault]
    file = schema.parent / "spans.sql"
    file.write_text(SPANS.replace(old, new))
    with klogger.open(log, locked=True) as opened:
        (result,) = executor.run_all(opened, executor.choose(opened))
        assert (result.status, result.table.rows) == ("answer", [[0]])
        (warning,) = result.warnings
        assert message in warning
        assert str(file) in warning


def test_the_text_of_a_request_has_its_bytes_and_its_place(schema: Path, log: Path) -> None:
    file = schema.parent / "spans.sql"
    file.write_text(SPANS.replace("true AS waits", "true AS waits, 512 AS bytes, 8 AS sector"))
    with klogger.open(log, locked=True) as opened:
        assert opened.sql("SELECT what FROM klogger.span").fetchall() == [("a lock 512 B at 8",)]


def test_spans_and_analyses_share_what_they_include(schema: Path, log: Path) -> None:
    """An include that is run twice would fail: its table is there."""
    folder = schema.parent / "analyses"
    (folder / "_mine.sql").write_text("CREATE TEMP TABLE mine_wait AS FROM WAITED;")
    included = SPANS.replace("FROM WAITED", "FROM mine_wait")
    (schema.parent / "spans.sql").write_text("-- include: _mine\n" + included)
    before, _, table = ANALYSIS.partition("\n-- table")
    (folder / "waits.sql").write_text(f"{before}-- include: _mine\n\n-- table{table}")
    with klogger.open(log, locked=True) as opened, executor.Session(opened) as session:
        (one,) = session.analyses
        result = session.run(one)
        assert (result.table.rows, result.warnings) == ([[1]], [])
        assert session.connection(one)[1] == {"_mine"}
        names = session.prepared(one).execute(
            "SELECT table_name FROM duckdb_tables() WHERE temporary"
        )
        assert names.fetchall() == [("mine_wait",)]


def test_an_included_file_is_that_of_the_analyses(schema: Path, log: Path) -> None:
    text = "CREATE TEMP VIEW mine_wait AS FROM WAITED;"
    (schema.parent / "analyses" / "_mine.sql").write_text(text)
    spans = "-- include: _mine\n" + SPANS.replace("FROM WAITED", "FROM mine_wait")
    (schema.parent / "spans.sql").write_text(spans)
    with klogger.open(log, locked=True) as opened:
        assert opened.sql("SELECT pid FROM klogger.span").fetchall() == [(7,)]


def test_losses_of_the_events_are_warned_of(schema: Path, tmp_path: Path) -> None:
    con = duckdb.connect()
    support.create_tables(con, support.events_of(str(schema)))
    loss = {"key": "ring_full", "count": 3, "cpu": 0, "event": "WAITED"}
    log = support.write_log(
        con, tmp_path / "lost", schema=str(schema), processes=[], ledger=[loss]
    )  # fmt: skip
    with klogger.open(log, locked=True) as opened:
        opened.sql("FROM klogger.span")
        assert opened.filled["made_span"]
        (result,) = executor.run_all(opened, executor.choose(opened))
        assert result.warnings == opened.filled["made_span"]


def test_spans_have_expectations(schema: Path) -> None:
    expect = schema.parent / "expect"
    expect.mkdir()
    case = (
        "analysis: spans\nlog:\n  100ns 0 WAITED pid=7 ns=30ns\n"
        "table: pid from_ns to_ns layer\n  7 70 100 lock\n"
    )
    (expect / "spans.expect").write_text(case)
    checked = checking.check(schema.parent / "spans.sql")
    assert (checked.faults, checked.expectations) == ([], 1)
    (expect / "spans.expect").write_text(case.replace("7 70", "7 71"))
    (fault,) = checking.check(schema.parent / "spans.sql").faults
    assert "expected: 7 71 100 lock; is: 7 70 100 lock" in fault
    assert expectation.read(expect / "spans.expect").analysis == "spans"
