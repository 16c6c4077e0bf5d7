# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Sequences and silences: their hits are exactly those that the events of the log have, by the
definition, whatever the machine did meanwhile.
"""

import json
import signal
import sys
from collections import defaultdict

import pytest
from oracles import Log
from test_triggers import events, recorder_triggers
from tiers import scaled

SCHEMA = """schema desk "Requests and their answers"
event REQUEST { uint id }
event ANSWER { uint id  uint of  string text }
event BEAT { uint who }
probe tracepoint task_prctl_unknown(int option, unsigned long arg2, unsigned long arg3,
                                    unsigned long arg4, unsigned long arg5) {
    if (option == 1001)
        klogger(REQUEST, arg2);
    else if (option == 1002)
        klogger(ANSWER, arg3, arg2, (const char *)arg4);
    else if (option == 1003)
        klogger(BEAT, arg2);
}
"""
BEGIN = """
import ctypes, sys, time
libc = ctypes.CDLL(None)
def call(what, a, b=0, text=b"x"):
    libc.prctl(what, ctypes.c_ulong(a), ctypes.c_ulong(b), text, 0)
"""
# Some requests are never answered, and some not before the time is over.
DESK = (
    BEGIN
    + """
requests, never, late = map(int, sys.argv[1:4])
every = requests // (never + late)
for n in range(requests):
    call(1001, n)
    if n % every == every // 2 and n // every < never:
        continue
    if n % every == every // 2 and n // every < never + late:
        time.sleep(0.03)
    call(1002, n, requests - n)
time.sleep(0.2)
"""
)
REQUESTS, NEVER, LATE = scaled(4_001, 100_003), 13, 11
MS = 1_000_000


@pytest.fixture
def desk(recorder):
    file = recorder.dir / "desk.klogger"
    file.write_text(SCHEMA)
    return file


def hits(recorder, path):
    """(trigger, time, event) of all hits, in the order of the log."""
    about = Log(recorder.klogger, path).meta["preamble"]
    texts = about["recorder"]["triggers"]
    names = {layout["id"]: layout["name"] for layout in about["events"]}
    return [
        (texts[event["trigger"] - 1], event["time"], names[event["id"]])
        for event in events(recorder, path, "--event", "TRIGGERED")
    ]


def of(found, trigger):
    return [(time, name) for text, time, name in found if text == trigger]


def by_key(all_events, name, field):
    times = defaultdict(list)
    for event in all_events:
        if event["event"] == name:
            times[event[field]].append(event["time"])
    return times


def test_planted_sequences(recorder, desk, clean_kernel):
    answered = "REQUEST -> ANSWER within 10ms by id = of: mark 'a', at most 7 per day"
    hung = "REQUEST -> no ANSWER within 10ms by id = of: mark 'b', at most 1000 per second"
    some = "REQUEST where id < 100 -> ANSWER where text == 'x' within 10ms by id = of: mark 'c'"
    done, path = recorder.run(
        *("-s", desk, "--trigger", answered, "--trigger", hung, "--trigger", some),
        *("--", sys.executable, "-c", DESK, REQUESTS, NEVER, LATE),
    )
    assert done.code == 0, done.err
    logged = events(recorder, path, "--event", "REQUEST,ANSWER")
    requests, answers = by_key(logged, "REQUEST", "id"), by_key(logged, "ANSWER", "of")
    assert len(requests) == REQUESTS and len(answers) == REQUESTS - NEVER
    in_time, over = [], []
    for number, (asked,) in requests.items():
        got = answers.get(number, [])
        if got and got[0] - asked <= 10 * MS:
            in_time.append((got[0], "ANSWER"))
        else:
            over.append((asked + 10 * MS, "REQUEST"))
    found = hits(recorder, path)
    assert of(found, answered) == sorted(in_time)
    assert of(found, hung) == sorted(over)
    # Those that are planted are among them, and a machine that is busy may add some.
    assert len(over) >= NEVER + LATE
    few = {number for number in requests if number < 100}
    times = {answers[number][0] for number in few & set(answers)}
    expected = sorted((t, n) for t, n in in_time if t in times)
    assert of(found, some) == expected
    counts = recorder_triggers(recorder, path)
    assert [c["hits"] for c in counts] == [len(in_time), len(over), len(expected)]
    assert [c["lost"] for c in counts] == [0, 0, 0]
    assert counts[0]["acted"] == 7 and counts[1]["acted"] == len(over)
    log = Log(recorder.klogger, path)
    assert log.count("MARK", "text = 'b'") == len(over)
    times = log.rows("SELECT of FROM trigger_action WHERE action = 'mark \"b\"' ORDER BY hit")
    assert sorted(t - log.start_ns for (t,) in times) == sorted(t for t, _ in over)
    check_order(recorder, path)


def check_order(recorder, path):
    """Nothing came too late to be sorted in."""
    about = json.loads(recorder.command("info", path, "--format", "json").out)
    assert not {"time_disorder", "serial_gap"} & {entry["key"] for entry in about["ledger"]}
    times = [event["time"] for event in events(recorder, path)]
    assert times == sorted(times)


# It beats, and then hangs.
BEATS = (
    BEGIN
    + """
for n in range(int(sys.argv[1])):
    call(1003, n % 3)
    time.sleep(0.001)
time.sleep(1000)
"""
)


@pytest.mark.full("others of this file are in the gate")
def test_a_program_that_stops(recorder, desk, clean_kernel):
    """The silence fires once, without any event that would wake the recorder."""
    found = recorder.dir / "found"
    run = f"run 'env > {found}'"
    text = f"no BEAT within 700ms by who: snapshot, {run}, mark 'silent', at most 1000 per second"
    out = recorder.path()
    process = recorder.start(
        *("-s", desk, "--trigger", text),
        *("--trigger", "no BEAT where who == 1 within 2s by who: stop"),
        *("--", sys.executable, "-c", BEATS, 211),
        out=out,
    )
    _, said = process.communicate(timeout=180)
    assert process.returncode == 0, said
    assert "a trigger has ended the recording: no BEAT where who == 1" in said
    beats = by_key(events(recorder, out, "--event", "BEAT"), "BEAT", "who")
    expected = []
    for times in beats.values():
        following = [*times[1:], float("inf")]
        ends = zip(times, following, strict=True)
        expected += [(t + 700 * MS, "BEAT") for t, after in ends if after > t + 700 * MS]
    found_hits = hits(recorder, out)
    silent = of(found_hits, text)
    assert silent == sorted(expected)
    # Of each of the three at the end; a machine that is busy may add some.
    last = sorted((times[-1] + 700 * MS, "BEAT") for times in beats.values())
    assert silent[-3:] == last
    count = recorder_triggers(recorder, out)[0]
    assert count["hits"] == count["acted"] == len(silent)
    log = Log(recorder.klogger, out)
    assert log.count("MARK", "text = 'silent'") == len(silent)
    variables = dict(line.split("=", 1) for line in found.read_text().splitlines() if "=" in line)
    assert variables["KLOGGER_EVENT"] == "BEAT"
    assert int(variables["KLOGGER_TIME"]) in {time for time, _ in silent}
    assert int(variables["KLOGGER_FIELD_who"]) in range(3)
    # Each hit is in a snapshot.
    about = json.loads(recorder.command("info", out, "--format", "json").out)
    assert sum(snapshot["hits"] for snapshot in about["snapshots"]) == len(silent)
    check_order(recorder, out)


@pytest.mark.full("others of this file are in the gate")
def test_a_silence_from_the_beginning(recorder, desk, clean_kernel):
    """Without any event: it fires once, at its time, and never again."""
    text = "no BEAT within 300ms: mark 'never'"
    stop = "no BEAT within 900ms: stop"
    done, path = recorder.run(
        *("-s", desk, "--trigger", text, "--trigger", stop, "--", "sleep", "1000")
    )
    assert done.code == 0, done.err
    assert hits(recorder, path)[:2] == [(text, 300 * MS, "BEAT"), (stop, 900 * MS, "BEAT")]
    assert [count["hits"] for count in recorder_triggers(recorder, path)] == [1, 1]


@pytest.mark.full("others of this file are in the gate")
def test_what_has_not_passed_at_the_end_is_no_silence(recorder, desk, clean_kernel):
    program = BEGIN + "call(1003, 1); call(1001, 5)\n"
    done, path = recorder.run(
        *("-s", desk, "--trigger", "no BEAT within 1000s by who: mark 'x'"),
        *("--trigger", "REQUEST -> no ANSWER within 1000s: mark 'x'"),
        *("--", sys.executable, "-c", program),
    )
    assert done.code == 0, done.err
    assert hits(recorder, path) == []
    assert [count["hits"] for count in recorder_triggers(recorder, path)] == [0, 0]


@pytest.mark.full("others of this file are in the gate")
def test_memory_is_limited(recorder, desk, clean_kernel):
    """More keys than are remembered: the ledger says so."""
    program = BEGIN + "for n in range(150_000):\n    call(1001, n)\n"
    text = "REQUEST -> no ANSWER within 1000s by id = of: mark 'x'"
    done, path = recorder.run(
        *("-s", desk, "--buffer-size", "64M", "--trigger", text, "--"),
        *(sys.executable, "-c", program),
    )
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.count("REQUEST") == 150_000
    rows = log.rows("SELECT count, text FROM ledger WHERE key = 'trigger_full'")
    ((count, said),) = rows
    # Half of its room is made free at a time.
    assert 150_000 - 65_536 <= count < 150_000 and f"trigger 1: {text}" in said


@pytest.mark.full("others of this file are in the gate")
def test_polled_files_fire(recorder, clean_kernel):
    file = recorder.dir / "polls.klogger"
    file.write_text(
        'schema polls "What the recorder reads"\n'
        'poll VERSION from "/proc/sys/kernel/osrelease" every 20ms { string text from 1 }\n'
        'poll LOAD from "/proc/loadavg" every 20ms { string text from 2 }\n'
    )
    words = (
        *("--trigger", "VERSION: mark 'v', at most 3 per day"),
        *("--trigger", "VERSION -> LOAD within 1s: mark 'w', at most 2 per day"),
    )
    done, path = recorder.run("-s", file, *words, "--", "sleep", "0.3")
    assert done.code == 0, done.err
    found = hits(recorder, path)
    # A reading may come after the end, while probes are detached.
    logged = events(recorder, path, "--event", "VERSION,LOAD,KLOGGER_FINISH")
    (end,) = [event["time"] for event in logged if event["event"] == "KLOGGER_FINISH"]
    logged = [event for event in logged if event["time"] <= end]
    versions = [event["time"] for event in logged if event["event"] == "VERSION"]
    texts = list(dict.fromkeys(text for text, _, _ in found))
    assert len(texts) == 2
    assert [t for t, _ in of(found, words[1])] == versions and len(versions) > 1
    log = Log(recorder.klogger, path)
    assert log.count("MARK", "text = 'v'") == min(3, len(versions))
    assert log.count("MARK", "text = 'w'") == 2
    check_order(recorder, path)


BAD = [
    ("REQUEST -> ANSWER within 1s by number: stop", "event REQUEST has no field 'number'"),
    ("REQUEST -> ANSWER within 1s by id = number: stop", "event ANSWER has no field 'number'"),
    (
        "REQUEST -> ANSWER within 1s by id = text: stop",
        "'id' of REQUEST and 'text' of ANSWER are a number and a text",
    ),
    ("REQUEST -> ANSWRE within 1s: stop", "no schema of this recording has an event 'ANSWRE'"),
    ("REQUEST where x == 1 -> ANSWER within 1s: stop", "REQUEST has no field 'x'"),
    ("no BEAT where who == 'x' within 1s: stop", "a number, and is compared with a text"),
    ("no BEAT within 1s by id: stop", "event BEAT has no field 'id'"),
    ("no BEAT within 1s by who = who: stop", None),
    ("no BEAT within 1s by who = id: stop", "a silence is about one event"),
    ("no BEAT within 100000s: stop", "a time from 1ns to 86400s is expected"),
    ("REQUEST -> ANSWER -> BEAT within 1s: stop", "a sequence has two events"),
    ("no TRIGGERED within 1s: stop", "TRIGGERED is one of klogger's own events"),
]


@pytest.mark.parametrize(("trigger", "message"), [bad for bad in BAD if bad[1]])
def test_bad_sequences(recorder, desk, trigger, message):
    done, path = recorder.run("-s", desk, "--trigger", trigger, "--", "true")
    assert done.code == 2
    assert message in done.err and "panicked" not in done.err
    assert not path.exists()


@pytest.mark.full("others of this file are in the gate")
def test_a_recording_that_ends_by_a_signal(recorder, desk, clean_kernel):
    """What is over by then has fired."""
    out = recorder.path()
    program = BEGIN + "call(1001, 1)\nprint('asked', flush=True)\ntime.sleep(1000)\n"
    text = "REQUEST -> no ANSWER within 1ns: mark 'x'"
    process = recorder.start(
        "-s", desk, "--trigger", text, "--", sys.executable, "-c", program, out=out
    )
    assert process.stdout.readline() == "asked\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=180)
    ((asked,),) = by_key(events(recorder, out, "--event", "REQUEST"), "REQUEST", "id").values()
    assert hits(recorder, out) == [(text, asked + 1, "REQUEST")], said
