# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger why` against a machine whose threads do what is known: see `simulated`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated_log import write
from simulated_recording import Recording, play
from simulated_tasks import name_of

import klogger
from klogger.failure import Failure
from klogger.why import answer
from klogger.why import events as reading
from klogger.why.answer import Answer, Line
from klogger.why.bins import RAN, UNKNOWN, WAITED, Bin
from klogger.why.choice import Choice

Times = dict[tuple[str, Bin], int]
INTERRUPTS = "interrupts and soft interrupts"


def times(lines: list[Line]) -> Times:
    return {(line.program, line.bin): line.ns for line in lines}


def differences(found: Times, true: Times) -> list[str]:
    return [
        f"{program}, {bin_.text}: {found.get((program, bin_), 0)} ns,"
        f" is {true.get((program, bin_), 0)} ns"
        for program, bin_ in sorted(found.keys() | true.keys())
        if found.get((program, bin_), 0) != true.get((program, bin_), 0)
    ]


def sums(made: Answer) -> list[str]:
    both = [sum(line.ns for line in lines) for lines in (made.own, made.followed)]
    parts = [f"{one.pid}: {one.groups}" for one in made.threads
             if sum(one.groups.values()) != one.elapsed]  # fmt: skip
    if made.path is not None:
        # A damaged log may have a thread that is not there all the time.
        each = [sum(ns for *_, ns in column) for column in made.path.columns]
        room = [until - since for since, until in pairwise(made.path.edges)]
        if sum(each) != made.elapsed or any(a > b for a, b in zip(each, room, strict=True)):
            parts.append(f"path {each} in {room}, elapsed {made.elapsed}")
    negative = [str(line) for line in made.own + made.followed if line.ns < 0]
    return ([f"sums {both}, elapsed {made.elapsed}"] if both != [made.elapsed] * 2 else []) + (
        parts + negative
    )


def all_of(seeds: Iterable[int], check: Callable[[int], list[str]]) -> None:
    wrong = {seed: found for seed in seeds if (found := check(seed))}
    assert not wrong, f"{len(wrong)} recordings, as {dict(list(wrong.items())[:3])}"


def answered(played: Recording, choice: Choice, command: int | None = None) -> Answer | None:
    try:
        return answer.of_events(played.events, choice, command=command)
    except Failure:
        return None


def of_all_threads(seed: int, disks: bool = False) -> list[str]:
    played = play(seed, disks=disks)
    made = answered(played, Choice(pictured=True))
    if not made:
        return differences({}, played.own())
    if not any(len(played.events.tables[name]) for name in ("CALLED", "UNRETURNED")):
        # As if system calls were not recorded.
        return sums(made)
    own = differences(times(made.own), played.own())
    followed = differences(times(made.followed), played.followed(played.tasks))
    return own + followed + sums(made) + made.notes + groups(made, played)


def groups(made: Answer, played: Recording) -> list[str]:
    """The table of threads."""
    found: Counter[tuple[str, str]] = Counter()
    true: Counter[tuple[str, str]] = Counter()
    for one in made.threads:
        found.update({(one.name, group): ns for group, ns in one.groups.items()})
    for (program, bin_), ns in played.own().items():
        true[program, bin_.group] += ns
    return [
        f"{key}: {found[key]} ns, is {true[key]} ns" for key in found if found[key] != true[key]
    ]


def of_the_command(seed: int) -> list[str]:
    played = play(seed)
    made = answered(played, Choice(pictured=True), played.command.pid)
    if not made or played.command not in played.tasks:
        return []
    true = played.followed([played.command], played.since)
    return differences(times(made.followed), true) + sums(made)


def with_interrupts(seed: int) -> list[str]:
    """Of a stay on a CPU only the sum of its interrupts is known."""
    played = play(seed, interrupts=True)
    made = answered(played, Choice(pictured=True))
    if not made:
        return []
    found, true = Counter(times(made.own)), Counter(played.own())
    wrong = sums(made)
    for name in {program for program, _ in found | true}:
        amount = sum(task.interrupts for task in played.tasks if task.name == name)
        if found[name, Bin(RAN, INTERRUPTS)] != amount:
            wrong.append(f"{name}: {found[name, Bin(RAN, INTERRUPTS)]} ns, are {amount} ns")
    for (name, bin_), ns in true.items():
        on_cpu = bin_.group in (RAN, UNKNOWN)
        if not (found[name, bin_] <= ns if on_cpu else found[name, bin_] == ns):
            wrong.append(f"{name}, {bin_.text}: {found[name, bin_]} ns, are {ns} ns")
    return wrong


def gaps_in(played: Recording, source: random.Random) -> list[tuple[int, int, int]]:
    """Up to three: of a CPU or all; some with one event, some with all from there on."""
    machine, gaps = played.machine, []
    for _ in range(source.randint(1, 3)):
        if machine.rows and source.random() < 0.4:
            row = source.choice(machine.rows)[1]
            cpu = source.choice((row["cpu"], row["cpu"], -1))
            gaps.append((cpu, row["time"] - 1, row["time"] + 1))
        else:
            since = source.randrange(machine.begin, max(machine.now, machine.begin + 1))
            longest = max(machine.now - since, 0) // source.choice((1, 8, 32)) + 1
            cpu = source.randrange(-1, len(machine.cpus))
            gaps.append((cpu, since, since + source.randint(1, longest)))
    return gaps


def by_kind(given: Times, listed: set[str]) -> Counter[tuple[str, str, str]]:
    """`listed`: threads that were seen to sleep only after a while. If the beginning of that wait
    is lost, it is known that they waited, but less of what for.
    """
    made: Counter[tuple[str, str, str]] = Counter()
    for (program, bin_), ns in given.items():
        if bin_.group != UNKNOWN:
            any_kind = bin_.group == WAITED and program in listed
            made[program, bin_.group, "" if any_kind else bin_.kind] += ns
    return made


def with_losses(seed: int, disks: bool = False) -> list[str]:
    """They can only make the unknown longer."""
    played = play(seed, disks=disks)
    played.lose(gaps_in(played, random.Random(seed)))
    made = answered(played, Choice(pictured=True))
    if not made:
        return []
    asleep = played.events.tables["SLEPT_BEFORE"]
    late = asleep["time"] > played.machine.begin
    listed = {name_of(int(pid)) for pid in asleep["pid"][late]}
    found, true = by_kind(times(made.own), listed), by_kind(played.own(), listed)
    for (program, bin_), ns in played.own().items():
        # Up to PROCESS_EXIT it is user code, if UNRETURNED does not say more.
        true[program, RAN, "user code"] += ns if bin_.what == "exit_group" else 0
    more = [f"{key}: {ns} ns, are {true[key]} ns" for key, ns in found.items() if ns > true[key]]
    return more + sums(made)


NUMBERS = (0, 1, -1, 2, -2, -3, 4, 5, 7, 100, -5, 0x80, 2**31 - 1, -(2**31), 2**53, 2**62,
           2**63 - 1, -(2**63))  # fmt: skip


def damaged(seed: int) -> reading.Events:
    """Any rows with any values; half of the times are possible ones."""
    source = np.random.default_rng(seed)
    tables = {}
    for name in reading.COLUMNS:
        table = np.zeros(source.integers(0, 12), reading.dtype(name))
        for column in table.dtype.names or ():
            limits = np.iinfo(table.dtype[column])
            values = [one for one in NUMBERS if limits.min <= one <= limits.max]
            chosen = np.array([values[at] for at in source.integers(0, len(values), len(table))],
                              table.dtype[column])  # fmt: skip
            few = source.integers(0, 60 if column == "time" else 4, len(table))
            table[column] = np.where(source.random(len(table)) < 0.6, few.astype(chosen.dtype),
                                     chosen)  # fmt: skip
        tables[name] = table
    ends = source.choice(np.array([0, -7, 50, 50, 50, 2**40, 2**53, 2**63 - 1]), 2)
    gaps = source.integers(-9, 60, (source.integers(0, 4), 3)).tolist()
    return reading.Events(
        *((0, 50) if source.random() < 0.6 else map(int, ends)), tables,
        reading.gaps_of([(cpu % 5 - 1, since, until) for cpu, since, until in gaps]),
        calls={0: "read", 7: "futex"}, costs={"BACK": 1e30, "CALLED": 3.0},
    )  # fmt: skip


def with_damage(seed: int) -> list[str]:
    found = damaged(seed)
    wrong = []
    for choice, command in (
        (Choice(pictured=True), None),
        (Choice(since=10, until=30, pictured=True), 1),
    ):
        try:
            made = answer.of_events(found, choice, command=command)
        except Failure:
            continue
        wrong += sums(made)
    return wrong


def test_the_time_of_all_threads_is_where_it_truly_was():
    all_of(range(200), of_all_threads)


def test_the_time_of_the_command_is_followed_to_those_it_waited_for():
    all_of(range(200, 250), of_the_command)


def test_interrupts_are_taken_from_the_stay_on_the_cpu_that_they_interrupted():
    all_of(range(300, 350), with_interrupts)


def test_losses_only_make_the_unknown_longer():
    all_of(range(400, 500), with_losses)


@pytest.mark.filterwarnings("error")
def test_a_damaged_log_gives_an_answer_that_adds_up_or_a_message():
    all_of(range(60), with_damage)


@pytest.mark.full("three minutes of random recordings")
def test_ten_thousand_recordings():
    all_of(range(1000, 7000), of_all_threads)
    all_of(range(7000, 8000), of_the_command)
    all_of(range(8000, 9000), with_interrupts)
    all_of(range(9000, 11000), with_losses)
    all_of(range(1000, 3000), with_damage)


def test_the_recordings_have_all_kinds_of_bins():
    kinds: Counter[tuple[str, str]] = Counter()
    for seed in range(60):
        kinds.update((bin_.group, bin_.kind) for _, bin_ in play(seed).own())
    assert kinds.keys() >= {
        ("ran", "user code"), ("ran", "system call"), ("ran", "page fault"),
        ("could run", "preempted"), ("could run", "queued"), ("could run", "wake-up"),
        ("could run", "throttled"), ("waited", "lock"), ("waited", "kernel lock"),
        ("waited", "pipe"), ("waited", "child"), ("waited", "disk"), ("waited", "timer"),
        ("waited", "page fault from disk"), ("waited", "reclaim"), ("waited", "stopped"),
        ("waited", "signal"), ("waited", "events"), ("waited", "network"), ("waited", "socket"),
        ("waited", "thread"), ("unknown", "before"), ("unknown", "lost"),
    }  # fmt: skip


def test_a_circle_of_waits_ends_and_is_told():
    """Each of two threads is woken by the other one, which sleeps then."""
    rows = {
        "BACK": [{"time": 1, "pid": 1}, {"time": 2, "pid": 2, "cpu": 1}],
        "BLOCKED": [
            {"time": 10, "pid": 1, "state": 1, "call": 202},
            {"time": 12, "pid": 2, "state": 1, "call": 202, "cpu": 1},
        ],
        "WOKEN": [{"time": 50, "pid": 1, "waker": 2}, {"time": 60, "pid": 2, "waker": 1}],
    }
    found = reading.Events(
        0, 100, {name: reading.table_of(name, rows.get(name, [])) for name in reading.COLUMNS},
        reading.gaps_of([]), calls={202: "futex"},
    )  # fmt: skip
    made = answer.of_events(found, Choice(threads=[1]))
    assert sums(made) == []
    assert made.notes == ["1 waits for each other in a circle were not followed"]


def test_threads_of_the_kernel_run_no_user_code():
    """7 was there, 8 and 9 were made by kthreadd, and 9 executed a program; 10 is a program's, as
    is the 7 that came later.
    """
    made = [(20, 8, 2), (20, 9, 2), (20, 10, 5), (60, 7, 5)]
    rows = {
        "PROCESS_FORK": [{"time": t, "pid": pid, "parent": by} for t, pid, by in made],
        "PROCESS_EXEC": [{"time": 25, "pid": 9, "old_pid": 9}],
        "BACK": [{"time": 5, "pid": 7}, *({"time": 30 + pid, "pid": pid} for pid in (8, 9, 10)),
                 {"time": 70, "pid": 7}],
        "BLOCKED": [{"time": 15, "pid": 7, "state": 1}, *({"time": 50 + pid, "pid": pid,
                    "state": 1, "call": -1} for pid in (8, 9, 10)),
                    {"time": 80, "pid": 7, "state": 1}],
    }  # fmt: skip
    found = reading.Events(
        0, 100, {name: reading.table_of(name, rows.get(name, [])) for name in reading.COLUMNS},
        reading.gaps_of([]), kernel=frozenset([2, 7]),
    )  # fmt: skip
    made_of = times(answer.of_events(found, Choice()).own)
    own = {name: ns for (name, bin_), ns in made_of.items() if bin_ == Bin(RAN, "user code")}
    kernel = {name: ns for (name, bin_), ns in made_of.items() if bin_.kind == "kernel thread"}
    assert kernel == {"thread 7": 10, "thread 8": 20}
    assert own == {"thread 7": 10, "thread 9": 20, "thread 10": 20}


def test_a_cpu_that_is_idle_is_no_time_of_a_thread():
    """1 has the CPU from 5 to 20 and from 60, and 2, which ran less, from 40 to 45."""
    rows = {
        "BACK": [{"time": 5, "pid": 1}, {"time": 20, "pid": 0, "prev": 1},
                 {"time": 40, "pid": 2}, {"time": 45, "pid": 0, "prev": 2},
                 {"time": 60, "pid": 1}],
        "BLOCKED": [{"time": 20, "pid": 1, "state": 1}, {"time": 45, "pid": 2, "state": 1}],
        "PREEMPTED": [{"time": 40, "pid": 0, "next": 2}, {"time": 60, "pid": 0, "next": 1}],
        "WOKEN": [{"time": 60, "pid": 1, "source": 1}],
    }  # fmt: skip
    found = reading.Events(
        0, 100, {name: reading.table_of(name, rows.get(name, [])) for name in reading.COLUMNS},
        reading.gaps_of([]),
    )  # fmt: skip
    made = answer.of_events(found, Choice())
    assert sums(made) == []
    assert [one.pid for one in made.threads] == made.chosen == [1, 2]
    assert sum(line.ns for line in made.own if line.bin.group == RAN) == 55 + 5


def check_real_log(
    seed: int, folder: Path, *ledger: dict[str, Any], disks: bool = False
) -> list[str]:
    played = play(seed, disks=disks)
    with klogger.open(write(played, folder / f"{seed}.klog", *ledger)) as log:
        made = answer.of_log(log, Choice())
    found = differences(times(made.own), played.own()) + differences(
        times(made.followed), played.followed(played.tasks)
    )
    # Of a log, the time before its first event is not told: nothing was attached.
    return [one for one in found if "before: its first event" not in one]


def test_a_real_log_has_the_same_answer(tmp_path: Path):
    all_of(range(500, 502), lambda seed: check_real_log(seed, tmp_path))


@pytest.mark.full("reads twenty logs")
def test_real_logs_have_the_same_answers(tmp_path: Path):
    all_of(range(502, 522), lambda seed: check_real_log(seed, tmp_path))
