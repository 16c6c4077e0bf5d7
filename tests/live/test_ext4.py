# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `ext4` has what the journal counts itself, the calls by the program's own clock, and
the blocks that the kernel says a file has.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import ext4_calls
import pytest
from conftest import limited
from oracles import Log, answers, workload_json

from klogger_lab.disk import loop_disk, unmount

SCHEMA = Path(__file__).resolve().parents[2] / "schemata/ext4/ext4.klogger"
MKFS = [
    "mkfs.ext4",
    "-q",
    "-b",
    "1024",
    "-J",
    "size=4",
    "-E",
    "lazy_itable_init=0,lazy_journal_init=0",
]

pytestmark = pytest.mark.skipif(
    not shutil.which("mkfs.ext4") or not Path("/dev/loop-control").exists(),
    reason="a loop device and mkfs.ext4 are needed",
)


def record(klogger, path, *command, options=()) -> str:
    words = [klogger, "record", "-q", "-s", SCHEMA, "-o", path, *options, "--", *command]
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def recorded(klogger, workloads, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ext4-calls")
    place = folder / "place"
    place.mkdir()
    with loop_disk(folder / "disk", 128, mkfs=MKFS, mount=False) as disk:
        path = folder / "calls.klog"
        try:
            # It is mounted within the recording, so that the journal's account has nothing else.
            out = record(klogger, path, workloads / "ext4_calls", disk.device, place)
        finally:
            if place.is_mount():
                unmount(place)
        yield ext4_calls.Recorded(Log(klogger, path), path, disk.number, workload_json(out))
    shutil.rmtree(folder, ignore_errors=True)


def test_nothing_is_lost(recorded):
    assert recorded.log.one("SELECT coalesce(sum(lost), 0) FROM event") == 0


@pytest.mark.parametrize("check", ext4_calls.CHECKS, ids=lambda check: check.__name__)
def test_calls(recorded, check):
    check(recorded)


def test_the_analyses_have_the_same_numbers(recorded, klogger):
    tables = answers(klogger, recorded.path)
    device = f"loop{recorded.device & 0xFFFFF}"

    def of(name: str) -> list[dict]:
        return [row for row in tables[name] if row["device"] == device]

    (commits,) = of("commits")
    assert commits["commits"] == recorded.report["info"][0]
    assert commits["asked_by"] == "ext4_calls"
    (syncs,) = of("fsyncs")
    assert (syncs["program"], syncs["calls"]) == ("ext4_calls", 101 + 53)
    assert sum(row["handles"] for row in of("handles")) == recorded.count("HANDLE")
    (call,) = of("fallocates")
    assert call["pieces"] == recorded.count("ALLOC", ext4_calls.in_fallocate(recorded))
    (direct,) = [row for row in of("dio_locks") if row["inode"] == recorded.report["direct"]]
    assert (direct["writers"], direct["requests"]) == (4, 4 * 47 + 31)
    assert direct["waits"] >= 1


@pytest.mark.full("takes more than 3 s")
def test_a_buffered_write_has_its_time_for_each_page(klogger, tmp_path):
    """With `least=0`. Each write of one block of its own folio; the time is within the write's."""
    writes = 53
    program = f"""
import os, sys, time
file = os.open(sys.argv[1] + "/pages", os.O_RDWR | os.O_CREAT)
began = time.monotonic_ns()
for n in range({writes}): os.pwrite(file, b"x" * 512, n * 65536)
print(os.fstat(file).st_ino, time.monotonic_ns() - began)
"""
    with loop_disk(tmp_path / "disk", 16, mkfs=MKFS) as disk:
        out = record(
            klogger, tmp_path / "pages.klog", sys.executable, "-I", "-c", program, disk.folder,
            options=("--set", "least=0"),
        )  # fmt: skip
        number = disk.number
    inode, took = map(int, out.split())
    log = Log(klogger, tmp_path / "pages.klog")
    rows = log.rows(f"""
        SELECT position, length, took FROM call
        WHERE what = 4 AND inode = {inode} AND device = {number} ORDER BY time
    """)
    assert [row[:2] for row in rows] == [(n * 65536, 512) for n in range(writes)]
    assert all(row[2] > 0 for row in rows) and sum(row[2] for row in rows) <= took


@pytest.mark.full("takes more than 3 s")
def test_a_request_that_has_no_room_is_in_the_ledger(klogger, workloads, tmp_path):
    """Each request is in the log, or counted as one that could not be remembered."""
    path = tmp_path / "requests.klog"
    mkfs = ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0"]
    with loop_disk(tmp_path / "disk", 64, mkfs=mkfs) as disk:
        # Many are under way at a time, however fast the device is.
        limits = (
            ("/sys/fs/cgroup/blkio", {"blkio.throttle.read_iops_device": f"{disk.text} 2000"}),
            ("/sys/fs/cgroup", {"io.max": f"{disk.text} riops=2000"}),
        )
        with limited("a limit of reads", *limits) as group:
            command = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', group,
                       workloads / "ext4_requests", disk.folder / "file"]  # fmt: skip
            out = record(klogger, path, *command, options=["--set", "direct_io=16"])
    done = workload_json(out)
    assert done["whole"] == done["requests"] == 23 * 128
    log = Log(klogger, path)
    logged = log.count("DIRECT", f"device = {disk.number} AND NOT writes AND result = 4096")
    full = log.one("SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'state_full'")
    assert logged + full == done["requests"]
    # Of 128 that are submitted together more than 32 are under way at some time.
    assert full > 0
    assert log.count("DIRECT", f"device = {disk.number} AND writes") == 16


# Two processes that make more directories and files than a journal of 1 MiB holds.
MANY = """
import os, sys
pid = os.fork()
top = f"{sys.argv[1]}/{'child' if pid == 0 else 'parent'}"
os.mkdir(top)
for folder in range(41):
    os.mkdir(f"{top}/{folder}")
    for file in range(61):
        os.close(os.open(f"{top}/{folder}/{file}", os.O_CREAT | os.O_WRONLY))
if pid == 0:
    os._exit(0)
sys.exit(os.waitpid(pid, 0)[1])
"""


@pytest.mark.full("takes more than 3 s")
def test_a_full_journal_is_the_cause_of_waits(klogger, tmp_path):
    path = tmp_path / "full.klog"
    mkfs = [*MKFS[:4], "-J", "size=1", "-N", "20000", *MKFS[6:]]
    with loop_disk(tmp_path / "disk", 64, mkfs=mkfs) as disk:
        record(klogger, path, sys.executable, "-c", MANY, disk.folder)
    log = Log(klogger, path)
    begun = log.count("CHECKPOINT", f"device = {disk.number}")
    assert begun >= 1
    tables = answers(klogger, path)
    (full,) = [row for row in tables["journal_waits"] if row["cause"].startswith("journal full")]
    assert 1 <= full["waits"] <= log.count("CHECKPOINT")
    of_device = [row for row in tables["checkpoints"] if row["device"] == disk.name]
    assert sum(row["checkpoints"] for row in of_device) == begun
    written = log.one(f"SELECT sum(written) FROM CHECKPOINTED WHERE device = {disk.number}")
    assert sum(row["written"] for row in of_device) == written > 0
