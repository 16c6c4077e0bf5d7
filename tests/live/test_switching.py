# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the schema `switching` says of the scheduler, and which planted causes the analyses of
`scheduler` find.
"""

import json
import subprocess
from pathlib import Path

import oracles
import pytest

ROOT = Path(__file__).resolve().parents[2]
# By its file, so that it need not be built in.
SWITCHING = ROOT / "schemata/switching/switching.klogger"
SCHEDULER = ROOT / "schemata/scheduler/scheduler.klogger"


@pytest.fixture
def calls(recorder):
    """Skips where the kernel cannot report calls of the scheduler."""
    shown = json.loads(recorder.command("show", SWITCHING, "--format", "json").out)
    able = {
        event for probe in shown["probes"] if probe.get("attaches") for event in probe["events"]
    }
    if not {"SCHED_ENTER", "SCHED_LEAVE"} <= able:
        pytest.skip("this kernel has no tracepoints at the beginning and the end of the scheduler")


def faulty_calls(log) -> list:
    """Of each CPU, the steps that do not follow: SCHED_ENTER, perhaps CPU_SWITCH, SCHED_LEAVE."""
    log.db.execute("""
        CREATE OR REPLACE TEMP TABLE step AS
        SELECT cpu, time, serial, 'enter' AS what, 0 AS switched FROM sched_enter
        UNION ALL SELECT cpu, time, serial, 'switch', 0 FROM cpu_switch
        UNION ALL SELECT cpu, time, serial, 'leave', switched FROM sched_leave""")
    # All three are attached from here to there.
    return log.rows(
        """
        WITH range AS (
            SELECT max(first) AS first, min(last) AS last
            FROM (SELECT what, min(time) AS first, max(time) AS last FROM step GROUP BY what)
        ), ordered AS (
            SELECT *, lag(what) OVER (PARTITION BY cpu ORDER BY serial) AS before FROM step
        )
        SELECT cpu, time, before, what, switched FROM ordered, range
        WHERE time > first AND time < last AND before IS NOT NULL AND NOT coalesce(
            CASE what WHEN 'enter' THEN before = 'leave' WHEN 'switch' THEN before = 'enter'
                      ELSE before = CASE WHEN switched = 1 THEN 'switch' ELSE 'enter' END
                      END, false)"""
    )


def check_calls(log, report):
    oracles.check_whole(log)
    calls = log.count("SCHED_ENTER")
    # The events of two schemata that may be logged at either end of the recording.
    faulty = faulty_calls(log)
    per_cpu = log.one("SELECT count(DISTINCT cpu) FROM step")
    assert len(faulty) <= 2 * per_cpu + 0.001 * calls, faulty[:10]
    for thread in report["threads"]:
        out = log.count("SCHEDOUT", f"pid = {thread['tid']}")
        assert log.count("CPU_SWITCH", f"prev = {thread['tid']}") == out
        assert log.count("CPU_SWITCH", f"next = {thread['tid']}") == log.count(
            "SCHEDIN", f"pid = {thread['tid']}"
        )
        assert out >= thread["nvcsw"] + thread["nivcsw"]


@pytest.mark.full("others of this file are in the gate")
def test_the_workload_ends(tmp_path):
    """The first process of its ring to see that the time is over must not leave the others
    waiting for the byte.
    """
    program = tmp_path / "program"
    subprocess.run(
        ["cc", "-O1", "-o", program, ROOT / "schemata/switching/workload.c"],
        check=True,
        timeout=300,
    )
    for _ in range(150):
        subprocess.run([program, "ring", "2", "0.002"], check=True, timeout=120)


def test_calls_and_switches(recorder, workloads, calls):
    """Each call ends, and says of itself what sched_switch says; the switches are those of the
    scheduler schema.
    """
    command = [workloads / "pingpong", 10000, "processes", 0]
    log, report = recorder.checked(
        check_calls, "-s", SWITCHING, "-s", "scheduler", "--buffer-size", "16M", "--", *command
    )
    assert sum(thread["count"] for thread in report["threads"]) == 20000
    assert log.count("SCHED_ENTER") >= log.count("CPU_SWITCH") - 10


@pytest.mark.full("depends on how busy the machine is")
def test_lengths_of_queues(recorder, workloads):
    """Each change is what the length changes by; four threads on one CPU are four on its queue."""
    log, report = recorder.log(
        "-s", SWITCHING, "--buffer-size", "16M", "--", workloads / "spinners", 4, 400, 0
    )
    oracles.check_whole(log)
    wrong = log.one("""
        SELECT count(*) FROM (
            SELECT queued::INTEGER - change AS was,
                   lag(queued) OVER (PARTITION BY runq ORDER BY time, serial) AS before
            FROM nr_running)
        WHERE before IS NOT NULL AND before <> was""")
    # Kernels that leave out a few switches leave out a few changes, too: the next one has the right
    # length again.
    assert wrong <= 2 + 0.02 * log.count("NR_RUNNING")
    tids = ", ".join(str(thread["tid"]) for thread in report["threads"])
    low, high = log.rows(f"SELECT min(time), max(time) FROM cpu_switch WHERE next IN ({tids})")[0]
    most = log.one(
        f"SELECT max(queued) FROM nr_running WHERE runq = 0 AND time BETWEEN {low} AND {high}"
    )
    assert most >= 4


def answer(recorder, path, name) -> dict:
    done = recorder.command("report", path, "--analysis", name, "--format", "json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)["analyses"]
    return found


@pytest.mark.full("depends on how busy the machine is")
def test_a_switch_has_a_cost(recorder, workloads, calls):
    """The two parts of a switch are the whole, and a pass of the ping-pong takes longer than its
    switch.
    """
    done, path = recorder.run("-s", SWITCHING, "--", workloads / "pingpong", 5000, "threads", 0)
    report = oracles.workload_json(done.out)
    rows = {
        row["what"]: row
        for row in answer(recorder, path, "switch_cost")["table"]
        if row["queued"] == "any"
    }
    assert rows["switch"]["calls"] == rows["choosing"]["calls"] == rows["changing"]["calls"] >= 5000
    assert 0 < rows["switch"]["p50"] < report["round_ns"]
    parts = rows["choosing"]["mean"] + rows["changing"]["mean"]
    # The longest 0.1 % are left out of each mean by itself.
    assert rows["switch"]["mean"] == pytest.approx(parts, rel=0.2)


@pytest.mark.full("depends on how busy the machine is")
def test_two_threads_on_one_cpu(recorder, workloads):
    """Two threads are forced onto CPU 0: the finding says that they wait there, while another CPU
    is free of them.
    """
    if len(cpus()) < 2:
        pytest.skip("it takes two CPUs")
    done, path = recorder.run("-s", SCHEDULER, "--", workloads / "spinners", 2, 1500, 0)
    assert done.code == 0, done.err
    found = answer(recorder, path, "runq")
    assert found["findings"], found
    assert found["findings"][0].startswith("Threads wait on CPU 0 for ")
    assert "spinners[" in found["findings"][0]
    wasted = {row["on_cpu"]: row["wasted"] for row in found["table"]}
    assert wasted[0] > 0.5


def cpus() -> list:
    return [p for p in Path("/sys/devices/system/cpu").glob("cpu[0-9]*") if p.name[3:].isdigit()]
