# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where tracefs is not mounted, a process that needs it mounts it for itself alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from klogger_lab import tracefs

LOOK = f"""
import subprocess
from klogger_lab import tracefs
assert not tracefs.is_mounted()
print(tracefs.why_not())
print(tracefs.is_mounted(), subprocess.run(["test", "-e", "{tracefs.ROOT}/events"]).returncode)
"""


def without(*command: str) -> str:
    """What a program prints that is started where neither tracefs nor debugfs is mounted."""
    umount = "".join(
        f"umount -l {folder} 2>/dev/null; " for folder in (tracefs.ROOT, "/sys/kernel/debug")
    )
    words = ["unshare", "--mount", "sh", "-c", f'{umount}exec "$@"', "sh", *command]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="not root")
def test_it_is_mounted_for_this_process_and_no_other() -> None:
    seen = 'cat /proc/self/mounts; "$0" "$@"; cat /proc/self/mounts'
    before, after = without("sh", "-c", seen, sys.executable, "-c", LOOK).split("None\nTrue 0\n")
    assert before == after
    assert "tracefs" not in before


def test_who_may_not_mount_is_told_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(tracefs, "ROOT", Path("/nowhere"))
    monkeypatch.setattr(tracefs, "mount_privately", refused)
    said = tracefs.why_not.__wrapped__()
    assert (
        said == "tracefs is not mounted, and cannot be (Operation not permitted); " + tracefs.REMEDY
    )
