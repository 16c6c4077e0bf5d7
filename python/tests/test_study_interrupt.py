# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The studies of interrupts: what they say of small logs whose answers are known."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import axes
import pytest
import support

import klogger
from klogger import expectation, pictures
from klogger.drawing import Palette, Theme
from klogger_lab.machine import Machine
from klogger_lab.study import discover
from klogger_lab.study.model import Arm, Plan, Run

MACHINE = Machine(2, "6.18", "a CPU", 1 << 30, 32 << 10, 1 << 20, 250, True, "tsc")
# support.write_log lets each log begin at this time.
START = 5_000_000
TIMER = """analysis: timer_cost
with: causes traps
log:
  1ms     0  SYS_IN   id=96
  4ms     0  VEC_IN   kind=0
  4001us  0  HRT_IN   timer=1 fn=1 fn_symbol=tick_nohz_handler+0x0
  4010us  0  VEC_OUT  kind=0
  4011us  0  SOFT_IN  kind=9
  4016us  0  SOFT_OUT kind=9
  6ms     0  VEC_IN   kind=0
  6001us  0  HRT_IN   timer=2 fn=2 fn_symbol=hrtimer_wakeup+0x0
  6100us  0  VEC_OUT  kind=0
  8ms     0  VEC_IN   kind=0
  8001us  0  HRT_IN   timer=1 fn=1 fn_symbol=tick_nohz_handler+0x0
  8020us  0  VEC_OUT  kind=0
  12ms    0  VEC_IN   kind=0
  12001us 0  HRT_IN   timer=1 fn=1 fn_symbol=tick_nohz_handler+0x0
  12015us 0  VEC_OUT  kind=0
  end 20ms
table: cpu
"""


def plan_of(tmp_path: Path, seconds: float = 60, cpus: int = 2) -> Plan:
    return Plan(replace(MACHINE, cpus=cpus), seconds, tmp_path, lambda name: tmp_path / name)


def run_of(
    case: expectation.Expectation, tmp_path: Path, arm: Arm, output: dict[str, Any], oracle: Any
) -> Run:
    log = klogger.open(expectation.make(case, tmp_path / f"{arm.name}.klog-parquet"))
    return Run(arm, log, json.dumps(output), oracle)


def noise_run(tmp_path: Path, iterations: int = 4, timer: int = 2) -> Run:
    """That of the expectation of noise_cdf: three iterations count, in the fourth another thread
    had the CPU.
    """
    path = tmp_path / "noise" / "expect" / "noise_cdf.expect"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (support.SCHEMATA / "noise" / "expect" / "noise_cdf.expect").read_text()
    stolen = "log:\n  2501us  0  STEAL  total=5000000\n  3501us  0  STEAL  total=25000000\n"
    path.write_text(text.replace("log:\n", stolen, 1))
    case = expectation.read(path)
    arm = Arm("nothing else", ["loop"], 1, {"cpu": 0, "touches": 8, "rate": 0})
    output = {"iterations": iterations, "timer": timer, "began": START, "ended": START + 6_000_000}
    return run_of(case, tmp_path, arm, output, None)


def study(schema: str, name: str) -> Any:
    return discover.load(support.SCHEMATA / schema / "studies" / f"{name}.py").study


def test_noise_says_what_the_log_has(tmp_path: Path) -> None:
    answer = study("noise", "noise").analyse(plan_of(tmp_path), [noise_run(tmp_path)])
    figure_8, arms, _ = answer.results
    raw, without, clean, paper = figure_8.table.records()
    assert (raw["min"], raw["p50"], raw["max"]) == (1_000_000, 1_030_000, 1_100_000)
    assert (without["max"], clean["max"]) == (1_060_000, 1_025_000)
    assert paper["max"] == 1_960_000
    assert {r["series"] for r in figure_8.points.records()} == {"raw", "without timer", "clean"}
    # What is usual without handlers is 1.010 ms.
    drawn = {(r["series"], round(r["part"], 2)): r["extra"] for r in figure_8.points.records()}
    assert (drawn["raw", 0.67], drawn["clean", 0.67]) == (20_000, 0)
    picture = pictures.draw(figure_8, Palette(), Theme())
    assert picture is not None
    assert axes.faults_of(picture) == []
    # 4.5 ms in all: two timer interrupts, one IPI and one of the disk; 20 + 75 µs in handlers.
    (row,) = arms.table.records()
    assert (row["iterations"], row["others"], row["steal"]) == (3, 1, 20_000_000)
    assert row["timer_rate"] == pytest.approx(2 / 0.0045)
    assert row["rate"] == pytest.approx(4 / 0.0045)
    assert row["handlers"] == pytest.approx(95 / 4500)
    assert all(check.ok for check in answer.checks), answer.checks


def test_noise_says_whether_its_loop_was_of_1_ms(tmp_path: Path) -> None:
    analyse = study("noise", "noise").analyse
    first, *_ = analyse(plan_of(tmp_path), [noise_run(tmp_path)]).sentences
    # 1.01 ms is near enough.
    assert "take over 1 % longer than usual" in first
    calibrated = analyse.__globals__["calibrated"]
    short = noise_run(tmp_path)
    short.output = json.dumps({"iterations": 4, "blocks": 5, "uncalibrated": 2})
    assert calibrated(short) == [
        "nothing else: in 2 of 5 blocks the loop could not be calibrated within 1 %."
    ]
    path = tmp_path / "noise" / "expect" / "noise_cdf.expect"
    path.write_text(path.read_text().replace("nominal=1000000", "nominal=900000"))
    slow = run_of(expectation.read(path), tmp_path, Arm("slow", ["loop"], 1), {}, None)
    (sentence,) = calibrated(slow)
    assert "not of 900 µs all the time: without handlers usually 1.01 ms" in sentence


def test_noise_finds_what_does_not_agree(tmp_path: Path) -> None:
    answer = study("noise", "noise").analyse(
        plan_of(tmp_path), [noise_run(tmp_path, iterations=5, timer=6)]
    )
    failed = {check.name for check in answer.checks if not check.ok}
    assert failed == {"nothing else: iterations", "nothing else: timer interrupts of CPU 0"}


@pytest.mark.parametrize(("before", "restored"), [("950000", "950000"), ("-1", "-1")])
def test_noise_puts_the_throttle_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, restored: str
) -> None:
    throttle = tmp_path / "sched_rt_runtime_us"
    throttle.write_text(before + "\n")
    unthrottled = study("noise", "noise").arms.__globals__["unthrottled"]
    monkeypatch.setitem(unthrottled.__wrapped__.__globals__, "THROTTLE", throttle)
    with pytest.raises(KeyboardInterrupt), unthrottled():
        assert throttle.read_text().strip() == "-1"
        raise KeyboardInterrupt
    # By a child, for which nobody waits after Ctrl-C.
    deadline = time.monotonic() + 60
    while throttle.read_text().strip() != restored and time.monotonic() < deadline:
        time.sleep(0.01)
    assert throttle.read_text().strip() == restored


def timer_run(tmp_path: Path, counted: int = 4) -> Run:
    path = tmp_path / "interrupt" / "expect" / "timer.expect"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TIMER.replace("log:\n", "log:\n" + "  2ms  0  SYS_IN  id=96\n" * 999, 1))
    oracle = {"cost": {"library_ns": 50.0, "kernel_ns": 250.0}}
    output = {"began": START, "ended": START + 12_020_000, "timer": counted}
    arm = Arm("tsc, first", ["clocks"], 1, {"cpu": 0, "clock": "tsc"})
    return run_of(expectation.read(path), tmp_path, arm, output, oracle)


def test_timer_counts_ticks_only(tmp_path: Path) -> None:
    """Ticks of 10, 20 and 15 µs; that of the thread's timer does not count. 5 µs of soft interrupts
    for three ticks.
    """
    answer = study("interrupt", "timer").analyse(plan_of(tmp_path), [timer_run(tmp_path)])
    (row,) = answer.results[0].table.records()
    assert (row["ticks"], row["p50"], row["p99"]) == (3, 15_000, 20_000)
    assert row["later"] == pytest.approx(5000 / 3)
    assert (row["library"], row["kernel"], row["enters"]) == (50.0, 250.0, 0.0)
    assert row["of_cpu"] == pytest.approx(50 / 12_020)
    assert all(check.ok for check in answer.checks), answer.checks
    assert (
        "A tick costs what 75 calls save by being answered without the kernel." in answer.sentences
    )


def test_timer_finds_what_does_not_agree(tmp_path: Path) -> None:
    answer = study("interrupt", "timer").analyse(
        plan_of(tmp_path), [timer_run(tmp_path, counted=8)]
    )
    assert [check.name for check in answer.checks if not check.ok] == [
        "tsc, first: timer interrupts of CPU 0"
    ]


def test_a_difference_between_clocks_must_be_greater_than_between_runs(tmp_path: Path) -> None:
    compared = study("interrupt", "timer").analyse.__globals__["compared"]
    apart = [{"clock": "tsc, first", "p50": 10_000}, {"clock": "hpet, first", "p50": 20_000}]
    assert "makes a difference" in compared([*apart, {"clock": "tsc, again", "p50": 12_000}])
    assert "no difference is seen" in compared([*apart, {"clock": "tsc, again", "p50": 19_500}])


def test_the_throttle_is_put_back_after_kill_9(tmp_path: Path) -> None:
    throttle = tmp_path / "sched_rt_runtime_us"
    throttle.write_text("950000\n")
    program = f"""
import os, pathlib, signal
from klogger_lab.study import discover
noise = discover.load(pathlib.Path({str(support.SCHEMATA / "noise/studies/noise.py")!r}))
unthrottled = noise.study.arms.__globals__
unthrottled["THROTTLE"] = pathlib.Path({str(throttle)!r})
with unthrottled["unthrottled"]():
    assert unthrottled["THROTTLE"].read_text() == "-1"
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL
    for _ in range(600):
        if throttle.read_text() == "950000\n":
            return
        time.sleep(0.1)
    pytest.fail(f"left at {throttle.read_text()!r}")
