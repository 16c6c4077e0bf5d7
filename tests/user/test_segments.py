# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Events of programs in a recording of segments: each call is in one of them, or counted."""

import json
import time

import pytest

USER = ("--engine", "user")


def wait_for(what, process):
    until = time.monotonic() + 180
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.01)


@pytest.mark.full("others of the gate have segments")
@pytest.mark.parametrize(("ring", "pause"), [("1M", 100), ("16K", 0)], ids=["roomy", "tight"])
def test_each_call_is_in_one_segment_or_counted(recorder, build, room, ring, pause):
    """Programs begin and end in all segments, and bring their schema along."""
    folder, end = recorder.folder / "segments", recorder.folder / "end"
    script = 'while [ ! -e "$0" ]; do "$@" || exit; done'
    program = ("sh", "-c", script, end, build("flood.c"), 4, 5003, pause)
    options = (*USER, "--user-buffer", ring, "--segment", "100ms", "--dir", folder)
    process = recorder.spawn(recorder.klogger, "record", *options, "--", *program)
    wait_for(lambda: len(list(folder.glob("segment-*.klog"))) >= 8, process)
    end.touch()
    done = recorder.wait(process, 180)
    assert done.code == 0, done.err
    reports = [json.loads(line) for line in done.out.splitlines()]
    attempts = sum(thread["calls"] for report in reports for thread in report["threads"])
    log = recorder.log(folder)
    lost = log.one("SELECT coalesce(sum(count), 0)::BIGINT FROM ledger WHERE severity = 'loss'")
    assert log.count("COUNT") + lost == attempts
    assert log.one("SELECT count(DISTINCT (tgid, tid, n)) FROM count") == log.count("COUNT")
    assert log.one("SELECT coalesce(sum(count), 0)::BIGINT FROM lost") == lost
    keys = {key for (key,) in log.rows("SELECT key FROM ledger WHERE severity <> 'info'")}
    assert keys <= {"ring_full", "drain_late"}
    # In each thread the calls are in their order.
    assert (
        log.one("""SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY tgid, tid
        ORDER BY time, serial) AS before FROM count) WHERE n <= before""")
        == 0
    )
    parts = sorted(folder.glob("segment-*.klog"))
    alone = [recorder.log(path) for path in parts]
    assert sum(one.count("COUNT") for one in alone if "count" in one.tables) == log.count("COUNT")
