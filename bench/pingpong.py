# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What recording the scheduler costs a workload that does nothing but switch."""

import json
import re
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from statistics import fmean, median

from measure import NOT_HERE, cell, goal, rounds_of, run
from rivals import LARGE_KB, ftrace_events, perf_events, perf_words
from speed import Ahead, Speed, relative

from klogger_lab.bench.engines import BPF, Hits
from klogger_lab.bench.events import EMPTY, REFERENCE
from klogger_lab.bench.loop import Bench, Loop
from klogger_lab.bench.stats import Blocks
from klogger_lab.build import build
from klogger_lab.recorder import Recorder

HERE = Path(__file__).resolve().parent
HITS = Hits(101, 200, 0, "--buffer-size", "16M", in_kernel=True)
ARMS = (REFERENCE, EMPTY)
GOALS = {"ftrace": 0.45, "perf record": 0.2}
KLOGGER = "klogger, scheduler"


def record(tools, schema, *command, options=()) -> list:
    log = tools.folder / "bench.klog"
    return [
        tools.klogger,
        "record",
        "-s",
        schema,
        "--buffer-size",
        "16M",
        "-o",
        log,
        *options,
        "--",
        *command,
    ]


def perf_record(tools, events: list[str], command: list) -> list:
    out = tools.folder / "perf.data"
    return [*perf_words(events, "16M"), "-o", out, "--", *command]


def tracepoints(tools, schema: str) -> list[str]:
    """GROUP:NAME of what the schema's probes attach."""
    shown = json.loads(run([tools.klogger, "show", schema, "--format", "json"]))
    names = {re.match(r"tracepoint (\w+)", probe["targets"][0])[1] for probe in shown["probes"]}
    found = sorted(
        f"{p.parent.name}:{p.name}"
        for p in (tools.tracing / "events").glob("*/*")
        if p.name in names
    )
    if len(found) != len(names):
        raise RuntimeError(
            f"of the tracepoints {', '.join(sorted(names))} ftrace has only {', '.join(found)}"
        )
    return found


def prepare(folder: Path) -> Bench:
    """klogger bench's own loop, playing ping-pong."""
    (folder / "arms.h").write_text((HERE / "pingpong.h").read_text())
    source = folder / "klogger_loop.c"
    source.write_text(resources.files("klogger_lab").joinpath("bench", "loop.c").read_text())
    return Bench(BPF.name, HITS, None, Path("scheduler"), build(folder, source.name), "")


@contextmanager
def klogger(tools, pids, _events):
    log = tools.folder / "pingpong.klog"
    options = ["-s", "scheduler", "-o", log, *(f"-p{pid}" for pid in pids)]
    with Recorder(options, tools.folder / "pingpong.err") as recorder:
        recorder.wait_started()
        yield


@contextmanager
def ftrace(tools, _pids, events):
    with ftrace_events(tools, [e.replace(":", "/") for e in events]):
        yield


@contextmanager
def perf(tools, pids, events):
    with perf_events(tools, pids, events, LARGE_KB):
        yield


TRACERS = {KLOGGER: klogger, "ftrace": ftrace, "perf record": perf}


def blocks(loop: Loop) -> Blocks:
    return dict(zip(ARMS, loop.rounds(HITS.rounds, range(len(ARMS)))["blocks"], strict=True))


def round_of(
    tools, loop: Loop, name: str, events: list[str], bare: list[Blocks]
) -> dict[str, float]:
    """What a tracer adds to a round, in references."""
    (partner,) = Path(f"/proc/{loop.pid}/task/{loop.pid}/children").read_text().split()
    before = blocks(loop)
    with TRACERS[name](tools, [loop.pid, int(partner)], events):
        during = blocks(loop)
    bare += [before, blocks(loop)]
    return {
        name: (
            relative(during, EMPTY, REFERENCE)
            - fmean(relative(b, EMPTY, REFERENCE) for b in bare[-2:])
        )
    }


def pingpong(tools) -> list[str]:
    """A round of ping-pong over pipes: two switches, two wake-ups."""
    folder = tools.folder / "pingpong"
    folder.mkdir()
    events, bare, speed = tracepoints(tools, "scheduler"), [], Speed()
    with Ahead(prepare(folder), tools.cpu) as loop:
        blocks(loop)
        arms = {name: lambda n=name: round_of(tools, loop, n, events, bare) for name in TRACERS}
        results, missing = rounds_of(arms, 2 * tools.rounds)
    speed.note(*bare)
    # Both partners do the same, and the loop sees the CPU time of one of them.
    results = {name: [2 * ns for ns in values] for name, values in speed.in_ns(results).items()}
    plain = 2 * speed.ns * median(1 + relative(b, EMPTY, REFERENCE) for b in bare)
    tools.keep("pingpong", results)
    return [
        "## A round of ping-pong",
        "",
        (
            "Two processes on one CPU send a byte to and fro over pipes: two switches and two"
            " wake-ups a round."
        ),
        "klogger records the whole scheduler schema; ftrace and perf record the same tracepoints:",
        (
            f"{', '.join(events)}. Added to a round, which takes {plain:.0f} ns without a tracer,"
            " in ns of both"
        ),
        "processes' CPU time; measured as above, beside system calls without a tracepoint.",
        "",
        "| | ns |",
        "|---|---|",
        *(
            f"| {n} | {NOT_HERE + ': ' + missing[n] if n in missing else cell(results[n], 0)} |"
            for n in TRACERS
        ),
        "",
        *(
            goal(f"{KLOGGER} / {n}", results.get(KLOGGER), results.get(n), most)
            for n, most in GOALS.items()
        ),
    ]
