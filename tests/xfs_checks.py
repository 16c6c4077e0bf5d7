# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is compared with the kernel's own counters, and with the disk, of logs of the schema `xfs`:
of the running kernel, and of the guest's.
"""

from collections import defaultdict
from pathlib import Path

from oracles import Log

# Of /sys/fs/xfs/DEVICE/stats/stats: counter, and which of its numbers; the events at its place.
# The kernel has the event at three more places that it does not count: twice inside of a force, and
# where the thread that makes space in the log starts a checkpoint, which has a counter of its own.
INNER = "caller_symbol IN ('xfs_log_force', 'xfs_log_force_seq')"
FLUSH = "(starts_with(caller_symbol, 'xfsaild') AND seq <> 0)"
EXACT = {
    ("extent_alloc", 0): "XFS_ALLOC WHERE place(how) = 'xfs_alloc_vextent_finish'",
    ("extent_alloc", 2): "XFS_FREED",
    ("dir", 1): "DIRECTORY WHERE op IN (1, 3, 4, 5)",
    ("dir", 2): "DIRECTORY WHERE op = 2",
    ("ig", 1): "INODE WHERE place(how) IN ('xfs_iget_hit', 'xfs_iget_recycle')",
    ("ig", 2): "INODE WHERE place(how) = 'xfs_iget_skip'",
    ("ig", 3): "INODE WHERE place(how) = 'xfs_iget_miss'",
    ("log", 0): "LOG_WRITE",
    ("log", 3): f"FORCE WHERE NOT {INNER} AND NOT {FLUSH}",
    ("push_ail", 1): "LOG_SLEEP",
    ("push_ail", 3): "PUSH WHERE place(what) = 'xfs_ail_push'",
    ("push_ail", 5): "PUSH WHERE place(what) = 'xfs_ail_pinned'",
    ("push_ail", 6): "PUSH WHERE place(what) = 'xfs_ail_locked'",
    ("push_ail", 7): "PUSH WHERE place(what) = 'xfs_ail_flushing'",
    ("push_ail", 9): f"FORCE WHERE {FLUSH}",
}
PLACE = """
CREATE MACRO place(number) AS (
    SELECT regexp_replace(any_value(text), '^.* ', '') FROM decoding
    WHERE decoding = 'place' AND value = number)
"""


def opened(klogger: Path, path: Path) -> Log:
    log = Log(klogger, path)
    log.db.execute(PLACE)
    return log


def counted(log: Log, rest: str) -> int:
    return log.one(f"SELECT count(*) FROM {rest}")


def check_counters(log: Log, told: dict) -> dict:
    """Returns by how much they rose."""
    delta = {(name, n): told["after"][name][n] - told["before"][name][n] for name, n in EXACT}
    assert min(delta["extent_alloc", 0], delta["push_ail", 3], delta["log", 3]) > 0
    # On 6.1 no event is at the place of the counter.
    if not log.count("XFS_ALLOC", "place(how) = 'xfs_alloc_vextent_finish'"):
        del delta["extent_alloc", 0]
    # It was frozen when the recording began, and when it ended.
    assert {key: counted(log, EXACT[key]) for key in delta} == delta
    return delta


def steps(log: Log, fork: int) -> dict[int, list[str]]:
    """Of each inode its formats, which follow each other, from the first one on."""
    found = defaultdict(lambda: ["short"])
    for inode, before, after in log.rows(f"""
        SELECT inode, b.text, a.text
        FROM FORMAT JOIN decoding AS b ON b.decoding = 'fork_format' AND b.value = before
        JOIN decoding AS a ON a.decoding = 'fork_format' AND a.value = format
        WHERE fork = {fork} ORDER BY time
    """):
        # That attributes get out of a node has no event.
        assert found[inode][-1] == before or (fork, before) == (1, "leaf")
        found[inode].append(after)
    return dict(found)


def check_formats(log: Log, told: dict, found: dict) -> int:
    """Returns the inode of the directory that went through all of them."""
    of = [pairs(found[key]) for key in ("directories", "attributes")]
    of = [dict(one) for one in of]
    ended = [steps(log, fork) for fork in (0, 1)]
    root = {128}
    # Each directory and fork that is on the disk, and no other.
    assert {i: ended[0].get(i, ["short"])[-1] for i in of[0]} == of[0]
    assert set(ended[0]) <= set(of[0]) | root
    assert {"short", "block", "leaf", "node"} == set(of[0].values())
    assert {i: ended[1].get(i, ["short"])[-1] for i in of[1]} == of[1]
    assert set(ended[1]) == {i for i, (made, _) in pairs(told["attributes"]) if made > 1}
    # A directory that grows, and then shrinks to nothing, goes through all of them both ways.
    (emptied,) = [i for i, size in pairs(told["directories"]) if size == [601, 0]]
    up = ["short", "block", "leaf", "node"]
    assert ended[0][emptied] == up + up[-2::-1]
    return emptied


def pairs(told: dict) -> list[tuple[int, list[int]]]:
    return [(int(inode), size) for inode, size in told.items()]
