# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What tests/workloads/file_extents.c prints, compared with a log of the schema `extents`."""

from oracles import SCHEMATA, Log

from klogger_lab.fiemap import UNWRITTEN, Extent, joined, placed

SHARED = SCHEMATA / "extents/analyses/_extents.sql"
Maps = list[tuple[int, list[Extent]]]


def told(text: str) -> tuple[Maps, list[str]]:
    """Inode and extents of each map, and what the file system cannot do."""
    found: Maps = []
    left_out: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words[0] == "map":
            found.append((int(words[1]), []))
        elif words[0] == "left":
            left_out = words[2:]
        elif len(words) == 4 and found:
            logical, physical, length = map(int, words[:3])
            found[-1][1].append(Extent(logical, physical, length, int(words[3], 16)))
    return found, left_out


def replayed(log: Log) -> None:
    """Makes the tables of the analyses, without what was only read: that is the kernel's answer
    too.
    """
    text = SHARED.read_text().partition("CREATE TEMP TABLE extents_moment")[0]
    text = text.replace("FROM EXTENT", "FROM (SELECT * FROM extent WHERE what <> 4)")
    log.db.execute(text)


def check(log: Log, maps: Maps, device: int) -> None:
    """Each map is that of the log at the time at which the program asked for it."""
    replayed(log)
    rows = log.rows(f"SELECT inode, time, result FROM mapped WHERE device = {device} ORDER BY time")
    # Without FIEMAP it asked twice, the second time when all was written, and then block by block,
    # which are not known beyond the file's end.
    by_block = any(result < 0 for _, _, result in rows)
    asked = rows[1::2] if by_block else rows
    assert [inode for inode, _, _ in asked] == [inode for inode, _ in maps]
    for number, ((inode, extents), (_, time, _)) in enumerate(zip(maps, asked, strict=True)):
        rows = log.rows(f"""
            SELECT logical, physical, length, unwritten FROM extents_at({time})
            WHERE inode = {inode} AND device = {device} ORDER BY logical
        """)
        expected = joined(placed(extents))
        if by_block:
            most = max((e.logical + e.length for e in expected), default=0)
            rows = [(a, b, min(c, most - a), d) for a, b, c, d in rows if a < most]
        seen = [Extent(*row[:3], UNWRITTEN * row[3]) for row in rows]
        assert joined(seen) == expected, f"map {number} of inode {inode} at {time}"
