# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Records with a schema of START and STOP, and makes the empty pairs that say what the stopwatch
itself takes.

A command is held back until the empty pairs are made: they are in the same recording, but not in
the command's time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from klogger.failure import Failure
from klogger.program import failure_of
from klogger_lab.recorder import PATIENCE, Recorder, mark

EMPTY_PAIRS = 100_000
BLOCK = 10_000
MARK = "klogger stopwatch"
# Says which process it is, waits for a word, and becomes the command: with our standard error, for
# the recorder's own has messages for us.
HOLD = 'echo $$ >"$0/ready" && read -r _ <"$0/go" && exec "$@" 2>&{error} {error}>&-'


@dataclass(frozen=True)
class Recording:
    """`options` are for `klogger record`. Of `command` and `-a` or `-p` in the options one is
    needed.
    """

    schemata: Sequence[Path]
    output: Path
    options: Sequence[str] = ()
    command: Sequence[str] = ()
    empty_pairs: int = EMPTY_PAIRS


def record(recording: Recording, folder: Path, tell: Callable[[object], None]) -> int:
    """Runs it to its end, and returns the exit code of `klogger record`. `folder` is for what it
    needs meanwhile; `tell` gets what it says to people.
    """
    command = recording.command
    if command and shutil.which(command[0]) is None:
        raise Failure(f"cannot run '{command[0]}': there is no such program")
    options = ["--engine", "bpf", "-o", str(recording.output), *recording.options]
    for schema in recording.schemata:
        options += ["-s", str(schema)]
    with signals_are_the_recorders(), standard_error() as error:
        held: list[str] = []
        if command:
            for name in ("ready", "go"):
                os.mkfifo(folder / name)
            held = ["/bin/sh", "-c", HOLD.format(error=error), str(folder), *command]
        recorder = Recorder(
            options, folder / "messages", command=held, output=1, stdin=None, group=None,
            pass_fds=[error],
        )  # fmt: skip
        try:
            if command:
                prepare_held(recorder, folder, recording.empty_pairs)
            else:
                prepare(recorder, recording.empty_pairs)
            code = recorder.process.wait()
        finally:
            if recorder.process.poll() is None:
                recorder.process.terminate()
                recorder.process.wait()
            relay(recorder, tell)
        return code


@contextlib.contextmanager
def standard_error() -> Iterator[int]:
    """A copy of our own, under a number of one digit: a shell redirects to no others."""
    copy = fcntl.fcntl(2, fcntl.F_DUPFD, 3)
    try:
        if copy > 9:
            raise Failure(
                "too many files are open to start the command",
                help="start klogger from a shell that keeps fewer of its own",
            )
        yield copy
    finally:
        os.close(copy)


def relay(recorder: Recorder, tell: Callable[[object], None]) -> None:
    """What the recorder has to say to people."""
    said = recorder.read()
    for message in [*said.of("note"), *said.of("error")]:
        tell(failure_of(message))
    for line in said.others:
        tell(line)


@contextlib.contextmanager
def signals_are_the_recorders() -> Iterator[None]:
    """Ctrl-C ends the recording, and the answer comes all the same. SIGTERM ends both."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    # A handler, because a signal that is ignored would be so in the recorder too.
    before = {signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None)}
    before[signal.SIGTERM] = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def prepare_held(recorder: Recorder, folder: Path, pairs: int) -> None:
    """As soon as the command's process is there, everything is attached."""
    pid = wait_for_word(recorder, folder / "ready")
    if pid is None:
        return
    make_empty_pairs(pairs)
    mark(recorder.pid, int(pid), MARK)
    while recorder.process.poll() is None:
        # It fails until the other end is open.
        with contextlib.suppress(OSError):
            go = os.open(folder / "go", os.O_WRONLY | os.O_NONBLOCK)
            os.write(go, b"go\n")
            os.close(go)
            return
        time.sleep(0.001)


def wait_for_word(recorder: Recorder, fifo: Path) -> str | None:
    """What a program writes there; None if the recorder ends before."""
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        until = time.monotonic() + PATIENCE
        text = b""
        while recorder.process.poll() is None and time.monotonic() < until:
            if select.select([descriptor], [], [], 0.05)[0]:
                text += os.read(descriptor, 100)
                if text.endswith(b"\n"):
                    return text.decode().strip()
                time.sleep(0.01)
        return None
    finally:
        os.close(descriptor)


def prepare(recorder: Recorder, pairs: int) -> None:
    """Once everything is attached; nothing, if the recorder ends before."""
    with contextlib.suppress(Failure):
        recorder.wait_started()
        make_empty_pairs(pairs)
        mark(recorder.pid, 0, MARK)


def make_empty_pairs(pairs: int) -> None:
    """Each call hits the tracepoint of the empty pairs once. Between the blocks, the recorder may
    empty the ring.
    """
    for block in range(0, pairs, BLOCK):
        for _ in range(min(BLOCK, pairs - block)):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        time.sleep(0.001)
