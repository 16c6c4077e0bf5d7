# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the suites keep of a test that failed, and count of the others: conftest.py and pytest.ini,
with tests that fail on purpose.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import support

TESTS = """\
import shutil
from pathlib import Path

import pytest

LOG = Path("LOG_OF_THE_TESTS")


@pytest.fixture
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    shutil.copy(LOG, folder / "b.klog")
    return folder / "b.klog"


@pytest.fixture
def broken():
    raise OSError("no such disk")


def test_good(tmp_path):
    (tmp_path / "a.klog").touch()


def test_bad(tmp_path):
    shutil.copy(LOG, tmp_path / "a.klog")
    assert 1 == 2, "one is not two"


def test_of_a_recording(recorded):
    assert not recorded


def test_without_a_fixture(broken):
    pass


@pytest.mark.full("takes long")
def test_left():
    raise AssertionError


@pytest.mark.nightly("takes longer")
def test_for_the_night():
    raise AssertionError
"""


def run(folder: Path, *words: str, **more: str) -> dict[str, Any]:
    """What is counted of a run of TESTS in a folder of their own."""
    for name in ("conftest.py", "pytest.ini"):
        shutil.copy(support.ROOT / name, folder)
    suite = folder / "suite"
    suite.mkdir()
    log = support.ROOT / "tests/logs/v3.klog"
    (suite / "test_some.py").write_text(TESTS.replace("LOG_OF_THE_TESTS", str(log)))
    counted = folder / "counted.json"
    # Nor which tests this run was asked for.
    ours = ("PYTEST_", "KLOGGER_FULL", "KLOGGER_SLOW")
    env = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    env |= {"KLOGGER_TALLY": str(counted), "PYTHONPATH": str(support.ROOT / "tests"), **more}
    command = [sys.executable, "-m", "pytest", "-q", f"--basetemp={folder / 'base'}", *words]
    done = subprocess.run(
        [*command, suite], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(counted.read_text())
    return found


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["one process", "workers"])
def test_a_failure_names_why_and_where(words: tuple[str, ...], tmp_path: Path) -> None:
    found = run(tmp_path, *words)
    assert (found["passed"], found["left"], found["skipped"]) == (1, 2, 0)
    failed = {name.split("::")[1]: (why, folder) for name, why, folder in found["failed"]}
    assert set(failed) == {"test_bad", "test_of_a_recording", "test_without_a_fixture"}
    why, folder = failed["test_bad"]
    assert why == "AssertionError: one is not two"
    assert sorted(path.name for path in Path(folder).iterdir()) == ["a.klog", "a.klog.info"]
    assert "SCHEDOUT" in (Path(folder) / "a.klog.info").read_text()
    why, folder = failed["test_of_a_recording"]
    assert (Path(folder) / "b.klog.info").exists()
    assert failed["test_without_a_fixture"] == ("OSError: no such disk", "")
    # What the good one wrote went with it.
    left = (tmp_path / "base").rglob("*.klog")
    assert sorted(path.name for path in left) == ["a.klog", "b.klog"]


def test_the_rest_runs_if_it_is_asked_for(tmp_path: Path) -> None:
    found = run(tmp_path, KLOGGER_FULL="1")
    assert (found["passed"], found["left"], found["skipped"]) == (1, 0, 1)
    assert any(name.endswith("::test_left") for name, _, _ in found["failed"])
