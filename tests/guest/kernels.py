# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernels that guests boot, what modules for them are built with, and of which schemata."""

import base64
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiers import SLOW

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# Keyed state, user stacks and these kinds of probes are the bpf engine's alone.
NEEDS_BPF = re.compile(
    r"^state |klogger_user_stack|klogger_sock_|klogger_global"
    r"|^ *(probe|or) (return )?(syscall|user|start|end|timer|sample)\b",
    re.M,
)
# The bundled schemata that have a module.
BUNDLED = sorted(
    path.stem
    for path in ROOT.glob("schemata/*/*.klogger")
    if "\nprobe " in path.read_text() and not NEEDS_BPF.search(path.read_text())
)
FLOOD = ROOT / "tests/live/flood.klogger"
PLACES = ROOT / "tests/golden/kernel/places.klogger"
REMEMBER = HERE / "remember.klogger"
CRASH = HERE / "vmcore/crash.klogger"
# Of each the tests have a module.
BUILT = [*BUNDLED, FLOOD, PLACES, REMEMBER, CRASH]
# The second one looks for mistakes in its own code, and in that of modules.
KERNELS = [
    "debian",
    pytest.param("debug", marks=pytest.mark.nightly("builds a kernel")),
]
# Those of which there are tests in this run.
TESTED = ["debian", "debug"] if SLOW else ["debian"]
COMPLAINTS = (
    "WARN",
    "BUG",
    "Oops",
    "Call Trace",
    "general protection",
    "scheduling while atomic",
    "self-detected",
)
# Scanned twice, for what is just being freed may look like a leak.
KMEMLEAK = """
mountpoint -q /sys/kernel/debug || mount -t debugfs debug /sys/kernel/debug
for _ in 1 2; do echo scan >/sys/kernel/debug/kmemleak; sleep 6; done
cat /sys/kernel/debug/kmemleak >/out/kmemleak
"""


def headers() -> Path:
    """Of the guest's kernel."""
    complete = cache() / "guest/complete"
    if not complete.exists():
        pytest.skip("no kernel for a guest: run 'scripts/setup guest'")
    found = Path("/usr/src") / complete.read_text().strip().replace("-image-", "-headers-")
    if not found.exists():
        pytest.skip(f"no {found} to build modules with: run 'scripts/setup guest'")
    return found


def image(name: str) -> Path | None:
    """Debian's is what guests have anyway."""
    if name == "debian":
        return None
    return Path(run([ROOT / "scripts/kernel", name], ROOT).splitlines()[-1])


def kernel(name: str) -> tuple[Path | None, Path]:
    """Its image, and the folder that modules for it are built with."""
    found = image(name)
    return found, found.parents[3] if found else headers()


def debian(name: str) -> tuple[Path | None, str]:
    """The image of a Debian kernel by its series (6.12, 7.2-rt), for scripts/guest --kernel; or
    None, and why not. Fetched, if it was not before.
    """
    done = subprocess.run(
        [ROOT / "scripts/debian-kernel", name],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        return None, f"no kernel {name}: {(done.stderr.strip() or done.stdout.strip())[-300:]}"
    return Path(done.stdout.splitlines()[-1]), ""


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("KLOGGER_CACHE") or os.path.join(base, "klogger"))


def run(command, folder, timeout=600, whole=False) -> str:
    """What it printed; `whole`: on both of its outputs. Fails if it does."""
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=folder, timeout=timeout
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + (done.stderr if whole else "")


def check_kernel_is_well(out: Path):
    """By its log, and by the list of memory without a pointer to it."""
    lines = (out / "dmesg").read_text().splitlines()
    assert [line for line in lines if any(word in line for word in COMPLAINTS)] == []
    if (out / "kmemleak").exists():
        assert (out / "kmemleak").read_text() == ""


def said_in_guest(klogger: Path, folder: Path, script: str) -> list[tuple[str, str]]:
    """What a script says in a guest, which has the files of the folder: the first word of each line
    and the rest.
    """
    if not list((cache() / "guest").glob("linux-image-*.deb")):
        pytest.skip("no kernel for a guest: run 'scripts/setup guest'")
    done = subprocess.run(
        [sys.executable, "-m", "klogger_lab.cli.guest", "--", "sh", "-c", script], cwd=folder,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=1500,
        env={**os.environ, "KLOGGER": str(klogger), "KLOGGER_CACHE": str(cache())},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return [line.partition(" ")[::2] for line in done.stdout.splitlines()]


def unpacked(said: dict[str, str], name: str, file: Path) -> Path:
    """A file that a guest has said as `base64 -w 0`."""
    file.write_bytes(base64.b64decode(said[name]))
    return file
