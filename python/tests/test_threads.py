# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Events that threads of programs logged: their tables have no CPU, and their losses are not the
kernel's.
"""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
import support

import klogger
from klogger import catalogue, html, losses
from klogger.stopwatch import measure

THREADS = "time BIGINT, cpu SMALLINT, serial BIGINT, tid INTEGER, tgid INTEGER"
LEDGER = [
    {"key": "ring_full", "count": 4, "event": "SCHEDIN", "cpu": 0, "from_ns": 50, "to_ns": 100},
    {
        "key": "ring_full",
        "count": 7,
        "event": "REQUEST",
        "tid": 31,
        "tgid": 30,
        "from_ns": 150,
        "to_ns": 400,
    },
    {"key": "user_memory", "count": 9, "from_ns": 10, "to_ns": 20, "text": "no ring"},
]


@pytest.fixture
def log(tmp_path: Path) -> klogger.Log:
    """REQUEST is of programs, of thread 31 twice and once of CPU 1; five of its seven losses have a
    LOST record.
    """
    con = duckdb.connect()
    events = support.events_of("scheduler")
    support.create_tables(con, [e for e in events if e.name != "LOST"])
    con.execute(f"CREATE TABLE LOST ({THREADS}, count UBIGINT, since UBIGINT)")
    con.execute(
        "INSERT INTO LOST VALUES (100, 0, 1, NULL, NULL, 4, 5_000_050), (200, NULL, 2, 31, 30, 5,"
        " 5_000_150)"
    )
    con.execute(f"CREATE TABLE REQUEST ({THREADS}, tid_ INTEGER)")
    con.execute(
        "INSERT INTO REQUEST VALUES (90, NULL, 1, 31, 30, 5), (95, 1, 0, NULL, NULL, 6), (210,"
        " NULL, 7, 31, 30, 7)"
    )
    out = support.write_log(
        con, tmp_path / "x.klog-parquet",
        processes=[(30, "server", 0, None), (31, "worker", 0, None)], ledger=LEDGER, end=1000,
        meta={"schemas": [{"name": "scheduler"}, {"name": "web", "user": True}]},
    )  # fmt: skip
    field = json.dumps(
        [{"name": "tid", "type": "int", "unit": "us", "doc": "a number of the program's own"}]
    )
    con.execute(
        "INSERT INTO klogger_event VALUES ('REQUEST', 'web', 100, 'a request', NULL, 3, 7, $1)",
        [field],
    )
    con.execute(f"COPY klogger_event TO '{out}/event.parquet'")
    con.execute(f"COPY REQUEST TO '{out}/REQUEST.parquet'")
    return klogger.open(out)


def test_gaps_of_threads_are_not_those_of_cpus(log: klogger.Log) -> None:
    assert log.rows("SELECT cpu, from_ns, to_ns, count, key FROM klogger.gap") == [
        (0, 50, 100, 4, "ring_full")
    ]
    found = log.rows(
        "SELECT tid, tgid, from_ns, to_ns, count, key FROM klogger.thread_gap ORDER BY from_ns"
    )
    assert found == [
        (None, None, 10, 20, 9, "user_memory"),
        (31, 30, 150, 200, 5, "ring_full"),
        (31, 30, 1000, 1000, 2, "ring_full"),
    ]


def test_a_kernel_log_has_no_gaps_of_threads(small_log: Path) -> None:
    assert klogger.open(small_log).rows("SELECT * FROM klogger.thread_gap") == []


def test_losses_of_threads_are_told_where_they_matter(log: klogger.Log) -> None:
    assert losses.warnings(log, ["SCHEDIN"]) == [
        "4 events are missing (SCHEDIN; CPU 0; 0.000000 s): ring_full"
    ]
    assert losses.warnings(log, ["REQUEST"]) == [
        "9 events are missing (0.000000 s): no ring",
        "7 events are missing (REQUEST; thread 31; 0.000000 s): ring_full",
    ]


def test_columns_are_described(log: klogger.Log) -> None:
    tables = {t.name: t for t in catalogue.tables(log)}
    columns = {c.name: (c.unit, c.doc) for c in tables["REQUEST"].columns}
    assert columns["tid"] == catalogue.THREAD["tid"]
    assert columns["tid_"] == ("us", "a number of the program's own")
    assert "tid" not in {c.name for c in tables["SCHEDIN"].columns}


def test_threads_are_named_and_counted(log: klogger.Log) -> None:
    query = "SELECT klogger.comm(tid, time), count(*) FROM REQUEST WHERE cpu IS NULL GROUP BY ALL"
    assert log.rows(query) == [("worker", 2)]


def test_the_page_says_which_thread(log: klogger.Log) -> None:
    row = ("loss", "ring_full", "REQUEST", None, 31, 7, 150, 400, "no space")
    assert "<td>thread 31</td>" in html.ledger_table([row])


def test_the_stopwatch_goes_by_the_thread_that_logged(log: klogger.Log) -> None:
    """From 90 to 210 thread 31 lost events; what CPU 1 logged is of no thread."""
    found = measure(log, "REQUEST", "REQUEST")
    assert (found.key, found.begins, found.intervals, found.torn) == ("tid", 3, 0, 1)
