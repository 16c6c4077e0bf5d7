# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What programs lose for other reasons than a full ring: the ledger counts each call that is not in
the log.
"""

import os
import subprocess
import time

import pytest
from conftest import report_in
from shm_oracle import Ring, Shared

USER = ("--engine", "user")
THREADS, CALLS = 16, 20_000
# Larger than all that a thread logs.
BUFFER = ("--user-buffer", "1M")


def entries(log, key):
    """(event, tid, count, severity)"""
    return log.rows(
        f"SELECT event, tid, count, severity FROM ledger WHERE key = '{key}' ORDER BY ALL"
    )


def check_refused_threads(log, key, report):
    """Each thread is in the log with all its calls, or with none; those that it has not are
    counted, all of them.
    """
    logged = dict(log.rows("SELECT tid, count(*) FROM count GROUP BY tid"))
    tids = {thread["tid"] for thread in report["threads"]}
    assert set(logged) < tids, "all had rings, so nothing was tested"
    assert set(logged.values()) == {CALLS}
    missing = (len(tids) - len(logged)) * CALLS
    assert [e for e in entries(log, key) if e[0]] == [("COUNT", None, missing, "loss")]
    assert log.lost("COUNT") == missing
    # No ring was full, and nothing else was lost.
    assert (
        log.rows(f"SELECT key FROM ledger WHERE severity IN ('loss', 'error') AND key <> '{key}'")
        == []
    )


def test_threads_for_which_there_is_no_memory(recorder, build):
    limits = (*BUFFER, "--max-memory", "4M")
    done, out = recorder.run(*USER, *limits, "--", build("flood.c"), THREADS, CALLS, 1000)
    assert done.code == 0, done.err
    check_refused_threads(recorder.log(out), "user_memory", report_in(done))


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_threads_for_which_the_folder_has_no_space(recorder, build, room):
    """The folder's file system holds the rings of a few threads."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m,mode=700", "tmpfs", room.path], check=True
    )
    try:
        done, out = recorder.run(*USER, *BUFFER, "--", build("flood.c"), THREADS, CALLS, 1000)
        assert done.code == 0, done.err
        log = recorder.log(out)
        check_refused_threads(log, "user_refused", report_in(done))
        texts = [text for (text,) in log.rows("SELECT text FROM ledger WHERE severity = 'loss'")]
        assert any("folder is full" in text for text in texts), texts
        # Programs that could not make their files at all would not be counted.
        assert any(f"{room.path} is full" in text for text in texts), texts
    finally:
        subprocess.run(["umount", room.path], check=True)


def wait_for(what):
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until, "it does not happen"
        time.sleep(0.01)


def test_a_stray_write_costs_its_own_thread_and_no_other(recorder, build, room):
    """Into the position of one thread's ring. What the thread logged before is there; the rest has
    no count, because it is not known which of it is true.
    """
    calls = 3000
    recording, out = recorder.start(*USER, *BUFFER, "--", build("flood.c"), 2, calls, 1)
    wait_for(lambda: any(not name.startswith(".") for name in room.names()))
    shared = Shared(room.path / next(name for name in room.names() if not name.startswith(".")))
    wait_for(lambda: len(shared.used_slots()) == 2)
    time.sleep(0.5)
    slot = shared.used_slots()[0]
    victim, ring = slot.tid, slot.main
    shared.words[(ring.base + Ring.HEAD) // 8] = ring.word(Ring.HEAD) + 64 * ring.size
    del slot, ring
    shared.close()
    done = recorder.wait(recording)
    assert done.code == 0, done.err
    (other,) = {thread["tid"] for thread in report_in(done)["threads"]} - {victim}
    log = recorder.log(out)
    assert entries(log, "user_hostile") == [(None, victim, 0, "loss")]
    streams = {
        tid: rest
        for tid, *rest in log.rows("SELECT tid, count(*), min(n), max(n) FROM count GROUP BY tid")
    }
    assert streams[other] == [calls, 0, calls - 1]
    count, first, last = streams[victim]
    assert 0 < count < calls
    assert (first, last) == (0, count - 1)
    assert (
        log.rows(
            "SELECT key FROM ledger WHERE severity IN ('loss', 'error') AND key <> 'user_hostile'"
        )
        == []
    )
