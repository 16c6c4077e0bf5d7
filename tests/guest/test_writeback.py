# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `writeback` on Debian's kernel, where the flags of inodes have other numbers and the
tracepoint of pauses other arguments: what the live test compares, and the kernel's own counters.
"""

import json
from pathlib import Path

import pytest
from dirty_pages import PAUSED, PLAIN, READ, READS, TWICE, Ran, check_reads, check_twice
from kernels import said_in_guest, unpacked
from oracles import Log

pytestmark = pytest.mark.full("boots guests of its own")

SCRIPT = r"""
set -e
modprobe loop
modprobe ext4
truncate -s 64M /tmp/disk
device=$(/sbin/losetup --find --show /tmp/disk)
/sbin/mkfs.ext4 -q -b 4096 -E lazy_itable_init=0,lazy_journal_init=0 $device
mkdir /tmp/place
mount -o noatime $device /tmp/place
for name in READ; do head -c 4096 /dev/zero >/tmp/place/$name; done
sync
echo "device $(stat -c %t:%T $device)"
echo inodes $(cd /tmp/place && stat -c %i READ)
for what in twice reads paused; do
    # Nothing else makes pages dirty here but the recorder's own log, which is in memory.
    [ $what != paused ] || echo 1048576 >/proc/sys/vm/dirty_bytes
    klogger record -q --no-calibrate -s writeback -o /tmp/$what.klog \
        -- python3 -S -B $what.py /tmp/place >/tmp/told
    echo "told-$what $(tail -n 1 /tmp/told)"
    echo "log-$what $(base64 -w 0 /tmp/$what.klog)"
done
""".replace("READ", " ".join(READ))
PROGRAMS = {"twice": TWICE, "reads": READS, "paused": PAUSED}


@pytest.fixture(scope="module")
def said(klogger, tmp_path_factory):
    if not Path("/sbin/mkfs.ext4").exists():
        pytest.skip("no mkfs.ext4")
    folder = tmp_path_factory.mktemp("writeback")
    for name, program in PROGRAMS.items():
        (folder / f"{name}.py").write_text(PLAIN + program)
    told = dict(said_in_guest(klogger, folder, SCRIPT))
    for name in PROGRAMS:
        unpacked(told, f"log-{name}", folder / f"{name}.klog")
    return told | {"folder": str(folder)}


@pytest.fixture
def ran(klogger, said):
    def of(name: str) -> Ran:
        path = Path(said["folder"]) / f"{name}.klog"
        major, minor = (int(part, 16) for part in said["device"].split(":"))
        told = json.loads(said[f"told-{name}"])
        return Ran(Log(klogger, path), path, told, major << 20 | minor, klogger)

    return of


def test_pages(ran):
    one = ran("twice")
    # Of the alternatives for newer kernels, and of file systems that are not there.
    missing = one.log.rows("SELECT event FROM ledger WHERE key = 'probe_not_attached'")
    assert {event for (event,) in missing} <= {None, ""}
    check_twice(one)
    before, after = one.told["vmstat"]
    # Metadata become dirty when the journal is written; a page of them may be written in pieces.
    metadata = f"device = {one.device} AND inode = 0"
    dirtied = one.one(f"SELECT count(*) FROM DIRTY_PAGES WHERE {metadata}")
    assert after[0] - before[0] - (1009 + 211) <= 64 + dirtied
    assert (after[1] - before[1]) - (1009 + 211) <= 64 + dirtied


def test_flags_of_inodes(ran, said):
    check_reads(ran("reads"), dict(zip(READ, map(int, said["inodes"].split()), strict=True)))


def test_who_is_paused(ran):
    one = ran("paused")
    assert one.dirtied("paused") == one.told["pages"]
    pauses = one.log.rows(f"SELECT threshold FROM DIRTY_PAUSE WHERE {one.own} AND pause > 0")
    # It is given a little more than 1 MiB.
    assert pauses and all(0 < threshold <= 512 for (threshold,) in pauses)
    slept = one.one(f"SELECT count(*) FROM WB_RESUMED WHERE kind = 1 AND pid = {one.told['pid']}")
    # One that ends before the thread has left the CPU is no sleep.
    assert 0 < slept <= len(pauses)
    assert one.rows_of("throttled")[0]["program"] == "python3"
