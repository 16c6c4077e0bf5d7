# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tests/README.md says for each feature which test of the gate shows it, and where the others are:
that must be so; and tests/left.py, which finds what a run has left.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import left
import pytest
import support
import tiers

README = (support.ROOT / "tests/README.md").read_text()
# Feature, file, test in it (or none), and the file of the others (or the same).
ROWS = re.findall(r"^\| (.*?) \| `(\w+/\w+)(?: (\w+))?` \| (?:`(\w+/\w+)` )?\|$", README, re.M)
# Commands of klogger that other rows show, or that help at the prompt.
SHOWN = {"analysis", "build", "completions", "enable", "fuse", "help", "list", "man", "log"}


def file_of(name: str) -> Path:
    folder, file = name.split("/")
    place = "python/tests" if folder == "python" else f"tests/{folder}"
    return support.ROOT / place / f"test_{file}.py"


def marks_of(node: ast.FunctionDef | ast.Module) -> str:
    """What says that a test is not in the gate: the text of its decorators, or of pytestmark."""
    if isinstance(node, ast.FunctionDef):
        return " ".join(ast.unparse(one) for one in node.decorator_list)
    assigned = [one for one in node.body if isinstance(one, ast.Assign)]
    return " ".join(ast.unparse(one) for one in assigned if "pytestmark" in ast.unparse(one))


def in_gate(path: Path) -> dict[str, bool]:
    """Each test of a file, and whether it is in the gate."""
    module = ast.parse(path.read_text())
    found = {}
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            marks = re.sub(r"pytest\.param\(.*?\)\)", "", marks_of(node)) + marks_of(module)
            found[node.name] = not re.search(r"mark\.(full|nightly)\b", marks)
    return found


@pytest.mark.parametrize(("feature", "gate", "test", "full"), ROWS, ids=[row[0] for row in ROWS])
def test_each_feature_has_its_tests(feature: str, gate: str, test: str, full: str) -> None:
    tests, full = in_gate(file_of(gate)), full or gate
    if test:
        assert tests.get(f"test_{test}"), f"{feature}: {gate} {test} is not in the gate"
    else:
        assert any(tests.values()), f"{feature}: nothing of {gate} is in the gate"
    marked = re.search(r"mark\.(full|nightly)\(", file_of(full).read_text())
    assert in_gate(file_of(full)) and marked, f"{feature}: {full} has but tests of the gate"


def test_the_table_has_each_command_of_the_readme() -> None:
    table = README.partition("## Features")[2]
    # Without its head.
    assert len(ROWS) == table.count("\n|") - 2
    text = (support.ROOT / "README.md").read_text()
    commands = set(re.findall(r"^    klogger ([a-z-]+)", text, re.M))
    named = {word for row in ROWS for span in re.findall(r"`([^`]+)`", row[0]) for word in [span]}
    assert commands - {name.split()[0] for name in named} - SHOWN == set()


def test_the_table_has_each_schema_that_is_recorded_live() -> None:
    named = {span for row in ROWS for span in re.findall(r"`([^`]+)`", row[0])}
    tested = {name for name in support.schemata() if (file_of(f"live/{name}")).exists()}
    assert tested - named == set()


def test_files_that_are_named_run_whatever_their_tier(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").touch()
    assert tiers.are_named(["test_a.py", "test_a.py::test_b[c]"], tmp_path)
    assert not tiers.are_named(["test_a.py", "."], tmp_path)
    assert not tiers.are_named([], tmp_path)


def test_a_process_of_the_run_is_found_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left, "GRACE", 0.0)
    env = {**os.environ, "KLOGGER_RUN": str(tmp_path)}
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with subprocess.Popen(["sleep", "60"], env=env) as ours:
        # Until it has executed, its environment is that of this process.
        while not left.processes(tmp_path):
            time.sleep(0.01)
        assert left.end_processes(tmp_path) == [f"process {ours.pid} (sleep)"]
        assert ours.wait() == -9
    assert other.poll() is None
    other.kill()
    other.wait()
    assert left.end_processes(tmp_path) == []


def test_what_was_there_before_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rings, run = tmp_path / "shm", tmp_path / "run"
    (rings / "klogger-0").mkdir(parents=True)
    run.mkdir()
    switch = tmp_path / "switch"
    switch.write_text("2\n")
    monkeypatch.setattr(left, "RINGS", rings)
    monkeypatch.setattr(left, "PINS", tmp_path / "pins")
    monkeypatch.setattr(left, "SWITCHES", [switch])
    # No process has such a number.
    (rings / "klogger-0/99999999.1").touch()
    left.note(run)
    assert left.clean(run) == []
    new = rings / "klogger-0/99999998.1"
    new.touch()
    (rings / f"klogger-0/{os.getpid()}.1").touch()
    switch.write_text("0\n")
    assert left.clean(run) == [str(new), f"{switch}: 0, before it was 2"]
    assert not new.exists() and switch.read_text() == "2\n"
    kept = {path.name for path in (rings / "klogger-0").iterdir()}
    assert kept == {"99999999.1", f"{os.getpid()}.1"}
    assert left.clean(run) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_mount_of_the_run_goes(tmp_path: Path) -> None:
    place = tmp_path / "a place"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    left.note(tmp_path)
    assert left.clean(tmp_path) == [f"mount {place}"]
    assert not place.is_mount()
