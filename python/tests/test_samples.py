# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Events of which the log has a sample: answers that count them have a warning."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
import support

import klogger
from klogger import losses
from klogger.summary import summary

LEDGER = [
    {
        "key": "rate_limited",
        "severity": "info",
        "count": 90,
        "event": "SCHEDIN",
        "cpu": 0,
        "from_ns": 5,
        "to_ns": 700,
    },
    {
        "key": "rate_limited",
        "severity": "info",
        "count": 10,
        "event": "SCHEDIN",
        "cpu": 1,
        "from_ns": 9,
        "to_ns": 800,
    },
    {"key": "ring_grown", "severity": "info", "count": 0, "text": "more memory"},
]


@pytest.fixture
def log(tmp_path: Path) -> klogger.Log:
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    con.execute("INSERT INTO SCHEDIN BY NAME SELECT 10 AS time, 0 AS cpu, 0 AS serial, 5 AS pid")
    out = support.write_log(con, tmp_path / "x.klog-parquet", processes=[], ledger=LEDGER, end=1000)
    return klogger.open(out)


def test_an_answer_from_a_sample_says_so(log: klogger.Log) -> None:
    logged = log.events["SCHEDIN"].logged
    (said,) = losses.warnings(log, ["schedin"])
    assert said == (
        f"SCHEDIN is sampled (--rate-limit): {logged} of {logged + 100} are in the log,"
        " so counts and sums of it are too low"
    )
    assert losses.warnings(log, ["SCHEDOUT"]) == []


def test_the_head_of_a_report_says_so(log: klogger.Log) -> None:
    (said,) = summary(log).warnings
    assert said.startswith("SCHEDIN is sampled")
    assert "none missing" in summary(log).lines[0]


def test_analyses_see_where_it_was_sampled(log: klogger.Log) -> None:
    rows = log.rows("SELECT cpu, event, from_ns, to_ns, count FROM klogger.gap ORDER BY cpu")
    assert rows == [(0, "SCHEDIN", 5, 700, 90), (1, "SCHEDIN", 9, 800, 10)]
