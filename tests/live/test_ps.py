# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger ps`: which recordings run. One that is stopped, and other users' programs that take the
name of a recording, hold up nothing.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from following import FLOOD, PATIENCE, end, has_begun, started, wait_for
from oracles import Log


@pytest.fixture
def start(klogger, tmp_path):
    running = []

    def run(*words, **more) -> subprocess.Popen:
        more = {"stdout": subprocess.DEVNULL} | more
        running.append(started(klogger, *words, cwd=tmp_path, **more))
        return running[-1]

    yield run
    end(*running)


@pytest.fixture
def listed(recorder):
    """The row of a recording, when it is there."""

    def find(process) -> dict | None:
        done = recorder.command("ps", "--format", "json")
        assert done.code == 0, done.err
        return next((row for row in json.loads(done.out) if row["pid"] == process.pid), None)

    return find


@pytest.mark.full("others of this file are in the gate")
def test_running_recordings(start, listed, recorder, workloads, tmp_path):
    out = tmp_path / "one.klog"
    one = start("record", "-q", "-s", FLOOD, "-o", out, "--", workloads / "steady", 500_000, 2000)
    row = wait_for(lambda: listed(one), one)
    assert row["schemata"] == ["flood"] and row["events"] == ["FLOOD", "FLOOD_WIDE"]
    assert row["file"] == str(out) and row["engine"].startswith("bpf")
    assert row["command"] == [str(workloads / "steady"), "500000", "2000"]
    assert (row["scope"], row["answers"], row["overwrite"], row["lost"]) == (
        "processes",
        True,
        False,
        0,
    )
    # Its progress, and its rate.
    later = wait_for(
        lambda: (now := listed(one)) and now["per_second"] and now["logged"] and now, one
    )
    assert later["elapsed_ns"] > row["elapsed_ns"]
    more = wait_for(lambda: (now := listed(one)) and now["logged"] > later["logged"] and now, one)
    assert more["bytes"] > 0 and more["per_second"] > 0
    text = recorder.command("ps")
    line = next(line for line in text.out.splitlines() if line.split()[0] == str(one.pid))
    assert "flood" in line
    os.killpg(one.pid, signal.SIGINT)
    one.communicate(timeout=PATIENCE)
    assert listed(one) is None


def test_each_kind_of_recording_is_listed(start, listed, tmp_path):
    kinds = {
        "programs": start("record", "-q", "--engine", "user", "-a", "-o", "user.klog"),
        "trace": start("trace", "-s", FLOOD, "-o", tmp_path / "lines", "--", "sleep", PATIENCE),
        "events": start("record", "-q", "-e", "sched:sched_process_exec", "-a", "-o", "e.klog"),
        "flight": start(
            "record", "-q", "-s", FLOOD, "--overwrite", "-o", "f.klog", "--", "sleep", PATIENCE
        ),
        "pipe": start("record", "-q", "-s", FLOOD, "-o", "-", "--", "sleep", PATIENCE),
    }
    rows = {name: wait_for(lambda p=process: listed(p), process) for name, process in kinds.items()}
    assert rows["programs"]["schemata"] == ["programs"] and rows["programs"]["scope"] == "all"
    assert rows["trace"]["file"] == "/dev/null"
    assert rows["events"]["schemata"] == ["events"]
    assert "SCHED_PROCESS_EXEC" in [name.upper() for name in rows["events"]["events"]]
    assert rows["flight"]["overwrite"]
    assert rows["pipe"]["file"] == "-"


@pytest.mark.full("others of this file are in the gate")
def test_a_recorder_that_is_stopped_is_said_to_be(start, listed, recorder, tmp_path):
    out = tmp_path / "stopped.klog"
    process = start("record", "-q", "-s", FLOOD, "-o", out, "--", "sleep", PATIENCE)
    wait_for(lambda: listed(process), process)
    os.kill(process.pid, signal.SIGSTOP)
    row = listed(process)
    assert row == {"pid": process.pid, "answers": False, "why": "does not answer"}
    text = recorder.command("ps")
    assert text.code == 0 and f"{process.pid}" in text.out and "(does not answer)" in text.out
    os.kill(process.pid, signal.SIGCONT)
    assert wait_for(lambda: (row := listed(process)) and row["answers"], process)


def test_none_is_running(recorder):
    """In another network namespace there is none, whatever runs here."""
    for options, out in [((), "No recording is running.\n"), (("--format", "json"), "[]\n")]:
        done = subprocess.run(
            ["unshare", "-n", recorder.klogger, "ps", *options],
            capture_output=True, text=True, check=True, timeout=PATIENCE,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == (out, "")


@pytest.mark.full("others of this file are in the gate")
def test_other_users_see_none_of_roots(start, listed, public_klogger, tmp_path):
    out = tmp_path / "roots.klog"
    process = start("record", "-q", "-s", FLOOD, "-o", out, "--", "sleep", PATIENCE)
    wait_for(lambda: has_begun(out) and listed(process), process)
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", public_klogger, "ps"],
        capture_output=True, text=True, check=False, cwd="/", timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Root's recordings are answered to nobody but root.
    assert "flood" not in done.stdout and str(out) not in done.stdout


@pytest.mark.full("others of this file are in the gate")
def test_a_name_that_another_program_has_taken(recorder, listed):
    """It never answers, and has a full queue."""
    first = 4_000_000 + os.getpid() % 1000 * 100

    def seconds(count: int) -> float:
        """How long it takes with so many of them."""
        with contextlib.ExitStack() as stack:
            for pid in range(first, first + count):
                taken = stack.enter_context(socket.socket(socket.AF_UNIX))
                taken.bind(f"\0klogger-recording-{pid}")
                taken.listen(0)
            begin = time.monotonic()
            rows = json.loads(recorder.command("ps", "--format", "json").out)
            elapsed = time.monotonic() - begin
        found = [row for row in rows if first <= row["pid"] < first + count]
        assert [row["answers"] for row in found] == [False] * count
        assert {row["why"] for row in found} == {"does not answer"}
        return elapsed

    # One after the other, they would take forty times as long.
    assert seconds(40) < 10 * seconds(1)


# In a network namespace of its own, where abstract names are its own too. The recorder gets the
# process id of a shell that waits until its name is taken, and so are names that are no text.
SQUAT = r"""
import json, os, signal, socket, subprocess, sys
klogger, out, uid = sys.argv[1], sys.argv[2], int(sys.argv[3])
record = [klogger, "record", "-q", "-s", "lifecycle", "-a", "--snapshots", "-o", out]
go, ready = os.pipe(), os.pipe()
recording = subprocess.Popen(
    ["sh", "-c", 'read -r go <&%d; exec "$@"' % go[0], "sh", *record], pass_fds=[go[0]]
)
squatter = os.fork()
if squatter == 0:
    os.setuid(uid)
    held = []
    for name in (b"%d" % recording.pid, b"\xff\xfe", b"1\n0: @klogger-recording-2", b"7", b""):
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].bind(b"\0klogger-recording-" + name)
        held[-1].listen(4096)
    os.write(ready[1], b"x")
    signal.pause()
os.read(ready[0], 1)
os.write(go[1], b"\n")

def run(*words):
    done = subprocess.run([klogger, *words], capture_output=True, text=True)
    return [done.returncode, done.stdout, done.stderr]

while run("mark", "1")[0]:
    assert recording.poll() is None
found = {
    "pid": recording.pid,
    "ps": run("ps", "--format", "json"),
    "mark": run("mark", "2"),
    "by number": run("mark", "3", "--recorder", str(recording.pid)),
    "snapshot": run("snapshot", "--recorder", str(recording.pid)),
}
recording.terminate()
recording.wait()
os.kill(squatter, 9)
print(json.dumps(found))
"""


def test_names_that_another_user_has_taken_blind_nobody(recorder, tmp_path):
    out = tmp_path / "a.klog"
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", SQUAT, recorder.klogger, out, "65534"],
        capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {found[what][0] for what in ("ps", "mark", "by number", "snapshot")} == {0}, found
    rows = [row for row in json.loads(found["ps"][1]) if row["pid"] == found["pid"]]
    assert [row["schemata"] for row in rows] == [["lifecycle"]]
    # The names of this recorder, and of 7; nobody listens under those that a name pretends to be.
    assert "2 names of recordings not asked" in found["ps"][2], found
    assert "do not work" not in done.stderr
    marks = set(Log(recorder.klogger, out).rows("SELECT number FROM mark"))
    assert {(1,), (2,), (3,)} == marks
