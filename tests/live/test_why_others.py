# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Times of `klogger why` beside those of perf sched timehist and of bcc's offcputime, which look at
the same threads at the same time.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import wait_for

from klogger_lab.recorder import Recorder as Recording

pytestmark = pytest.mark.full("records what others record, for seconds")

ROUNDS = 211
# It sleeps, computes, and shares its CPU with a child that never sleeps.
WORKER = f"""
import os, sys, time
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
sys.stdin.readline()
hog = os.fork()
while hog == 0:
    pass
for _ in range({ROUNDS}):
    time.sleep(0.002)
    end = time.thread_time_ns() + 1_000_000
    while time.thread_time_ns() < end:
        pass
os.kill(hog, 9)
os.wait()
print("done", flush=True)
sys.stdin.readline()
"""
ROW = re.compile(r"\[(\d+)(?:/\d+)?\] +([\d.]+) +([\d.]+) +([\d.]+) ")


@contextlib.contextmanager
def talking(words, **more):
    """A process that reads from us; at the end it is interrupted."""
    process = subprocess.Popen(
        [str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, **more,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def whole(recorder, *others):
    """The log of the worker, while `others` look at it, and its number. Each of these is given the
    number, and yields what says what it has seen when it has ended.
    """
    out = recorder.path()
    options = ["-s", "waits", "--buffer-size", "8M", "-o", out]
    with talking([sys.executable, "-c", WORKER]) as worker:
        with contextlib.ExitStack() as stack:
            ours = Recording([*options, "-p", str(worker.pid)], recorder.dir / "said")
            stack.enter_context(ours).wait_started()
            ended = [stack.enter_context(other(worker.pid)) for other in others]
            worker.stdin.write("\n")
            worker.stdin.flush()
            assert worker.stdout.readline() == "done\n"
            # It waits for us again.
            wait_for(lambda: state(worker.pid) == "S")
            found = [end() for end in ended]
        return out, worker.pid, found


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def between(recorder, log, thread, begin, end):
    """ns from each `begin` of a thread to the `end` that follows, and how often."""
    words = [sys.executable, "-m", "klogger_lab.cli.why", log, "--format", "json",
             "--thread", thread, "--operation", f"{begin}..{end}"]  # fmt: skip
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False,
        env={**os.environ, "KLOGGER": str(recorder.klogger)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return answer["elapsed_ns"], answer["operations"]["times"]


def ours(recorder, log, thread):
    """ns off the CPU and on it, and how many of both."""
    off = [between(recorder, log, thread, leaves, "BACK") for leaves in ("BLOCKED", "PREEMPTED")]
    on = [between(recorder, log, thread, "BACK", leaves) for leaves in ("BLOCKED", "PREEMPTED")]
    assert sum(times for _, times in off) >= ROUNDS
    return sum(ns for ns, _ in off), sum(ns for ns, _ in on), sum(times for _, times in off)


def same(found, other, times):
    """Within a percent, and what the others round each of their times by."""
    assert abs(found - other) < 0.01 * other + 3_000 * times


def test_run_and_wait_times_are_those_of_perf_sched(recorder, clean_kernel):
    if shutil.which("perf") is None:
        pytest.skip("perf is not there")
    data = recorder.dir / "perf.data"

    @contextlib.contextmanager
    def perf(pid):
        words = ["perf", "sched", "record", "-m", "8M", "-o", data, "--", "sh", "-c",
                 "echo go; read x"]  # fmt: skip
        with talking(words) as process:
            assert process.stdout.readline() == "go\n", process.stderr.read()

            def end():
                process.communicate("\n", timeout=60)
                return timehist(data, pid)

            yield end

    log, thread, (rows,) = whole(recorder, perf)
    off, on, times = ours(recorder, log, thread)
    # "wait time" is all from leaving the CPU to having one again.
    same(off, sum(wait for wait, _, _ in rows), times)
    same(on, sum(run for *_, run in rows), times)


def timehist(data, pid):
    """Of each stay on a CPU, in ns: time off it before, of that waiting for it, and on it."""
    words = ["perf", "sched", "timehist", "-i", data]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    data.unlink()
    found = [ROW.search(line) for line in text.splitlines()]
    return [tuple(round(float(ms) * 1e6) for ms in row.groups()[1:])
            for row in found if row and int(row[1]) == pid]  # fmt: skip


def is_attached(pid):
    """Whether a process has a program at a tracepoint."""
    return any("link_type:" in path.read_text()
               for path in Path(f"/proc/{pid}/fdinfo").iterdir())  # fmt: skip


def test_time_off_the_cpu_is_that_of_offcputime(recorder, clean_kernel):
    program = shutil.which("offcputime", path=os.environ["PATH"] + ":/usr/sbin")
    if program is None:
        pytest.skip("offcputime of libbpf-tools is not there")

    @contextlib.contextmanager
    def offcputime(pid):
        with talking([program, "-p", pid]) as process:
            wait_for(lambda: is_attached(process.pid))

            def end():
                process.send_signal(signal.SIGINT)
                text, _ = process.communicate(timeout=60)
                # Each stack ends with a line of its µs alone.
                return sum(map(int, re.findall(r"^ +(\d+)$", text, re.MULTILINE)))

            yield end

    log, thread, (us,) = whole(recorder, offcputime)
    off, _, times = ours(recorder, log, thread)
    same(off, us * 1000, times)
