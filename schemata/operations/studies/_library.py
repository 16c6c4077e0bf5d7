# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A file system as a library, after the source's idea: its data are in one file of fixed size, and
all else in a database, in whose transactions each call runs. A file is a list of extents, each of
any number of bytes, so that cutting and pasting change rows, and move no data.

Tables: extent (file, at, start, length), by file and place in it; space (start, length), what is
free. A file is found by its name. Commits do not wait for the disk: who wants that calls sync.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path


class Library:
    def __init__(self, data: int, database: sqlite3.Connection) -> None:
        self.data = data
        self.database = database

    def size(self, name: str) -> int:
        query = "SELECT coalesce(max(at + length), 0) FROM extent WHERE file = ?"
        return int(self.database.execute(query, [name]).fetchone()[0])

    def take(self, wanted: int) -> tuple[int, int]:
        """An extent of free space: the first that is large enough, else the largest."""
        row = self.database.execute(
            "SELECT start, length FROM space ORDER BY length < ?, start LIMIT 1", [wanted]
        ).fetchone()
        if row is None:
            raise OSError(28, "no space left")
        start, length = row
        taken = min(length, wanted)
        self.database.execute("DELETE FROM space WHERE start = ?", [start])
        if taken < length:
            self.database.execute(
                "INSERT INTO space VALUES (?, ?)", [start + taken, length - taken]
            )
        return start, taken

    def append(self, name: str, content: bytes) -> None:
        at, done = self.size(name), 0
        while done < len(content):
            start, taken = self.take(len(content) - done)
            os.pwrite(self.data, content[done : done + taken], start)
            self.insert(name, at + done, start, taken)
            done += taken

    def insert(self, name: str, at: int, start: int, length: int) -> None:
        self.database.execute("INSERT INTO extent VALUES (?, ?, ?, ?)", [name, at, start, length])

    def split(self, name: str, at: int) -> None:
        """So that an extent begins at this byte."""
        row = self.database.execute(
            "SELECT at, start, length FROM extent WHERE file = ? AND at < ? AND at + length > ?",
            [name, at, at],
        ).fetchone()
        if row is None:
            return
        begin, start, length = row
        self.database.execute(
            "UPDATE extent SET length = ? WHERE file = ? AND at = ?", [at - begin, name, begin]
        )
        self.insert(name, at, start + at - begin, length - (at - begin))

    def move(self, name: str, at: int, length: int, target: str) -> None:
        """Cuts a part out of a file, and pastes it at the end of another one."""
        self.split(name, at)
        self.split(name, at + length)
        end = self.size(target)
        part = [name, at, at + length]
        self.database.execute(
            "UPDATE extent SET file = ?, at = at - ? + ? WHERE file = ? AND at >= ? AND at < ?",
            [target, at, end, *part],
        )
        self.database.execute(
            "UPDATE extent SET at = at - ? WHERE file = ? AND at >= ?", [length, name, at + length]
        )

    def read(self, name: str) -> bytes:
        rows = self.database.execute(
            "SELECT start, length FROM extent WHERE file = ? ORDER BY at", [name]
        )
        return b"".join(os.pread(self.data, length, start) for start, length in rows)

    def commit(self) -> None:
        self.database.commit()


@contextlib.contextmanager
def open_in(folder: Path, size: int) -> Iterator[Library]:
    """A new one with `size` bytes of data, which is removed at the end."""
    path, names = folder / "library.data", folder / "library.sqlite"
    data = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    database = sqlite3.connect(names)
    try:
        os.posix_fallocate(data, 0, size)
        database.execute("PRAGMA synchronous = OFF")
        database.execute(
            "CREATE TABLE extent (file TEXT, at INTEGER, start INTEGER, length INTEGER,"
            " PRIMARY KEY (file, at)) WITHOUT ROWID"
        )
        database.execute("CREATE TABLE space (start INTEGER PRIMARY KEY, length INTEGER)")
        database.execute("INSERT INTO space VALUES (0, ?)", [size])
        database.commit()
        yield Library(data, database)
    finally:
        database.close()
        os.close(data)
        for file in (path, names):
            file.unlink(missing_ok=True)
