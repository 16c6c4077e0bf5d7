# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `extents`: the maps of files, replayed from its events, are those that the kernel
tells (FIEMAP), extent by extent, whenever a file has been closed.
"""

import contextlib
import fcntl
import os
import struct
from pathlib import Path

import mapped
import pytest
from oracles import Log, check_whole

from klogger import devices
from klogger_lab import disk, fiemap

SCHEMA = Path(__file__).resolve().parents[2] / "schemata/extents/extents.klogger"
# BTRFS_IOC_SUBVOL_CREATE.
SUBVOLUME = 0x5000940E
ARGUMENTS = struct.Struct("q4088s")
# Smaller ones, XFS and btrfs refuse.
MADE = {
    "ext4": (["mkfs.ext4", "-q", "-m", "0"], 64),
    "ext2": (["mkfs.ext4", "-q", "-m", "0", "-O", "^extents,^64bit,^has_journal"], 64),
    "xfs": (["mkfs.xfs", "-q"], 300),
    "btrfs": (["mkfs.btrfs", "-q"], 114),
}


@pytest.fixture(params=[*MADE])
def small(request, tmp_path):
    mkfs, megabytes = MADE[request.param]
    kind = "ext4" if request.param == "ext2" else ""
    with contextlib.ExitStack() as undo:
        made = disk.loop_disk(tmp_path / "extents-disk", megabytes, mkfs=mkfs, kind=kind)
        yield request.param, undo.enter_context(made)


@pytest.mark.full("takes more than 3 s")
def test_replayed_maps_are_the_kernels(recorder, workloads, small):
    kind, made = small
    # Nothing says where btrfs preallocates. The others move what is behind a range.
    more = {"btrfs": ["49152", "none"], "ext2": []}.get(kind, ["49152", "moved"])
    command = [workloads / "file_extents", made.folder, *more]
    done, path = recorder.run("-s", SCHEMA, "--", *command)
    assert done.code == 0, done.err
    told, left_out = mapped.told(done.out)
    # 7 files twice, and the changes in between.
    assert len(told) >= 2 * 7 + 13 + 10 * ("moved" in more)
    assert left_out == {"ext2": ["preallocate", "zero"]}.get(kind, [])
    log = Log(recorder.klogger, path)
    check_whole(log)
    number = os.stat(made.folder).st_dev
    device = devices.number(os.major(number), os.minor(number))
    mapped.check(log, told, device)
    shifts = log.one("SELECT count(*) FROM shifted")
    assert shifts == (6 if kind == "ext4" else 0)
    # A file that cannot be replayed would be named.
    assert log.one("SELECT count(*) FROM unfollowed") == 0
    # By the helper for Python, at last: as the program found them.
    for file in made.folder.glob("f10?"):
        with file.open() as opened:
            inode = os.fstat(opened.fileno()).st_ino
            now = fiemap.joined(fiemap.placed(fiemap.fiemap(opened.fileno())))
        (last,) = [extents for number, extents in told[-7:] if number == inode]
        assert now == fiemap.joined(fiemap.placed(last))


def test_files_whose_places_nothing_tells_are_named(recorder, tmp_path):
    """btrfs: preallocated space, and a clone. A file that is only written is none of them."""
    with disk.loop_disk(tmp_path / "extents-disk", 114, mkfs=MADE["btrfs"][0]) as made:
        write = (
            "cd $0; head -c 65536 /dev/zero >plain; fallocate -l 65536 made; sync -f plain;"
            " cp --reflink=always plain clone; cp --reflink=auto plain copy; ls -i"
        )
        done, path = recorder.run("-s", SCHEMA, "--", "sh", "-c", write, made.folder)
    assert done.code == 0, done.err
    numbers = {name: int(number) for number, name in map(str.split, done.out.splitlines())}
    log = Log(recorder.klogger, path)
    found = log.rows("SELECT inode, why, fs FROM unfollowed ORDER BY time")
    assert found == [(numbers["made"], 1, 3), (numbers["clone"], 2, 3), (numbers["copy"], 2, 3)]


@pytest.mark.full("takes more than 3 s")
def test_more_file_systems_than_there_is_room_for(recorder, tmp_path):
    """What is left out is counted. Each subvolume of btrfs is one, for its inodes are numbered on
    their own.
    """
    # The smallest table has room for 112.
    many = 131
    with disk.loop_disk(tmp_path / "extents-disk", 114, mkfs=MADE["btrfs"][0]) as made:
        folder = os.open(made.folder, os.O_RDONLY)
        for number in range(many):
            fcntl.ioctl(folder, SUBVOLUME, bytearray(ARGUMENTS.pack(0, b"%d" % number)))
        os.close(folder)
        write = "for n in $(seq 0 $1); do head -c 65536 /dev/zero >$0/$n/file; done; sync -f $0/0"
        command = ["sh", "-c", write, made.folder, many - 1]
        done, path = recorder.run("-s", SCHEMA, "--set", "devices=1", "--", *command)
        assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    seen = log.one("SELECT count(DISTINCT device) FROM extent WHERE fs = 3")
    full = log.one("SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'state_full'")
    assert 1 <= seen < many
    assert full >= many - seen
