# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger bench` on this kernel: what perf counts, what a schema declares, and an order of costs
that must be.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from disturbed import Quiet

from klogger_lab import tracefs

PASSES = 3
# Of one pass, with the bpf engine: blocks of each arm, and hits of a block.
HITS = 600 * 211
# An event of each shape. A text that the loop logs has 7 letters.
SHAPES = """\
schema shapes "One event of each shape"

event NOTHING { }
event ONE { int a }
event EIGHT { int a  int b  int c  int d  int e  int f  int g  int h }
event NUMBERS { ulong a[16] }
event FIXED { string[32] a }
event TEXT { int a  string b }
event CONTEXT { int a  context tid cgroup }
"""
# Header, fields, and the rest up to 8 bytes.
BYTES = {
    "NOTHING": 8,
    "ONE": 16,
    "EIGHT": 40,
    "NUMBERS": 136,
    "FIXED": 40,
    "TEXT": 24,
    "CONTEXT": 24,
}


@pytest.fixture
def bench(klogger, tmp_path):
    """Starts it, in a folder of its own."""

    def start(*words, **more):
        command = [sys.executable, "-m", "klogger_lab.cli.bench", *map(str, words)]
        environment = {**os.environ, "KLOGGER": str(klogger)}
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment,
            **more,
        )

    return start


def answer_of(process):
    """What it says, and that its exit code says the same."""
    out, err = process.communicate(timeout=500)
    assert process.returncode in (0, 1), err
    found = json.loads(out)
    assert process.returncode == (0 if found["measurable"] else 1)
    for row in found["floor"] + found["events"]:
        assert (row["added_ns"] is None) == (row["not_measurable"] is not None)
    return found


def measurable(bench, *words):
    """On a machine that is busy with other things it may say that it cannot measure."""
    with Quiet() as quiet:
        found = answer_of(bench(*words, "--passes", PASSES, "--format", "json"))
    # Beside the empty probe an event may spread too wide all the same; in a program there is none.
    over = [event["over_empty_ns"] for event in found["events"]]
    if not found["measurable"] or (any(over) and not all(over)):
        why = [row["not_measurable"] for row in found["floor"] + found["events"]]
        quiet.check(f"not measurable: {why}")
    return found


def left_behind(folder):
    """Files, and loops that still run."""
    names = [Path(f"/proc/{pid}/comm") for pid in os.listdir("/proc") if pid.isdigit()]
    loops = []
    for name in names:
        try:
            loops += [name.parent.name] if name.read_text() == "klogger_loop\n" else []
        except OSError:
            continue
    return loops, [file for file in folder.iterdir() if file.name.startswith("klogger-bench")]


@pytest.mark.full("depends on how busy the machine is")
def test_costs_have_the_order_that_they_must_have(bench, clean_kernel, tmp_path):
    """Who does what another one does, and more, costs more; whatever the instructions are."""
    found = measurable(bench)
    floor = {row["name"]: row["added_ns"]["median"] for row in found["floor"]}
    assert 0 < floor["empty probe"] < floor["clock read"]
    for event in found["events"]:
        added = event["added_ns"]
        assert added["low"] <= added["median"] <= added["high"]
        assert floor["event off"] < added["median"]
        # It reads the clock too, and stores more.
        assert floor["clock read"] < added["median"]
    # Its text is read and copied, by helpers of the kernel, besides what other events do.
    costs = {event["name"]: event["over_empty_ns"]["median"] for event in found["events"]}
    assert costs["EXEC"] == max(costs.values())
    assert left_behind(tmp_path) == ([], [])


@pytest.mark.full("takes more than 3 s")
def test_counts_and_bytes_are_those_of_log_and_schema(bench, klogger, tmp_path):
    schema = tmp_path / "shapes.klogger"
    schema.write_text(SHAPES)
    found = answer_of(bench("-s", schema, "--passes", PASSES, "--format", "json"))
    shown = json.loads(
        subprocess.check_output([klogger, "show", schema, "--format", "json"], text=True)
    )
    declared = {e["name"]: (e["bytes"], e["bytes_max"]) for e in shown["events"]}
    assert [event["name"] for event in found["events"]] == list(BYTES)
    for event in found["events"]:
        assert event["hits"] == event["logged"] + event["lost"] == PASSES * HITS
        assert event["bytes"] == BYTES[event["name"]]
        assert (event["bytes_least"], event["bytes_most"]) == declared[event["name"]]


@pytest.mark.full("takes more than 3 s")
@pytest.mark.skipif(not shutil.which("perf"), reason="perf, which counts hits, is not there")
def test_the_kernel_counts_as_many_hits(bench, klogger, tmp_path):
    """Blocks of the empty probe before and after each recording, and of all arms but the reference
    in it.
    """
    if why := tracefs.why_not():
        pytest.skip(why)
    counts = tmp_path / "counts"
    command = [
        sys.executable,
        "-m",
        "klogger_lab.cli.bench",
        "--event",
        "SCHEDIN",
        "--event",
        "EXEC",
        "--format",
        "json",
    ]
    perf = ["perf", "stat", "-x,", "-e", "task:task_prctl_unknown", "-o", counts, "--"]
    done = subprocess.run(
        [*perf, *command, f"--passes={PASSES}"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "KLOGGER": str(klogger)},
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    if found["place"] != "task_prctl_unknown":
        pytest.skip("this kernel has no tracepoint task_prctl_unknown (Linux 6.14)")
    arms = len(found["floor"]) + 2
    (line,) = [line for line in counts.read_text().splitlines() if "task_prctl_unknown" in line]
    assert int(line.split(",")[0]) == PASSES * HITS * (2 + arms)


@pytest.mark.nightly("a bench")
def test_where_kernels_before_6_14_are_hit(klogger, clean_kernel, tmp_path):
    code = "from klogger_lab.bench import events\nfrom klogger_lab.cli.bench import main\n"
    code += "events.PLACES = events.PLACES[1:]\n"
    code += (
        f"raise SystemExit(main(['--event', 'EXEC', '--passes', '{PASSES}', '--format', 'json']))"
    )
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "KLOGGER": str(klogger)}
    found = answer_of(
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment,
        )
    )
    (event,) = found["events"]
    assert found["place"] == "itimer_state"
    assert event["hits"] == event["logged"] + event["lost"] == PASSES * HITS


@pytest.mark.full("takes more than 3 s")
def test_an_event_of_a_program(bench, tmp_path):
    schema = tmp_path / "shapes.klogger"
    # Programs know no control groups.
    schema.write_text(SHAPES.replace("context tid cgroup", "context tid tgid"))
    found = answer_of(
        bench("-s", schema, "--engine", "user", "--passes", PASSES, "--format", "json")
    )
    assert [row["name"] for row in found["floor"]] == ["clock read", "clock, store", "event off"]
    for event in found["events"]:
        assert event["hits"] == event["logged"] + event["lost"] == PASSES * 300 * 1009
        assert event["bytes"] == BYTES[event["name"]]
    assert left_behind(tmp_path) == ([], [])


@pytest.mark.nightly("a bench")
def test_rate(bench, clean_kernel, tmp_path):
    """Small rings that lose some, or none: either way each hit is accounted for."""
    words = [
        "--event",
        "SCHEDIN",
        "--passes",
        PASSES,
        "--rate",
        "--rate-for",
        "500ms",
        "--buffer-size",
        "64K",
    ]
    found = answer_of(bench(*words, "--format", "json"))
    assert found["rates"][0]["asked"] > 0
    assert found["rates"][-1]["asked"] == 0
    for step in found["rates"]:
        assert step["made"] == step["logged"] + step["lost"] > 0
        assert step["bytes"] == 16 * step["logged"]
        assert (step["lossless_s"] is None) == (step["lost"] == 0) == (step["bound"] == "")
        assert step["seconds"] >= 0.5
        if step["asked"]:
            # Each loop may have begun one more millisecond.
            assert (
                step["made"]
                <= step["asked"] * (step["seconds"] + 0.001 * (os.cpu_count() or 1)) * 1.01
            )
        if step["lost"]:
            assert 0 <= step["lossless_s"] <= step["seconds"]
    assert found["disk_bytes_per_s"] > 0
    assert left_behind(tmp_path) == ([], [])


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize(
    ("number", "log"), [(signal.SIGINT, "bench.klog"), (signal.SIGTERM, "rate.klog")]
)
def test_interrupted_it_leaves_nothing(number, log, bench, clean_kernel, tmp_path):
    """In the middle of a pass; in the middle of a flood."""
    process = bench(
        "--event", "SCHEDIN", "--passes", PASSES, "--rate", "--rate-for", "60s", process_group=0
    )
    until = time.monotonic() + 120
    while not list(tmp_path.glob(f"klogger-bench-*/{log}")):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert err == "klogger: interrupted; everything is put back\n"
    assert left_behind(tmp_path) == ([], [])


def test_the_kernel_engine_or_why_not(bench):
    process = bench("--engine", "kernel", "--passes", PASSES, "--format", "json")
    if Path("/proc/modules").exists():
        pytest.skip("this kernel loads modules; the guest's tests have the kernel engine")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert "this kernel cannot load modules" in err
