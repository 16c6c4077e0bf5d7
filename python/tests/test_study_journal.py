# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study of the journal, against two arms worked out by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import support

from klogger_lab.study import discover
from klogger_lab.study.model import Arm, Run

STUDY = discover.load(support.SCHEMATA / "ext4/studies/journal.py").study
MODULE: Any = __import__(STUDY.arms.__module__, fromlist=["x"])
DEVICE = 7 << 20


class FakeLog:
    """It answers the one question: commits, fsyncs, waits, their time, checkpoints, losses."""

    def __init__(self, *numbers: int):
        self.numbers = numbers

    def rows(self, query: str) -> list[tuple[int, ...]]:
        assert f"device = {DEVICE}" in query
        return [self.numbers]


def run_of(name: str, slow: int, transactions: tuple[int, int], *numbers: int) -> Run:
    """An arm whose writes take 1 us, but for 2 of 1000."""
    took = [1000] * 999 + [slow] * 2
    said = {what: {"count": 17, "took": took} for what in ("write", "metadata", "fsync")}
    log: Any = FakeLog(*numbers)
    output = json.dumps({**said, "transactions": transactions})
    return Run(Arm(name, ["x"], 1), log, output, SimpleNamespace(number=DEVICE))


def answer_of(*runs: Run) -> Any:
    plan: Any = SimpleNamespace()
    return MODULE.analyse(plan, list(runs))


def test_fluctuation_is_the_slow_ones_by_the_half() -> None:
    answer = answer_of(
        run_of("ordered", 50_000, (3, 8), 5, 17, 2, 900, 1, 0),
        run_of("no journal", 2_000, (-1, -1), 0, 17, 0, 0, 0, 0),
    )
    main, curves, statements = answer.results
    first, second = main.table.records()
    assert (first["p50"], first["p99_9"], first["fluctuation"]) == (1000, 50_000, 50.0)
    assert (first["commits"], first["waits"], first["waited"], first["checkpoints"]) == (
        5,
        2,
        900,
        1,
    )
    assert second["fluctuation"] == 2.0
    assert [row[0] for row in curves.table.rows] == ["ordered", "no journal"]
    assert statements.table.rows[0][1] == "50.0 and 2.0"
    assert statements.table.rows[-1][1] == "full: ordered"
    assert "not recorded" in [row[1] for row in statements.table.rows]
    assert answer.sentences[0].endswith("takes 50 times as long as half of them, without a journal"
        " 2 times.")  # fmt: skip


def test_checks_are_the_journals_account_and_the_calls() -> None:
    answer = answer_of(
        run_of("ordered", 2_000, (3, 8), 5, 17, 0, 0, 0, 0),
        run_of("writeback", 2_000, (3, 8), 4, 16, 0, 0, 0, 0),
    )
    assert [(check.name, check.ok) for check in answer.checks] == [
        ("commits, ordered", True), ("fsync(), ordered", True),
        ("commits, writeback", False), ("fsync(), writeback", False),
    ]  # fmt: skip


def test_an_arm_that_lost_events_is_not_checked() -> None:
    lost = run_of("ordered", 2_000, (3, 8), 4, 17, 0, 0, 0, 1)
    assert answer_of(lost, lost).checks == []
