# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the tests of `klogger cat --follow`, of pipes and of `klogger ps` have in common."""

import contextlib
import errno
import fcntl
import json
import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import conftest

FLOOD = Path(__file__).with_name("flood.klogger")
# Longer than any machine needs.
PATIENCE = 180


wait_for = partial(conftest.wait_for, patience=PATIENCE)


def started(klogger, *words, **more) -> subprocess.Popen:
    """klogger, in a process group of its own. Both outputs can be read, unless `more` differs."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [klogger, *map(str, words)], start_new_session=True, **(streams | more)
    )  # fmt: skip


def finish(process) -> tuple[int, bytes, str]:
    """Its exit code, and what it has printed that has not been read."""
    out, err = (b"" if stream is None or stream.closed else stream.read()
                for stream in (process.stdout, process.stderr))  # fmt: skip
    return process.wait(timeout=PATIENCE), out, err.decode()


def events(lines: bytes, *names) -> list[dict]:
    """Those of these names, of `--format json`."""
    rows = map(json.loads, lines.splitlines())
    return [row for row in rows if not names or row["event"] in names]


def has_begun(log: Path) -> bool:
    """Whether its preamble has been written."""
    return log.exists() and log.stat().st_size > 0


@contextlib.contextmanager
def locked(path: Path) -> Iterator:
    """Holds the lock of a log, as the recorder that writes it does."""
    with path.open("r+b") as file:
        # F_OFD_SETLK; struct flock: type, whence, start, length, process.
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(file, 37, lock)
        yield file


class Gate:
    """A pipe with a name: a command waits at it, until it is opened."""

    def __init__(self, folder: Path):
        self.path = folder / "gate"
        os.mkfifo(self.path)

    def open(self):
        """Once the command waits at it."""

        def write() -> int:
            try:
                return os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                assert error.errno == errno.ENXIO
                return 0

        file = wait_for(write)
        os.write(file, b"go\n")
        os.close(file)


def end(*processes):
    """In order, so that nothing is left in the kernel."""
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            os.killpg(process.pid, signal.SIGCONT)
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
            process.wait(timeout=PATIENCE)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
