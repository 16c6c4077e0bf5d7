# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which threads are recorded, and until when: -a and -p, with and without a command; threads."""

import subprocess
import sys
from pathlib import Path

import pytest
from oracles import Log

FLOOD = Path(__file__).with_name("flood.klogger")

# Changes its name so many times when a line comes, says so, and ends with the next line. The name
# is changed by the thread itself.
RENAMER = """
import ctypes, os, sys, threading
def rename(times):
    libc = ctypes.CDLL(None)
    for n in range(times):
        libc.prctl(15, b"renamer%d" % n, 0, 0, 0)
"""
OUTSIDE = (
    RENAMER
    + """
print("ready", flush=True)
sys.stdin.readline()
rename(int(sys.argv[1]))
print("done", flush=True)
sys.stdin.readline()
"""
)
# Makes the other process change its name while this one is recorded, and changes its own.
COMMAND = (
    RENAMER
    + """
rename(int(sys.argv[1]))
os.write(int(sys.argv[2]), b"go\\n")
os.read(int(sys.argv[3]), 5)
sys.exit(7)
"""
)
# A thread changes its name, and starts a process which does; so does the first thread.
THREADS = (
    RENAMER
    + """
def work():
    print(threading.get_native_id(), flush=True)
    sys.stdin.readline()
    rename(1009)
    if os.fork() == 0:
        rename(11)
        os._exit(0)
    os.wait()
thread = threading.Thread(target=work)
thread.start()
thread.join()
rename(1013)
print("joined", flush=True)
sys.stdin.readline()
"""
)


def python(program, *words):
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def outside():
    """A process that is not the command's, which changes its name 1013 times when it is told to."""
    process = python(OUTSIDE, 1013)
    assert process.stdout.readline() == "ready\n"
    yield process
    process.communicate("\n", timeout=30)


def recorded(recorder, outside, *target):
    """Records a command that changes its name 1009 times, and makes the other process do it."""
    command = [sys.executable, "-c", COMMAND, "1009"]
    ends = [str(outside.stdin.fileno()), str(outside.stdout.fileno())]
    path = recorder.path()
    done = subprocess.run(
        [recorder.klogger, "record", "-o", path, "-s", FLOOD, *target, "--", *command, *ends],
        pass_fds=[outside.stdin.fileno(), outside.stdout.fileno()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # The exit code is the command's, and the end of the recording.
    assert done.returncode == 7, done.stderr
    log = Log(recorder.klogger, path)
    assert log.lost("FLOOD") == 0
    assert log.meta["preamble"]["workload"] == [*command, *ends]
    return log


def renames(log, name="renamer"):
    """By thread."""
    query = f"SELECT pid, count(*) FROM process_rename WHERE comm LIKE '{name}%' GROUP BY pid"
    return dict(log.rows(query))


def test_all_while_a_command_runs(recorder, outside, clean_kernel):
    log = recorded(recorder, outside, "-a")
    counts = renames(log)
    assert counts.pop(outside.pid) == 1013
    assert list(counts.values()) == [1009]
    assert log.meta["preamble"]["scope"] == "all"


@pytest.mark.full("others of this file are in the gate")
def test_a_process_while_a_command_runs(recorder, outside, clean_kernel):
    assert renames(recorded(recorder, outside, "-p", str(outside.pid))) == {outside.pid: 1013}


def test_only_the_command(recorder, outside, clean_kernel):
    counts = renames(recorded(recorder, outside))
    assert list(counts.values()) == [1009] and outside.pid not in counts


def test_one_thread_of_a_process(recorder, clean_kernel):
    process = python(THREADS)
    tid = int(process.stdout.readline())
    path = recorder.path()
    recording = recorder.start("--messages", "json", "-s", FLOOD, "-p", tid, out=path)
    try:
        while '"started"' not in recording.stderr.readline():
            assert recording.poll() is None
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "joined\n"
        # It ends with the thread: the process still runs.
        assert recording.wait(30) == 0
        assert process.poll() is None
    finally:
        process.communicate("\n", timeout=30)
        recording.communicate(timeout=30)
    counts = renames(Log(recorder.klogger, path))
    assert counts.pop(tid) == 1009
    # The process that it has started; not the first thread.
    assert list(counts.values()) == [11] and process.pid not in counts


@pytest.mark.full("others of this file are in the gate")
def test_programs_are_recorded_whole(recorder):
    process = python(THREADS)
    tid = int(process.stdout.readline())
    try:
        done, path = recorder.run("--engine", "user", "-p", tid)
    finally:
        process.communicate("\n\n", timeout=30)
    assert done.code == 2
    assert done.err == (
        f"klogger: {tid} is a thread of process {process.pid}, and programs are recorded as whole"
        f" processes\n  help: give the process: -p {process.pid}\n"
    )
    assert not path.exists()
