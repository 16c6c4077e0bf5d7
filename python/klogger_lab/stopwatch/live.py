# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Records with a schema of START and STOP, and makes the empty pairs that say what the stopwatch
itself takes.

A command is held back until the empty pairs are made: they are in the same recording, but not in
the command's time.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from klogger.export import find_klogger
from klogger.failure import Failure

EMPTY_PAIRS = 100_000
BLOCK = 10_000
MARK = "klogger stopwatch"
# Says which process it is, waits for a word, and becomes the command.
HOLD = 'echo $$ >"$0/ready" && read -r _ <"$0/go" && exec "$@"'
# For the recorder to compile three small schemata and attach them, on a busy machine.
PATIENCE = 120.0


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


def record(recording: Recording, folder: Path) -> int:
    """Runs it to its end, and returns the exit code of `klogger record`. `folder` is for what it
    needs meanwhile.
    """
    command = recording.command
    if command and shutil.which(command[0]) is None:
        raise Failure(f"cannot run '{command[0]}': there is no such program")
    words = [
        find_klogger(),
        "record",
        "-q",
        "--engine",
        "bpf",
        "-o",
        str(recording.output),
        *recording.options,
    ]
    for schema in recording.schemata:
        words += ["-s", str(schema)]
    if command:
        for name in ("ready", "go"):
            os.mkfifo(folder / name)
        words += ["--", "/bin/sh", "-c", HOLD, str(folder), *command]
    with signals_are_the_recorders():
        recorder = subprocess.Popen(words)
        try:
            if command:
                prepare_held(recorder, folder, recording.empty_pairs)
            else:
                prepare(recorder, recording.empty_pairs)
            return recorder.wait()
        finally:
            if recorder.poll() is None:
                recorder.terminate()
                recorder.wait()


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


def prepare_held(recorder: subprocess.Popen[bytes], folder: Path, pairs: int) -> None:
    """As soon as the command's process is there, everything is attached."""
    pid = wait_for_word(recorder, folder / "ready")
    if pid is None:
        return
    make_empty_pairs(pairs)
    mark(recorder, int(pid))
    while recorder.poll() is None:
        # It fails until the other end is open.
        with contextlib.suppress(OSError):
            go = os.open(folder / "go", os.O_WRONLY | os.O_NONBLOCK)
            os.write(go, b"go\n")
            os.close(go)
            return
        time.sleep(0.001)


def wait_for_word(recorder: subprocess.Popen[bytes], fifo: Path) -> str | None:
    """What somebody writes there; None if the recorder ends before."""
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        until = time.monotonic() + PATIENCE
        text = b""
        while recorder.poll() is None and time.monotonic() < until:
            if select.select([descriptor], [], [], 0.05)[0]:
                text += os.read(descriptor, 100)
                if text.endswith(b"\n"):
                    return text.decode().strip()
                time.sleep(0.01)
        return None
    finally:
        os.close(descriptor)


def prepare(recorder: subprocess.Popen[bytes], pairs: int) -> None:
    """A recorder that answers a mark has everything attached."""
    until = time.monotonic() + PATIENCE
    while not mark(recorder, 0, "is there anybody?"):
        if recorder.poll() is not None or time.monotonic() > until:
            return
        time.sleep(0.05)
    make_empty_pairs(pairs)
    mark(recorder, 0)


def mark(recorder: subprocess.Popen[bytes], number: int, text: str = MARK) -> bool:
    """Whether the log has it: on a busy machine the recorder may be late with its answer."""
    words = [find_klogger(), "mark", "--recorder", str(recorder.pid), str(number), text]
    done = subprocess.run(words, capture_output=True, check=False)
    return done.returncode == 0


def make_empty_pairs(pairs: int) -> None:
    """Each call hits the tracepoint of the empty pairs once. Between the blocks, the recorder may
    empty the ring.
    """
    for block in range(0, pairs, BLOCK):
        for _ in range(min(BLOCK, pairs - block)):
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        time.sleep(0.001)
