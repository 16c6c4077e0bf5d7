# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The rules of `useless` find the useless work that was planted, as often as it was done, and none
in the twins that do the same job properly.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from disturbed import Quiet
from oracles import Log, answers

HERE = Path(__file__).resolve().parent
SCHEMATA = HERE.parents[1] / "schemata"
STUDY = SCHEMATA / "useless" / "studies"
# With lifecycle and overruns, so that all rules have an answer.
RECORDED = ("files", "useless", "lifecycle", "overruns")
ASKED = ("--analysis", "findings", "--analysis", "rules")


@pytest.fixture(scope="module")
def score():
    """The module of the study that counts what was found."""
    spec = importlib.util.spec_from_file_location("useless_score", STUDY / "_score.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def words(recorder, tmp_path):
    """What the zoo is told: its folder, and the programs that it needs."""
    room = tmp_path / "room"
    room.mkdir()
    # Not a wrapper that starts the interpreter.
    words = [Path("/proc/self/exe").resolve(), "-I", STUDY / "_zoo.py", room, recorder.klogger]
    if shutil.which("cc"):
        program = tmp_path / "crashes"
        command = ["cc", "-O2", "-g", "-w", "-o", program, STUDY / "crashes.c"]
        subprocess.run(command, check=True)
        words.append(program)
    return words


def test_the_zoo(recorder, score, words):
    schemata = [word for name in RECORDED for word in ("-s", SCHEMATA / name)]
    with Quiet() as quiet:
        done, path = recorder.run(*schemata, "--set", "kernel_timers=true", "--", *words)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert all(log.lost(event) == 0 for event in ("LOOK", "NAMED", "READ", "WRITE", "TIMED_WAKE"))
    zoo = [json.loads(line) for line in done.out.splitlines()]
    tables = answers(recorder.klogger, path, *ASKED)
    found = tables["findings"]
    made = score.scores(zoo, found)
    # Whatever the clock says.
    missed = [one for each in made for one in each.missed if each.rule not in score.BY_THE_CLOCK]
    false = [one for each in made for one in each.false if each.rule not in score.BY_THE_CLOCK]
    assert not missed, (missed, found)
    assert not false
    assert not [one for each in made for one in each.twins if each.rule not in score.BY_THE_CLOCK]
    recall, precision = score.totals(made)
    twins = [one for each in made for one in each.twins]
    if recall < 0.9 or precision < 0.9 or twins:
        said = [(each.rule, each.missed, each.false) for each in made]
        quiet.check(f"recall {recall:.2f}, precision {precision:.2f}, twins {twins}: {said}")
    check_rules(tables["rules"], found)


def check_rules(rules, found):
    """Each of the 26 has an answer; of those that are not observable, what to do instead."""
    assert [one["rule"] for one in rules] == [f"D{number}" for number in range(1, 27)]
    for one in rules:
        many = len([finding for finding in found if finding["rule"] == one["rule"]])
        assert one["findings"] == many
        assert (one["answer"] == "found") == (many > 0)
        assert not one["answer"].startswith("not recorded")
    assert [one["rule"] for one in rules if "not observable" in one["answer"]] == ["D23", "D25"]


def test_what_is_not_recorded_is_said(recorder):
    schemata = ["-s", SCHEMATA / "files", "-s", SCHEMATA / "useless"]
    done, path = recorder.run(*schemata, "--", "true")
    assert done.code == 0, done.err
    rules = {one["rule"]: one["answer"] for one in answers(recorder.klogger, path, *ASKED)["rules"]}
    assert rules["D18"] == "not recorded: add --set kernel_timers=true"
    assert rules["D21"].startswith("no marks")
    assert rules["D22"].startswith("not recorded: add -s lifecycle")
    assert rules["D24"] == "not recorded: add -s overruns"
    assert rules["D4"] == "none"
