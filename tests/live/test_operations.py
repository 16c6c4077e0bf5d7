# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `operations` has what a program planted, as often as strace counts, and as long as by
the program's own clock.
"""

import errno
import os
import re
import shutil
import statistics
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from conftest import rings_allowed
from oracles import Log, answers

from klogger_lab.disk import loop_disk

MKFS = ["mkfs.ext4", "-q", "-F"]
SCHEMA = Path(__file__).resolve().parents[2] / "schemata/operations/operations.klogger"
NAME = """(
    SELECT regexp_replace(text, '^.* ', '') FROM decoding WHERE decoding = 'place' AND value = call
)"""
# What programs do beside, when they begin and end.
BESIDE = {"openat", "close", "read", "pread64"}


class Planted:
    """A recording of the program, and what it printed."""

    def __init__(self, recorder, workloads, folder: Path):
        self.command = [workloads / "planted_operations", folder]
        done, self.path = recorder.run("-s", SCHEMA, "--", *self.command)
        assert done.code == 0, done.err
        self.log = Log(recorder.klogger, self.path)
        assert all(self.log.lost(event) == 0 for event in ("FILE_CALL", "NAME_CALL"))
        self.calls, self.clocks = Counter(), []
        for first, *numbers in map(str.split, done.out.splitlines()):
            if first == "clock":
                self.clocks.append(tuple(map(int, numbers)))
            else:
                self.calls[first, int(numbers[0])] += int(numbers[1])
        self.since = self.log.one("SELECT max(time) FROM PROCESS_EXEC")
        self.answers = answers(recorder.klogger, self.path)

    def counted(self) -> Counter:
        rows = self.log.rows(f"""
            SELECT call, greatest(-result, 0), count(*) FROM (
                SELECT {NAME} AS call, result FROM FILE_CALL WHERE time > {self.since}
                UNION ALL SELECT {NAME}, result FROM NAME_CALL WHERE time > {self.since}
            ) GROUP BY ALL
        """)
        return Counter({(call, error): times for call, error, times in rows})


@pytest.fixture(scope="module")
def planted(recorder_for_all, workloads):
    with loop_disk(recorder_for_all.dir / "disk", 64, mkfs=MKFS) as disk:
        found = Planted(recorder_for_all, workloads, disk.folder)
        found.folder, found.device = disk.folder, disk.number
        yield found


def test_each_planted_operation_is_there(planted):
    found = planted.counted()
    assert len(planted.calls) >= 30
    for (call, error), times in planted.calls.items():
        more = found[call, error] - times
        assert more == 0 if error or call not in BESIDE else 0 <= more <= 8, (call, error, more)
    # By file: one of the two was written, and read, by all of these.
    log, here = planted.log, f"device = {planted.device}"
    inode = log.one(f"SELECT min(inode) FROM FILE_CALL WHERE {here} AND {NAME} = 'pwrite64'")
    bytes_of = f"SELECT sum(result) FROM FILE_CALL WHERE {here} AND inode = {inode} AND {NAME}"
    assert log.one(f"{bytes_of} = 'write'") == 101 * 509
    assert log.one(f"{bytes_of} = 'writev'") == 37 * 111
    assert log.one(f"{bytes_of} = 'pread64'") == 67 * 701
    # Where they began.
    at = f"SELECT list(position ORDER BY time) FROM FILE_CALL WHERE {here} AND {NAME}"
    assert log.one(f"{at} = 'write'") == [509 * n for n in range(101)]
    assert log.one(f"{at} = 'writev'") == [509 * 101 + 111 * n for n in range(37)]
    assert log.one(f"{at} = 'pwrite64'") == [4096 * n for n in range(53)]
    assert log.one(f"{at} = 'pwritev2'") == [100 * n for n in range(23)]
    assert log.one(f"{at} = 'preadv'") == list(range(31))
    assert log.one(f"{at} = 'fallocate'") == [65536 * n for n in range(7)]
    assert log.one(f"{at} = 'copy_file_range'") == [1009 * n for n in range(3)]
    assert log.one(f"{at} = 'sendfile'") == [307 * n for n in range(13)]
    assert log.one(f"{at} = 'splice'") == [3 * 1009 + 100 * n for n in range(7)]
    systems = log.rows(f"SELECT DISTINCT device, disk, type FROM FILE_SYSTEM WHERE {here}")
    assert systems == [(planted.device, planted.device, "ext4")]


@pytest.mark.full("depends on how busy the machine is")
def test_durations_are_those_of_the_programs_clock(planted):
    rows = planted.log.rows(f"""
        SELECT time - took, time FROM FILE_CALL
        WHERE {NAME} IN ('fsync', 'pwrite64') AND device = {planted.device} ORDER BY time
    """)
    assert len(rows) == len(planted.clocks) == 53 + 41
    start = planted.log.start_ns
    ours = [(begun + start, ended + start) for begun, ended in rows]
    # Each is within what the program measured; a nanosecond is lost where the clock is converted.
    outside = [
        (own, one) for own, one in zip(planted.clocks, ours, strict=True)
        if own[0] - one[0] > 1000 or one[1] - own[1] > 1000
    ]  # fmt: skip
    assert outside == []
    more = [to - begun - (ended - since)
            for (begun, to), (since, ended) in zip(planted.clocks, ours, strict=True)]  # fmt: skip
    assert statistics.median(more) < 50_000


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not here: scripts/setup test")
def test_as_many_as_strace_counts(planted, tmp_path):
    for file in planted.folder.iterdir():
        file.unlink() if not file.is_dir() else None
    said = tmp_path / "strace"
    done = subprocess.run(
        ["strace", "-f", "-c", "-o", said, *planted.command],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    line = re.compile(r"^ +[\d.]+ +[\d.]+ +\d+ +(\d+) +(\d+)? +(\w+)$", re.M)
    strace = {call: (int(calls), int(errors or 0)) for calls, errors, call in
              line.findall(said.read_text())}  # fmt: skip
    ours = {call: [0, 0] for call, _ in planted.counted()}
    for (call, error), times in planted.counted().items():
        ours[call][0] += times
        ours[call][1] += times if error else 0
    # What is written to the standard output and to the pipe is to no file.
    compared = set(ours) - {"write"}
    assert {"openat", "fsync", "close", "rename", "splice"} <= compared
    assert {call: tuple(ours[call]) for call in compared} == {c: strace[c] for c in compared}
    assert strace["write"][0] - ours["write"][0] == 1 + 1


# Leaves a child that waits for somebody to open the other end.
WAITS = """
cat "$1" & echo $!
tries=0
until grep -q partner /proc/$!/wchan || [ $tries -ge 1200 ]; do
    sleep 0.05; tries=$((tries + 1))
done
"""


@pytest.mark.full("others of this file are in the gate")
def test_a_call_that_has_not_returned_is_in_the_log(recorder, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    out = tmp_path / "said"
    command = ["sh", "-c", f"({WAITS}) >{out} 2>&1", "sh", tmp_path / "fifo"]
    try:
        done, path = recorder.run("-s", SCHEMA, "--", *command)
    finally:
        # The child goes on, and finds the end of the file.
        os.close(os.open(tmp_path / "fifo", os.O_WRONLY | os.O_NONBLOCK))
    assert done.code == 0, done.err
    rows = Log(recorder.klogger, path).rows(f"SELECT {NAME}, tid FROM STUCK_CALL")
    assert rows == [("openat", int(out.read_text()))]


@pytest.mark.full("others of this file are in the gate")
def test_requests_of_io_uring(recorder, workloads, tmp_path):
    with loop_disk(tmp_path / "disk", 64, mkfs=MKFS) as disk, rings_allowed():
        done, path = recorder.run("-s", SCHEMA, "--", workloads / "ring_files", disk.folder)
        device = disk.number
    if done.code == 77:
        pytest.skip("this kernel has no io_uring")
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    rows = log.rows(f"""
        SELECT (SELECT text FROM decoding WHERE decoding = 'ring_operation' AND value = op),
               count(*), count(*) FILTER (device = {device}), sum(asked)
        FROM RING_CALL GROUP BY 1
    """)
    assert {call: counts for call, *counts in rows} == {
        # One of the two opens finds nothing.
        "openat": [2, 1, 0], "close": [1, 1, 0],
        "write": [37, 37, 37 * 101], "read": [41, 41, 41 * 53],
    }  # fmt: skip
    assert log.one("SELECT min(result) FROM RING_CALL") == -errno.ENOENT
    assert log.one("SELECT count(DISTINCT tid) FROM RING_CALL") == 1
