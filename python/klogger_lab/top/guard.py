# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ends what `klogger top` has started, however that ended itself; also by SIGKILL.

The recorder and its command are in the process group of this program, which waits for the end of a
pipe that only `klogger top` has open. Then it ends the others of the group as Ctrl-C does, and
those that do not care more and more firmly, and removes the private folder. As the leader of the
group it keeps the group's number from being used by others. What has left the group (a daemon) is
left alone.

It is run as `python -I -S guard.py FOLDER`, and imports nothing of ours: it is there at once, and
small.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

# What it says, and what it is told when the group has got SIGINT already.
READY, ASKED = b"\n", b"\n"
FIRST = (signal.SIGINT, signal.SIGTERM)
# Seconds that each of them is given.
PATIENCE = 5.0
LOOK = 0.05
IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def others(group: int) -> Iterator[int]:
    """The processes of the group that have not ended, but for this one."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        # The state, the parent, and the group.
        if int(fields[2]) == group and fields[0] not in b"ZX" and int(folder.name) != os.getpid():
            yield int(folder.name)


def end(group: int, signals: tuple[signal.Signals, ...], patience: float = PATIENCE) -> None:
    for number in signals:
        until = time.monotonic() + patience
        for pid in others(group):
            send(pid, number)
        while any(others(group)) and time.monotonic() < until:
            time.sleep(LOOK)
    for pid in others(group):
        send(pid, signal.SIGKILL)


def send(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def main() -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    # From now on signals to the group do not end this program. Nobody may be there any more.
    with contextlib.suppress(OSError):
        os.write(1, READY)
    # Returns when `klogger top` has closed its end, or does not exist any more.
    asked = os.read(0, 1) == ASKED
    try:
        end(os.getpgrp(), FIRST[1:] if asked else FIRST)
    finally:
        shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
