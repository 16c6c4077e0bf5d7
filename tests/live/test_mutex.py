# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `mutex` counts each operation that a program counts itself, and those that wait are
those that the schema `futex` logs.
"""

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from oracles import Log

ROOT = Path(__file__).resolve().parents[2]
MUTEX = ROOT / "schemata/mutex/mutex.klogger"
FUTEX = ROOT / "schemata/futex/futex.klogger"
CPUS = os.cpu_count() or 1


@pytest.fixture(scope="module")
def user_locks(tmp_path_factory) -> Path:
    """tests/workloads/user_locks.c with the shared C library, where the probes are."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    program = tmp_path_factory.mktemp("dynamic") / "user_locks"
    source = ROOT / "tests/workloads/user_locks.c"
    subprocess.run(["cc", "-O2", "-pthread", "-o", program, source], check=True)
    return program


def recorded(recorder, program: Path, what: str, *first: Path) -> tuple[Log, list[str]]:
    """Recorded with both schemata, `futex` first unless told."""
    schemata = dict.fromkeys([*first, FUTEX, MUTEX])
    words = [word for schema in schemata for word in ("-s", schema)]
    done, path = recorder.run(*words, "--", program, what)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert all(log.lost(event) == 0 for event in ("USED", "WAIT", "WAITED", "WOKE"))
    return log, done.out.split()[1:]


@pytest.mark.full("takes more than 3 s")
def test_each_operation_is_counted(recorder, user_locks):
    log, (pairs,) = recorded(recorder, user_locks, "free")
    assert pairs == "100003"
    sums = log.rows("SELECT lock, sum(takes), sum(drops) FROM USED GROUP BY lock HAVING"
                    " sum(takes) > 1000")  # fmt: skip
    assert [(takes, drops) for _, takes, drops in sums] == [(100003, 100003)]
    assert log.one("SELECT sum(waits + wakes + tries + failed) FROM USED WHERE kind = 0") == 0
    assert log.one("SELECT count(*) FROM WAIT") == 0


@pytest.mark.full("depends on how busy the machine is")
@pytest.mark.skipif(CPUS < 2, reason="on one CPU no thread waits for a lock")
@pytest.mark.parametrize("first", [FUTEX, MUTEX], ids=lambda schema: schema.stem)
def test_waits_are_those_of_the_kernel(recorder, user_locks, first):
    log, (address, *_) = recorded(recorder, user_locks, "guilty", first)
    guilty = int(address, 16)
    # Sixteen mutexes of 80 bytes, of which this is the twelfth.
    mine = f"lock BETWEEN {guilty - 11 * 80} AND {guilty + 4 * 80} AND"
    assert log.one(f"SELECT sum(takes) FROM USED WHERE {mine} kind = 0") == 4 * 211
    assert log.one(f"SELECT sum(drops) FROM USED WHERE {mine} kind = 0") == 4 * 211
    # One that was woken may have to wait again, in the same operation.
    used = dict(log.rows(f"SELECT lock, sum(waits) FROM USED WHERE {mine} kind = 0 GROUP BY lock"))
    calls = dict(log.rows(f"SELECT lock, count(*) FROM WAIT WHERE {mine} true GROUP BY lock"))
    assert {lock for lock, waits in used.items() if waits} == set(calls)
    assert all(0 < used[lock] <= calls[lock] for lock in calls)
    assert calls[guilty] > 0
    # Each operation that wakes calls the kernel once.
    wakes = dict(log.rows(f"SELECT lock, sum(wakes) FROM USED WHERE {mine} kind = 0 GROUP BY lock"))
    woke = dict(log.rows(f"SELECT lock, count(*) FROM WOKE WHERE {mine} true GROUP BY lock"))
    assert {lock: n for lock, n in wakes.items() if n} == woke


def test_conditions_are_counted(recorder, user_locks):
    log, (rounds, _, called) = recorded(recorder, user_locks, "pingpong")
    ((waits, asleep, signals),) = log.rows(
        "SELECT sum(takes), sum(waits), sum(drops) FROM USED WHERE kind = 1"
    )
    assert signals == 2 * int(rounds)
    assert waits == int(called) > 0
    # Those that went to the kernel, as the turn was not its own yet, which it is told as well.
    assert 0 < asleep <= min(waits, log.one("SELECT count(*) FROM WAIT"))
    assert log.one("SELECT count(DISTINCT lock) FROM USED WHERE kind = 1") == 1


@pytest.mark.full("others of this file are in the gate")
def test_waits_for_a_semaphore_behind_a_mutex_are_not_its_own(recorder, user_locks):
    log, (address, error) = recorded(recorder, user_locks, "behind")
    lock = int(address, 16)
    assert int(error) == errno.EOWNERDEAD
    # The mutex was got from a thread that had ended: that try has not failed.
    sums = "sum(takes), sum(drops), sum(tries), sum(failed), sum(waits), sum(wakes)"
    assert log.rows(f"SELECT {sums} FROM USED WHERE lock = {lock}") == [(14, 14, 1, 0, 0, 0)]
    # On a busy machine a wait may find that its time is over, and does not ask the kernel.
    assert log.one(f"SELECT count(*) FROM WAIT WHERE lock BETWEEN {lock + 8} AND {lock + 47}") > 0
