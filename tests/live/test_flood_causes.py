# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each cause of a loss under a flood: its count is exact, and its span is where events
are missing.
"""

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

import oracles
import pytest
from conftest import small_disk_at, wait_for

NUMBERED = Path(__file__).with_name("numbered.klogger")
FLOOD = Path(__file__).with_name("flood.klogger")
ENDLESS = 1_000_000_000


def spans(log, key):
    """(event, cpu, count, from_ns, to_ns)"""
    return log.rows(
        f"SELECT event, cpu, count, from_ns, to_ns FROM ledger WHERE key = '{key}' ORDER BY ALL"
    )


def test_full_rings_by_event_and_cpu_and_when(recorder, workloads, clean_kernel):
    n = 500_009
    out, flood = recorder.path(), [workloads / "flood", n, -1]
    report = recorder.while_stopped(
        "-s", FLOOD, "--buffer-size", "16K", command=flood, out=out
    ).report
    log = oracles.Log(recorder.klogger, out)
    assert len(report["threads"]) == os.cpu_count()
    entries = spans(log, "ring_full")
    assert entries, "the flood was no flood"
    end = log.one("SELECT max(time) FROM klogger_finish")
    for cpu in {row[1] for row in entries}:
        mine = [row for row in entries if row[1] == cpu]
        ((count, since, until),) = log.rows(
            f"SELECT sum(count), min(since) - {log.start_ns}, max(time) FROM lost WHERE cpu = {cpu}"
        )
        assert sum(row[2] for row in mine) == count
        # The whole span of that ring's losses; what was lost last may be noticed a moment after the
        # recording's end.
        for _, _, _, first, last in mine:
            assert first <= since
            assert last >= min(until, end)
    for event in ("FLOOD", "FLOOD_WIDE"):
        of_event = sum(row[2] for row in entries if row[0] == event)
        assert of_event == log.lost(event)
    # Both are logged at each hit.
    assert log.count("FLOOD") + log.lost("FLOOD") == log.count("FLOOD_WIDE") + log.lost(
        "FLOOD_WIDE"
    )


def flood_while_stopped(recorder, workloads, n, *options, out, seconds=0.0):
    """Records `n` numbered hits on CPU 0, all while the recorder is stopped, for so many seconds at
    least. Returns what it said, and between which times it was stopped.
    """
    flood = [workloads / "flood", n, 0, 1, "unknown"]
    run = recorder.while_stopped("-s", NUMBERED, *options, command=flood, out=out, seconds=seconds)
    assert run.report["threads"][0]["count"] == n
    return run.said, run.stopped, run.until


@pytest.fixture
def small_disk(tmp_path):
    """8 MiB."""
    with small_disk_at(tmp_path / "small", "8m") as folder:
        yield folder


def check_end(log, said):
    """The log says that it has no more, on the full disk."""
    assert "is not complete" in said
    assert log.one("SELECT count(*) FROM ledger WHERE key IN ('recorder_killed', 'file_cut')") == 0
    ((logged, greatest),) = log.rows("SELECT count(*), max(number) FROM numbered")
    assert 0 < logged == greatest + 1
    return logged


def test_a_full_disk(recorder, workloads, clean_kernel, small_disk):
    """What was taken from the rings and found no space is counted: those hits whose numbers are not
    in the log.
    """
    n, out = 500_003, small_disk / "a.klog"
    said, _, _ = flood_while_stopped(recorder, workloads, n, "--buffer-size", "64M", out=out)
    log = oracles.Log(recorder.klogger, Path(shutil.copy(out, recorder.path())))
    logged = check_end(log, said)
    assert spans(log, "ring_full") == []
    assert log.lost("NUMBERED") == n - logged
    entries = [row for row in spans(log, "disk_full") if row[0] == "NUMBERED"]
    assert [(cpu, count) for _, cpu, count, _, _ in entries] == [(0, n - logged)]
    ((_, _, _, first, last),) = entries
    assert (
        log.one("SELECT max(time) FROM numbered")
        <= first
        < last
        <= log.one("SELECT max(time) FROM klogger_finish")
    )


@pytest.mark.full("others of this file are in the gate")
def test_a_disk_that_fills_up_meanwhile(recorder, workloads, clean_kernel, small_disk):
    """The same until the recorder notices; from then on nothing is recorded, and the ledger says
    when that was.
    """
    n, out = 4_000_003, small_disk / "a.klog"
    flood = [workloads / "flood", n, 0, 1, "unknown"]
    done, out = recorder.run("-s", NUMBERED, "--buffer-size", "64M", "--", *flood, out=out)
    log = oracles.Log(recorder.klogger, Path(shutil.copy(out, recorder.path())))
    logged = check_end(log, done.err)
    entries = [row for row in spans(log, "disk_full") if row[0] == "NUMBERED"]
    # Those for which the ring was too small as well.
    counted = log.lost("NUMBERED")
    assert (
        sum(row[2] for row in entries + spans(log, "ring_full") if row[0] == "NUMBERED") == counted
    )
    end = [row for row in spans(log, "disk_full") if row[0] is None and row[2] == 0]
    if "the command ran on" in done.err:
        ((_, cpu, _, since, until),) = end
        assert cpu is None
        # Nothing that was counted is later, but what was on its way when the recorder gave up.
        assert max(row[4] for row in entries) <= since < until
        assert logged < logged + counted <= n
    else:
        assert end == []
        assert logged + counted == n


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("buffer", ["64M", "256K"])
def test_a_ring_that_is_not_drained(recorder, workloads, clean_kernel, buffer):
    """The recorder is stopped while the flood runs: on which CPU, and when, is in the ledger,
    whatever was lost.
    """
    n, out = 300_007, recorder.path()
    said, stopped, until = flood_while_stopped(
        recorder, workloads, n, "--buffer-size", buffer, out=out, seconds=2.0
    )
    log = oracles.Log(recorder.klogger, out)
    late = [row for row in spans(log, "drain_late") if row[1] == 0]
    assert len(late) == 1, said
    ((event, _, count, first, last),) = late
    assert (event, count) == (None, 0)
    assert first <= stopped - log.start_ns
    assert last >= until - log.start_ns
    full = [row for row in spans(log, "ring_full") if row[0] == "NUMBERED"]
    ((logged, distinct, greatest),) = log.rows(
        "SELECT count(*), count(DISTINCT number), max(number) FROM numbered"
    )
    assert (logged, greatest) == (distinct, distinct - 1), (
        "the first of them fill the ring, and no more"
    )
    if buffer == "64M":
        assert (logged, full) == (n, [])
        oracles.check_whole(log)
    else:
        assert [(cpu, count) for _, cpu, count, _, _ in full] == [(0, n - logged)]
        assert full[0][3] >= stopped - log.start_ns
        assert full[0][4] <= last + 1_000_000_000
    oracles.check_serials(log)
    oracles.check_lost_sums(log)


@pytest.mark.full("others of this file are in the gate")
def test_events_that_were_off(recorder, workloads):
    """From the beginning, and for a while."""
    log = recorder.path()
    flood = [workloads / "flood", ENDLESS, 0]
    process = recorder.start(
        "-s",
        FLOOD,
        "--buffer-size",
        "16M",
        "--disable",
        "FLOOD_WIDE",
        "--for",
        "3s",
        "--",
        *flood,
        out=log,
    )
    wait_for(lambda: log.exists() and log.stat().st_size >= 1_000_000, process)
    for word in ("disable", "enable"):
        done = recorder.command(word, "FLOOD", "--recorder", process.pid)
        assert done.code == 0, done.err
        time.sleep(0.3)
    process.wait(timeout=60)
    # The flood's own child goes on.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    log = oracles.Log(recorder.klogger, log)
    ((first, off, on),) = [
        row[0:1] + row[3:] for row in spans(log, "events_disabled") if row[0] == "FLOOD"
    ]
    assert first == "FLOOD"
    # The switch itself takes a moment on either side of the time that the log gives it.
    moment = 100_000_000
    assert log.count("FLOOD", f"time BETWEEN {off + moment} AND {on - moment}") == 0
    assert log.count("FLOOD", f"time < {off}") > 0
    assert log.count("FLOOD", f"time > {on}") > 0
    # The other event of the flood is off for good; changes of name are logged all the time.
    ((begin, end),) = [row[3:] for row in spans(log, "events_disabled") if row[0] == "FLOOD_WIDE"]
    assert (begin, log.count("FLOOD_WIDE")) == (0, 0)
    assert end >= log.one("SELECT max(time) FROM process_rename")
    assert log.count("PROCESS_RENAME", f"time BETWEEN {off} AND {on}") > 0
    assert (
        log.one("SELECT count(*) FROM ledger WHERE key = 'events_disabled' AND severity <> 'info'")
        == 0
    )


@pytest.mark.full("others of this file are in the gate")
def test_a_quiet_recording_has_none_of_it(recorder):
    done, path = recorder.run("-s", FLOOD, "--", "sleep", 1)
    assert done.code == 0, done.err
    assert oracles.Log(recorder.klogger, path).rows("SELECT key, text FROM ledger") == []
