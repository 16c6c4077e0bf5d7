# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Triggers on events of programs, which the recorder finds: exact numbers, whether or not it knows
their schema when it begins.
"""

import json
import subprocess

import pytest
from conftest import PROGRAMS

USER = ("--engine", "user")
THREADS, CALLS = 5, 1_009
ONE = "COUNT where n == 77: mark 'one', at most 1000 per second"
PAIR = "COUNT where n == 100 -> COUNT where n == 200 within 1000s by thread: mark 'pair'"
OWN = "COUNT where n == 100 -> COUNT where n == 200 within 1000s by tid: mark 'own'"
LAST = f"COUNT where n == {CALLS - 1} -> no COUNT where n == {CALLS} within 1ns by thread: mark 'l'"
NONE = "COUNT where n > 1000000: mark 'none'"
TRIGGERS = [ONE, PAIR, OWN, LAST, NONE]


def options(triggers):
    return [word for trigger in triggers for word in ("--trigger", trigger)]


def told(recorder, out) -> dict:
    words = [recorder.klogger, "info", out, "--format", "json"]
    return json.loads(subprocess.run(words, capture_output=True, check=True).stdout)


@pytest.mark.parametrize("known", [True, False], ids=["schema", "programs"])
def test_planted_events(recorder, build, known):
    schema = ("-s", PROGRAMS / "count.klogger") if known else ()
    found = recorder.folder / "found"
    command = f"COUNT where n == 500 && thread == 3: run 'env > {found}'"
    words = (*USER, *schema, "--user-buffer", "4M", *options([*TRIGGERS, command]))
    done, out = recorder.run(*words, "--", build("flood.c"), THREADS, CALLS)
    assert done.code == 0, done.err
    log = recorder.log(out)
    assert log.count("COUNT") == THREADS * CALLS and log.lost("COUNT") == 0
    counts = told(recorder, out)["triggers"]
    assert [c["hits"] for c in counts] == [THREADS, THREADS, THREADS, THREADS, 0, 1]
    assert [c["lost"] for c in counts] == [0] * 6
    assert log.count("MARK", "text = 'one'") == THREADS
    # Each hit has the time of the event.
    times = "SELECT time FROM {} ORDER BY time"
    fired = log.rows(times.format("triggered WHERE trigger = 1"))
    assert fired == log.rows(times.format("count WHERE n = 77"))
    fired = log.rows(times.format("triggered WHERE trigger = 2"))
    assert fired == log.rows(times.format("count WHERE n = 200"))
    variables = dict(line.split("=", 1) for line in found.read_text().splitlines() if "=" in line)
    assert variables["KLOGGER_EVENT"] == "COUNT" and variables["KLOGGER_CPU"] == ""
    assert (variables["KLOGGER_FIELD_n"], variables["KLOGGER_FIELD_thread"]) == ("500", "3")


def test_an_event_that_no_program_has(recorder, build):
    trigger = "NOTHING where x == 1: stop"
    done, out = recorder.run(*USER, "--trigger", trigger, "--", build("flood.c"), 1, 10)
    assert done.code == 0, done.err
    assert told(recorder, out)["triggers"][0]["hits"] == 0


def test_bad_triggers(recorder, build):
    schema = ("-s", PROGRAMS / "count.klogger")
    for trigger, message in [
        ("COUNT where m == 1: stop", "COUNT has no field 'm'"),
        ("NOTHING: stop", "no schema of this recording has an event 'NOTHING'"),
        ("COUNT -> WORD within 1s by n = text: stop", "are a number and a text"),
        ("PROCESS_EXIT: stop", "PROCESS_EXIT is one of klogger's own events"),
    ]:
        done, out = recorder.run(*USER, *schema, "--trigger", trigger, "--", build("flood.c"), 1, 1)
        assert done.code == 2 and message in done.err, done.err
        assert not out.exists()
