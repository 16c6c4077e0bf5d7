# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `writeback` has each page that a program makes dirty, and each that is written, on
small disks of its own; who was paused, and what dirties an idle file system.
"""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from dirty_pages import (
    EXT4,
    PAGE,
    PAUSED,
    PLAIN,
    READ,
    READS,
    TWICE,
    Ran,
    check_counted,
    check_reads,
    check_twice,
)
from disturbed import disturbed
from oracles import Log

from klogger_lab.disk import Disk, loop_disk

SCHEMA = Path(__file__).resolve().parents[2] / "schemata/writeback"


def device_of(log: Log, disk: Disk) -> int:
    """Of the file system: btrfs has a number of its own, which no program can ask for."""
    if (disk.folder / ".").stat().st_dev == disk.device.stat().st_rdev:
        return disk.number
    return log.one("SELECT DISTINCT device FROM DIRTY_FILE WHERE path = '/twice'")


@pytest.fixture(scope="module")
def place():
    """In memory, if there is such a place: the disk below is not what is tested."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="writeback-", dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def ext4(place):
    with loop_disk(place / "ext4", 96, mkfs=EXT4, mount_options="noatime") as disk:
        yield disk


@pytest.fixture
def record(recorder):
    def run(disk: Disk, program: str, *options: str) -> Ran:
        words = ["python3", "-S", "-B", "-c", PLAIN + program, disk.folder]
        done, path = recorder.run("-s", SCHEMA, "--no-calibrate", *options, "--", *words)
        assert done.code == 0, done.err
        log = Log(recorder.klogger, path)
        told = json.loads(done.out.splitlines()[-1])
        return Ran(log, path, told, device_of(log, disk), recorder.klogger)

    return run


@contextlib.contextmanager
def limited(disk: Disk, size: int):
    """No more than so many bytes are dirty. The limits of a loop device outlive its file."""
    limits = Path(f"/sys/class/bdi/{disk.text}")
    if not (limits / "strict_limit").exists() or not (limits / "max_bytes").exists():
        pytest.skip("this kernel has no limits of single disks, in bytes")
    before = (limits / "max_ratio").read_text()
    try:
        (limits / "strict_limit").write_text("1")
        (limits / "max_bytes").write_text(str(size))
        yield
    finally:
        (limits / "strict_limit").write_text("0")
        (limits / "max_ratio").write_text(before)


def undisturbed(run, name: str) -> Ran:
    """Runs until nobody else has written the file: a sync() of another program makes pages clean
    that are then dirtied twice.
    """
    for _ in range(5):
        ran = run()
        if ran.written(name, "via <> 2") == 0:
            return ran
    disturbed("others called sync() in each of 5 runs")


def test_pages_are_counted_when_dirtied_and_when_written(record, ext4):
    def run():
        (ext4.folder / "twice").unlink(missing_ok=True)
        return record(ext4, TWICE)

    ran = undisturbed(run, "twice")
    check_twice(ran)
    (row,) = [row for row in ran.rows_of("dirtiers") if row["file"].endswith(":/twice")]
    assert (row["pages"], row["written"], row["itself"]) == (1220, 1220, 1.0)
    (row,) = [row for row in ran.rows_of("dirty_age") if row["file"].endswith(":/twice")]
    assert (row["pages"], row["never"]) == (1220, 0)


THREADS = """
import threading
def write(number):
    file = create(f"thread{number}")
    pages(file, 503)
    os.fsync(file)
threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
tell()
"""


@pytest.mark.full("takes more than 3 s")
def test_requests_of_the_disk_by_number_of_writers(record, ext4):
    ran = record(ext4, THREADS, "-s", SCHEMA.parent / "block/block.klogger")
    rows = [row for row in ran.rows_of("writers_requests") if row["device"] == ext4.name]
    # All requests for pages of files are there, and each page was written.
    requests, written = ran.log.rows(f"""
        SELECT count(*), sum(bytes)::BIGINT FROM RQ_DONE
        WHERE file_system = {ran.device} AND inode > 0 AND kind = 1 AND took > 0
    """)[0]
    assert sum(row["requests"] for row in rows) == requests
    assert sum(row["requests"] * row["mean"] for row in rows) == pytest.approx(
        written, abs=requests
    )
    assert written >= 3 * 503 * PAGE
    # Which of them fell into the same second is not known.
    assert 1 <= max(row["writers"] for row in rows) <= 3
    assert sum((row["sync"] or 0) > 0 for row in rows) >= 1


@pytest.mark.full("takes more than 3 s")
def test_the_requests_need_the_schema_block(record, ext4):
    ran = record(ext4, "tell()\n")
    words = [sys.executable, "-m", "klogger.cli.report", ran.path, "--format", "json"]
    words += ["--analysis", "writers_requests"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    (answer,) = json.loads(done.stdout)["analyses"]
    assert (answer["status"], answer["reason"]) == (
        "not_recorded",
        "RQ_DONE not recorded: use 'klogger record -s writeback,block -- COMMAND'",
    )


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_other_file_systems(record, place, kind):
    mkfs = [f"mkfs.{kind}", "-q", "-f"]
    with loop_disk(place / kind, 304, mkfs=mkfs, mount_options="noatime") as disk:

        def run():
            (disk.folder / "twice").unlink(missing_ok=True)
            return record(disk, TWICE)

        ran = undisturbed(run, "twice")
        assert ran.dirtied("twice") == 1009 + 211
        assert ran.written("twice") == (1009 + 211) * PAGE
        check_counted(ran)


GONE = """
stays, file = create("stays"), create("gone")
pages(file, 53)
os.close(file)
os.unlink("gone")
file = stays
pages(file, 97)
sync()
tell()
"""


@pytest.mark.full("takes more than 3 s")
def test_what_is_deleted_is_not_written(record, ext4):
    ran = record(ext4, GONE)
    assert ran.dirtied("gone") == 53
    assert ran.written("gone") <= 53 * PAGE
    assert ran.one(f"SELECT count(*) FROM DIRTY_GONE WHERE inode = {ran.inode('gone')}") >= 1
    rows = {row["file"].split("/")[-1]: row for row in ran.rows_of("dirty_age")}
    assert rows["gone"]["never"] == 53 - ran.written("gone") // PAGE
    assert rows["stays"]["never"] == 0
    # A flusher writes for sync(), and says how many pages it wrote of each inode.
    stays = ran.inode("stays")
    where = f"device = {ran.device} AND inode = {stays}"
    assert ran.dirtied("stays") == 97
    assert ran.written("stays", "via = 1") == 97 * PAGE
    assert ran.one(f"SELECT sum(pages)::BIGINT FROM WB_INODE WHERE {where} AND via = 1") == 97
    last = ran.log.rows(f"SELECT remains, dirty > 0 FROM WB_INODE WHERE {where} ORDER BY time")[-1]
    assert last == (0, True)


@pytest.mark.full("takes more than 3 s")
def test_who_is_paused(record, place):
    with (
        loop_disk(place / "paused", 96, mkfs=EXT4, mount_options="noatime") as disk,
        limited(disk, 4 << 20),
    ):
        ran = record(disk, PAUSED)
    assert ran.dirtied("paused") == ran.told["pages"]
    pauses = ran.log.rows(f"SELECT disk_limit FROM DIRTY_PAUSE WHERE {ran.own} AND pause > 0")
    # 19 MiB do not fit below 4 MiB, a part of the memory that changes a little.
    assert pauses and all(limit <= 2 * 1024 for (limit,) in pauses)
    slept, took = ran.log.rows(f"""
        SELECT count(*), sum(took)::BIGINT FROM WB_RESUMED
        WHERE pid = {ran.told["pid"]} AND kind = 1""")[0]
    # One that ends before the thread has left the CPU is no sleep.
    assert 0 < slept <= len(pauses)
    assert slept <= ran.told["nvcsw"]
    assert 0 < took <= ran.told["took"]
    rows = [row for row in ran.rows_of("throttled") if row["why"] == "limit of the disk"]
    assert [(row["waits"], row["device"]) for row in rows] == [(slept, disk.name)]


@pytest.mark.full("takes more than 3 s")
def test_access_times_dirty_an_idle_file_system(record, place):
    with loop_disk(place / "reads", 32, mkfs=EXT4, mount_options="noatime") as disk:
        for name in READ:
            (disk.folder / name).write_bytes(b"x" * PAGE)
        inodes = {name: (disk.folder / name).stat().st_ino for name in READ}
        check_reads(record(disk, READS), inodes)


MANY = """
for number in range(211):
    file = create(f"many{number}")
    os.write(file, page)
    os.close(file)
tell()
"""


@pytest.mark.full("takes more than 3 s")
def test_a_full_table_is_in_the_ledger(record, ext4):
    ran = record(ext4, MANY, "--set", "inodes=16")
    ((lost,),) = ran.log.rows("SELECT sum(count) FROM ledger WHERE key = 'state_full'")
    assert lost > 0
    # What needs no memory is exact.
    assert (
        ran.one(f"SELECT sum(pages)::BIGINT FROM DIRTY_PAGES WHERE {ran.own} AND inode > 0") == 211
    )
