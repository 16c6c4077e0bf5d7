# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A kernel that panics while it is recorded: the events until then are found in an image of the
guest's memory.
"""

import contextlib
import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import oracles
import pytest
from kernels import CRASH, ROOT, cache, run

pytestmark = pytest.mark.full("boots guests of its own")

HERE = Path(__file__).parent / "vmcore"
PANIC = re.compile(r"Kernel panic - not syncing: hits of thread (\d+): \d+ until (\d+) ns")
# What is said last: by a kernel that has panicked, and by one that was booted then.
END, CAPTURED = "end Kernel panic", "the memory is on the disk"
BEFORE, LAST = 20011, 1009
LATE_NS = 10_000
# The recorders' logs are in the guest's memory. What has been written of the first one goes onto
# the disk, which outlives the guest.
SCRIPT = """
insmod /crash.ko
RECORDERS
sleep 1
BEFORE
sleep 3
dd if=/tmp/crash-0.klog of=/dev/vda bs=65536 conv=sync
sync
LAST
"""
RECORDER = """
klogger record -a -o /tmp/crash-{number}.klog {options} 2>/tmp/said &
until [ -s /tmp/crash-{number}.klog ]; do
    sleep 0.1
    kill -0 $! || {{ cat /tmp/said; exit 1; }}
done
"""
CAPTURE_LINE = "console=ttyS0 quiet loglevel=3 nr_cpus=1 irqpoll reset_devices"
KDUMP = f"/load /capture/vmlinuz /capture/initramfs '{CAPTURE_LINE}' || exit 1\n"
PARAMETERS = "/sys/module/crash/parameters"
# A thread's hits go on until the panic stops it.
FLOOD = f"echo 1000000000 >{PARAMETERS}/flood\nsleep 0.5\n"


@dataclass
class Engine:
    """How it records, hits that have numbers, and where these are in the log."""

    options: str
    before: str
    last: str
    hits: str


KERNEL = Engine(
    "-s /crash.klogger --engine kernel --modules /modules-under-test --buffer-size 1M",
    f"echo {BEFORE} >{PARAMETERS}/hits",
    f"echo {LAST} >{PARAMETERS}/last",
    "SELECT number, pid, time FROM numbered",
)
# A bundled schema, for there is no compiler in the guest.
BPF = Engine(
    "-s scheduler --buffer-size 1M",
    f"/renames {BEFORE}",
    f"/renames {LAST} {PARAMETERS}/last",
    "SELECT CAST(comm AS INTEGER) AS number, pid, time FROM process_rename WHERE"
    " regexp_matches(comm, '^[0-9]+$')",
)
GROWN = dataclasses.replace(
    BPF,
    options="-s scheduler --buffer-size 64K --max-memory 64M",
    before=f"{BPF.before}; ls /sys/fs/bpf/klogger/*",
)


class Crash:
    """The image of a guest that has panicked, and what the guest said."""

    def __init__(self, image: Path, disk: Path, console: str):
        self.image, self.disk, self.console = image, disk, console
        thread, until = PANIC.search(console).groups()
        self.thread, self.until_ns = int(thread), int(until)


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    """What hits the bpf engine's probe, and what loads the kernel for after the crash."""
    made = tmp_path_factory.mktemp("programs")
    for name in ("renames", "load"):
        run(["cc", "-O2", "-o", made / name, HERE / f"{name}.c"], made)
    return made


def capture(folder: Path) -> Path:
    """The kernel that is booted after a crash, and its files. In a folder, for scripts/guest strips
    files.
    """
    tree = folder / "tree"
    for name in ("bin", "proc", "dev"):
        (tree / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", tree / "bin")
    shutil.copytree(cache() / "guest/modules", tree / "modules")
    shutil.copy(HERE / "capture", tree / "init")
    made = folder / "capture"
    made.mkdir()
    shutil.copy(cache() / "guest/vmlinuz", made)
    names = "\n".join(str(path.relative_to(tree)) for path in [tree, *sorted(tree.rglob("*"))])
    with (made / "initramfs").open("wb") as out:
        subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"],
            input=names.encode(),
            stdout=out,
            cwd=tree,
            check=True,
        )
    return made


@pytest.fixture
def crash(klogger, modules, own_module, programs, tmp_path):
    """Boots a guest that records, and panics; then its memory is dumped, by QEMU or by a kernel."""

    def boot(*engines: Engine, machine: str, meanwhile="", options="", kdump=False) -> Crash:
        path = tmp_path / "qmp"
        files = [(modules(), "/modules-under-test"), (CRASH, "/crash.klogger")]
        files += [(own_module(HERE) / "crash.ko", "/crash.ko"), (programs / "renames", "/renames")]
        if kdump:
            files += [(capture(tmp_path), "/capture"), (programs / "load", "/load")]
        added = [word for path, at in files for word in ("--add", f"{path}={at}")]
        recorders = "".join(
            RECORDER.format(number=number, options=f"{engine.options} {options}")
            for number, engine in enumerate(engines)
        )
        # Engines that record at once have their hits from the same place.
        (last,) = {engine.last for engine in engines}
        script = SCRIPT.replace("RECORDERS", recorders).replace("BEFORE", engines[-1].before)
        script = (KDUMP if kdump else "") + script.replace("LAST", meanwhile + last)
        # panic=0: it stays as it is.
        memory, append = ("1G", "panic=0 crashkernel=256M") if kdump else ("512M", "panic=0")
        words = [machine, "--memory", memory, "--timeout", "540", "--append", append, *added]
        environment = {
            **os.environ,
            "KLOGGER": str(klogger),
            "KLOGGER_CACHE": str(cache()),
            "REAL_QEMU": shutil.which("qemu-system-x86_64"),
            "QMP_SOCKET": str(path),
            "PATH": f"{HERE}:{os.environ['PATH']}",
            "TMPDIR": str(tmp_path),
        }
        console = tmp_path / "console"
        with console.open("w") as out:
            guest = subprocess.Popen(
                [ROOT / "scripts/guest", *words, "--", "sh", "-c", script],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        try:
            wait_for(guest, console, CAPTURED if kdump else END)
            (disk,) = tmp_path.glob("tmp.*/disk")
            copied = tmp_path / "disk"
            with Monitor(path) as monitor:
                monitor.do("stop")
                if not kdump:
                    monitor.do(
                        "dump-guest-memory", paging=False, protocol=f"file:{tmp_path / 'vmcore'}"
                    )
                subprocess.run(["cp", "--sparse=always", disk, copied], check=True)
                monitor.do("quit")
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                guest.wait(20)
            guest.terminate()
            guest.wait()
        return Crash(
            copied if kdump else tmp_path / "vmcore", copied, console.read_text(errors="replace")
        )

    yield boot
    shutil.rmtree(tmp_path, ignore_errors=True)


def wait_for(guest, console: Path, end: str):
    """Until the guest has said its last words; fails if it ends without."""
    while end not in console.read_text(errors="replace"):
        assert guest.poll() is None, console.read_text(errors="replace")
        time.sleep(0.2)


class Monitor:
    """QEMU's monitor, in JSON."""

    def __init__(self, path: Path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(300)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("r")

    def __enter__(self):
        self.lines.readline()
        self.do("qmp_capabilities")
        return self

    def __exit__(self, *error):
        self.socket.close()

    def do(self, command: str, **arguments):
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode())
        while True:
            answer = json.loads(self.lines.readline())
            assert "error" not in answer, answer
            if "return" in answer:
                return


def rescue(klogger, crash: Crash, *options):
    """The logs in the order in which their recorders began, and what was said of them."""
    folder = crash.image.with_name("rescued")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    done = subprocess.run(
        [klogger, "rescue", "--vmcore", crash.image, "-o", folder / "crash.klog", *options],
        check=False,
        capture_output=True,
        text=True,
    )
    print(done.stderr)
    assert done.returncode == 0
    # With several, each has the process id of its recorder in its name.
    paths = sorted(folder.iterdir(), key=lambda path: (len(path.name), path.name))
    return [oracles.Log(klogger, path) for path in paths], done.stderr


def check_end(log, crash: Crash, engine: Engine):
    """The last hits before the panic are there."""
    newest = log.rows(
        f"SELECT number, time FROM ({engine.hits}) WHERE pid = {crash.thread} ORDER BY time"
    )
    assert [number for number, _ in newest[-LAST:]] == list(range(1, LAST + 1))
    since_ns = crash.until_ns - log.start_ns
    assert 0 <= since_ns - newest[-1][1] <= LATE_NS


# What records at once. The second ring is too small, and a larger one comes in its place.
RECORDERS = {"bpf": (BPF, GROWN), "kernel": (KERNEL,)}


@pytest.mark.parametrize("name", RECORDERS)
def test_the_last_events_before_a_panic(klogger, crash, name):
    """In a machine that counts instructions: so 10 microseconds are the same on every host."""
    engines = RECORDERS[name]
    crashed = crash(*engines, machine="--icount")
    assert GROWN not in engines or "larger-0" in crashed.console, "it has not grown"
    logs, said = rescue(klogger, crashed)
    assert said.count("all from the rings") == len(logs) == len(engines)
    for number, (log, engine) in enumerate(zip(logs, engines, strict=True)):
        assert log.meta["preamble"]["engine"] == name
        check_end(log, crashed, engine)
        ((detail,),) = log.rows("SELECT text FROM ledger WHERE key = 'rescued'")
        assert f"/tmp/crash-{number}.klog" in detail
        # What had left the rings was written down before, and is counted.
        oracles.check_serials(log)
    if KERNEL in engines:
        query = (
            "SELECT count(*) FROM printed WHERE text LIKE 'Kernel panic - not syncing: hits of%'"
        )
        assert logs[0].one(query) == 1, "what the panic itself has printed is an event, too"

    # The first recorder's log is on the disk.
    (whole, *_), said = rescue(klogger, crashed, "--log", crashed.disk)
    assert " from the rings" in said
    check_end(whole, crashed, engines[0])
    oracles.check_serials(whole)
    # What was not on the disk, and not in the rings any more, was drained between: it is counted.
    numbers = f"SELECT count(DISTINCT number) FROM ({engines[0].hits}) WHERE number <= {BEFORE}"
    assert whole.one(numbers) == BEFORE


@pytest.mark.nightly("boots a second kernel in the first one")
def test_kdump(klogger, crash):
    """The image is /proc/vmcore, as the kernel shows it that kexec has started in the place of the
    one that crashed.
    """
    crashed = crash(KERNEL, machine="--single", kdump=True)
    (log,), _ = rescue(klogger, crashed)
    numbers = log.rows(f"SELECT number FROM numbered WHERE pid = {crashed.thread} ORDER BY time")
    assert [number for (number,) in numbers[-LAST:]] == list(range(1, LAST + 1))
    oracles.check_serials(log)


def test_all_cpus_and_a_flight_recorder(klogger, crash):
    """The newest events of both CPUs, of which one was stopped in the middle of something."""
    crashed = crash(KERNEL, machine="--single", meanwhile=FLOOD, options="--overwrite")
    (log,), _ = rescue(klogger, crashed)
    newest = log.rows(
        f"SELECT number FROM numbered WHERE pid = {crashed.thread} ORDER BY time DESC LIMIT {LAST}"
    )
    assert [number for (number,) in newest] == list(range(LAST, 0, -1))
    ((other, first, last, count),) = log.rows(
        "SELECT pid, min(number), max(number), count(DISTINCT number) FROM numbered "
        f"WHERE pid != {crashed.thread} GROUP BY pid ORDER BY count(*) DESC LIMIT 1"
    )
    assert count == last - first + 1 > 1000, other
    assert log.rows("SELECT DISTINCT key FROM ledger WHERE key = 'block_corrupt'") == []
    oracles.check_order(klogger, log.path)
