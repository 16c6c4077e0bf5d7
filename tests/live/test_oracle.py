# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The scheduler schema says what the kernel says of the same threads."""

import oracles
import pytest


def check_pingpong(log, report):
    oracles.check_whole(log)
    oracles.check_threads(log, report)
    oracles.check_pingpong(log, report)


@pytest.mark.parametrize("kind", ["processes", "threads"])
@pytest.mark.parametrize("cpu", [0, pytest.param(-1, marks=pytest.mark.full("may run five times"))])
def test_pingpong(recorder, workloads, kind, cpu):
    command = [workloads / "pingpong", 20000, kind, cpu]
    _, report = recorder.checked(check_pingpong, "-s", "scheduler", "--", *command)
    assert report["rounds"] == 20000


def check_preempted(log, report):
    oracles.check_whole(log)
    oracles.check_threads(log, report)
    assert all(thread["nivcsw"] > 0 for thread in report["threads"])


@pytest.mark.full("depends on how busy the machine is")
def test_preemption(recorder, workloads):
    recorder.checked(check_preempted, "-s", "scheduler", "--", workloads / "spinners", 3, 300, 0)


def check_asleep(log, report):
    oracles.check_whole(log)
    oracles.check_threads(log, report)
    for thread in report["threads"]:
        assert log.count("SCHEDOUT", f"pid = {thread['tid']} AND state & 1 = 1") >= thread["count"]


@pytest.mark.full("depends on how busy the machine is")
def test_sleepers(recorder, workloads):
    recorder.checked(check_asleep, "-s", "scheduler", "--", workloads / "sleepers", 5, 101, 500)


def test_forks(recorder, workloads):
    log, report = recorder.log("-s", "scheduler", "--", workloads / "forks", 23)
    oracles.check_whole(log)
    oracles.check_forks(log, report, 23)


def test_only_the_commands_tree(recorder, workloads):
    """What others do meanwhile is not in the log."""
    log, report = recorder.log("-s", "scheduler", "--", workloads / "sleepers", 2, 50, 1000)
    known = {pid for (pid,) in log.rows("SELECT pid FROM process")}
    strangers = log.rows("SELECT DISTINCT pid FROM schedout")
    assert {pid for (pid,) in strangers} <= known
    tree = {report["pid"], *(thread["tid"] for thread in report["threads"])}
    ran = {pid for (pid,) in log.rows("SELECT DISTINCT pid FROM schedin")}
    assert ran <= tree | {0}, "threads that are none of the workload's"


@pytest.mark.full("depends on how busy the machine is")
def test_times_are_the_monotonic_clocks(recorder, workloads):
    log, report = recorder.log("-s", "scheduler", "--", workloads / "pingpong", 100, "processes", 0)
    for thread in report["threads"]:
        reported = thread["time_ns"] - log.start_ns
        first = log.one(f"SELECT min(time) FROM schedin WHERE pid = {thread['tid']}")
        # It reports, and then ends: between two of its events.
        assert 0 < first < reported < log.one(f"SELECT time FROM exit WHERE pid = {thread['tid']}")
