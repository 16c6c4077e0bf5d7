# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Two recordings at once do not disturb each other: each has exactly the events of its own
workload, and goes on when the other one ends, or is killed.
"""

import json
import os
import signal
import subprocess

import pytest
from following import FLOOD, PATIENCE, Gate, end, events, has_begun, started, wait_for
from oracles import Log

SCHEMATA = FLOOD.parents[2] / "schemata"


@pytest.fixture
def start(klogger, tmp_path):
    """Starts a recording of a command that floods, waits at its gate, and floods again."""
    running = []

    def run(name, *options, first, second, schema=FLOOD, workload=None, cpu=0):
        folder = tmp_path / name
        folder.mkdir()
        gate, out = Gate(folder), folder / "test.klog"
        flood = lambda n: f"{workload} {n} {cpu} 1"  # noqa: E731
        script = f"{flood(first)} > {folder}/first; read line < {gate.path}; {flood(second)}"
        words = ("record", "-q", "-s", schema, *options, "-o", out, "--", "sh", "-c", script)
        process = started(klogger, *words, stdout=subprocess.DEVNULL)
        running.append(process)
        wait_for(lambda: (folder / "first").exists() and (folder / "first").read_text(), process)
        return process, gate, out

    yield run
    end(*running)


def ended(process) -> str:
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said.decode()
    return said.decode()


def hits(klogger, out) -> dict:
    """(logged, lost) of each event, and that nothing is damaged."""
    words = [klogger, "info", out, "--format", "json"]
    info = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    assert info["complete"] and info["sound"], info["damage"]
    return {row["name"]: (row["logged"], row["lost"]) for row in info["events"]}


def floods(klogger, out) -> int:
    """The hits of the floods: those with its names, of the log's own processes."""
    return Log(klogger, out).one(
        "SELECT count(*) FROM flood_wide WHERE name IN ('flood-even', 'flood-odd')"
    )


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("ends", ["in order", "killed"])
def test_of_the_same_schema(start, klogger, workloads, ends, clean_kernel):
    sizes = {"a": (20_000, 3_000), "b": (7_000, 30_000)}
    flood = workloads / "flood"
    runs = {
        name: start(name, first=n, second=m, workload=flood, cpu=0)
        for name, (n, m) in sizes.items()
    }
    first, gate, out = runs["a"]
    if ends == "killed":
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    else:
        gate.open()
        ended(first)
        assert floods(klogger, out) == sum(sizes["a"])
        assert all(lost == 0 for _, lost in hits(klogger, out).values())
    # The other one goes on.
    other, gate, out = runs["b"]
    gate.open()
    ended(other)
    assert all(lost == 0 for _, lost in hits(klogger, out).values())
    assert floods(klogger, out) == sum(sizes["b"])
    if ends == "killed":
        rescued = out.with_name("rescued.klog")
        # What the killed one has left is found, and freed.
        done = subprocess.run(
            [klogger, "rescue", str(first.pid), "-o", rescued],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert floods(klogger, rescued) == sizes["a"][0]


def test_of_different_schemata(start, klogger, workloads, clean_kernel):
    flood = workloads / "flood"
    one, one_gate, one_out = start("one", first=5_000, second=5_000, workload=flood)
    two, two_gate, two_out = start(
        "two", first=4_000, second=6_000, workload=flood, schema="scheduler", cpu=1
    )
    two_gate.open()
    ended(two)
    one_gate.open()
    ended(one)
    assert floods(klogger, one_out) == 10_000
    # The other schema has no event of a flood, but the renames of its threads.
    assert Log(klogger, two_out).one("SELECT count(*) FROM process_rename") >= 10_000
    assert all(lost == 0 for out in (one_out, two_out) for _, lost in hits(klogger, out).values())


@pytest.mark.full("others of this file are in the gate")
def test_a_flight_recorder_beside_another(start, klogger, workloads, clean_kernel):
    flood = workloads / "flood"
    kept, kept_gate, kept_out = start(
        "kept", "--overwrite", "--buffer-size", "64K", first=100_000, second=100_000, workload=flood
    )
    whole, whole_gate, whole_out = start("whole", first=50_000, second=50_000, workload=flood)
    kept_gate.open()
    ended(kept)
    whole_gate.open()
    ended(whole)
    assert floods(klogger, whole_out) == 100_000
    # The newest ones are there, the others are counted.
    assert 0 < floods(klogger, kept_out) < 100_000
    hits(klogger, kept_out)
    kept_log = Log(klogger, kept_out)
    gone = kept_log.one("SELECT sum(count) FROM ledger WHERE key = 'overwritten'")
    logged = sum(map(kept_log.count, ("FLOOD", "FLOOD_WIDE", "PROCESS_RENAME")))
    # Each hit has three events; besides them there are the few of processes.
    assert 600_000 <= logged + gone <= 601_000


def test_a_mark_needs_to_know_which(start, klogger, recorder, workloads):
    flood = workloads / "flood"
    runs = [start(name, first=10, second=10, workload=flood) for name in ("one", "two")]
    refused = recorder.command("mark", "to whom")
    assert refused.code == 2
    assert refused.err.startswith("klogger: several recordings are running"), refused.err
    for process, _, _ in runs:
        assert str(process.pid) in refused.err
    assert recorder.command("mark", "to one", "--recorder", runs[0][0].pid).code == 0
    assert recorder.command("disable", "FLOOD", "--recorder", runs[1][0].pid).code == 0
    for process, gate, _ in runs:
        gate.open()
        ended(process)
    rows = [
        events(recorder.command("cat", out, "--format", "json").out.encode(), "MARK", "FLOOD")
        for _, _, out in runs
    ]
    marks = [[row["text"] for row in each if row["event"] == "MARK"] for each in rows]
    assert marks == [["to one"], []]
    counts = [sum(row["event"] == "FLOOD" for row in each) for each in rows]
    # Disabled before the second flood.
    assert counts[0] >= 20 > counts[1] >= 10


@pytest.mark.full("others of this file are in the gate")
def test_of_one_process(klogger, workloads, tmp_path):
    """Both record the same process: each has all of its events."""
    gate = Gate(tmp_path)
    script = f"read line < {gate.path}; exec {workloads}/flood 30000 0 1"
    flood = subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL)
    outs = [tmp_path / f"{name}.klog" for name in "ab"]
    both = [
        started(klogger, "record", "-q", "-s", FLOOD, "-p", flood.pid, "-o", out) for out in outs
    ]
    try:
        for process, out in zip(both, outs, strict=True):
            wait_for(lambda out=out: has_begun(out), process)
            wait_for(lambda p=process: listed(klogger, p.pid), process)
        gate.open()
        assert flood.wait(timeout=PATIENCE) == 0
        for process in both:
            ended(process)
    finally:
        end(*both)
        flood.kill()
        flood.wait()
    assert [floods(klogger, out) for out in outs] == [30_000, 30_000]


def listed(klogger, pid) -> bool:
    done = subprocess.run([klogger, "ps", "--format", "json"], capture_output=True, check=True)
    return any(row["pid"] == pid for row in json.loads(done.stdout))
