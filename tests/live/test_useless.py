# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The rules of `useless` find the useless work that was planted, as often as it was done, and none
in the twins that do the same job properly.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from oracles import Log

HERE = Path(__file__).resolve().parent
SCHEMATA = HERE.parents[1] / "schemata"
# Those whose number depends on when the process gets a CPU.
BY_THE_CLOCK = {"D12", "D13", "D16", "D17", "D26"}


@pytest.fixture(scope="module")
def python():
    """Not a wrapper that starts it."""
    return Path("/proc/self/exe").resolve()


def findings(recorder, path) -> list:
    words = [sys.executable, "-m", "klogger.cli.report", path, "--format", "json"]
    env = {**os.environ, "KLOGGER": str(recorder.klogger), "KLOGGER_SCHEMATA": str(SCHEMATA)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    tables = {one["name"]: one["table"] for one in json.loads(done.stdout)["analyses"]}
    return tables["findings"]


def test_the_zoo(recorder, python, tmp_path):
    schemata = ["-s", SCHEMATA / "files/files.klogger", "-s", SCHEMATA / "useless/useless.klogger"]
    room = tmp_path / "room"
    room.mkdir()
    done, path = recorder.run(*schemata, "--", python, "-I", HERE / "zoo.py", room)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert all(log.lost(event) == 0 for event in ("LOOK", "NAMED", "READ", "WRITE", "TIMED_WAKE"))
    zoo = [json.loads(line) for line in done.out.splitlines()]
    found = findings(recorder, path)
    planted = [one for one in zoo if one["planted"]]
    twins = [one for one in zoo if not one["planted"]]

    def matches(one, finding):
        """Within one of the number that was planted, or by the clock within a tenth."""
        slack = 1 if one["rule"] not in BY_THE_CLOCK else max(2, one["times"] // 10)
        return (
            finding["rule"] == one["rule"]
            and finding["object"] == one["object"]
            and abs(finding["times"] - one["times"]) <= slack
        )

    missed = [one for one in planted if not any(matches(one, finding) for finding in found)]
    shown = [(one["rule"], one["object"], one["times"]) for one in found]
    assert len(missed) <= 0.1 * len(planted), (missed, shown)
    # D7 is made by children of its process, and has the pid of the last of them.
    rooms = {str(room / name) for name in os.listdir(room)}
    inside = [
        one for one in found if any(str(one["object"]).startswith(name) for name in rooms)
        or one["rule"] in ("D16", "D17", "D20", "D26")
    ]  # fmt: skip
    false = [one for one in inside if not any(matches(planned, one) for planned in planted)]
    precision = (len(inside) - len(false)) / len(inside)
    assert precision >= 0.9, false
    for twin in twins:
        own = [one for one in found if one["rule"] == twin["rule"]
               and (one["object"] == twin["object"] or one["pid"] == twin["pid"])]  # fmt: skip
        # What is about no file of its own is its process's.
        own = [one for one in own if one["pid"] == twin["pid"] or "twin" in str(one["object"])]
        assert not own, (twin, own)
