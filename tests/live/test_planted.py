# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A cause that was planted is the first finding of the report."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from oracles import workload_json

SECONDS = 3
HZ = 5
# So that the hog waits for 2 % of the time: what explains less than 1 % is not at the head of a report.
BEACON_US = 4000
ATTEMPTS = 6


def recorded(recorder, *command):
    """What `klogger report` finds in the log of a command, and what the command itself has to say."""
    done, path = recorder.run("-s", "scheduler", "--", *command)
    assert done.code == 0, done.err
    words = [sys.executable, "-m", "klogger.cli.report", path, "--format", "json"]
    env = {**os.environ, "KLOGGER": str(recorder.klogger)}
    reported = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, env=env)
    assert reported.returncode == 0, reported.stderr
    return json.loads(reported.stdout)["findings"], workload_json(done.out)


def thread(said, role):
    (found,) = [t for t in said["threads"] if t["role"] == role]
    return found


def test_a_daemon_that_wakes_five_times_a_second(recorder, workloads):
    """On a CPU with a lone hog: mostly it is the daemon that takes the CPU from it, so that is the finding."""
    for _ in range(ATTEMPTS):
        found, said = recorded(recorder, workloads / "lone_hog", 1000 * SECONDS, HZ, BEACON_US)
        wakes = thread(said, "beacon")["count"]
        waited = thread(said, "waited")["count"]
        if thread(said, "hog")["nivcsw"] <= 2 * wakes and waited < 0.005 * SECONDS * 1e9:
            break
    else:
        pytest.skip(f"in {ATTEMPTS} attempts, others of this machine took this CPU as well")
    first = found[0]
    assert first["analysis"] == "cut_by"
    words = re.search(r"^hog.* (\d+) times, (\d+) % of these to beacon \(([\d.]+) a second\)", first["text"])
    assert words, first["text"]
    # It may wake when the hog has been kept off its CPU, or has ended.
    assert wakes / 3 <= int(words[1]) * int(words[2]) / 100 <= wakes + 0.5
    assert HZ / 3 < float(words[3]) <= HZ + 0.5


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="this needs a CPU that stays idle")
def test_two_threads_on_one_cpu(recorder, workloads):
    """They are bound to CPU 0, and take turns. No other thread of the workload runs, on any CPU."""
    if not shutil.which("chrt"):
        pytest.skip("chrt is needed, so that others of this machine do not come between the two")
    found, said = recorded(recorder, "chrt", "--rr", 10, workloads / "spinners", 2, 2000, 0)
    first = found[0]
    assert first["analysis"] == "runq"
    assert "on CPU 0 " in first["text"]
    for spinner in said["threads"]:
        assert f"[{spinner['tid']}]" in first["text"]
    assert first["weight"] > 0.5
