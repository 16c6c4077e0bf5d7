# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Waits for disks, cut by the stages of requests, on small logs worked out by hand. `simulated` has
them at random.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from logfile import START
from simulated_log import write
from simulated_recording import play
from test_why_simulated import all_of, check_real_log, of_all_threads, with_losses

import klogger
from klogger.why import answer, disks, requests, text
from klogger.why import events as reading
from klogger.why.bins import Bin
from klogger.why.choice import Choice

DB, DD, JOURNAL, LATE = 1, 2, 3, 4
ON, OTHER_DEVICE = 7 << 20, 7 << 20 | 1
FILE, FOR_DD = 0xF11E, 0xF12E
STACKS = {
    1: ["__schedule", "io_schedule", "folio_wait_writeback", "ext4_sync_file"],
    2: ["__schedule", "schedule", "jbd2_log_wait_commit", "ext4_sync_file"],
    3: ["__schedule", "io_schedule", "blk_mq_get_tag", "blk_mq_submit_bio"],
    4: ["__schedule", "schedule", "worker_thread", "kthread"],
    5: ["__schedule", "schedule", "__iomap_dio_rw", "ext4_file_write_iter"],
}
BY_REQUEST, SOFT = reading.BY_REQUEST, 2
Rows = dict[str, list[dict[str, int]]]


def done(time: int, asked: int, issued: int, pid: int, **more: int) -> dict[str, int]:
    row = {"time": time, "cpu": 1, "pid": pid, "took": time - issued, "queued": issued - asked,
           "device": ON, "kind": 1}  # fmt: skip
    return row | more


def a_wait(stack: int, **woken: int) -> Rows:
    """Of `db`, from 100 to 910."""
    wake = {"time": 910, "cpu": 1, "pid": DB, "source": SOFT, "number": 4, "why": BY_REQUEST}
    return {
        "BACK": [{"time": 10, "pid": DB}, {"time": 920, "pid": DB}],
        "BLOCKED": [{"time": 100, "pid": DB, "state": 2, "call": 74, "stack": stack,
                     "object": FILE}],
        "WOKEN": [wake | woken],
    }  # fmt: skip


def found_in(rows: Rows, **more: Any) -> reading.Events:
    tables = {name: reading.table_of(name, rows.get(name, [])) for name in reading.COLUMNS}
    return replace(
        reading.Events(
            0, 1000, tables, reading.gaps_of([]), calls={74: "fsync"}, stacks=STACKS,
            names={DB: "db", DD: "dd", JOURNAL: "jbd2", LATE: "late"}, kinds={1: "write"},
            objects={FILE: "/a", FOR_DD: "/bulk"}, inodes={FILE: (5, 11), FOR_DD: (5, 12)},
            whole=True,
        ),
        **more,
    )  # fmt: skip


def waited(events: reading.Events, pid: int = DB) -> dict[str, int]:
    """Without the call, which all have."""
    made = answer.of_events(events, Choice(threads=[pid]))
    waits = {line.bin.text.partition(": fsync")[0]: line.ns
             for line in made.own if line.bin.group == "waited"}  # fmt: skip
    assert sum(line.ns for line in made.own) == sum(line.ns for line in made.followed)
    return waits


BULK = [done(200, 50, 50, DD), done(450, 60, 150, DD), done(700, 70, 250, DD)]
STAGES = {
    "disk: beside dd, before write on 7:0": 200, "disk: behind dd, queued write on 7:0": 200,
    "disk: behind dd, write on 7:0": 200, "disk: write on 7:0": 210,
}  # fmt: skip


def test_a_wait_has_the_stages_of_its_request():
    own = done(900, 300, 500, DB)
    assert waited(found_in(a_wait(1) | {"RQ_DONE": [*BULK, own]})) == STAGES


def test_what_the_kernel_writes_is_for_who_wrote_the_file():
    """`dd` was seen to wait while it wrote the file whose pages are written; the other program only
    waited for it once.
    """
    bulk = [one | {"pid": JOURNAL, "kernel": 1, "file_system": 5, "inode": 12} for one in BULK]
    own = done(900, 300, 500, JOURNAL, kernel=1, file_system=5, inode=11)
    rows = a_wait(1) | {"RQ_DONE": [*bulk, own]}
    rows["BLOCKED"] = [*rows["BLOCKED"], *(
        {"time": time, "pid": pid, "state": 2, "call": 74, "object": FOR_DD}
        for time, pid in ((20, DD), (30, DD), (40, LATE))
    )]  # fmt: skip
    assert waited(found_in(rows)) == STAGES


def test_those_that_overtake_a_request_are_not_ahead():
    """However many: one that was issued before it was done at 520."""
    ahead = done(520, 350, 400, DD)
    later = [done(600 + at, 510, 510, LATE) for at in range(2 * requests.STEPS)]
    own = done(900, 100, 110, DB, took=900 - 500, queued=0)
    found = waited(found_in(a_wait(1) | {"RQ_DONE": [ahead, *later, own]}))
    assert found["disk: behind dd, write on 7:0"] == 20
    assert found["disk: write on 7:0"] == 910 - 520


def test_a_request_of_another_device_is_not_ahead():
    others = [one | {"device": OTHER_DEVICE} for one in BULK]
    found = waited(found_in(a_wait(1) | {"RQ_DONE": [*others, done(900, 300, 500, DB)]}))
    assert found == {
        "disk: before write on 7:0": 200, "disk: queued write on 7:0": 200,
        "disk: write on 7:0": 410,
    }  # fmt: skip


def test_a_write_with_flushes_has_no_queue():
    flushed = {"time": 900, "cpu": 1, "pid": DB, "took": 600, "device": ON}
    found = waited(found_in(a_wait(2) | {"RQ_FLUSHED": [flushed]}))
    assert found == {
        "disk: before write with flushes on 7:0": 200, "disk: write with flushes on 7:0": 610
    }  # fmt: skip


def test_for_a_free_request_behind_who_had_them():
    found = waited(found_in(a_wait(3) | {"RQ_DONE": [*BULK, done(900, 300, 500, DD)]}))
    assert found == {"disk: behind dd, for a free request of 7:0": 810}


@pytest.mark.parametrize("more", [{"whole": False}, {"missed": reading.gaps_of([(-1, 800, 950)])}])
def test_what_another_request_may_have_ended_is_probable(more: dict[str, Any]):
    """It is not in the log, as its thread is not recorded, or the kernel skipped the probe."""
    found = waited(found_in(a_wait(1) | {"RQ_DONE": [done(900, 50, 60, JOURNAL)]}, **more))
    assert found == {"disk: write on 7:0, probably": 810}


def test_what_a_thread_asked_for_itself_is_sure():
    found = waited(found_in(a_wait(1) | {"RQ_DONE": [done(900, 50, 60, DB)]}, whole=False))
    assert found == {"disk: write on 7:0": 810}


def test_a_page_is_probably_that_of_the_last_request_for_its_file():
    """A worker of the file system wakes the thread."""
    rows = a_wait(1, why=0, source=0, waker=JOURNAL)
    asked = [done(600, 100, 200, LATE, file_system=5, inode=11), done(800, 90, 100, LATE)]
    assert waited(found_in(rows | {"RQ_DONE": asked})) == {
        "disk: queued write on 7:0, probably": 100, "disk: write on 7:0, probably": 400,
        "disk: after write on 7:0, probably": 310,
    }  # fmt: skip


def random_requests(seed: int, owners: int, deep: int) -> requests.Requests:
    """Of two devices, each with up to so many requests at a time."""
    chance, count = np.random.default_rng(seed), 120
    time = np.cumsum(chance.integers(0, 10, count))
    issued = np.maximum(time - chance.integers(0, 10 * deep, count), 0)
    owner, zero = chance.integers(0, owners, count), np.zeros(count, "i8")
    device = chance.integers(0, 2, count)
    return requests.Requests(zero, [], time, zero, issued, issued, device, zero, owner, zero,
                             owner, zero)  # fmt: skip


@pytest.mark.parametrize(("owners", "deep"), [(1, 100), (2, 100), (2, 3), (9, 100)])
def test_who_was_last_ahead_is_found_however_deep_the_queue(owners: int, deep: int):
    """Also behind more requests than are looked at one by one."""
    for seed in range(10):
        made = random_requests(seed, owners, deep)
        expected = []
        for row in range(len(made)):
            ahead = [
                int(made.time[other]) for other in range(row)
                if made.device[other] == made.device[row] and made.owner[other] != made.owner[row]
                and made.issued[other] < made.issued[row] < made.time[other]
            ]  # fmt: skip
            expected.append(max(ahead, default=int(made.issued[row])))
        assert made.last_ahead(np.arange(len(made)), made.issued).tolist() == expected


PLAIN = {"disk": 810}


@pytest.mark.parametrize(
    ("stack", "asked", "woken"),
    [
        # On another CPU, before the wait, or before the recording.
        (5, done(900, 300, 500, DB, cpu=0), {}),
        (5, done(90, 30, 50, DB), {}),
        (5, {"time": 900, "cpu": 1, "pid": DB, "device": ON}, {}),
        # In no interrupt that completed a request, and for no page.
        (5, done(900, 300, 500, DB), {"why": 0}),
        # For a page, but of another file, and asked for by somebody else.
        (1, done(900, 300, 500, DD, file_system=5, inode=12), {"why": 0}),
    ],
)
def test_what_is_not_known_is_not_split(stack: int, asked: dict[str, int], woken: dict[str, int]):
    rows = a_wait(stack, **woken) | {"RQ_DONE": [asked]}
    if stack == 5:
        rows["BLOCKED"][0]["stack"] = 6
    stacks = STACKS | {6: ["__schedule", "io_schedule", "blk_io_schedule", "__iomap_dio_rw"]}
    assert waited(found_in(rows, stacks=stacks)) == PLAIN


def test_a_commit_is_followed_to_the_journal():
    """Which waits for its request; it was asked for by nobody that is recorded."""
    rows = a_wait(2, why=0, source=0, waker=JOURNAL)
    rows["BACK"] += [{"time": 5, "pid": JOURNAL, "cpu": 1}, {"time": 880, "pid": JOURNAL, "cpu": 1}]
    rows["BLOCKED"] += [{"time": 50, "pid": JOURNAL, "cpu": 1, "state": 2, "call": -1, "stack": 1}]
    rows["WOKEN"] += [{"time": 870, "pid": JOURNAL, "cpu": 0, "source": SOFT, "why": BY_REQUEST}]
    own = done(870, 70, 90, JOURNAL, cpu=0)
    made = answer.of_events(found_in(rows | {"RQ_DONE": [own]}), Choice(threads=[DB]))
    times = {f"{line.program}, {line.bin.text}": line.ns for line in made.followed}
    assert times["jbd2, disk: write on 7:0: in ext4_sync_file"] == 770


def test_who_waits_for_work_or_for_asynchronous_requests():
    """An interrupt that completes a request ended it. In a thread that does so nobody knows."""
    own = {"RQ_DONE": [done(900, 50, 60, DB)]}
    assert waited(found_in(a_wait(4) | own)) == {"disk: write on 7:0": 810}
    assert waited(found_in(a_wait(4, source=0, waker=JOURNAL) | own)) == {"file": 810}


def test_the_tree_says_first_what_it_waited_for():
    made = answer.of_events(
        found_in(a_wait(1) | {"RQ_DONE": [*BULK, done(900, 300, 500, DB)]}), Choice(threads=[DB])
    )
    lines = [line for line, _ in text.lines(made, "", 80)]
    assert any(line.endswith("  disk: behind dd, queued write on 7:0…") for line in lines), lines


def test_waits_are_for_the_requests_that_they_truly_were_for():
    all_of(range(600, 700), lambda seed: of_all_threads(seed, disks=True))


def test_losses_leave_waits_whole_or_unknown():
    all_of(range(700, 760), lambda seed: with_losses(seed, disks=True))


WAITS = [(Bin("waited", "disk", "fsync /a in ext4_sync_file"), 20), (Bin("ran", "user code"), 80)]
# Of a file whose name reads like a disk.
NAMED = [(Bin("waited", "disk", "fsync /a on 7:0: b in ext4_sync_file"), 20), WAITS[1]]
KNOWN = [(Bin("waited", "disk", "behind dd, write on 7:0: fsync /a", True), 20), WAITS[1]]
LIKELY = [(Bin("waited", "disk", "write on 7:0, probably: fsync /a"), 20), WAITS[1]]
HAS, ALL, OWN = {"RQ_DONE": None}, {"scope": "all"}, {"scope": "processes"}


@pytest.mark.parametrize(
    ("times", "events", "preamble", "said"),
    [
        (WAITS, {}, ALL, "20.0 % are waits for disks: 'klogger why -a -s block -- COMMAND' says"),
        ([WAITS[0], (WAITS[1][0], 800)], {}, ALL, ""),
        (NAMED, {}, ALL, "20.0 % are waits for disks: 'klogger why -a -s block -- COMMAND' says"),
        (WAITS, HAS, ALL, ""),
        (WAITS, HAS, OWN, "requests that others asked for are not in the log"),
        (LIKELY, HAS, OWN, "requests that others asked for are not in the log"),
        (NAMED, HAS, OWN, "requests that others asked for are not in the log"),
        (KNOWN, HAS, OWN, ""),
    ],
)
def test_a_note_says_how_to_know_more(
    times: list[tuple[Bin, int]], events: Any, preamble: Any, said: str
):
    log: Any = SimpleNamespace(events=events, preamble=preamble)
    notes = disks.hint(log, times)
    assert len(notes) == bool(said)
    assert all(note.startswith(said) for note in notes)


def test_the_recordings_have_all_stages():
    texts = {re.sub(r" 7:\d", "", re.sub(r"program-\d+", "X", bin_.what.partition(": ")[0]))
             for seed in range(60) for _, bin_ in play(seed, disks=True).own()
             if bin_.kind == "disk"}  # fmt: skip
    assert texts >= {
        "before write on", "beside X, before write on", "behind X, queued read on", "read on",
        "behind X, read on", "write with flushes on", "write on, probably",
        "after write on, probably", "behind X, throttled on", "behind X, for a free request of",
    }  # fmt: skip


# Shorter than any recording of the machine.
AT_FIRST = 300


def limited(event: str) -> dict[str, Any]:
    return {"key": "rate_limited", "severity": "notice", "source": "recording", "event": event,
            "cpu": 0, "count": 7, "from_ns": START, "to_ns": START + AT_FIRST,
            "text": "too many"}  # fmt: skip


def test_a_real_log_has_the_same_answer(tmp_path: Path):
    """Also if events of others are missing."""
    check = partial(check_real_log, disks=True)
    assert check(640, tmp_path) == []
    assert check(642, tmp_path, limited("RQ_MERGE")) == []


def test_where_requests_are_missing_all_are_probable(tmp_path: Path):
    played = play(642, disks=True)
    with klogger.open(write(played, tmp_path / "x.klog", limited("RQ_DONE"))) as log:
        made = answer.of_log(log, Choice(until=AT_FIRST))
    said = {line.bin.what for line in made.own if " on 7:" in line.bin.what}
    assert said
    assert all(what.partition(": ")[0].endswith(", probably") for what in said)


@pytest.mark.full("a minute of random recordings")
def test_many_recordings_with_requests():
    all_of(range(20000, 22000), lambda seed: of_all_threads(seed, disks=True))
    all_of(range(22000, 23000), lambda seed: with_losses(seed, disks=True))
