# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `xfs` on Debian's kernel, where XFS is a module and its structures differ: the same
counters and formats as in the live test.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest
import xfs_load
from kernels import cache
from xfs_checks import check_counters, check_formats, opened

pytestmark = pytest.mark.full("boots guests of its own")

# The guest sees this machine's files, and what it writes is gone at its end but for this.
SCRIPT = r"""
set -e
modprobe loop
modprobe xfs
truncate -s 96M /tmp/disk
device=$(/sbin/losetup --find --show /tmp/disk)
/sbin/mkfs.xfs --unsupported -q -l size=1536b $device >/dev/null
mkdir /tmp/place
mount $device /tmp/place
/sbin/fsfreeze -f /tmp/place
klogger record -q --no-calibrate -s xfs -a --set inodes=true \
    -o /tmp/both.klog -- python3 -S -B xfs_load.py both /tmp/place ${device#/dev/} >/tmp/told
/sbin/fsfreeze -u /tmp/place
umount /tmp/place
echo "told $(tail -n 1 /tmp/told)"
echo "found $(python3 -S -B xfs_load.py look $device "$(tail -n 1 /tmp/told)")"
echo "log $(gzip -1 </tmp/both.klog | base64 -w 0)"
"""


@pytest.fixture(scope="module")
def said(klogger, tmp_path_factory):
    if not list((cache() / "guest").glob("linux-image-*.deb")):
        pytest.skip("no kernel for a guest: run 'scripts/setup guest'")
    if not shutil.which("mkfs.xfs", path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
        pytest.skip("no mkfs.xfs")
    folder = tmp_path_factory.mktemp("xfs")
    shutil.copy(xfs_load.__file__, folder)
    guest = [sys.executable, "-m", "klogger_lab.cli.guest", "--", "sh", "-c", SCRIPT]
    done = subprocess.run(
        guest,
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=900, env={**os.environ, "KLOGGER": str(klogger), "KLOGGER_CACHE": str(cache())},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    path = folder / "both.klog"
    decode = f"base64 -d | gzip -d >{path}"
    subprocess.run(["sh", "-c", decode], input=told["log"].encode(), check=True)
    return opened(klogger, path), json.loads(told["told"]), json.loads(told["found"])


def test_counters(said):
    log, told, _ = said
    # Of the alternatives for newer kernels only.
    missing = log.rows("SELECT event FROM ledger WHERE key = 'probe_not_attached'")
    assert {event for (event,) in missing} <= {None, "", "XFS_ALLOC"}
    delta = check_counters(log, told)
    assert ("extent_alloc", 0) not in delta


def test_formats(said):
    log, told, found = said
    check_formats(log, told, found)
