# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Wake-ups that follow each other: a relay of three threads over pipes."""

import platform
import subprocess
from pathlib import Path

import pytest
from disturbed import disturbed
from oracles import Log, answers

SOURCE = Path(__file__).parent / "relay.c"
# A prime, so that nothing else comes to it by chance.
TIMES = 23
EVENTS = """
SELECT pid, 'blocked' AS kind, time, serial, NULL AS source FROM BLOCKED WHERE state & 128 = 0
UNION ALL SELECT pid, 'woken', time, serial, source FROM WOKEN
UNION ALL SELECT pid, 'back', time, serial, NULL FROM BACK
ORDER BY pid, time, serial
"""

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the program knows read() by its number"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    out = tmp_path_factory.mktemp("relay") / "relay"
    subprocess.run(["cc", "-O2", "-pthread", SOURCE, "-o", out], check=True)
    return out


def ended_by_threads(log):
    """The time of the waits that a thread ended, from the bare events."""
    rows = log.rows(EVENTS)
    total = 0
    for first, second, third in zip(rows, rows[1:], rows[2:], strict=False):
        of_one = first[0] == second[0] == third[0]
        if of_one and (first[1], second[1], third[1]) == ("blocked", "woken", "back"):
            total += (second[2] - first[2]) * (second[4] == 0)
    return total


def test_a_relay_of_three_threads(recorder, program):
    """Each wait of the first thread was ended by the second one, and that one's by the third."""
    done, path = recorder.run("-s", "waits", "--set", "callers=true", "--", program, TIMES)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    if sum(log.lost(event) for event in ("BLOCKED", "WOKEN", "BACK")):
        disturbed("events were lost")
    rows = answers(recorder.klogger, path)["wakeup_chains"]
    assert sum(row["total"] for row in rows) == ended_by_threads(log)
    found = 0
    for row in rows:
        own, *wakers = row["stack"].split(";woken by ")
        names = [waker.split(";")[0] for waker in wakers]
        assert row["steps"] == len(wakers) <= 5
        if own.startswith("relay-1;") and "pipe_read" in own:
            assert names[:2] == ["relay-2", "relay-3"], row
            assert ";main;" in own and ";second;" in wakers[0], row
            found += row["times"]
    assert found == TIMES
