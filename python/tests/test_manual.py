# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The man pages: that the programs which show them find nothing wrong with them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from klogger.program import find_klogger


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    out = tmp_path_factory.mktemp("manual")
    subprocess.run([find_klogger(), "manual", out], check=True)
    return sorted(out.glob("man?/*"))


def said(*words: object) -> tuple[int, str, str]:
    env = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, env=env
    )
    return done.returncode, done.stdout, done.stderr


def test_there_is_a_page_for_everything(pages: list[Path]) -> None:
    names = {page.name for page in pages}
    assert names >= {"klogger.1", "klogger-record.1", "klogger-report.1", "klogger-dkms.1"}
    assert names >= {"klogger-schema-language.7", "klogger-log-format.7"}


def test_man_shows_them_without_a_warning(pages: list[Path]) -> None:
    if shutil.which("man") is None or "not currently enabled" in said("man", "man")[1]:
        pytest.skip("no man on this machine: run 'scripts/setup test'")
    for page in pages:
        code, shown, warnings = said("man", "--warnings", "-l", page)
        assert (code, warnings) == (0, ""), page.name
        assert page.stem in shown.lower() and "SEE ALSO" in shown, page.name


def test_mandoc_finds_no_error(pages: list[Path]) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("no mandoc on this machine: run 'scripts/setup test'")
    for page in pages:
        assert said("mandoc", "-T", "lint", "-W", "error", page) == (0, "", ""), page.name


def test_examples_stay_as_they_are(pages: list[Path]) -> None:
    if shutil.which("mandoc") is None:
        pytest.skip("no mandoc on this machine: run 'scripts/setup test'")
    page = next(page for page in pages if page.name == "klogger-record.1")
    _, shown, _ = said("mandoc", "-T", "ascii", "-O", "width=80", page)
    line = "klogger record -s scheduler -p 4711 --for 30s   a running process\n"
    assert line in without_overstrikes(shown)


def without_overstrikes(text: str) -> str:
    """Bold letters are printed twice, with a backspace between."""
    out: list[str] = []
    for char in text:
        if char == "\b":
            out.pop()
        else:
            out.append(char)
    return "".join(out)
