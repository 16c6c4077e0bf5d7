# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Triggers in the modules of the kernel engine, in a guest with Debian's kernel: exactly those
events fire them that `klogger cat --where` selects with the same expression, and every hit is
counted, also where there is no room for its event.
"""

import json
import subprocess
from pathlib import Path

import pytest
from boots import KERNEL, Case
from kernels import FLOOD, kernel, run
from oracles import Log, workload_json

pytestmark = pytest.mark.full("boots guests of its own")

EXPRESSIONS = [
    'name == "flood-even"',
    'name =~ "^flood-o" && cpu == 1',
    "pid > 0 && !(name == 'flood-even')",
    "pid < 0",
    "cpu == 0",
]
CAUSED = [f"FLOOD_WIDE where {text}: mark 'x', at most 3 per day" for text in EXPRESSIONS]
SEQUENCE = (
    "FLOOD_WIDE where name == 'flood-even' -> FLOOD_WIDE where name == 'flood-odd'"
    " within 1s by pid: mark 'pair', at most 2 per day"
)
EVERY = "FLOOD: mark 'each', at most 5 per day"
TRIGGERS = [*CAUSED, SEQUENCE]
EVENTS, LOSSY = 10_007, 100_003


def words(triggers) -> str:
    """For a shell."""
    quoted = (trigger.replace("'", "'\\''") for trigger in triggers)
    return " ".join(f"--trigger '{trigger}'" for trigger in quoted)


SCRIPT = f"""
kernel() {{
    name=$1 folder=$2
    shift 2
    klogger record --engine kernel --modules "/modules-$folder" -s /flood.klogger \\
        -o "/out/$name.klog" "$@" >"/out/$name.json" 2>"/out/$name.err"
    echo $? >"/out/$name.code"
}}
kernel all triggers --buffer-size 16M {words(TRIGGERS)} -- flood {EVENTS} 1
kernel lossy every --buffer-size 64K {words([EVERY])} -- flood {LOSSY} 0
kernel stopped every {words([EVERY.replace("mark 'each'", "stop")])} -- flood 10000000 0
kernel missing under-test {words(TRIGGERS)} -- true
kernel other triggers {words(TRIGGERS[1:])} -- true
cat /proc/modules >/out/modules
dmesg >/out/dmesg
"""


def files(request) -> list[str]:
    klogger, once = (request.getfixturevalue(name) for name in ("klogger", "once"))

    def build(triggers):
        def make(made: Path):
            _, tree = kernel("debian")
            options = [word for trigger in triggers for word in ("--trigger", trigger)]
            run([klogger, "build", "-s", FLOOD, *options, "--kernel", tree, "-o", made], made)
            for path in made.glob("*.ko"):
                run(["strip", "--strip-debug", path], made)

        return make

    plain = request.getfixturevalue("modules")()
    return [
        f"{plain}=/modules-under-test",
        f"{once('modules-triggers', build(TRIGGERS))}=/modules-triggers",
        f"{once('modules-every', build([EVERY]))}=/modules-every",
        f"{FLOOD}=/flood.klogger",
    ]


CASES = {"kernel-triggers": Case(KERNEL, SCRIPT, files, seconds=200)}


@pytest.fixture(scope="module")
def recorded(boots) -> Path:
    return boots.case("kernel-triggers")


def about(klogger, path) -> list[dict]:
    done = subprocess.run(
        [klogger, "info", path, "--format", "json"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)["triggers"]


def events(klogger, path, *options) -> list[dict]:
    done = subprocess.run(
        [klogger, "cat", path, *options, "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(recorded, name, code="0\n"):
    assert (recorded / f"{name}.code").read_text() == code, (recorded / f"{name}.err").read_text()
    return recorded / f"{name}.klog"


def test_what_fires_is_what_cat_selects(recorded, klogger):
    path = check(recorded, "all")
    counts = about(klogger, path)
    assert [count["trigger"] for count in counts] == TRIGGERS
    # The event that fired it stands directly before it, in the same hit.
    fired, before = {}, {}
    for event in events(klogger, path, "--event", "FLOOD_WIDE,TRIGGERED"):
        if event["event"] != "TRIGGERED":
            before[event["cpu"]] = event
        elif event["cpu"] >= 0:
            cause = before[event["cpu"]]
            assert event["time"] == cause["time"]
            fired.setdefault(event["trigger"], []).append(cause)
    for number, (count, text) in enumerate(zip(counts, EXPRESSIONS, strict=False), 1):
        selected = events(klogger, path, "--event", "FLOOD_WIDE", "--where", text)
        assert fired.get(number, []) == selected, text
        assert (count["hits"], count["lost"]) == (len(selected), 0), text
        assert count["acted"] == min(3, len(selected)), text
    # Its own name, too, was set once, by exec.
    wide = events(klogger, path, "--event", "FLOOD_WIDE")
    assert sum(event["name"].startswith("flood-") for event in wide) == EVENTS
    assert counts[0]["hits"] == (EVENTS + 1) // 2 and counts[3]["hits"] == 0


def test_a_sequence_is_found_by_the_recorder(recorded, klogger):
    path = check(recorded, "all")
    last, expected = {}, []
    for event in events(klogger, path, "--event", "FLOOD_WIDE"):
        if event["name"] == "flood-even":
            last[event["pid"]] = event["time"]
        elif event["name"] == "flood-odd":
            before = last.get(event["pid"])
            if before is not None and event["time"] - before <= 1_000_000_000:
                expected.append(event["time"])
    found = events(klogger, path, "--event", "TRIGGERED")
    assert [event["time"] for event in found if event["cpu"] < 0] == expected
    assert about(klogger, path)[-1]["hits"] == len(expected) > 0


def test_hits_without_room_are_counted(recorded, klogger):
    path = check(recorded, "lossy")
    log, report = Log(klogger, path), workload_json((recorded / "lossy.json").read_text())
    attempts = sum(thread["count"] for thread in report["threads"]) + 1
    (count,) = about(klogger, path)
    assert log.count("FLOOD") + log.lost("FLOOD") == attempts
    assert count["hits"] == attempts and count["acted"] == 5
    assert count["lost"] == attempts - log.count("TRIGGERED")
    assert 0 <= count["first_ns"] - log.start_ns <= count["last_ns"] - log.start_ns


def test_a_trigger_ends_the_recording(recorded, klogger):
    path = check(recorded, "stopped")
    said = (recorded / "stopped.err").read_text()
    assert "a trigger has ended the recording: FLOOD: stop" in said
    assert about(klogger, path)[0]["acted"] >= 1


@pytest.mark.parametrize("name", ["missing", "other"])
def test_modules_without_these_triggers_are_refused(recorded, name):
    said = (recorded / f"{name}.err").read_text()
    assert (recorded / f"{name}.code").read_text() == "2\n", said
    assert "the module of schema 'flood' has not the triggers" in " ".join(said.split())


def test_nothing_is_left(recorded):
    assert "klogger" not in (recorded / "modules").read_text()
    text = (recorded / "dmesg").read_text()
    assert not [word for word in ("WARNING:", "BUG:", "Oops") if word in text]
