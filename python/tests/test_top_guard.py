# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `klogger top` has started ends with it: programs that care for no signal, and those that
have left the group, which are nobody's any more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from klogger_lab.top import guard
from klogger_lab.top.source import Guard

PATIENCE = 180.0
DEAF = "trap '' INT TERM HUP; echo on; while :; do sleep 0.1; done"


def wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Nobody may have asked for its exit code."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextlib.contextmanager
def member(group: int, script: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, process_group=group) as one:
        try:
            assert one.stdout is not None and one.stdout.readline() == b"on\n"
            yield one
        finally:
            one.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "private"
    found.mkdir()
    (found / "file").touch()
    return found


@pytest.mark.full("takes more than 3 s")
def test_who_does_not_care_for_signals_ends_as_well(folder: Path) -> None:
    one = Guard(folder)
    with member(one.group, DEAF) as deaf, member(one.group, "echo on; exec sleep 1000") as sleeper:
        one.end()
        assert deaf.wait(PATIENCE) == -signal.SIGKILL
        # It has got SIGINT already, as is said to the guard.
        assert sleeper.wait(PATIENCE) == -signal.SIGTERM
    assert not folder.exists()


def test_ctrl_c_is_tried_first(tmp_path: Path, folder: Path) -> None:
    """If nobody has said anything to the group: then `klogger top` was killed."""
    one = Guard(folder)
    out = tmp_path / "out"
    polite = f"trap 'echo INT >{out}; exit' INT; echo on; while :; do sleep 0.1; done"
    with member(one.group, polite) as other:
        assert one.process.stdin is not None
        one.process.stdin.close()
        other.wait(PATIENCE)
        one.process.wait(PATIENCE)
    assert out.read_text() == "INT\n" and not folder.exists()


def test_a_daemon_is_left_alone(folder: Path) -> None:
    one = Guard(folder)
    left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        with member(one.group, "echo on; exec sleep 1000"):
            one.end()
        assert left.poll() is None
    finally:
        left.kill()
        left.wait()


def test_it_outlives_a_signal_to_its_group(folder: Path) -> None:
    one = Guard(folder)
    assert one.process.stdout is not None
    assert one.process.stdout.peek(1) == guard.READY
    for number in guard.IGNORED:
        os.killpg(one.group, number)
    with member(one.group, "echo on; exec sleep 1000") as other:
        one.end()
        assert other.wait(PATIENCE) == -signal.SIGTERM


@pytest.mark.full("takes more than 3 s")
def test_it_ends_them_when_its_owner_is_killed(folder: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from klogger_lab.top.source import Guard\n"
        "print(Guard(Path(sys.argv[1])).group, flush=True)\ntime.sleep(1000)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        group = int(owner.stdout.readline())
        with member(group, DEAF) as deaf:
            owner.kill()
            owner.wait(PATIENCE)
            assert deaf.wait(PATIENCE) == -signal.SIGKILL
    wait(lambda: not is_running(group) and not folder.exists())
