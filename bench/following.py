# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `klogger cat --follow` costs, and whether it keeps up with a program that logs without a
pause.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from measure import FAULTS, NOT_HERE, timed, why

from klogger_lab.bench import events
from klogger_lab.bench.engines import BPF
from klogger_lab.bench.events import FLOOR
from klogger_lab.bench.loop import Bench, Loop, info, prepare, recording

SECONDS = 10
# Hits a millisecond, on one CPU.
STEPS = (50, 200, 500, 1000)
GOAL = 1_000_000
# How much of what is printed is read at once, to count its lines.
PIECE = 1 << 20


@dataclass(frozen=True)
class Followed:
    made: int
    logged: int
    printed: int
    seconds: float
    cpu_s: float


def lines_of(process: subprocess.Popen) -> tuple[int, float]:
    """How many lines it prints until it ends, and its CPU time in seconds."""
    assert process.stdout is not None
    lines = 0
    while piece := os.read(process.stdout.fileno(), PIECE):
        lines += piece.count(b"\n")
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"klogger cat --follow: exit code {process.returncode}")
    return lines, used.ru_utime + used.ru_stime


def logged(log: Path) -> int:
    return sum(e["logged"] for e in info(log)["events"] if e["name"] == events.TWO_INTS.name)


def one_rate(tools, bench: Bench, loop: Loop, per_ms: int) -> Followed:
    log = tools.folder / "followed.klog"
    command = [tools.klogger, "cat", "--follow", log, "--event", events.TWO_INTS.name]
    with recording(bench, [loop.pid], log, ["--buffer-size", "4M"]):
        reader = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        loop.ask("flood", len(FLOOR), SECONDS * 10**9, per_ms)
        said = loop.answer()
    printed, cpu_s = lines_of(reader)
    found = Followed(said["hits"], logged(log), printed, said["ns"] / 1e9, cpu_s)
    log.unlink()
    return found


def row(per_ms: int, found: Followed) -> str:
    lost = found.made - found.logged
    return (
        f"| {per_ms * 1000:,} | {found.made / found.seconds:,.0f} | {lost:,} |"
        f" {found.logged - found.printed:,} | {found.cpu_s / found.seconds:.1%} |"
        f" {found.printed / found.cpu_s / 1e6 if found.cpu_s else 0:.2f} |"
    )


def from_file(tools) -> list[str]:
    """Events that are printed in a second of CPU time, on one core, to /dev/null."""
    if not tools.synth:
        return [f"- from a file: {NOT_HERE}: SYNTH names no program that writes a large log"]
    log, many = tools.folder / "large.klog", 5_000_000
    subprocess.run([tools.synth, log, str(many)], check=True, stdout=subprocess.DEVNULL)
    lines = []
    for form in ("text", "json"):
        used = [
            timed([tools.klogger, "cat", "--format", form, log], core=tools.cpu) for _ in range(3)
        ]
        rate = many / min(u.cpu_s for u in used)
        lines.append(
            f"- from a file, {form}: {rate / 1e6:.2f} million events per second of CPU time, to be"
            f" at least {GOAL / 1e6:.0f}: {'yes' if rate >= GOAL else 'no'}"
        )
    log.unlink()
    return lines


def follow(tools) -> list[str]:
    folder = tools.folder / "follow"
    folder.mkdir()
    bench = prepare(BPF.name, BPF.hits, [events.TWO_INTS], folder)
    rows = []
    with Loop(bench, tools.cpu) as loop:
        for per_ms in STEPS:
            try:
                rows.append(row(per_ms, one_rate(tools, bench, loop, per_ms)))
            except FAULTS as error:
                rows.append(f"| {per_ms * 1000:,} | {NOT_HERE}: {why(error)} | | | | |")
    return [
        "## Follow",
        "",
        (
            f"One program logs two ints an event for {SECONDS} s, at a given rate; it is recorded"
            " with rings of 4 MiB, and `klogger cat --follow` prints the events into a pipe. Lost:"
            " made, but not in the log. Missing: in the log, but not printed."
        ),
        "",
        "| asked for, events/s | made, events/s | lost | missing | CPU of cat | M events/CPU s |",
        "|---|---|---|---|---|---|",
        *rows,
        "",
        *from_file(tools),
    ]
