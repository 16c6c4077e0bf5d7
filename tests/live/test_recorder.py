# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How a recording begins, is spoken to, and ends, well or badly."""

import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

import oracles
import pytest
from conftest import small_disk_at
from oracles import Log
from tiers import scaled
from witness import Witness

FLOOD = Path(__file__).with_name("flood.klogger")


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def started(path):
    """The recorder has written a log's beginning."""
    return wait_for(lambda: path.exists() and path.stat().st_size > 0)


def finish(process, timeout=60):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_commands_exit_code_is_passed_on(recorder, code):
    done, path = recorder.run("-s", "scheduler", "--", "sh", "-c", f"exit {code}")
    assert done.code == code
    oracles.check_whole(Log(recorder.klogger, path))


@pytest.mark.full("others of this file are in the gate")
def test_a_command_that_a_signal_ends(recorder):
    done, _ = recorder.run("-s", "scheduler", "--", "sh", "-c", "kill -TERM $$")
    assert done.code == 128 + signal.SIGTERM


def test_output_of_the_command_is_its_own(recorder):
    done, _ = recorder.run("-s", "scheduler", "--", "sh", "-c", "echo out; echo err >&2")
    assert done.out == "out\n"
    assert "err\n" in done.err


@pytest.mark.full("others of this file are in the gate")
def test_the_log_names_the_recorders_threads(recorder):
    _, path = recorder.run("-s", "scheduler", "--", "true")
    preamble = Log(recorder.klogger, path).meta["preamble"]
    threads = dict(zip(preamble["recorder"]["tids"], preamble["recorder"]["names"], strict=True))
    assert threads[preamble["recorder"]["pid"]] == "klogger"
    drains = {f"klogger/{cpu}" for cpu in preamble["host"]["cpus"]}
    assert drains | {"klogger/log"} <= set(threads.values())


def test_interrupt_ends_it_cleanly(recorder, clean_kernel):
    path = recorder.path()
    process = recorder.start("-s", "scheduler", "--", "sleep", "60", out=path)
    assert started(path)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process)
    assert code in (0, 128 + signal.SIGINT), err
    oracles.check_whole(Log(recorder.klogger, path))


def test_whom_a_command_beside_processes_records(recorder):
    """It says how long, and is not recorded."""
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        done, path = recorder.run("-s", "scheduler", "-p", sleeper.pid, "--", "true")
    finally:
        sleeper.kill()
        sleeper.wait()
    said = "the processes of -p are recorded until the command has ended; the command is not"
    assert said in " ".join(done.err.split()), done.err
    log = Log(recorder.klogger, path)
    assert log.rows("SELECT count(*) FROM exec") == [(0,)]


@pytest.mark.full("others of this file are in the gate")
def test_for_a_second(recorder, workloads):
    sleeper = subprocess.Popen(
        [workloads / "sleepers", "1", "20000", "1000"], stdout=subprocess.DEVNULL
    )
    try:
        start = time.monotonic()
        done, path = recorder.run("-s", "scheduler", "--for", "1s", "-p", sleeper.pid)
        took = time.monotonic() - start
    finally:
        subprocess.run(["pkill", "-KILL", "-P", str(sleeper.pid)], check=False)
        sleeper.wait()
    assert done.code == 0, done.err
    assert took >= 1
    log = Log(recorder.klogger, path)
    oracles.check_whole(log)
    span = log.one(
        "SELECT (SELECT max(time) FROM klogger_finish) - (SELECT min(time) FROM klogger_start)"
    )
    assert span >= 950_000_000


@pytest.mark.full("others of this file are in the gate")
def test_one_process_by_its_id(recorder, workloads):
    inside = subprocess.Popen(["sh", "-c", "while :; do sleep 0.01; done"])
    outside = subprocess.Popen(["sh", "-c", "while :; do sleep 0.01; done"])
    try:
        done, path = recorder.run("-s", "scheduler", "--for", "1s", "-p", inside.pid)
    finally:
        for process in (inside, outside):
            process.kill()
            process.wait()
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.count("PROCESS_EXISTS", f"pid = {inside.pid}") == 1
    # How often in a second is for the machine to say.
    assert log.count("SCHEDOUT", f"pid = {inside.pid}") > 0
    assert log.count("FORK", f"parent = {inside.pid}") > 0
    assert log.count("SCHEDOUT", f"pid = {outside.pid}") == 0
    assert log.count("FORK", f"parent = {outside.pid}") == 0


@pytest.mark.full("others of this file are in the gate")
def test_the_whole_system(recorder, workloads):
    """On each CPU: whatever ftrace saw is in the log, in the same order."""
    with Witness() as ftrace:
        done, path = recorder.run("-s", "scheduler", "-a", "--for", "1s")
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.count("PROCESS_EXISTS") > 1
    oracles.check_whole(log)
    for cpu in range(os.cpu_count()):
        mine = log.rows(f"SELECT pid, next FROM schedout WHERE cpu = {cpu} ORDER BY serial")
        assert mine == log.rows(f"""
            SELECT o.pid, i.pid FROM schedout AS o
            ASOF JOIN schedin AS i ON i.cpu = o.cpu AND i.serial > o.serial
            WHERE o.cpu = {cpu} ORDER BY o.serial"""), "a SCHEDOUT without its SCHEDIN"
        # ftrace began earlier and ended later. Two clocks are read at each switch, not far from one
        # another.
        first, last = log.rows(
            f"SELECT min(time) + 1000000, max(time) - 1000000 FROM schedout WHERE cpu = {cpu}"
        )[0]
        seen = [
            s for s in ftrace.switches() if s.cpu == cpu and first < s.time_ns - log.start_ns < last
        ]
        assert seen
        # The kernel reports some to one of the two only: see witness.py.
        rest = iter(mine)
        assert all((s.before, s.after) in rest for s in seen)


def test_mark_disable_enable(recorder, workloads):
    path = recorder.path()
    process = recorder.start(
        "-s", "scheduler", "--", "sh", "-c", "while :; do sleep 0.005; done", out=path
    )
    assert started(path)
    time.sleep(0.3)
    for words in (["mark", 23, "half way"], ["disable", "SCHEDOUT"], ["mark", 24, "off"]):
        done = recorder.command(*words, "--recorder", process.pid)
        assert done.code == 0, done.err
    time.sleep(0.5)
    for words in (["mark", 25, "on"], ["enable", "SCHEDOUT"], ["mark", "the", "end"], ["mark"]):
        done = recorder.command(*words, "--recorder", process.pid)
        assert done.code == 0, done.err
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    finish(process)
    log = Log(recorder.klogger, path)
    marks = log.rows("SELECT number, text FROM mark ORDER BY time")
    assert marks == [(23, "half way"), (24, "off"), (25, "on"), (26, "the end"), (27, "")]
    off, on = (log.one(f"SELECT time FROM mark WHERE number = {n}") for n in (24, 25))
    assert log.count("SCHEDOUT", f"time < {off}") > 0
    assert log.count("SCHEDOUT", f"time > {on}") > 0
    assert log.count("SCHEDOUT", f"time BETWEEN {off} + 50000000 AND {on}") == 0
    assert log.count("SCHEDIN", f"time BETWEEN {off} AND {on}") > 0
    states = log.rows("SELECT state FROM logging_event WHERE name = 'SCHEDOUT' ORDER BY time")
    assert [state & 1 for (state,) in states] == [1, 0, 1]


def test_mark_without_a_recording(recorder):
    done = recorder.command("mark", 1, "x", "--recorder", os.getpid())
    assert done.code == 2
    assert "recording" in done.err


def test_overwrite_keeps_the_newest(recorder, workloads):
    log, report = recorder.log(
        "-s", FLOOD, "--overwrite", "--buffer-size", "256K", "--", workloads / "flood", 500_000, 0
    )
    tid = report["threads"][0]["tid"]
    first, last, kept = log.rows(
        f"SELECT min(serial), max(serial), count(*) FROM flood WHERE pid = {tid}"
    )[0]
    assert 1000 < kept < 500_000
    # The newest are there: each of the flood's hits is three attempts to log on its CPU, with
    # PROCESS_RENAME.
    assert last >= 3 * 500_000 - 3
    assert last - first == 3 * (kept - 1)
    assert log.path.stat().st_size < 4 << 20


@pytest.mark.full("others of this file are in the gate")
def test_overwrite_dumps_on_request(recorder, workloads):
    path = recorder.path()
    process = recorder.start(
        "-s",
        "scheduler",
        "--overwrite",
        "--",
        "sh",
        "-c",
        "while :; do sleep 0.005; done",
        out=path,
    )
    assert started(path)
    time.sleep(0.5)
    size = path.stat().st_size
    os.kill(process.pid, signal.SIGUSR1)
    assert wait_for(lambda: path.stat().st_size > size), "SIGUSR1 wrote nothing"
    os.killpg(process.pid, signal.SIGINT)
    finish(process)
    log = Log(recorder.klogger, path)
    assert log.count("SCHEDIN") > 0
    assert log.one("SELECT max(index) FROM dump_begin") >= 1


def waits_for_signals(pid):
    """They are blocked, or caught: from now on SIGUSR1 does not end the process."""
    status = Path(f"/proc/{pid}/status").read_text()
    masks = re.findall(r"^Sig(?:Blk|Cgt):\t(\w+)", status, re.M)
    return any(int(mask, 16) >> (signal.SIGUSR1 - 1) & 1 for mask in masks)


@pytest.mark.full("others of this file are in the gate")
def test_a_dump_asked_for_too_early_comes_as_soon_as_it_can(recorder):
    path = recorder.path()
    process = recorder.start("-s", "scheduler", "--overwrite", "--", "sleep", "60", out=path)
    assert wait_for(lambda: waits_for_signals(process.pid), 60)
    # Everything has to be loaded and attached yet.
    os.kill(process.pid, signal.SIGUSR1)
    assert wait_for(
        lambda: recorder.command("mark", 1, "runs", "--recorder", process.pid).code == 0, 60
    )
    os.killpg(process.pid, signal.SIGINT)
    finish(process)
    log = Log(recorder.klogger, path)
    # The second one is that of the end.
    assert log.rows("SELECT DISTINCT index FROM dump_begin ORDER BY index") == [(0,), (1,)]


@pytest.mark.full("others of this file are in the gate")
def test_a_dump_of_what_is_no_flight_recorder_is_refused_at_once(recorder):
    path = recorder.path()
    process = recorder.start("-s", "scheduler", "--", "sleep", "60", out=path)
    assert started(path)
    os.kill(process.pid, signal.SIGUSR1)
    line = process.stderr.readline()
    assert (
        line == "klogger: SIGUSR1 requests a dump, which only a recording with --overwrite"
        " can make\n"
    )
    os.killpg(process.pid, signal.SIGINT)
    finish(process)
    oracles.check_whole(Log(recorder.klogger, path))


@pytest.mark.full("others of this file are in the gate")
def test_compressed_is_the_same_and_smaller(recorder, workloads):
    sizes = {}
    for option in ((), ("--compress",)):
        command = [workloads / "pingpong", 20000, "processes", 0]
        log, _ = recorder.checked(oracles.check_threads, "-s", "scheduler", *option, "--", *command)
        oracles.check_whole(log)
        sizes[option] = log.path.stat().st_size
    assert sizes[("--compress",)] < sizes[()] * 0.7


# Each a little later in the life of a recorder.
KILLS = scaled(6, 50)


@pytest.mark.full("others of this file are in the gate")
def test_killed_at_any_moment(recorder, workloads, clean_kernel):
    """Whatever had been written is read, and what is missing is named; what the rings hold is
    rescued, or freed.
    """
    choice = random.Random(23)
    readable = with_events = 0
    for turn in range(KILLS):
        path = recorder.path()
        process = recorder.start("-s", FLOOD, "--", workloads / "flood", 200_000_000, -1, out=path)
        # While it starts; while it records; and when there are events in the file.
        if turn % 3:
            assert started(path)
        if turn % 3 == 2:
            assert wait_for(lambda path=path: path.stat().st_size > 1_000_000)
        time.sleep(choice.uniform(0.01, 0.4))
        os.kill(process.pid, signal.SIGKILL)
        # Its workload goes on: klogger was killed, not what it had started.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stderr.close()
        check_rescue(recorder, process.pid)
        if not path.exists() or path.stat().st_size == 0:
            continue
        info = recorder.command("info", path)
        assert "panicked" not in info.err
        if info.code == 2:
            # Not even the preamble was whole.
            assert len(info.err.strip().splitlines()) <= 2, info.err
            continue
        readable += 1
        assert re.search("killed|cut|no end", info.out + info.err), info.out + info.err
        lines = recorder.command("cat", "--event", "FLOOD", path)
        assert lines.code == 0, lines.err
        with_events += len(lines.out) > 0
        path.unlink()
    assert readable >= KILLS // 3
    assert with_events >= KILLS // 3


def check_rescue(recorder, pid):
    out = recorder.dir / "rescued.klog"
    rescued = recorder.command("rescue", pid, "-o", out)
    assert rescued.code in (0, 2) and "panicked" not in rescued.err, rescued.err
    if rescued.code == 0:
        info = recorder.command("info", out)
        assert info.code == 0 and "recorder_killed" not in info.out, info.out
    assert f"recorder[{pid}]" not in recorder.command("rescue").out


@pytest.mark.full("others of this file are in the gate")
def test_full_disk(recorder, workloads, clean_kernel):
    with small_disk_at(recorder.dir / "small", "8m") as small:
        done, path = recorder.run(
            "-s", FLOOD, "--", workloads / "flood", 1_000_000, 0, out=small / "full.klog"
        )
        assert re.search("space|full", done.err), done.err
        assert "panicked" not in done.err
        info = recorder.command("info", path)
        assert info.code == 0, info.err
        events = recorder.command("cat", "--event", "FLOOD", path)
        assert events.code == 0, events.err
        assert len(events.out.splitlines()) > 1000


def test_two_recordings_at_once(recorder, workloads):
    first, second = recorder.path(), recorder.path()
    one = recorder.start(
        "-s", "scheduler", "--", workloads / "pingpong", 20000, "processes", 0, out=first
    )
    two = recorder.start(
        "-s", "scheduler", "--", workloads / "pingpong", 20000, "processes", 1, out=second
    )
    for process, path in ((one, first), (two, second)):
        code, out, err = finish(process, 60)
        assert code == 0, err
        log = Log(recorder.klogger, path)
        oracles.check_whole(log)
        for thread in oracles.workload_json(out)["threads"]:
            assert log.count("SCHEDOUT", f"pid = {thread['tid']}") >= 20000
