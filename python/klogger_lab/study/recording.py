# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs one arm of a study under `klogger record`, and leaves no process behind, whatever
happens.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from klogger.failure import Failure
from klogger_lab.recorder import Recorder
from klogger_lab.study.model import Arm

PR_SET_CHILD_SUBREAPER = 36
# An arm that takes this much longer than it should is ended. Machines may be slow, or busy with
# other things.
PATIENCE = 10
GRACE = 60.0


def record(
    arm: Arm, schemata: Sequence[str], log: Path, folder: Path, tick: Callable[[], None]
) -> str:
    """What the arm's command printed. `tick` is called about twice a second while it runs."""
    options = [word for schema in schemata for word in ("-s", schema)]
    options += [*arm.record, "-o", str(log)]
    output = log.with_suffix(".out")
    environment = {**os.environ, "TMPDIR": str(folder), **arm.environment}
    with no_strays(), output.open("wb") as out:
        recorder = Recorder(
            options, log.with_suffix(".err"), command=arm.command, output=out.fileno(),
            folder=folder, environment=environment,
        )  # fmt: skip
        with recorder:
            code = wait(recorder, arm, tick)
    if code != 0:
        raise failed(arm, code, recorder)
    return output.read_text(errors="replace")


def wait(recorder: Recorder, arm: Arm, tick: Callable[[], None]) -> int:
    limit = arm.seconds * PATIENCE + GRACE
    end = time.monotonic() + limit
    while time.monotonic() < end:
        tick()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return recorder.process.wait(0.5)
    raise Failure(
        f"arm '{arm.name}' has not ended after {limit:.0f} s; it should have "
        f"taken {arm.seconds:.0f} s"
    )


def failed(arm: Arm, code: int, recorder: Recorder) -> Failure:
    """klogger's own message, or the command's."""
    found = recorder.read().failure(f"its command ended with exit code {code} and no message")
    return Failure(f"arm '{arm.name}' failed: {found.message}", help=found.help)


@contextlib.contextmanager
def no_strays() -> Iterator[None]:
    """Processes that an arm's command started and did not wait for become our children, and are
    killed.
    """
    before = children()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        # When one ends, its children become ours.
        while strays := children() - before:
            for pid in strays:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def children() -> set[int]:
    """Our own child processes, of whichever thread."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found |= {int(word) for word in (task / "children").read_text().split()}
    return found
