# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is done to a small XFS while it is recorded: xfs_load.py WHAT FOLDER [MORE]. It prints what
it knows as JSON.

Python that the guest of the tests has too: only the standard library.
"""

import json
import os
import re
import subprocess
import sys
import time

PATIENCE = 60.0
# A write of one byte that takes longer has waited.
HELD_NS = 500_000


def statistics(device: str) -> dict[str, list[int]]:
    """The kernel's own counters of one file system."""
    with open(f"/sys/fs/xfs/{device}/stats/stats") as file:
        lines = [line.split() for line in file]
    return {name: [int(word) for word in words] for name, *words in lines}


def many(workers: int, work) -> None:
    children = []
    for number in range(workers):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(number)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    for child in children:
        _, status = os.waitpid(child, 0)
        assert status == 0, "a worker failed"


def make(path: str, content: bytes = b"") -> None:
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    if content:
        os.write(file, content)
    os.close(file)


def counters(folder: str, device: str) -> dict:
    """Names come and go until threads have slept for space in the log, and data as well.

    At the beginning and at the end it is frozen: nothing moves, so that counters are exact.
    """
    before = statistics(device)
    subprocess.run(["/sbin/fsfreeze", "-u", folder], check=True)
    until = time.monotonic() + PATIENCE

    def names(number: int) -> None:
        own = f"{folder}/{number}"
        os.mkdir(own)
        turn = 0
        while turn < 3 or statistics(device)["push_ail"][1] < 5:
            assert time.monotonic() < until, "nobody slept for space in the log"
            for n in range(211):
                make(f"{own}/{n}", b"x" * 5000 if n % 7 == 0 else b"")
            if turn == 1:
                os.fsync(os.open(f"{own}/0", os.O_RDONLY))
            for n in range(199):
                os.unlink(f"{own}/{n}")
            turn += 1

    many(6, names)
    # It stays frozen until the recording has ended.
    subprocess.run(["/sbin/fsfreeze", "-f", folder], check=True)
    return {"before": before, "after": statistics(device)}


# (names that are made, that stay)
DIRECTORIES = [
    (3, 3), (7, 2), (13, 0), (37, 37), (41, 29), (53, 1), (211, 211), (307, 23), (401, 19),
    (401, 0), (607, 607), (613, 401), (617, 31), (619, 3), (601, 0),
]  # fmt: skip
# For a machine that is emulated.
FEW = [(3, 3), (13, 0), (37, 37), (53, 1), (211, 211), (607, 607), (601, 0)]
ATTRIBUTES = [(1, 1), (5, 0), (23, 23), (29, 1), (97, 97), (101, 0)]
LONG = "x" * 61


def formats(folder: str, directories=DIRECTORIES) -> dict:
    """Directories and attributes grow and shrink by long names."""
    told = {}
    for number, (made, left) in enumerate(directories):
        own = f"{folder}/d{number}"
        os.mkdir(own)
        for n in range(made):
            make(f"{own}/{n:04}{LONG}")
        for n in range(left, made):
            os.unlink(f"{own}/{n:04}{LONG}")
        told[os.stat(own).st_ino] = [made, left]
    attributes = {}
    for number, (made, left) in enumerate(ATTRIBUTES):
        path = f"{folder}/a{number}"
        make(path)
        for n in range(made):
            os.setxattr(path, f"user.{n:04}", b"v" * 89)
        for n in range(left, made):
            os.removexattr(path, f"user.{n:04}")
        attributes[os.stat(path).st_ino] = [made, left]
    os.sync()
    return {"directories": told, "attributes": attributes}


def both(folder: str, device: str) -> dict:
    """Formats, and fsyncs, with counters from before and after, when it is frozen."""
    before = statistics(device)
    subprocess.run(["/sbin/fsfreeze", "-u", folder], check=True)
    told = formats(folder, FEW)
    for n in range(7):
        make(f"{folder}/f{n}", b"x" * 5000)
        os.fsync(os.open(f"{folder}/f{n}", os.O_RDONLY))
    subprocess.run(["/sbin/fsfreeze", "-f", folder], check=True)
    return told | {"before": before, "after": statistics(device)}


def fsyncs(folder: str) -> dict:
    """53 calls each by 3 threads, by their own clocks (ns)."""
    took = []
    for number in range(3):
        file = os.open(f"{folder}/s{number}", os.O_CREAT | os.O_WRONLY)
        for _ in range(53):
            os.write(file, bytes(8192))
            began = time.monotonic_ns()
            os.fsync(file)
            took.append(time.monotonic_ns() - began)
        os.close(file)
    return {"took": took}


def held(folder: str) -> dict:
    """A thread writes a byte to a file while another one is in the middle of a long write to it:
    until it has come at the right time 11 times.
    """
    path = f"{folder}/held"
    make(path)
    took, large = [], bytes(24 << 20)
    until = time.monotonic() + PATIENCE
    while sum(one > HELD_NS for one in took) < 11:
        assert time.monotonic() < until, "nobody waited for the file"
        ready, says = os.pipe()
        child = os.fork()
        if child == 0:
            file = os.open(path, os.O_WRONLY)
            os.write(says, b"x")
            os.write(file, large)
            os._exit(0)
        file = os.open(path, os.O_WRONLY)
        os.read(ready, 1)
        time.sleep(0.001)
        began = time.monotonic_ns()
        os.pwrite(file, b"x", 0)
        took.append(time.monotonic_ns() - began)
        os.waitpid(child, 0)
        for descriptor in (ready, says, file):
            os.close(descriptor)
    return {"took": took, "inode": os.stat(path).st_ino}


def pieces(folder: str) -> dict:
    """A file with a hole behind each block; another one of which half is given back."""
    block, found = 4096, {}
    for name, many_pieces, holes in (("p", 503, 0), ("q", 307, 304)):
        path = f"{folder}/{name}"
        file = os.open(path, os.O_CREAT | os.O_RDWR)
        for n in range(many_pieces):
            os.pwrite(file, b"y" * block, 2 * n * block)
        os.fsync(file)
        os.ftruncate(file, 2 * (many_pieces - holes) * block)
        os.fsync(file)
        os.close(file)
        found[path] = os.stat(path).st_ino
    return {"inodes": found}


def planted(folder: str) -> dict:
    return {"fsyncs": fsyncs(folder), "held": held(folder), "pieces": pieces(folder)}


def gone(folder: str) -> dict:
    """997 files are removed. Until its queue is full, the worker that ends them is kept waiting:
    it is of the same CPU.
    """
    for n in range(997):
        make(f"{folder}/{n}")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    for n in range(997):
        os.unlink(f"{folder}/{n}")
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    # Waits until all inodes without users are done with.
    subprocess.run(["/sbin/fsfreeze", "-f", folder], check=True)
    return {}


# Of the first block behind the entries: of the hash table, and of the list of free space.
LEAF, NODE = 8388608, 16777216
MAGIC_OF_NODE = "0x3ebe"


def database(device: str, *commands: str) -> str:
    """What xfs_db finds on the disk, which is not mounted."""
    words = ["/usr/sbin/xfs_db", "-r", *(word for line in commands for word in ("-c", line))]
    done = subprocess.run([*words, device], capture_output=True, text=True, check=True)
    return done.stdout


def directory_on_disk(device: str, inode: int) -> str:
    """Its format, from where its blocks are."""
    text = database(device, f"inode {inode}", "print core.format", "bmap")
    if "(local)" in text:
        return "short"
    last = max(int(word) for word in re.findall(r"data offset (\d+)", text))
    return "node" if last >= NODE else "leaf" if last >= LEAF else "block"


def attributes_on_disk(device: str, inode: int) -> str:
    text = database(device, f"inode {inode}", "print core.aformat", "bmap -a")
    block = re.search("attr offset 0 startblock ([0-9]+)", text)
    if "(local)" in text or not block:
        return "short"
    magic = database(device, f"fsblock {block[1]}", "type attr3", "print hdr.info.hdr.magic")
    return "node" if MAGIC_OF_NODE in magic else "leaf"


def look(device: str, told: str) -> dict:
    """The formats that are on the disk."""
    parts = json.loads(told)
    return {
        key: {inode: of(device, int(inode)) for inode in parts[key]}
        for key, of in (("directories", directory_on_disk), ("attributes", attributes_on_disk))
    }


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    print(json.dumps(globals()[what](*words)))
