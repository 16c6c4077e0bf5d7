# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the study `formats` does to a file system: _directories.py WHAT FOLDER MOST.

It prints as JSON what it knows without the log: how long each operation took (ns), by directory and
in order, and when the size of a directory said that it left the inode, or came back into it.
"""

from __future__ import annotations

import json
import os
import sys
import time

BLOCK = 4096
NAME = "x" * 33
# Around the number of names at which a list of hashes fills a block of 4 KiB.
FULL = (470, 530)
TURNS = 100
VALUES = (19, 211, 1999)
ATTRIBUTES = 197


class Directory:
    """`small`: whether its names are in the inode, after each operation."""

    def __init__(self, path: str):
        os.mkdir(path)
        self.path = path
        self.took: list[int] = []
        self.changes = 0
        self.small = True

    def name(self, n: int) -> str:
        return f"{self.path}/{n:06}{NAME}"

    def timed(self, began: int) -> None:
        self.took.append(time.monotonic_ns() - began)
        small = os.stat(self.path).st_size < BLOCK
        self.changes += small != self.small
        self.small = small

    def add(self, n: int) -> None:
        name = self.name(n)
        began = time.monotonic_ns()
        file = os.open(name, os.O_CREAT | os.O_WRONLY)
        self.timed(began)
        os.close(file)

    def remove(self, n: int) -> None:
        name = self.name(n)
        began = time.monotonic_ns()
        os.unlink(name)
        self.timed(began)

    def told(self) -> dict[str, object]:
        inode = os.stat(self.path).st_ino
        return {"inode": inode, "took": self.took, "changes": self.changes}


def grow(folder: str, most: int) -> list[dict[str, object]]:
    """Directories that grow to so many names, and shrink to nothing."""
    told: list[dict[str, object]] = []
    for number, names in enumerate((7, 101, 401, most)):
        one = Directory(f"{folder}/{number}")
        for n in range(names):
            one.add(n)
        for n in reversed(range(names)):
            one.remove(n)
        told.append(one.told())
    return told


def hover(folder: str, most: int) -> list[dict[str, object]]:
    """At each of two sizes a name comes and goes: the first that is too large for the inode, and
    the first that is too large for a block; and then near the one that is too large for a leaf.
    """
    one = Directory(f"{folder}/short")
    two = Directory(f"{folder}/block")
    three = Directory(f"{folder}/leaf")
    n = 0
    while one.small:
        one.add(n)
        n += 1
    turn(one, n - 1, TURNS)
    n = 0
    while os.stat(two.path).st_size <= BLOCK:
        two.add(n)
        n += 1
    turn(two, n - 1, TURNS)
    for n in range(min(most, FULL[1])):
        three.add(n)
        if n >= FULL[0]:
            turn(three, n, 4)
    return [one.told(), two.told(), three.told()]


def turn(directory: Directory, n: int, times: int) -> None:
    for _ in range(times):
        directory.remove(n)
        directory.add(n)


def still(folder: str, _: int) -> list[dict[str, object]]:
    """The same number of operations as hovering at one size, in the middle of a format."""
    one = Directory(f"{folder}/still")
    for n in range(31):
        one.add(n)
    turn(one, 31 - 1, TURNS)
    return [one.told()]


def attributes(folder: str, _: int) -> list[dict[str, object]]:
    told: list[dict[str, object]] = []
    for size in VALUES:
        path = f"{folder}/{size}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        for n in range(ATTRIBUTES):
            os.setxattr(path, f"user.{n}", b"v" * size)
        for n in range(ATTRIBUTES):
            os.removexattr(path, f"user.{n}")
        told.append({"inode": os.stat(path).st_ino, "took": [], "changes": size})
    return told


if __name__ == "__main__":
    what, where, many = sys.argv[1:]
    print(json.dumps(globals()[what](where, int(many))))
