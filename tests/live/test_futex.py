# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `futex` has the waits that a program planted: as long as by its own clock, as often as
getrusage() counts, and none where a lock is free.
"""

import os
from pathlib import Path

import pytest
from oracles import Log, answers

import klogger

SCHEMA = Path(__file__).resolve().parents[2] / "schemata/futex/futex.klogger"
CPUS = os.cpu_count() or 1


class Locks:
    """A recording of tests/workloads/user_locks.c, and what it printed."""

    def __init__(self, recorder, workloads, what: str):
        # Before all others: on a busy machine, a thread that is preempted between its own look at
        # the clock and its call would be at fault.
        command = ["nice", "-n", "-20", workloads / "user_locks", what]
        done, path = recorder.run("-s", SCHEMA, "--", *command)
        assert done.code == 0, done.err
        name, *self.words = done.out.split()
        assert name == what
        self.log = Log(recorder.klogger, path)
        assert all(self.log.lost(event) == 0 for event in ("WAIT", "WAITED", "WOKE"))
        self.klogger, self.path = recorder.klogger, path

    def is_of(self, row: dict, address: str) -> bool:
        """Whether a row of an analysis is of the lock at this address, which has a name."""
        name = self.name_of(address)
        return row["lock"].startswith(f"{name} (user_locks[")

    def name_of(self, address: str) -> str:
        at = f"lock = {int(address, 16)}"
        with klogger.open(self.path) as log:
            query = f"SELECT DISTINCT data(lock, tgid, time) FROM WAIT WHERE {at}"
            ((name,),) = log.rows(query)
        assert not name.startswith("0x")
        return name

    def tables(self) -> dict:
        return answers(self.klogger, self.path)


def test_a_free_lock_is_not_seen(recorder, workloads):
    locks = Locks(recorder, workloads, "free")
    assert locks.words == ["100003"]
    # Before, the thread was `nice`.
    since = "time > (SELECT max(time) FROM PROCESS_EXEC)"
    assert sum(locks.log.count(event, since) for event in ("WAIT", "WAITED", "WOKE")) == 0


@pytest.mark.full("depends on how busy the machine is")
@pytest.mark.skipif(CPUS < 2, reason="on one CPU no thread waits for a lock")
def test_the_guilty_lock_is_first(recorder, workloads):
    locks = Locks(recorder, workloads, "guilty")
    address, waited, _ = locks.words
    league = locks.tables()["league"]
    held = [row for row in league if row["holder"]]
    assert locks.is_of(held[0], address)
    # The program's time has also locking without a wait, and a thread that is woken and has no CPU.
    assert held[0]["waited"] == pytest.approx(int(waited), rel=0.05)
    assert locks.log.one("SELECT count(*) FROM WAIT") == locks.log.one(
        "SELECT count(*) FROM WAITED"
    )
    # The holder is one of the threads that compete, at each wait for this lock.
    holders = locks.log.rows(f"SELECT DISTINCT holder FROM WAIT WHERE lock = {int(address, 16)}")
    tids = {tid for (tid,) in locks.log.rows("SELECT DISTINCT tid FROM WAIT")}
    # 0: it was given back between the program's look and the kernel's.
    assert {holder for (holder,) in holders} <= tids | {0}


@pytest.mark.full("depends on how busy the machine is")
def test_waits_that_slept_are_voluntary_switches(recorder, workloads):
    locks = Locks(recorder, workloads, "pingpong")
    rounds, switches, _ = map(int, locks.words)
    slept = locks.log.one("SELECT count(*) FROM WAITED WHERE asleep > 0")
    # Each thread waits once in a round, and sleeps, unless the other one is faster than its call.
    assert rounds / 10 <= slept <= switches
    # Nothing else makes this program sleep but its start and its end.
    assert switches - slept <= 0.02 * switches + 10
    woken = locks.log.one("SELECT count(*) FROM WAITED WHERE asleep > 0 AND waker = 0")
    assert woken == 0
    # Who woke it is the other thread.
    assert locks.log.one("SELECT count(*) FROM WAITED WHERE waker = tid") == 0


def test_priority_inheritance_names_the_holder(recorder, workloads):
    locks = Locks(recorder, workloads, "pi")
    lock = int(locks.words[0], 16)
    rows = locks.log.rows(f"""
        SELECT w.tid, w.holder, p.pid FROM WAIT AS w, process AS p
        WHERE w.op IN (6, 13) AND w.lock = {lock} AND p.pid = w.tgid AND p.comm = 'user_locks'
    """)
    assert len(rows) == 53
    assert all(tid != main and holder == main for tid, holder, main in rows)


def test_a_dead_lock_is_found(recorder, workloads):
    locks = Locks(recorder, workloads, "deadlock")
    tables = locks.tables()
    (cycle,) = tables["cycles"]
    assert sorted(cycle["locks"].split(" -> ")) == sorted(map(locks.name_of, locks.words))
    waits = locks.log.rows("SELECT DISTINCT tid FROM WAIT WHERE expected = 2")
    named = {int(word.split("[")[1].rstrip("]")) for word in cycle["threads"].split(" -> ")}
    assert named == {tid for (tid,) in waits}


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("what", ["pingpong", "pi"])
def test_no_dead_lock_where_there_is_none(recorder, workloads, what):
    assert Locks(recorder, workloads, what).tables()["cycles"] == []


@pytest.mark.full("others of this file are in the gate")
def test_calls_of_their_own(recorder, workloads):
    locks = Locks(recorder, workloads, "calls")
    if locks.words == ["absent"]:
        pytest.skip("this kernel has no futex_wait(), futex_wake() and futex_requeue()")
    waited, moved = (int(word, 16) for word in locks.words)
    one = locks.log.one
    waits = one("SELECT count(*) FROM WAIT WHERE op = 21")
    # A wait is interrupted by nothing but the wakes.
    assert waits == one("SELECT count(*) FROM WAITED WHERE op = 21 AND result = 0") == 101 + 7
    assert one(f"SELECT count(*) FROM WAIT WHERE op = 21 AND lock <> {waited}") == 0
    assert one("SELECT sum(result) FROM WOKE WHERE op = 22") == 101 + 7
    assert one(f"SELECT sum(result) FROM WOKE WHERE op = 22 AND lock = {moved}") == 7
    # It is called until the other thread waits.
    assert one("SELECT sum(result) FROM WOKE WHERE op = 23") == 7
    assert one(f"SELECT count(*) FROM WOKE WHERE op = 23 AND (lock, asked) <> ({waited}, 1)") == 0


@pytest.mark.full("depends on how busy the machine is")
def test_calls_in_vain(recorder, workloads):
    locks = Locks(recorder, workloads, "vain")
    address, *counts = locks.words
    (row,) = [r for r in locks.tables()["in_vain"] if locks.is_of(r, address)]
    told = [row[name] for name in ("spurious", "again", "timeouts", "nobody")]
    assert told == [int(word) for word in counts]
    assert row["waits"] == 17 + 3 + 53


@pytest.mark.full("depends on how busy the machine is")
def test_a_hand_off_is_a_part_of_the_wait(recorder, workloads):
    log = Locks(recorder, workloads, "pingpong").log
    woken = "asleep > 0 AND result = 0"
    # How many of the waits are over before the thread sleeps depends on the other programs.
    assert log.one(f"SELECT count(*) FROM WAITED WHERE {woken}") > 0
    assert log.one(f"SELECT count(*) FROM WAITED WHERE {woken} AND handoff = 0") == 0
    assert log.one("SELECT count(*) FROM WAITED WHERE handoff > took") == 0
    assert log.one("SELECT count(*) FROM WAITED WHERE asleep = 0 AND handoff > 0") == 0


@pytest.mark.full("depends on how busy the machine is")
def test_priority_inversion(recorder, workloads):
    locks = Locks(recorder, workloads, "inversion")
    if locks.words == ["refused"]:
        pytest.skip("no right to real-time priorities")
    tables = locks.tables()
    lent, lent_ns, kept, kept_ns = locks.words
    assert len(tables["inversion"]) == 2
    for address, ns, inherits in ((lent, lent_ns, "yes"), (kept, kept_ns, "no")):
        (row,) = [r for r in tables["inversion"] if locks.is_of(r, address)]
        assert (row["inherits"], row["waits"]) == (inherits, 11)
        assert (row["priority"], row["holder_priority"]) == ("real time 50", "real time 10")
        assert row["waited"] == pytest.approx(int(ns), rel=0.05)
    (boosted,) = tables["inheritance"]
    assert (boosted["own"], boosted["inherited"]) == ("real time 10", "real time 50")
    (lent_row,) = [r for r in tables["inversion"] if r["inherits"] == "yes"]
    assert (boosted["times"], boosted["waiter"]) == (11, lent_row["waiter"])
    assert boosted["holder"] == lent_row["holder"]
    # It is boosted while the other one waits.
    assert boosted["lasted"] <= lent_row["waited"]
