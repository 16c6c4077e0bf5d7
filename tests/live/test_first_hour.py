# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a new user sees: tests/first_hour, with klogger as `make install` installs it."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def prefix(klogger):
    folder = Path(tempfile.mkdtemp(prefix="klogger-", dir="/tmp"))
    folder.chmod(0o755)
    env = {**os.environ, "PREFIX": str(folder / "prefix"), "KLOGGER": str(klogger)}
    done = subprocess.run(
        [ROOT / "scripts/install"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    yield folder / "prefix"
    shutil.rmtree(folder, ignore_errors=True)


def run(*words):
    words = [sys.executable, ROOT / "tests/first_hour", *words]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_command_of_the_readme_runs(prefix):
    run("--runs", "--prefix", prefix, "readme")


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("part", ["answer", "readme", "user", "gallery", "tutorial", "bad_input"])
def test_what_is_printed(prefix, part):
    run("--prefix", prefix, part)
