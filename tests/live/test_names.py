# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names of threads that are not recorded: those that wake a recorded one, also if they end or are
renamed before the recorder sees the event.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import wait_for
from oracles import Log, answers

import klogger

# Reads so many bytes, and waits for each.
COMMAND = """
import os, sys
for n in range(int(sys.argv[2])):
    os.read(int(sys.argv[1]), 1)
"""
# Wakes a process that waits: it writes a byte when that sleeps in its read of the other end.
WAKER = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
end, waiting, reader, name, later = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]
libc.prctl(15, name.encode(), 0, 0, 0)
while True:
    call = open(f"/proc/{reader}/syscall").read().split()
    if call[:2] == ["0", hex(waiting)]:
        break
    time.sleep(0.01)
os.write(end, b"x")
if later:
    libc.prctl(15, later.encode(), 0, 0, 0)
    sys.stdin.readline()
"""


def waker(ends, reader, name, later):
    here, end = ends
    return subprocess.Popen(
        [sys.executable, "-c", WAKER, str(end), str(here), reader, name, later],
        pass_fds=[end],
        stdin=subprocess.PIPE,
    )


def recorded(recorder, names):
    """The log of a command that is woken by processes with these names: (name, and that which it
    has afterwards, until the recording is over). Also their ids.
    """
    here, there = os.pipe()
    path = recorder.path()
    command = [sys.executable, "-c", COMMAND, str(here), str(len(names))]
    recording = subprocess.Popen(
        [recorder.klogger, "record", "--messages", "json", "-s", "scheduler", "-o", path, "--",
         *command],
        pass_fds=[here], stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    recorder.running.append(recording)
    line = recording.stderr.readline()
    while '"started"' not in line:
        assert line, "it has not started"
        line = recording.stderr.readline()
    reader = re.search(r'"command_pid":(\d+)', line)[1]
    found, stay = [], []
    for name, later in names:
        process = waker((here, there), reader, name, later)
        found.append(process.pid)
        # One after the other: two that write while it sleeps wake it once.
        if later:
            stay.append(process)
            comm = Path(f"/proc/{process.pid}/comm")
            wait_for(lambda comm=comm, later=later: comm.read_text() == f"{later}\n", process)
        else:
            process.communicate(timeout=30)
    _, said = recording.communicate(timeout=60)
    assert recording.returncode == 0, said
    for process in stay:
        process.communicate(b"end\n", timeout=30)
    os.close(here)
    os.close(there)
    return path, found


@pytest.mark.full("others of this file are in the gate")
def test_threads_that_are_not_recorded_have_names(recorder, clean_kernel):
    names = [("it-ends-at-once", ""), ("it-is-renamed", "later"), ("it-ends-too", "")]
    path, pids = recorded(recorder, names)
    shown = recorder.command("cat", path, "--event", "TRY_TO_WAKEUP").out
    log = Log(recorder.klogger, path)
    for (name, _), pid in zip(names, pids, strict=True):
        assert f"waker={name}[{pid}]\n" in shown
        # Its own events are not in the log.
        assert log.rows(f"SELECT count(*) FROM schedin WHERE pid = {pid}") == [(0,)]
    assert log.rows("SELECT count(*) FROM ledger WHERE key = 'threads_unnamed'") == [(0,)]
    with klogger.open(path) as log:
        for (name, _), pid in zip(names, pids, strict=True):
            query = f"SELECT DISTINCT comm(waker, time) FROM try_to_wakeup WHERE waker = {pid}"
            # An interrupt that wakes the reader while this process starts has its name before.
            found = set(log.rows(query))
            assert (name,) in found <= {(name,), (Path(sys.executable).name,)}
        # No headline and no row has a number for a name.
        said = recorder.command("report", path).out
    assert not re.search(r"\bthread \d", said), said
    # A report has the latest name of a thread; a narrow table may cut it.
    wakers = {row["waker"] for row in answers(recorder.klogger, path)["wakers"]}
    assert {later or name for name, later in names} <= wakers


def test_no_name_is_looked_up_if_all_are_recorded(recorder, clean_kernel):
    done, path = recorder.run("-s", "scheduler", "-a", "--", "sleep", "0.2")
    assert done.code == 0, done.err
    assert Log(recorder.klogger, path).rows("SELECT count(*) FROM process_seen") == [(0,)]
