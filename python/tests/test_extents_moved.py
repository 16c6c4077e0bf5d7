# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The maps that the analyses of `extents` replay, with ranges that are cut out of files and put in,
are those of a program that keeps a map of each block.
"""

import random
from pathlib import Path

import duckdb
import pytest

SHARED = Path(__file__).resolve().parents[2] / "schemata/extents/analyses/_extents.sql"
TABLES = """
CREATE TABLE EXTENT (
    time BIGINT, cpu INT, serial BIGINT, device UINTEGER, inode UBIGINT, logical UBIGINT,
    physical UBIGINT, length UBIGINT, records UINTEGER, stored UINTEGER, what UTINYINT,
    fs UTINYINT, format UTINYINT, unwritten BOOLEAN, tid INT
);
CREATE TABLE SHIFTED (
    time BIGINT, cpu INT, serial BIGINT, inode UBIGINT, behind UBIGINT, moved BIGINT,
    device UINTEGER, fs UTINYINT, tid INT
);
"""
BLOCK, STEPS = 4096, 300
ADDED, REMOVED = 1, 2
# Of the last one nothing is moved.
FILES = (11, 12, 13)
Map = dict[int, int]


class Files:
    """Changes files at random, and keeps their maps, and the events."""

    def __init__(self, seed: int):
        self.chosen = random.Random(seed)
        self.maps: dict[int, Map] = {inode: {} for inode in FILES}
        self.extents: list[tuple] = []
        self.shifts: list[tuple] = []

    def extent(self, time: int, inode: int, what: int, at: int, many: int, place: int = 0):
        length = many * BLOCK if many else 2**63 - 1 - at * BLOCK
        self.extents.append(
            (time, 0, time, 1, inode, at * BLOCK, place * BLOCK, length, 0, 0, what, 1, 2, False, 7)
        )

    def step(self, time: int) -> None:
        inode, how = self.chosen.choice(FILES), self.chosen.random()
        at, many = self.chosen.randrange(40), self.chosen.randrange(1, 9)
        blocks = self.maps[inode]
        if how < 0.6:
            place = self.chosen.randrange(1, 1000)
            blocks |= {at + n: place + n for n in range(many)}
            self.extent(time, inode, ADDED, at, many, place)
        elif how < 0.7:
            self.drop(inode, at, at + many)
            self.extent(time, inode, REMOVED, at, many)
        elif how < 0.75:
            self.drop(inode, at, max(blocks, default=0) + 1)
            self.extent(time, inode, REMOVED, at, 0)
        elif inode != FILES[-1]:
            self.move(time, inode, at, many if how < 0.87 else -many)

    def drop(self, inode: int, first: int, behind: int) -> None:
        self.maps[inode] = {n: b for n, b in self.maps[inode].items() if not first <= n < behind}

    def move(self, time: int, inode: int, at: int, by: int) -> None:
        """What is cut out is removed first."""
        if by < 0:
            self.drop(inode, at, at - by)
            self.extent(time - 1, inode, REMOVED, at, -by)
        self.maps[inode] = {n + by * (n >= at): b for n, b in self.maps[inode].items()}
        self.shifts.append((time, 0, time, inode, (at + max(-by, 0)) * BLOCK, by * BLOCK, 1, 1, 7))


def replayed(files: Files) -> duckdb.DuckDBPyConnection:
    db = duckdb.connect()
    db.execute(TABLES)
    for table, rows in (("EXTENT", files.extents), ("SHIFTED", files.shifts)):
        db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    db.execute(SHARED.read_text().partition("CREATE TEMP TABLE extents_moment")[0])
    return db


def blocks_at(db: duckdb.DuckDBPyConnection, time: int) -> dict[int, Map]:
    found: dict[int, Map] = {inode: {} for inode in FILES}
    query = f"SELECT inode, logical, physical, length FROM extents_at({time})"
    for inode, logical, physical, length in db.execute(query).fetchall():
        for n in range(length // BLOCK):
            assert logical // BLOCK + n not in found[inode]
            found[inode][logical // BLOCK + n] = physical // BLOCK + n
    return found


@pytest.mark.parametrize("seed", range(3))
def test_moved_ranges(seed):
    files, maps = Files(seed), {}
    for number in range(1, STEPS):
        files.step(10 * number)
        maps[10 * number] = {inode: dict(blocks) for inode, blocks in files.maps.items()}
    assert len(files.shifts) > 10
    db = replayed(files)
    for time in [*maps][::17] + [*maps][-1:]:
        assert blocks_at(db, time) == maps[time], f"at {time}"
