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

from klogger.export import find_klogger
from klogger.failure import Failure
from klogger_lab.study.model import Arm

PR_SET_CHILD_SUBREAPER = 36
# An arm that takes this much longer than it should is ended. Machines may be slow, or busy with
# other things.
PATIENCE = 10
GRACE = 60.0
# How long a recorder may take to write down what it has.
LAST_WORDS = 20.0


def record(
    arm: Arm, schemata: Sequence[str], log: Path, folder: Path, tick: Callable[[], None]
) -> str:
    """What the arm's command printed. `tick` is called about twice a second while it runs."""
    words = [find_klogger(), "record", "-q"]
    for schema in schemata:
        words += ["-s", schema]
    words += [*arm.record, "-o", str(log), "--", *map(str, arm.command)]
    output, errors = log.with_suffix(".out"), log.with_suffix(".err")
    with no_strays(), output.open("wb") as out, errors.open("wb") as err:
        process = start(words, arm, folder, out.fileno(), err.fileno())
        with ended(process):
            code = wait(process, arm, tick)
    said = errors.read_text(errors="replace").strip()
    if code != 0:
        raise Failure(failed(arm, code, said))
    return output.read_text(errors="replace")


def start(
    words: Sequence[str], arm: Arm, folder: Path, out: int, err: int
) -> subprocess.Popen[bytes]:
    """In a process group of its own: Ctrl-C reaches it by way of us, once."""
    try:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder,
            env={**os.environ, "TMPDIR": str(folder), **arm.environment}, process_group=0,
        )  # fmt: skip
    except OSError as error:
        raise Failure(
            f"cannot run {words[0]}: {error.strerror}", help="set KLOGGER to the klogger program"
        ) from None


def wait(process: subprocess.Popen[bytes], arm: Arm, tick: Callable[[], None]) -> int:
    limit = arm.seconds * PATIENCE + GRACE
    end = time.monotonic() + limit
    while time.monotonic() < end:
        tick()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0.5)
    raise Failure(
        f"arm '{arm.name}' has not ended after {limit:.0f} s; it should have taken {arm.seconds:.0f} s"
    )


def failed(arm: Arm, code: int, said: str) -> str:
    """klogger's own message, or the command's."""
    text = (
        said.removeprefix("klogger: ") or f"its command ended with exit code {code} and no message"
    )
    return f"arm '{arm.name}' failed: {text}"


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends the recorder if it still runs: first as Ctrl-C does, so that it takes its
    probes away.
    """
    try:
        yield
    finally:
        for number, patience in (
            (signal.SIGINT, LAST_WORDS),
            (signal.SIGTERM, 5.0),
            (signal.SIGKILL, 5.0),
        ):
            if process.poll() is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)


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
        # Each that dies may leave us its own.
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
