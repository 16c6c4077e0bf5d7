# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger why` with requests to disks: those of a program that writes directly are what it waited
for, in number and in time; and who is ahead is who was planted there.
"""

import contextlib
import shutil
from pathlib import Path

import pytest
from disturbed import disturbed
from test_why import Why, bins, sums_are_right

from klogger_lab.disk import loop_disk

# Primes, so that nothing else comes to the same number by chance.
WRITES, FEW = 211, 31


@pytest.fixture
def why(recorder):
    return Why(recorder)


def dd(disk, count, name="dd", size="4k"):
    to = f"of={disk.device} bs={size} count={count} oflag=direct conv=notrunc"
    return f"{name} if=/dev/zero {to} status=none"


def on_disk(answer):
    """ns of waits for disks by what is said first of each."""
    found = {}
    for one in bins(answer, "waited", "disk"):
        what = one["what"].partition(": ")[0]
        found[what] = found.get(what, 0) + one["ns"]
    return found


# Of each request of a thread to a disk that ends a wait of it: the part of the wait that comes
# before the request is asked for, then up to when the driver gets it, then up to the wake-up. Times
# in ns.
STAGES = """
WITH woken AS (
    SELECT w.time AS until, w.cpu, b.time AS since
    FROM (FROM WOKEN WHERE pid = {pid}) AS w
    ASOF JOIN (FROM BLOCKED WHERE pid = {pid}) AS b ON w.time >= b.time
    ASOF JOIN (FROM BACK WHERE pid = {pid}) AS k ON w.time >= k.time
    WHERE w.why & 8 <> 0 AND b.state & 2 <> 0 AND k.time < b.time
), done AS (
    SELECT w.*, r.time - r.took::BIGINT AS issued, r.time - r.took::BIGINT - r.queued::BIGINT
        AS asked
    FROM woken AS w ASOF JOIN (FROM RQ_DONE WHERE pid = {pid} AND device = {device}) AS r
        ON w.cpu = r.cpu AND w.until >= r.time
    WHERE r.time >= since
)
SELECT count(*), sum(greatest(asked - since, 0)), sum(greatest(issued - greatest(asked, since), 0)),
    sum(until - greatest(issued, since))
FROM done
"""


def written(why, disk):
    """The answer and the log of a program that writes directly, of which no hit was skipped: the
    kernel does that if a request of another disk is completed in between.
    """
    for _ in range(5):
        answer, _ = why("-s", "block", "--", "sh", "-c", dd(disk, WRITES) + "; exit 7")
        log = why.log()
        if log.one("SELECT count(*) FROM ledger WHERE key = 'probe_missed'") == 0:
            return answer, log
    disturbed("the kernel skipped hits in each of 5 recordings")


def test_waits_are_the_requests_of_the_program(why, disk):
    answer, log = written(why, disk)
    # The program itself may have to be read from another disk.
    (own,) = log.rows(f"SELECT DISTINCT pid FROM RQ_DONE WHERE device = {disk.number}")
    assert log.count("RQ_DONE", f"kind = 1 AND device = {disk.number}") == WRITES
    asked, _ = why(why.file, "--thread", own[0], code=0)
    sums_are_right(answer)
    sums_are_right(asked)
    waits, before, queued, device = log.rows(STAGES.format(pid=own[0], device=disk.number))[0]
    # The device may be done before the program waits.
    assert 0 < waits <= WRITES
    write = f"write on {disk.name}"
    found = {what: ns for what, ns in on_disk(asked).items() if what.endswith(write)}
    true = {f"before {write}": before, f"queued {write}": queued, write: device}
    assert found == {what: ns for what, ns in true.items() if ns}
    (line,) = [one for one in bins(asked, "waited", "disk") if one["what"].startswith(write)]
    assert line["times"] == waits


def diskstats(disk):
    """Milliseconds of its writes."""
    return int(Path(f"/sys/block/{disk.name}/stat").read_text().split()[7])


@pytest.mark.full("depends on how busy the machine is")
def test_time_on_the_device_is_that_of_diskstats(why, disk):
    before = diskstats(disk)
    why("-s", "block", "--", "sh", "-c", dd(disk, WRITES) + "; exit 7")
    counted = (diskstats(disk) - before) * 1e6
    log = why.log()
    of_disk = f"FROM RQ_DONE WHERE device = {disk.number}"
    took, whole = log.rows(f"SELECT sum(took), sum(took + queued) {of_disk}")[0]
    (own,) = log.rows(f"SELECT DISTINCT pid {of_disk}")
    found = on_disk(why(why.file, "--thread", own[0], code=0)[0])
    # Its time begins when the request is made, and ends after the event; in whole ms.
    assert took - 1e6 <= counted <= whole + 1e6 + WRITES * 50_000
    assert found[f"write on {disk.name}"] <= counted + 1e6 + WRITES * 50_000


def copies(folder):
    return [shutil.copy(shutil.which("dd"), folder / name) for name in ("small", "large")]


@pytest.mark.full("depends on how busy the machine is")
def test_who_is_ahead(why, disk, tmp_path):
    """A program with small writes beside one with large ones."""
    small, large = copies(tmp_path)
    bulk = f"while :; do {dd(disk, 40, large, '4M')}; done"
    command = f"({bulk}) & bulk=$!; sleep 0.1; {dd(disk, FEW, small)}; kill $bulk; exit 7"
    of_command, _ = why("-a", "-s", "block", "--", "sh", "-c", command)
    assert of_command["title"] == "sh"
    answer, _ = why(why.file, "--program", "small", code=0)
    sums_are_right(answer)
    found = on_disk(answer)
    # Nobody else uses the device, and no program is behind itself.
    who = {what.partition(", ")[0] for what in found if what.startswith(("behind ", "beside "))}
    assert who - {"beside large"} == {"behind large"}, found


@contextlib.contextmanager
def requests_of(disk, number):
    """So many at most. Loop devices keep that when they lose their file."""
    file = Path(f"/sys/block/{disk.name}/queue/nr_requests")
    before = file.read_text()
    file.write_text(str(number))
    try:
        yield
    finally:
        file.write_text(before)


@pytest.mark.full("depends on how busy the machine is")
def test_who_has_the_requests_of_a_full_device(why, disk, tmp_path):
    small, large = copies(tmp_path)
    many = " & ".join([dd(disk, 60, large, "1M")] * 8)
    command = f"{many} & {dd(disk, FEW, small, '1M')}; wait; exit 7"
    with requests_of(disk, 4):
        why("-a", "-s", "block", "--", "sh", "-c", command)
    answer, _ = why(why.file, "--program", "small", code=0)
    sums_are_right(answer)
    found = on_disk(answer)
    assert max(found, key=found.get) == f"behind large, for a free request of {disk.name}", found


def test_a_note_says_how_to_know_the_requests(why, disk):
    answer, _ = why("--", "sh", "-c", dd(disk, WRITES) + "; exit 7")
    own = next(one["thread"] for one in answer["threads"] if one["name"] == "dd")
    asked, _ = why(why.file, "--thread", own, code=0)
    disks = sum(one["ns"] for one in bins(asked, "waited", "disk"))
    notes = [note for note in asked["notes"] if "klogger why -a -s block" in note]
    assert bool(notes) == (disks >= 0.1 * asked["elapsed_ns"] > 0)


@pytest.mark.full("takes more than 3 s")
def test_a_commit_is_followed_to_the_journal(why, tmp_path):
    """A file system's own thread writes what an fsync waits for."""
    with loop_disk(tmp_path / "fs", 256, mkfs=["mkfs.ext4", "-q", "-F"]) as disk:
        each = f"dd if=/dev/zero of={disk.folder}/a$n bs=4k count=1 conv=fsync status=none"
        why("-a", "-s", "block", "--", "sh", "-c", f"for n in 1 2 3 4 5; do {each}; done; exit 7")
        answer, _ = why(why.file, "--program", "dd", code=0)
    sums_are_right(answer)
    kinds = {one["what"].partition(": ")[0] for one in answer["followed"]
             if one["program"].startswith("jbd2/") and one["kind"] == "disk"}  # fmt: skip
    assert any(f"on {disk.name}" in what for what in kinds), answer["followed"]


@contextlib.contextmanager
def slow(disk, rate):
    """To so many bytes a second, for all programs."""
    file = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")
    if not file.exists():
        pytest.skip("no control group limits what is written for all")
    file.write_text(f"{disk.text} {rate}")
    try:
        yield
    finally:
        file.write_text(f"{disk.text} 0")


@pytest.mark.full("takes more than 3 s")
def test_who_is_ahead_in_the_queue_of_a_limit(why, tmp_path):
    """The kernel writes for both; by the files it is known for whom."""
    small, large = copies(tmp_path)
    with loop_disk(tmp_path / "fs", 256, mkfs=["mkfs.ext4", "-q", "-F"]) as disk:
        to = f"if=/dev/zero of={disk.folder}"
        command = f"{large} {to}/a bs=1M count=60 conv=fsync status=none & sleep 0.3; " \
            f"{small} {to}/b bs=4k count=1 conv=fsync status=none; wait; exit 7"  # fmt: skip
        with slow(disk, 20 << 20):
            why("-a", "-s", "block", "--", "sh", "-c", command)
        answer, _ = why(why.file, "--program", "small", code=0)
    sums_are_right(answer)
    # Perhaps the thread of the journal waits, and `small` for that one.
    most = max(answer["followed"], key=lambda one: one["ns"])
    assert most["kind"] == "disk" and most["what"].startswith("beside large, before write"), most
