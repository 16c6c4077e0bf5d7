# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Answers about events of schemata without analyses: counts, times, and pairs by name."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
import support

import klogger
from klogger import executor, general, rules
from klogger.executor import Result

SCHEMA = """\
schema mine "Without analyses"

event read_enter "" { int tid as thread }
event read_exit  "" { int tid as thread  uint took in ns }
event OTHER      "" { ulong place as hex }
"""


@pytest.mark.parametrize(
    ("names", "stem"),
    [
        (["sys_exit_openat", "sys_enter_openat"], "sys_*_openat"),
        (["irq_handler_entry", "irq_handler_exit"], "irq_handler_*"),
        (["jbd2_start_commit", "jbd2_end_commit"], "jbd2_*_commit"),
        (["vfs_read", "vfs_read_return", "vfs_write"], "vfs_read_*"),
        (["READ_BEGIN", "READ_END"], "READ_*"),
    ],
)
def test_pairs(names: list[str], stem: str) -> None:
    ((found, first, second),) = general.pairs(names)
    assert found == stem and {first, second} < {*names, ""}


@pytest.mark.parametrize(
    "names",
    [
        ["extend", "startle", "sched_switch"],
        ["block_rq_issue", "block_rq_complete"],
        ["a_begin", "b_end"],
        ["a_begin"],
        [],
    ],
)
def test_no_pairs(names: list[str]) -> None:
    assert general.pairs(names) == []


def own_log(folder: Path, rows: dict[str, list[str]], lost: int = 0) -> Path:
    file = folder / "mine.klogger"
    file.write_text(SCHEMA)
    con = duckdb.connect()
    support.create_tables(con, support.events_of(str(file)))
    for event, values in rows.items():
        con.execute(f"INSERT INTO {event} VALUES {', '.join(values)}")
    entry = {"key": "rate_limited", "event": "read_exit", "count": lost, "cpu": 0}
    return support.write_log(
        con,
        folder / "x.klog-parquet",
        schema=str(file),
        processes=[(7, "cat", 0, None), (8, "dd", 0, None)],
        ledger=[{**entry, "from_ns": 150, "to_ns": 160}] if lost else [],
        end=1000,
    )


# Thread 7 reads for 100 and for 300 ns, the second time while thread 8 does so for 200; that of 8
# has an end without a beginning as well.
ROWS = {
    "read_enter": ["(100, 0, 1, 7)", "(400, 0, 3, 7)", "(450, 1, 2, 8)"],
    "read_exit": [
        "(200, 0, 2, 7, 90)", "(700, 0, 4, 7, 280)", "(650, 1, 3, 8, 190)", "(50, 1, 1, 8, 5)",
    ],
    "OTHER": ["(900, 0, 5, 1)"],
}  # fmt: skip


def answers(log: Path) -> dict[str, Result]:
    opened = klogger.open(log, locked=True)
    return {r.analysis.name: r for r in executor.run_all(opened, executor.choose(opened))}


def test_what_they_say(tmp_path: Path) -> None:
    found = answers(own_log(tmp_path, ROWS))
    assert list(found) == ["counts", "times", "pairs"]
    assert all(r.status == "answer" for r in found.values())
    counts = {row["event"]: row for row in found["counts"].table.records()}
    assert {name: row["times"] for name, row in counts.items()} == {
        "read_exit": 4, "read_enter": 3, "OTHER": 1,
    }  # fmt: skip
    assert (counts["read_enter"]["threads"], counts["read_enter"]["most"]) == (2, "cat[7]")
    assert (counts["OTHER"]["threads"], counts["OTHER"]["most"]) == (None, None)
    assert sum(counts["read_exit"]["over_time"]) == 4
    (times,) = found["times"].table.records()
    assert (times["what"], times["times"], times["total"]) == ("read_exit took", 4, 565)
    assert (times["max"], times["longest"], times["when"]) == (280, "cat[7]", 700)
    (pair,) = found["pairs"].table.records()
    assert (pair["pair"], pair["times"], pair["total"]) == ("read_*", 3, 600)
    assert (pair["max"], pair["longest"], pair["unpaired"]) == (300, "cat[7]", 1)
    assert found["pairs"].findings == [
        "Most time of all pairs of events was in read_*: 600 ns, 3 times."
    ]


def test_a_pair_around_a_loss_is_none(tmp_path: Path) -> None:
    found = answers(own_log(tmp_path, ROWS, lost=1))
    (pair,) = found["pairs"].table.records()
    assert (pair["times"], pair["total"], pair["unpaired"]) == (2, 500, 2)
    assert all(r.warnings for r in found.values())


def test_without_such_events_nothing_is_shown(tmp_path: Path) -> None:
    found = answers(own_log(tmp_path, {}))
    assert {r.status for r in found.values()} == {"empty"}


def test_they_are_well_formed(tmp_path: Path) -> None:
    log = klogger.open(own_log(tmp_path, ROWS), locked=True)
    for one in general.of(log):
        assert rules.check(one, log.events) == []
        assert one.question.endswith("?") and one.empty


def test_schemata_with_analyses_have_their_own(tmp_path: Path) -> None:
    log = klogger.open(support.empty_log(tmp_path / "x.klog-parquet", "futex"), locked=True)
    assert not any(map(general.is_one, executor.of(log)))
