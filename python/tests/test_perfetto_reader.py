# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Exports to Perfetto, read by Perfetto's own trace_processor: nothing that it finds wrong, and the
same answers.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from logfile import RECORDER, START, LogFile
from test_exports import LOGS, describe, export, fill, rows_of
from trace_processor import TraceProcessor

NOT_RECORDED = 1 << 22

STATES = """
SELECT tid, state, ts, dur FROM thread_state JOIN thread USING (utid) WHERE tid < 4194304
ORDER BY ts, tid
"""
SLICES = """
SELECT s.ts, s.dur, s.name, s.category, s.depth, t.tid, k.name
FROM slice AS s JOIN track AS k ON s.track_id = k.id
  LEFT JOIN thread_track AS l ON s.track_id = l.id
LEFT JOIN thread AS t USING (utid) WHERE s.dur <> 0 ORDER BY s.ts, s.dur DESC
"""


def declare(log: LogFile) -> None:
    """Names that no bundled schema has: it goes by the roles."""
    log.built_in(
        "PROCESS_EXISTS", "LOST", "PROCESS_FORK", "PROCESS_EXEC", "PROCESS_RENAME", "PROCESS_EXIT"
    )
    log.scheduler("LEAVE", "COME", "RING")
    irq, call = {"name": "irq", "by": ["n"], "on": "cpu"}, {"name": "call"}
    ask = {"name": "ask", "by": ["id"], "on": "any"}
    log.event("IRQ_IN", "n:u32:vector", schema="own", begins=[irq])
    log.event("IRQ_OUT", "n:u32:vector", "handled:i32", schema="own", ends=[irq])
    log.event("CALL", "pid:i32:thread", "id:i32", schema="own", begins=[call])
    log.event("RETURN", "pid:i32:thread", "id:i32", "ret:i64", schema="own", ends=[call])
    log.event("ASK", "id:u64", schema="web", begins=[ask, {"name": "work", "by": ["id"]}])
    log.event("ANSWER", "id:u64", "size:u32", schema="web", ends=[ask])
    log.event("WORKED", "id:u64", schema="web", ends=[{"name": "work", "by": ["id"]}])
    log.preamble = {
        "scope": "processes", "schemas": [{"name": "web", "user": True}],
        "decodings": [{"name": "vector", "flags": False, "values": [[3, "disk"]]}],
    }  # fmt: skip
    log.add(
        RECORDER,
        0,
        "PROCESS_EXISTS",
        pid=10,
        tgid=10,
        ppid=1,
        comm=b"klogger",
        command=b"klogger record",
    )
    log.add(RECORDER, 1, "PROCESS_EXISTS", pid=11, tgid=10, ppid=1, comm=b"second", command=b"")


def switch(log: LogFile, cpu: int, time: int, prev: int, state: int, next_: int) -> None:
    """A switch of a recording of some threads: each half is there if its thread is recorded."""
    if prev in (10, 11):
        log.add(cpu, time, "LEAVE", pid=prev, prio=120, state=state, next=next_)
    if next_ in (10, 11):
        log.add(cpu, time, "COME", pid=next_, prio=120)


def read(log: LogFile, tmp_path: Path) -> TraceProcessor:
    return TraceProcessor(
        export(log.write(tmp_path / "x.klog"), "perfetto", tmp_path / "x.pftrace")
    )


@pytest.mark.parametrize("name", ["v1", "v2", "odd"])
def test_nothing_is_wrong(name: str, tmp_path: Path) -> None:
    log = tmp_path / "x.klog"
    if name == "odd":
        made = LogFile()
        describe(made)
        fill(made)
        made.write(log)
    else:
        shutil.copy(LOGS / f"{name}.klog", log)
    with TraceProcessor(export(log, "perfetto", tmp_path / "x.pftrace")) as trace:
        assert trace.errors() == []
        schemas = {row[0] for row in trace.rows("SELECT DISTINCT category FROM slice")} - {None}
    assert schemas and all(s.isidentifier() for s in schemas), "categories are the schemata's names"
    assert rows_of(log)


def test_states_and_waits(tmp_path: Path) -> None:
    log = LogFile()
    declare(log)
    switch(log, 0, 100, 99, 0, 10)
    log.add(0, 110, "RING", pid=77, prio=120, target_cpu=1, waker=10)
    switch(log, 0, 200, 10, 1, 99)
    log.add(1, 250, "RING", pid=10, prio=120, target_cpu=1, waker=11)
    switch(log, 1, 300, 99, 0, 10)
    switch(log, 1, 400, 10, 0, 99)
    switch(log, 1, 450, 99, 0, 10)
    # It left unseen.
    switch(log, 1, 600, 99, 0, 11)
    switch(log, 1, 700, 11, 1, 99)
    with read(log, tmp_path) as trace:
        assert trace.errors() == []
        states = [(tid, state, ts - START, dur) for tid, state, ts, dur in trace.rows(STATES)]
        waits = trace.rows(
            "INCLUDE PERFETTO MODULE sched.latency; SELECT latency_dur FROM"
            " sched_latency_for_running_interval"
        )
        ran = trace.rows(
            "SELECT tid, sum(dur) FROM sched JOIN thread USING (utid) GROUP BY tid ORDER BY tid"
        )
    assert states == [
        (10, "Running", 100, 100), (10, "S", 200, 50), (10, "R", 250, 50),
        (10, "Running", 300, 100), (10, "R", 400, 50), (10, "Running", 450, 0), (10, "P", 450, -1),
        (11, "Running", 600, 100), (11, "S", 700, -1),
    ]  # fmt: skip
    assert sorted(waits) == [(50,), (50,)]
    assert [r for r in ran if r[0] < NOT_RECORDED] == [(10, 200), (11, 100)]


def test_names_and_processes(tmp_path: Path) -> None:
    log = LogFile()
    declare(log)
    switch(log, 0, 100, 99, 0, 10)
    log.add(0, 110, "PROCESS_RENAME", pid=10, comm=b"server")
    log.add(0, 111, "PROCESS_EXEC", pid=10, old_pid=10, filename=b"/bin/server")
    log.add(0, 150, "PROCESS_EXIT", pid=10)
    switch(log, 0, 160, 10, 0x80, 11)
    log.add(0, 300, "PROCESS_EXIT", pid=11)
    log.add(0, 300, "CALL", pid=11, id=1)
    switch(log, 0, 310, 11, 0x80, 99)
    with read(log, tmp_path) as trace:
        assert trace.errors() == []
        processes = trace.rows("SELECT pid, count(*) FROM process WHERE pid = 10 GROUP BY pid")
        threads = trace.rows(
            "SELECT tid, thread.name, pid FROM thread JOIN process USING (upid) WHERE pid = 10"
            " ORDER BY tid"
        )
    assert processes == [(10, 1)], "it does not end with its first thread"
    assert threads == [(10, "server", 10), (11, "second", 10)]


def test_slices(tmp_path: Path) -> None:
    log = LogFile()
    declare(log)
    log.add(0, 10, "CALL", pid=10, id=5)
    log.add(0, 20, "IRQ_IN", n=3)
    log.add(0, 25, "IRQ_IN", n=9)
    log.add(0, 26, "IRQ_OUT", n=9, handled=0)
    log.add(0, 40, "IRQ_OUT", n=3, handled=1)
    log.add(1, 60, "RETURN", pid=10, id=-1, ret=-4)
    log.add(1, 70, "RETURN", pid=11, id=-1, ret=0)
    user, other = (11, 10, 1), (12, 10, 2)
    log.add(user, 100, "ASK", id=1)
    log.add(user, 110, "ASK", id=2)
    log.add(user, 150, "WORKED", id=1)
    log.add(user, 170, "WORKED", id=2)
    log.add(other, 180, "ANSWER", id=1, size=7)
    log.add(0, 200, "CALL", pid=10, id=6)
    log.add(0, 210, "CALL", pid=10, id=7)
    with read(log, tmp_path) as trace:
        assert trace.errors() == []
        slices = [(ts - START, *rest) for ts, *rest in trace.rows(SLICES)]
        arguments = trace.rows(
            "SELECT name, EXTRACT_ARG(arg_set_id, 'debug.id'), EXTRACT_ARG(arg_set_id,"
            " 'debug.end_id'), EXTRACT_ARG(arg_set_id, 'debug.ret'), EXTRACT_ARG(arg_set_id,"
            " 'debug.size') FROM slice WHERE dur > 0"
        )
        alone = trace.rows("SELECT name FROM slice WHERE dur = 0 AND category = 'own'")
    assert slices == [
        (10, 50, "call", "own", 0, 10, None),
        (20, 20, "irq disk", "own", 0, None, "events of CPU 0"),
        (25, 1, "irq 9", "own", 1, None, "events of CPU 0"),
        (100, 80, "ask", "web", 0, None, "ask"),
        (100, 50, "work", "web", 0, 11, None),
        (110, 60, "work", "web", 0, 11, "work"),
        (110, -1, "ask", "web", 0, None, "ask"),
        (200, 10, "call", "own", 0, 10, None),
        (210, -1, "call", "own", 0, 10, None),
    ]
    assert ("call", 5, -1, -4, None) in arguments and ("ask", 1, None, None, 7) in arguments
    assert alone == [("RETURN",)], "an end without a beginning"


def test_losses_cut_what_they_may_have_ended(tmp_path: Path) -> None:
    log = LogFile()
    declare(log)
    switch(log, 0, 5, 99, 0, 10)
    log.add(0, 10, "CALL", pid=10, id=5)
    log.add(0, 11, "IRQ_IN", n=1)
    log.add(1, 12, "IRQ_IN", n=2)
    log.add(0, 90, "LOST", count=3, since=START + 50)
    log.add(0, 90, "IRQ_IN", n=1)
    log.add(0, 95, "IRQ_OUT", n=1)
    log.add(1, 99, "IRQ_OUT", n=2)
    with read(log, tmp_path) as trace:
        assert trace.errors() == []
        slices = [(ts - START, dur, name) for ts, dur, name, *_ in trace.rows(SLICES)]
        instants = trace.rows(
            "SELECT name FROM slice WHERE dur = 0 AND category = 'own' ORDER BY ts"
        )
        sched = [(tid, ts - START, dur) for tid, ts, dur in trace.rows(
            "SELECT tid, ts, dur FROM sched JOIN thread USING (utid) ORDER BY ts")]  # fmt: skip
    assert slices == [(12, 87, "irq 2"), (90, 5, "irq 1")]
    assert instants == [("CALL",), ("IRQ_IN",)]
    assert sched[0] == (10, 5, 45) and sched[1][:2] == (NOT_RECORDED, 50)
