# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`happened` has all events of all schemata, and `told` their texts."""

from __future__ import annotations

from pathlib import Path

import duckdb
import support

import klogger


def test_events_of_several_schemata_are_in_one_view(tmp_path: Path) -> None:
    con = duckdb.connect()
    schemata = ("lifecycle", "futex")
    support.create_tables(con, support.events_of(*schemata))
    con.execute(
        "INSERT INTO RAN BY NAME SELECT 10 AS time, 0 AS cpu, 1 AS serial, 5 AS pid, 5 AS old_pid,"
        " '/bin/prog' AS program"
    )
    con.execute(
        "INSERT INTO WAIT BY NAME SELECT 20 AS time, 1 AS cpu, 1 AS serial, 4096 AS lock,"
        " 0 AS user_stack, 2 AS expected, 7 AS holder, 9 AS op, false AS timed, 120 AS prio,"
        " 6 AS tid, 5 AS tgid"
    )
    con.execute(
        "INSERT INTO DELIVERED BY NAME SELECT 30 AS time, 1 AS cpu, 2 AS serial, 16 AS address,"
        " 0 AS user_stack, 1 AS code, 11 AS sig, 2 AS action, 6 AS tid, 5 AS tgid"
    )
    path = support.write_log(
        con, tmp_path / "x.klog-parquet", schema=schemata, processes=[(5, "prog", 0, None)], end=100
    )
    with klogger.open(path) as log:
        rows = log.rows("SELECT time, cpu, event, pid FROM happened ORDER BY time")
        assert rows == [(10, 0, "RAN", 5), (20, 1, "WAIT", 6), (30, 1, "DELIVERED", 6)]
        log.connection.execute("CREATE TEMP TABLE chosen AS FROM happened WHERE time > 10")
        told = dict(log.rows("SELECT event, what FROM told('chosen')"))
        assert told == {
            "WAIT": "lock=0x1000 user_stack=0 expected=2 holder=7 guess= op=wait_bitset timed=false"
            " prio=120 tid=6 tgid=5",
            "DELIVERED": "address=0x10 user_stack=0 code=1 sig=SIGSEGV action=handler tid=6 tgid=5",
        }


def test_a_log_without_events_has_the_view(tmp_path: Path) -> None:
    with klogger.open(support.empty_log(tmp_path / "x.klog-parquet", "lifecycle")) as log:
        assert log.rows("FROM happened") == []
        log.connection.execute("CREATE TEMP TABLE chosen AS FROM happened")
        assert log.rows("FROM told('chosen')") == []
