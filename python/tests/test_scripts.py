# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The folder of programs that `scripts/env` puts first in PATH is the user's own. What
`scripts/test` says of a tree.
"""

from __future__ import annotations

import os
import pwd
import shutil
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


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a commit, that has scripts/test, and a cache of its own."""
    root = tmp_path / "checkout"
    (root / "scripts").mkdir(parents=True)
    for name in ("env", "test"):
        shutil.copy(ENV.with_name(name), root / "scripts")
    git(root, "init", "-q")
    commit(root, "the first one")
    return root


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    command = ["git", *who, *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(root: Path, subject: str) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", subject)


def status(root: Path) -> tuple[int, str]:
    env = {**os.environ, "KLOGGER_CACHE": str(root.parent)}
    command = [root / "scripts/test", "--status"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_whether_a_tree_is_tested(checkout: Path) -> None:
    assert status(checkout) == (1, "not tested: no commit of this branch was\n")
    stamp = checkout.parent / "tested" / git(checkout, "rev-parse", "HEAD^{tree}")
    stamp.parent.mkdir()
    stamp.write_text("the table\n")
    assert status(checkout) == (0, "this tree is tested:\nthe table\n")
    # It is the tree that counts, not the commit.
    commit(checkout, "the same files")
    assert status(checkout)[0] == 0
    (checkout / "new").touch()
    last = f"  {git(checkout, 'rev-parse', '--short', 'HEAD')} the same files\n"
    changed = "not tested: 0 commits and changes that are not committed since the last one"
    assert status(checkout) == (1, f"{changed} that was:\n{last}")
    commit(checkout, "more files")
    assert status(checkout) == (1, f"not tested: 1 commits since the last one that was:\n{last}")


def test_a_suite_that_there_is_not(checkout: Path) -> None:
    command = [checkout / "scripts/test", "pyhton"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("no suite pyhton\n  help: suites are lint, rust,")
