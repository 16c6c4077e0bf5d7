# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study of contention, of logs whose guilty lock is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import support

import klogger
from klogger import expectation
from klogger_lab.study import discover
from klogger_lab.study.model import Arm, Run

FOLDER = support.SCHEMATA / "futex"
FOUND = discover.load(FOLDER / "studies" / "contention.py")
ANALYSE = FOUND.study.analyse.__globals__
BASE = 0x10_0000_0000
GUILTY, UNLUCKY = BASE + 3 * 128, BASE + 7 * 128


def wait(lock: int, begin_us: int, us: int, tid: int = 10) -> list[str]:
    words = f"lock={lock} tid={tid} tgid=10"
    return [
        f"  {begin_us}us 0 WAIT expected=2 holder=11 {words}",
        f"  {begin_us + us}us 0 WAITED asleep={us - 1}us {words}",
    ]


def seen(tmp_path: Path, waits: list[list[str]], output: str) -> Any:
    lines = sorted((line for two in waits for line in two), key=lambda x: int(x.split("us")[0]))
    log = ["  process 10 contention", "  process 11 contention", *lines, "  end 100ms"]
    text = ["analysis: league", "log:", *log, "table: program", "  contention"]
    path = tmp_path / "futex" / "expect" / "made.expect"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(text) + "\n")
    made = expectation.make(expectation.read(path), tmp_path / "x.klog-parquet")
    arm = Arm("4 threads", ["true"], 1, {"threads": 4, "spin": 100})
    return ANALYSE["seen"](Run(arm, klogger.open(made), output))


def test_the_league_goes_by_time_and_the_rule_by_spread(tmp_path: Path) -> None:
    often = [wait(GUILTY, 1000 * n, 50) for n in range(1, 21)]
    once = [wait(UNLUCKY, 5100, 1500, 12), wait(UNLUCKY, 5200, 1400, 13)]
    one = seen(tmp_path, often + once, f"round {BASE:#x} 3 1010000 0 5 20\nswitches 23\n")
    (a_round,) = one.rounds
    assert (a_round.planted, a_round.top, a_round.named) == (GUILTY, UNLUCKY, GUILTY)
    assert (a_round.logged, a_round.whole) == (20 * 50_000, 20 * 50_000 + 2_900_000)
    assert (a_round.first, a_round.right) == (False, True)
    assert (one.waits, one.slept) == (22, 22)
    assert ANALYSE["time_check"](one).ok
    assert ANALYSE["switch_check"](one).ok
    # One of one may be missing, and no false alarm was raised.
    checks = {check.name: check.ok for check in ANALYSE["checks"]([one])}
    assert checks["the guilty mutex is first in the league"]
    assert checks["no false alarm"]
    # The log has no stacks.
    assert not checks["its call path is right"]


def test_a_false_alarm_is_one(tmp_path: Path) -> None:
    often = [wait(GUILTY, 1000 * n, 50) for n in range(1, 21)]
    one = seen(tmp_path, often, f"round {BASE:#x} -1 0 0 0 20\nswitches 9\n")
    checks = {check.name: check.ok for check in ANALYSE["checks"]([one])}
    assert not checks["no false alarm"]
    # More waits slept than getrusage() counts.
    assert not ANALYSE["switch_check"](one).ok


def test_how_many_rounds_may_be_missing() -> None:
    enough = ANALYSE["enough"]
    assert [enough(9, 10), enough(8, 10), enough(38, 40), enough(37, 40), enough(0, 0)] == [
        True, False, True, False, False,
    ]  # fmt: skip
