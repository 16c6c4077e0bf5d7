# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `klogger top` takes of a CPU, and how soon it shows a frame."""

import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import sys
import termios
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measure import cell

RATE = 200_000
SHARE, START = 0.10, 2.0
# Until the window is full, however late the recorder starts; and what is measured then.
FULL, SECONDS, STARTS = 20, 60, 5
PATIENCE = 180
TICKS = os.sysconf("SC_CLK_TCK")
# Two partners wake each other, in ten portions a second: a round is seven events.
LOAD = """
import subprocess, sys, time
rounds, due = int(sys.argv[2]) // 70, time.monotonic()
while True:
    words = [sys.argv[1], str(rounds), "processes", "0"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    due = max(due + 0.1, time.monotonic() - 1)
    time.sleep(max(0, due - time.monotonic()))
"""
ARMS = {"terminal": (), "page": ("--html",)}


def cpu_seconds(pid: int, fields: slice) -> float:
    """Of /proc/PID/stat from the 14th on: user, system; and of children that were waited for."""
    text = Path(f"/proc/{pid}/stat").read_text()
    return sum(map(int, text.rpartition(")")[2].split()[11:15][fields])) / TICKS


class Top:
    """`klogger top` in a terminal of 80x24, or with one browser that only reads. `came` are the
    times of its frames.
    """

    def __init__(self, tools, *words) -> None:
        self.begun, self.came, self.rates = time.monotonic(), [], []
        command = [sys.executable, "-m", "klogger_lab.cli.top", *map(str, words)]
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execv(command[0], command)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.read = threading.Thread(target=self.follow, daemon=True)
        self.read.start()

    def follow(self) -> None:
        text, before = "", ""
        while select.select([self.terminal], [], [], PATIENCE)[0]:
            try:
                text += os.read(self.terminal, 1 << 16).decode(errors="replace")
            except OSError:
                return
            if found := re.search(r"http://\S+/", text):
                text = ""
                threading.Thread(target=self.browse, args=(found[0],), daemon=True).start()
            for said in re.findall(r"([\d,]+) events/s", text):
                if said != before:
                    before, text = said, ""
                    self.frame(said)

    def browse(self, url: str) -> None:
        with urllib.request.urlopen(f"{url}events", timeout=PATIENCE) as stream:
            for line in stream:
                if found := re.search(rb'"([\d,]+)/s"', line):
                    self.frame(found[1].decode())

    def frame(self, rate: str) -> None:
        self.came.append(time.monotonic())
        self.rates.append(int(rate.replace(",", "")))

    def until(self, frames: int) -> None:
        end = time.monotonic() + PATIENCE
        while len(self.came) < frames:
            if time.monotonic() > end:
                raise RuntimeError(f"klogger top shows no frame after {PATIENCE} s")
            time.sleep(0.01)

    def recorder(self) -> int:
        return next(pid for pid in children(self.pid) if words_of(pid)[1:2] == ["record"])

    def used(self) -> tuple[float, float, float]:
        """Now; CPU seconds of top and of what it waits for; of the recorder without its command."""
        ours = cpu_seconds(self.pid, slice(0, 4))
        return time.monotonic(), ours, cpu_seconds(self.recorder(), slice(0, 2))

    def end(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def children(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def words_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


@contextmanager
def running(tools, *words) -> Iterator[Top]:
    load = [sys.executable, "-c", LOAD, tools.workloads / "pingpong", RATE]
    one = Top(tools, "-s", "scheduler", *words, "--", *load)
    try:
        yield one
    finally:
        one.end()


def measured(tools, words: tuple[str, ...]) -> tuple[float, float, float, float]:
    """Shares of a CPU, of the recorder and of all else; seconds between frames; events a second."""
    with running(tools, *words) as one:
        # From when the window is full: before, each frame costs more than the one before it.
        time.sleep(FULL)
        one.until(len(one.came) + 1)
        begin, frames = one.used(), len(one.came)
        time.sleep(SECONDS)
        one.until(frames + 1)
        end = one.used()
        times, rates = one.came[frames - 1 :], one.rates[frames:]
    passed = end[0] - begin[0]
    return (
        (end[2] - begin[2]) / passed,
        (end[1] - begin[1]) / passed,
        (times[-1] - times[0]) / (len(times) - 1),
        statistics.mean(rates),
    )


def first_frame(tools, words: tuple[str, ...]) -> tuple[float, float]:
    """Seconds until then, and CPU seconds, which others on the machine hardly change."""
    with running(tools, *words) as one:
        one.until(1)
        return one.came[0] - one.begun, sum(one.used()[1:])


def goal(what: str, found: str, most: str, reached: bool) -> str:
    return f"- {what}: {found}, to be at most {most}: {'yes' if reached else 'no'}"


def top(tools) -> list[str]:
    rows, verdicts = [], []
    for name, words in ARMS.items():
        recorder, rest, every, rate = measured(tools, words)
        starts, spent = zip(*(first_frame(tools, words) for _ in range(STARTS)), strict=True)
        rows.append(
            f"| {name} | {rate:,.0f} | {recorder:.1%} | {rest:.1%} | {recorder + rest:.1%} |"
            f" {every:.1f} s | {cell([*starts], 2)} | {cell([*spent], 2)} |"
        )
        both, start = recorder + rest, statistics.median(starts)
        verdicts += [
            goal(f"{name}, of a CPU", f"{both:.1%}", f"{SHARE:.0%}", both <= SHARE),
            goal(f"{name}, first frame", f"{start:.2f} s", f"{START:.0f} s", start <= START),
        ]
    return [
        "## klogger top",
        "",
        (
            f"`klogger top -s scheduler` of two partners that switch, about {RATE:,} events/s, with"
            f" a window of 10 s. CPU time of all its processes for {SECONDS} s, with a full"
            " window (/proc/PID/stat); not that of probes, which the command's threads spend. The"
            f" page has one reader, which draws nothing. Until the first frame: {STARTS} starts."
        ),
        "",
        "| | events/s | recorder | all else | together | between frames | first frame, s | CPU s |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        *verdicts,
    ]
