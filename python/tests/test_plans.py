# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How the analyses of disks ask DuckDB: what makes the report of millions of events quick, without
a clock. A row beside the one before it comes from a sort and a window that follows it row by row
(docs/analyses.md, Rules); and the sections read what was added up once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
import support

import klogger
from klogger import executor, expectation

# The views that put each of all events beside the one before it, by the analysis.
ORDERED = {
    "block/depth": "depth_step",
    "block/seeks": "seeks_pair",
    "writeback/dirtiers": "dirtiers_dirtied",
    "writeback/flushers": "flushers_order",
    "writeback/writers_requests": "writers_requests_next",
}
# All that the sections of an analysis read of what it has made.
ADDED_UP = {
    "block/askers": {"askers_part", "askers_by"},
    "writeback/dirtiers": {"dirtiers"},
    "writeback/flushers": {"flushers"},
}
TEMPORARY = '"temp".main.'
ROWS = 300_000


def prepared(name: str, folder: Path) -> tuple[executor.Session, executor.Result]:
    """An analysis that was run of the log of its expectation."""
    schema, analysis = name.split("/")
    case = expectation.read(support.SCHEMATA / schema / "expect" / f"{analysis}.expect")
    log = klogger.open(expectation.make(case, folder / "x.klog-parquet"), locked=True)
    session = executor.Session(log)
    one = session.find(schema, analysis)
    assert one is not None
    result = session.run(one)
    assert result.status == "answer", result.reason
    return session, result


def operators(cursor: duckdb.DuckDBPyConnection, query: str) -> list[tuple[str, dict[str, Any]]]:
    """Of a query's plan, each with what is below it."""
    ((_, text),) = cursor.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()
    found, todo = [], list(json.loads(text))
    while todo:
        one = todo.pop()
        found.append((str(one["name"]).strip(), one))
        todo += one["children"]
    return found


def below(one: dict[str, Any]) -> str:
    """The first operator below that does more than compute columns."""
    while len(one["children"]) == 1:
        (one,) = one["children"]
        if str(one["name"]).strip() != "PROJECTION":
            return str(one["name"]).strip()
    return ""


@pytest.mark.parametrize("name", ORDERED)
def test_the_row_before_is_found_by_one_sort(name: str, tmp_path: Path) -> None:
    """A window that sorts for itself costs three times as much."""
    session, result = prepared(name, tmp_path)
    cursor = session.connection(result.analysis)[0]
    found = operators(cursor, f"FROM {ORDERED[name]}")
    windows = [(kind, below(one)) for kind, one in found if "WINDOW" in kind]
    assert windows == [("STREAMING_WINDOW", "ORDER_BY")]
    session.log.close()


@pytest.mark.parametrize("name", ADDED_UP)
def test_sections_read_what_was_added_up(name: str, tmp_path: Path) -> None:
    """And not each event again."""
    session, result = prepared(name, tmp_path)
    one = result.analysis
    cursor = session.connection(one)[0]
    tables = {
        str(found["extra_info"].get("Table", ""))
        for section in ("table", "picture", "finding")
        for _, found in operators(cursor, one.sections[section])
    }
    made = {table.removeprefix(TEMPORARY) for table in tables if table.startswith(TEMPORARY)}
    assert made == ADDED_UP[name]
    session.log.close()


@pytest.mark.parametrize("threads", [1, 4])
def test_a_sorted_subquery_keeps_its_order_for_a_window(threads: int) -> None:
    """What the analyses rely on, with the settings of a report, and more rows than DuckDB gives to
    one thread.
    """
    connection = duckdb.connect()
    connection.execute(f"SET threads = {threads}; SET preserve_insertion_order = false")
    connection.execute(
        f"CREATE TABLE t AS SELECT n % 7 AS key, hash(n) % {ROWS} AS time, n"
        f" FROM range({ROWS}) AS r(n)"
    )
    ((before,),) = connection.execute(
        "SELECT sum(hash(key, n, before)) FROM (SELECT key, n, lag(n) OVER"
        " (PARTITION BY key ORDER BY time, n) AS before FROM t)"
    ).fetchall()
    ((beside,),) = connection.execute(
        "SELECT sum(hash(key, n, CASE WHEN key = key_before THEN before END)) FROM ("
        " SELECT key, n, lag(key) OVER () AS key_before, lag(n) OVER () AS before"
        " FROM (FROM t ORDER BY key, time, n))"
    ).fetchall()
    assert beside == before
    ((sums,),) = connection.execute(
        "SELECT sum(hash(n, s)) FROM (SELECT n, sum(key) OVER (ORDER BY time, n"
        " ROWS UNBOUNDED PRECEDING) AS s FROM t)"
    ).fetchall()
    ((added,),) = connection.execute(
        "SELECT sum(hash(n, s)) FROM (SELECT n, sum(key) OVER (ROWS UNBOUNDED PRECEDING) AS s"
        " FROM (FROM t ORDER BY time, n))"
    ).fetchall()
    assert added == sums


def test_devices_have_depths_of_their_own(tmp_path: Path) -> None:
    """There is one order of the steps of all: what a device has at the end is not another's."""
    requests = [
        # device, took, time: the first device has two at once, the others one each.
        (1, 30, 100), (1, 30, 110), (2, 10, 100), (3, 50, 200),
    ]  # fmt: skip
    log = log_of(
        tmp_path,
        "block",
        RQ_DONE=[
            {"time": time, "rq": n, "device": device, "took": took, "bytes": 4096, "kind": 1}
            for n, (device, took, time) in enumerate(requests)
        ],
        # Not done when the recording ends: since 150 and 220.
        RQ_OPEN=[
            {"time": 250, "rq": 10, "device": 1, "since": 100},
            {"time": 250, "rq": 11, "device": 2, "since": 30},
        ],
    )
    with klogger.open(log, locked=True) as opened, executor.Session(opened) as session:
        one = session.find("block", "depth")
        assert one is not None
        session.run(one)
        cursor = session.connection(one)[0]
        found = cursor.execute(
            "SELECT device, depth, ns FROM depth_time ORDER BY device, depth"
        ).fetchall()
    # 70 to 80 one, 80 to 100 two, 100 to 110 one; 150 to 250 one.
    assert found == [(1, 1, 120), (1, 2, 20), (2, 1, 40), (3, 1, 50)]


def test_pages_of_huge_files_are_told_apart(tmp_path: Path) -> None:
    """More of them than numbers have room for the pages of: these are left out."""
    last = 2**51 - 2
    pages = [{"time": n, "inode": 100 + n, "index": last, "pages": 1} for n in range(2100)]
    writes = [
        {"time": 10_000 + n, "inode": 100 + n, "position": last * 4096, "bytes": 4096, "via": 1}
        for n in range(2100)
    ]
    log = log_of(tmp_path, "writeback", DIRTY_PAGES=pages, WB_PAGES=writes)
    with klogger.open(log, locked=True) as opened, executor.Session(opened) as session:
        one = session.find("writeback", "dirty_age")
        assert one is not None
        result = session.run(one)
    assert result.status == "answer", result.reason
    rows = result.table.records()
    # Each was written 10 µs after it became dirty.
    assert {(row["pages"], row["max"], row["never"]) for row in rows} == {(1, 10_000, 0)}
    assert len(rows) + result.table.left_out == 2048


def log_of(folder: Path, schema: str, **events: list[dict[str, Any]]) -> Path:
    """A log with rows of these events; what is not given is 0."""
    connection = duckdb.connect()
    known = {event.name: event for event in support.events_of(schema)}
    support.create_tables(connection, list(known.values()))
    for event, rows in events.items():
        listed = []
        for serial, row in enumerate(rows):
            given = {name: value for name, value in row.items() if name != "time"}
            place = {"time": row["time"], "cpu": 0, "serial": serial}
            fields = expectation.row_of(known[event].fields, given, event)
            listed.append(list((place | fields).values()))
        support.insert(connection, event, listed)
    return support.write_log(
        connection, folder / "x.klog-parquet", schema=schema, processes=[], end=None
    )
