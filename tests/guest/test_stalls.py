# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Stalls on a disk that dm delays, on Debian's kernel: the cause is found in 95 of 100.

What is the cause, is the first of the layers that the thread waits in, in their documented order:
of a direct write over blocks that the file has, which changes nothing else, that is the device; of
fsync() of a directory the journal, whatever the commit waits for.
"""

import os
import shutil
import subprocess
import sys

import pytest
from kernels import cache
from stall_verdicts import Stalls, read

pytestmark = pytest.mark.full("boots guests of its own")

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIMES = 23
DELAY_MS = 20
# dm counts ticks of the kernel, the first of which is not whole.
TICK_MS = 4
# The guest sees this machine's files, and what it writes is gone at its end but for this.
SCRIPT = r"""
modprobe loop && modprobe dm-delay || exit 1
truncate -s 64M /tmp/disk
below=$(/sbin/losetup --find --show /tmp/disk) || exit 1
/sbin/mkfs.ext4 -q -b 1024 -J size=4 -E lazy_itable_init=0,lazy_journal_init=0 $below || exit 1
/sbin/dmsetup --noudevsync --noudevrules create slow \
    --table "0 131072 delay $below 0 0 $below 0 DELAY" || exit 1
minor=$(/sbin/dmsetup info -c --noheadings -o minor slow)
slow=/tmp/slow
mknod $slow b $(/sbin/dmsetup info -c --noheadings -o major slow) $minor
mkdir /tmp/place
mount -t ext4 $slow /tmp/place || exit 1
klogger record -q --no-calibrate -s operations -s block -s ext4 -o /tmp/stalls.klog -- \
    "$0" -I "$1" TIMES device=/tmp/place journal=/tmp/place >/tmp/said || exit 1
umount /tmp/place
echo "said $(base64 -w 0 /tmp/said)"
echo "log $(base64 -w 0 /tmp/stalls.klog)"
"""


@pytest.fixture(scope="module")
def planted(klogger, tmp_path_factory) -> Stalls:
    if not list((cache() / "guest").glob("linux-image-*.deb")):
        pytest.skip("no kernel for a guest: run 'scripts/setup guest'")
    for tool in ("mkfs.ext4", "dmsetup"):
        if not shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
            pytest.skip(f"no {tool}")
    folder = tmp_path_factory.mktemp("stalls")
    shutil.copy(f"{HERE}/stall_causes.py", folder)
    script = SCRIPT.replace("TIMES", str(TIMES)).replace("DELAY", str(DELAY_MS))
    guest = [sys.executable, "-m", "klogger_lab.cli.guest", "--", "sh", "-c", script]
    done = subprocess.run(
        [*guest, sys.executable, "./stall_causes.py"],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=900, env={**os.environ, "KLOGGER": str(klogger), "KLOGGER_CACHE": str(cache())},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    path = folder / "stalls.klog"
    for file, word in ((path, "log"), (folder / "said", "said")):
        subprocess.run(
            ["base64", "-d"], input=said[word].encode(), stdout=file.open("wb"), check=True
        )
    return read(path, (folder / "said").read_text())


@pytest.mark.parametrize("cause", ["device", "journal"])
def test_the_cause_of_stalls_on_a_slow_disk(planted, cause):
    planted.check(cause, cause, TIMES)
    # Each write to the disk is delayed; and takes no longer by our clock than by the program's.
    for one, clock in planted.found[cause]:
        assert (DELAY_MS - TICK_MS) * 1_000_000 <= one.took <= clock


def test_the_program_and_the_log_agree(planted):
    """Half of the calls take by their own clock what they take in the log, within a millisecond:
    the interpreter is between the two, in an emulated machine.
    """
    late = sorted(clock - one.took for found in planted.found.values() for one, clock in found)
    assert late[len(late) // 2] <= 1_000_000
