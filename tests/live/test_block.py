# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `block` counts requests, merges and sectors as /proc/diskstats does, to the last one,
and knows who asked, for which file, and what a device has not done.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import wait_for
from disturbed import disturbed
from oracles import Log, answers

from klogger_lab.disk import Disk, loop_disk

SCHEMA = Path(__file__).resolve().parents[2] / "schemata/block/block.klogger"
# Reads, writes of two blocks, flushes and discards of a device, directly; prints its number, and
# how long its reads took.
DIRECT = """
import fcntl, mmap, os, struct, sys, time
path, reads, writes, flushes, discards = sys.argv[1], *map(int, sys.argv[2:])
fd = os.open(path, os.O_RDWR | os.O_DIRECT)
one, two = mmap.mmap(-1, 4096), mmap.mmap(-1, 8192)
took = 0
for n in range(reads):
    began = time.monotonic_ns()
    assert os.preadv(fd, [one], (n * 7919 % 4096) * 4096) == 4096
    took += time.monotonic_ns() - began
for n in range(writes):
    assert os.pwritev(fd, [two], n * 8192) == 8192
for n in range(flushes):
    os.fsync(fd)
for n in range(discards):
    fcntl.ioctl(fd, 0x1277, struct.pack("=QQ", n << 22, 1 << 20))
print(os.getpid(), took)
"""
# What a file system does with a device: data, metadata, journal, read-ahead, discards. Prints the
# inode and the bytes of a file.
FILES = """
set -e
mount $1 $2
dd if=/dev/zero of=$2/a bs=4096 count=769 conv=fsync status=none
dd if=/dev/zero of=$2/b bs=64k count=31 oflag=direct status=none
for n in 1 2 3 4 5 6 7 8 9 10 11; do
    dd if=/dev/urandom of=$2/c$n bs=512 count=1 conv=fsync status=none
done
echo 1 >/proc/sys/vm/drop_caches
cat $2/a >/dev/null
stat -c '%i %s' $2/a
rm $2/b
sync
fstrim $2
umount $2
"""
KINDS = {"reads": 0, "writes": 1, "discards": 3, "flushes": 2}
EVENTS = ("RQ_ISSUE", "RQ_DONE", "RQ_OPEN", "RQ_FLUSHED", "RQ_MERGE", "BIO_SPLIT", "RQ_REQUEUE")


def counted(disk: Disk) -> dict[str, int]:
    """What the kernel has counted: completed, merged, sectors; without times."""
    words = [int(word) for word in Path(f"/sys/block/{disk.name}/stat").read_text().split()]
    names = ["reads", "reads merged", "reads sectors", "", "writes", "writes merged",
             "writes sectors", "", "", "", "", "discards", "discards merged",
             "discards sectors", "", "flushes"]  # fmt: skip
    return {name: word for name, word in zip(names, words, strict=False) if name}


def run(*words) -> str:
    done = subprocess.run([*map(str, words)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def logged(log: Log) -> dict[str, int]:
    """The same numbers by the log."""
    found = {}
    for name, kind in KINDS.items():
        done, sectors = log.rows(
            f"SELECT count(*) FILTER (whole), coalesce(sum(bytes), 0) // 512 FROM RQ_DONE"
            f" WHERE kind = {kind}"
        )[0]
        found[name] = done
        if kind != 2:
            found[f"{name} sectors"] = sectors
            found[f"{name} merged"] = log.count("RQ_MERGE", f"kind = {kind}")
    # A write that needs a flush is done when its flushes are.
    found["writes"] += log.count("RQ_FLUSHED")
    return found


@dataclass
class Recorded:
    log: Log
    path: Path
    out: str
    counted: dict[str, int]


def record(recorder, disk: Disk, *command, options=("-a",)) -> Recorded:
    """Until the kernel has skipped no hit, as it does if a request of another disk is completed in
    between.
    """
    for _ in range(5):
        recorded = record_once(recorder, disk, *command, options=options)
        if recorded.log.count("ledger", "key = 'probe_missed'") == 0:
            return recorded
    disturbed("the kernel skipped hits in each of 5 recordings")


def record_once(recorder, disk: Disk, *command, options) -> Recorded:
    before = counted(disk)
    done, path = recorder.run(
        "-s", SCHEMA, *options, "--device", disk.device, "--buffer-size", "16M", "--", *command
    )
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert all(log.lost(event) == 0 for event in EVENTS)
    after = counted(disk)
    return Recorded(log, path, done.out, {name: after[name] - before[name] for name in after})


def test_direct_requests_are_those_of_diskstats(recorder, disk):
    recorded = record(recorder, disk, sys.executable, "-c", DIRECT, disk.device, 101, 211, 13, 7,
                      options=("-a", "--set", "issues=true"))  # fmt: skip
    log, pid = recorded.log, int(recorded.out.split()[0])
    assert logged(log) == recorded.counted
    assert (recorded.counted["reads"], recorded.counted["writes"]) == (101, 211 + 13)
    assert (recorded.counted["flushes"], recorded.counted["discards"]) == (13, 7)
    # Each once to the driver, and of this process; but for the flushes, which nobody asked for.
    assert log.count("RQ_ISSUE") == log.count("RQ_DONE") == 101 + 211 + 13 + 7
    assert log.count("RQ_ISSUE", f"pid <> {pid} AND kind <> 2") == 0
    assert log.count("RQ_DONE", f"pid <> {pid} AND kind <> 2") == 0
    assert log.count("RQ_FLUSHED", f"pid = {pid} AND took > 0") == 13
    assert log.count("RQ_DONE", f"device <> {disk.number} OR inode <> 0 OR status <> 0") == 0
    assert log.rows("SELECT DISTINCT bytes FROM RQ_DONE WHERE kind = 1") == [(8192,)]
    # Where the program reads, in its order.
    sectors = log.rows("SELECT sector FROM RQ_ISSUE WHERE kind = 0 ORDER BY time")
    assert [sector for (sector,) in sectors] == [n * 7919 % 4096 * 8 for n in range(101)]


@pytest.mark.full("depends on how busy the machine is")
def test_times_are_within_those_of_the_program(recorder, disk):
    # In the scope of a command: its own requests.
    recorded = record(
        recorder, disk, sys.executable, "-c", DIRECT, disk.device, 307, 0, 0, 0, options=()
    )
    took = int(recorded.out.split()[1])
    queued, device, least = recorded.log.rows(
        "SELECT sum(queued), sum(took), min(took) FROM RQ_DONE WHERE kind = 0"
    )[0]
    assert recorded.log.count("RQ_DONE", "kind = 0") == 307
    assert 0 < queued + device < took
    assert least > 0


@pytest.mark.full("takes more than 3 s")
def test_files_are_those_of_diskstats(recorder, disk, tmp_path):
    (folder := tmp_path / "block-files").mkdir()
    run("mkfs.ext4", "-q", "-F", disk.device)
    recorded = record(recorder, disk, "sh", "-c", FILES, "sh", disk.device, folder)
    log = recorded.log
    assert logged(log) == recorded.counted
    # All that happens is in it.
    assert all(recorded.counted[name] > 0 for name in (*KINDS, "writes merged"))
    # The pages of the file, written once and read once.
    inode, size = recorded.out.split()
    own = f"inode = {inode} AND file_system = {disk.number}"
    assert log.rows(f"SELECT kind, sum(bytes) FROM RQ_DONE WHERE {own} GROUP BY 1 ORDER BY 1") == [
        (0, int(size)),
        (1, int(size)),
    ]
    # Its metadata by the device's own file, and by the journal's thread.
    journal = "pid IN (SELECT pid FROM process WHERE comm LIKE 'jbd2/%')"
    assert log.count("RQ_DONE", f"kind = 1 AND how & 2 <> 0 AND {journal}") > 0
    assert log.count("RQ_FLUSHED", journal) >= 11
    assert log.count("RQ_DONE", "how & 128 <> 0 AND inode <> 0") == 0
    programs = {row["program"] for row in answers(recorder.klogger, recorded.path)["askers"]}
    assert {"cat", "dd", "fstrim"} <= programs


@pytest.mark.full("takes more than 3 s")
def test_answers_agree_with_the_log(recorder, disk):
    recorded = record(recorder, disk, sys.executable, "-c", DIRECT, disk.device, 23, 29, 3, 5)
    tables = answers(recorder.klogger, recorded.path)
    found = {row["kind"]: row["requests"] for row in tables["requests"]}
    assert found == {"read": 23, "write": 29 + 3, "flush": 3, "discard": 5}
    assert tables["unfinished"] == []
    assert sum(row["requests"] for row in tables["latency"]) == 23 + 29 + 3 + 5
    # One after another.
    (depth,) = tables["depth"]
    assert (depth["max"], depth["mean"]) == (1, 1)
    (writes,) = [row for row in tables["seeks"] if row["kind"] == "write"]
    assert writes["requests"] == 29
    assert writes["sequential"] == pytest.approx(28 / 29)
    assert len(tables["slowest"]) == 20


@contextlib.contextmanager
def frozen(folder: Path) -> Iterator[None]:
    run("fsfreeze", "-f", folder)
    try:
        yield
    finally:
        run("fsfreeze", "-u", folder)


# Writes of a device that does not answer, from so many threads that do not end before it does.
HANGING = """
import mmap, os, sys, threading
def write(path, n):
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    os.pwritev(fd, [mmap.mmap(-1, 4096)], n * 8192)
path, many = sys.argv[1], int(sys.argv[2])
for n in range(many):
    threading.Thread(target=write, args=(path, n)).start()
"""


@contextlib.contextmanager
def stalled(disk: Disk, folder: Path) -> Iterator[Disk]:
    """A device whose file is on a file system that is frozen, so that it completes no write."""
    folder.mkdir()
    run("mkfs.ext4", "-q", "-F", disk.device)
    run("mount", disk.device, folder)
    try:
        with loop_disk(folder / "inner", 16) as inner, frozen(folder):
            yield inner
    finally:
        # When the last of those that write has ended.
        wait_for(lambda: subprocess.run(["umount", "-q", folder], check=False).returncode == 0)


# Waits until the device has so many requests.
WAIT = """
python3 -c "$1" $2 $3 >/dev/null 2>&1 &
until grep -qx " *0 *$3" /sys/block/${2#/dev/}/inflight; do sleep 0.02; done
"""


@pytest.mark.full("takes more than 3 s")
def test_what_a_device_has_not_done(recorder, disk, tmp_path):
    with stalled(disk, tmp_path / "block-frozen") as inner:
        command = ["sh", "-c", WAIT, "sh", HANGING, inner.device, "3"]
        done, path = recorder.run("-s", SCHEMA, "-a", "--device", inner.device, "--", *command)
        assert done.code == 0, done.err
    unfinished = answers(recorder.klogger, path)["unfinished"]
    assert {row["device"] for row in unfinished} == {inner.name}
    assert sorted(row["what"] for row in unfinished) == [
        f"write of 4 KiB at {16 * n}" for n in range(3)
    ]
    log = Log(recorder.klogger, path)
    assert log.rows("SELECT kind, count(*) FROM RQ_OPEN GROUP BY 1") == [(1, 3)]


ALL_WAIT = """
python3 -c "$1" $2 $3 >/dev/null 2>&1 &
until [ "$(cat /proc/$!/task/*/stat 2>/dev/null | grep -c ') D ')" -eq $3 ]; do sleep 0.02; done
"""


@pytest.mark.full("takes more than 3 s")
def test_a_full_table_is_in_the_ledger(recorder, disk, tmp_path):
    with stalled(disk, tmp_path / "block-frozen") as inner:
        # There is room for twice 64, rounded up. The device takes 128; the others wait for it.
        command = ["sh", "-c", ALL_WAIT, "sh", HANGING, inner.device, "256"]
        done, path = recorder.run(
            "-s", SCHEMA, "-a", "--device", inner.device, "--set", "bios=64", "--", *command
        )
        assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.one("SELECT sum(count) FROM ledger WHERE key = 'state_full'") > 0
