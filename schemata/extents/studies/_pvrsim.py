# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""python3 _pvrsim.py FOLDER STREAMS FILES SEED SECONDS: a video recorder whose disk is always
nearly full. It makes so many files, or as many as it can in that time.

So many streams at a time are written in pieces of 32 KiB, and reach the disk 128 KiB at a time, as
what a slow stream writes between two flushes of the kernel. When the next file would leave less
than 5 % free, the files of least value are deleted: popularity / ln(age + 2), where the age is the
number of files made since. Prints each closed file's map (FIEMAP), and at the end those of all.
"""

import contextlib
import errno
import itertools
import json
import math
import os
import random
import sys
import time
from pathlib import Path

PIECE, FLUSH = 32 << 10, 128 << 10
LEAST, MOST = 512 << 10, 5 << 20
KEPT_FREE = 0.05
# However slow the machine is.
LEAST_FILES = 30


class Recorder:
    def __init__(self, folder: Path, streams: int, files: int, seed: int, seconds: int):
        self.folder, self.streams, self.files = folder, streams, files
        self.chosen = random.Random(seed)
        self.until = time.monotonic() + seconds
        space = os.statvfs(folder)
        self.total = space.f_bavail * space.f_frsize
        self.sizes: dict[int, int] = {}
        self.popularity: dict[int, float] = {}
        self.made = 0
        self.data = bytes(PIECE)

    @property
    def goes_on(self) -> bool:
        in_time = time.monotonic() < self.until or self.made < LEAST_FILES
        return self.made < self.files and in_time

    def value(self, number: int) -> float:
        return self.popularity[number] / math.log(self.made - number + 2)

    def delete(self, busy: set[int]) -> bool:
        """The file of the least value that is not being written."""
        least = min((n for n in self.sizes if n not in busy), key=self.value, default=None)
        if least is None:
            return False
        os.unlink(self.folder / str(least))
        del self.sizes[least], self.popularity[least]
        return True

    def begin(self, busy: set[int]) -> tuple[int, int]:
        """A new file, for which there is room: its number and descriptor."""
        size = self.chosen.randrange(LEAST, MOST)
        while sum(self.sizes.values()) + size > self.total * (1 - KEPT_FREE):
            if not self.delete(busy):
                break
        self.made += 1
        self.sizes[self.made] = size
        self.popularity[self.made] = min(max(self.chosen.gauss(55, 15), 10), 100)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        return self.made, os.open(self.folder / str(self.made), flags, 0o644)

    def put(self, fd: int, at: int, bytes_: int, busy: set[int]) -> None:
        """What a file system needs for itself may leave less room than there seemed to be."""
        while True:
            try:
                os.pwrite(fd, self.data[:bytes_], at)
                if (at + bytes_) % FLUSH == 0:
                    os.fdatasync(fd)
                return
            except OSError as error:
                if error.errno != errno.ENOSPC or not self.delete(busy):
                    raise
                os.sync()

    def told(self, number: int, now: bool) -> None:
        from klogger_lab import fiemap

        with (self.folder / str(number)).open("rb") as file:
            found = fiemap.joined(fiemap.placed(fiemap.fiemap(file.fileno())), keep=0)
            inode = os.fstat(file.fileno()).st_ino
        pieces = 1 + sum(
            one.physical + one.length != other.physical for one, other in itertools.pairwise(found)
        )
        line = {"file": number, "inode": inode, "fragments": pieces, "last": now}
        print(json.dumps(line))

    def run(self) -> None:
        fds: dict[int, tuple[int, int]] = {}
        while self.goes_on or fds:
            while len(fds) < self.streams and self.goes_on:
                number, fd = self.begin(set(fds))
                fds[number] = (fd, 0)
            for number, (fd, at) in list(fds.items()):
                part = min(PIECE, self.sizes[number] - at)
                self.put(fd, at, part, set(fds))
                fds[number] = (fd, at + part)
                if at + part >= self.sizes[number]:
                    os.close(fd)
                    del fds[number]
                    self.told(number, False)
        for number in self.sizes:
            with contextlib.suppress(FileNotFoundError):
                self.told(number, True)
        space = os.statvfs(self.folder)
        mean = sum(self.sizes.values()) / max(len(self.sizes), 1)
        free = space.f_bavail * space.f_frsize / self.total
        print(json.dumps({"total": self.total, "mean": mean, "free": free, "made": self.made}))


if __name__ == "__main__":
    Recorder(Path(sys.argv[1]), *map(int, sys.argv[2:6])).run()
