# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What recording costs the recorded: a round of ping-pong, the programs' sizes, the start."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from bpf import machine_code
from measure import added, ratio, report_of, run, spread, take_turns
from rivals import ftrace_events

HERE = Path(__file__).resolve().parent
ROUNDS_OF_PINGPONG = 20_000


def record(tools, schema, *command, options=()) -> list:
    log = tools.folder / "bench.klog"
    return [tools.klogger, "record", "-s", schema, "--buffer-size", "16M", "-o", log, *options, "--", *command]


def with_ftrace(tools, events: list[str], measure) -> dict:
    with ftrace_events(tools, events):
        return measure()


def perf_record(tools, events: list[str], command: list, everything: bool = False) -> list:
    out = tools.folder / "perf.data"
    options = ["-a"] if everything else []
    return ["perf", "record", "-q", *options, "-m", "16M", "-e", ",".join(events), "-o", out, "--", *command]


def pingpong(tools) -> list[str]:
    """A round of ping-pong over pipes: two switches, two wake-ups."""
    command = tools.workload("pingpong", ROUNDS_OF_PINGPONG, "processes", tools.cpu)

    def one(words: list) -> dict:
        report = report_of(run(words))
        cpu = sum(thread["cpu_ns"] for thread in report["threads"]) / report["rounds"]
        return {"cpu_ns": cpu, "wall_ns": report["round_ns"]}

    events = ["sched:sched_switch", "sched:sched_waking"]
    arms = {
        "none": lambda: one(command),
        "klogger, scheduler": lambda: one(record(tools, "scheduler", *command)),
        "ftrace": lambda: with_ftrace(tools, [e.replace(":", "/") for e in events], lambda: one(command)),
        "perf record": lambda: one(perf_record(tools, events, command)),
    }
    # Short runs, and many: what one round costs without a tracer drifts by more than what a tracer adds.
    results = take_turns(arms, 3 * tools.rounds)
    lines = [
        "## A round of ping-pong",
        "",
        "Two processes on one CPU send a byte to and fro over pipes: two switches and two wake-ups a round.",
        "klogger records the whole scheduler schema; ftrace and perf record sched_switch and sched_waking.",
        "Added, in ns a round.",
        "",
        "| | CPU time, ns | wall time, ns |",
        "|---|---|---|",
        f"| (none) | {spread([r['cpu_ns'] for r in results['none']]):.0f} | "
        f"{spread([r['wall_ns'] for r in results['none']]):.0f} |",
    ]
    for name in list(arms)[1:]:
        cells = [f"{spread(added(results, name, key)):.0f}" for key in ("cpu_ns", "wall_ns")]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
    for rival, bound in (("ftrace", 0.5), ("perf record", 0.2)):
        times = [spread(ratio(results, "klogger, scheduler", rival, key)) for key in ("cpu_ns", "wall_ns")]
        lines.append(f"| klogger / {rival} (to be at most {bound}) | {times[0]:.2f} | {times[1]:.2f} |")
    return lines


def loaded() -> dict[int, dict]:
    """BPF programs of klogger, by id."""
    listed = json.loads(run(["bpftool", "-j", "prog", "show"]))
    return {item["id"]: item for item in listed if item.get("name", "").startswith("klogger")}


def programs(tools) -> list[str]:
    """Instructions of the programs that a recording of the scheduler loads."""
    before = loaded()
    command = list(map(str, record(tools, "scheduler", "sleep", "30")))
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(2)
        mine = [item for number, item in loaded().items() if number not in before]
        rows = [(p["name"], p["bytes_xlated"] // 8, p["bytes_jited"], jited(tools, p["id"])) for p in mine]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
    lines = [
        "## The programs",
        "",
        "What a recording of the scheduler schema attaches, after the verifier.",
        "",
        "| program | instructions (xlated) | bytes (jited) | instructions (jited) |",
        "|---|---|---|---|",
    ]
    return lines + [f"| {name} | {xlated} | {size} | {count} |" for name, xlated, size, count in sorted(rows)]


def jited(tools, program: int) -> int:
    """Machine instructions of a program."""
    code = tools.folder / "program.bin"
    code.write_bytes(machine_code(program))
    text = run(["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", code])
    return sum(1 for line in text.splitlines() if line.startswith(" ") and ":\t" in line)


def attach(tools) -> list[str]:
    """From `klogger record` to the first instruction of the command."""

    def start(schema) -> dict:
        command = record(tools, schema, "cat", "/proc/uptime")
        before = float(Path("/proc/uptime").read_text().split()[0])
        after = float(run(command).split()[0])
        return {"s": after - before}

    arms = {
        "scheduler (bundled)": lambda: start("scheduler"),
        "a schema of one's own (compiled first)": lambda: start(HERE / "two_ints.klogger"),
    }
    results = take_turns(arms, tools.rounds)
    lines = [
        "## The start",
        "",
        "From `klogger record` to its command's first instruction, in seconds (a clock of 10 ms).",
        "",
        "| schema | s |",
        "|---|---|",
    ]
    lines += [f"| {name} | {spread([r['s'] for r in results[name]]):.2f} |" for name in arms]
    return [*lines, "", "To be under 0.5 s; under 1 s from a text."]


def kernel(_tools) -> list[str]:
    """The kernel engine and others, in a guest that counts instructions."""
    return run([HERE / "kernel/run", "--disassembly", HERE / "kernel/straight.txt"]).splitlines()
