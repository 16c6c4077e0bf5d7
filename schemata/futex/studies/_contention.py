# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a log of the study `contention` says, and what its program says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from klogger import executor
from klogger.log import Log
from klogger_lab.study.model import Run

# As in contention.c.
AREA = 65536
SIZE = 128
# The rule: a mutex is guilty if threads begin to wait for it in at least so many of the equal parts
# of the time in which threads waited for any of its area. A holder that loses its CPU makes many
# threads wait as well, for longer, but once.
PARTS = 20
LEAST_PARTS = 8
# Functions of contention.c.
SITE = "write_journal"
GIVEN_BACK = (SITE, "commit_record")

PARTS_SQL = f"""
    WITH waits AS (
        SELECT b.lock AS lock, b.lock // {AREA} AS area, b.time AS from_ns, e.time AS to_ns
        FROM WAIT AS b ASOF JOIN WAITED AS e
            ON b.tid = e.tid AND b.lock = e.lock AND b.time < e.time
        WHERE b.holder > 0
    ), areas AS (SELECT area, min(from_ns) AS first, max(to_ns) AS last FROM waits GROUP BY area)
    SELECT lock, count(*), sum(to_ns - from_ns)::BIGINT,
        count(DISTINCT (from_ns - first) * {PARTS} // (last - first + 1))
    FROM waits JOIN areas USING (area) GROUP BY lock
"""
# The bounds are the source's, in microseconds where the source has cycles.
BOUNDS = (8, 16, 32, 100)
LATENCY_SQL = """
    WITH waits AS (
        SELECT (e.time - b.time) AS ns, (e.time - b.time) // 1000 AS us,
            CASE WHEN list_contains(s.frames, 'write_journal') THEN 'write_journal'
                ELSE 'look_up' END AS site
        FROM WAIT AS b ASOF JOIN WAITED AS e
            ON b.tid = e.tid AND b.lock = e.lock AND b.time < e.time
        JOIN klogger.stack AS s ON s.id = b.user_stack
        WHERE b.holder > 0 AND b.user_stack > 0
    )
    SELECT site, count(*), sum(ns)::BIGINT, max(ns), count(*) FILTER (us < 8),
        count(*) FILTER (us >= 8 AND us < 16), count(*) FILTER (us >= 16 AND us < 32),
        count(*) FILTER (us >= 32 AND us < 100), count(*) FILTER (us >= 100)
    FROM waits GROUP BY site ORDER BY site DESC
"""


@dataclass
class Round:
    """Locks are addresses. `own` and `logged` are ns of waiting for the guilty mutex."""

    planted: int | None
    own: int = 0
    spun: int = 0
    calls: int = 0
    logged: int = 0
    # All mutexes of the round: ns, and those of the worst that is not guilty.
    whole: int = 0
    next: int = 0
    # What the league has first, and what the rule names.
    top: int | None = None
    named: int | None = None
    path: bool = False

    @property
    def first(self) -> bool:
        return self.planted is not None and self.top == self.planted

    @property
    def right(self) -> bool:
        return self.planted is not None and self.named == self.planted


@dataclass
class Seen:
    name: str
    threads: int
    spin: int
    rounds: list[Round] = field(default_factory=list)
    # Areas of no round for which the rule names a lock.
    strangers: int = 0
    waits: int = 0
    slept: int = 0
    switches: int = 0
    latency: list[list[Any]] = field(default_factory=list)
    convoys: int = 0
    planted_convoys: int = 0
    convoy_rows: list[dict[str, Any]] = field(default_factory=list)


def seen(run: Run) -> Seen | None:
    if run.log is None:
        return None
    one = Seen(run.arm.name, int(run.arm.parameters["threads"]),
               int(run.arm.parameters.get("spin", 0)))  # fmt: skip
    tables = answers(run.log)
    areas = said(one, run.output)
    one.waits = run.log.rows("SELECT count(*) FROM WAIT WHERE holder > 0")[0][0]
    one.slept = run.log.rows("SELECT count(*) FROM WAITED WHERE asleep > 0")[0][0]
    one.latency = [list(row) for row in run.log.rows(LATENCY_SQL)]
    one.convoy_rows = tables["convoys"]
    one.convoys = sum(row["convoys"] for row in one.convoy_rows)
    rank(one, areas, tables["league"])
    apply_rule(one, areas, run.log.rows(PARTS_SQL))
    return one


def answers(log: Log) -> dict[str, list[dict[str, Any]]]:
    chosen = [a for a in executor.choose(log) if a.name in ("league", "convoys")]
    results = executor.run_all(log, chosen)
    return {
        r.analysis.name: [dict(zip(r.table.names, row, strict=True)) for row in r.table.rows]
        for r in results
    }


def said(one: Seen, output: str) -> dict[int, Round]:
    """What the program says, by area."""
    areas = {}
    for line in output.splitlines():
        what, *words = line.split()
        if what == "round":
            base, guilty = int(words[0], 16), int(words[1])
            planted = base + SIZE * guilty if guilty >= 0 else None
            own, _, spun, calls = map(int, words[2:6])
            areas[base // AREA] = Round(planted, own, spun, calls)
        elif what == "convoys":
            one.planted_convoys = int(words[1])
        elif what == "switches":
            one.switches = int(words[0])
    one.rounds = list(areas.values())
    return areas


def rank(one: Seen, areas: dict[int, Round], league: list[dict[str, Any]]) -> None:
    """The league has the locks of all rounds, the worst first."""
    for row in league:
        tgid, _, address = row["lock"].partition(":")
        if not (tgid.isdigit() and address.startswith("0x")):
            continue  # A variable, which has a name: those of the rounds are elsewhere.
        lock = int(address, 16)
        a_round = areas.get(lock // AREA)
        if a_round is None or not row["holder"]:
            continue
        a_round.whole += row["waited"]
        if a_round.top is None:
            a_round.top = lock
            a_round.path = row["site"] == SITE and row["woken_in"] in GIVEN_BACK
        if lock == a_round.planted:
            a_round.logged = row["waited"]
        elif not a_round.next:
            a_round.next = row["waited"]


def apply_rule(one: Seen, areas: dict[int, Round], locks: list[Any]) -> None:
    best: dict[int, tuple[int, int]] = {}
    for lock, _, _, parts in locks:
        best[lock // AREA] = max(best.get(lock // AREA, (0, 0)), (parts, lock))
    for area, (parts, lock) in best.items():
        if parts < LEAST_PARTS:
            continue
        if area in areas:
            areas[area].named = lock
        else:
            one.strangers += 1
