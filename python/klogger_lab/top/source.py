# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `klogger top` records, and how the last seconds become a log of their own.

The recorder keeps its last seconds in memory (`klogger record --snapshots`) and writes no log. So
nothing grows, and what no screen shows is never written. It runs as long as a shell that reads from
a pipe of ours, so that the last seconds of a command that has ended are still there. If this
process is killed, `guard` ends both.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, TimeoutExpired
from types import TracebackType
from typing import Any

from klogger import program
from klogger.failure import Failure
from klogger_lab.recorder import Recorder
from klogger_lab.top import guard

# Runs the command, keeps its exit code, and then waits for the end of our pipe. What the command
# writes must not be on the screen.
RUN = """out=$1 code=$2
shift 2
[ $# = 0 ] || { ("$@") </dev/null >>"$out" 2>&1; echo $? >"$code"; }
while read -r _; do :; done"""
SILENT = "/dev/null"
# Of the last seconds; what does not fit makes the window shorter, and the screen says so.
MEMORY = "256M"
# A snapshot takes some hundredths of a second; on a busy machine much more.
PATIENCE = 60.0
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Plan:
    """What is to be recorded. `options` are of `klogger record`: the schemata and who is in scope.
    `output`: where the output of the command goes.
    """

    options: tuple[str, ...]
    command: tuple[str, ...] = ()
    window: float = 10.0
    output: str = SILENT


@dataclass(frozen=True)
class Taken:
    """The last seconds as a log. `short`: the memory did not hold all of them."""

    log: Path
    events: int
    seconds: float
    short: bool


class Guard:
    """Our side of `guard`. `group` is its process group, for what is to end with us."""

    def __init__(self, folder: Path) -> None:
        words = [sys.executable, "-I", "-S", guard.__file__, str(folder)]
        self.process = Popen(words, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, process_group=0)
        self.group = self.process.pid

    def end(self) -> None:
        """The group is empty then. SIGINT is what it has got."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdout.read(1)
        with contextlib.suppress(OSError):
            self.process.stdin.write(guard.ASKED)
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Source:
    """To be entered; when it is left, the recorder has ended. `folder` is a private one."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.number = 0
        self.code_file = folder / "code"
        # Before anything is logged: what is asked for has all.
        self.begun = time.monotonic()
        self.guard = Guard(folder)
        try:
            self.recorder = self.recorder_of(plan)
        except BaseException:
            self.guard.end()
            raise

    def recorder_of(self, plan: Plan) -> Recorder:
        return Recorder(
            [
                *plan.options, "--snapshots", "--snapshot-before", f"{plan.window:g}s",
                "--snapshot-memory", MEMORY, "--snapshot-dir", self.folder, "-o", "/dev/null",
            ],
            self.folder / "messages",
            command=[
                "/bin/sh", "-c", RUN, "klogger-top", plan.output, self.code_file, *plan.command
            ],
            stdin=PIPE,
            group=self.guard.group,
        )  # fmt: skip

    def __enter__(self) -> Source:
        try:
            self.recorder.wait_started()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """The command, if it still runs, gets what Ctrl-C would send it; the shell sees the end of
        its input. What does not end by that, or has lost its recorder, is left to the guard.
        """
        if self.recorder.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.recorder.process.stdin.close()
        if self.command_code() is not None or not self.plan.command:
            with contextlib.suppress(TimeoutExpired):
                self.recorder.process.wait(PATIENCE)
        self.recorder.stop()
        self.guard.end()

    def seconds(self) -> float:
        """Since the recorder was started."""
        return time.monotonic() - self.begun

    def runs(self) -> bool:
        return self.recorder.process.poll() is None

    def why_ended(self) -> str:
        """Of a recorder that has ended: its own error, or how it ended."""
        for error in self.recorder.read().of("error"):
            return str(program.failure_of(error))
        return f"the recorder has ended with exit code {self.recorder.process.poll()}"

    def notes(self) -> list[str]:
        """What the recorder has to say to people."""
        return [str(note.get("text", "")) for note in self.recorder.read().of("note")]

    def command_code(self) -> int | None:
        """The exit code of the command, when it has ended."""
        try:
            return int(self.code_file.read_text())
        except (OSError, ValueError):
            return None

    def cpu_seconds(self) -> float:
        """The CPU time of the recorder and all its threads, but for its probes."""
        try:
            text = Path(f"/proc/{self.recorder.pid}/stat").read_text()
        except OSError:
            return 0.0
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def take(self) -> Taken:
        """The last seconds, as a log of their own in the folder."""
        self.number += 1
        file = self.folder / f"window-{self.number:06}.klog"
        last = max(min(self.plan.window, self.seconds()), 0.001)
        words: Sequence[Any] = (
            "snapshot", "--recorder", self.recorder.pid, "--last", f"{last * 1000:.0f}ms",
            "-o", file,
        )  # fmt: skip
        said = program.answer(*map(str, words), timeout=PATIENCE)
        try:
            seconds = (int(said["to_ns"]) - int(said["from_ns"])) / 1e9
            return Taken(file, int(said["events"]), seconds, bool(said["short"]))
        except (KeyError, TypeError, ValueError):
            raise Failure("'klogger snapshot' gave no numbers") from None
