# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Exports as LTTng would have written them, read by babeltrace 1.5 and by the LTTng analyses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from logfile import RECORDER, START, LogFile
from test_exports import LOGS, describe, export, fill

MS = 1_000_000
END = 1000 * MS


def tool(name: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    done = subprocess.run(
        [name, *map(str, words)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done


def table(command: str, trace: Path, kind: str) -> list[list[Any]]:
    """The rows of a table that one of the analyses makes for programs."""
    if shutil.which("babeltrace") is None:
        pytest.skip("babeltrace is not installed")
    found = json.loads(tool(f"{command}-mi", trace).stdout)
    assert "results" in found, found
    return [row for result in found["results"] if result["class"] == kind for row in result["data"]]


def declare(log: LogFile) -> None:
    """Names that no bundled schema has: it goes by roles and slices."""
    log.built_in("PROCESS_EXISTS", "LOST", "MARK", "PROCESS_FORK", "PROCESS_EXEC", "PROCESS_EXIT")
    log.scheduler("LEAVE", "COME", "RING", "RISE")
    irq, soft = (
        {"name": "irq", "by": ["n"], "on": "cpu"},
        {"name": "softirq", "by": ["kind"], "on": "cpu"},
    )
    log.event("CALLED", "irq:i32", "name:string", schema="own")
    log.event("IN", "n:i32", schema="own", begins=[irq])
    log.event("OUT", "n:i32", "handled:i32", schema="own", ends=[irq])
    log.event("SOFT", "kind:u8:kinds", schema="own", begins=[soft])
    log.event("DONE", "kind:u8:kinds", schema="own", ends=[soft])
    call = {"name": "system_call"}
    log.event("ASK", "pid:i32:thread", "id:i32", schema="own", begins=[call])
    log.event("ANSWER", "ret:i64", "pid:i32:thread", "id:i32", schema="own", ends=[call])


def switch(log: LogFile, cpu: int, ms: float, prev: int, state: int, nxt: int) -> None:
    time = int(ms * MS)
    log.add(cpu, time, "LEAVE", pid=prev, prio=120, state=state, next=nxt)
    log.add(cpu, time, "COME", pid=nxt, prio=130 if nxt == 11 else 120)


def second(tmp_path: Path) -> Path:
    """One second of two CPUs: on 0 thread 10 runs for 250 ms and 11 for 125, on 1 thread 20 for
    500; else they idle.
    """
    log = LogFile()
    declare(log)
    log.preamble["decodings"] = [
        {"name": "kinds", "flags": True, "values": [[1, "one"], [2, "two"]]}
    ]
    log.add(RECORDER, 0, "PROCESS_EXISTS", pid=10, tgid=10, ppid=1, comm=b"first", command=b"first")
    log.add(
        RECORDER, 0, "PROCESS_EXISTS", pid=11, tgid=10, ppid=1, comm=b"second", command=b"first"
    )
    log.add(RECORDER, 0, "PROCESS_EXISTS", pid=2, tgid=2, ppid=0, comm=b"kthreadd", command=b"")
    log.add(RECORDER, END, "MARK", number=1, text=b"end")
    for cpu in (0, 1):
        log.add(cpu, 0, "COME", pid=0, prio=120)
    log.add(1, 50 * MS, "RING", pid=10, prio=120, target_cpu=0, waker=0)
    log.add(1, 50 * MS, "RISE", pid=10, prio=120, runq=0, is_new=0)
    switch(log, 0, 100, 0, 0, 10)
    log.add(0, 120 * MS, "ASK", pid=10, id=39)
    log.add(0, 130 * MS, "ANSWER", pid=10, id=39, ret=10)
    log.add(0, 140 * MS, "ASK", pid=10, id=0)
    log.add(0, 150 * MS, "ANSWER", pid=10, id=0, ret=1)
    log.add(0, 200 * MS, "PROCESS_FORK", parent=10, pid=20, tgid=20, comm=b"first")
    log.add(0, 210 * MS, "RISE", pid=20, prio=120, runq=1, is_new=1)
    switch(log, 0, 350, 10, 1, 11)
    switch(log, 0, 475, 11, 0x402, 0)
    switch(log, 1, 300, 0, 0, 20)
    log.add(1, 310 * MS, "PROCESS_EXEC", pid=20, old_pid=20, filename=b"/bin/third")
    log.add(0, 600 * MS, "CALLED", irq=31, name=b"disk")
    for i in range(5):
        log.add(0, (600 + 2 * i) * MS, "IN", n=31)
        log.add(0, (601 + 2 * i) * MS, "OUT", n=31, handled=i % 2)
    for i in range(7):
        log.add(1, (600 + 2 * i) * MS, "SOFT", kind=3)
        log.add(1, (601 + 2 * i) * MS, "DONE", kind=3)
    log.add(1, 790 * MS, "PROCESS_EXIT", pid=20)
    switch(log, 1, 800, 20, 0x80, 0)
    return export(log.write(tmp_path / "x.klog"), "lttng", tmp_path / "x-lttng")


def test_cputop_says_who_ran_for_how_long(tmp_path: Path) -> None:
    trace = second(tmp_path)
    shares = {
        row[0]["tid"]: (row[0]["name"], row[3]["value"])
        for row in table("lttng-cputop", trace, "per-process")
    }
    assert {
        tid: share for tid, (_, share) in shares.items() if share and tid != 0
    } == pytest.approx({10: 0.250, 11: 0.125, 20: 0.500})
    assert {tid: name for tid, (name, _) in shares.items()} | {0: "swapper"} == {
        0: "swapper", 10: "first", 11: "second", 20: "first", 4194304: "not recorded",
        4194305: "not recorded",
    }  # fmt: skip
    cpus = {row[0]["id"]: row[1]["value"] for row in table("lttng-cputop", trace, "per-cpu")}
    assert cpus == pytest.approx({0: 0.375, 1: 0.5})


def test_irqstats_counts_interrupts(tmp_path: Path) -> None:
    trace = second(tmp_path)
    hard = [
        (row[0]["nr"], row[0]["name"], row[1]["value"])
        for row in table("lttng-irqstats", trace, "hard-stats")
    ]
    soft = [(row[0]["nr"], row[1]["value"]) for row in table("lttng-irqstats", trace, "soft-stats")]
    assert (hard, soft) == ([(31, "disk", 5)], [(3, 7)])
    times = [
        row[i]["value"] for row in table("lttng-irqstats", trace, "soft-stats") for i in (2, 4)
    ]
    assert times == [MS, MS]


def test_the_other_analyses_find_what_they_look_for(tmp_path: Path) -> None:
    trace = second(tmp_path)
    waits = [
        (row[5]["tid"], row[2]["value"], row[3]["value"])
        for row in table("lttng-schedlog", trace, "log")
    ]
    assert waits == [(10, 50 * MS, 20), (20, 90 * MS, 20)]
    calls = tool("lttng-syscallstats", "--no-progress", trace).stdout
    assert re.search(r"- getpid +1 +10000.0", calls), calls


def events(trace: Path) -> tuple[list[tuple[int, str, str]], str]:
    """(time, name, the rest) as babeltrace 1.5 reads them, and its warnings."""
    done = tool("babeltrace", "--clock-cycles", trace)
    lines = (
        re.fullmatch(r"\[(\d+)\] \([^)]*\) (?:.*? )?([\w:]+): (\{ .*)", line)
        for line in done.stdout.splitlines()
    )
    return [(int(m[1]), m[2], m[3]) for m in lines if m], done.stderr


def test_babeltrace_reads_names_and_values(tmp_path: Path) -> None:
    found, warnings = events(second(tmp_path))
    assert not warnings
    assert Counter(name for _, name, _ in found) == {
        "own:ASK": 1, "own:ANSWER": 1, "own:CALLED": 1, "klogger:MARK": 1,
        "klogger:PROCESS_EXISTS": 3, "lttng_statedump_process_state": 3, "sched_switch": 7,
        "sched_waking": 1, "sched_wakeup": 1, "sched_wakeup_new": 1, "sched_process_fork": 1,
        "sched_process_exec": 1, "sched_process_exit": 1, "irq_handler_entry": 5,
        "irq_handler_exit": 5, "softirq_entry": 7, "softirq_exit": 7, "syscall_entry_getpid": 1,
        "syscall_exit_getpid": 1,
    }  # fmt: skip
    text = "\n".join(f"{time - START} {name}: {rest}" for time, name, rest in found)
    for fields in (
        (
            'sched_switch: { cpu_id = 0 }, { serial = 12 }, { prev_comm = "second", prev_tid = 11,'
            ' prev_prio = 20, prev_state = 128, next_comm = "swapper", next_tid = 0, next_prio ='
            " 20 }"
        ),
        (
            'parent_comm = "first", parent_tid = 10, parent_pid = 10, child_comm = "first",'
            " child_tid = 20, child_pid = 20"
        ),
        'name = "kthreadd", type = 1, mode = 0',
        (
            'sched_waking: { cpu_id = 1 }, { serial = 1 }, { comm = "first", tid = 10, prio = 120,'
            " success = 1, target_cpu = 0 }"
        ),
        'filename = "/bin/third", tid = 20, old_tid = 20',
        (
            'sched_process_exit: { cpu_id = 1 }, { serial = 20 }, { comm = "third", tid = 20, prio'
            " = 20 }"
        ),
    ):
        assert fields in text, fields
    times = [time for time, _, _ in found]
    assert times == sorted(times)


def test_metadata_says_what_it_is(tmp_path: Path) -> None:
    text = (second(tmp_path) / "kernel" / "metadata").read_text()
    lines = [
        'domain = "kernel"',
        'tracer_name = "lttng-modules"',
        'converted_by = "klogger"',
        'hostname = "test"',
    ]
    lines += [
        "tracer_major = 2",
        "tracer_minor = 6",
        "tracer_patchlevel = 0",
        'kernel_release = "6.1.0"',
    ]
    for line in lines:
        assert f"\t{line};\n" in text, line


@pytest.mark.parametrize("which", ["odd", "scoped", "v1", "v2"])
def test_losses_and_hostile_texts(tmp_path: Path, which: str) -> None:
    log = tmp_path / "x.klog"
    if which in ("v1", "v2"):
        shutil.copy(LOGS / f"{which}.klog", log)
    else:
        made = LogFile()
        describe(made)
        fill(made)
        made.preamble["scope"] = "all" if which == "odd" else "processes"
        made.write(log)
    trace = export(log, "lttng", tmp_path / "x-lttng")
    found, warnings = events(trace)
    assert found
    times = [time for time, _, _ in found]
    assert times == sorted(times)
    if which == "odd":
        assert re.search(r"discarded 7 events", warnings), warnings
        assert f"discarded {(1 << 40) + 3} events" in warnings
    table("lttng-cputop", trace, "per-process")


def test_a_cpu_has_one_thread_at_a_time(tmp_path: Path) -> None:
    """Also where the log does not say which: each switch leaves the thread that the one before it
    brought.
    """
    made = LogFile()
    describe(made)
    fill(made)
    trace = export(made.write(tmp_path / "x.klog"), "lttng", tmp_path / "x-lttng")
    running: dict[str, str] = {}
    for _, name, rest in events(trace)[0]:
        if name == "sched_switch":
            cpu, prev, nxt = (
                re.search(rf"{field} = (\d+)", rest) for field in ("cpu_id", "prev_tid", "next_tid")
            )
            assert cpu and prev and nxt
            assert running.get(cpu[1], prev[1]) == prev[1], rest
            running[cpu[1]] = nxt[1]
    assert len(running) == 2
