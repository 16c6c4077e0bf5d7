# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `klogger guest` does: finds a kernel, boots it in QEMU over this machine's own files, and
runs a command there.

virtme-ng finds the kernel's modules, makes the initramfs that mounts our root file system, and
knows QEMU's options. What runs there is `init`, a shell script: virtme-ng's own init starts udev
and systemd-tmpfiles, which under plain emulation takes longer than the kernel needs to boot.
"""
