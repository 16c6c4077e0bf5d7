# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the schema `block` costs for a request, next to blktrace; what it loses at a high rate; and
the report of such a log.
"""

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from measure import NOT_HERE, cell, goal, run, timed

from klogger_lab.disk import Disk, loop_disk
from klogger_lab.guest import modules as guest_modules

HERE = Path(__file__).resolve().parent / "block"
KLOGGER, ISSUES, BLKTRACE = "klogger", "klogger-issues", "blktrace"
RIVALS = {
    KLOGGER: "`klogger record -s block -a`",
    ISSUES: "the same with `--set issues=true`",
    BLKTRACE: "`blktrace -d DISK -b 1024 -n 8`, into files",
}
ROUNDS, SECONDS, PATIENCE = 2, 3, 3000
# The first fit into klogger's rings and are drained later; of the others, the most part is drained
# meanwhile, as blktrace's always are.
FITS, DRAINED = 50_000, 300_000
MANY, MANY_PER_SECOND = 400_000, 200_000
MOST_OF_BLKTRACE = 0.5
MODULES = ("configfs", "null_blk")
# The disk is in memory, so that nothing but the CPU is in the way.
MEMORY, MEGABYTES = Path("/dev/shm"), 256
ZRAM = Path("/sys/class/zram-control")
# What is reported of.
REPORT_SECONDS, REPORT_FILE_MEGABYTES, REPORT_DISK_MEGABYTES = 60, 192, 448
REPORT_SCHEMATA = ["-s", "block", "-s", "ext4", "-s", "operations"]
MKFS = ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
MOST_REPORT_S = 10


class Run(NamedTuple):
    """One line of rivals.sh: reads per second with a tracer, and what it has written."""

    name: str
    reads: int
    rate: float
    bytes: int


class Many(NamedTuple):
    """Requests at a high rate: as the kernel has counted them, and as the log has them."""

    counted: int
    rate: float
    logged: int
    lost: int


def runs(lines: Sequence[str]) -> list[Run]:
    words = [line.split() for line in lines]
    return [
        Run(name, int(reads), float(rate), int(size))
        for kind, name, reads, rate, size in (one for one in words if len(one) == 5)
        if kind == "run"
    ]


def many(lines: Sequence[str]) -> Many | None:
    """None if the guest did not get there."""
    said = dict(line.split(" ", 1) for line in lines if line.startswith(("many ", "log ")))
    if len(said) < 2:
        return None
    counted, rate = said["many"].split()
    done = next(one for one in json.loads(said["log"])["events"] if one["name"] == "RQ_DONE")
    return Many(int(counted), float(rate), done["logged"], done["lost"])


def added(seen: Sequence[Run], reads: int) -> dict[str, list[float]]:
    """By tracer: what it adds to a read, over the mean of those just before and after."""
    same = [one for one in seen if one.reads == reads]
    found: dict[str, list[float]] = {}
    for before, one, after in zip(same, same[1:], same[2:], strict=False):
        if one.name != "without" and before.name == after.name == "without":
            plain = (1e9 / before.rate + 1e9 / after.rate) / 2
            found.setdefault(one.name, []).append(1e9 / one.rate - plain)
    return found


def modules(folder: Path) -> Path:
    """Of the guest's kernel, those that the disk needs."""
    made = folder / "block-modules"
    made.mkdir(exist_ok=True)
    if not guest_modules.unpack(MODULES, made):
        raise RuntimeError("there is no kernel for a guest (scripts/setup guest)")
    return made


def rivals(tools) -> list[str]:
    """In a guest: not every kernel lets blktrace open its files. Its clock counts instructions, so
    that it does not matter what else this machine does.
    """
    added_files = [shutil.which("fio"), shutil.which("blktrace", path="/usr/sbin:/usr/bin")]
    if None in added_files:
        raise RuntimeError("there is no fio, or no blktrace (apt install fio blktrace)")
    added_files += [f"{modules(tools.folder)}=/block-modules", f"{HERE / 'rivals.sh'}=/rivals.sh"]
    reads = tools.folder / "block-reads"
    run(["cc", "-D_GNU_SOURCE", "-O2", HERE / "reads.c", "-o", reads])
    added_files.append(f"{reads}=/reads")
    command = [
        HERE.parents[1] / "scripts/guest", "--icount", "--timeout", str(PATIENCE),
        *(word for file in added_files for word in ("--add", str(file))), "--",
        "sh", "/rivals.sh", str(min(ROUNDS, tools.rounds)), str(MANY), str(FITS), str(DRAINED),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    seen = runs(lines)
    by_reads = {reads: added(seen, reads) for reads in (FITS, DRAINED)}
    if not all(BLKTRACE in found for found in by_reads.values()):
        raise RuntimeError(f"the guest measured nothing: {(done.stderr or done.stdout)[-200:]}")
    return table(seen, by_reads) + at_once(many(lines))


def table(seen: Sequence[Run], by_reads: dict[int, dict[str, list[float]]]) -> list[str]:
    def row(name: str) -> str:
        costs = [cell(found[name], 0) if name in found else NOT_HERE for found in by_reads.values()]
        sizes = [one.bytes / one.reads for one in seen if one[:2] == (name, DRAINED)]
        size = f"{sizes[0]:.0f}" if sizes else NOT_HERE
        return f"| {name} | {' | '.join(costs)} | {size} | {RIVALS[name]} |"

    heads = " | ".join(f"added, {reads:,} reads" for reads in by_reads)
    return [
        f"| | {heads} | bytes a read | how |", "|---" * (len(by_reads) + 3) + "|",
        *map(row, RIVALS), "",
        *(
            goal(f"klogger / blktrace, {reads:,} reads", found.get(KLOGGER), found[BLKTRACE],
                 MOST_OF_BLKTRACE)
            for reads, found in by_reads.items()
        ),
    ]  # fmt: skip


def at_once(found: Many | None) -> list[str]:
    if found is None:
        return [f"- reads at once: {NOT_HERE}"]
    met = found.rate >= MANY_PER_SECOND and found.lost == 0 and found.logged == found.counted
    return [
        f"- reads at once, 64 of them: {found.rate:,.0f} in a second of the guest's clock, to be at"
        f" least {MANY_PER_SECOND:,} and without loss: {'yes' if met else 'no'}; the kernel counted"
        f" {found.counted:,}, the log has {found.logged:,} and lost {found.lost:,}"
    ]


@contextmanager
def small_disk() -> Iterator[Disk]:
    with (
        tempfile.TemporaryDirectory(prefix="block-", dir=MEMORY) as folder,
        loop_disk(Path(folder), MEGABYTES) as disk,
    ):
        # So that the file has pages.
        run(["dd", "if=/dev/zero", f"of={disk.device}", "bs=1M", f"count={MEGABYTES}"])
        yield disk


@contextmanager
def zram() -> Iterator[Path]:
    """A device that takes little time for a read: what was never written is zeros."""
    number = (ZRAM / "hot_add").read_text().strip()
    try:
        Path(f"/sys/block/zram{number}/disksize").write_text(f"{MEGABYTES}M")
        yield Path(f"/dev/zram{number}")
    finally:
        # Others may look at a new device for a moment.
        for _ in range(100):
            with suppress(OSError):
                (ZRAM / "hot_remove").write_text(number)
                break
            time.sleep(0.1)


def recorded(tools, device: Path, seconds: int, rw: str = "randrw") -> tuple[float, dict]:
    """Requests per second of a random load, and what the log has of each event."""
    log = tools.folder / "block.klog"
    load = [
        "fio", "--name=mixed", f"--filename={device}", f"--rw={rw}", "--bs=4k", "--direct=1",
        "--ioengine=libaio", "--iodepth=32", "--time_based", f"--runtime={seconds}",
        "--randseed=7", "--output-format=json",
    ]  # fmt: skip
    record = [
        tools.klogger, "record", "-q", "-s", "block", "-a", "--device", device,
        "--buffer-size", "16M", "-o", log, "--",
    ]  # fmt: skip
    said = run([*record, *load])
    job = json.loads(said[said.index("{") : said.rindex("}") + 1])["jobs"][0]
    events = json.loads(run([tools.klogger, "info", "--format", "json", log]))["events"]
    return job["read"]["iops"] + job["write"]["iops"], {one["name"]: one for one in events}


def reads_counted(device: Path) -> int:
    """Those that the kernel has completed."""
    return int(Path(f"/sys/block/{device.name}/stat").read_text().split()[0])


def bios(tools) -> str:
    """Reads of a device without requests, whose bios are logged when they are done."""
    if not (ZRAM / "hot_add").exists():
        return f"- reads of zram: {NOT_HERE}, there is none"
    with zram() as device:
        before = reads_counted(device)
        rate, events = recorded(tools, device, SECONDS, "randread")
        counted = reads_counted(device) - before
    done = events["BIO_DONE"]
    return (
        f"- reads of zram: {rate:,.0f} a second; the kernel counted {counted:,}, the log has"
        f" {done['logged']:,} and lost {done['lost']:,}"
    )


def block(tools) -> list[str]:
    if not shutil.which("fio"):
        return ["## Requests of disks", "", f"{NOT_HERE}: there is no fio (apt install fio)"]
    with small_disk() as disk:
        rate, events = recorded(tools, disk.device, SECONDS)
    done = events["RQ_DONE"]
    try:
        guest = rivals(tools)
    except (OSError, RuntimeError) as error:
        guest = [f"{NOT_HERE}: {error}"]
    return [
        "## Requests of disks", "",
        "Instructions for each request, of the probes and of what writes the log: fio reads 4 KiB"
        " at random places of null_blk, one after another, in a guest with Linux 6.1 and one CPU,"
        " whose clock counts instructions; by turns with and without a tracer.", "", *guest, "",
        f"On this machine fio, reading and writing a loop device in memory, made {rate:,.0f}"
        f" requests a second, 32 at a time; the log lost {done['lost']:,} of"
        f" {done['logged']:,} events.", "", bios(tools), "",
    ]  # fmt: skip


def minute(tools) -> Path:
    """A log of fio for a minute, on ext4 on a disk in memory."""
    log = tools.folder / "minute.klog"
    record = [tools.klogger, "record", "-q", *REPORT_SCHEMATA, "--buffer-size", "16M", "-o", log]
    load = [
        "fio", "--name=mixed", "--filename=file", f"--size={REPORT_FILE_MEGABYTES}M",
        "--rw=randrw", "--bs=4k", "--direct=1", "--ioengine=psync", "--numjobs=2",
        "--randseed=7", "--output-format=json",
    ]  # fmt: skip
    with (
        tempfile.TemporaryDirectory(prefix="report-", dir=MEMORY) as folder,
        loop_disk(Path(folder), REPORT_DISK_MEGABYTES, mkfs=MKFS) as disk,
    ):
        # The file is laid out before.
        run([*load, "--rw=write", "--bs=1M"], cwd=disk.folder)
        timed_load = [*load, "--time_based", f"--runtime={REPORT_SECONDS}"]
        run([*record, "--", *timed_load], cwd=disk.folder)
    return log


def report(tools) -> list[str]:
    if not shutil.which("fio"):
        return ["## Report of disks", "", f"{NOT_HERE}: there is no fio (apt install fio)"]
    log = minute(tools)
    told = json.loads(run([tools.klogger, "info", "--format", "json", log]))["events"]
    events = {one["name"]: one for one in told}
    # The first one exports the tables.
    first, *again = (timed([tools.klogger, "report", log]) for _ in range(1 + min(3, tools.rounds)))
    rows = [
        f"| with export | {first.wall_s:.1f} | {first.cpu_s:.1f} | {first.peak_mib:,.0f} |",
        f"| again | {cell([one.wall_s for one in again], 1)} |"
        f" {cell([one.cpu_s for one in again], 1)} | {max(one.peak_mib for one in again):,.0f} |",
    ]
    logged, lost = (sum(one[what] for one in told) for what in ("logged", "lost"))
    fits = "yes" if first.wall_s <= MOST_REPORT_S else "no"
    return [
        "## Report of disks", "",
        f"`klogger report` of a log of {logged:,} events (lost: {lost:,}), of which"
        f" {events['RQ_DONE']['logged']:,} are requests of disks and"
        f" {events['FILE_CALL']['logged']:,} calls: two processes of fio read and write 4 KiB at"
        f" random places of a file, directly, for {REPORT_SECONDS} s, on ext4 on a loop device in"
        f" memory, recorded with `{' '.join(REPORT_SCHEMATA)}`.", "",
        "| report | s | s of CPU time | peak MiB |", "|---|---|---|---|", *rows, "",
        f"- with export: {first.wall_s:.1f} s, to be at most {MOST_REPORT_S}: {fits}", "",
    ]  # fmt: skip
