# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The loads of the study `locks`, and what the kernel itself counts while they run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from klogger_lab.study.model import Arm, Plan

# Each of them with each number of processes.
LOADS = ("compile on tmpfs", "web", "compile on disk", "round robin 100:200")
SIZES = ("1:1", "64:64", "128:8192")
LEVELS = ([1, 2, 4, 8, 16, 32], [1, 2, 4, 8, 32], [1, 4, 32], [1, 32], [32])
# Seconds that an arm takes beside its load, and the least that a load runs.
AROUND = 1.2
LEAST = 0.5
FILES_MAX = 400


def levels(plan: Plan) -> list[int]:
    """Numbers of processes at once, as many as there is time for. The loads are five."""
    for some in LEVELS:
        if (len(some) * len(LOADS) + len(SIZES) + 1) * (AROUND + LEAST) <= plan.seconds:
            return some
    return LEVELS[-1]


def arms(plan: Plan) -> list[Arm]:
    counts = levels(plan)
    extra = SIZES if len(counts) > 2 else ()
    number = len(counts) * len(LOADS) + len(extra) + 1
    seconds = max(plan.seconds / number - AROUND, LEAST)
    make = partial(arm, seconds)
    loads, planted = plan.build("loads.c"), plan.build("../workload.c")
    files = min(FILES_MAX, max(24, int(plan.seconds * 4)))
    memory, disk = memory_folder(), plan.folder / "sources"
    found = [make("planted", 4, [planted, "held", "4", f"{seconds:.1f}"], oracle)]
    for n in counts:
        if memory:
            sources = partial(sources_in, memory, files)
            found.append(
                make("compile on tmpfs", n, compile_command(memory, n, files, seconds), sources)
            )
            web: list[str | Path] = [
                loads,
                "web",
                str(n),
                str(files),
                str(memory),
                f"{seconds:.1f}",
            ]
            found.append(make("web", n, web, sources))
        sources = partial(sources_in, disk, files)
        found.append(make("compile on disk", n, compile_command(disk, n, files, seconds), sources))
        found.append(
            make(
                "round robin 100:200",
                n,
                [loads, "rr", str(n), "100", "200", f"{seconds:.1f}"],
                oracle,
            )
        )
    for size in extra:
        command: list[str | Path] = [
            loads,
            "rr",
            str(2 * plan.machine.cpus),
            *size.split(":"),
            f"{seconds:.1f}",
        ]
        found.append(make(f"round robin {size}", 2 * plan.machine.cpus, command, oracle))
    return found


def arm(seconds: float, load: str, count: int, command: Sequence[str | Path], around: Any) -> Arm:
    return Arm(
        f"{load}, {count}", command, seconds, {"load": load, "processes": count}, around=around
    )


def memory_folder() -> Path | None:
    """A folder in memory for the sources, or None if there is no tmpfs that one can write to."""
    mounts = Path("/proc/mounts").read_text().splitlines()
    for line in mounts:
        _, where, kind, *_ = line.split()
        if kind == "tmpfs" and where in ("/dev/shm", "/tmp", "/run") and os.access(where, os.W_OK):
            return Path(where) / f"klogger-study-locks-{os.getpid()}"
    return None


def compile_command(folder: Path, count: int, files: int, seconds: float) -> Sequence[str | Path]:
    """Like make -j: COUNT compilers at once, each for one file, again from the first until the time
    is over.
    """
    compiler = os.environ.get("CC", "cc")
    script = (
        f"while seq {files}; do :; done 2>/dev/null | timeout {seconds:.1f} xargs -P {count} -I N"
        f" {compiler} -O1 -c -o {folder}/N.o {folder}/N.c; true"
    )
    return ["sh", "-c", script]


def source(number: int) -> str:
    """C that gives a compiler some milliseconds of work; each file is another one."""
    functions = [
        f"int f{number}_{k}(int x) {{ for (int i = 0; i < x; i++) x ^= i * {k + number}; return x +"
        ' printf("%d", x); }'
        for k in range(20)
    ]
    return "\n".join(
        ["#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>", *functions, ""]
    )


@contextmanager
def sources_in(folder: Path, files: int) -> Iterator[dict[str, int]]:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for number in range(1, files + 1):
            (folder / f"{number}.c").write_text(source(number))
        with oracle() as counted:
            yield counted
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def oracle() -> Iterator[dict[str, int]]:
    """What the kernel's own accounts say went by, in ns, all CPUs together."""
    counted: dict[str, int] = {}
    before = cpu_times()
    yield counted
    counted.update({name: time - before[name] for name, time in cpu_times().items()})


def cpu_times() -> dict[str, int]:
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    tick = 10**9 // os.sysconf("SC_CLK_TCK")
    return {name: int(word) * tick for name, word in zip(names, words, strict=False)}
