# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What recording costs the recorded: a probe hit, a round of ping-pong, the programs' sizes, the start."""

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from bpf import floor, machine_code
from measure import added, ratio, report_of, run, spread, take_turns

from klogger.bench import events, stats
from klogger.bench.cost import one_pass
from klogger.bench.events import TWO_INTS
from klogger.bench.loop import ENGINES, Loop, prepare

HERE = Path(__file__).resolve().parent
ROUNDS_OF_PINGPONG = 20_000


def record(tools, schema, *command, options=()) -> list:
    log = tools.folder / "bench.klog"
    return [tools.klogger, "record", "-s", schema, "--buffer-size", "16M", "-o", log, *options, "--", *command]


def probe_hit(tools) -> list[str]:
    """The cost of a hit that logs two ints, over that of a program which only reads the clock."""
    place = events.PLACES[0]
    if not (tools.tracing / "events/task" / place.name).exists():
        raise RuntimeError(f"this kernel has no tracepoint {place.name} (Linux 6.14)")
    folder = tools.folder / "hit"
    folder.mkdir()
    bench = prepare(ENGINES["bpf"], [TWO_INTS], folder)
    others = {
        "empty program": lambda _: floor(place.name, False, tools.clang),
        "floor: program + clock": lambda _: floor(place.name, True, tools.clang),
        "ftrace event": lambda _: ftrace(tools, [f"task/{place.name}"]),
        "perf record": lambda pid: perf_of(tools, f"task:{place.name}", pid),
    }
    results: dict[str, list[dict]] = {}
    with Loop(bench, tools.cpu) as loop:
        for _ in range(tools.rounds):
            # No probe is what the costs are relative to.
            round_of = {"none": 0.0, **klogger_hit(bench, loop, folder / "hit.klog")}
            for name, attached in others.items():
                round_of[name] = other_hit(bench, loop, attached(loop.pid))
            for name, ns in round_of.items():
                results.setdefault(name, []).append({"ns": ns})
    lines = [
        "## One probe hit",
        "",
        f"`{place.name}`, hit by one process on one CPU. Added to a hit without a program, in ns of that process's CPU",
        "time, as `klogger bench` measures it (docs/bench.md); the others are attached to the same loop.",
        "",
        "| | ns | times the floor |",
        "|---|---|---|",
    ]
    for name in [*others, *(name for name in results if name.startswith("klogger"))]:
        times = spread(ratio(results, name, "floor: program + clock", "ns"))
        lines.append(f"| {name} | {spread(added(results, name, 'ns')):.1f} | {times:.2f} |")
    return [*lines, "", "To be at most 1.3 for the klogger event."]


def klogger_hit(bench, loop, log: Path) -> dict[str, float]:
    taken = one_pass(bench, [TWO_INTS], loop, [], log)
    count = taken.counts[TWO_INTS.name]
    if count.logged != count.hits:
        raise RuntimeError(f"of {count.hits:,} hits {count.logged:,} were logged")
    names = {"klogger, two ints": TWO_INTS.name, "klogger, disabled": events.OFF}
    return {name: stats.added(taken.blocks, arm, events.EMPTY, events.REFERENCE) for name, arm in names.items()}


def other_hit(bench, loop, attached) -> float:
    """The same loop, with something else attached to what it hits."""
    arms = (events.REFERENCE, events.EMPTY)

    def blocks() -> stats.Blocks:
        said = loop.rounds(bench.engine.rounds, [events.FLOOR.index(arm) for arm in arms])
        return dict(zip(arms, said["blocks"], strict=True))

    before = blocks()
    with attached:
        during = blocks()
    return stats.added(stats.Pass(during, before, blocks()), events.EMPTY, events.EMPTY, events.REFERENCE)


@contextmanager
def perf_of(tools, event: str, pid: int):
    """perf record of a process that runs already; its own answer says that it has begun."""
    control, answer = tools.folder / "perf-control", tools.folder / "perf-answer"
    for fifo in (control, answer):
        fifo.unlink(missing_ok=True)
        os.mkfifo(fifo)
    command = ["perf", "record", "-q", "-m", "16M", "-e", event, "-o", str(tools.folder / "perf.data"), "-p", str(pid)]
    process = subprocess.Popen([*command, "-D", "-1", "--control", f"fifo:{control},{answer}"])
    try:
        with control.open("w") as out, answer.open() as said:
            out.write("enable\n")
            out.flush()
            said.readline()
            yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


@contextmanager
def switched_on(folder: Path, events: list[str]):
    for event in events:
        (folder / "events" / event / "enable").write_text("1")
    try:
        yield
    finally:
        for event in events:
            (folder / "events" / event / "enable").write_text("0")


@contextmanager
def ftrace(tools, events: list[str]):
    """An ftrace instance of our own, whose buffer keeps the newest."""
    instance = tools.tracing / "instances/klogger-bench"
    instance.mkdir()
    try:
        (instance / "buffer_size_kb").write_text("16384")
        with switched_on(instance, events):
            yield
    finally:
        instance.rmdir()


def with_ftrace(tools, events: list[str], measure) -> dict:
    with ftrace(tools, events):
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
