# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The locking schema says what ftrace says, and names the lock that a workload was made to fight
for.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from disturbed import Quiet
from oracles import Log
from witness import Ftrace

SCHEMA = Path(__file__).resolve().parents[2] / "schemata/locking/locking.klogger"
LINE = re.compile(r"^.*-(\d+) +\[\d+\] .*: contention_(begin|end): ", re.M)
CPUS = os.cpu_count() or 1
pytestmark = pytest.mark.skipif(CPUS < 2, reason="on one CPU no thread waits for a lock")
# Threads fight for one lock even while others have the CPUs.
THREADS = 2 * CPUS
NS_PER_TICK = 10**9 // os.sysconf("SC_CLK_TCK")


class Contention(Ftrace):
    """Records both tracepoints for as long as it is entered, by ftrace."""

    def __init__(self):
        super().__init__("lock")

    def seen(self) -> Counter:
        return Counter((int(tid), which) for tid, which in LINE.findall(self.text))


def kernel_ns() -> int:
    """Time that all CPUs together spent in the kernel, or that a host took from them."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return sum(int(words[i]) for i in (3, 6, 7, 8)) * NS_PER_TICK


def report(recorder, path) -> dict:
    words = [sys.executable, "-m", "klogger.cli.report", path, "--format", "json"]
    env = {
        **os.environ,
        "KLOGGER": str(recorder.klogger),
        "KLOGGER_SCHEMATA": str(SCHEMA.parents[1]),
    }
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def answers(said: dict) -> dict:
    """The rows of each analysis, by its name."""
    return {one["name"]: one["table"] for one in said["analyses"]}


def recorded(recorder, workloads, load, seconds=1.5):
    """The log of a load, and how long the machine was in the kernel meanwhile."""
    before = kernel_ns()
    # Before all others, or on a busy machine two of them seldom run at the same time, and none
    # waits.
    command = ["nice", "-n", "-20", workloads / "locks", load, THREADS, seconds]
    done, path = recorder.run("-s", SCHEMA, "--", *command)
    assert done.code == 0, done.err
    # Each CPU may have had almost one tick that was not counted yet.
    return path, kernel_ns() - before + CPUS * NS_PER_TICK


def skipped(log: Log) -> int:
    """Hits that the kernel left out, because the probe was running on that CPU: what our own work
    waits for.
    """
    return log.one("SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'probe_missed'")


@pytest.mark.parametrize("load", ["pipe", "mmap"])
def test_as_many_waits_as_ftrace_has(recorder, workloads, load):
    with Contention() as ftrace:
        path, _ = recorded(recorder, workloads, load, 0.3)
    assert ftrace.lost == 0, "ftrace's buffer was too small"
    log, seen = Log(recorder.klogger, path), ftrace.seen()
    threads = [
        tid
        for (tid,) in log.rows(
            "SELECT DISTINCT pid FROM process WHERE pid > 0 AND comm LIKE 'worker%'"
        )
    ]
    assert len(threads) == THREADS
    missed = skipped(log) + log.lost("LOCK_BEGIN") + log.lost("LOCK_END")
    for event, which in (("LOCK_BEGIN", "begin"), ("LOCK_END", "end")):
        ours = dict(log.rows(f"SELECT tid, count(*) FROM {event} GROUP BY tid"))
        total = sum(seen[tid, which] for tid in threads)
        assert total > 0
        # What ftrace has more, the kernel has counted as skipped; the log has nothing that did not
        # happen.
        assert 0 <= total - sum(ours.get(tid, 0) for tid in threads) <= missed, (event, missed)


@pytest.mark.full("others of this file are in the gate")
def test_each_wait_has_its_stack(recorder, workloads):
    path, _ = recorded(recorder, workloads, "pipe", 0.5)
    log = Log(recorder.klogger, path)
    begun, unknown = (
        log.one("SELECT count(*) FROM lock_begin"),
        log.one("SELECT count(*) FROM lock_begin WHERE stack = 0"),
    )
    assert begun > 0
    said = log.one("SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'stack_unknown'")
    assert unknown <= said
    shown = recorder.command("cat", path)
    assert shown.code == 0
    lines = [line for line in shown.out.splitlines() if "LOCK_BEGIN" in line and "pipe_" in line]
    assert lines, "no stack goes through the pipe"
    for line in lines:
        frames = re.search(r"stack=\d+\[([^\]]*)\]", line)
        assert frames, line
        # The first frame is the kernel's lock, and not our program or the tracepoint's. Farther out
        # our program may stand, if what waits has interrupted it.
        assert re.match(r"\w*(mutex|lock)", frames[1]), line


@pytest.mark.full("depends on how busy the machine is")
@pytest.mark.parametrize(
    ("load", "lock"),
    [
        ("futex", "futex"),
        ("pipe", "pipe (mutex)"),
        ("mmap", "mmap lock"),
        ("held", "mmap lock (rwsem)"),
    ],
)
def test_a_planted_lock_is_the_first_finding(recorder, workloads, load, lock):
    with Quiet() as quiet:
        path, in_kernel = recorded(recorder, workloads, load)
    said = report(recorder, path)
    (waits,) = [one for one in said["analyses"] if one["name"] == "waits"]
    rows = answers(said)
    spun = {row["lock"]: row["spinning"] for row in rows["spin_share"]}
    assert sum(spun.values()) <= in_kernel
    if load == "futex":
        classes = Counter()
        for row in rows["by_class"]:
            classes[row["class"]] += row["spinning"] if row["kind"] == "spin lock" else 0
        if not spun.get("spin lock"):
            warned = [w for one in said["analyses"] for w in one.get("warnings", [])]
            assert any("No spin lock was seen" in w for w in warned)
            pytest.skip("this machine does not show how it spins for spin locks")
        if classes["futex"] <= 0.9 * sum(classes.values()):
            # Others that run besides make the CPUs' run queues the lock that is fought over.
            quiet.check(f"of all spinning, the planted lock's is not nine tenths: {classes}")
    assert f"class {lock}" in waits["findings"][0], waits["findings"]
    # With two CPUs, short waits may be less than a hundredth of the time; then others are first.
    if load == "held" or waits["weights"][0] >= 0.01:
        assert said["findings"][0]["analysis"] == "waits", said["findings"]
        assert said["findings"][0]["text"] == waits["findings"][0]
