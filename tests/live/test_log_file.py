# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The log as a file: while it is being written, how long it says the recording was, and what it
holds beside events.
"""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_recorder import finish, started, wait_for

import klogger

CODE = """schema code "What workers of the kernel do"

event WORKED "a work item begins" scope all {
    ulong what as code
}

probe tracepoint workqueue_execute_start(struct work_struct *work) {
    klogger(WORKED, (u64)work->func);
}
"""
# What is written to a terminal's one end gets to the other by a work item.
WORK = "import os; a, b = os.openpty(); os.write(a, b'x\\n'); os.read(b, 1)"


def info(recorder, path, *prefix):
    done = subprocess.run(
        [*prefix, recorder.klogger, "info", path, "--format", "json"],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_log_that_is_being_written(recorder):
    path = recorder.path()
    process = recorder.start("-s", "scheduler", "--", "sleep", "60", out=path)
    assert started(path)
    path.chmod(0o644)
    # Any user who can read the log can see that, and read what is there.
    for prefix in [], ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]:
        if prefix and not readable_by_nobody(path, prefix):
            continue
        assert wait_for(lambda: info(recorder, path, *prefix)["logged"] > 0)  # noqa: B023
        found = info(recorder, path, *prefix)
        assert (found["being_written"], found["complete"], found["sound"]) == (True, False, True)
        assert [e["key"] for e in found["ledger"]] == ["being_written"]
    process.send_signal(signal.SIGINT)
    finish(process)
    found = info(recorder, path)
    assert (found["being_written"], found["complete"], found["sound"]) == (False, True, True)


def by_cpu(text):
    """The events of each CPU, as `cat --format json` prints them."""
    found = {}
    for event in map(json.loads, text.splitlines()):
        found.setdefault(event["cpu"], []).append(event)
    return found


@pytest.mark.full("others of this file are in the gate")
def test_cat_of_a_log_that_is_being_written(recorder):
    path = recorder.path()
    loop = "while :; do sleep 0.02; done"
    process = recorder.start("-s", "scheduler", "--", "sh", "-c", loop, out=path)
    assert started(path)
    assert wait_for(lambda: info(recorder, path)["logged"] > 100)
    early = recorder.command("cat", path, "--format", "json")
    line = rf"klogger: {path.name} is still being written: its events up to now end at \d+\.\d+ s\n"
    assert early.code == 0 and re.fullmatch(line, early.err), early.err
    with klogger.open(path) as log:
        ((switches,),) = log.rows("SELECT count(*) FROM schedout")
        assert switches > 0
    process.send_signal(signal.SIGINT)
    finish(process)
    late = recorder.command("cat", path, "--format", "json")
    assert (late.code, late.err) == (0, "")
    was, whole = by_cpu(early.out), by_cpu(late.out)
    assert sum(map(len, was.values())) > 100
    for cpu, events in was.items():
        assert events == whole[cpu][: len(events)]
    with klogger.open(path) as log:
        assert log.rows(f"SELECT count(*) > {switches} FROM schedout") == [(True,)]


def readable_by_nobody(path, prefix):
    done = subprocess.run([*prefix, "cat", path], capture_output=True, check=False)
    return done.returncode == 0


def test_all_say_the_same_length(recorder):
    # A flight recorder writes its events when the recording is over.
    for options in [], ["--overwrite"]:
        done, path = recorder.run("-s", "scheduler", *options, "--", "sleep", "0.2")
        found = info(recorder, path)
        seconds = (found["end_ns"] - found["start_ns"]) / 1e9
        assert found["start_ns"] == found["preamble"]["clock"]["start_ns"]
        # What 'record' prints has two decimals.
        said = re.search(r" events in (\d+\.\d+) s", done.err)
        assert said and abs(float(said[1]) - seconds) <= 0.00501, done.err
        with klogger.open(path) as log:
            assert log.seconds() == seconds
            ((end,),) = log.rows("SELECT max(time) FROM klogger_finish")
            assert end == found["end_ns"] - found["start_ns"]


def test_a_log_has_only_the_symbols_that_it_needs(recorder, tmp_path):
    schema = tmp_path / "code.klogger"
    schema.write_text(CODE)
    done, path = recorder.run("-s", schema, "--", sys.executable, "-c", WORK)
    assert done.code == 0, done.err
    lines = recorder.command("cat", path, "--event", "WORKED").out.splitlines()
    names = {re.search(r"what=(\S+)", line)[1] for line in lines}
    known = {line.split()[2] for line in Path("/proc/kallsyms").read_text().splitlines()}
    assert "flush_to_ldisc+0x0" in names
    assert {name.removesuffix("+0x0") for name in names} <= known
    # All symbols of the kernel take a megabyte.
    assert path.stat().st_size < 200_000
