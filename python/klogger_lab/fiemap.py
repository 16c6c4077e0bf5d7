# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where a file is on the disk, as the kernel says it: the ioctl FS_IOC_FIEMAP, and FIBMAP for file
systems that have no other.
"""

import array
import fcntl
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

FS_IOC_FIEMAP = 0xC020660B
FIBMAP = 1
SYNC = 0x1
# Of an extent: it is the file's last; it has no place on the disk yet; its bytes are compressed or
# encrypted; they are within metadata; it reads as zeros.
LAST, UNKNOWN, DELALLOC, ENCODED = 0x1, 0x2, 0x4, 0x8
INLINE, UNWRITTEN, SHARED = 0x200, 0x800, 0x2000

HEAD = struct.Struct("=QQLLLL")
ROW = struct.Struct("=QQQQQLLLL")
WHOLE = 0x7FFFFFFFFFFFFFFF
AT_ONCE = 500


@dataclass(frozen=True)
class Extent:
    """All in bytes. `physical` is a place on the device, but of btrfs its logical address."""

    logical: int
    physical: int
    length: int
    flags: int

    @property
    def unwritten(self) -> bool:
        return bool(self.flags & UNWRITTEN)


def fiemap(fd: int, flags: int = SYNC) -> list[Extent]:
    """All extents of an open file; what is still in memory is written first."""
    found: list[Extent] = []
    start = 0
    while True:
        head = HEAD.pack(start, WHOLE - start, flags, 0, AT_ONCE, 0)
        answer = bytearray(head + bytes(AT_ONCE * ROW.size))
        fcntl.ioctl(fd, FS_IOC_FIEMAP, answer)
        rows = HEAD.unpack_from(answer)[3]
        for number in range(rows):
            row = ROW.unpack_from(answer, HEAD.size + number * ROW.size)
            found.append(Extent(row[0], row[1], row[2], row[5]))
        if not rows or found[-1].flags & LAST:
            return found
        start = found[-1].logical + found[-1].length


def placed(extents: Iterable[Extent]) -> list[Extent]:
    """Those that have a place of their own on the disk. (What f2fs preallocates has none.)"""
    none = UNKNOWN | DELALLOC | INLINE
    return [e for e in extents if not e.flags & none and (e.physical or not e.unwritten)]


def joined(extents: Iterable[Extent], keep: int = UNWRITTEN) -> list[Extent]:
    """Without borders between neighbours in the file and on the disk, if they have equal flags, of
    those in `keep`: how many records a file system has for them is its own affair.
    """
    found: list[Extent] = []
    for extent in sorted(extents, key=lambda e: e.logical):
        after = replace(extent, flags=extent.flags & keep)
        if found and follows(found[-1], after) and found[-1].flags == after.flags:
            found[-1] = replace(found[-1], length=found[-1].length + after.length)
        else:
            found.append(after)
    return found


def follows(one: Extent, other: Extent) -> bool:
    return (one.logical + one.length, one.physical + one.length) == (other.logical, other.physical)


def fibmap(fd: int, block_size: int) -> list[Extent]:
    """By one question for each block: for file systems without FIEMAP, such as FAT."""
    os.fsync(fd)
    blocks = -(-os.fstat(fd).st_size // block_size)
    found = []
    for block in range(blocks):
        number = array.array("i", [block])
        fcntl.ioctl(fd, FIBMAP, number)
        if number[0]:
            found.append(Extent(block * block_size, number[0] * block_size, block_size, 0))
    return joined(found)
