# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""--where and --cpu of a recording: exactly those events that `klogger cat` selects with the same
expression from a log of all, and nothing else is done for the others.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import oracles
import pytest
from oracles import Log

FLOOD = Path(__file__).with_name("flood.klogger")
HITS = 1009
# Each hit is logged once without a condition (E0), and once with each of these.
EXPRESSIONS = [
    "number == 500",
    "number < 500",
    "number >= 500 && number != 700",
    "small < 0",
    "small == 200 || small == -56",
    "small > number",
    "number > -1 && wide > number",
    "wide == 18446744073709551615",
    "cpu == 0",
    "!(cpu == 0)",
    "tid != pid",
    "colour == 'green'",
    "colour != 'green'",
    "set == 'a|c'",
    "set != 'a|b|c'",
    "error == 'ENOENT'",
    "error != 'ENOENT'",
    "!(error == 'EPERM') || number < 3",
    "name == 'part7'",
    "name != 'part7'",
    "whole == 'part7' || whole == 'part77777777777777777777'",
    "number == 1 || (number > 10 && number < 100 && !(small == 20))",
]
# So many in a recording: the verifier follows each path through all events of a hit.
CHUNK = 4
CHUNKS = [EXPRESSIONS[n : n + CHUNK] for n in range(0, len(EXPRESSIONS), CHUNK)]
FIELDS = """{
    uint       number
    char       small
    ulonglong  wide
    int        pid
    uchar      colour as colour
    ushort     set as bits
    int        error as errno
    string[6]  name
    string     whole
    context tid
}
"""
HEAD = """schema conditions "The same event many times"
enum colour { 1 "red" 2 "green" }
flags bits { 1 "a" 2 "b" 4 "c" }
"""
# prctl(1000, number, name, 0, 0): the kernel does not know it, and hits the tracepoint.
PROBE = """probe tracepoint task_prctl_unknown(int option, unsigned long arg2, unsigned long arg3,
                                    unsigned long arg4, unsigned long arg5) {
    if (option != 1000)
        return;
"""
WORKLOAD = """
import ctypes, sys
libc = ctypes.CDLL(None)
for n in range(int(sys.argv[1])):
    libc.prctl(1000, n, b"part" + str(n % 10).encode() * (1 + 19 * (n % 3 == 2)), 0, 0)
"""


def schema(events):
    texts = [HEAD, *(f"event E{n} {FIELDS}" for n in range(events))]
    values = (
        "arg2, arg2, -1ull - (arg2 % 3), arg4, arg2 % 4, arg2 % 16, -(int)(arg2 % 9),"
        " (const char *)arg3, (const char *)arg3"
    )
    calls = [f"    klogger(E{n}, {values});\n" for n in range(events)]
    return "".join([*texts, PROBE, *calls, "}\n"])


def cat(recorder, log, event, *words):
    """The fields of the events that are selected."""
    done = recorder.command("cat", log, "--event", event, *words, "--format", "json")
    assert done.code == 0, done.err
    own = ("event", "serial")
    events = [json.loads(line) for line in done.out.splitlines()]
    return [{key: value for key, value in e.items() if key not in own} for e in events]


@pytest.fixture
def mine(recorder):
    file = recorder.dir / "conditions.klogger"
    file.write_text(schema(1 + CHUNK))
    return file


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("expressions", CHUNKS, ids=lambda chunk: chunk[0])
def test_what_is_logged_is_what_cat_selects(recorder, mine, clean_kernel, expressions):
    numbered = list(enumerate(expressions, 1))
    wheres = [word for n, text in numbered for word in ("--where", f"E{n}: {text}")]
    command = [sys.executable, "-c", WORKLOAD, HITS]
    done, path = recorder.run("-s", mine, *wheres, "--", *command)
    assert done.code == 0, done.err
    assert "warning" not in done.err
    log = Log(recorder.klogger, path)
    assert log.count("E0") == HITS
    assert all(log.lost(f"E{n}") == 0 for n in range(1 + CHUNK))
    oracles.check_serials(log)
    counts = []
    for n, text in numbered:
        selected = cat(recorder, path, "E0", "--where", text)
        assert cat(recorder, path, f"E{n}") == selected, text
        counts.append(len(selected))
    # The expressions tell events apart.
    assert any(0 < count < HITS for count in counts), counts
    info = recorder.command("info", path)
    conditions = log.meta["preamble"]["recorder"]["conditions"]
    for (n, text), condition in zip(numbered, conditions, strict=True):
        assert f"where      E{n}: {text}\n" in info.out
        assert condition == {"event": f"E{n}", "expression": text}
    excluded = log.rows("SELECT event FROM ledger WHERE key = 'excluded' ORDER BY event")
    assert [event for (event,) in excluded] == [f"E{n}" for n, _ in numbered]
    # What an event costs is measured of events that are logged.
    costs = log.meta["preamble"]["costs"]["events"]
    assert {cost["event"] for cost in costs} == {f"E{n}" for n in range(1 + CHUNK)}


def test_events_that_do_not_match_take_no_room(recorder, workloads, clean_kernel):
    """A flood that would overrun the smallest ring many times."""
    log, report = recorder.log(
        *("-s", FLOOD, "--buffer-size", "16K", "--disable", "FLOOD_WIDE"),
        *("--where", "FLOOD: pid == 0", "--rate-limit", "FLOOD=1/s"),
        *("--", workloads / "flood", 100_003, 0),
    )
    assert report["threads"]
    assert log.count("FLOOD") == 0
    # Neither the ring nor the rate limit has seen them.
    assert log.lost("FLOOD") == 0
    assert log.rows("SELECT 1 FROM ledger WHERE key = 'rate_limited'") == []


def test_a_bundled_schema_with_a_condition(recorder, workloads, clean_kernel):
    done, path = recorder.run(
        *("-s", "scheduler", "--where", "schedout: state == 'S' && cpu >= 0", "--"),
        *(workloads / "pingpong", 2003, "processes", 0),
    )
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.count("SCHEDOUT") > 2003
    others = recorder.command("cat", path, "--event", "SCHEDOUT", "--where", "!(state == 'S')")
    assert (others.code, others.out) == (0, "")
    assert log.count("SCHEDIN") > 2003


def test_only_events_of_some_cpus(recorder, clean_kernel):
    """The workload moves to another CPU; the names of threads are known wherever they got them."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        pytest.skip("one CPU")
    program = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
for cpu, times in ((int(sys.argv[1]), 1009), (int(sys.argv[2]), 1013)):
    os.sched_setaffinity(0, {cpu})
    for n in range(times):
        libc.prctl(15, b"moved%d" % n, 0, 0, 0)
"""
    command = [sys.executable, "-c", program, *map(str, cpus)]
    done, path = recorder.run("-s", FLOOD, "--cpu", cpus[1], "--", *command)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.rows("SELECT DISTINCT cpu FROM flood") == [(cpus[1],)]
    assert log.count("FLOOD_WIDE", "name LIKE 'moved%'") == 1013
    assert log.count("PROCESS_RENAME", "comm LIKE 'moved%'") == 1009 + 1013
    assert log.meta["preamble"]["recorder"]["cpus"] == [cpus[1]]
    info = recorder.command("info", path)
    assert f"CPUs       {cpus[1]} only; klogger's own events are of all\n" in info.out
    (text,) = log.rows("SELECT text FROM ledger WHERE key = 'excluded'")[0]
    assert text.startswith(f"only events of CPU {cpus[1]}: ")


REFUSED = [
    (["--cpu", "4095"], "klogger: --cpu: CPU 4095 is not online\n  help: online are: "),
    (["--cpu", "3-1"], "write numbers of CPUs, and ranges: 0-3,5"),
    (["--where", "FLOOD"], "write the event before the expression: 'SCHEDOUT: prio < 120'"),
    (
        ["--where", "FLOOT: pid == 1"],
        "klogger: --where: no schema of this recording has an event 'FLOOT'\n"
        "  help: did you mean `FLOOD`?\n",
    ),
    (
        ["--where", "FLOOD_WIDE: name =~ 'x'"],
        "klogger: --where 'FLOOD_WIDE: name =~ 'x'': regular expressions (=~) cannot be evaluated"
        ' while events are logged, but for the beginning of a text, as in path =~ "^/etc/"\n'
        "  help: record without it, and select from the log with 'klogger cat --where'\n",
    ),
    (
        ["--where", "FLOOD: pid == 1", "--where", "flood: pid == 2"],
        "klogger: --where: FLOOD has two conditions\n  help: join them with && or ||\n",
    ),
    (
        ["--where", "PROCESS_EXIT: pid == 1"],
        "klogger: --where: PROCESS_EXIT is one of klogger's own events, which are always logged\n",
    ),
    (
        ["--engine", "user", "--where", "FLOOD: pid == 1"],
        "klogger: --where: the user engine cannot leave out events\n",
    ),
    (["--engine", "user", "--cpu", "0"], "klogger: --cpu: events of programs have no CPU\n"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_what_cannot_be_selected(recorder, words, said):
    done, path = recorder.run("-s", FLOOD, *words, "--", "true")
    assert done.code == 2
    assert said in done.err
    assert not path.exists()


def test_without_a_compiler(recorder):
    words = ["-s", "scheduler", "--where", "SCHEDOUT: prio == 1", "--", "/bin/true"]
    done = subprocess.run(
        [recorder.klogger, "record", "-o", recorder.path(), *words],
        env={"PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(
        "klogger: a schema of your own, and any with --where, is compiled by clang, and none is"
        " installed\n  help: apt-get install clang"
    )
