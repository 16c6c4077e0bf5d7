# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""_edits.py FOLDER SIZE METHOD...: cuts the second half of a file of SIZE bytes, and pastes it
at the end of another one, by each of the methods, on the file system of FOLDER.

Prints a JSON line for each method: when it began and ended (ns of CLOCK_MONOTONIC), the sectors of
the device that were read and written in between by the kernel's count, and whether both files are
what they should be. A method that the file system does not have has only its error.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

try:
    from . import _library as library
except ImportError:
    import _library as library  # run as a program, by its path

STEP = 65536
FICLONERANGE = 0x4020940D
FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE = 0x08, 0x20
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def checked(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    checked(LIBC.fallocate(fd, mode, offset, length))


def copy(source: int, at: int, target: int, to: int, length: int) -> None:
    for done in range(0, length, STEP):
        os.pwrite(target, os.pread(source, min(STEP, length - done), at + done), to + done)


def by_copying(source: int, target: int, half: int) -> None:
    """The second half is read, appended to the other file, and cut off."""
    copy(source, half, target, os.fstat(target).st_size, half)
    os.ftruncate(source, half)


def by_reflink(source: int, target: int, half: int) -> None:
    """The other file shares the blocks."""
    end = os.fstat(target).st_size
    words = source.to_bytes(8, "little") + half.to_bytes(8, "little")
    fcntl.ioctl(
        target, FICLONERANGE, words + half.to_bytes(8, "little") + end.to_bytes(8, "little")
    )
    os.ftruncate(source, half)


def within_by_copying(source: int, _: int, half: int) -> None:
    """In one file: its second quarter is cut, and as much room is made at its begin, by moving all
    that stands behind."""
    quarter = half // 2
    size = 2 * half
    copy(source, half, source, quarter, half)
    # From the end on, for the ranges overlap.
    for at in reversed(range(0, size - quarter, STEP)):
        length = min(STEP, size - quarter - at)
        os.pwrite(source, os.pread(source, length, at), at + quarter)
    for at in range(0, quarter, STEP):
        os.pwrite(source, bytes(min(STEP, quarter - at)), at)


def within_by_ranges(source: int, _: int, half: int) -> None:
    """The same by collapse range and insert range."""
    fallocate(source, FALLOC_FL_COLLAPSE_RANGE, half // 2, half // 2)
    fallocate(source, FALLOC_FL_INSERT_RANGE, 0, half // 2)


METHODS: dict[str, Callable[[int, int, int], None]] = {
    "copy loop": by_copying,
    "reflink": by_reflink,
    "copy loop, within": within_by_copying,
    "collapse + insert": within_by_ranges,
}


def sectors(folder: Path) -> tuple[int, int]:
    """Read and written, of the device of a folder."""
    device = folder.stat().st_dev
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        # The file system's own device number may not be its disk's.
        words = line.split()
        if Path(words[4]) == folder:
            device = os.stat(words[words.index("-") + 2]).st_rdev
    name = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat"
    words = Path(name).read_text().split()
    return int(words[2]), int(words[6])


def sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    checked(LIBC.syncfs(fd))
    os.close(fd)


def forget(*fds: int) -> None:
    """What the page cache has of these files, which is written already."""
    for fd in fds:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def contents(size: int) -> tuple[bytes, bytes]:
    """Of the two files, of which the second has half the size."""
    return random.Random(1).randbytes(size), random.Random(2).randbytes(size // 2)


def edit(folder: Path, size: int, method: str) -> dict:
    half = size // 2
    first, second = contents(size)
    files = [folder / "a", folder / "b"]
    for file, data in zip(files, (first, second), strict=True):
        file.write_bytes(data)
    fds = [os.open(file, os.O_RDWR) for file in files]
    try:
        sync(folder)
        forget(*fds)
        said = timed(folder, lambda: METHODS[method](fds[0], fds[1], half))
        if "within" in method or "collapse" in method:
            quarter = half // 2
            expected = [bytes(quarter) + first[:quarter] + first[half:], second]
        else:
            expected = [first[:half], second + first[half:]]
        said["right"] = [file.read_bytes() for file in files] == expected
        return said
    finally:
        for fd, file in zip(fds, files, strict=True):
            os.close(fd)
            file.unlink()
        sync(folder)


def timed(folder: Path, action: Callable[[], None]) -> dict:
    before, begun = sectors(folder), time.monotonic_ns()
    action()
    edited = time.monotonic_ns()
    sync(folder)
    ended, after = time.monotonic_ns(), sectors(folder)
    return {
        "begun": begun, "edited": edited, "ended": ended,
        "read": after[0] - before[0], "written": after[1] - before[1],
    }  # fmt: skip


def in_library(folder: Path, size: int) -> dict:
    """By a library whose files are rows of a database: only rows change."""
    half = size // 2
    first, second = contents(size)
    with library.open_in(folder, 2 * size) as files:
        files.append("a", first)
        files.append("b", second)
        files.commit()
        sync(folder)
        said = timed(folder, lambda: (files.move("a", half, half, "b"), files.commit()))
        said["right"] = (files.read("a"), files.read("b")) == (first[:half], second + first[half:])
    sync(folder)
    return said


def main(words: list[str]) -> None:
    folder, size = Path(words[0]).resolve(), int(words[1])
    for method in words[2:]:
        try:
            said = in_library(folder, size) if method == "library" else edit(folder, size, method)
        except OSError as error:
            said = {"error": error.strerror or str(error)}
        print(json.dumps({"method": method, **said}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
