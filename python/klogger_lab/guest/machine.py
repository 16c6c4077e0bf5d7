# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The guest itself: QEMU as virtme-ng starts it, what comes out of it, and what went wrong if
nothing does.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from klogger.failure import Failure
from klogger_lab.guest.kernels import Kernel

# It finds the libraries where this program has found them.
VIRTME = (
    f"import sys; sys.path[:] = {sys.path!r}; from virtme.commands.run import main;"
    " raise SystemExit(main())"
)
INIT = Path(__file__).with_name("init")
# A kernel that does not boot, on a slow machine that emulates and has other things to do.
BOOT = 300.0
POLL = 0.05
TAIL = 12


@dataclass(frozen=True)
class Machine:
    """`append`: more words for the kernel's command line. `timeout`: seconds for the command."""

    kernel: Kernel
    kvm: bool
    smp: int = 2
    memory: str = "1G"
    append: str = ""
    timeout: float | None = None


# Called with the seconds so far while the kernel boots, and with None when that is over.
Show = Callable[[float | None], None]


class Relay:
    """Copies what is appended to a file to one of our own outputs."""

    def __init__(
        self, path: Path, output: int, translate: Callable[[bytes], bytes] = bytes
    ) -> None:
        path.touch()
        self.file = path.open("rb")
        self.output = output
        self.translate = translate
        self.rest = b""

    def copy(self) -> None:
        """A line that is still being written is held back, but not for longer than until the next
        call.
        """
        new = self.file.read()
        text, self.rest = self.rest + new, b""
        if new:
            whole = text.rfind(b"\n") + 1
            text, self.rest = text[:whole], text[whole:]
        self.write(text)

    def finish(self) -> None:
        self.write(self.rest + self.file.read())
        self.file.close()

    def write(self, text: bytes) -> None:
        text = self.translate(text)
        while text:
            text = text[os.write(self.output, text) :]


def run(machine: Machine, work: Path, relays: list[Relay], show: Show) -> int:
    """Runs the shell script `work/command` there, and returns its exit code."""
    prepare(machine, work)
    begun = time.monotonic()
    with started(machine, work) as process:
        try:
            while process.poll() is None and not (work / "exit").exists():
                watch(machine, work, time.monotonic() - begun, show)
                for relay in relays:
                    relay.copy()
                time.sleep(POLL)
        finally:
            show(None)
            for relay in relays:
                relay.finish()
    if not (work / "exit").exists():
        raise ended_early(machine, work)
    return int((work / "exit").read_text())


def watch(machine: Machine, work: Path, since: float, show: Show) -> None:
    try:
        running = time.time() - (work / "started").stat().st_mtime
    except FileNotFoundError:
        show(since)
        check(work)
        if since > BOOT:
            raise not_booted(machine, work, since) from None
        return
    show(None)
    if running > (machine.timeout or running):
        raise too_long(work, running)


def prepare(machine: Machine, work: Path) -> None:
    if re.search(r"[\s,\"']", str(work)):
        raise Failure(
            f"{work}: the kernel's command line cannot name this folder",
            help="set TMPDIR to a plainer one",
        )
    shutil.copy(INIT, work / "init")
    (work / "init").chmod(0o755)
    (work / "modules").write_text(f"{machine.kernel.modules or ''}\n")


@contextlib.contextmanager
def started(machine: Machine, work: Path) -> Iterator[subprocess.Popen[bytes]]:
    """In a session of its own: virtme-ng has QEMU as a child, and Ctrl-C is for us."""
    path = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]
    )
    with (work / "console").open("wb") as console, (work / "virtme").open("wb") as errors:
        process = subprocess.Popen(
            words(machine, work), stdin=subprocess.DEVNULL, stdout=console, stderr=errors,
            env={**os.environ, "PATH": path}, start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def words(machine: Machine, work: Path) -> list[str]:
    """Without udev, virtme-ng's own ways into the guest are closed; so it gets our command line
    instead of its own.
    """
    kernel = machine.kernel
    found = [sys.executable, "-c", VIRTME, "--force-initramfs", "--force-9p", "--disable-microvm"]
    # It would make an index of what it takes for modules, even in this machine's own /lib/modules.
    found += [f"--mods={'auto' if kernel.modules else 'none'}"]
    found += [f"--kdir={kernel.tree}" if kernel.tree else f"--kimg={kernel.image}"]
    # Of the overlay, only the module is meant: `init` mounts it.
    found += [
        "--disable-monitor",
        "--overlay-rwdir=/",
        f"--cpus={machine.smp}",
        f"--memory={machine.memory}",
    ]
    line = "console=ttyS0 quiet loglevel=4 panic=-1 random.trust_cpu=on"
    qemu = ["-no-reboot"]
    if not machine.kvm:
        # The watchdog of clocks takes an emulated TSC for a bad one. Five levels of page tables are
        # slow to emulate.
        found.append("--disable-kvm")
        line += " tsc=reliable"
        qemu += ["-cpu", "max,la57=off"]
    qemu += ["-append", f"{line} {machine.append} init={work}/init"]
    qemu += [
        "-virtfs",
        "local,path=/,mount_tag=klogger.root,security_model=none,readonly=on,multidevs=remap",
    ]
    qemu += ["-virtfs", f"local,path={work},mount_tag=klogger.work,security_model=none"]
    return found + [f"-q={word}" for word in qemu]


def check(work: Path) -> None:
    """Raises what the console says about a kernel that lacks something."""
    text = console(work)
    if "Failed to mount real root" in text:
        raise Failure(
            "the guest's kernel cannot mount this machine's files: it has no "
            "driver for 9p over virtio",
            help="it needs CONFIG_VIRTIO_PCI, CONFIG_NET_9P_VIRTIO, CONFIG_9P_FS and"
            " CONFIG_OVERLAY_FS, built in or as modules in lib/modules/RELEASE beside the image",
        )
    complaint = re.search(r"^klogger guest: (.*)$", text, re.MULTILINE)
    if complaint:
        raise Failure(
            f"the guest's kernel does not suffice: {complaint[1].strip()}",
            help="build it with that",
        )


def not_booted(machine: Machine, work: Path, since: float) -> Failure:
    return Failure(
        f"the guest ({machine.kernel.release}) had not booted after {since:.0f} s, and was ended\n"
        f"{tail(work)}",
        help="-v shows what its kernel says, and --append loglevel=7 makes it say more",
    )


def too_long(work: Path, running: float) -> Failure:
    return Failure(
        f"the command was still running after {running:.0f} s, and the guest was ended\n"
        f"{tail(work)}",
        help="--timeout gives it more time",
    )


def ended_early(machine: Machine, work: Path) -> Failure:
    check(work)
    panic = re.search(r"Kernel panic - not syncing: (.*)", console(work))
    if panic:
        return Failure(
            f"the guest's kernel ({machine.kernel.release}) panicked: {panic[1].strip()}\n"
            f"{tail(work)}",
            help="-v shows what it says, and --append loglevel=7 makes it say more",
        )
    if (work / "started").exists():
        return Failure(
            f"the guest ended before the command did\n{tail(work)}",
            help="did the command shut it down?",
        )
    complaint = (work / "virtme").read_text(errors="replace").strip() or "and QEMU said nothing"
    return Failure(
        f"the guest did not start: {complaint}", help="are --memory and --smp what QEMU takes?"
    )


def console(work: Path) -> str:
    text = (work / "console").read_text(errors="replace").replace("\r", "")
    return re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|c)", "", text)


def tail(work: Path) -> str:
    """The end of it; of a panic, the beginning."""
    lines = [line for line in console(work).splitlines() if line.strip()]
    if not lines:
        return "  its console said nothing"
    first = (
        at for at, line in enumerate(lines) if re.search(r"\bBUG: |\bOops: |Kernel panic - ", line)
    )
    start = next(first, max(0, len(lines) - TAIL))
    shown = [f"    {line[:110]}" for line in lines[start : start + TAIL]]
    return "\n".join(["  its console said:", *shown])
