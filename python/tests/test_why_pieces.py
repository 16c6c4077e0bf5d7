# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Long recordings are worked on in groups of threads and pieces of time: see `points` and
`spans`.
"""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest
from simulated_recording import play
from test_why_simulated import answered, differences, gaps_in, times

from klogger.why import answer, follow, parts, points, spans, threads
from klogger.why import events as reading
from klogger.why.answer import Choice
from klogger.why.bins import RAN, Bin


def in_pieces(seed: int, group: int, piece: int, patch: pytest.MonkeyPatch) -> answer.Answer | None:
    played = play(seed)
    if seed % 2:
        played.lose(gaps_in(played, random.Random(seed)))
    patch.setattr(points, "GROUP", group)
    patch.setattr(spans, "PIECE", piece)
    return answered(played, Choice())


def test_pieces_make_no_difference(monkeypatch: pytest.MonkeyPatch):
    for seed in range(60):
        whole = in_pieces(seed, 1 << 30, 1 << 30, monkeypatch)
        cut = in_pieces(seed, 1, 1, monkeypatch)
        assert (whole is None) == (cut is None)
        if not whole or not cut:
            continue
        assert differences(times(cut.own), times(whole.own)) == []
        assert differences(times(cut.followed), times(whole.followed)) == []
        assert [one.groups for one in cut.threads] == [one.groups for one in whole.threads]
        assert cut.notes == whole.notes


def test_a_busy_thread_is_cut_into_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spans, "PIECE", 1000)
    events = reading.checked(calls(10_000))
    found = list(spans.find(events, threads.lives(events)))
    assert len(found) > 10
    assert max(len(one) for one in found) < 2000


CALL_NS, QUANTUM = 100, 200


def calls(count: int) -> reading.Events:
    """A thread that makes calls of 60 ns every 100 ns, and loses its CPU for 10 ns after each 200
    of them.
    """
    tables = {name: np.zeros(0, reading.dtype(name)) for name in reading.COLUMNS}
    called = tables["CALLED"] = np.zeros(count, reading.dtype("CALLED"))
    called["time"], called["took"] = np.arange(1, count + 1) * CALL_NS, 60
    off = tables["PREEMPTED"] = np.zeros(count // QUANTUM, reading.dtype("PREEMPTED"))
    off["time"], off["call"] = np.arange(1, len(off) + 1) * CALL_NS * QUANTUM + 10, -1
    back = tables["BACK"] = np.zeros(len(off) + 1, reading.dtype("BACK"))
    back["time"][1:] = off["time"] + 10
    for table in (called, off, back):
        table["pid"] = 7
    end = (count + 1) * CALL_NS
    return reading.Events(0, end, tables, reading.gaps_of([]), calls={0: "read"})


def peak(count: int) -> int:
    """Bytes, with the events."""
    tracemalloc.start()
    try:
        made = answer.of_events(calls(count), Choice())
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        assert times(made.own)["thread 7", Bin(RAN, "system call", "read")] == 60 * count


def test_memory_per_event_has_a_limit():
    """10 million events are to be answered in 2 GB. The room for parts, 80 bytes, is counted as
    soon as it is there, and used while that for points is given back.
    """
    small, large = 300_000, 600_000
    assert (peak(large) - peak(small)) / (large - small) < 250


def test_the_path_of_one_of_many_threads():
    """Parts number threads with 32 bits, a path puts more into one number."""
    tables = {name: np.zeros(0, reading.dtype(name)) for name in reading.COLUMNS}
    rows = [{"time": pid, "pid": pid, "cpu": pid} for pid in range(1, 101)]
    tables["BACK"] = reading.table_of("BACK", rows)
    events = reading.Events(0, 200, tables, reading.gaps_of([]))
    made = answer.of_events(events, Choice(threads=[100], pictured=True))
    assert made.path
    assert {pid for column in made.path.columns for _, pid, _, _ in column} == {100}


def random_leaves(chance: np.random.Generator, count: int) -> follow.Leaves:
    """Many are equally long, and of the same node."""
    amounts = chance.integers(0, 3, (count, len(parts.AMOUNTS)))
    ns, since = chance.integers(0, 5, count), chance.integers(0, 1000, count)
    thread = chance.integers(0, 4, count)
    return follow.Leaves(chance.integers(1, 6, count), ns, amounts, since, since + ns, thread)


def test_what_ends_at_a_node_is_summed_up_as_if_one_by_one():
    """In batches: of the longest the first batch counts, and the last row of that."""
    for seed in range(50):
        chance = np.random.default_rng(seed)
        found, expected = follow.Followed(), dict[int, follow.End]()
        for count in (0, 1, 200):
            leaves = random_leaves(chance, count)
            found.add(follow.summed(leaves))
            longest = {}
            for row, node in enumerate(leaves.node.tolist()):
                if row == 0 or node not in longest or leaves.ns[row] >= leaves.ns[longest[node]]:
                    longest[node] = row
                end = expected.setdefault(node, follow.End())
                end.ns += int(leaves.ns[row])
                end.times += 1
                end.amounts += leaves.amounts[row]
                end.amount_times += leaves.amounts[row] > 0
            for node, row in longest.items():
                end = expected[node]
                if leaves.ns[row] > end.longest or end.thread < 0:
                    end.longest, end.thread = int(leaves.ns[row]), int(leaves.thread[row])
                    end.since, end.until = int(leaves.since[row]), int(leaves.until[row])
        assert found.ends.keys() == expected.keys()
        for node, end in expected.items():
            assert str(found.ends[node]) == str(end)


def test_a_part_that_is_cut_has_its_share_of_the_amounts():
    whole = parts.empty(2)
    whole.thread[:], whole.bin[:], whole.target[:] = 0, 0, -1
    whole.since[:], whole.until[:] = [0, 100], [100, 200]
    whole.amounts[:] = [[10, 0, 21], [90, 5, 5]]
    part, begin, end = (
        np.array([0, 0, 0, 1]),
        np.array([0, 0, 50, 100]),
        np.array([100, 50, 100, 200]),
    )
    found = follow.leaves(whole, part, begin, end, np.zeros(4, "i8"))
    assert found.amounts.tolist() == [[10, 0, 21], [5, 0, 10], [5, 0, 11], [90, 5, 5]]
    assert found.ns.tolist() == [69, 35, 34, 0]


def test_room_for_more_parts_keeps_those_that_are_there():
    whole = parts.empty(3)
    for number, column in enumerate(vars(whole).values()):
        column[:] = number + 1
    whole.amounts = whole.amounts.astype("i8") << 40
    made = parts.resized(whole, 7)
    for name, column in vars(whole).items():
        other = getattr(made, name)
        assert (other.dtype, len(other)) == (column.dtype, 7)
        assert (other[:3] == column).all()


def test_a_wake_up_is_early_if_its_thread_is_on_its_way_to_wait():
    """By thread and time, as a list of kinds; what is left, and which wake-up made a wait early."""
    blocked, woken, back = points.Point.BLOCKED, points.Point.WOKEN, points.Point.BACK
    early, preempted = points.Point.EARLY, points.Point.PREEMPTED
    for given, kept, by in (
        ([back, blocked, woken, back], [back, blocked, woken, back], []),
        ([back, woken, blocked, back], [back, early, back], [1]),
        ([back, woken, woken, blocked, back], [back, early, back], [2]),
        ([back, woken, blocked, woken, back], [back, blocked, woken, back], []),
        ([woken, back, blocked, back], [back, blocked, back], []),
        ([back, woken, preempted, back, blocked, back], [back, preempted, back, blocked, back], []),
        ([back, woken, blocked], [back, blocked], []),
        ([woken], [], []),
        ([], [], []),
    ):
        some = np.zeros(len(given), points.POINT)
        some["kind"], some["ref"] = given, np.arange(len(given))
        made = points.without_early(some)
        assert made["kind"].tolist() == kept, given
        assert made["woken"][made["kind"] == early].tolist() == by, given
