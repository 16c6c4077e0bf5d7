# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study `threads`: how many threads there can be, and what the creation of one more returns.

The limits of the whole machine are not tried: other programs could make no threads meanwhile. The
programs run into limits of their own instead.
"""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from klogger.executor import Result
from klogger.failure import Failure
from klogger_lab.study.model import Arm, Check, Plan, Run, column

from ._libraries import Library, figure, program, reports

# What the programs are given: a number of processes, KiB, memory maps.
LIMITS = (503, 65536, 1009)
KINDS = {
    "user": "threads of the user",
    "memory": "KiB of address space",
    "maps": "memory maps",
}
NO_LIMIT = 1 << 62
SECONDS = 1.0


def arm(plan: Plan, library: Library) -> Arm:
    """It needs no log."""
    return Arm(
        f"limits, {library.name}",
        [],
        SECONDS,
        {"part": "limits", "library": library.name},
        around=partial(limited, program(plan, library, "limits.c")),
    )


@contextmanager
def limited(command: Path) -> Iterator[str]:
    done = subprocess.run(
        [command, *map(str, LIMITS)],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode != 0:
        raise Failure(f"'{command.name}' failed: {done.stderr.strip()}")
    yield done.stdout


def found_by(runs: Sequence[tuple[str, Run]]) -> list[tuple[str, dict[str, Any]]]:
    """What the programs said that ran into limits, with the library's name."""
    return [
        (name, one)
        for name, run in runs
        for one in reports(Run(run.arm, None, str(run.oracle or "")), "limit")
    ]


def maximum(found: Sequence[tuple[str, dict[str, Any]]]) -> Result:
    columns = [
        column("library", "C library"),
        column("limit", "what there is no more of"),
        column("allowed", "how much of it was allowed", "count"),
        column("threads", "threads that could be made", "count", bar=True),
        column("maps_each", "memory maps that each took"),
        column("error", "what pthread_create() returned then"),
    ]
    rows = [
        [
            name, KINDS.get(one["kind"], one["kind"]), one["limit"], one["made"],
            f"{one['maps'] / max(one['made'], 1):.2f}",
            errno.errorcode.get(one["errno"], one["errno"]),
        ]
        for name, one in found
    ]  # fmt: skip
    question = "Which limit ends the creation of threads, and how?"
    notes = [
        "The limits are those of the process alone: RLIMIT_NPROC for a user that nobody else is,"
        " RLIMIT_AS, and vm.max_map_count after the process has used up all maps but these.",
        f"Limits of this machine: {machine_limits()}.",
    ]
    return figure("maximum", ("Threads until it fails", question), columns, rows, notes=notes)


def number(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return NO_LIMIT


def machine_numbers() -> dict[str, int]:
    """The limits of the machine, and of the control group (version 2) of this process."""
    numbers = {
        f"{folder}.{name}": number(f"/proc/sys/{folder}/{name}")
        for folder, name in (("kernel", "pid_max"), ("kernel", "threads-max"),
                             ("vm", "max_map_count"))
    }  # fmt: skip
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            numbers["pids.max"] = number(f"/sys/fs/cgroup{line[3:]}/pids.max")
    return numbers


def machine_limits() -> str:
    return ", ".join(f"{name} {n:,}" for name, n in machine_numbers().items() if n < NO_LIMIT)


def threads_left() -> int:
    """How many more threads the whole machine may have."""
    now = len(list(Path("/proc").glob("[0-9]*/task/[0-9]*")))
    return min(n for name, n in machine_numbers().items() if "map" not in name) - now


def sentences(found: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    said = []
    left, maps = threads_left(), number("/proc/sys/vm/max_map_count")
    for name, one in found:
        if one["kind"] == "maps" and one["made"]:
            each = one["maps"] / one["made"]
            what = "memory maps" if maps / each < left else "the numbers of threads"
            said.append(
                f"{name}: a thread takes {each:.1f} memory maps, so a process can have"
                f" {min(int(maps / each), left):,} threads here, until {what} are used up. No"
                " number is built into the library."
            )
    return said


def checks(found: Sequence[tuple[str, dict[str, Any]]]) -> list[Check]:
    return [
        Check(
            f"limit, {name}",
            one["made"] + 1 == one["limit"],
            f"a user who may have {one['limit']:,} threads got the first and {one['made']:,} more",
        )
        for name, one in found
        if one["kind"] == "user"
    ]
