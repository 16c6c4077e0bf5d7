# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study of loggers, against costs worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import support

from klogger_lab import tracefs
from klogger_lab.machine import Machine
from klogger_lab.study import discover
from klogger_lab.study.model import Answer, Arm, Plan, Run

STUDY = discover.load(support.SCHEMATA / "stopwatch/studies/loggers.py").study
MACHINE = Machine(2, "6.18.0", "CPU", 1 << 30, 0, 0, 250, True, "tsc")
# Of one run: 40 blocks of 1000 and the warming up.
EVENTS = 41_000


def said(**means: list[float]) -> dict[str, Any]:
    """What the program prints: for each kind the means of its blocks, each with a deviation of 3 or
    4 cycles.
    """
    sds = {"reference": 3.0, "empty": 3.0}
    blocks = {
        kind: [[m, sds.get(kind, 4.0), m, 9.0] for m in values] for kind, values in means.items()
    }
    return {"hz": 2e9, "pairs": 1000, "blocks": blocks}


def recorded(
    name: str, printed: dict[str, Any], event: str, logged: int, lost: int = 0, oracle: Any = None
) -> Run:
    log: Any = SimpleNamespace(events={event: SimpleNamespace(logged=logged, lost=lost)})
    return Run(Arm(name, ["x"], 1), log, f"some other words\n{json.dumps(printed)}", oracle)


def measured(name: str, printed: dict[str, Any], **more: Any) -> Run:
    return Run(Arm(name, [], 1), None, "", {**printed, **more})


# The reference takes 100 cycles, and a traced call 10 more by itself. With klogger it takes 310, so
# its event 200; with ftrace 410, so 300; with perf 1110, so 1000. In one block all is twice as
# slow, which changes nothing. In a program: the empty pair 40, klogger 100, so 60.
def runs(pending: int = EVENTS, rounds: int = 5) -> list[Run]:
    found = []
    for _ in range(rounds):
        beside = said(empty=[40, 40], marker=[1240, 1240])
        printed = said(empty=[40, 40, 80], klogger=[100, 100, 200], memory=[640, 640, 1280])
        found += [
            recorded("in a program", printed, "PENDING_USER", EVENTS - 5, 5, beside),
            measured("nothing", said(reference=[100, 100], traced=[110, 110])),
            recorded(
                "klogger",
                said(reference=[100, 200, 100], traced=[310, 620, 310]),
                "PENDING",
                pending,
            ),
            measured("ftrace", said(reference=[100, 100], traced=[410, 410]), events=EVENTS),
            measured(
                "perf", said(reference=[100, 100], traced=[1110, 1110]), events=EVENTS, lost=False
            ),
        ]
    return found


def answer(tmp_path: Path, of: list[Run]) -> Answer:
    return STUDY.analyse(Plan(MACHINE, 10, tmp_path, lambda name: tmp_path / name), of)


def test_costs_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    found = answer(tmp_path, runs())
    rows = {row["logger"]: row for row in found.results[0].table.records()}
    today = {
        "klogger, in a program": ("60 ± 5", 30, 0.3),
        "klogger, in the kernel": ("200 ± 5", 100, 1),
        "ftrace event": ("300 ± 5", 150, 1.5),
        "snprintf into memory": ("600 ± 5", 300, 3),
        "perf record": ("1,000 ± 5", 500, 5),
        "write to trace_marker": ("1,200 ± 5", 600, 6),
    }
    assert list(rows)[: len(today)] == list(today)
    for name, (cycles, time, ratio) in today.items():
        assert (rows[name]["cycles"], rows[name]["ratio"]) == (cycles, ratio), name
        assert rows[name]["time"] == pytest.approx(time)
    # All rounds are alike, so that none of them makes a difference.
    assert rows["ftrace event"]["interval"] == "1.5 to 1.5"
    assert rows["LTT (2007)"]["ratio"] == 5.7
    assert all(check.ok for check in found.checks)
    assert any("An event of ftrace costs 1.5 times as much" in text for text in found.sentences)


def test_a_logger_that_did_not_log_fails_the_check(tmp_path: Path) -> None:
    found = answer(tmp_path, runs(pending=EVENTS - 1))
    assert [check.ok for check in found.checks] == [False, True, True, True]
    assert "204,995 logged and 0 lost of 205,000" in found.checks[0].text


def test_what_is_missing_is_said_and_has_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracefs, "ROOT", tmp_path)
    monkeypatch.setattr(tracefs, "why_not", lambda: None)
    (tmp_path / "events/task/task_prctl_unknown").mkdir(parents=True)
    found = answer(
        tmp_path, [run for run in runs() if run.arm.name in ("in a program", "klogger", "nothing")]
    )
    rows = {row["logger"]: row for row in found.results[0].table.records()}
    assert (rows["perf record"]["ratio"], rows["perf record"]["misses"]) == (
        None,
        "perf is not installed",
    )
    assert rows["ftrace event"]["time"] is None
    assert any(text.startswith("perf record: ") for text in found.cannot)
    assert any("L1 cache misses" in text for text in found.cannot)


def test_without_tracefs_it_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracefs, "why_not", lambda: "tracefs is not mounted")
    found = answer(tmp_path, [run for run in runs() if run.arm.name == "in a program"])
    assert "ftrace event: tracefs is not mounted." in found.cannot


def test_few_rounds_have_no_interval(tmp_path: Path) -> None:
    found = answer(tmp_path, runs(rounds=2))
    rows = {row["logger"]: row for row in found.results[0].table.records()}
    assert (rows["ftrace event"]["ratio"], rows["ftrace event"]["interval"]) == (
        1.5,
        "too few rounds",
    )
