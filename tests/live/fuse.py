#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A server of a FUSE file system, without libfuse: `fuse.py SOURCE MOUNT` shows the files of a
folder, to be read, run and written, until it is unmounted. Nothing that it says stays valid, so
the kernel asks for everything; stopped, it answers as little as a server beyond a broken network.
`fuse.py SOURCE MOUNT KIND N` stops itself when the Nth request of a kind comes.
"""

import ctypes
import os
import signal
import stat
import struct
import sys

LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 14, 15, 17, 18
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, ACCESS, INTERRUPT = 25, 26, 27, 28, 29, 34, 36
BATCH_FORGET = 42
HEADER = struct.Struct("<IIQQIIII")
READING = struct.Struct("<QQIIQII")
ROOT = 1
REQUEST_MAX = 1 << 20
CREATE = os.O_CREAT | os.O_EXCL | os.O_WRONLY
SIZE = 1 << 3
NOENT, NOSYS = 2, 38


class Server:
    """Each file has the number of its place in a list."""

    def __init__(self, source: str):
        self.paths = [source]

    def attributes(self, number: int) -> bytes:
        found = os.stat(self.paths[number - 1])
        times = [int(t) for t in (found.st_atime, found.st_mtime, found.st_ctime)]
        words = (found.st_mode, found.st_nlink, 0, 0, 0, 4096, 0)
        return struct.pack("<6Q3I7I", number, found.st_size, found.st_size // 512 + 1, *times,
                           0, 0, 0, *words)  # fmt: skip

    def lookup(self, node: int, body: bytes) -> bytes:
        path = os.path.join(self.paths[node - 1], os.fsdecode(body.rstrip(b"\0")))
        if not os.path.exists(path):
            raise OSError(NOENT, path)
        if path not in self.paths:
            self.paths.append(path)
        number = self.paths.index(path) + 1
        return struct.pack("<4Q2I", number, 0, 0, 0, 0, 0) + self.attributes(number)

    def read(self, node: int, body: bytes) -> bytes:
        _, offset, size, *_ = READING.unpack_from(body)
        with open(self.paths[node - 1], "rb") as file:
            file.seek(offset)
            return file.read(size)

    def create(self, node: int, body: bytes) -> bytes:
        name = body[16:].rstrip(b"\0")
        os.close(os.open(os.path.join(self.paths[node - 1], os.fsdecode(name)), CREATE, 0o600))
        return self.lookup(node, name) + struct.pack("<QII", 0, 0, 0)

    def make_folder(self, node: int, body: bytes) -> bytes:
        name = body[8:].rstrip(b"\0")
        os.mkdir(os.path.join(self.paths[node - 1], os.fsdecode(name)), 0o700)
        return self.lookup(node, name)

    def rename(self, node: int, body: bytes) -> bytes:
        (folder,) = struct.unpack_from("<Q", body)
        old, new = (os.fsdecode(name) for name in body[8:].split(b"\0")[:2])
        old = os.path.join(self.paths[node - 1], old)
        new = os.path.join(self.paths[folder - 1], new)
        os.rename(old, new)
        self.paths = [new if path == old else path for path in self.paths]
        return b""

    def unlink(self, node: int, body: bytes) -> bytes:
        os.unlink(os.path.join(self.paths[node - 1], os.fsdecode(body.rstrip(b"\0"))))
        return b""

    def write(self, node: int, body: bytes) -> bytes:
        _, offset, size, *_ = READING.unpack_from(body)
        with open(self.paths[node - 1], "r+b") as file:
            file.seek(offset)
            file.write(body[READING.size : READING.size + size])
        return struct.pack("<II", size, 0)

    def change(self, node: int, body: bytes) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        if valid & SIZE:
            os.truncate(self.paths[node - 1], size)
        return struct.pack("<QII", 0, 0, 0) + self.attributes(node)

    def names(self, node: int, body: bytes) -> bytes:
        _, offset, *_ = READING.unpack_from(body)
        found = b""
        names = sorted(os.listdir(self.paths[node - 1]))
        for at, name in list(enumerate(map(os.fsencode, names)))[offset:]:
            entry = struct.pack("<QQII", at + 100, at + 1, len(name), 0) + name
            found += entry.ljust(-(-len(entry) // 8) * 8, b"\0")
        return found

    def answer(self, kind: int, node: int, body: bytes) -> bytes:
        changes = {
            4: self.change, 9: self.make_folder, 10: self.unlink, 12: self.rename,
            16: self.write, 35: self.create,
        }  # fmt: skip
        if kind in changes:
            return changes[kind](node, body)
        match kind:
            case 26:
                flags = struct.pack("<IIII", 7, 31, 65536, 0)
                return flags + struct.pack("<HHIIHHI", 16, 12, 65536, 1, 0, 0, 0) + bytes(28)
            case 1:
                return self.lookup(node, body)
            case 3:
                return struct.pack("<QII", 0, 0, 0) + self.attributes(node)
            case 14 | 27:
                return struct.pack("<QII", 0, 0, 0)
            case 15:
                return self.read(node, body)
            case 28:
                return self.names(node, body)
            case 17:
                return struct.pack("<5Q4I", 0, 0, 0, 0, 0, 4096, 255, 4096, 0) + bytes(24)
            # Not FLUSH: whoever ends would wait for its answer, beyond SIGKILL.
            case 18 | 20 | 29 | 34:
                return b""
        raise OSError(NOSYS, "")


def serve(source: str, mount: str, stop_at: int = 0, count: int = 0) -> None:
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode={stat.S_IFDIR:o},user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"klogger-test", os.fsencode(mount), b"fuse", 0, options.encode()):
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    server = Server(source)
    while True:
        try:
            request = os.read(device, REQUEST_MAX)
        except OSError:
            # It was unmounted.
            return
        _, kind, unique, node, *_ = HEADER.unpack_from(request)
        if kind in (FORGET, BATCH_FORGET, INTERRUPT):
            continue
        count -= kind == stop_at
        if kind == stop_at and count == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        try:
            error, body = 0, server.answer(kind, node, request[HEADER.size :])
        except OSError as e:
            error, body = -(e.errno or NOSYS), b""
        os.write(device, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


if __name__ == "__main__":
    serve(*sys.argv[1:3], *map(int, sys.argv[3:]))
