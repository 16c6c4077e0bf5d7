# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernel's tracefs, which need not be mounted: ftrace, and tools that read the ids of
tracepoints from it.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from pathlib import Path

ROOT = Path("/sys/kernel/tracing")
REMEDY = f"as root: mount -t tracefs tracefs {ROOT}"
CLONE_NEWNS = 0x20000
MS_REC = 1 << 14
MS_SLAVE = 1 << 19


@cache
def why_not() -> str | None:
    """Why there is no tracefs at ROOT; None if there is.

    Where it is not mounted, this process mounts it, in a mount namespace of its own, which programs
    that it starts from this thread share. It ends with them: nothing is left to unmount, and no
    other process sees it.
    """
    if is_mounted():
        return None
    try:
        mount_privately()
    except OSError as error:
        if error.errno == errno.ENODEV:
            return "this kernel has no tracefs"
        return f"tracefs is not mounted, and cannot be ({error.strerror}); {REMEDY}"
    return None


def is_mounted() -> bool:
    return (ROOT / "events").exists()


def mount_privately() -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def checked(result: int) -> None:
        if result != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    root = os.fsencode(ROOT)
    checked(libc.unshare(CLONE_NEWNS))
    # What others mount later is seen here as well, and not the other way round.
    checked(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_SLAVE), None))
    checked(libc.mount(b"tracefs", root, b"tracefs", ctypes.c_ulong(0), None))
