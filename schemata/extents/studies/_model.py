# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Free space without a file system: what the theory says of a disk that is always nearly full, and
an allocator in memory that does what the theory assumes.

Of N fragments M are free once a file has been deleted and before the next one is written: M has the
room of one file in it, so that M = L, a file's fragments, is a disk without any other free space. A
file takes free fragments wherever they are, and divides the last one; the fragments of a deleted
file are glued to free neighbours. As many are glued as are made at L = (1 + s) / (2m - s), where
m = M/N and s = L/N.

In numbers of fragments that is exact but for one thing: M random fragments of N may be neighbours,
and free fragments never are, since they are glued. With that, L = (1 - m + s) / (2m - s). In bytes
it is an approximation, since free fragments are not as long as those of files.
"""

import bisect
import random
from dataclasses import dataclass


def level(free: float, file: float) -> float | None:
    """Fragments of a file, 1/(2m - s); None if nothing keeps them from becoming more."""
    return max(1 / (2 * free - file), 1.0) if 2 * free > file else None


class Disk:
    """Ranges of blocks that are free, by their beginnings."""

    def __init__(self, blocks: int):
        self.begins, self.ends = [0], [blocks]

    def take(self, at: int, blocks: int) -> tuple[int, int]:
        """The range of this number, or so many blocks of its beginning."""
        begin, end = self.begins[at], min(self.ends[at], self.begins[at] + blocks)
        if end == self.ends[at]:
            del self.begins[at], self.ends[at]
        else:
            self.begins[at] = end
        return begin, end

    def give(self, begin: int, end: int) -> None:
        at = bisect.bisect_left(self.begins, begin)
        if at < len(self.begins) and self.begins[at] == end:
            end = self.ends.pop(at)
            del self.begins[at]
        if at and self.ends[at - 1] == begin:
            self.ends[at - 1] = end
        else:
            self.begins.insert(at, begin)
            self.ends.insert(at, end)


@dataclass(frozen=True)
class Balance:
    """What an allocator has come to: a file's fragments, and m and s as shares of fragments."""

    fragments: float
    free: float
    file: float

    @property
    def exact(self) -> float:
        return (1 - self.free + self.file) / (2 * self.free - self.file)


def simulated(blocks: int, mean: int, free: float, files: int, seed: int) -> Balance:
    """The disk is filled with files of 2/11 to 20/11 of the mean; then so many times a random one
    is deleted, and another of its size is written. `free` is m, by blocks. The second half counts.
    """
    chosen = random.Random(seed)
    disk = Disk(blocks)
    many = round((1 - free) * blocks / mean) + 1
    sizes = [round(mean * (2 + 18 * (n + 0.5) / many) / 11) for n in range(many)]
    chosen.shuffle(sizes)

    def written(size: int) -> list[tuple[int, int]]:
        pieces = []
        while size:
            begin, end = disk.take(chosen.randrange(len(disk.begins)), size)
            size -= end - begin
            pieces.append((begin, end))
        return pieces

    kept = [written(size) for size in sizes]
    holes = pieces = 0
    for number in range(files):
        if number >= files // 2:
            holes += len(disk.begins)
            pieces += sum(map(len, kept))
        gone = chosen.randrange(many)
        for piece in kept[gone]:
            disk.give(*piece)
        kept[gone] = written(sizes[gone])
    return balance(holes, pieces, many, files - files // 2)


def balance(holes: int, pieces: int, files: int, turns: int) -> Balance:
    """From the sums of free fragments and of those of files, before each deletion."""
    fragments = pieces / files / turns
    every = (holes + pieces) / turns
    return Balance(fragments, (holes / turns + fragments) / every, fragments / every)
