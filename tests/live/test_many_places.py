# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One probe at many places: its hits by place, against probes at one place each; what is left out;
and what is refused.
"""

import json
import re
import subprocess
import sys

import pytest
from oracles import Log

MANY = """
schema many "Many places"
event HERE { ushort point as place  int tid as thread }
event RENAMED { int tid as thread }
event FORKED { int tid as thread }
probe tracepoint task_rename, task_newtask(struct task_struct *p) {
    klogger(HERE, klogger_place(), klogger_current_tid());
}
probe tracepoint task_rename() { klogger(RENAMED, klogger_current_tid()); }
probe tracepoint task_newtask() { klogger(FORKED, klogger_current_tid()); }
"""
WILD = """
schema wild "Places by a wildcard"
event HERE { uint point as place  int pid as thread }
probe tracepoint sched_process_*(struct task_struct *p) { klogger(HERE, klogger_place(), p->pid); }
"""
WORK = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
for n in range(int(sys.argv[1])):
    libc.prctl(15, b"name%d" % n, 0, 0, 0)
for n in range(int(sys.argv[2])):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""


@pytest.fixture
def record(recorder, clean_kernel):
    def run(text):
        file = recorder.dir / "many.klogger"
        file.write_text(text)
        words = ["-s", file, "--", sys.executable, "-c", WORK, "997", "13"]
        done, path = recorder.run(*words)
        assert done.code == 0, done.err
        said = subprocess.run(
            [recorder.klogger, "info", path], check=True, capture_output=True, text=True
        )
        return path, said.stdout

    return run


def events(klogger, path, name):
    words = [klogger, "cat", path, "--event", name, "--format", "json"]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def test_hits_by_place(record, recorder):
    path, _ = record(MANY)
    points = [event["point"] for event in events(recorder.klogger, path, "HERE")]
    renamed = len(events(recorder.klogger, path, "RENAMED"))
    forked = len(events(recorder.klogger, path, "FORKED"))
    assert renamed >= 997 and forked >= 13
    # The places of the first probe come first; the others have numbers as well.
    assert {1: points.count(1), 2: points.count(2)} == {1: renamed, 2: forked}
    assert len(points) == renamed + forked
    text = subprocess.run(
        [recorder.klogger, "cat", path, "--event", "HERE"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert len(re.findall(r"\btask_rename\b", text)) == renamed
    assert len(re.findall(r"\btask_newtask\b", text)) == forked


@pytest.mark.full("others of this file are in the gate")
def test_what_does_not_fit_a_wildcard_is_left_out(record, recorder):
    path, info = record(WILD)
    said = re.sub(r"\s+", " ", info)
    # It gets a struct pid.
    assert "left out 1 with other parameters: sched_process_wait" in said
    places = {event["point"] for event in events(recorder.klogger, path, "HERE")}
    assert len(places) >= 3
    text = subprocess.run(
        [recorder.klogger, "cat", path, "--event", "HERE"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "sched_process_fork" in text and "sched_process_exit" in text


REFUSED = {
    "tracepoint *()": (
        r"'tracepoint \*' is too many places: \d+ of this kernel's tracepoints match, with these "
        "parameters",
        "a probe has at most 256 places: write more of their names",
    ),
    "tracepoint zzz_*()": (
        r"this kernel has no tracepoint 'zzz_\*'",
        "'klogger places WORD --kind tracepoint' lists those with a word",
    ),
    "tracepoint task_rename, task_newtsk()": (
        "this kernel has no tracepoint 'task_newtsk'",
        "did you mean task_newtask",
    ),
    "tracepoint sched_process_*(int nonsense)": (
        r"none of the \d+ places that 'tracepoint sched_process_\*' matches can be "
        "attached: of the first, the prototype of 'sched_process_[a-z]+' is not the kernel's",
        "kernel: tracepoint sched_process_",
    ),
}


@pytest.mark.parametrize("target", REFUSED)
def test_refused(recorder, clean_kernel, target):
    file = recorder.dir / "bad.klogger"
    file.write_text(f"event A {{ }}\nprobe {target} {{ klogger(A); }}\n")
    done = recorder.command("record", "-s", file, "--", "true")
    said = re.sub(r"[\s│]+", " ", done.err)
    assert done.code == 2
    for pattern in REFUSED[target]:
        assert re.search(pattern, said), done.err
    assert len(re.findall("×", done.err)) == 1


@pytest.mark.full("others of this file are in the gate")
def test_functions_where_the_kernel_allows_no_probes(recorder, clean_kernel):
    """One line with the reason; with an alternative the recording goes on, and the ledger tells."""
    file = recorder.dir / "function.klogger"
    events = "event A { }\nevent B { }\nprobe tracepoint task_rename() { klogger(B); }\n"
    file.write_text(f"{events}probe function vfs_fallocate() {{ klogger(A); }}\n")
    done = recorder.command("record", "-s", file, "--", "true")
    if done.code == 0:
        pytest.skip("this kernel allows probes in functions")
    said = re.sub(r"[\s│]+", " ", done.err)
    assert re.search(r"this kernel allows no probes in functions: it .*, and it .*", said), done.err
    optional = "probe function vfs_fallocate() or function vfs_fall() { klogger(A); }"
    file.write_text(events + optional)
    done, path = recorder.run("-s", file, "--", "true")
    assert done.code == 0, done.err
    missing = Log(recorder.klogger, path).rows(
        "SELECT event, text FROM ledger WHERE key = 'probe_not_attached'"
    )
    assert [event for event, _ in missing] == ["A"]
    assert "this kernel allows no probes in functions" in missing[0][1]
