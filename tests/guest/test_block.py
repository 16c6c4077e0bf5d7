# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `block` on Debian's kernel: a disk in memory, whose requests are those that the kernel
counts, and one that dm delays.
"""

import shutil
from pathlib import Path

import pytest
from boots import BPF, Case
from file_systems import unpacked
from oracles import Log, answers

pytestmark = pytest.mark.full("boots guests of its own")

MODULES = ["configfs", "null_blk", "dm-mod", "dm-delay"]
TOOLS = {"dd": "/bin/block-dd", "blkdiscard": "/bin/block-discard", "dmsetup": "/bin/dmsetup"}
# The second disk delays writes by 20 ms; dm has bios, and the disk below it requests.
SCRIPT = r"""
set -e
for m in configfs dm-mod dm-delay; do insmod /block-modules/$m.ko 2>/dev/null || true; done
insmod /block-modules/null_blk.ko gb=1 memory_backed=1 discard=1 cache_size=1 \
    >/out/insmod 2>&1 || true
[ -e /dev/nullb0 ]
count() { cat /sys/block/nullb0/stat >/out/$1; }
count before
klogger record -s block -a -o /out/disk.klog -- sh -c '
    block-dd if=/dev/nullb0 of=/dev/null bs=4k count=101 iflag=direct status=none
    block-dd if=/dev/zero of=/dev/nullb0 bs=8k count=211 oflag=direct status=none
    for n in 1 2 3 4 5 6 7; do
        block-dd if=/dev/zero of=/dev/nullb0 bs=512 count=1 seek=$n conv=fsync status=none
    done
    for n in 0 1 2 3 4; do block-discard -o ${n}M -l 1M /dev/nullb0; done
' 2>/out/disk.err
count after

dmsetup --noudevsync --noudevrules create slow \
    --table '0 65536 delay /dev/nullb0 0 0 /dev/nullb0 0 20'
slow=/dev/dm-$(dmsetup info -c --noheadings -o minor slow)
[ -e $slow ] || mknod $slow b $(dmsetup info -c --noheadings -o major slow) ${slow#/dev/dm-}
klogger record -s block -a -o /out/slow.klog -- sh -c "
    block-dd if=$slow of=/dev/null bs=4k count=19 iflag=direct status=none
    block-dd if=/dev/zero of=$slow bs=4k count=17 oflag=direct status=none
" 2>/out/slow.err
cat /sys/block/${slow#/dev/}/stat >/out/slow.stat
dmsetup info -c --noheadings -o major,minor slow >/out/slow.device
dmsetup --noudevsync --noudevrules remove slow
rmmod null_blk
"""
# dm delays by 20 ms, in ticks of 4 ms.
DELAYED_NS = 15_000_000


def files(request) -> list[str]:
    def unpack(made: Path) -> None:
        unpacked(MODULES, made)

    folder = request.getfixturevalue("once")("block-modules", unpack)
    added = [f"{folder}=/block-modules"]
    for name, at in TOOLS.items():
        program = shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin")
        if program is None:
            pytest.skip(f"no {name}")
        added.append(f"{program}={at}")
    return added


CASES = {"block": Case(BPF, SCRIPT, files, seconds=300)}


@pytest.fixture(scope="module")
def recorded(boots):
    return boots.case("block")


def counted(file: Path) -> list[int]:
    """Completed, merged, sectors, time: of reads, writes, and discards; then flushes."""
    return [int(word) for word in file.read_text().split()]


def test_requests_are_those_that_the_kernel_counts(recorded, klogger):
    log = Log(klogger, recorded / "disk.klog")
    assert log.rows("SELECT event, text FROM ledger WHERE key = 'probe_not_attached'") == []
    before, after = counted(recorded / "before"), counted(recorded / "after")
    reads, read, writes, wrote, discards, discarded, flushes = (
        after[n] - before[n] for n in (0, 2, 4, 6, 11, 13, 15)
    )
    whole = dict(log.rows("SELECT kind, count(*) FROM RQ_DONE WHERE whole GROUP BY 1"))
    sectors = dict(log.rows("SELECT kind, sum(bytes) // 512 FROM RQ_DONE GROUP BY 1"))
    assert (whole[0], whole[1] + log.count("RQ_FLUSHED"), whole[3], whole[2]) == (
        reads,
        writes,
        discards,
        flushes,
    )
    assert (sectors[0], sectors[1], sectors[3]) == (read, wrote, discarded)
    assert (log.count("RQ_DONE", "kind = 1 AND bytes = 8192"), discards) == (211, 5)
    assert (reads >= 101, flushes >= 7) == (True, True)
    # The pages of the disk's own file, which the 7 short writes go through.
    assert log.count("RQ_DONE", "kind = 1 AND how & 128 <> 0 AND inode = 0") == 7


def test_a_delayed_disk_is_slow_and_the_one_below_it_is_not(recorded, klogger):
    log = Log(klogger, recorded / "slow.klog")
    major, minor = map(int, (recorded / "slow.device").read_text().strip().split(":"))
    own = f"device = {major << 20 | minor}"
    stat = counted(recorded / "slow.stat")
    assert log.count("BIO_DONE", f"{own} AND kind = 1") == 17
    assert log.one(f"SELECT sum(bytes) // 512 FROM BIO_DONE WHERE {own} AND kind = 1") == stat[6]
    assert log.one(f"SELECT min(took) FROM BIO_DONE WHERE {own} AND kind = 1") >= DELAYED_NS
    # Half of the others are faster, however slow this machine is: reads, and the requests below.
    reads = log.one(f"SELECT median(took) FROM BIO_DONE WHERE {own} AND kind = 0")
    below = log.one("SELECT median(took) FROM RQ_DONE WHERE kind = 1 AND bytes = 4096")
    assert max(reads, below) < DELAYED_NS
    assert log.count("RQ_DONE", "kind = 1 AND bytes = 4096") == 17
    rows = answers(klogger, recorded / "slow.klog")["requests"]
    (row,) = [r for r in rows if r["device"] == f"dm-{minor}" and r["kind"] == "write"]
    assert (row["requests"], row["p50"] >= DELAYED_NS) == (17, True)
