# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Measuring: arms that take turns, so that what disturbs the machine disturbs all of them; medians and quartiles."""

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from klogger.bench.stats import spread

__all__ = ["added", "machine", "ratio", "report_of", "run", "spread", "take_turns", "timed"]


def take_turns(arms: dict[str, Callable[[], dict]], rounds: int) -> dict[str, list[dict]]:
    """Runs every arm once a round, each round beginning with another one."""
    results: dict[str, list[dict]] = {name: [] for name in arms}
    names = list(arms)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            results[name].append(arms[name]())
    return results


def added(results: dict[str, list[dict]], arm: str, key: str, base: str = "none") -> list[float]:
    """What the arm adds to the base, in each round."""
    return [a[key] - b[key] for a, b in zip(results[arm], results[base], strict=True)]


def ratio(results: dict[str, list[dict]], arm: str, over: str, key: str, base: str = "none") -> list[float]:
    """What the arm adds to the base, as a multiple of the median of what the other adds."""
    unit = statistics.median(added(results, over, key, base))
    return [value / unit for value in added(results, arm, key, base)]


def run(command: list, **more) -> str:
    command = list(map(str, command))
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def report_of(output: str) -> dict:
    return json.loads(output[output.index("{") :])


@dataclass(frozen=True)
class Usage:
    wall_s: float
    cpu_s: float
    peak_mib: float


def timed(command: list, core: int | None = None) -> Usage:
    """Time and memory of a command and its children; all on one core if one is named."""
    prefix = ["taskset", "-c", str(core)] if core is not None else []
    start = time.monotonic()
    process = subprocess.Popen(
        prefix + list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - start
    error = process.stderr.read().decode()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {process.returncode}\n{error}")
    return Usage(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def machine() -> list[tuple[str, str]]:
    """What the numbers depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    rows = [
        ("CPU", f"{model}, {os.cpu_count()} CPUs{' (virtual)' if ' hypervisor ' in ' '.join(lines) else ''}"),
        ("kernel", os.uname().release),
        ("clock source", clock),
    ]
    for file in sorted(Path("/sys/devices/system/cpu/vulnerabilities").iterdir()):
        text = file.read_text().strip()
        if text != "Not affected":
            rows.append((file.name.replace("_", " "), text))
    return rows
