# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A small disk of one's own, for tests and studies: a file behind a loop device, which is mounted
and goes away again, whatever happens.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from klogger import devices
from klogger.failure import Failure

# Other programs look at new file systems for a moment, and then they cannot be unmounted.
PATIENCE = 20.0
LOOK = 0.05
# Where tools for the administrator are, which is not in everybody's PATH.
PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
PACKAGES = {
    "losetup": "mount", "mount": "mount", "umount": "mount", "mkfs.ext4": "e2fsprogs",
    "mke2fs": "e2fsprogs", "mkfs.xfs": "xfsprogs", "mkfs.btrfs": "btrfs-progs",
    "mkfs.f2fs": "f2fs-tools", "mkfs.vfat": "dosfstools", "dmsetup": "dmsetup",
}  # fmt: skip


@dataclass(frozen=True)
class Disk:
    """`number` is the device's as in fields `as device` of a log, `text` the same as 7:1.
    `folder` is where it is mounted; None if it is not.
    """

    device: Path
    number: int
    image: Path
    folder: Path | None

    @property
    def name(self) -> str:
        """As in /proc/diskstats, /sys/block and, for ext4, /sys/fs/ext4."""
        return self.device.name

    @property
    def text(self) -> str:
        return devices.text(self.number)


@contextlib.contextmanager
def loop_disk(
    folder: Path,
    megabytes: int,
    *,
    mkfs: Sequence[str | os.PathLike[str]] = (),
    mount_options: str = "",
    kind: str = "",
    losetup: Sequence[str] = (),
    mount: bool = True,
) -> Iterator[Disk]:
    """A disk whose file is sparse and in `folder`, which is made, and removed, if it is not there.

    `mkfs` is a command (["mkfs.ext4", "-q", "-b", "4096"]), to which the device is added. Without
    it nothing is made, and nothing mounted. The file system is mounted at `folder/mounted` with
    `mount_options` ("data=ordered,noatime"); `kind` is for `mount -t`, where the name of the
    command (mkfs.KIND) does not say it. With `mount=False` the file system is made only.
    `losetup` are more options, such as "--direct-io=on".
    """
    for word in ("losetup", *([str(mkfs[0]), "mount", "umount"] if mkfs else [])):
        find(word)
    image = folder / "disk.img"
    with contextlib.ExitStack() as undo:
        if not folder.exists():
            folder.mkdir(parents=True)
            undo.callback(remove_empty, folder)
        with image.open("wb") as file:
            undo.callback(image.unlink, missing_ok=True)
            file.truncate(megabytes * 1024 * 1024)
        made = run("losetup", "--find", "--show", *losetup, image)
        device = Path(made.strip())
        undo.callback(detach, device)
        if mkfs:
            run(*mkfs, device)
        number = os.stat(device).st_rdev
        number = devices.number(os.major(number), os.minor(number))
        if not mkfs or not mount:
            yield Disk(device, number, image, None)
            return
        kind = kind or Path(mkfs[0]).name.partition(".")[2]
        with mounted(device, folder / "mounted", mount_options, kind) as place:
            yield Disk(device, number, image, place)


@contextlib.contextmanager
def mounted(device: Path, place: Path, mount_options: str = "", kind: str = "") -> Iterator[Path]:
    """The file system of a device at a folder that is made and removed."""
    place.mkdir()
    try:
        of_kind = ["-t", kind] if kind else []
        options = ["-o", mount_options] if mount_options else []
        run("mount", *of_kind, *options, device, place)
        try:
            yield place
        finally:
            unmount(place)
    finally:
        place.rmdir()


def find(word: str) -> str:
    """The path of a tool."""
    found = shutil.which(word, path=PLACES)
    if found is None:
        package = PACKAGES.get(Path(word).name)
        raise Failure(
            f"there is no {word}, and a small disk needs it",
            help=f"apt install {package}" if package else None,
        )
    return found


def run(*words: str | os.PathLike[str]) -> str:
    """What a tool prints; its Failure has what it complains about."""
    first, *more = map(str, words)
    done = subprocess.run(
        [find(first), *more], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        help = "a loop device and a mount need root" if os.geteuid() else None
        raise Failure(f"{' '.join([first, *more])}: {said}", help=help)
    return done.stdout


def unmount(place: Path) -> None:
    """Waits for those who still look at it. At last it goes away for new ones, and this fails."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            run("umount", place)
        except Failure:
            if time.monotonic() > until:
                run("umount", "--lazy", place)
                raise
            time.sleep(LOOK)
        else:
            return


def remove_empty(folder: Path) -> None:
    """What others have put there stays."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def detach(device: Path) -> None:
    """The kernel does it when the last one has closed the device."""
    run("losetup", "--detach", device)
