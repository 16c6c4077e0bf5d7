# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Triggers: exactly those events fire them that `klogger cat --where` selects with the same
expression; every hit is counted, also where its event finds no room; and what is done for them.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import oracles
import pytest
from conftest import as_nobody
from oracles import Log
from test_conditions import CHUNKS, HITS, WORKLOAD, schema
from tiers import scaled

FLOOD = Path(__file__).with_name("flood.klogger")
SLOW = """schema slow "Requests that take a while"
event DONE "a request has ended" {
    uint      number
    ulonglong waited in ns
    string    path
}
event OTHER "beside each request" {
    uint number
}
probe tracepoint task_prctl_unknown(int option, unsigned long arg2, unsigned long arg3,
                                    unsigned long arg4, unsigned long arg5) {
    if (option != 1000)
        return;
    klogger(DONE, arg2, arg3, (const char *)arg4);
    klogger(OTHER, arg2);
}
"""
# One request of so many takes longer than 20 ms; others take just as long, or almost.
PLANTED = """
import ctypes, sys
libc = ctypes.CDLL(None)
requests, slow = int(sys.argv[1]), int(sys.argv[2])
every = requests // slow
for n in range(requests):
    if n % every == every // 2 and n // every < slow:
        waited = 20_000_001 + n
    else:
        waited = 20_000_000 if n % 1000 == 999 else n
    libc.prctl(1000, n, ctypes.c_ulong(waited), b"/tmp/a b;$(id)\\n", 0)
"""
REQUESTS, LATE = scaled(20_011, 1_000_000), 13


@pytest.fixture
def slow(recorder):
    file = recorder.dir / "slow.klogger"
    file.write_text(SLOW)
    return file


def planted(requests=REQUESTS, late=LATE):
    return ["--", sys.executable, "-c", PLANTED, requests, late]


def events(recorder, path, *words):
    done = recorder.command("cat", path, *words, "--format", "json")
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def fired(recorder, path):
    """(time, serial, event) of the events that fired triggers: each stands directly before, in the
    stream of its CPU, with the same time.
    """
    found = []
    before = {}
    for event in events(recorder, path, "--event", "DONE,OTHER,TRIGGERED,LOST"):
        if event["event"] == "TRIGGERED":
            cause = before[event["cpu"]]
            assert cause["time"] == event["time"]
            found.append((event, cause))
        else:
            before[event["cpu"]] = event
    return found


@pytest.mark.full("others of this file are in the gate")
def test_planted_latencies_and_none_else(recorder, slow, clean_kernel):
    trigger = "DONE where waited > 20ms: mark 'late', at most 1000 per second"
    done, path = recorder.run("-s", slow, "--trigger", trigger, *planted())
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    oracles.check_serials(log)
    late = events(recorder, path, "--event", "DONE", "--where", "waited > 20ms")
    assert len(late) == LATE
    assert [cause for _, cause in fired(recorder, path)] == late
    assert log.count("MARK", "text = 'late'") == LATE
    (count,) = recorder_triggers(recorder, path)
    assert count["trigger"] == trigger
    assert (count["hits"], count["lost"], count["acted"], count["suppressed"]) == (LATE, 0, LATE, 0)
    assert count["first_ns"] - log.start_ns == late[0]["time"]
    assert count["last_ns"] - log.start_ns == late[-1]["time"]
    actions = log.rows("SELECT hit, of, action, result, time FROM trigger_action ORDER BY hit")
    assert [row[0] for row in actions] == list(range(1, LATE + 1))
    assert {row[2:4] for row in actions} == {('mark "late"', "")}
    assert log.meta["preamble"]["recorder"]["triggers"] == [trigger]
    info = recorder.command("info", path).out
    assert f"trigger    1: {trigger}\n" in info
    assert f"{LATE} hits, from " in info and f"actions for {LATE} hits\n" in info
    # The text of the trigger, and the name of the event.
    text = recorder.command("cat", path, "--event", "TRIGGERED").out
    assert text.count("waited > 20ms") == LATE and text.count("DONE") >= LATE


def recorder_triggers(recorder, path):
    done = recorder.command("info", path, "--format", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)["triggers"]


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("expressions", CHUNKS, ids=lambda chunk: chunk[0])
def test_what_fires_is_what_cat_selects(recorder, clean_kernel, expressions):
    mine = recorder.dir / "conditions.klogger"
    mine.write_text(schema(1))
    triggers = [
        word for text in expressions for word in ("--trigger", f"E0 where {text}: mark 'x'")
    ]
    command = [sys.executable, "-c", WORKLOAD, HITS]
    done, path = recorder.run("-s", mine, *triggers, "--", *command)
    assert done.code == 0, done.err
    assert "warning" not in done.err
    counts = recorder_triggers(recorder, path)
    hits = {}
    # As `klogger cat` prints them, one after the other: the event, and the triggers that it fires.
    cause = None
    numbers = {f"E0 where {text}: mark 'x'": n for n, text in enumerate(expressions, 1)}
    for event in events(recorder, path, "--event", "E0,TRIGGERED"):
        if event["event"] == "E0":
            cause = event
        else:
            assert event["time"] == cause["time"]
            hits.setdefault(number_of(event["trigger"], numbers), []).append(cause)
    for n, text in enumerate(expressions, 1):
        selected = events(recorder, path, "--event", "E0", "--where", text)
        assert hits.get(n, []) == selected, text
        assert counts[n - 1]["hits"] == len(selected) and counts[n - 1]["lost"] == 0
        assert counts[n - 1]["acted"] + counts[n - 1]["suppressed"] == len(selected)
        assert counts[n - 1]["acted"] >= min(1, len(selected))


def number_of(trigger, numbers):
    """JSON has the number, or the text, of a trigger."""
    if isinstance(trigger, dict):
        trigger = trigger.get("value", trigger.get("name"))
    return numbers.get(trigger, trigger)


@pytest.mark.full("others of this file are in the gate")
def test_hits_without_room_are_counted(recorder, workloads, clean_kernel):
    log, report = recorder.log(
        *("-s", FLOOD, "--buffer-size", "16K", "--disable", "FLOOD_WIDE"),
        *("--trigger", "FLOOD: mark 'x', at most 2 per day"),
        *("--", workloads / "flood", 100_003, 0),
    )
    # Its own name, too, was set once, by exec.
    attempts = sum(thread["count"] for thread in report["threads"]) + 1
    (count,) = recorder_triggers(recorder, log.path)
    assert log.count("FLOOD") + log.lost("FLOOD") == attempts
    assert count["hits"] == attempts
    assert count["lost"] == attempts - log.count("TRIGGERED") == log.lost("TRIGGERED") > 0
    assert count["acted"] == 2
    assert count["suppressed"] == log.count("TRIGGERED") - 2
    assert "lost from the log" in recorder.command("info", log.path).out


def test_a_trigger_can_end_the_recording(recorder, slow, clean_kernel):
    program = PLANTED + "\nimport time\ntime.sleep(1000)\n"
    command = ["--", sys.executable, "-c", program, 100, 1]
    trigger = "DONE where number == 50: stop"
    done, path = recorder.run("-s", slow, "--trigger", trigger, *command)
    assert done.code == 0, done.err
    assert f"a trigger has ended the recording: {trigger}" in done.err
    (count,) = recorder_triggers(recorder, path)
    assert (count["hits"], count["acted"]) == (1, 1)


@pytest.mark.full("others of this file are in the gate")
def test_a_trigger_switches_events(recorder, slow, clean_kernel):
    """OTHER is off until the first hit, and the program goes on until it has been switched on."""
    program = (
        PLANTED
        + """
while True:
    libc.prctl(1000, 7_000_000, 0, b"", 0)
"""
    )
    command = ["--", sys.executable, "-c", program, 100, 1]
    on = "DONE where number == 50: enable OTHER"
    done, path = recorder.run(
        *("-s", slow, "--disable", "OTHER", "--trigger", on),
        *("--trigger", "OTHER where number == 7000000: disable DONE, stop", *command),
    )
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.count("OTHER") > 0
    switched = log.rows("SELECT name, state FROM logging_event WHERE time > 0 ORDER BY time")
    named = [name for name, _ in switched if name in ("OTHER", "DONE")]
    assert named[-2:] == ["OTHER", "DONE"]
    first = log.one("SELECT min(time) FROM other")
    assert first >= log.one("SELECT time FROM triggered ORDER BY time LIMIT 1")


def test_a_command_gets_the_event(recorder, slow, clean_kernel):
    found = recorder.dir / "found"
    trigger = f"DONE where number == 50: run 'env > {found}; echo said; exit 3'"
    done, path = recorder.run("-s", slow, "--trigger", trigger, *planted(100, 1))
    assert done.code == 0, done.err
    variables = dict(line.split("=", 1) for line in found.read_text().splitlines() if "=" in line)
    assert variables["KLOGGER_TRIGGER"] == "1"
    assert variables["KLOGGER_EVENT"] == "DONE"
    assert variables["KLOGGER_FIELD_number"] == "50"
    assert int(variables["KLOGGER_FIELD_waited"]) == 20_000_051
    # Nothing of it was expanded, and it has no line of its own.
    assert variables["KLOGGER_FIELD_path"] == "/tmp/a b;$(id)?"
    log = Log(recorder.klogger, path)
    time = log.one("SELECT time FROM triggered")
    assert int(variables["KLOGGER_TIME"]) == time
    assert int(variables["KLOGGER_CPU"]) == log.one("SELECT cpu FROM triggered")
    assert log.one("SELECT result FROM trigger_action") == "exit code 3"
    assert "exit code 3" in done.err and "printed: said" in done.err


@pytest.mark.full("others of this file are in the gate")
def test_commands_that_hang_or_flood(recorder, slow, clean_kernel):
    """The recording goes on, and ends."""
    words = [
        *("--trigger", "DONE where number == 50: run 'sleep 1000'"),
        *("--trigger", "DONE where number == 51: run 'yes'"),
        *("--trigger", "DONE where number == 52: run 'kill -9 $$'"),
    ]
    done, path = recorder.run("-s", slow, *words, *planted())
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.count("DONE") == REQUESTS
    results = log.rows("SELECT action, result FROM trigger_action")
    assert sorted(results) == [
        ('run "kill -9 $$"', "ended by signal 9"),
        ('run "sleep 1000"', "killed after 10 s"),
        ('run "yes"', "killed after 10 s"),
    ]
    assert len(done.err) < 20_000


BAD = [
    ("", "the trigger is empty"),
    ("DONE where waited > 1", "the trigger has no action"),
    ("DONE: explode", "there is no action 'explode'"),
    ("DONE where waited >: stop", "the filter is not complete"),
    ("DNOE: stop", "no schema of this recording has an event 'DNOE'"),
    ("DONE where wait > 1: stop", "DONE has no field 'wait'"),
    ("DONE where waited == 'x': stop", "a number, and is compared with a text"),
    ("DONE where path =~ 'x.*y': stop", "regular expressions"),
    ("DONE: enable NOTHING", "no schema of this recording has an event 'NOTHING'"),
    ("MARK: stop", "MARK is one of klogger's own events"),
    ("TRIGGERED: stop", "TRIGGERED is one of klogger's own events"),
    ("DONE within 1s: stop", "'within' is for a sequence or a silence"),
]


@pytest.mark.parametrize(("trigger", "message"), BAD)
def test_bad_triggers(recorder, slow, trigger, message):
    done, path = recorder.run("-s", slow, "--trigger", trigger, "--", "true")
    assert done.code == 2
    assert message in done.err
    assert "panicked" not in done.err
    assert not path.exists()


def test_too_many_and_where_there_are_none(recorder, slow):
    many = [word for _ in range(33) for word in ("--trigger", "DONE: stop")]
    done, _ = recorder.run("-s", slow, *many, "--", "true")
    assert done.code == 2 and "33 are given; 32 are possible" in done.err
    done, _ = recorder.run("-s", slow, "--overwrite", "--trigger", "DONE: stop", "--", "true")
    assert done.code == 2 and "a flight recorder (--overwrite)" in done.err


@pytest.mark.full("others of this file are in the gate")
def test_a_command_needs_rights_of_its_own(public_klogger):
    """A klogger that whoever runs it has made root runs no commands for them."""
    public_klogger.chmod(0o4755)
    file = public_klogger.parent / "slow.klogger"
    file.write_text(SLOW)
    file.chmod(0o644)
    words = ("record", "-s", file, "-o", "/dev/null", "--trigger", "DONE: run 'id'", "--", "true")
    done = as_nobody(public_klogger, *words)
    assert done.code == 2, done.err
    assert "'run' is not possible in a klogger with the rights of another user" in done.err


@pytest.mark.full("others of this file are in the gate")
def test_trace_makes_snapshots(recorder, slow, clean_kernel):
    """Beside the lines that it prints, and without a log."""
    trigger = "DONE where number == 50: snapshot"
    words = ("-s", slow, "--trigger", trigger, "--snapshot-dir", recorder.dir)
    done = recorder.command("trace", *words, *planted(100, 1), timeout=180)
    assert done.code == 0, done.err
    (made,) = recorder.dir.glob("*.snapshot-001.klog")
    log = Log(recorder.klogger, made)
    assert log.rows("SELECT trigger FROM triggered") == [(1,)]
    assert log.rows("SELECT number FROM done WHERE waited > 20000000") == [(50,)]
    assert log.meta["preamble"]["snapshot"]["why"] == trigger


# In the kernel, of each instruction: "12: (7b) *(u64 *)(r0 +0) = r9", and lines of the source.
INSTRUCTION = re.compile(r"^ *\d+: \([0-9a-f]{2}\)")


@pytest.mark.full("depends on how busy the machine is")
def test_what_a_trigger_that_does_not_fire_costs(recorder, slow, clean_kernel):
    """Counted in the program as the kernel has it: after the event is published, a value is fetched
    and compared; a long constant is one more.
    """
    if not shutil.which("bpftool"):
        pytest.skip("bpftool is needed to see the program")
    for condition, most in [("number == 7", 2), ("waited > 20s", 3)]:
        program = "print('begun', flush=True); input()"
        words = ("--trigger", f"DONE where {condition}: mark 'x'")
        process = subprocess.Popen(
            [
                *(recorder.klogger, "record", "-o", "/dev/null", "-s", slow, *words),
                *("--", sys.executable, "-c", program),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "begun\n"
        pinned = subprocess.run(
            ["bpftool", "-j", "prog", "show"], capture_output=True, text=True, check=True
        )
        named = [p["id"] for p in json.loads(pinned.stdout) if p.get("name", "").endswith(PROBE)]
        dumps = [
            subprocess.run(
                ["bpftool", "prog", "dump", "xlated", "id", str(number)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for number in named
        ]
        process.communicate("\n", timeout=180)
        counts = [count for count in map(added, dumps) if count is not None]
        assert counts and max(counts) <= most, condition


PROBE = "_task_prctl_unknown"


def added(dump):
    """Instructions between the end of the event and what fires the trigger."""
    lines = dump.splitlines()
    fires = [n for n, line in enumerate(lines) if "klogger_fire(klogger_hit, 1" in line]
    stored = [n for n, line in enumerate(lines) if "WRITE_ONCE(*header, value)" in line]
    if not fires:
        return None
    begin = max(n for n in stored if n < fires[0])
    between = [line for line in lines[begin : fires[0]] if INSTRUCTION.match(line)]
    # The first is the store.
    return len(between) - 1
