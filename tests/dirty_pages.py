# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that make pages dirty on a disk of their own, and what the schema `writeback` has of
them: on the live kernel, and in a guest.
"""

from dataclasses import dataclass
from pathlib import Path

from oracles import Log, answers

EXT4 = ["mkfs.ext4", "-q", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
PAGE = 4096
PLAIN = f"""
import ctypes, json, os, resource, subprocess, sys, time
os.chdir(sys.argv[1])
page = b"x" * {PAGE}
def pages(file, count, start=0):
    for number in range(start, start + count):
        os.pwrite(file, page, number * {PAGE})
def vmstat():
    # CPUs add up what they have counted.
    open("/proc/sys/vm/stat_refresh").read()
    words = dict(line.split() for line in open("/proc/vmstat"))
    return int(words["nr_dirtied"]), int(words["nr_written"])
def create(name):
    return os.open(name, os.O_RDWR | os.O_CREAT)
def sync():
    # Of this file system only.
    here = os.open(".", os.O_RDONLY)
    assert ctypes.CDLL(None).syncfs(here) == 0
    os.close(here)
def tell(**more):
    print(json.dumps({{"pid": os.getpid()}} | more))
"""
TWICE = """
before = vmstat()
file = create("twice")
pages(file, 1009)
pages(file, 101)
os.fsync(file)
pages(file, 211)
os.fdatasync(file)
for _ in range(7): os.fsync(file)
tell(vmstat=[before, vmstat()])
"""
READS = """
file = create("first")
os.write(file, page)
sync()
for option in ("noatime", "strictatime", "lazytime"):
    subprocess.run(["mount", "-o", f"remount,{option}", "."], check=True)
    sync()
    time.sleep(1.1)
    for number in range(11):
        with open(f"{option}{number}", "rb") as file: file.read()
tell()
"""
# The kernel learns the rate of a disk from one 200 ms to the next: how many pages are written
# before it lets a program wait depends on the machine. Waits of ftruncate() are not counted.
PAUSED = """
file = create("paused")
block = b"x" * 65536
blocks = nvcsw = took = 0
def switches():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
gives_up = time.monotonic() + 120
while not blocks or (nvcsw < 3 and time.monotonic() < gives_up):
    os.ftruncate(file, 0)
    before, began = switches(), time.monotonic_ns()
    for number in range(307): os.pwrite(file, block, number * 65536)
    took += time.monotonic_ns() - began
    nvcsw += switches() - before
    blocks += 307
tell(nvcsw=nvcsw, took=took, pages=blocks * 16)
"""
OPTIONS = ("noatime", "strictatime", "lazytime")
READ = [f"{option}{number}" for option in OPTIONS for number in range(11)]


@dataclass
class Ran:
    log: Log
    path: Path
    told: dict
    device: int
    klogger: Path

    def __post_init__(self):
        self.own = f"device = {self.device} AND tid = {self.told['pid']}"

    def one(self, query: str):
        return self.log.one(query)

    def inode(self, name: str) -> int:
        query = f"SELECT DISTINCT inode FROM DIRTY_FILE WHERE path = '/{name}'"
        return self.one(f"{query} AND device = {self.device}")

    def dirtied(self, name: str) -> int:
        return self.one(
            f"SELECT coalesce(sum(pages), 0)::BIGINT FROM DIRTY_PAGES"
            f" WHERE {self.own} AND inode = {self.inode(name)}"
        )

    def written(self, name: str, where: str = "true") -> int:
        """In bytes."""
        return self.one(
            f"SELECT coalesce(sum(bytes), 0)::BIGINT FROM WB_PAGES"
            f" WHERE device = {self.device} AND inode = {self.inode(name)} AND {where}"
        )

    def rows_of(self, analysis: str) -> list[dict]:
        return answers(self.klogger, self.path, "--analysis", analysis)[analysis]


def check_counted(ran: Ran):
    """The kernel's own counters, which are those of the machine, have grown by as much at least."""
    dirtied = ran.one(f"SELECT sum(pages)::BIGINT FROM DIRTY_PAGES WHERE {ran.own}")
    # btrfs writes its metadata twice.
    written = ran.written("twice")
    before, after = ran.told["vmstat"]
    assert after[0] - before[0] >= dirtied
    assert (after[1] - before[1]) * PAGE >= written
    assert all(ran.log.lost(event) == 0 for event in ("DIRTY_PAGES", "WB_PAGES", "DIRTY_INODE"))


def check_twice(ran: Ran):
    """What TWICE does: of the first 211 pages each became dirty twice."""
    assert ran.dirtied("twice") == 1009 + 211
    assert ran.written("twice") == (1009 + 211) * PAGE
    check_counted(ran)
    file = f"{ran.own} AND inode = {ran.inode('twice')}"
    times = dict(
        ran.log.rows(f"""
            SELECT times, count(*) FROM (
                SELECT index, sum(pages)::BIGINT AS times FROM DIRTY_PAGES
                WHERE {file} GROUP BY index
            ) GROUP BY times""")
    )
    assert times == {1: 1009 - 211, 2: 211}
    calls = ran.log.rows(f"""
        SELECT replace(d.text, 'return syscall ', ''), count(*), sum(s.bytes)::BIGINT
        FROM SYNC_CALL AS s JOIN decoding AS d ON d.decoding = 'place' AND d.value = s.call
        WHERE {ran.own} AND s.result = 0 GROUP BY ALL ORDER BY ALL""")
    assert calls == [("fdatasync", 1, 211 * PAGE), ("fsync", 8, 1009 * PAGE)]


def check_reads(ran: Ran, inodes: dict[str, int]):
    """What READS does: of the files with strict access times an inode and the journal are dirty
    (17), of those with lazy ones times only (8); and who found the file system idle.
    """
    option = {inode: name.rstrip("0123456789") for name, inode in inodes.items()}
    found = ran.log.rows(f"""
        SELECT inode, bit_or(flags) FROM DIRTY_INODE WHERE {ran.own} GROUP BY inode""")
    marked = [(option[inode], how) for inode, how in found if inode in option]
    assert sorted(marked) == [("lazytime", 8)] * 11 + [("strictatime", 17)] * 11
    (culprit,) = [r for r in ran.rows_of("idle_dirtiers") if r["file"].endswith("/strictatime0")]
    assert (culprit["program"], culprit["times"], culprit["of_all"]) == ("python3", 1, 1.0)
    rows = [r for r in ran.rows_of("clean_time") if r["device"] == culprit["device"]]
    cycles = {row["idle"]: row["cycles"] for row in rows}
    assert cycles[30_000_000_000] == 1
    # More, where the machine stops the program for so long.
    assert cycles[500_000_000] >= 2
