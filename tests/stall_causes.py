# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Stalls that a program plants, and measures itself: `stall_causes.py TIMES CAUSE=FOLDER...`.

It prints a line "CAUSE TID FROM TO" for each stall, by its own clock (CLOCK_MONOTONIC, ns), and
nothing of a try that did not stall. It depends on conditions, not on times: a try begins when the
other thread is in its call. A folder is on a file system of its own.

lock        a short write to a file, while another thread makes it longer by direct I/O, for which
            it holds the lock until the disk has answered
journal     fsync() of a directory in which a file was made: it waits for a commit, with data of
            another file
checkpoint  a short write to a file with data=journal, when the journal is full: the cause is the
            journal
device      a short direct write over what the file has, to a slow disk
"""

import itertools
import mmap
import os
import sys
import threading
import time
from pathlib import Path

# A call that takes less did not stall.
STALL_NS = 200_000
# Direct I/O needs it at the beginning of a page. Large pages: who writes them runs for a moment
# only, and who waits for its lock meanwhile spins, which no tracepoint tells.
BLOCK = mmap.mmap(-1, 4 << 20)
PAGE = mmap.mmap(-1, 4096)
# Of tries for a stall.
PATIENCE = 400


def clocked(call) -> tuple[int, int, int]:
    begun = time.monotonic_ns()
    call()
    return threading.get_native_id(), begun, time.monotonic_ns()


class Other:
    """A thread that makes a call each time that it is told to, and says that it is about to."""

    def __init__(self, prepare, call):
        self.prepare, self.call = prepare, call
        self.go, self.begins, self.done = (threading.Semaphore(0) for _ in range(3))
        self.took = (0, 0)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            self.go.acquire()
            self.prepare()
            begun = time.monotonic_ns()
            # The other one goes on when this one, in its call, gives back the interpreter.
            self.begins.release()
            self.call()
            self.took = begun, time.monotonic_ns()
            self.done.release()


def lock(folder: Path):
    file = os.open(folder / "file", os.O_RDWR | os.O_CREAT)
    direct = os.open(folder / "file", os.O_RDWR | os.O_DIRECT)
    other = Other(lambda: os.ftruncate(direct, 0), lambda: os.pwrite(direct, BLOCK, 0))
    while True:
        other.go.release()
        other.begins.acquire()
        # A whole page: none is read for it.
        tid, begun, ended = clocked(lambda: os.pwrite(file, PAGE, 0))
        other.done.acquire()
        # Most of its time the other one was in its call, which had begun before.
        since, until = other.took
        if since <= begun and until - begun >= 0.8 * (ended - begun):
            yield tid, begun, ended
        else:
            yield tid, begun, begun


def journal(folder: Path):
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    file = os.open(folder / "data", os.O_RDWR | os.O_CREAT)
    while True:
        # The commit has much to write.
        os.pwrite(file, memoryview(BLOCK)[: 1 << 19], 0)
        (folder / "name").touch()
        yield clocked(lambda: os.fsync(directory))
        (folder / "name").unlink()


def checkpoint(folder: Path):
    file = os.open(folder / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, BLOCK, 0)
    os.fsync(file)
    for number in itertools.count():
        yield clocked(lambda at=number % 1024 * 4096: os.pwrite(file, PAGE, at))


def device(folder: Path):
    file = os.open(folder / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, BLOCK, 0)
    os.fsync(file)
    direct = os.open(folder / "file", os.O_RDWR | os.O_DIRECT)
    for number in itertools.count():
        yield clocked(lambda at=number % 1024 * 4096: os.pwrite(direct, PAGE, at))


CAUSES = {"lock": lock, "journal": journal, "checkpoint": checkpoint, "device": device}


def first_of_all():
    """Where it does not run though it could, a stall has a cause that was not planted."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        os.setpriority(os.PRIO_PROCESS, 0, -20)


def main() -> int:
    times = int(sys.argv[1])
    first_of_all()
    BLOCK.madvise(mmap.MADV_HUGEPAGE)
    BLOCK[:] = bytes(len(BLOCK))
    PAGE[:] = bytes(len(PAGE))
    found = []
    for word in sys.argv[2:]:
        cause, folder = word.split("=", 1)
        tries = itertools.islice(CAUSES[cause](Path(folder)), PATIENCE * times)
        stalls = (stall for stall in tries if stall[2] - stall[1] >= STALL_NS)
        found += [(cause, *stall) for stall in itertools.islice(stalls, times)]
    for stall in found:
        print(*stall)
    return 0


if __name__ == "__main__":
    sys.exit(main())
