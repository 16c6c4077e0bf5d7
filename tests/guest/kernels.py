# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernels that guests boot, and what modules for them are built with."""

import os
import subprocess
from pathlib import Path

import pytest
from test_kernel_engine import headers

ROOT = Path(__file__).resolve().parent.parent.parent
SLOW = bool(os.environ.get("KLOGGER_SLOW"))
# The second one looks for mistakes in its own code, and in that of modules.
KERNELS = ["debian", pytest.param("debug", marks=pytest.mark.skipif(not SLOW, reason="set KLOGGER_SLOW=1"))]
COMPLAINTS = ("WARN", "BUG", "Oops", "Call Trace", "general protection", "scheduling while atomic", "self-detected")
# Scanned twice, for what is just being freed may look like a leak.
KMEMLEAK = """
mountpoint -q /sys/kernel/debug || mount -t debugfs debug /sys/kernel/debug
for _ in 1 2; do echo scan >/sys/kernel/debug/kmemleak; sleep 6; done
cat /sys/kernel/debug/kmemleak >/out/kmemleak
"""


def kernel(name: str) -> tuple[Path | None, Path]:
    """Its image (Debian's is what guests have anyway), and the folder that modules for it are built with."""
    if name == "debian":
        return None, headers()
    image = Path(run([ROOT / "scripts/kernel", name], ROOT).splitlines()[-1])
    return image, image.parents[3]


def run(command, folder, timeout=600) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_kernel_is_well(out: Path):
    """By its log, and by the list of what nobody points to any more."""
    lines = (out / "dmesg").read_text().splitlines()
    assert [line for line in lines if any(word in line for word in COMPLAINTS)] == []
    if (out / "kmemleak").exists():
        assert (out / "kmemleak").read_text() == ""
