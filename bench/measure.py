# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Measuring: arms that take turns, so that what disturbs the machine disturbs all of them; medians
and quartiles.
"""

import json
import os
import re
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from klogger.failure import Failure
from klogger_lab.bench.answer import NOT_HERE
from klogger_lab.bench.stats import LEAST_NS, WIDE, Spread, spread

__all__ = [
    "FAULTS", "NOT_HERE", "added", "cell", "goal", "machine", "quotient", "ratio", "report_of",
    "rounds_of", "run", "spread", "take_turns", "timed", "trimmed", "why",
]  # fmt: skip
# What says why something cannot be measured; all else is a fault of these programs.
FAULTS = (OSError, RuntimeError, subprocess.SubprocessError, Failure)
# Of quotients: quartiles that are further apart than this share of the median say nothing.
QUOTIENT_WIDE = 0.5
# How often the memory of what is timed is looked at.
LOOK_S = 0.01


def why(error: BaseException) -> str:
    """For a cell of a table: the line that says what is wrong, or the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next(
        (line for line in lines if line.startswith("klogger: ")),
        lines[0] if lines else type(error).__name__,
    )


def cell(values: list[float], digits: int = 1, least: float = LEAST_NS) -> str:
    """Median and quartiles; or that they are too far apart, by more than `least` and than a share
    of the median.
    """
    found = spread(values)
    if found.high - found.low > max(WIDE * abs(found.median), least):
        return (
            f"{NOT_HERE}: the runs spread too wide, {found.low:.{digits}f} to"
            f" {found.high:.{digits}f}"
        )
    return f"{found:.{digits}f}"


def quotient(over: list[float], under: list[float], paired: bool) -> Spread | None:
    """Of two costs. Paired: of those of the same round. None if they say nothing."""
    if paired:
        found = spread([a / b for a, b in zip(over, under, strict=False) if b > 0] or [0.0])
    else:
        unit = statistics.median(under)
        found = spread([a / unit for a in over]) if unit > 0 else Spread(0, 0, 0, 0)
    return (
        None
        if found.median <= 0 or found.high - found.low > QUOTIENT_WIDE * found.median
        else found
    )


def goal(
    what: str,
    over: list[float] | None,
    under: list[float] | None,
    most: float,
    fault: str = "",
    paired: bool = False,
) -> str:
    """One line: what something is as a multiple of another thing, and what it is to be."""
    if fault or not over or not under:
        return f"- {what}: {NOT_HERE}, to be at most {most}"
    found = quotient(over, under, paired)
    if found is None:
        return f"- {what}: {NOT_HERE} (the runs spread too wide), to be at most {most}"
    text = f"{found:.2f}" if found.runs > 1 else f"{found.median:.3f}"
    return f"- {what}: {text}, to be at most {most}: {'yes' if found.median <= most else 'no'}"


def trimmed(values: list[float], worst: float = 0.001) -> tuple[float, float]:
    """Mean and standard deviation without the worst thousandth, as the paper has them."""
    kept = sorted(values)[: len(values) - int(len(values) * worst)]
    return statistics.fmean(kept), statistics.pstdev(kept)


def take_turns(arms: dict[str, Callable[[], dict]], rounds: int) -> dict[str, list[dict]]:
    """Runs every arm once a round, each round beginning with another one."""
    results: dict[str, list[dict]] = {name: [] for name in arms}
    names = list(arms)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            results[name].append(arms[name]())
    return results


def rounds_of(
    arms: dict[str, Callable[[], dict[str, float]]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Every arm once a round, each round beginning with another one: what they gave, and why others
    gave nothing.
    """
    results: dict[str, list[float]] = {}
    missing: dict[str, str] = {}
    names = list(arms)
    for turn in range(rounds):
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            if name in missing:
                continue
            try:
                for what, ns in arms[name]().items():
                    results.setdefault(what, []).append(ns)
            except FAULTS as error:
                missing[name] = why(error)
                results.pop(name, None)
    return results, missing


def added(results: dict[str, list[dict]], arm: str, key: str, base: str = "none") -> list[float]:
    """What the arm adds to the base, in each round."""
    return [a[key] - b[key] for a, b in zip(results[arm], results[base], strict=True)]


def ratio(
    results: dict[str, list[dict]], arm: str, over: str, key: str, base: str = "none"
) -> list[float]:
    """What the arm adds to the base, as a multiple of the median of what the other adds."""
    unit = statistics.median(added(results, over, key, base))
    return [value / unit for value in added(results, arm, key, base)]


def run(command: list, **more) -> str:
    command = list(map(str, command))
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **more
    )
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


def timed(command: list, core: int | None = None, cwd: Path | None = None) -> Usage:
    """Time and memory of a command and its children; all on one core if one is named."""
    words = (["taskset", "-c", str(core)] if core is not None else []) + list(map(str, command))
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=cwd
    )
    peak = 0
    while True:
        # What wait4() says has the memory of the process that forked, too.
        peak = max(peak, *map(peak_kib, descendants(process.pid)), 0)
        try:
            _, error = process.communicate(timeout=LOOK_S)
            break
        except subprocess.TimeoutExpired:
            pass
    wall = time.monotonic() - start
    if process.returncode != 0:
        raise RuntimeError(
            f"{' '.join(words)}: exit code {process.returncode}\n{error.decode(errors='replace')}"
        )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Usage(
        wall, used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, peak / 1024
    )


def descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(one for child in children for one in descendants(int(child)))]


def peak_kib(pid: int) -> int:
    """The most memory that a process has had, so far; 0 if it has gone."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def machine() -> list[tuple[str, str]]:
    """What the numbers depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        "unknown",
    )
    clock = (
        Path("/sys/devices/system/clocksource/clocksource0/current_clocksource").read_text().strip()
    )
    rows = [
        (
            "CPU",
            (
                f"{model}, {os.cpu_count()}"
                f" CPUs{' (virtual)' if ' hypervisor ' in ' '.join(lines) else ''}"
            ),
        ),
        ("kernel", os.uname().release),
        ("clock source", clock),
    ]
    for file in sorted(Path("/sys/devices/system/cpu/vulnerabilities").iterdir()):
        text = file.read_text().strip()
        if text != "Not affected":
            rows.append((file.name.replace("_", " "), text))
    return rows
