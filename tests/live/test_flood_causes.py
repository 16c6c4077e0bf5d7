# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each cause of a loss under a flood: its count is exact, and its span is where events are missing."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import oracles

NUMBERED = Path(__file__).with_name("numbered.klogger")
FLOOD = Path(__file__).with_name("flood.klogger")
ENDLESS = 1_000_000_000


def spans(log, key):
    """(event, cpu, count, from_ns, to_ns)"""
    return log.rows(f"SELECT event, cpu, count, from_ns, to_ns FROM ledger WHERE key = '{key}' ORDER BY ALL")


def test_full_rings_by_event_and_cpu_and_when(recorder, workloads, clean_kernel):
    n = 500_009
    log, report = recorder.log("-s", FLOOD, "--buffer-size", "16K", "--", workloads / "flood", n, -1)
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
        # The whole span of that ring's losses; what was lost last may be noticed a moment after the recording's end.
        for _, _, _, first, last in mine:
            assert first <= since
            assert last >= min(until, end)
    for event in ("FLOOD", "FLOOD_WIDE"):
        of_event = sum(row[2] for row in entries if row[0] == event)
        assert of_event == log.lost(event)
    # Both are logged at each hit.
    assert log.count("FLOOD") + log.lost("FLOOD") == log.count("FLOOD_WIDE") + log.lost("FLOOD_WIDE")


def test_a_full_disk(recorder, workloads, clean_kernel, tmp_path):
    """What was taken from the rings and found no space is counted: the numbers of the hits tell how many there were."""
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", small], check=True)
    try:
        flood = [workloads / "flood", 2_000_003, 0, 1, "unknown"]
        done, out = recorder.run("-s", NUMBERED, "--buffer-size", "4M", "--", *flood, out=small / "a.klog")
        assert "is not complete" in done.err, done
        log = oracles.Log(recorder.klogger, Path(shutil.copy(out, recorder.path())))
        ((_, _, count, first, last),) = spans(log, "disk_full")
        ((logged, greatest),) = log.rows("SELECT count(*), max(number) FROM numbered")
        # Until the disk was full none was lost, so that the log has a beginning without a gap.
        assert logged == greatest + 1
        assert 0 < count <= 2_000_003 - logged + log.one("SELECT coalesce(sum(logged), 0) FROM event")
        assert 0 <= first < last
        # The end of the log says so, on the full disk.
        assert log.one("SELECT count(*) FROM ledger WHERE key IN ('recorder_killed', 'file_cut')") == 0
    finally:
        subprocess.run(["umount", small], check=True)


def test_events_that_were_off(recorder, workloads):
    """From the beginning, and for a while."""
    log = recorder.path()
    flood = [workloads / "flood", ENDLESS, 0]
    process = recorder.start(
        "-s", FLOOD, "--buffer-size", "16M", "--disable", "FLOOD_WIDE", "--for", "3s", "--", *flood, out=log
    )
    deadline = time.monotonic() + 60
    while not (log.exists() and log.stat().st_size >= 1_000_000):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    for word in ("disable", "enable"):
        done = recorder.command(word, "FLOOD", "--recorder", process.pid)
        assert done.code == 0, done.err
        time.sleep(0.3)
    process.wait(timeout=60)
    # The flood's own child goes on.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    log = oracles.Log(recorder.klogger, log)
    ((first, off, on),) = [row[0:1] + row[3:] for row in spans(log, "events_disabled") if row[0] == "FLOOD"]
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
    assert log.one("SELECT count(*) FROM ledger WHERE key = 'events_disabled' AND severity <> 'info'") == 0


def test_a_quiet_recording_has_none_of_it(recorder):
    done, path = recorder.run("-s", FLOOD, "--", "sleep", 1)
    assert done.code == 0, done.err
    assert oracles.Log(recorder.klogger, path).rows("SELECT key, text FROM ledger") == []
