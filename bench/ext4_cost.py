# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the schema `ext4` takes of random writes by fio, as writes per second with and without."""

import json
import shutil
import statistics
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from measure import NOT_HERE, cell, run, spread

from klogger_lab.bench.stats import Spread
from klogger_lab.disk import loop_disk

PAIRS = 5
SECONDS, MEGABYTES, FILE_MEGABYTES = 3, 448, 192
MOST_PERCENT = 5.0
# The file system's disk is in memory, so that nothing but the CPU is in the way.
MEMORY = Path("/dev/shm")
MKFS = ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
WORDS = [
    "fio", "--name=writes", "--filename=file", f"--size={FILE_MEGABYTES}M", "--rw=randwrite",
    "--bs=4k", "--ioengine=psync", "--time_based", f"--runtime={SECONDS}", "--randseed=7",
    "--output-format=json",
]  # fmt: skip
LOADS = {
    "through the page cache": [],
    "direct": ["--direct=1"],
    "through the page cache, fsync() after 32": ["--fsync=32"],
}


@dataclass(frozen=True)
class Pace:
    """Writes per second, and CPU time of the program for each, in ns."""

    writes: float
    cpu: float


def pace(tools, folder: Path, options: list[str], recorded: bool) -> Pace:
    log = tools.folder / "ext4.klog"
    before = [tools.klogger, "record", "-q", "-s", "ext4", "-o", log, "--"] if recorded else []
    said = run([*before, *WORDS, *options], cwd=folder)
    (job,) = json.loads(said[said.index("{") :])["jobs"]
    share = (job["usr_cpu"] + job["sys_cpu"]) / 100
    each = share * job["job_runtime"] * 1e6 / max(job["write"]["total_ios"], 1)
    return Pace(job["write"]["iops"], each)


def counts_of(tools) -> tuple[int, int]:
    said = run([tools.klogger, "info", "--format", "json", tools.folder / "ext4.klog"])
    events = json.loads(said)["events"]
    return sum(one["logged"] for one in events), sum(one["lost"] for one in events)


def more(paces: dict[bool, list[Pace]], what: str) -> list[float]:
    """Of each pair the recorded one, in percent of the other, less 100."""
    of = attrgetter(what)
    pairs = zip(paces[True], paces[False], strict=True)
    return [100 * (of(one) / of(other) - 1) for one, other in pairs]


def verdict(fewer: Spread) -> str:
    """Of a spread that is larger than the goal, only that the goal is missed can be said."""
    if fewer.high - fewer.low > MOST_PERCENT >= fewer.low:
        return f"{NOT_HERE} (spread)"
    return "yes" if fewer.median <= MOST_PERCENT else "no"


def load_of(tools, folder: Path, name: str, pairs: int) -> list[str]:
    """A row of the table, and the line that compares it with the goal."""
    paces: dict[bool, list[Pace]] = {False: [], True: []}
    for turn in range(pairs):
        for recorded in (turn % 2 == 1, turn % 2 == 0):
            paces[recorded].append(pace(tools, folder, LOADS[name], recorded))
    logged, lost = counts_of(tools)
    fewer, cpu = spread([-one for one in more(paces, "writes")]), spread(more(paces, "cpu"))
    rates = {recorded: [one.writes for one in found] for recorded, found in paces.items()}
    each = logged / max(SECONDS * statistics.median(rates[True]), 1)
    return [
        f"| {name} | {cell(rates[False], 0)} | {cell(rates[True], 0)} | {fewer:.1f} |"
        f" {cpu:.1f} | {each:.2f} | {lost:,} |",
        f"- {name}: {fewer.median:.1f} % fewer writes, to be at most {MOST_PERCENT:.0f} %:"
        f" {verdict(fewer)}",
    ]


def writes(tools) -> list[str]:
    if not shutil.which("fio"):
        return ["## Random writes to ext4", "", f"{NOT_HERE}: there is no fio (apt install fio)"]
    pairs = min(PAIRS, tools.rounds)
    with loop_disk(MEMORY / "klogger-ext4-writes", MEGABYTES, mkfs=MKFS) as disk:
        assert disk.folder is not None
        # The file is laid out before.
        run([*WORDS, "--rw=write", "--runtime=1", "--end_fsync=1"], cwd=disk.folder)
        rows, goals = zip(
            *(load_of(tools, disk.folder, name, pairs) for name in LOADS), strict=True
        )
    return [
        "## Random writes to ext4", "",
        f"fio writes 4 KiB at random places of a file of {FILE_MEGABYTES} MiB, with one thread, for"
        f" {SECONDS} s, to ext4 on a loop device in memory; by turns with and without `klogger"
        f" record -s ext4`. The medians of {pairs} pairs, with their quartiles; CPU time is fio's"
        " own, of a write.", "",
        "| | writes/s without | writes/s recorded | fewer, % | more CPU, % | events a write"
        " | lost |",
        "|---|---|---|---|---|---|---|", *rows, "", *goals,
    ]  # fmt: skip
