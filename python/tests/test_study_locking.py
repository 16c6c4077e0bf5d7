# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study of locks, of logs whose waits were worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import support

import klogger
from klogger import expectation
from klogger_lab.machine import Machine
from klogger_lab.study import discover
from klogger_lab.study.model import Arm, Plan, Run

FOLDER = support.SCHEMATA / "locking"
FOUND = discover.load(FOLDER / "studies" / "locks.py")


def plan(tmp_path: Path, seconds: float, cpus: int = 2) -> Plan:
    machine = Machine(cpus, "6.1.0", "a CPU", 0, 0, 0, 250, False, "tsc")
    return Plan(machine, seconds, tmp_path, lambda name: tmp_path / Path(name).stem)


def one(tmp_path: Path, load: str, count: int, system_ns: int = 10**9) -> Run:
    """2 CPUs in 1 ms: 7 µs of spinning for spin locks (futex 5, run queue 2), 20 for a mutex
    (pipe).
    """
    path = tmp_path / f"{load}-{count}.klog-parquet".replace(" ", "-").replace(":", "-")
    log = klogger.open(expectation.make(expectation.read(FOLDER / "expect" / "waits.expect"), path))
    arm = Arm(f"{load}, {count}", ["true"], 1, {"load": load, "processes": count})
    oracle = {"user": 10**9, "system": system_ns, "idle": 10**9, "irq": 0, "softirq": 0, "steal": 0}
    return Run(arm, log, "", oracle)


def test_shares_are_of_all_cpus(tmp_path: Path) -> None:
    runs = [one(tmp_path, "compile on tmpfs", 4), one(tmp_path, "compile on tmpfs", 32)]
    answer = FOUND.study.analyse(plan(tmp_path, 60), runs)
    figures = {r.analysis.name: r for r in answer.results}
    names = figures["figure2"].table.names
    rows = [dict(zip(names, row, strict=True)) for row in figures["figure2"].table.rows]
    assert [row["processes"] for row in rows] == [4, 32]
    assert rows[0]["spinning"] == pytest.approx(7 / 2000)
    assert rows[0]["mutexes"] == pytest.approx(20 / 2000)
    assert rows[0]["system"] == pytest.approx(1 / 3)
    assert [row["paper"] for row in rows] == ["just over 3 %", "over 15 %"]
    assert all(check.ok for check in answer.checks)


def test_the_worst_class_and_all_others(tmp_path: Path) -> None:
    answer = FOUND.study.analyse(plan(tmp_path, 60), [one(tmp_path, "compile on tmpfs", 2)])
    (figure3,) = [r for r in answer.results if r.analysis.name == "figure3"]
    shares = {row[1]: row[2] for row in figure3.table.rows}
    assert shares == {"pipe": pytest.approx(1e7), "all others": pytest.approx(3.5e6)}


def test_classes_of_the_network_server(tmp_path: Path) -> None:
    answer = FOUND.study.analyse(plan(tmp_path, 60), [one(tmp_path, "round robin 100:200", 8)])
    (figure4,) = [r for r in answer.results if r.analysis.name == "figure4"]
    parts = {row[1]: row[3] for row in figure4.table.rows}
    assert parts == {
        "pipe": pytest.approx(20 / 27),
        "futex": pytest.approx(5 / 27),
        "run queue": pytest.approx(2 / 27),
    }
    (leagues,) = [r for r in answer.results if r.analysis.name == "leagues"]
    assert leagues.table.rows == [
        ["round robin 100:200", 8, "mmap lock (rwsem)", "futex 1.0 x run queue"]
    ]


def test_more_spinning_than_time_in_the_kernel_fails(tmp_path: Path) -> None:
    locks = FOUND.study.analyse.__globals__
    run = one(tmp_path, "web", 1, system_ns=0)
    spun = locks["spun"](run)
    spun.busy = 1e6
    checks = locks["checks"]([(run, spun)])
    assert [check.ok for check in checks] == [False]


def test_the_planted_lock_must_be_the_one_that_is_waited_for(tmp_path: Path) -> None:
    checks = FOUND.study.analyse(plan(tmp_path, 60), [one(tmp_path, "planted", 4)]).checks
    assert [(c.name, c.ok) for c in checks if "planted" in c.name] == [
        ("the planted lock is found", True)
    ]


@pytest.mark.parametrize("seconds", [9, 45, 90, 300])
def test_arms_fit_the_time(tmp_path: Path, seconds: float) -> None:
    arms = FOUND.study.arms(plan(tmp_path, seconds))
    assert len({arm.name for arm in arms}) == len(arms)
    # What a recorder takes to begin and end is not in the arms' own seconds.
    assert sum(arm.seconds + 1.2 for arm in arms) <= seconds * 1.05
    assert {arm.parameters["load"] for arm in arms} >= {
        "planted",
        "compile on disk",
        "round robin 100:200",
    }
