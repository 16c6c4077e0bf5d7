# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whether KVM works here, found out by trying.

A /dev/kvm says little. In a virtual machine it may be there and run a few instructions, and yet no
kernel: so the trial is the boot of one. It has nothing to mount, panics, and thereby ends.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

from klogger import outputs
from klogger.failure import Failure
from klogger_lab.guest.kernels import Kernel, cache

DEVICE = Path("/dev/kvm")
# Seconds: many times what a kernel takes. Where KVM is a sham, it lasts for ever.
PATIENCE = 15


def kvm_works(kernel: Kernel, qemu: str) -> bool:
    """Remembered until this machine boots anew."""
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        return False
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    answers = cache() / "kvm"
    with contextlib.suppress(OSError, ValueError):
        remembered, answer = answers.read_text().split()
        if remembered == boot:
            return answer == "yes"
    works = boots(kernel, qemu)
    with contextlib.suppress(Failure):
        outputs.write(answers, f"{boot} {'yes' if works else 'no'}\n".encode())
    return works


def boots(kernel: Kernel, qemu: str) -> bool:
    words = [
        qemu,
        "-accel",
        "kvm",
        "-cpu",
        "host",
        "-machine",
        "q35",
        "-m",
        "512",
        "-nodefaults",
        "-display",
        "none",
    ]
    words += [
        "-no-reboot",
        "-kernel",
        str(kernel.image),
        "-append",
        "panic=-1 root=/dev/none rdinit=/none quiet",
    ]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
