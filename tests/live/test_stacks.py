# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Samples and waits with stacks: against a program's own clock, perf, and the events themselves, in
each format that is made of stacks.
"""

import json
import re
import shutil
import subprocess
import sys

import pytest
from disturbed import disturbed
from oracles import Log

PERIOD_NS = 1_000_000_000 // 990
# Runs, sleeps, and waits for a child.
MIXED = """
import os, time
end = time.process_time() + 0.05
while time.process_time() < end: pass
for _ in range(7): time.sleep(0.001)
if os.fork() == 0: os._exit(0)
os.wait()
"""
# Times in a thread, from leaving a CPU to having one again, as SQL knows them.
OFF_CPU = """
SELECT sum(until - time)::BIGINT, count(*) FROM (
    SELECT *, lead(time) OVER w AS until, lead(kind) OVER w AS next FROM (
        SELECT pid, time, serial, 'out' AS kind FROM blocked WHERE state & 128 = 0
        UNION ALL SELECT pid, time, serial, 'in' FROM back
    ) WINDOW w AS (PARTITION BY pid ORDER BY time, serial)
) WHERE kind = 'out' AND next = 'in'
"""


def exported(recorder, log, to, event):
    out = log.with_name(f"{log.name}.{event}.{to}")
    command = [recorder.klogger, "export", log, "--to", to, "--event", event, "-o", out, "-f"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return out


def folded(recorder, log, event):
    lines = exported(recorder, log, "folded", event).read_text().splitlines()
    return {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}


def sums(recorder, log, event):
    """The sum of all weights in ns, by format."""
    firefox = json.loads(exported(recorder, log, "firefox", event).read_text())
    ms = [weight for thread in firefox["threads"] for weight in thread["samples"]["weight"]]
    speedscope = json.loads(exported(recorder, log, "speedscope", event).read_text())
    return {
        "folded": sum(folded(recorder, log, event).values()),
        "firefox": sum(round(one * 1e6) for one in ms),
        "speedscope": sum(sum(profile["weights"]) for profile in speedscope["profiles"]),
    }


@pytest.mark.full("formats and sums are in the gate, of a log made by hand")
def test_sums_are_those_of_the_events(recorder, clean_kernel):
    """Whatever the load: of samples and of waits, to the nanosecond."""
    command = ("-s", "samples", "-s", "waits", "--set", "callers=true", "--set", "every=1")
    done, path = recorder.run(*command, "--", sys.executable, "-c", MIXED)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    if log.lost("BLOCKED") + log.lost("BACK") + log.lost("SAMPLED"):
        disturbed("events were lost")
    taken = log.one("SELECT sum(period)::BIGINT FROM sampled")
    assert set(sums(recorder, path, "SAMPLED").values()) == {taken}
    ((waited, times),) = log.rows(OFF_CPU)
    assert times >= 7
    assert set(sums(recorder, path, "BLOCKED").values()) == {waited}
    # Each has its place: the sleeps in the kernel's timer, below the program's code.
    sleeps = [stack for stack in folded(recorder, path, "BLOCKED") if "nanosleep" in stack]
    assert sleeps
    assert all(re.search(r"_\[k\]$", stack) for stack in sleeps)


@pytest.mark.full("depends on how busy the machine is")
def test_pprof_reads_the_sums(recorder, clean_kernel):
    """The program that comes with Go says the same."""
    if shutil.which("go") is None:
        pytest.skip("no go tool pprof")
    done, path = recorder.run(
        "-s", "waits", "--set", "callers=true", "--", sys.executable, "-c", MIXED
    )
    assert done.code == 0, done.err
    file = exported(recorder, path, "pprof", "BLOCKED")
    words = ["go", "tool", "pprof", "-raw", file]
    raw = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "samples/count off_cpu/nanoseconds" in raw
    values = re.findall(r"^ +(\d+) +(\d+): [\d ]+$", raw, re.MULTILINE)
    assert sum(int(ns) for _, ns in values) == sum(folded(recorder, path, "BLOCKED").values())


@pytest.mark.full("depends on how busy the machine is")
def test_shares_of_functions(recorder, workloads, clean_kernel):
    """Of two functions, against the program's own clock and perf: within some percent of 3,000
    samples. The time is that of the thread, but for what the hypervisor took.
    """
    done, path = recorder.run("-s", "samples", "--set", "every=1", "--", workloads / "shares", 3)
    assert done.code == 0, done.err
    truth = json.loads(done.out)
    wanted = truth["heavy_ns"] / (truth["heavy_ns"] + truth["light_ns"])
    found = folded(recorder, path, "SAMPLED")
    by = {name: sum(ns for stack, ns in found.items() if stack.endswith(f";{name}"))
          for name in ("heavy", "light")}  # fmt: skip
    assert abs(by["heavy"] / sum(by.values()) - wanted) < 0.04
    cpu = truth["heavy_ns"] + truth["light_ns"]
    log = Log(recorder.klogger, path)
    own = "FROM sampled WHERE tid IN (SELECT pid FROM process WHERE comm = 'shares')"
    count, period = log.rows(f"SELECT count(*), sum(period)::BIGINT {own}")[0]
    assert count * PERIOD_NS <= 1.05 * cpu + 50 * PERIOD_NS
    assert period >= 0.95 * cpu - 50 * PERIOD_NS
    assert abs(perf_share(recorder, workloads) - wanted) < 0.04


def perf_share(recorder, workloads):
    """heavy's part of what perf samples in the two functions."""
    if shutil.which("perf") is None:
        pytest.skip("no perf")
    file = recorder.dir / "perf.data"
    record = ["perf", "record", "-q", "-e", "cpu-clock:u", "-F", "990", "-o", file]
    subprocess.run([*record, "--", workloads / "shares", "3"], capture_output=True, check=True)
    words = ["perf", "script", "-i", file, "-F", "ip,sym"]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return names.count("heavy") / (names.count("heavy") + names.count("light"))
