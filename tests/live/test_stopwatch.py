# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The stopwatch: delays that a program plants and times itself, known counts, ftrace's counts, the
kernel's account of a disk.
"""

import json
import os
import statistics
import subprocess
from itertools import pairwise
from pathlib import Path

import oracles
import pytest
from witness import Ftrace

from klogger_lab import tracefs

BEGIN, END = "task:task_prctl_unknown", "timer:itimer_state"
# The log's clock and the program's are one, read in two ways, which may differ while the kernel
# corrects it.
CLOCKS_NS = 1000
PRIME = 9973
# Starts a program where tracefs is not mounted.
WITHOUT = ("unshare", "--mount", "sh", "-c", f'umount -l {tracefs.ROOT}; exec "$@"', "sh")


@pytest.fixture(autouse=True)
def has_the_commands(recorder):
    """These are other programs than the recorder, and may be of another build."""
    if recorder.command("tracepoints", "--exact", "sched_switch").code != 0:
        pytest.skip("this klogger has no 'tracepoints'")
    if recorder.command("tracepoints", "--exact", "task_prctl_unknown").code != 0:
        pytest.skip("this kernel has no tracepoint task_prctl_unknown (Linux 6.14)")


def stopwatch(recorder, begin, end, *words, command=(), code=0):
    """Its answer, what the command printed, and the log."""
    out = recorder.path()
    options = [*words, "--format", "json", "-o", out]
    done = recorder.command(
        "stopwatch", begin, end, *options, *(["--", *command] if command else [])
    )
    assert done.code == code, done.err
    # The command's output comes first, the answer last.
    at = done.out.rindex('{\n  "begin"')
    return json.loads(done.out[at:]), done.out[:at], oracles.Log(recorder.klogger, out)


def planted(recorder, workloads, n, what, ns):
    answer, text, log = stopwatch(recorder, BEGIN, END, command=[workloads / "delays", n, what, ns])
    oracles.check_whole(log)
    return answer, oracles.workload_json(text), log


def check_brackets(log, report):
    """Each START is between the first two readings of the program's clock, each STOP between the
    last two.
    """
    starts = [time + log.start_ns for (time,) in log.rows("SELECT time FROM start ORDER BY time")]
    stops = [time + log.start_ns for (time,) in log.rows("SELECT time FROM stop ORDER BY time")]
    assert len(starts) == len(stops) == len(report["times"])
    for start, stop, (a, b, c, d) in zip(starts, stops, report["times"], strict=True):
        assert a - CLOCKS_NS <= start <= b + CLOCKS_NS
        assert c - CLOCKS_NS <= stop <= d + CLOCKS_NS


@pytest.mark.full("depends on how busy the machine is")
@pytest.mark.parametrize(("what", "ns"), [("spin", 10_000), ("sleep", 1_000_000)])
def test_planted_delay(recorder, workloads, what, ns):
    answer, report, log = planted(recorder, workloads, 211, what, ns)
    check_brackets(log, report)
    assert (answer["pairs"], answer["no_stop"], answer["no_start"], answer["torn"]) == (
        211,
        0,
        0,
        0,
    )
    own = answer["own"]["mean"]
    # By the program's own clock: the delay is in the interval, and the two calls are not quite.
    inner = sorted(c - b for _, b, c, _ in report["times"])
    outer = sorted(d - a for a, _, _, d in report["times"])
    for name, of in (
        ("min", lambda x: x[0]),
        ("p50", statistics.median_low),
        ("max", lambda x: x[-1]),
    ):
        assert of(inner) - own - 2 * CLOCKS_NS <= answer[name] <= of(outer) - own + 2 * CLOCKS_NS, (
            name
        )
    assert answer["min"] >= ns - own - 2 * CLOCKS_NS


@pytest.mark.full("depends on how busy the machine is")
def test_own_cost_is_that_of_empty_pairs_and_is_subtracted(recorder, workloads):
    """The empty pairs, without what is subtracted, are 0 in the mean; the log says what it was."""
    answer, _, log = planted(recorder, workloads, PRIME, "getppid", 0)
    assert answer["own"]["pairs"] == 100_000
    assert log.count("EMPTY_START") == log.count("EMPTY_STOP") == 100_000
    times = [
        ns
        for (ns,) in log.rows(
            "SELECT b.time - a.time FROM empty_start AS a POSITIONAL JOIN empty_stop AS b"
        )
    ]
    longest = sorted(times)[99_899]
    kept = [ns for ns in times if ns <= longest]
    assert answer["own"]["mean"] == pytest.approx(statistics.fmean(kept))
    assert answer["own"]["sd"] == pytest.approx(statistics.stdev(kept))
    assert min(times) > 0
    ((raw,),) = log.rows("SELECT avg(b.time - a.time) FROM start AS a POSITIONAL JOIN stop AS b")
    assert answer["mean"] == pytest.approx(raw - answer["own"]["mean"])
    assert answer["trimmed_sd"] <= answer["sd"]


@pytest.mark.full("others of this file are in the gate")
def test_counts_are_those_of_the_program_and_of_ftrace(recorder, workloads):
    with Ftrace(BEGIN.replace(":", "/"), END.replace(":", "/"), kib=32768) as ftrace:
        answer, report, log = planted(recorder, workloads, PRIME, "getppid", 0)
    mine = [line for line in ftrace.text.splitlines() if f"-{report['pid']} " in line]
    seen = [sum(f" {event.split(':')[1]}: " in line for line in mine) for event in (BEGIN, END)]
    assert seen == [PRIME, PRIME]
    check_brackets(log, report)
    assert (answer["starts"], answer["stops"], answer["pairs"]) == (PRIME, PRIME, PRIME)
    assert (answer["no_stop"], answer["no_start"]) == (0, 0)


@pytest.mark.full("others of this file are in the gate")
def test_a_pair_is_in_the_log_or_counted_as_lost(recorder, workloads):
    """In a ring of 64 KiB, with 20,000 pairs."""
    command = [workloads / "delays", 20_000, "getppid", 0]
    answer, _, log = stopwatch(
        recorder, BEGIN, END, "--buffer-size", "64K", "--empty-pairs", 0, command=command
    )
    assert answer["own"] is None
    assert log.count("START") + log.lost("START") == log.count("STOP") + log.lost("STOP") == 20_000
    assert answer["pairs"] + answer["torn"] + answer["no_stop"] == log.count("START")
    assert any("own cost" in warning for warning in answer["warnings"])


@pytest.mark.full("others of this file are in the gate")
def test_from_each_to_the_next(recorder, workloads):
    """One point is the end of one and the begin of the next: one pair less than hits."""
    command = [workloads / "delays", 101, "spin", 1000]
    answer, text, _ = stopwatch(recorder, END, END, "--empty-pairs", 0, command=command)
    times = oracles.workload_json(text)["times"]
    assert (answer["pairs"], answer["no_stop"], answer["no_start"]) == (100, 1, 1)
    inner = min(after[2] - before[3] for before, after in pairwise(times))
    outer = max(after[3] - before[2] for before, after in pairwise(times))
    assert inner - CLOCKS_NS <= answer["min"] <= answer["max"] <= outer + CLOCKS_NS


@pytest.mark.full("others of this file are in the gate")
def test_only_what_a_condition_holds_for(recorder, workloads):
    """Of the hits of the first point, whose second parameter counts from 0, those that 7
    divides.
    """
    command = [workloads / "delays", 700, "getppid", 0]
    words = ["--if", "arg2 % 7 == 0", "--empty-pairs", 0]
    answer, _, _ = stopwatch(recorder, BEGIN, END, *words, command=command)
    assert (answer["starts"], answer["pairs"], answer["no_start"]) == (100, 100, 600)


@pytest.mark.full("others of this file are in the gate")
def test_softirqs_of_each_cpu_nest_as_they_should(recorder, workloads):
    """Of the whole machine, by CPU: each that begins ends on its CPU, but for what the begin and
    the end cut.
    """
    words = ["--key", "cpu", "-a", "--for", "1s"]
    answer, _, log = stopwatch(recorder, "irq:softirq_entry", "irq:softirq_exit", *words)
    cpus = os.cpu_count()
    assert answer["pairs"] > 0
    assert answer["no_stop"] <= cpus and answer["no_start"] <= cpus
    assert answer["crossed"] == 0
    assert log.count("START") >= answer["starts"]


def losetup(*words):
    return subprocess.run(
        ["losetup", *map(str, words)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def disk(tmp_path):
    """A block device on a file of 16 MiB, which no other program uses."""
    file = tmp_path / "disk"
    file.write_bytes(os.urandom(16 << 20))
    done = losetup("--find", "--show", file)
    if done.returncode != 0:
        pytest.skip(f"no loop device: {done.stderr.strip()}")
    yield Path(done.stdout.strip())
    losetup("--detach", done.stdout.strip())


def reads_of(disk):
    """Reads of the device since it was made, and the milliseconds that they took: fields 1 and 4 of
    its line.
    """
    lines = Path("/proc/diskstats").read_text().splitlines()
    (words,) = [line.split() for line in lines if line.split()[2] == disk.name]
    return int(words[3]), int(words[6])


@pytest.mark.full("others of this file are in the gate")
def test_block_requests_are_those_of_diskstats(recorder, disk):
    minor = os.minor(os.stat(disk).st_rdev)
    mine = (
        f"rq->q->disk->major == 7 && rq->q->disk->first_minor == {minor} && !(rq->cmd_flags & 0xff)"
    )
    before = reads_of(disk)
    read = [
        "dd",
        f"if={disk}",
        "of=/dev/null",
        "bs=32k",
        "count=257",
        "iflag=direct",
        "status=none",
    ]
    words = ["--key", "rq", "--if", mine]
    answer, _, log = stopwatch(
        recorder, "block:block_rq_issue", "block:block_rq_complete", *words, command=read
    )
    after = reads_of(disk)
    assert answer["starts"] == answer["pairs"] == after[0] - before[0] == 257
    oracles.check_whole(log)
    # The kernel counts from a moment before a request is issued, in whole milliseconds.
    total_ms = answer["mean"] * answer["pairs"] / 1e6
    account_ms = after[1] - before[1]
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    assert total_ms <= account_ms + 1 + answer["pairs"] * answer["own"]["mean"] / 1e6
    assert total_ms >= account_ms - answer["pairs"] * tick_ms


SCHEMA = Path(__file__).resolve().parents[2] / "schemata/stopwatch/stopwatch.klogger"


def kinds(recorder, out, *analyses):
    words = [word for name in analyses for word in ("--analysis", name)]
    done = recorder.command("report", out, "--format", "json", *words)
    assert done.code == 0, done.err
    return {a["name"]: a["table"] for a in json.loads(done.out)["analyses"]}


def test_schema_counts_system_calls(recorder, workloads):
    """Each getppid of the program is one pair; no other thread of the command calls it."""
    done, out = recorder.run("-s", SCHEMA, "--", workloads / "delays", PRIME, "getppid", 0)
    assert done.code == 0, done.err
    (row,) = [r for r in kinds(recorder, out, "kinds")["kinds"] if r["kind"] == "getppid"]
    assert (row["action"], row["pairs"]) == ("system call", PRIME)


@pytest.mark.full("others of this file are in the gate")
def test_schema_says_what_a_call_is_made_of(recorder, workloads):
    """A sleep of 1 ms is a call of at least 1 ms, without a CPU for nearly all of it."""
    done, out = recorder.run(
        "-s", SCHEMA, "-s", "scheduler", "--", workloads / "delays", 101, "sleep", 1_000_000
    )
    assert done.code == 0, done.err
    tables = kinds(recorder, out, "kinds", "split")
    (row,) = [r for r in tables["kinds"] if r["kind"] == "clock_nanosleep"]
    assert row["pairs"] == 101
    assert row["mean"] >= 1_000_000
    bands = [r for r in tables["split"] if r["action"] == row["action"]]
    assert all(band["off_cpu"] <= band["mean"] for band in bands), bands
    assert (
        sum(band["pairs"] * band["off_cpu"] for band in bands) >= 0.9 * row["pairs"] * 1_000_000
    ), bands


@pytest.mark.parametrize("prefix", [(), WITHOUT], ids=["mounted", "not mounted"])
def test_tracepoints_are_the_kernels(recorder, prefix):
    """Names of parameters as in the kernel's source; of each group what tracefs has in it, mounted
    or not.
    """
    if why := tracefs.why_not():
        pytest.skip(why)

    def tracepoints(*words):
        command = [*prefix, recorder.klogger, "tracepoints", *words, "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return json.loads(done.stdout)

    (found,) = tracepoints("--exact", "sched_switch")
    assert found["group"] == "sched"
    assert [p["name"] for p in found["parameters"]] == ["preempt", "prev", "next", "prev_state"]
    assert found["parameters"][1]["type"] == "struct task_struct *"
    mine = {t["name"] for t in tracepoints("block") if t["group"] == "block"}
    assert mine == {path.parent.name for path in (tracefs.ROOT / "events/block").glob("*/enable")}


def test_a_tracepoint_that_is_none_is_refused(recorder):
    done = recorder.command("stopwatch", "tracepoint shed_switch", "tracepoint sched_switch", "-a")
    assert (done.code, done.out) == (2, "")
    assert (
        done.err == "klogger: this kernel has no tracepoint 'shed_switch'\n  help: did you mean"
        " `sched_switch`?\n"
    )
