# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `extents` on Debian's kernel, whose file systems are modules: maps that are replayed
from events are those that the kernel tells, also on f2fs and FAT.
"""

import os

import file_systems
import mapped
import pytest
from boots import BPF, Case
from oracles import Log, check_whole

pytestmark = pytest.mark.full("boots guests of its own")

KINDS = ["ext4", "xfs", "f2fs", "vfat"]
# In MiB; smaller ones, XFS and f2fs refuse.
SIZES = {"ext4": 64, "xfs": 300, "f2fs": 64, "vfat": 64}
OPTIONS = {"ext4": "-q -m 0", "xfs": "-q", "f2fs": "-q", "vfat": ""}
MADE = """
mkdir -p /tmp/{kind} && truncate -s {size}M /tmp/{kind}.img
mkfs.{kind} {options} /tmp/{kind}.img >/out/{kind}.made 2>&1
losetup /dev/loop{number} /tmp/{kind}.img && mount -t {kind} /dev/loop{number} /tmp/{kind}
stat -c %d /tmp/{kind} >/out/{kind}.device
"""
# From debugfs klogger knows that threads are not preempted in its programs; else what functions log
# goes to the nested ring, which is small.
RECORDED = f"""
mountpoint -q /sys/kernel/debug || mount -t debugfs debug /sys/kernel/debug
klogger record --no-calibrate -s extents -o /out/extents.klog -- sh -c '
    for kind in {" ".join(KINDS)}; do file_extents /tmp/$kind >/out/$kind.maps; done' 2>/out/err
"""
UNDONE = "umount /tmp/{kind} && losetup -d /dev/loop{number} && rm -f /tmp/{kind}.img\n"


def of_each(text: str) -> str:
    return "".join(
        text.format(kind=kind, number=number, size=SIZES[kind], options=OPTIONS[kind])
        for number, kind in enumerate(KINDS)
    )


LOADED = file_systems.loading(["loop", *KINDS])
SCRIPT = f"set -e\n{LOADED}{of_each(MADE)}{RECORDED}{of_each(UNDONE)}"


def files(request) -> list[str]:
    return file_systems.modules(request, ["loop", *KINDS])


CASES = {"extents": Case(BPF, SCRIPT, files, seconds=300)}


@pytest.fixture(scope="module")
def recorded(boots):
    return boots.case("extents")


@pytest.mark.parametrize("kind", KINDS)
def test_replayed_maps_are_the_kernels(recorded, klogger, kind):
    told, left_out = mapped.told((recorded / f"{kind}.maps").read_text())
    assert len(told) >= 2 * 7 + 13
    assert left_out == {"vfat": ["punch", "zero"]}.get(kind, [])
    log = Log(klogger, recorded / "extents.klog")
    check_whole(log)
    # As stat tells it; in the log it is as in the kernel.
    number = int((recorded / f"{kind}.device").read_text())
    device = os.major(number) << 20 | os.minor(number)
    mapped.check(log, told, device)
