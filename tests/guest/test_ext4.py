# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `ext4` on Debian's kernel, where ext4 is a module and functions can be probed: what
the live test compares, and the stalls inside the journal.
"""

import os
import shutil
import subprocess
import sys

import ext4_calls
import pytest
from kernels import cache
from oracles import Log, workload_json

pytestmark = pytest.mark.full("boots guests of its own")

# The guest sees this machine's files, and what it writes is gone at its end but for this.
SCRIPT = r"""
modprobe loop
truncate -s 128M /tmp/disk
device=$(/sbin/losetup --find --show /tmp/disk) || exit 1
/sbin/mkfs.ext4 -q -b 1024 -J size=4 -E lazy_itable_init=0,lazy_journal_init=0 $device || exit 1
mkdir /tmp/place
klogger record -q -s ext4 -o /tmp/calls.klog -- "$0" $device /tmp/place >/tmp/report || exit 1
echo "device $(stat -c %t:%T $device)"
echo "report $(cat /tmp/report)"
echo "log $(base64 -w 0 /tmp/calls.klog)"
"""


@pytest.fixture(scope="module")
def recorded(klogger, workloads, tmp_path_factory):
    if not list((cache() / "guest").glob("linux-image-*.deb")):
        pytest.skip("no kernel for a guest: run 'scripts/setup guest'")
    if not shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:/usr/sbin:/sbin"):
        pytest.skip("no mkfs.ext4")
    folder = tmp_path_factory.mktemp("ext4")
    shutil.copy(workloads / "ext4_calls", folder)
    guest = [sys.executable, "-m", "klogger_lab.cli.guest", "--", "sh", "-c", SCRIPT]
    done = subprocess.run(
        [*guest, "./ext4_calls"],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        timeout=900, env={**os.environ, "KLOGGER": str(klogger), "KLOGGER_CACHE": str(cache())},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    path = folder / "calls.klog"
    subprocess.run(["base64", "-d"], input=said["log"].encode(), stdout=path.open("wb"), check=True)
    major, minor = (int(part, 16) for part in said["device"].split(":"))
    report = workload_json(said["report"])
    return ext4_calls.Recorded(Log(klogger, path), path, major << 20 | minor, report)


def test_nothing_is_lost(recorded):
    assert recorded.log.one("SELECT coalesce(sum(lost), 0) FROM event") == 0
    # Of the alternatives for newer kernels only.
    missing = recorded.log.rows("SELECT event FROM ledger WHERE key = 'probe_not_attached'")
    assert {event for (event,) in missing} <= {None, ""}


# Its clock is emulated: the time between the program's look at it and the call is not.
CHECKS = [check for check in ext4_calls.CHECKS if check is not ext4_calls.check_syncs]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_calls(recorded, check):
    check(recorded)


def test_syncs(recorded):
    syncs = recorded.report["syncs"]
    found = recorded.rows("inode, datasync", "FSYNC", "ORDER BY time")
    assert found == [(inode, bool(data)) for _, _, inode, data in syncs]


def test_what_fsync_waits_for_is_a_commit(recorded):
    """A function that waits for a commit is called within fsync(), and takes no longer."""
    rows = recorded.log.rows(f"""
        SELECT f.took, s.took FROM FSYNC AS f JOIN STALL AS s ON s.tid = f.tid
            AND s.device = f.device AND s.time BETWEEN f.time - f.took::BIGINT AND f.time
        WHERE f.device = {recorded.device}
    """)
    assert len(rows) >= 101
    assert all(waited <= took for took, waited in rows)
