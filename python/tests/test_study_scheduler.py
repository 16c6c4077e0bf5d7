# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The studies of the scheduler: what they plan, and what they make of small logs, worked out by
hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import klogger
from klogger import expectation
from klogger_lab.machine import Machine
from klogger_lab.study import discover
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run

NAMES = ("quanta", "migration", "switch-cost", "chat", "yield", "processes", "ring")
MACHINE = Machine(2, "6.18", "CPU", 1 << 30, 32768, 1 << 20, 250, False, "tsc")
# CLOCK_MONOTONIC at time 0 of the logs of tests.
START = 5_000_000
MakeRun = Callable[..., Run]


def plan(folder: Path, seconds: float = 60, machine: Machine = MACHINE) -> Plan:
    return Plan(machine, seconds, folder, lambda name: folder / name)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A run of an arm: the lines of its log as in an expectation, and what its programs printed."""
    made = []

    def make(arm: str, log: str, *said: dict[str, Any], **parameters: Any) -> Run:
        made.append(arm)
        path = tmp_path / f"{len(made)}" / "scheduler" / "expect" / "x.expect"
        path.parent.mkdir(parents=True)
        path.write_text(
            "with: switching\nlog:\n"
            + "".join(f"  {line.strip()}\n" for line in log.strip().splitlines())
            + "finding:\n"
        )
        opened = klogger.open(
            expectation.make(expectation.read(path), tmp_path / f"{len(made)}" / "x.klog-parquet")
        )
        return Run(
            Arm(arm, [], 1, parameters), opened, "".join(json.dumps(one) + "\n" for one in said)
        )

    return make


def report(role: str, tid: int, count: int, at: int, **more: int) -> dict[str, Any]:
    """What a thread prints at its end; `at` is a time of the log."""
    counted = {"cpu_ns": 0, "nvcsw": 0, "nivcsw": 0, **more}
    return {"role": role, "tid": tid, "tgid": tid, "count": count, "time_ns": at + START, **counted}


def analyse(name: str, tmp_path: Path, *runs: Run) -> Answer:
    return discover.find(name).study.analyse(plan(tmp_path), list(runs))


def check(answer: Answer, name: str) -> Check:
    (found,) = [c for c in answer.checks if c.name == name]
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seconds", [5, 60, 600])
def test_plan(name: str, seconds: float, tmp_path: Path) -> None:
    """Each study keeps to its time, but for the least that an arm needs, and names its
    arms apart.
    """
    study = discover.find(name).study
    seconds = max(seconds, study.least_seconds)
    arms = study.arms(plan(tmp_path, seconds))
    assert len({a.name for a in arms}) == len(arms) >= 2
    assert sum(a.seconds for a in arms) <= 1.2 * seconds
    assert all(isinstance(word, (str, Path)) for a in arms for word in a.command)
    study.arms(plan(tmp_path, seconds, Machine(1, "", "", 0, 0, 0, 0, False, "")))


LOOPS = """
  process 10 spin
  process 11 spin
  0ms    0  SCHEDIN   pid=10
  100ms  0  SCHEDOUT  pid=10 next=11
  100ms  0  SCHEDIN   pid=11
  200ms  0  SCHEDOUT  pid=11 next=10
  200ms  0  SCHEDIN   pid=10
  250ms  0  SCHEDOUT  pid=10 state=1
  300ms  0  SCHEDIN   pid=10
  end 400ms
"""


def test_quanta(make_run: MakeRun, tmp_path: Path) -> None:
    said = [
        report("spin", 10, 1, 300_000_001, cpu_ns=150_000_000, nvcsw=1, nivcsw=1),
        report("spin", 11, 1, 300_000_001, cpu_ns=100_000_000, nivcsw=1),
    ]
    answer = analyse("quanta", tmp_path, make_run("two loops", LOOPS, *said))
    (row,) = answer.results[0].table.records()
    assert (row["quanta"], row["p50"], row["max"]) == (3, 100_000_000, 100_000_000)
    assert answer.results[0].points.rows == [
        [50_000_000, 1 / 3, "two loops"],
        [100_000_000, 1.0, "two loops"],
    ]
    assert [c.ok for c in answer.checks] == [True] * 3


def test_a_check_fails_if_the_log_says_something_else(make_run: MakeRun, tmp_path: Path) -> None:
    said = report("spin", 10, 1, 300_000_001, cpu_ns=300_000_000, nvcsw=9, nivcsw=1)
    answer = analyse("quanta", tmp_path, make_run("two loops", LOOPS, said))
    assert not check(answer, "switches").ok
    assert "2 switches of 1 threads, getrusage counted 10" in check(answer, "switches").text
    assert not check(answer, "CPU time").ok


def test_events_that_were_lost_are_a_failed_check(make_run: MakeRun, tmp_path: Path) -> None:
    log = LOOPS + "ledger key=ring_full count=3 event=SCHEDIN cpu=0\n"
    answer = analyse("quanta", tmp_path, make_run("two loops", log, report("spin", 10, 1, 1)))
    assert check(answer, "losses").text == "events lost: two loops: 3"
    assert not check(answer, "losses").ok


def test_a_planted_daemon(make_run: MakeRun, tmp_path: Path) -> None:
    log = """
      process 10 spin
      process 12 daemon
      0ms    0  SCHEDIN   pid=10
      100ms  0  SCHEDOUT  pid=10 next=12
      100ms  0  SCHEDIN   pid=12
      101ms  0  SCHEDOUT  pid=12 state=1 next=10
      101ms  0  SCHEDIN   pid=10
      150ms  0  SCHEDOUT  pid=10 state=1
      end 200ms
    """
    said = [
        report("spin", 10, 1, 150_000_001, cpu_ns=149_000_000, nvcsw=1, nivcsw=1),
        report("daemon", 12, 1, 150_000_001),
    ]
    answer = analyse("quanta", tmp_path, make_run("loop and daemon", log, *said))
    found = check(answer, "planted daemon")
    assert found.ok
    assert (
        found.text
        == "woke 1 times by its own count; ran 1 times and cut 1 quanta of the loop by the log"
    )
    assert any("cut most often by daemon (1 times)" in s for s in answer.sentences)


# Two CPUs for 100 ms: decoder 40 ms on CPU 0 and 20 ms on CPU 1, display 20 ms on CPU 0, a hog 60
# ms on CPU 1, another program 10 ms on CPU 1. Both sit on CPU 0 from 40 to 80 ms; from then on
# decoder sits on CPU 1.
PLAYER = """
  process 10 decoder
  process 11 display
  process 12 hog
  0ms    0  CPU_SWITCH  prev=0 next=10
  0ms    0  SCHEDIN     pid=10
  0ms    1  CPU_SWITCH  prev=0 next=12
  0ms    1  SCHEDIN     pid=12
  40ms   0  CPU_SWITCH  prev=10 next=11
  40ms   0  SCHEDOUT    pid=10 state=1 next=11
  40ms   0  SCHEDIN     pid=11
  60ms   0  CPU_SWITCH  prev=11 next=0
  60ms   0  SCHEDOUT    pid=11 state=1
  60ms   1  CPU_SWITCH  prev=12 next=99
  60ms   1  SCHEDOUT    pid=12 state=0 next=99
  70ms   1  CPU_SWITCH  prev=99 next=0
  80ms   1  CPU_SWITCH  prev=0 next=10
  80ms   1  SCHEDIN     pid=10
  80ms   1  MIGRATE     pid=10 from_cpu=0 to_cpu=1
  100ms  1  CPU_SWITCH  prev=10 next=0
  100ms  1  SCHEDOUT    pid=10 state=1
  end 100ms
"""


def test_migration(make_run: MakeRun, tmp_path: Path) -> None:
    def machine(at: int, idle: int) -> dict[str, Any]:
        return {"role": "machine", "time_ns": at + START, "idle_ns": idle}

    said = [
        machine(0, 7), report("decoder", 10, 4, 100_000_001, nvcsw=2),
        report("display", 11, 1, 100_000_001, nvcsw=1), machine(100_000_000, 50_000_007),
    ]  # fmt: skip
    answer = analyse("migration", tmp_path, make_run("0 hogs", PLAYER, *said, hogs=0, frames=4))
    (row,) = answer.results[0].table.records()
    shares = [
        row[name] for name in ("decoder", "display", "hogs", "others", "idle", "together", "moves")
    ]
    assert shares == pytest.approx([0.3, 0.1, 0.3, 0.05, 0.25, 40 / 60, 10])
    assert answer.results[1].table.rows == [[0, 4, 1, 0.25]]
    assert [c.ok for c in answer.checks] == [True] * 4
    assert check(answer, "busy time, 0 hogs").text.startswith(
        "all threads by the log: 0.150 s; 2 CPUs without idle"
    )


def test_migration_says_when_others_had_the_machine(make_run: MakeRun, tmp_path: Path) -> None:
    said = [
        {"role": "machine", "time_ns": START, "idle_ns": 0}, report("decoder", 8, 4, 1),
        report("display", 9, 1, 1),
        {"role": "machine", "time_ns": 100_000_000 + START, "idle_ns": 150_000_000},
    ]  # fmt: skip
    answer = analyse("migration", tmp_path, make_run("0 hogs", PLAYER, *said, hogs=0, frames=4))
    assert any(
        "Other programs of this machine had up to 45 % of its CPUs" in s for s in answer.sentences
    )
    assert not check(answer, "busy time, 0 hogs").ok
    assert not check(answer, "work of the decoder").ok


# A switch of 2 + 1 µs, one of 4 + 2 µs, and a call without one, of 1 µs.
CALLS = """
  process 10 sorter
  process 11 sorter
  1us   1  NR_RUNNING   runq=1 queued=2
  10us  1  SCHED_ENTER  pid=10
  12us  1  CPU_SWITCH   prev=10 next=11
  13us  1  SCHED_LEAVE  switched=1
  30us  1  SCHED_ENTER  pid=11
  34us  1  CPU_SWITCH   prev=11 next=10
  35us  1  SCHEDOUT     pid=11 next=10
  36us  1  SCHED_LEAVE  switched=1
  40us  1  SCHED_ENTER  pid=10
  41us  1  SCHED_LEAVE  switched=0
  end 1ms
"""


def test_switch_cost(make_run: MakeRun, tmp_path: Path) -> None:
    said = [
        report("sorter", 10, 30, 900_000, cpu_ns=500_000),
        report("sorter", 11, 10, 900_000, cpu_ns=300_000, nivcsw=1),
    ]
    answer = analyse("switch-cost", tmp_path, make_run("2 copies", CALLS, *said, copies=2, cpu=1))
    (row,) = answer.results[0].table.records()
    assert row["compared"] == 40
    assert row["per_cpu_s"] == pytest.approx(40 / 0.0008)
    assert row["scheduler"] == pytest.approx(10_000 / 0.001)
    costs = {r["what"]: (r["calls"], r["mean"]) for r in answer.results[1].table.records()}
    assert costs == {
        "switch": (2, 4500),
        "choosing": (2, 3000),
        "changing": (2, 1500),
        "no switch": (1, 1000),
    }
    assert check(answer, "calls").ok
    # One of the two switches has no SCHEDOUT of the scheduler schema.
    assert (
        check(answer, "two schemata").text
        == "sorters left the CPU 1 times by scheduler, 2 by switching"
    )
    assert not check(answer, "two schemata").ok


def test_switch_cost_on_a_kernel_without_its_tracepoints(make_run: MakeRun, tmp_path: Path) -> None:
    answer = analyse(
        "switch-cost",
        tmp_path,
        make_run("1 copies", LOOPS, report("spin", 10, 1, 1), copies=1, cpu=0),
    )
    assert not answer.results
    assert "no tracepoint" in answer.cannot[0]


def test_yield(make_run: MakeRun, tmp_path: Path) -> None:
    said = [
        report("yielder", 10, 8, 300_000_001, nvcsw=1, nivcsw=1),
        report("yielder", 11, 4, 300_000_001, nivcsw=1)
    ]  # fmt: skip
    answer = analyse(
        "yield", tmp_path, make_run("two on one CPU", LOOPS, *said, processes=2, seconds=0.5)
    )
    (row,) = answer.results[0].table.records()
    assert (row["yields"], row["switches"], row["changed"], row["per_second"]) == (12, 3, 0.25, 6)
    assert [c.ok for c in answer.checks] == [True] * 3


BIRTHS = """
  process 10 births
  0us    0  SCHEDIN  pid=10
  100us  0  FORK     parent=10 child=20 tgid=20
  110us  0  SCHEDIN  pid=20
  150us  0  EXEC     pid=20
  300us  0  EXIT     pid=20
  400us  0  FORK     parent=10 child=21 tgid=21
  430us  1  SCHEDIN  pid=21
  500us  1  EXEC     pid=21
  520us  1  FORK     parent=21 child=22 tgid=22
  900us  1  EXIT     pid=21
  end 1ms
"""


@pytest.mark.parametrize("made", [2, 3])
def test_processes(make_run: MakeRun, tmp_path: Path, made: int) -> None:
    born = {"role": "births", "births": made, "took_ns": 900_000}
    answer = analyse(
        "processes",
        tmp_path,
        make_run("fork + exec", BIRTHS, born, report("parent", 10, made, 950_000)),
    )
    (row,) = answer.results[0].table.records()
    assert (row["first_run"], row["to_exec"], row["to_exit"], row["same_cpu"]) == (
        10_000,
        50_000,
        200_000,
        0.5,
    )
    assert row["each"] == 900_000 / made
    assert check(answer, "births").ok == (made == 2)


@pytest.mark.parametrize("heard", [20, 19])
def test_chat(make_run: MakeRun, tmp_path: Path, heard: int) -> None:
    """Of two wake-ups, one goes to another CPU; two switches between the beginning and the end of
    the chat.
    """
    log = """
      process 10 server
      10us  0  TRY_TO_WAKEUP  pid=10 waker=11
      12us  1  ADD_TO_RUNQ    pid=10 runq=1
      20us  0  SCHEDOUT       pid=11 state=1
      30us  0  TRY_TO_WAKEUP  pid=10 waker=11
      31us  0  ADD_TO_RUNQ    pid=10 runq=0
      40us  0  SCHEDOUT       pid=11 state=1
      90us  0  SCHEDOUT       pid=11 state=1
      end 1ms
    """
    said = [
        {"role": "chat", "begin_ns": START, "end_ns": START + 50_000},
        report("sender", 11, 1, 1), report("receiver", 12, heard, 1),
    ]  # fmt: skip
    answer = analyse("chat", tmp_path, make_run("normal", log, *said, users=20))
    (row,) = answer.results[0].table.records()
    assert row["per_second"] == pytest.approx(heard * 20_000)
    assert (row["switches"], row["wakeups"], row["other_cpu"]) == (2 / heard, 2 / heard, 0.5)
    assert check(answer, "messages").ok == (heard == 20)


def test_ring(make_run: MakeRun, tmp_path: Path) -> None:
    """Two members, three passes in 250 ms; 90 ns of CPU time each, of which 40 are not the
    switch's.
    """
    said = [
        {"role": "alone", "ns": 40.0},
        {"role": "ring", "rounds": 2, "begin_ns": START, "end_ns": START + 250_000_000},
        report("member", 10, 2, 300_000_000, cpu_ns=170, nvcsw=1, nivcsw=1),
        report("member", 11, 1, 300_000_000, cpu_ns=100, nivcsw=1),
    ]  # fmt: skip
    answer = analyse(
        "ring", tmp_path, make_run("2 processes, 0 KiB", LOOPS, *said, n=2, kind="processes", kib=0)
    )
    (row,) = answer.results[0].table.records()
    assert (row["passes"], row["cpu_ns"], row["switch"]) == (3, 90, 50)
    assert check(answer, "passes").ok


def test_several_copies_beside_one() -> None:
    against_one = discover.find("switch-cost").study.analyse.__globals__["against_one"]
    seen = [
        {
            "copies": n,
            "compared": compared,
            "cpu_s": 1.0,
            "seconds": 2.0,
            "parts": {"choosing": {"total": total}},
        }
        for n, compared, total in ((1, 1000, 8e6), (2, 900, 10e6), (8, 950, 6e6))
    ]
    sorting, scheduler = against_one(seen)
    assert (
        "2 and 8 copies sort between 10.0 % less and 5.0 % less than one; one copy sorts most"
        in sorting
    )
    assert "4.00 ms of each second with one copy, and 3.00 ms to 5.00 ms with 2 and 8" in scheduler


@pytest.mark.parametrize(
    ("many", "verdict"), [(190, "grows with"), (130, "grows, by less"), (90, "does not grow")]
)
def test_whether_the_rate_of_yields_grows(many: int, verdict: str) -> None:
    growth = discover.find("yield").study.analyse.__globals__["growth"]
    (sentence,) = growth({"unlogged": 100.0}, {"unlogged": float(many), "cpus": 2})
    assert (
        f"2 CPUs together make {many} switches a second without logging, one makes 100: the rate"
        f" {verdict}" in sentence
    )
