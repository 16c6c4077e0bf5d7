# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How the study `loggers` measures each logger: one arm for each."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from klogger.failure import Failure
from klogger.program import klogger
from klogger_lab import tracefs
from klogger_lab.build import find_compiler
from klogger_lab.study.model import Arm, Plan

HERE = Path(__file__).resolve().parent
POINT = "task_prctl_unknown"
BLOCKS = 40
PAIRS = 1000
# Of a run, warming up included.
TRACED = (BLOCKS + 1) * PAIRS
# Seconds of an arm, nearly all of which it takes to begin and to end.
ARM_SECONDS = 0.75
ROUNDS_MAX = 11


def arms(plan: Plan) -> list[Arm]:
    program = build(plan.folder)
    in_program = Arm(
        "in a program",
        [program, str(BLOCKS), "empty", "klogger", "memory"],
        ARM_SECONDS,
        record=[
            "--engine",
            "user",
            "-s",
            str(HERE / "pending_user.klogger"),
            "--user-buffer",
            "64M",
        ],
        around=lambda: marker(program),
    )
    rounds = [in_program]
    calls: list[str | Path] = [program, str(BLOCKS), "reference", "traced"]
    if no_point() is None:
        rounds += [
            Arm("nothing", [], ARM_SECONDS, around=lambda: alone(lambda: output(calls))),
            Arm(
                "klogger",
                calls,
                ARM_SECONDS,
                record=["--engine", "bpf", "-s", str(HERE / "pending.klogger")],
            ),
            Arm("ftrace", [], ARM_SECONDS, around=lambda: alone(lambda: with_ftrace(calls))),
        ]
        if shutil.which("perf"):
            rounds.append(
                Arm(
                    "perf",
                    [],
                    ARM_SECONDS,
                    around=lambda: alone(lambda: with_perf(plan.folder, calls)),
                )
            )
    times = min(max(int(plan.seconds / (len(rounds) * ARM_SECONDS)), 2), ROUNDS_MAX)
    # Each round begins with another one, so that what drifts hits all alike.
    return [
        arm for n in range(times) for arm in rounds[n % len(rounds) :] + rounds[: n % len(rounds)]
    ]


def no_point() -> str | None:
    """Why loggers of the kernel cannot be measured."""
    if why := tracefs.why_not():
        return why
    here = (tracefs.ROOT / "events/task" / POINT).exists()
    return None if here else f"this kernel has no tracepoint {POINT} (Linux 6.14)"


def build(folder: Path) -> Path:
    """The program, with the header that klogger makes for it."""
    klogger("gen", HERE / "pending_user.klogger", "-o", folder, timeout=120)
    program = folder / "loggers"
    compiler = [
        *find_compiler("loggers.c"),
        "-O2",
        "-pthread",
        f"-I{folder}",
        str(HERE / "loggers.c"),
    ]
    command = [*compiler, "-o", str(program), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise Failure(f"'{Path(command[0]).name}' failed\n{done.stderr.strip()}")
    return program


def output(command: Sequence[Any], **more: str) -> dict[str, Any]:
    """What the program prints."""
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **more},
    )
    if done.returncode != 0:
        raise Failure(
            f"'{' '.join(map(str, command))}': exit code {done.returncode}\n{done.stderr.strip()}"
        )
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    return found


@contextmanager
def alone(measure: Callable[[], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield measure()


@contextmanager
def instance() -> Iterator[Path]:
    """A buffer of ftrace of our own, which keeps the newest."""
    folder = tracefs.ROOT / f"instances/klogger-study-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / "buffer_size_kb").write_text("4096")
        yield folder
    finally:
        (folder / "events/enable").write_text("0")
        folder.rmdir()


@contextmanager
def marker(program: Path) -> Iterator[dict[str, Any]]:
    """trace_marker, measured before the recording of its arm begins."""
    if tracefs.why_not():
        yield {}
        return
    with instance() as folder:
        yield output(
            [program, str(BLOCKS), "empty", "marker"], TRACE_MARKER=str(folder / "trace_marker")
        )


def with_ftrace(calls: Sequence[Any]) -> dict[str, Any]:
    with instance() as folder:
        enable = folder / "events/task" / POINT / "enable"
        enable.write_text("1")
        found = output(calls)
        enable.write_text("0")
        return {
            **found,
            "events": sum(counted(stats) for stats in folder.glob("per_cpu/cpu*/stats")),
        }


def counted(stats: Path) -> int:
    """Events that were logged on a CPU, those included that were overwritten."""
    numbers = dict(re.findall(r"^(entries|overrun): (\d+)$", stats.read_text(), re.M))
    return sum(map(int, numbers.values()))


def with_perf(folder: Path, calls: Sequence[Any]) -> dict[str, Any]:
    data = str(folder / "perf.data")
    found = output(
        ["perf", "record", "-q", "-m", "8M", "-e", f"task:{POINT}", "-o", data, "--", *calls]
    )
    command = ["perf", "report", "--stats", "-i", data]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    match = re.search(r"SAMPLE events:\s+(\d+)", done.stdout)
    return {**found, "events": int(match[1]) if match else None, "lost": "LOST" in done.stdout}
