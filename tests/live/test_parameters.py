# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Parameters of schemata: --set, and what it leaves of the code that a parameter switches off."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from oracles import Log

HITS = 53
SCHEMA = """schema limits "Hits of a tracepoint that only this test hits"
parameter ulong least in ns = 10us from 1us to 1h "Less is not logged"
parameter s16   below = -5
parameter bool  deep = false "Log texts as well"
parameter uint  rounds = 40 from 0 to 60
event HIT { ulong number  ulong least in ns  short below }
event DEEP { string text  ulong sum }
probe tracepoint task_prctl_unknown(int option, unsigned long arg2, unsigned long arg3) {
    unsigned long long sum = 0;

    if (option != 1000)
        return;
    if (arg2 * 1000 >= least)
        klogger(HIT, arg2, least, below);
    if (deep) {
        for (unsigned int i = 0; i < rounds; i++)
            sum += arg2 * sum + i;
        klogger(DEEP, (const char *)arg3, sum);
    }
}
"""
FORK = """
probe tracepoint sched_process_fork(struct task_struct *parent, struct task_struct *child) if deep {
    klogger(FORKED, child->pid);
}
"""
WORKLOAD = f"""
import ctypes
prctl = ctypes.CDLL(None).prctl
for n in range({HITS}):
    prctl(1000, n, 0, 0, 0)
"""


@pytest.fixture
def schema(recorder) -> Path:
    path = recorder.dir / "limits.klogger"
    path.write_text(SCHEMA)
    return path


def recorded(recorder, schema, *options):
    """The events of a recording, and its log."""
    done, log = recorder.run("-s", schema, *options, "--", sys.executable, "-c", WORKLOAD)
    assert done.code == 0, done.err
    query = "SELECT number, least, below FROM hit ORDER BY number"
    rows = recorder.command("sql", log, query, "--format", "csv")
    assert rows.code == 0, rows.err
    return [tuple(map(int, row.split(","))) for row in rows.out.splitlines()[1:]], log


@pytest.mark.full("takes more than 3 s")
def test_each_recording_has_its_values(recorder, schema):
    rows, log = recorded(recorder, schema)
    assert rows == [(n, 10_000, -5) for n in range(10, HITS)]
    assert "limits.least = 10000 ns\n" in recorder.command("info", log).out
    rows, log = recorded(recorder, schema, "--set", "least=0.03ms", "--set", "limits.below=-300")
    assert rows == [(n, 30_000, -300) for n in range(30, HITS)]
    shown = re.sub(r"\s+", " ", recorder.command("info", log).out)
    assert "limits.least = 30000 ns (default 10000 ns)" in shown
    query = 'SELECT name, value, "default" FROM klogger.parameter ORDER BY name'
    rows = recorder.command("sql", log, query, "--format", "csv")
    assert rows.out.splitlines()[1:] == [
        "below,-300,-5", "deep,0,0", "least,30000,10000", "rounds,40,40",
    ]  # fmt: skip


def instructions(recorder, schema, *options) -> int:
    """Of the program at the tracepoint, as the kernel has it after its verifier."""
    process = recorder.start("-s", schema, *options, "--messages", "json", "--", "sleep", "60",
                             out=recorder.path())  # fmt: skip
    try:
        assert '"started"' in process.stderr.readline()
        sizes = []
        for file in Path(f"/proc/{process.pid}/fdinfo").iterdir():
            text = file.read_text()
            if "prog_type" in text and (found := re.search(r"verified_insns:\s+(\d+)", text)):
                sizes.append(int(found[1]))
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert sizes
    return sum(sizes)


def test_a_probe_that_a_parameter_switches_off_is_not_attached(recorder, schema):
    schema.write_text(f"{SCHEMA}event FORKED {{ int pid }}\n{FORK}")
    off = instructions(recorder, schema)
    assert off < instructions(recorder, schema, "--set", "deep=yes", "--set", "rounds=0")
    attached = []
    for value, forks in ("no", 0), ("yes", 2):
        words = ["-s", schema, "--set", f"deep={value}"]
        done, log = recorder.run(*words, "--", "sh", "-c", "(true); (true)")
        assert done.code == 0, done.err
        shown = recorder.command("info", log).out
        attached += re.findall(r"(\d+) of (\d+) attached", shown)
        assert Log(recorder.klogger, log).count("FORKED") == forks
    # With those of every recording.
    (without, _), (more, _) = attached
    assert attached == [(without, without), (more, more)] and int(more) == int(without) + 1


def test_code_that_a_parameter_switches_off_is_gone(recorder, schema):
    off = instructions(recorder, schema)
    short = instructions(recorder, schema, "--set", "deep=yes", "--set", "rounds=1")
    long = instructions(recorder, schema, "--set", "deep=yes", "--set", "rounds=60")
    # The verifier follows each round of the loop, whose bound it knows.
    assert off < short < long
    assert long - short >= 59 * 3


@pytest.mark.parametrize(
    ("options", "message", "remedy"),
    [
        (["--set", "leas=1"],
         "--set: no schema of this recording has a parameter 'leas'", "did you mean `least`?"),
        (["--set", "least=2h"], "--set limits.least: 7200000000000 ns is out of range",
         "least is 1000 to 3600000000000 ns"),
        (["--set", "least=1KiB"], "--set limits.least: '1KiB' is not a value",
         "write a number, of ns, or with a unit: `ns`, `us`, `ms`, `s`, `min` or `h`"),
        (["--set", "other.least=1"], "--set: the schema 'other' is not recorded",
         "record it as well: -s other"),
        (["--engine", "user", "--set", "least=1us"],
         "--set: the user engine runs no probes, which are all that parameters are for",
         "record without --set, or with another engine"),
    ],
)  # fmt: skip
def test_bad_values(recorder, schema, options, message, remedy):
    done, _ = recorder.run("-s", schema, *options, "--", "true")
    said = subprocess.list2cmdline([done.err])
    assert (done.code, done.err) == (2, f"klogger: {message}\n  help: {remedy}\n"), said
