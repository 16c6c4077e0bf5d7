# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A pager shows what is longer than a terminal, and nothing else: not pipes, not JSON."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from klogger.cli import compare, report, sql
from klogger.program import find_klogger
from klogger_lab.cli import bench, study

# Says that it was there, and shows what it got.
PAGER = "sed 's/^/paged: /'"
REPORT = [sys.executable, "-m", "klogger.cli.report"]


def on_terminal(words: list[str], **environment: str) -> str:
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    given = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "PAGER", "KLOGGER_PAGER")}
    with subprocess.Popen(
        words, stdout=theirs, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        env={**given, "TERM": "xterm", **environment},
    ) as process:  # fmt: skip
        os.close(theirs)
        found = b""
        while some := read(ours):
            found += some
        assert process.stderr is not None
        # A pager that ends early ends the command, as `klogger report ... | head`.
        assert process.stderr.read() == b""
        assert process.wait() in (0, -13)
    os.close(ours)
    return found.decode().replace("\r\n", "\n")


def read(terminal: int) -> bytes:
    """Nothing, when no process has the other side any more."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


def test_a_terminal_has_a_pager(small_log: Path) -> None:
    words = [*REPORT, str(small_log), "--analysis", "quanta"]
    lines = on_terminal(words, KLOGGER_PAGER=PAGER).splitlines()
    assert lines and all(line.startswith("paged: ") for line in lines)
    # It gets the colours that the terminal would.
    assert "\x1b[1" in lines[0]


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["--no-pager"], {"KLOGGER_PAGER": PAGER}),
        ([], {"KLOGGER_PAGER": "", "PAGER": PAGER}),
        ([], {"PAGER": "cat"}),
        (["--format", "json"], {"PAGER": PAGER}),
    ],
)
def test_no_pager(small_log: Path, words: list[str], environment: dict[str, str]) -> None:
    out = on_terminal([*REPORT, str(small_log), "--analysis", "quanta", *words], **environment)
    assert out and "paged:" not in out


def test_the_commands_that_are_not_python_have_it_too() -> None:
    """The other half of `paged`, in crates/cli/src/terminal.rs."""
    words = [find_klogger(), "list"]
    paged = on_terminal(words, KLOGGER_PAGER=PAGER)
    assert paged and all(line.startswith("paged: ") for line in paged.splitlines())
    assert "paged:" not in on_terminal([*words, "--no-pager"], KLOGGER_PAGER=PAGER)
    assert "paged:" not in on_terminal([*words, "--format", "json"], KLOGGER_PAGER=PAGER)
    assert "paged:" not in on_terminal([*words], PAGER="cat")
    assert len(on_terminal([*words], KLOGGER_PAGER="head -n 1").splitlines()) == 1
    # A pipe, as a script has it.
    piped = subprocess.run(
        words, check=True, capture_output=True, text=True, env={**os.environ, "PAGER": PAGER}
    )
    assert "scheduler" in piped.stdout and "paged:" not in piped.stdout


def test_a_pipe_has_none(small_log: Path) -> None:
    done = subprocess.run(
        [*REPORT, str(small_log), "--analysis", "quanta"], check=True, capture_output=True,
        text=True, env={**os.environ, "KLOGGER_PAGER": PAGER},
    )  # fmt: skip
    assert "Effective quanta" in done.stdout
    assert "paged:" not in done.stdout and "\x1b" not in done.stdout


def test_a_pager_that_ends_early_is_no_error(small_log: Path) -> None:
    out = on_terminal([*REPORT, str(small_log)], KLOGGER_PAGER="head -n 1")
    assert len(out.splitlines()) == 1


@pytest.mark.parametrize("parser", [report.parser, compare.parser, sql.parser])
def test_what_is_read_can_be_had_without(parser: Callable[[], object]) -> None:
    assert "--no-pager" in parser().format_help()  # type: ignore[attr-defined]


@pytest.mark.parametrize("parser", [bench.parser, study.parser])
def test_what_is_not_paged_has_no_such_option(parser: Callable[[], object]) -> None:
    assert "--no-pager" not in parser().format_help()  # type: ignore[attr-defined]
