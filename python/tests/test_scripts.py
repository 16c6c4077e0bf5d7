# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The folder of programs that `scripts/env` puts first in PATH is the user's own."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

ENV = Path(__file__).parents[2] / "scripts" / "env"


def sourced(**environment: str) -> subprocess.CompletedProcess[str]:
    words = ["bash", "-euc", f'. {ENV}; echo "$cache"']
    where = {"PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(words, env=where, capture_output=True, text=True, check=False)


def test_without_a_home_it_is_the_one_of_the_user() -> None:
    home = pwd.getpwuid(os.getuid()).pw_dir
    assert sourced().stdout == f"{home}/.cache/klogger\n"
    assert sourced(HOME="").stdout == f"{home}/.cache/klogger\n"


def test_another_users_is_not_taken(tmp_path: Path) -> None:
    assert sourced(KLOGGER_CACHE=str(tmp_path)).stdout == f"{tmp_path}\n"
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(tmp_path, 65534, -1)
    done = sourced(KLOGGER_CACHE=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"the cache {tmp_path} belongs to nobody" in done.stderr
