# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The stopwatch, against intervals worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
import support

import klogger
from klogger.failure import Failure
from klogger.stopwatch import measure
from klogger_lab.cli import stopwatch as command

IN = "INSERT INTO SCHEDIN VALUES ({}, {}, {}, {}, 120, 1)"
OUT = "INSERT INTO SCHEDOUT VALUES ({}, {}, {}, {}, 120, 0, 0, 0)"


def scheduler(
    path: Path, rows: list[tuple[str, int, int, int]], ledger: list[dict[str, object]] | None = None
) -> Path:
    """A log of (statement, time, CPU, pid)."""
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    for serial, (statement, time, cpu, pid) in enumerate(rows):
        con.execute(statement.format(time, cpu, serial, pid))
    return support.write_log(
        con, path / "x.klog-parquet", processes=[], ledger=ledger or [], end=10**9
    )


def test_pairs_are_of_one_thread_and_the_inner_ones(tmp_path: Path) -> None:
    # Thread 7: 10 and 30 ns, and a begin at 200 that a second one at 210 makes void; thread 8: 5
    # ns; its last is open.
    path = scheduler(tmp_path, [
        (IN, 100, 0, 7), (IN, 101, 1, 8), (OUT, 106, 1, 8), (OUT, 110, 0, 7),
        (OUT, 120, 0, 7), (IN, 200, 0, 7), (IN, 210, 0, 7), (OUT, 240, 1, 7), (IN, 250, 1, 8),
    ])  # fmt: skip
    found = measure(klogger.open(path), "schedin", "SCHEDOUT")
    assert (found.begin, found.key, found.intervals, found.torn) == ("SCHEDIN", "pid", 3, 0)
    assert (found.min, found.p50, found.max) == (5, 10, 30)
    assert found.mean == 15
    assert found.sd == pytest.approx(13.2288, abs=1e-4)
    assert (found.begins, found.ends) == (5, 4)


def test_the_worst_of_a_thousand_is_left_out_of_the_trimmed_mean(tmp_path: Path) -> None:
    rows = []
    for n in range(1000):
        took = 1_000_000 if n == 500 else 10
        rows += [(IN, 10_000_000 * n, 0, 7), (OUT, 10_000_000 * n + took, 0, 7)]
    found = measure(klogger.open(scheduler(tmp_path, rows)), "SCHEDIN", "SCHEDOUT")
    assert (found.intervals, found.mean) == (1000, 1009.99)
    assert (found.trimmed_mean, found.trimmed_sd, found.max) == (10, 0, 1_000_000)


def test_an_interval_with_a_loss_in_it_is_no_interval(tmp_path: Path) -> None:
    ledger = [
        {"key": "disk_full", "count": 2, "event": "SCHEDIN", "cpu": 0, "from_ns": 105, "to_ns": 106}
    ]
    rows = [(IN, 100, 0, 7), (OUT, 110, 0, 7), (IN, 120, 0, 7), (OUT, 140, 0, 7)]
    found = measure(klogger.open(scheduler(tmp_path, rows, ledger)), "SCHEDIN", "SCHEDOUT")
    assert (found.intervals, found.torn, found.mean) == (1, 1, 20)
    assert len(found.warnings) == 1


def test_from_each_to_the_next_of_one_event(tmp_path: Path) -> None:
    path = scheduler(tmp_path, [(IN, 100, 0, 7), (IN, 130, 1, 7), (IN, 135, 0, 8), (IN, 180, 0, 7)])
    found = measure(klogger.open(path), "SCHEDIN", "SCHEDIN")
    assert (found.intervals, found.min, found.max) == (2, 30, 50)


def test_what_cannot_be_paired_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = scheduler(tmp_path, [(IN, 100, 0, 7), (OUT, 110, 0, 8)])
    log = klogger.open(path)
    with pytest.raises(Failure, match="the log has no event 'SCHEDUP'"):
        measure(log, "SCHEDUP", "SCHEDOUT")
    with pytest.raises(Failure, match="SCHEDIN has no field 'state'"):
        measure(log, "SCHEDIN", "SCHEDOUT", "state")
    with pytest.raises(Failure, match="do not say in one way which thread"):
        measure(log, "FORK", "SCHEDOUT")
    assert command.main([str(path), "SCHEDIN", "SCHEDOUT"]) == 0
    assert (
        "0 intervals of 1 SCHEDIN and 1 SCHEDOUT\n  no two of them follow"
        in capsys.readouterr().out
    )


def test_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = scheduler(
        tmp_path, [(IN, 100, 0, 7), (OUT, 1600, 0, 7), (IN, 2000, 0, 7), (OUT, 4500, 0, 7)]
    )
    assert command.main([str(path), "SCHEDIN", "SCHEDOUT"]) == 0
    out = capsys.readouterr().out
    assert (
        out.splitlines()[0]
        == "SCHEDIN to SCHEDOUT, by pid: 2 intervals of 2 SCHEDIN and 2 SCHEDOUT"
    )
    assert all(len(line) <= 100 for line in out.splitlines())
    assert "mean        2.00 µs" in out or "2.00 us" in out
    assert command.main([str(path), "SCHEDIN", "SCHEDOUT", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean"] == 2000
