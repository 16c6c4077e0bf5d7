# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Modules of the kernel that guests boot, from its package, which `scripts/setup guest` fetches."""

import subprocess
from collections.abc import Iterable
from pathlib import Path

from klogger_lab.guest.kernels import cache


def unpack(names: Iterable[str], folder: Path) -> bool:
    """NAME.ko for each that the kernel has as a module; False if there is no package."""
    package = next(cache().glob("linux-image-*.deb"), None)
    if package is None:
        return False
    tar = ["tar", "-x", "-C", str(folder), "--wildcards", "--transform", "s|.*/||"]
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE
    ) as reader:
        # Names that it does not find are built in.
        subprocess.run(
            [*tar, *(f"*/{name}.ko*" for name in names)],
            stdin=reader.stdout,
            check=False,
            stderr=subprocess.DEVNULL,
        )
    return True
