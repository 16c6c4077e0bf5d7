# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study of git, against a command's calls worked out by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import support

from klogger_lab.study import discover
from klogger_lab.study.model import Arm, Run

STUDY = discover.load(support.SCHEMATA / "files/studies/git.py").study
MODULE: Any = __import__(STUDY.arms.__module__, fromlist=["x"])
REPOSITORY = MODULE.repository


class FakeLog:
    """Of two commands, of which the first has a child."""

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        if "PROCESS_FORK" in query:
            return [(1, 10), (10, 11), (1, 20)]
        blob = ".git/objects/ab/" + "c" * 38
        return [
            (10, "newfstatat", "d0/e0/f0", 0, 0),
            (11, "newfstatat", "d0/e0/f1", 0, 0),
            (11, "newfstatat", "", 0, 0),
            (10, "openat", "d0/e0/f0", 3, 0),
            (10, "openat", "d0", 3, MODULE.DIRECTORY),
            (10, "openat", ".gitignore", -2, 0),
            (10, "openat", blob, 3, 0),
            (10, "openat", blob, 3, 0),
            (10, "openat", ".git/objects/ab/" + "d" * 38, -2, 0),
            (10, "rename", ".git/index.lock", 0, 0),
            (20, "execve", "/usr/bin/git", 0, 0),
            (30, "openat", "d0/e0/f2", 3, 0),
        ]


def test_calls_belong_to_the_command_whose_child_made_them() -> None:
    said = [
        {"name": "first", "pid": 10, "counted": {"read/cache_nr": 17}},
        {"name": None, "pid": 12, "counted": {}},
        {"name": "second", "pid": 20, "counted": {}},
    ]
    log: Any = FakeLog()
    arm = Arm("x", ["x"], 1, {"files": 17})
    run = Run(arm, log, "".join(json.dumps(line) + "\n" for line in said), SimpleNamespace())
    first, second = MODULE.commands_of(run)
    assert (first.name, second.name, first.counted) == ("first", "second", {"read/cache_nr": 17})
    assert first.stats == {"d0/e0/f0": 1, "d0/e0/f1": 1}
    assert first.opened == {"d0/e0/f0": 1}
    assert first.absent == 2
    assert first.objects == {"ab" + "c" * 38}
    assert first.renamed == {"index.lock": 1}
    assert (second.execs, second.calls, first.calls) == (1, 1, 10)
    assert first.read({"ab" + "c" * 38: "blob"}, "blob") == 1


def test_slope_and_unequal_numbers() -> None:
    assert MODULE.slope([(1000, 1000), (2000, 2000)]) == 1
    assert MODULE.slope([(1000, 1000), (10_000, 1000)]) == 0
    assert not MODULE.equal("x", [("here", 3, 3), ("there", 4, 3)], "things").ok
    assert MODULE.equal("x", [("here", 3, 3)], "things").ok


def test_paths_are_in_as_many_directories_as_in_the_kernel() -> None:
    paths = [REPOSITORY.path_of(n) for n in range(19_000)]
    assert len(set(paths)) == 19_000
    assert len(REPOSITORY.directories_of(paths)) == 1 + 34 + 1118


@pytest.mark.skipif(not shutil.which("git"), reason="git is not here")
def test_a_repository_is_made_again_from_its_number(tmp_path: Path) -> None:
    tips = []
    for name in ("one", "other"):
        made = REPOSITORY.make(tmp_path / name / "tree", 500, 3)
        tips.append(REPOSITORY.git(made.folder, "rev-parse", "ours", "theirs", "mails"))
        assert len(REPOSITORY.git(made.folder, "ls-files").split()) == 500
    assert tips[0] == tips[1]
    theirs = REPOSITORY.git(made.folder, "diff", "--name-only", "base", "theirs").split()
    assert len(theirs) == REPOSITORY.CHANGED
    both = set(REPOSITORY.git(made.folder, "diff", "--name-only", "base", "ours").split())
    assert len(both & set(theirs)) == REPOSITORY.BOTH
