# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Makes a git repository of so many files from a fixed random number, and runs git commands in it.

    _repository.py FOLDER PLAN.json

runs the commands of the plan one after another. Of each it prints a line of JSON with the process
id, and what git itself counted (its trace2 events).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

# As in the kernel's tree of 2006: 19,000 files in 1,100 directories.
FILES_IN_A_DIRECTORY, DIRECTORIES_IN_ONE = 17, 33
LINES = 24
# A merge: paths that the other side changed, and those of them that our side changed as well; and
# paths that only our side changed.
CHANGED, BOTH, OURS = 185, 10, 50
# Of the commits to compare: files changed in each of so many directories.
DIFFERENT = 20
MAILS = 20
RACY = 7
# Long ago, so that no file has changed in the second in which the index was written.
SETTLED = 1_100_000_000
ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "LC_ALL": "C",
    **{
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (
            ("NAME", "A"),
            ("EMAIL", "a@example.org"),
            ("DATE", f"{SETTLED} +0000"),
        )
    },
}


def git(folder: Path, *words: str, text: str | None = None) -> str:
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environment, input=text, text=True, capture_output=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def path_of(number: int) -> str:
    directory, file = divmod(number, FILES_IN_A_DIRECTORY)
    above, below = divmod(directory, DIRECTORIES_IN_ONE)
    return f"d{above}/e{below}/f{file}"


def directories_of(paths: list[str]) -> set[str]:
    """All that have one of these paths in them, with the root."""
    return {"", *(p.rsplit("/", n)[0] for p in paths for n in (1, 2))}


@dataclass
class Repository:
    """What has been made. The paths are those that a side changed."""

    folder: Path
    files: int
    ours: list[str] = field(default_factory=list)
    theirs: list[str] = field(default_factory=list)
    both: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    racy: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)


def stream(made: Repository) -> str:
    """The history, for `git fast-import`: `base`; `ours` and `theirs`, which are to be merged;
    `changed`, which is to be compared with base; `mails`, one change a commit.
    """
    text: list[str] = []
    marks = iter(range(1, 10**9))

    def content(number: int, *changed: int) -> str:
        lines = [f"line {i} of file {number}" for i in range(LINES)]
        for at in changed:
            lines[at] = f"changed {at} of file {number}"
        return "\n".join(lines) + "\n"

    def commit(branch: str, above: int | None, files: dict[str, str]) -> int:
        mark = next(marks)
        text.append(f"commit refs/heads/{branch}\nmark :{mark}\n")
        text.append(f"committer A <a@example.org> {SETTLED} +0000\n")
        text.append(f"data {len(branch)}\n{branch}\n")
        if above:
            text.append(f"from :{above}\n")
        for path, data in files.items():
            text.append(f"M 100644 inline {path}\ndata {len(data)}\n{data}\n")
        text.append("\n")
        return mark

    number_of = {path_of(n): n for n in range(made.files)}

    def edited(paths: list[str], *at: int) -> dict[str, str]:
        return {path: content(number_of[path], *at) for path in paths}

    base = commit("base", None, {path: content(n) for path, n in number_of.items()})
    commit("ours", base, edited(made.ours, 3) | edited(made.both, 3))
    commit("theirs", base, edited(made.theirs, LINES - 3) | edited(made.both, LINES - 3))
    commit("changed", base, edited(made.different, 7))
    above = base
    for turn in range(MAILS):
        above = commit("mails", above, edited(made.different[turn : turn + 3], 9))
    return "".join(text)


def make(folder: Path, files: int, seed: int) -> Repository:
    """With loose objects, `ours` checked out, and an index that is settled but for RACY files."""
    rng = random.Random(seed)
    chosen = rng.sample(range(files), CHANGED + OURS + DIFFERENT + 3)
    paths = [path_of(n) for n in chosen]
    theirs, rest = paths[: CHANGED - BOTH], paths[CHANGED - BOTH :]
    both, rest = rest[:BOTH], rest[BOTH:]
    made = Repository(folder, files, rest[:OURS], theirs, both, rest[OURS:])
    made.racy = made.different[:RACY]
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "base")
    for key, value in (
        ("gc.auto", "0"),
        ("fastimport.unpackLimit", str(10**9)),
        ("transfer.unpackLimit", "1"),
        ("advice.detachedHead", "false"),
    ):
        git(folder, "config", key, value)
    git(folder, "fast-import", "--quiet", text=stream(made))
    git(folder, "checkout", "-q", "ours")
    settle(folder)
    git(folder, "format-patch", "-q", "-o", "../mails", "base..mails")
    git(folder.parent, "clone", "-q", "--no-local", "--single-branch", "-b", "base", str(folder),
        str(folder) + ".clone")  # fmt: skip
    settle(Path(str(folder) + ".clone"))
    return made


def settle(folder: Path) -> None:
    for path in git(folder, "ls-files").splitlines():
        os.utime(folder / path, (SETTLED, SETTLED))
    git(folder, "update-index", "-q", "--refresh")


def types_of(*folders: Path) -> dict[str, str]:
    """What each object is."""
    found: dict[str, str] = {}
    for folder in folders:
        said = git(folder, "cat-file", "--batch-all-objects", "--batch-check")
        found |= {line.split()[0]: line.split()[1] for line in said.splitlines()}
    return found


def make_racy(folder: Path, paths: list[str]) -> None:
    """As the index has them, but as young as it, so that git cannot trust its stat data."""
    index = folder / ".git/index"
    for path in paths:
        os.utime(folder / path, (SETTLED + 100, SETTLED + 100))
    git(folder, "update-index", "-q", "--refresh")
    os.utime(index, (SETTLED + 100, SETTLED + 100))


def counted(trace: Path) -> dict[str, int]:
    """The sums of git's own counters, by category and name, of the command's own process."""
    sums: dict[str, int] = {}
    for line in trace.read_text().splitlines() if trace.exists() else []:
        one = json.loads(line)
        if one.get("event") == "data" and "/" not in one["sid"]:
            try:
                key, value = one["key"], int(one["value"])
            except ValueError:
                continue
            sums[key] = sums.get(key, 0) + value
    return sums


def run_all(folder: Path, plan: list[dict]) -> None:
    environment = {**os.environ, **ENVIRONMENT}
    for n, step in enumerate(plan):
        where = folder.parent / step.get("where", folder.name)
        if "edit" in step:
            with (where / step["edit"]).open("a") as file:
                file.write("one more line\n")
        if "racy" in step:
            make_racy(where, step["racy"])
        if "later" in step:
            os.utime(where / ".git/index", (time.time() + 100, time.time() + 100))
        if not step.get("words"):
            continue
        trace = folder.parent / f"trace{n}"
        trace.unlink(missing_ok=True)
        process = subprocess.Popen(
            ["git", *step["words"]],
            cwd=where,
            env={**environment, "GIT_TRACE2_EVENT": str(trace)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        _, said = process.communicate()
        if process.returncode != 0:
            sys.exit(f"git {' '.join(step['words'])}: {said.strip()}")
        line = {"name": step.get("name"), "pid": process.pid, "counted": counted(trace)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    run_all(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
