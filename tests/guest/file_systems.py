# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Modules of the guest's kernel that file systems and small disks need, from its package."""

import shutil
from pathlib import Path

import pytest

from klogger_lab.guest import modules as guest_modules

# In the order in which they are loaded; what they need comes before them.
MODULES = {
    "loop": ["loop"],
    "ext4": ["crc32c_generic", "crc16", "mbcache", "jbd2", "ext4"],
    "xfs": ["crc32c_generic", "libcrc32c", "xfs"],
    "f2fs": ["crc32_generic", "lz4_compress", "lz4hc_compress", "zstd_compress", "f2fs"],
    "vfat": ["nls_cp437", "nls_ascii", "nls_iso8859-1", "fat", "vfat"],
}


def unpacked(names: list[str], folder: Path) -> None:
    if not guest_modules.unpack(names, folder):
        pytest.skip("no package of the guest's kernel: run 'scripts/setup guest'")


def words(kinds: list[str]) -> list[str]:
    """The modules of some file systems, each once."""
    return list(dict.fromkeys(name for kind in kinds for name in MODULES[kind]))


def loading(kinds: list[str]) -> str:
    """Shell: loads them from /kmod. Some are built in, or there already."""
    return f"for m in {' '.join(words(kinds))}; do insmod /kmod/$m.ko 2>/dev/null || true; done\n"


def modules(request, kinds: list[str]) -> list[str]:
    """For the list of files of a case: the modules, and the programs that make file systems."""

    def unpack(made: Path) -> None:
        unpacked(words(kinds), made)

    folder = request.getfixturevalue("once")("kmod-" + "-".join(kinds), unpack)
    made = [f"{folder}=/kmod"]
    for kind in kinds:
        if kind == "loop":
            continue
        program = shutil.which(f"mkfs.{kind}", path="/usr/sbin:/sbin:/usr/bin:/bin")
        if program is None:
            pytest.skip(f"no mkfs.{kind}")
        made.append(f"{program}=/bin/mkfs.{kind}")
    return made
