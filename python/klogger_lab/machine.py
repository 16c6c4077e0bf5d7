# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What machine this is, and what its kernel cannot do."""

from __future__ import annotations

import ctypes
import errno
import gzip
import os
import platform
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from klogger.units import printable, size

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
CLOCKSOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "ppc64le": 319, "s390x": 331}
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Machine:
    """Sizes are bytes; 0 is not known. `model` is the CPU's, `lacks` what this kernel cannot do, in
    words.
    """

    cpus: int
    kernel: str
    model: str
    memory: int
    l1d: int
    l2: int
    hz: int
    virtual: bool
    clocksource: str
    lacks: tuple[str, ...] = ()

    def line(self) -> str:
        """It in one line, for people."""
        parts = [
            f"Linux {self.kernel}",
            f"{self.cpus} CPU{'s' if self.cpus != 1 else ''}",
            self.model,
        ]
        parts += [size(self.memory)] if self.memory else []
        parts += [f"{self.hz} Hz"] if self.hz else []
        parts += ["virtual"] if self.virtual else []
        return printable(", ".join(p for p in parts if p))


def machine() -> Machine:
    cpuinfo = text(Path("/proc/cpuinfo"))
    config = kernel_config()
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        kernel=os.uname().release,
        model=field(cpuinfo, "model name") or field(cpuinfo, "Model") or platform.machine(),
        memory=kib(field(text(Path("/proc/meminfo")), "MemTotal")),
        l1d=cache(1, "Data"),
        l2=cache(2, "Unified"),
        hz=int(config.get("CONFIG_HZ", "0")),
        virtual=is_virtual(cpuinfo),
        clocksource=text(CLOCKSOURCE).strip(),
        lacks=tuple(word for word, there in ABILITIES.items() if there(config) is False),
    )


def text(path: Path) -> str:
    """The text of a file of the kernel's, or nothing."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def field(lines: str, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", lines, re.M)
    return found[1].strip() if found else ""


def kib(words: str) -> int:
    return int(words.split(maxsplit=1)[0]) * 1024 if words else 0


def cache(level: int, kind: str) -> int:
    for index in sorted(CACHES.glob("index*")):
        if text(index / "level").strip() == str(level) and text(index / "type").strip() == kind:
            return bytes_of(text(index / "size").strip())
    return 0


def bytes_of(words: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)", words)
    return int(found[1]) * UNITS.get(found[2], 1) if found else 0


def is_virtual(cpuinfo: str) -> bool:
    return "hypervisor" in field(cpuinfo, "flags").split() or Path("/sys/hypervisor/type").exists()


def kernel_config() -> dict[str, str]:
    """CONFIG_X to its value; empty if the kernel's configuration is nowhere to be read."""
    found = ""
    try:
        found = gzip.decompress(Path("/proc/config.gz").read_bytes()).decode(errors="replace")
    except (OSError, gzip.BadGzipFile):
        found = text(Path(f"/boot/config-{os.uname().release}"))
    return dict(re.findall(r"^(CONFIG_\w+)=(.*)$", found, re.M))


def configured(option: str) -> Callable[[dict[str, str]], bool | None]:
    return lambda config: option in config if config else None


def has_counters(_: dict[str, str]) -> bool | None:
    """Whether cycles can be counted; None if the kernel does not allow the test."""
    number = PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        return None
    # struct perf_event_attr, first version: hardware, cycles, disabled; without the kernel, which
    # need not be allowed.
    attribute = struct.pack("=IIQQQQQIIQ", 0, 64, 0, 0, 0, 0, 0b1 | 1 << 5 | 1 << 6, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    handle = libc.syscall(number, attribute, 0, -1, -1, 0)
    if handle >= 0:
        os.close(handle)
        return True
    return (
        False
        if ctypes.get_errno() in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV, errno.ENOSYS)
        else None
    )


# Studies may look for these words in `Machine.lacks`. False: certainly not there; None: not known.
ABILITIES: dict[str, Callable[[dict[str, str]], bool | None]] = {
    "types (BTF)": lambda _: Path("/sys/kernel/btf/vmlinux").exists(),
    "kprobes": lambda _: Path("/sys/bus/event_source/devices/kprobe").exists(),
    "hardware counters": has_counters,
    "modules": lambda _: Path("/proc/modules").exists(),
    "schedstats": configured("CONFIG_SCHEDSTATS"),
    "lock statistics": configured("CONFIG_LOCK_STAT"),
}
