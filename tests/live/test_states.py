# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Keyed state of schemata, against a dictionary that does the same; full tables; both CPUs."""

import json
import os
import random
import re
import sys
from pathlib import Path

import oracles
import pytest

SCHEMA = Path(__file__).with_name("state.klogger")
NESTED = Path(__file__).with_name("nested_state.klogger")
PASSED_ON = Path(__file__).with_name("passed_on.klogger")
PUT, GET, TAKE, ADD, PUT_OWN, TAKE_OWN, HIT, FILL, COST, PUT_SMALL, TAKE_SMALL = range(1, 12)
# The keys that would be stored as a free entry, and as one that is being freed.
NOWHERE = [0x9E6C63D0676A9A99, 0x61939C2F98956566]
# What it is told, line by line: DOES KEY VALUE, or CPU N.
WORKLOAD = """
import ctypes, os, sys
prctl = ctypes.CDLL(None).prctl
prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
for line in open(sys.argv[1]):
    words = line.split()
    if words[0] == "CPU":
        os.sched_setaffinity(0, {int(words[1])})
    else:
        prctl(1000, *(int(w) % 2**64 for w in words), 0)
"""
# One process on each CPU, which hit at the same time.
BOTH = """
import ctypes, os, sys
prctl = ctypes.CDLL(None).prctl
prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
cpus, times, keys = sorted(os.sched_getaffinity(0))[:2], int(sys.argv[1]), int(sys.argv[2])
children = []
for number, cpu in enumerate(cpus):
    if not (pid := os.fork()):
        os.sched_setaffinity(0, {cpu})
        for n in range(times):
            prctl(1000, 4, n % keys, 1, 0)
            # Its own keys come and go beside them.
            own = 10**6 * (number + 1) + n
            prctl(1000, 1, own, n, 0)
            prctl(1000, 3, own, 0, 0)
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
for key in range(keys):
    prctl(1000, 3, key, 0, 0)
"""

# Keys that stay, and rounds of puts and takes on one CPU for so much of its time.
ROUNDS = """
import ctypes, os, sys, time
prctl = ctypes.CDLL(None).prctl
prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for n in range(int(sys.argv[1])):
    prctl(1013, 1, 1000 + 7919 * n, 0, 0)
until = time.process_time() + 1.5
while time.process_time() < until:
    prctl(1013, 2, 0, 0, 0)
prctl(1013, 3, 0, 0, 0)
"""


def did(recorder, script, *options) -> tuple[list[dict], dict]:
    """The events of a script in the order of their time, and what `klogger info` says."""
    file = recorder.dir / "script"
    file.write_text("\n".join(" ".join(map(str, words)) for words in script) + "\n")
    command = [sys.executable, "-c", WORKLOAD, file]
    done, log = recorder.run("-s", SCHEMA, *options, "--", *command)
    assert done.code == 0, done.err
    return rows_of(recorder, log), info_of(recorder, log)


def rows_of(recorder, log) -> list[dict]:
    shown = recorder.command("cat", log, "--event", "DID", "--format", "json")
    assert shown.code == 0, shown.err
    return [json.loads(line) for line in shown.out.splitlines()]


def info_of(recorder, log) -> dict:
    return json.loads(recorder.command("info", log, "--format", "json").out)


def full(info) -> list[tuple[int, str]]:
    return [
        (e["count"], e["text"].split(":")[0]) for e in info["ledger"] if e["key"] == "state_full"
    ]


def test_every_call_does_what_a_dictionary_does(recorder):
    chance = random.Random(1009)
    # Few keys, so that each is put, taken and put again; and those that differ in one bit.
    keys = [*range(211), *(1 << bit for bit in range(8, 64)), 2**64 - 3]
    script = [(chance.choice((PUT, PUT, GET, TAKE)), chance.choice(keys), n) for n in range(9973)]
    found, info = did(recorder, script)
    assert info["lost"] == 0 and len(found) == len(script)
    table: dict[int, list[int]] = {}
    for (does, key, value), row in zip(script, found, strict=True):
        if does == PUT:
            entry = table.setdefault(key, [0, 0])
            entry[0], entry[1] = value, entry[1] + 1
        else:
            entry = (table.pop if does == TAKE else table.get)(key, None)
        expected = (key, entry is not None, *(entry or (0, 0)))
        assert (row["key"], bool(row["found"]), row["value"], row["puts"]) == expected


def test_a_full_table_is_counted_exactly(recorder):
    # More than the 16 buckets of 7 entries that the smallest table has.
    script = [(PUT, key * 7919, key) for key in range(503)]
    script += [(GET, key * 7919, 0) for key in range(503)]
    found, info = did(recorder, script, "--set", "room=7")
    puts, gets = found[:503], found[503:]
    kept = sum(bool(row["found"]) for row in puts)
    assert 7 <= kept <= 16 * 7
    assert [bool(r["found"]) for r in gets] == [bool(r["found"]) for r in puts]
    assert full(info) == [(503 - kept, "state state.seen has room for 7 entries")]
    assert info["lost"] == 503 - kept


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("room", [1, 101, 4999])
@pytest.mark.parametrize("stride", [1, 4096, 1 << 40])
def test_there_is_room_for_as_many_as_are_declared(recorder, room, stride):
    script = [(PUT, stride * n, n) for n in range(room)] + [(TAKE, stride * (room - 1), 0)]
    found, info = did(recorder, script, "--set", f"room={room}")
    assert all(row["found"] for row in found) and full(info) == []
    assert found[-1]["value"] == room - 1


@pytest.mark.full("others of this file are in the gate")
def test_a_million_keys_fit(recorder):
    many = 10**6
    script = [(FILL, n, 0) for n in range(0, many, 16)] + [(COST, many + 16, 0)]
    file = recorder.dir / "script"
    file.write_text("\n".join(" ".join(map(str, words)) for words in script) + "\n")
    command = [sys.executable, "-c", WORKLOAD, file]
    # Beside them 16 keys are put and taken, one after the other.
    done, log = recorder.run("-s", SCHEMA, "--set", f"room={many + 17}", "--", *command)
    assert done.code == 0, done.err
    assert full(info_of(recorder, log)) == []
    shown = recorder.command("cat", log, "--event", "COST", "--format", "json")
    assert [json.loads(line)["pairs"] for line in shown.out.splitlines()] == [16]


def test_two_keys_have_no_entry(recorder):
    first, second = NOWHERE
    script = [(PUT, first, 1), (PUT, second, 1), (GET, first, 0), (TAKE, second, 0)]
    script += [(PUT, 0, 5), (TAKE, 0, 0), (PUT, -1, 6), (TAKE, -1, 0)]
    found, info = did(recorder, script)
    assert [bool(row["found"]) for row in found] == [False] * 4 + [True] * 4
    assert [count for count, _ in full(info)] == [2]


@pytest.mark.full("others of this file are in the gate")
def test_a_key_of_32_bits_has_no_sign(recorder):
    script = [(PUT_SMALL, -1, 7), (TAKE_SMALL, 2**32 - 1, 0), (TAKE_SMALL, -1, 0)]
    found, _ = did(recorder, script)
    assert [(bool(row["found"]), row["value"]) for row in found] == [
        (True, 7),
        (True, 7),
        (False, 0),
    ]


@pytest.mark.full("others of this file are in the gate")
def test_threads_and_cpus_have_their_own(recorder):
    cpus = sorted(os.sched_getaffinity(0))[:2]
    script = [(PUT_OWN, 0, n) for n in range(101)] + [(TAKE_OWN, 0, 0), (TAKE_OWN, 0, 0)]
    for times, cpu in zip((13, 17), cpus, strict=False):
        script += [("CPU", cpu)] + [(HIT, 0, 0)] * times
    found, _ = did(recorder, script)
    taken = [(row["found"], row["value"]) for row in found if row["does"] == TAKE_OWN]
    assert taken == [(1, sum(range(101))), (0, 0)]
    last = {row["key"]: row["value"] for row in found if row["does"] == HIT}
    assert last == dict(zip(cpus, (13, 17), strict=False))


@pytest.mark.full("others of this file are in the gate")
def test_both_cpus_at_once(recorder):
    times, keys = 9973, 5
    command = [sys.executable, "-c", BOTH, str(times), str(keys)]
    done, log = recorder.run("-s", SCHEMA, "--set", "room=101", "--", *command)
    assert done.code == 0, done.err
    rows, info = rows_of(recorder, log), info_of(recorder, log)
    assert info["lost"] == 0
    sums = {r["key"]: r["value"] for r in rows if r["does"] == TAKE and r["key"] < keys}
    assert sums == {key: 2 * len(range(key, times, keys)) for key in range(keys)}
    own = [r for r in rows if r["does"] == TAKE and r["key"] >= keys]
    assert len(own) == 2 * times
    assert all(r["found"] and r["value"] == r["key"] % 10**6 and r["puts"] == 1 for r in own)


@pytest.mark.full("others of this file are in the gate")
def test_what_was_hit_before_is_forgotten(recorder):
    """Each recording begins with empty tables."""
    for _ in range(2):
        found, _ = did(recorder, [(GET, 5, 0), (TAKE_OWN, 0, 0), (HIT, 0, 0), (PUT, 5, 1)])
        assert [bool(row["found"]) for row in found] == [False, False, True, True]
        assert found[2]["value"] == 1


@pytest.mark.full("others of this file are in the gate")
def test_ten_probes_of_several_kinds(recorder, workloads):
    log, report = recorder.log("-s", PASSED_ON, "--", workloads / "pass_on")
    oracles.check_passed_on(log, report)


# The smallest table has 16 buckets of 7 entries; the program needs 14 of them.
@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize(("before", "is_full"), [(0, False), (103, True)])
def test_a_timer_in_the_middle_of_a_call(recorder, before, is_full):
    """Who puts and takes the same keys as what it interrupts: each entry and tick is somewhere."""
    command = [sys.executable, "-c", ROUNDS, str(before)]
    done, log = recorder.run("-s", NESTED, "--", *command)
    assert done.code == 0, done.err
    shown = recorder.command("cat", log, "--event", "TOTALS", "--format", "json")
    (total,) = [json.loads(line) for line in shown.out.splitlines()]
    assert total["wrong"] == 0
    # Both have used the same entries, often enough.
    assert total["gone"] == total["there"] >= 17
    assert total["got"] == total["given"] >= 17
    counted = full(info_of(recorder, log))
    assert [count for count, _ in counted] == ([total["no_room"]] if is_full else [])
    assert (total["no_room"] > 0) == is_full


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("loop", [False, True])
def test_fifty_pairs_in_one_program(recorder, loop):
    schema = recorder.dir / "pairs.klogger"
    schema.write_text(oracles.pairs_of_calls(50, loop))
    done = recorder.command("check", "--load", schema)
    assert done.code == 0, done.err
    assert done.out == f"{schema}: ok, 1 event, 1 probe, loaded\n"


# What programs are attached by: BPF_PROG_ATTACH, BPF_RAW_TRACEPOINT_OPEN, BPF_LINK_CREATE.
ASKED = """schema asked
event ASKED { int asked }
probe syscall bpf(int asked) {
    if (asked == 8 || asked == 17 || asked == 28)
        klogger(ASKED, asked);
}
"""


def attaching(recorder, schema) -> tuple[int, int]:
    """The exit code of a recorder with this schema, and how often it has attached something."""
    asked = recorder.dir / "asked.klogger"
    asked.write_text(ASKED)
    command = [recorder.klogger, "record", "-o", recorder.path(), "-s", schema, "--", "true"]
    done, log = recorder.run("-s", asked, "--", *command)
    shown = recorder.command("cat", log, "--event", "ASKED", "--format", "json")
    assert shown.code == 0, shown.err
    return done.code, len(shown.out.splitlines())


@pytest.mark.full("others of this file are in the gate")
def test_a_state_larger_than_memory_is_refused(recorder):
    huge = "seen[16000000] by ulong { ulong value  uint puts  u64 list[29] }"
    text = SCHEMA.read_text().replace("parameter uint room", "parameter uint rooms")
    text = re.sub(r"seen\[room\] by ulong \{[^}]*\}", huge, text)
    schema = recorder.dir / "huge.klogger"
    schema.write_text(text)
    done, log = recorder.run("-s", schema, "--", "touch", recorder.dir / "ran")
    assert done.code == 2
    assert re.fullmatch(
        r"klogger: state seen of 16000000 entries needs \d+ MiB, and (\d+ MiB are free|a state has "
        r"at most 3072 MiB)\n  help: choose fewer entries in \S+huge.klogger: state seen\[N\]\n",
        done.err,
    ), done.err
    # Nothing has been attached, as it is with a smaller state.
    assert not log.exists() and not (recorder.dir / "ran").exists()
    assert attaching(recorder, schema) == (2, 0)
    schema.write_text(text.replace("16000000", "1600"))
    code, attached = attaching(recorder, schema)
    assert code == 0 and attached > 0


NARROW = """schema narrow "Entries with fields of less than 64 bits"
event GOT { uint first  uint second  ushort third }
state kept by thread { uint first  uint second  ushort third }

probe syscall getppid() {
    struct kept *kept = klogger_put(kept, klogger_current());

    if (kept) {
        kept->first = 11;
        kept->second = 22;
        kept->third = 33;
    }
}

probe return syscall getppid(long result) {
    struct kept copy;

    copy.first = copy.second = copy.third = 0;
    if (klogger_take(kept, klogger_current(), &copy))
        klogger(GOT, copy.first, copy.second, copy.third);
}
"""


@pytest.mark.full("others of this file are in the gate")
def test_a_copy_has_what_was_taken_and_not_what_was_in_it(recorder, clean_kernel):
    """The compiler may not assume that words and smaller fields are in different places."""
    schema = recorder.dir / "narrow.klogger"
    schema.write_text(NARROW)
    calls = "import os\nfor _ in range(13): os.getppid()"
    done, path = recorder.run("-s", schema, "--", sys.executable, "-c", calls)
    assert done.code == 0, done.err
    log = oracles.Log(recorder.klogger, path)
    rows = log.rows("SELECT first, second, third FROM got")
    assert set(rows) == {(11, 22, 33)} and len(rows) >= 13
