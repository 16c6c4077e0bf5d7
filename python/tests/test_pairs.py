# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""klogger.pairs and klogger.broken, which all pairing analyses stand on, against a pairing by brute
force.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import duckdb
import pytest

from klogger import gaps

EVENTS = ("BEGIN", "END", "OTHER")
KEYS = (
    "ring_full",
    "rate_limited",
    "events_disabled",
    "probe_missed",
    "sample_missed",
    "damaged",
)
SEEDS = range(60)


@dataclass
class Case:
    """begins and ends: (key, who, time, number); gaps: (cpu, event, from, to, key)."""

    begins: list[tuple[int, int, int, int]] = field(default_factory=list)
    ends: list[tuple[int, int, int, int]] = field(default_factory=list)
    gaps: list[tuple[int | None, str | None, int, int, str]] = field(default_factory=list)
    by_cpu: bool = True


def drawn(seed: int) -> Case:
    """Mostly well-formed sequences with some events left out, moved together, or of
    another thread.
    """
    draw = random.Random(seed)
    case = Case(by_cpu=draw.random() < 0.5)
    number = 0
    for key in range(draw.randint(1, 4)):
        time = draw.randint(0, 20)
        for _ in range(draw.randint(0, 12)):
            who = draw.randint(1, 2)
            for events in (case.begins, case.ends):
                time += draw.choice((0, 1, 1, 2, 7))
                number += 1
                if draw.random() < 0.85:
                    events.append((key, who if draw.random() < 0.9 else 3, time, number))
    for _ in range(draw.choice((0, 0, 1, 2, 6))):
        start = draw.randint(0, 60)
        cpu, event = draw.choice((None, 0, 1, 2, 3)), draw.choice((None, *EVENTS))
        case.gaps.append((cpu, event, start, start + draw.choice((0, 1, 5, 30)), draw.choice(KEYS)))
    return case


def matters(case: Case, key: int) -> list[tuple[int, int]]:
    """The gaps that touch a pair of this key: of its CPU, or of any."""
    return [
        (min(start, end - 1), end)
        for cpu, event, start, end, why in case.gaps
        if event in (None, "BEGIN", "END")
        and why not in ("probe_missed", "sample_missed")
        and (not case.by_cpu or cpu in (None, key))
    ]


def by_hand(case: Case) -> set[tuple[int | None, int | None, bool, bool]]:
    """(number of the beginning, of the end, outside, broken), by going through the events of each
    key one by one.
    """
    found = set()
    for key in {e[0] for e in case.begins + case.ends}:
        events = [(t, 1, who, n) for k, who, t, n in case.begins if k == key]
        events += [(t, 0, who, n) for k, who, t, n in case.ends if k == key]
        events.sort()
        taken = set()
        rows: list[tuple[int | None, int | None, bool, float, float]] = []
        for i, (time, begins, who, number) in enumerate(events):
            if begins:
                continue
            if i and events[i - 1][1] and events[i - 1][2] == who:
                taken.add(i - 1)
                rows.append((events[i - 1][3], number, False, events[i - 1][0], time))
            else:
                rows.append((None, number, i == 0, -1, time))
        for i, (time, begins, _, number) in enumerate(events):
            if begins and i not in taken:
                rows.append((number, None, i == len(events) - 1, time, float("inf")))
        for begin, end, outside, start, stop in rows:
            broken = any(
                start < gap_end and stop > gap_start for gap_start, gap_end in matters(case, key)
            )
            found.add((begin, end, outside, broken))
    return found


def by_sql(case: Case) -> list[tuple[int | None, int | None, bool, bool]]:
    con = duckdb.connect()
    con.execute("CREATE SCHEMA klogger")
    con.execute(
        "CREATE TABLE klogger.gap"
        " (cpu SMALLINT, event VARCHAR, from_ns BIGINT, to_ns BIGINT, count BIGINT, key VARCHAR)"
    )
    con.execute(gaps.PAIRS)
    for gap in case.gaps:
        con.execute("INSERT INTO klogger.gap VALUES ($1, $2, $3, $4, 1, $5)", list(gap))
    con.execute(gaps.BROKEN if gaps.has_gaps(con) else gaps.WHOLE)
    for name, column, events in (("b", "begun", case.begins), ("e", "ended", case.ends)):
        con.execute(f"CREATE TABLE {name} (key BIGINT, who BIGINT, time BIGINT, {column} BIGINT)")
        if events:
            con.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", events)
    place = "key" if case.by_cpu else "NULL"
    con.execute(f"CREATE TABLE p AS SELECT *, {place} AS place FROM klogger.pairs('b', 'e')")
    return con.execute(
        "SELECT begun, ended, outside, broken FROM klogger.broken('p', ['BEGIN', 'END'])"
    ).fetchall()


def is_plain(case: Case) -> bool:
    """No two events of one kind and key at one time: which comes first is not defined then."""
    return all(
        len({(k, t) for k, _, t, _ in events}) == len(events) for events in (case.begins, case.ends)
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_pairs_are_those_that_are_found_by_hand(seed: int) -> None:
    case = drawn(seed)
    found = by_sql(case)
    # Whatever the order: each event is in one row, and no row is made of nothing.
    assert sorted(b for b, *_ in found if b is not None) == sorted(n for *_, n in case.begins)
    assert sorted(e for _, e, *_ in found if e is not None) == sorted(n for *_, n in case.ends)
    if is_plain(case):
        assert set(found) == by_hand(case)


def test_the_cases_have_what_they_are_for() -> None:
    """All kinds of rows come up among them, with gaps and without."""
    seen = set()
    for seed in SEEDS:
        case = drawn(seed)
        for begin, end, outside, broken in by_hand(case) if is_plain(case) else ():
            seen.add((begin is None, end is None, outside, broken, bool(case.gaps)))
    for lone in (
        (False, False, False),
        (True, False, False),
        (True, False, True),
        (False, True, False),
        (False, True, True),
    ):
        assert {(*lone, False, False), (*lone, False, True), (*lone, True, True)} <= seen


def test_events_within_a_rate_limit_make_no_pairs() -> None:
    """The gap goes from the first event that was left out to the last; others of that kind are
    within it.
    """
    case = Case(gaps=[(0, "END", 25, 45, "rate_limited")])
    case.begins = [(0, 1, 10 * i, i) for i in range(1, 8)]
    case.ends = [(0, 1, 10 * i + 5, 10 + i) for i in range(1, 8) if i != 2]
    whole = sorted((b, e) for b, e, _, broken in by_sql(case) if not broken and b and e)
    assert whole == [(1, 11), (5, 15), (6, 16), (7, 17)]
