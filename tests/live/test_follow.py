# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger cat --follow`: events are printed while they are recorded, each once, in the order of
time; and it ends as the recording ends, whatever that is like.
"""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest
from disturbed import Quiet
from following import (
    FLOOD,
    PATIENCE,
    Gate,
    end,
    events,
    finish,
    has_begun,
    locked,
    started,
    wait_for,
)

HITS = ("FLOOD", "FLOOD_WIDE")


@pytest.fixture
def follow(recorder):
    """Starts `klogger cat --follow`."""
    running = []

    def start(log, *words, **more) -> subprocess.Popen:
        wait_for(lambda: has_begun(log) if log.is_file() else log.is_dir())
        running.append(started(recorder.klogger, "cat", "--follow", log, *words, **more))
        return running[-1]

    yield start
    end(*running)


@pytest.fixture
def record(recorder):
    """Starts a recording of renames, of a command."""

    def start(*command, options=()):
        out = recorder.path()
        return recorder.start("-q", "-s", FLOOD, *options, "--", *command, out=out), out

    return start


def cat(recorder, log, *words) -> bytes:
    done = subprocess.run(
        [recorder.klogger, "cat", log, *words], capture_output=True, check=True, timeout=PATIENCE
    )
    return done.stdout


def test_each_event_comes_once_in_the_order_of_time(
    record, follow, recorder, workloads, clean_kernel
):
    hits = 20_000
    process, log = record(workloads / "steady", hits, 10_000, options=("-a",))
    printed = follow(log, "--format", "json")
    code, out, err = finish(printed)
    assert (code, err) == (0, "")
    recorded, _, said = finish_recording(process)
    assert recorded == 0, said
    ours = events(out, *HITS)
    # As the log has them: the same events, in the same order.
    assert ours == events(cat(recorder, log, "--format", "json"), *HITS)
    assert sum(row["event"] == "FLOOD" for row in ours) >= hits
    times = [row["time"] for row in events(out)]
    assert times == sorted(times)


def finish_recording(process):
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


@pytest.mark.full("others of this file are in the gate")
def test_lines_come_while_the_command_runs(record, follow, workloads, tmp_path):
    """The command ends when its event has been read."""
    gate = Gate(tmp_path)
    process, log = record("sh", "-c", f"{workloads}/steady 3 1000; read line < {gate.path}")
    printed = follow(log, "-e", "FLOOD", "--where", 'name == "FLOOD" || pid > 0')
    lines = [printed.stdout.readline() for _ in range(3)]
    assert all(b" FLOOD " in line for line in lines), lines
    assert process.poll() is None and printed.poll() is None
    gate.open()
    code, out, err = finish(printed)
    assert (code, err) == (0, ""), out
    assert finish_recording(process)[0] == 0


@pytest.mark.full("depends on how busy the machine is")
def test_events_are_at_most_a_second_late(record, follow, workloads, recorder):
    """From the time of an event to the moment at which its line can be read."""
    with Quiet() as quiet:
        process, log = record(workloads / "steady", 4000, 1000)
        printed = follow(log, "--format", "json", "-e", "FLOOD")
        delays = []
        for line in printed.stdout:
            now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            delays.append((now, events(line)[0]["time"]))
        assert finish_recording(process)[0] == 0
    info = recorder.command("info", log, "--format", "json")
    start = json.loads(info.out)["start_ns"]
    late = sorted(now - start - at for now, at in delays)
    assert len(late) >= 4000
    # The first ones may wait for the recorder, which does not know yet that it is followed.
    if late[len(late) * 3 // 4] > 1_000_000_000:
        quiet.check(f"three quarters came {late[len(late) * 3 // 4] / 1e9:.2f} s late")


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize(
    "options",
    [
        ("-e", "FLOOD"),
        ("--where", "prio == 120 && serial > 100"),
        ("-c", "0", "-e", "flood,flood_wide"),
        ("--format", "json", "-c", "-"),
        ("--format", "csv"),
        ("--format", "perl", "-e", "FLOOD"),
    ],
    ids=" ".join,
)
def test_options_are_those_of_cat(record, follow, recorder, workloads, options):
    process, log = record(workloads / "steady", 300, 1000)
    code, out, err = finish(follow(log, *options))
    assert (code, err) == (0, "")
    assert finish_recording(process)[0] == 0
    whole = cat(recorder, log, *options)
    # The columns of text are made for a longer recording, and names that come at the end are not
    # known before.
    words = [sorted(line.split()[:3] for line in text.splitlines()) for text in (out, whole)]
    assert words[0] == words[1] and len(words[0]) > 0


def test_a_recording_that_has_ended(record, follow, recorder, workloads):
    process, log = record(workloads / "steady", 100, 10_000)
    assert finish_recording(process)[0] == 0
    code, out, err = finish(follow(log))
    assert (code, err) == (0, "")
    assert out == cat(recorder, log)


@pytest.mark.full("others of this file are in the gate")
def test_until_a_time(record, follow, workloads, tmp_path):
    gate = Gate(tmp_path)
    process, log = record(
        "sh", "-c", f"{workloads}/steady 500 500; {workloads}/steady 1 1; read line < {gate.path}"
    )
    printed = follow(log, "--format", "json")
    until = json.loads(printed.stdout.readline())["time"] + 500_000_000
    printed.terminate()
    code, out, _ = finish(follow(log, "--to", until / 1e9, "--format", "json"))
    assert code == 0
    assert process.poll() is None, "it has not waited for the end"
    times = [row["time"] for row in events(out)]
    assert times and max(times) <= until
    gate.open()
    assert finish_recording(process)[0] == 0


@pytest.mark.full("others of this file are in the gate")
def test_a_recorder_that_is_killed(record, follow, recorder, workloads):
    process, log = record("sh", "-c", f"{workloads}/steady 500 1000; exec sleep {PATIENCE}")
    printed = follow(log, "--format", "json")
    first = b"".join(printed.stdout.readline() for _ in range(300))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    code, out, err = finish(printed)
    assert code == 0
    assert "recorder" in err and "klogger rescue" in err, err
    # All that is in the log.
    assert events(first + out, *HITS) == events(cat(recorder, log, "--format", "json"), *HITS)
    # What it has left in the kernel is freed.
    rescued = log.with_name("rescued.klog")
    assert recorder.command("rescue", process.pid, "-o", rescued).code == 0


@pytest.mark.full("others of this file are in the gate")
def test_interrupt_ends_it(record, follow, workloads):
    process, log = record("sleep", PATIENCE)
    printed = follow(log)
    assert printed.stdout.readline()
    os.killpg(printed.pid, signal.SIGINT)
    assert printed.wait(timeout=PATIENCE) == -signal.SIGINT
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    finish_recording(process)


@pytest.mark.full("others of this file are in the gate")
def test_a_reader_that_has_seen_enough(record, follow, workloads):
    process, log = record(workloads / "steady", 5_000, 2_000)
    printed = follow(log)
    printed.stdout.readline()
    printed.stdout.close()
    assert printed.wait(timeout=PATIENCE) == -signal.SIGPIPE
    assert printed.stderr.read() == b""
    assert finish_recording(process)[0] == 0


@pytest.fixture
def begun(record, workloads, tmp_path):
    """A log whose end has not been written."""
    # Several blocks, so that some of them are whole.
    process, log = record(workloads / "steady", 30_000, 10_000)
    assert finish_recording(process)[0] == 0
    part = tmp_path / "begun.klog"
    part.write_bytes(log.read_bytes()[: log.stat().st_size * 3 // 4])
    return part


@pytest.mark.full("others of this file are in the gate")
def test_a_log_that_is_cut(begun, follow):
    with locked(begun) as file:
        # No more than a pipe takes.
        printed = follow(begun, "--event", "KLOGGER_START")
        assert printed.stdout.readline()
        length = begun.stat().st_size
        file.truncate(length // 2)
        code, _, err = finish(printed)
    assert code == 0
    assert f"has been cut to {length // 2} bytes, of which {length} had been read" in err, err


@pytest.mark.full("others of this file are in the gate")
def test_a_log_that_is_replaced(begun, follow):
    with locked(begun):
        printed = follow(begun, "--event", "KLOGGER_START")
        assert printed.stdout.readline()
        shutil.copy(begun, begun.with_name("new"))
        begun.with_name("new").rename(begun)
        said = printed.stderr.readline()
        while b"is not the file any more" not in said:
            assert said
            said = printed.stderr.readline()
    code, _, err = finish(printed)
    assert code == 0
    assert "ledger and index are missing" in err


@pytest.mark.full("others of this file are in the gate")
def test_a_flight_recorder_is_not_followed(record, follow):
    process, log = record("sleep", PATIENCE, options=("--overwrite",))
    code, out, err = finish(follow(log))
    assert (code, out) == (2, b"")
    assert err.startswith("klogger: a flight recorder cannot be followed"), err
    os.killpg(process.pid, signal.SIGINT)
    finish_recording(process)


@pytest.mark.full("others of this file are in the gate")
def test_unknown_names_are_refused_at_once(record, follow):
    process, log = record("sleep", PATIENCE)
    for words, name in [(("-e", "FLOD"), "FLOD"), (("--where", "nothing == 1"), "nothing")]:
        code, out, err = finish(follow(log, *words))
        assert (code, out) == (2, b"")
        assert err.startswith("klogger: ") and f"'{name}'" in err, err
    os.killpg(process.pid, signal.SIGINT)
    finish_recording(process)


@pytest.mark.full("others of this file are in the gate")
def test_two_follow_and_a_recording_ends_as_it_would(record, follow, recorder, workloads):
    process, log = record(workloads / "steady", 3000, 3000)
    both = [follow(log, "--format", "json") for _ in range(2)]
    outs = [finish(printed)[1] for printed in both]
    assert finish_recording(process)[0] == 0
    assert events(outs[0], *HITS) == events(outs[1], *HITS)
    assert len(events(outs[0], "FLOOD")) >= 3000
    info = recorder.command("info", log)
    assert "ledger: nothing is missing" in info.out
