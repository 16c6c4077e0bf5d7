# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The rules of `useless` find the useless work that was planted, as often as it was done, and none
in the twins that do the same job properly.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
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
# All rules that are about what programs do; of D23 and D25 nothing is in a log.
PLANTED = {f"D{number}" for number in range(1, 27)} - {"D23", "D25"}
# How often the rules that depend on the clock are tried, until they find all: on a busy machine
# the work that was planted does not keep its pace.
TRIES = 3
# In the words of the zoo: its folder, a new one for each recording.
ROOM = object()


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
    # Not a wrapper that starts the interpreter.
    words = [Path("/proc/self/exe").resolve(), "-I", STUDY / "_zoo.py", ROOM, recorder.klogger]
    if shutil.which("cc"):
        program = tmp_path / "crashes"
        command = ["cc", "-O2", "-g", "-w", "-o", program, STUDY / "crashes.c"]
        subprocess.run(command, check=True)
        words.append(program)
    return words


def record(recorder, score, words, *more):
    """The score of each rule, the tables of the analyses, and what was lost."""
    schemata = [word for name in RECORDED for word in ("-s", SCHEMATA / name)]
    room = Path(tempfile.mkdtemp(dir=recorder.dir))
    words = [room if word is ROOM else word for word in words]
    done, path = recorder.run(*schemata, "--set", "kernel_timers=true", "--", *words, *more)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    lost = {event: log.lost(event) for event in ("LOOK", "NAMED", "READ", "WRITE", "TIMED_WAKE")}
    tables = answers(recorder.klogger, path, *ASKED)
    zoo = [json.loads(line) for line in done.out.splitlines()]
    return score.scores(zoo, tables["findings"]), tables, {e: n for e, n in lost.items() if n}


def wrong(made) -> dict:
    """What is not as it was planted, by rule."""
    said = {each.rule: (each.missed, each.false, each.twins) for each in made}
    return {rule: those for rule, those in said.items() if any(those)}


@pytest.mark.full("takes more than 3 s")
def test_the_zoo(recorder, score, words):
    with Quiet() as quiet:
        made, tables, lost = record(recorder, score, words)
        late = {rule: those for rule, those in wrong(made).items() if rule in score.BY_THE_CLOCK}
        tries = 1
        while late and not lost and tries < TRIES:
            again, *_ = record(recorder, score, words, f"only={','.join(late)}")
            late = {rule: those for rule, those in wrong(again).items() if rule in late}
            tries += 1
    if lost:
        quiet.check(f"lost {lost}")
    # Whatever the clock says.
    others = {rule: those for rule, those in wrong(made).items() if rule not in score.BY_THE_CLOCK}
    assert not others, tables["findings"]
    assert {each.rule for each in made if each.planted or each.skipped} == PLANTED
    check_rules(tables["rules"], tables["findings"])
    if late:
        quiet.check(f"{TRIES} times: {late}")


def check_rules(rules, found):
    """Each of the 26 has an answer; of those that are not observable, what to do instead."""
    assert [one["rule"] for one in rules] == [f"D{number}" for number in range(1, 27)]
    for one in rules:
        many = len([finding for finding in found if finding["rule"] == one["rule"]])
        assert one["findings"] == many
        assert (one["answer"] == "found") == (many > 0)
        assert not one["answer"].startswith("not recorded")
    assert [one["rule"] for one in rules if "not observable" in one["answer"]] == ["D23", "D25"]
