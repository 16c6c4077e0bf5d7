# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The programs' sizes, how long it takes to start, and the kernel engine's costs in a guest."""

import json
import signal
import subprocess
import time
from pathlib import Path

from bpf import machine_code
from measure import run, spread, take_turns
from pingpong import record

HERE = Path(__file__).resolve().parent


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
        rows = [
            (p["name"], p["bytes_xlated"] // 8, p["bytes_jited"], jited(tools, p["id"]))
            for p in mine
        ]
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
    return lines + [
        f"| {name} | {xlated} | {size} | {count} |" for name, xlated, size, count in sorted(rows)
    ]


def jited(tools, program: int) -> int:
    """Machine instructions of a program."""
    code = tools.folder / "program.bin"
    code.write_bytes(machine_code(program))
    text = run(["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", code])
    return sum(1 for line in text.splitlines() if line.startswith(" ") and ":\t" in line)


def mixed_schema(tools) -> Path:
    """Ten probes, two of them in a program."""
    folder = tools.folder / "mixed"
    folder.mkdir(exist_ok=True)
    program = folder / "loop"
    if not program.exists():
        run(["cc", "-O1", HERE / "places/loop.c", "-o", program])
    text = (HERE / "places/mixed.klogger.in").read_text().replace("@PATH@", str(program))
    schema = folder / "mixed.klogger"
    schema.write_text(text)
    return schema


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
        "ten probes of mixed kinds (compiled first)": lambda: start(mixed_schema(tools)),
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
    return [*lines, "", "To be under 0.5 s; under 1 s from a text, under 0.7 s for the ten probes."]


def kernel(_tools) -> list[str]:
    """The kernel engine and others, in a guest that counts instructions."""
    return run([HERE / "kernel/run", "--disassembly", HERE / "kernel/straight.txt"]).splitlines()
