# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Completion in real shells: what stands on the command line after a Tab."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from klogger.program import find_klogger

LOG = Path(__file__).resolve().parents[2] / "tests" / "logs" / "v2.klog"
# How each shell is started without anybody's configuration, and loads the completion.
SHELLS = {
    "bash": (["--norc", "--noprofile", "-i"], "PS1='> '; source {scripts}/klogger.bash"),
    "zsh": (
        ["-f", "-i"],
        "PS1='> '; unsetopt zle_bracketed_paste; fpath=({scripts} $fpath);"
        " autoload -Uz compinit; compinit -u -d {scripts}/dump",
    ),
    "fish": (
        ["--no-config", "-i"],
        "function fish_prompt; printf '> '; end; set -g fish_autosuggestion_enabled 0;"
        " source {scripts}/klogger.fish",
    ),
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("manual")
    subprocess.run([find_klogger(), "manual", out], check=True)
    return out / "completions"


@pytest.fixture(params=SHELLS)
def shell(
    request: pytest.FixtureRequest, scripts: Path, tmp_path: Path
) -> Iterator[tuple[str, pexpect.spawn[str]]]:
    name = str(request.param)
    if shutil.which(name) is None:
        pytest.skip(f"no {name} on this machine: run 'scripts/setup test'")
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "klogger").symlink_to(Path(find_klogger()).resolve())
    shutil.copy(LOG, tmp_path / "x.klog")
    (tmp_path / "notes.txt").touch()
    env = {"PATH": f"{bin}:/usr/bin:/bin", "HOME": str(tmp_path), "TERM": "xterm"}
    options, begin = SHELLS[name]
    process = pexpect.spawn(
        name, options, env=env, cwd=tmp_path, encoding="utf-8", timeout=30, dimensions=(50, 200)
    )
    # Printed in two parts, so that it is not found in what was typed.
    process.sendline(begin.format(scripts=scripts) + "; echo re''ady")
    process.expect("ready\r\n")
    yield name, process
    process.close(force=True)


def after_tab(shell: pexpect.spawn[str], line: str) -> str:
    """The words of the line that `line` and a Tab make. They are not run but printed."""
    shell.send(line + "\t")
    # At the line's start and end; the shell takes these keys after it has answered the Tab.
    shell.send("\x01printf '<%s>\\n' \x05 e''nd\r")
    shell.expect(r"(?:<[^\r\n]*>\r\n)+<end>")
    found = re.findall(r"<([^\r\n]*)>\r\n", shell.match.group(0) + "\r\n")
    return " ".join(found[:-1])


# What is typed, and what a Tab adds.
LINES = [
    ("klogger rep", "ort"),
    ("klogger record -s sched", "uler"),
    ("klogger record -s scheduler,loc", "king"),
    ("klogger record -s scheduler --disable SCHEDO", "UT"),
    ("klogger record --overwr", "ite"),
    ("klogger report --ht", "ml"),
    ("klogger study --budg", "et"),
    ("klogger report x.klog --format js", "on"),
    ("klogger cat x.klog --event PROCESS_EXI", "STS"),
    ("klogger cat x.klog --where par", "ent"),
    ("klogger cat x.klog --where 'cpu == 0 && par", "ent"),
    ("klogger record -s scheduler --where SCHEDOUT:pri", "o"),
    ("klogger record -s scheduler --where SCHEDO", "UT:"),
    ("klogger cat x.k", "log"),
    ("klogger report not", "es.txt"),
    ("klogger record -s scheduler -- cat not", "es.txt"),
]


def test_a_tab_completes(shell: tuple[str, pexpect.spawn[str]]) -> None:
    name, process = shell
    for typed, added in LINES:
        found = after_tab(process, typed)
        assert found == typed.replace("'", "") + added, f"{name}: {typed}"


def test_nothing_hidden_is_shown(shell: tuple[str, pexpect.spawn[str]]) -> None:
    _, process = shell
    assert after_tab(process, "klogger manu") == "klogger manu"


def test_the_scripts_are_found_where_they_are_installed(scripts: Path) -> None:
    """By the names that the shells look for."""
    assert {path.name for path in scripts.iterdir()} >= {"klogger.bash", "_klogger", "klogger.fish"}
    first = (scripts / "_klogger").read_text().splitlines()[0]
    assert first == "#compdef klogger"
    assert os.access(scripts / "klogger.fish", os.R_OK)
