# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A running `klogger record`: started, waited for, and stopped, whatever happens.

What it says is read as JSON from a file (docs/messages.md), which never fills up as a pipe does and
which is still there when the recorder has been killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from klogger.failure import Failure
from klogger.program import JSON, Said, cannot_run, find_klogger

# Seconds for a recorder to compile its schemata and attach them, on a busy machine.
PATIENCE = 120.0
# Seconds that a recorder may take to write what it has, and to end after a second signal.
LAST_WORDS = 20.0
AGAIN = 5.0
LOOK = 0.01


def words_of(options: Sequence[str | os.PathLike[str]]) -> list[str]:
    """How `klogger record` is run with these options, and says what it says as JSON."""
    return [find_klogger(), "record", "-q", *JSON, *map(str, options)]


class Recorder:
    """`options` are of `klogger record`, `command` is what it starts. Messages go to `errors`, with
    the command's standard error. `group`: the process group; 0: a new one, None: ours. To be
    entered; when it is left, it is stopped.
    """

    def __init__(
        self,
        options: Sequence[str | os.PathLike[str]],
        errors: Path,
        *,
        command: Sequence[str | os.PathLike[str]] = (),
        output: int = subprocess.DEVNULL,
        stdin: int | None = subprocess.DEVNULL,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        group: int | None = 0,
        pass_fds: Sequence[int] = (),
    ) -> None:
        words = words_of(options)
        self.words = [*words, *(["--", *map(str, command)] if command else [])]
        self.errors = errors
        self.said = Said()
        self.place = 0
        with errors.open("wb") as out:
            try:
                # Outside of our process group, Ctrl-C reaches it by way of us, once.
                self.process = subprocess.Popen(
                    self.words, stdin=stdin, stdout=output, stderr=out, cwd=folder,
                    env=environment, process_group=group, pass_fds=pass_fds,
                )  # fmt: skip
            except OSError as error:
                raise cannot_run(words[0], error) from None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self.process.pid

    def read(self) -> Said:
        """All that was said up to now. A line that is not whole yet is left for the next time."""
        with self.errors.open("rb") as file:
            file.seek(self.place)
            found = file.read()
        whole = len(found) if self.process.poll() is not None else found.rfind(b"\n") + 1
        self.place += whole
        self.said.add(found[:whole].decode(errors="replace").splitlines())
        return self.said

    def wait_started(
        self, patience: float = PATIENCE, ending: threading.Event | None = None
    ) -> None:
        """Until everything is attached, or `ending` is set. Raises its Failure if it ended."""
        until = time.monotonic() + patience
        while not self.read().of("started"):
            if ending is not None and ending.is_set():
                return
            if self.process.poll() is not None and not self.read().of("started"):
                raise self.failure()
            if time.monotonic() > until:
                raise Failure(f"the recorder was not ready after {patience:.0f} s")
            time.sleep(LOOK)

    def failure(self) -> Failure:
        """Why it ended: its own error, or what the command wrote."""
        code = self.process.poll()
        return self.read().failure(f"it ended with exit code {code} and no message")

    def check(self) -> None:
        """Raises its Failure if it has ended with an error."""
        if self.process.poll() not in (None, 0):
            raise self.failure()

    def stop(self) -> None:
        """Ends it if it still runs: first as Ctrl-C does, so that it takes its probes away."""
        steps = ((signal.SIGINT, LAST_WORDS), (signal.SIGTERM, AGAIN), (signal.SIGKILL, AGAIN))
        for number, patience in steps:
            if self.process.poll() is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                self.send(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)

    def send(self, number: int) -> None:
        """To its process group, if that is not ours."""
        group = os.getpgid(self.pid)
        if group != os.getpgrp():
            os.killpg(group, number)
        else:
            self.process.send_signal(number)


def mark(pid: int, number: int, text: str) -> bool:
    """Whether the log of a recorder has the mark: a busy one may be late with its answer."""
    words = [find_klogger(), "mark", "--recorder", str(pid), str(number), text]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
