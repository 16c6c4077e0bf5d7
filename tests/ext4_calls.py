# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What must be true of a recording of tests/workloads/ext4_calls.c, on any kernel."""

import statistics
from dataclasses import dataclass
from pathlib import Path

from oracles import Log

SYNCS, DATA_SYNCS = 101, 53
UNLINKS, HOLES = 17, 5
LENGTH = 37 << 20
APPENDS, READS, DIRECT = 4 * 47, 31, 65536
START, LOCKING, FLUSHING, LOGGING, END = range(5)
CLOCKS_NS = 50_000


@dataclass
class Recorded:
    """`device` as in the log; `report` is what the program printed."""

    log: Log
    path: Path
    device: int
    report: dict

    def count(self, event: str, where: str = "true") -> int:
        return self.log.count(event, f"device = {self.device} AND ({where})")

    def rows(self, columns: str, event: str, more: str = "") -> list:
        return self.log.rows(f"SELECT {columns} FROM {event} WHERE device = {self.device} {more}")


def check_commits(recorded: Recorded):
    """Transactions, and how many were asked for, are those of the journal's own account; so are
    handles and blocks, of which it has the averages.
    """
    info = recorded.report["info"]
    transactions, requested = info[:2]
    handles, blocks, logged = info[-3:]
    for phase in (START, LOCKING, FLUSHING, LOGGING, END):
        assert recorded.count("COMMIT_PHASE", f"phase = {phase}") == transactions
    assert recorded.count("COMMIT_PHASE", "requested") == requested
    ((number, *sums),) = recorded.rows(
        "count(*), sum(handles), sum(blocks), sum(logged)", "COMMITTED"
    )
    assert number == transactions
    assert [int(total) // transactions for total in sums] == [handles, blocks, logged]


def check_handles(recorded: Recorded):
    """Each transaction has the handles that began in it, and those that went on in it."""
    found = recorded.log.rows(f"""
        WITH used AS (
            SELECT transaction FROM HANDLE WHERE device = {recorded.device}
            UNION ALL SELECT transaction FROM HANDLE_MORE
            WHERE device = {recorded.device} AND what = 1
        ), counted AS (SELECT transaction, count(*) AS handles FROM used GROUP BY transaction)
        SELECT c.transaction, c.handles, u.handles FROM COMMITTED AS c
        LEFT JOIN counted AS u USING (transaction)
        WHERE c.device = {recorded.device} AND c.handles IS DISTINCT FROM u.handles
    """)
    assert found == []


def check_phases(recorded: Recorded):
    """They follow each other, and so do the numbers of transactions."""
    rows = recorded.rows("transaction, phase", "COMMIT_PHASE", "AND phase < 5 ORDER BY time")
    first = rows[0][0]
    assert rows == [(first + n // 5, n % 5) for n in range(len(rows))]
    late = recorded.log.one(f"""
        SELECT count(*) FROM HANDLE AS h JOIN COMMIT_PHASE AS c USING (device, transaction)
        WHERE device = {recorded.device} AND c.phase = {LOGGING} AND h.time > c.time
            AND NOT EXISTS (FROM HANDLE_MORE AS m WHERE m.tid = h.tid AND m.what = 1)
    """)
    assert late == 0


def check_syncs(recorded: Recorded):
    """As many as the program called, each within the program's own times of it."""
    syncs = recorded.report["syncs"]
    assert len(syncs) == SYNCS + DATA_SYNCS
    start = recorded.log.start_ns
    found = recorded.rows(f"time + {start}, took, inode, datasync", "FSYNC", "ORDER BY time")
    assert [(inode, data) for _, _, inode, data in found] == [
        (inode, bool(data)) for _, _, inode, data in syncs
    ]
    outside = []
    for (time, took, *_), (begin, end, *_) in zip(found, syncs, strict=True):
        assert took <= end - begin
        assert begin <= time <= end
        outside.append(end - begin - took)
    assert statistics.median(outside) <= CLOCKS_NS


def check_waits_for_commits(recorded: Recorded):
    """A new file's fsync() ends after the log of the transaction that it names was written. Mostly
    it sleeps until the commit has ended; but every five seconds there is a commit that nobody asks
    for, which may come first. And the journal counts a transaction as committed (j_commit_sequence)
    some steps before its tracepoint of the end: who looks in between does not wait for that.
    """
    rows = recorded.log.rows(f"""
        SELECT f.time, f.took, w.time, c.time FROM FSYNC AS f
        LEFT JOIN COMMIT_PHASE AS w ON w.device = f.device AND w.transaction = f.transaction
            AND w.phase = {LOGGING}
        LEFT JOIN COMMIT_PHASE AS c ON c.device = f.device AND c.transaction = f.transaction
            AND c.phase = {END}
        WHERE f.device = {recorded.device} AND NOT f.datasync
    """)
    assert len(rows) == SYNCS
    early = [row for row in rows if row[2] is None or row[3] is None or row[2] >= row[0]]
    assert early == []
    within = [end for time, took, _, end in rows if time - took <= end <= time]
    assert len(within) >= SYNCS / 2


def check_calls(recorded: Recorded):
    assert recorded.count("CALL", "what = 1 AND result = 0") == UNLINKS
    assert recorded.count("EVICT", "links = 0") == UNLINKS
    inode = recorded.report["inode"]
    assert recorded.count("CALL", f"what = 0 AND length = {LENGTH} AND inode = {inode}") == 1
    assert recorded.count("EDIT", f"what = 0 AND inode = {inode} AND length = 4096") == HOLES


def runs_of(extents: list) -> list:
    """Extents as (logical, physical, blocks), those that continue each other joined."""
    runs: list = []
    for logical, physical, blocks in sorted(extents):
        if runs and runs[-1][0] + runs[-1][2] == logical and runs[-1][1] + runs[-1][2] == physical:
            runs[-1][2] += blocks
        else:
            runs.append([logical, physical, blocks])
    return runs


def in_fallocate(recorded: Recorded) -> str:
    """Of ALLOC: for the file's contents, and during the call. The inode may be one used before."""
    ((begin, end),) = recorded.rows("time - took::BIGINT, time", "CALL", "AND what = 0")
    inode = recorded.report["inode"]
    return f"inode = {inode} AND contents AND given > 0 AND time BETWEEN {begin} AND {end}"


def check_blocks(recorded: Recorded):
    """What fallocate() was given is what the kernel says that the file has, block by block."""
    pieces = recorded.rows("logical, block, given", "ALLOC", f"AND {in_fallocate(recorded)}")
    assert len(pieces) >= 2
    assert runs_of([list(piece) for piece in pieces]) == runs_of(recorded.report["extents"])


def check_direct(recorded: Recorded):
    """Each write and read, and at least one wait of those that append to one file."""
    inode = recorded.report["direct"]
    whole = f"inode = {inode} AND length = {DIRECT} AND result = {DIRECT}"
    assert recorded.count("DIRECT", f"{whole} AND writes") == APPENDS
    assert recorded.count("DIRECT", f"{whole} AND NOT writes") == READS
    offsets = recorded.rows("position", "DIRECT", f"AND inode = {inode} AND NOT writes")
    assert sorted(offset for (offset,) in offsets) == [n * DIRECT for n in range(READS)]
    threads = {pid for (pid,) in recorded.rows("pid", "DIRECT", f"AND inode = {inode} AND writes")}
    assert len(threads) == 4
    waits = recorded.rows("tid, holder", "INODE_LOCK", f"AND inode = {inode}")
    assert len(waits) >= 1
    assert {tid for tid, _ in waits} <= threads
    assert {holder for _, holder in waits} <= threads | {0}


CHECKS = [
    check_commits,
    check_handles,
    check_phases,
    check_syncs,
    check_waits_for_commits,
    check_calls,
    check_blocks,
    check_direct,
]
