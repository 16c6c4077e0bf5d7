# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the schema `files` costs: find and stat, with others beside it; opens on all CPUs; and the
log of a build.
"""

import json
import os
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from bpf import attached_all
from loads import TIMED
from measure import NOT_HERE, cell, goal, rounds_of, run
from places_cost import HERE as PLACES
from rivals import attached, running, until

HERE = Path(__file__).resolve().parent / "files"
FIND = "find /usr -name 'x*' | xargs -r stat"
TURNS = 5
KLOGGER, PAIR = "klogger", "empty pair of programs"
STRACE, PERF, BPFTRACE = "strace", "perf trace", "bpftrace"
SECONDS, LEAST_OPENS = 3, 100_000
SOURCES, HEADERS, INCLUDED = 60, 400, 60
SCHEMATA = ("files", "lifecycle", "futex", "useless", "hang")
MOST_BYTES, MOST_REPORT_S = 40, 30


def times_of(tools, before: list, command: list, around=None) -> dict[str, float]:
    """Time and CPU time of a command that a tracer starts."""
    said = tools.folder / "files.json"
    with around or nullcontext():
        run([*before, sys.executable, "-c", TIMED, said, *command])
    return json.loads(said.read_text())


@contextmanager
def bpftrace(tools) -> Iterator[None]:
    script = (
        "tracepoint:syscalls:sys_enter_openat,tracepoint:syscalls:sys_enter_newfstatat,"
        'tracepoint:syscalls:sys_enter_statx /comm == "find" || comm == "stat"/'
        " { @path[tid] = args->filename; }\n"
        "tracepoint:syscalls:sys_exit_openat,tracepoint:syscalls:sys_exit_newfstatat,"
        'tracepoint:syscalls:sys_exit_statx /comm == "find" || comm == "stat"/'
        ' { printf("%llu %d %s %d\\n", nsecs, tid, str(@path[tid]), args->ret);'
        " delete(@path[tid]); }"
    )
    words = ["bpftrace", "-B", "full", "-o", tools.folder / "bpftrace.out", "-e", script]
    env = {**os.environ, "BPFTRACE_PERF_RB_PAGES": "4096"}
    with running(words, env=env) as process:
        until(lambda: attached(process.pid), process, "bpftrace")
        yield


def recorded(tools, schemata: str = "files") -> list:
    log = tools.folder / "files.klog"
    return [tools.klogger, "record", "-q", "-s", schemata, "-o", log, "--"]


def counts_of(tools) -> dict[str, dict]:
    """By event, what the log has and lacks."""
    shown = json.loads(
        run([tools.klogger, "info", "--format", "json", tools.folder / "files.klog"])
    )
    return {event["name"]: event for event in shown["events"]}


# Each with what stands before the command, and what is attached meanwhile; and how.
ARMS: dict[str, tuple[Callable, Callable, str]] = {
    PAIR: (
        lambda _: [],
        lambda tools: attached_all(PLACES / "calls.bpf.c", tools.clang),
        "`bench/places/calls.bpf.c`: at all entries, at all exits, of the whole machine",
    ),
    KLOGGER: (recorded, lambda _: None, "`klogger record -s files`: all calls for files"),
    STRACE: (
        lambda tools: ["strace", "-f", "-o", tools.folder / "strace.out"],
        lambda _: None,
        "`strace -f -o FILE`: all calls",
    ),
    PERF: (
        lambda tools: ["perf", "trace", "-m", "16M", "-o", tools.folder / "perf.out"],
        lambda _: None,
        "`perf trace -m 16M -o FILE`: all calls",
    ),
    BPFTRACE: (lambda _: [], bpftrace, "path and result of openat, newfstatat and statx only"),
}


def slower(tools, name: str, command: list) -> dict[str, float]:
    """By an arm, times of the command as multiples of those without it, before and after."""
    before, around, _ = ARMS[name]
    plain = [times_of(tools, [], command)]
    with_it = times_of(tools, before(tools), command, around(tools))
    plain.append(times_of(tools, [], command))
    return {
        f"{name}, {what}": with_it[what] / statistics.fmean(one[what] for one in plain)
        for what in ("wall", "cpu")
    }


def find(tools) -> list[str]:
    command = ["sh", "-c", f"{FIND} >/dev/null"]
    # The caches.
    times_of(tools, [], command)
    each = {name: lambda name=name: slower(tools, name, command) for name in ARMS}
    results, missing = rounds_of(each, min(TURNS, tools.rounds))
    rows = []
    for name in ARMS:
        if name in missing:
            rows.append(f"| {name} | {NOT_HERE}: {missing[name]} | |")
            continue
        cells = [cell(results[f"{name}, {what}"], 2, 0.3) for what in ("wall", "cpu")]
        rows.append(f"| {name} | {cells[0]} | {cells[1]} |")
    counts = counts_of(tools)
    logged = sum(one["logged"] for one in counts.values())
    lost = sum(one["lost"] for one in counts.values())
    one = [1.0] * len(results.get(f"{KLOGGER}, cpu", [1.0]))
    return [
        "## find and stat", "",
        f"`{FIND}`, from warm caches: nearly all of its time is in system calls for files. With a"
        " tracer, as a multiple of the same without one, just before and after; CPU time is that of"
        f" the load, not of the tracer. klogger logged {logged:,} events and lost {lost:,}.", "",
        "| | time | CPU time |", "|---|---|---|", *rows, "",
        goal(f"{KLOGGER} / without", results.get(f"{KLOGGER}, cpu"), one, 1.1),
        goal(f"{PAIR} / without", results.get(f"{PAIR}, cpu"), one, 1.1),
        "- what bounds it: a program at each entry and each exit, even an empty one, is the least"
        " that a tracer of system calls with results can cost.", "",
        *(f"- {name}: {how}" for name, (_, _, how) in ARMS.items()),
    ]  # fmt: skip


def opens(tools) -> list[str]:
    program, file = tools.folder / "opens", tools.folder / "opened"
    run(["cc", "-O2", HERE / "opens.c", "-o", program])
    file.touch()
    rates: dict[str, list[float]] = {"without": [], KLOGGER: []}
    lost = bytes_each = 0
    for _ in range(min(TURNS, tools.rounds)):
        for name, before in (("without", []), (KLOGGER, recorded(tools))):
            times, seconds = map(float, run([*before, program, file, SECONDS]).split())
            rates[name].append(times / seconds)
        counts = counts_of(tools)
        lost += sum(one["lost"] for one in counts.values())
        bytes_each = counts["LOOK"]["bytes"] / max(counts["LOOK"]["logged"], 1)
    found = statistics.median(rates[KLOGGER])
    said = "yes" if found >= LEAST_OPENS and not lost else "no"
    return [
        "## Opens on all CPUs", "",
        f"open() and close() of one file as fast as possible on {os.cpu_count()} CPUs at once, for"
        f" {SECONDS} s, with the default ring of 4 MiB for each CPU, by turns.", "",
        "| | opens/s, all CPUs |", "|---|---|",
        *(f"| {name} | {cell(values, 0)} |" for name, values in rates.items()), "",
        f"- {found:,.0f} opens/s, {lost:,} events lost, to be at least {LEAST_OPENS:,} without a"
        f" loss: {said}",
        f"- bytes of LOOK: {bytes_each:.0f}; CLOSED is another event",
    ]  # fmt: skip


def make_tree(root: Path) -> None:
    """A C program of many headers, which are looked for in 20 directories."""
    rng = random.Random(7)
    (root / "src").mkdir(parents=True)
    for number in range(HEADERS):
        folder = root / f"include{number % 20}"
        folder.mkdir(exist_ok=True)
        body = "".join(
            f"static inline int f{number}_{i}(int x) {{ return x * {i}; }}\n" for i in range(40)
        )
        guard = f"#ifndef H{number}\n#define H{number}\n{body}#endif\n"
        (folder / f"h{number}.h").write_text(guard)
    for number in range(SOURCES):
        chosen = rng.sample(range(HEADERS), INCLUDED)
        lines = ["#include <stdio.h>", *(f"#include <h{h}.h>" for h in chosen)]
        lines.append(f"int g{number}(int x) {{ return f{chosen[0]}_1(x); }}\n")
        (root / f"src/c{number}.c").write_text("\n".join(lines))
    paths = " ".join(f"-Iinclude{n}" for n in range(20))
    (root / "Makefile").write_text(
        "O := $(patsubst src/%.c,%.o,$(wildcard src/*.c))\nall.a: $O\n\t$(AR) rcs $@ $^\n"
        f"%.o: src/%.c\n\t$(CC) -O1 {paths} -c -o $@ $<\n"
    )


def here(tools, schema: str) -> bool:
    try:
        run([tools.klogger, "show", schema])
    except RuntimeError:
        return False
    return True


def build(tools) -> list[str]:
    tree, log = tools.folder / "tree", tools.folder / "files.klog"
    shutil.rmtree(tree, ignore_errors=True)
    make_tree(tree)
    schemata = [name for name in SCHEMATA if here(tools, name)]
    run([*recorded(tools, ",".join(schemata)), "make", "-s", "-j2", "-C", tree])
    counts = counts_of(tools)
    looks, named = counts["LOOK"], counts["NAMED"]
    query = "SELECT count(*) FILTER (mode > 0 OR place(call) LIKE '%openat') AS n FROM LOOK"
    opened = int(run([tools.klogger, "sql", log, "--format", "csv", query]).split()[-1])
    different = int(run([tools.klogger, "sql", log, "--format", "csv",
        "SELECT count(DISTINCT file) FROM NAMED"]).split()[-1])  # fmt: skip
    each = (looks["bytes"] + named["bytes"]) / looks["logged"]
    start = time.monotonic()
    run([tools.klogger, "report", log])
    took = time.monotonic() - start
    lost = sum(one["lost"] for one in counts.values())
    return [
        "## The log of a build", "",
        f"`make -j2` of {SOURCES} C files, each with {INCLUDED} of {HEADERS} headers from 20"
        f" directories, recorded with `-s {','.join(schemata)}`: {lost:,} events lost.", "",
        "| | |", "|---|---|",
        f"| calls with a path (LOOK) | {looks['logged']:,} |",
        f"| of these opens | {opened:,} |",
        f"| what they found (NAMED) | {named['logged']:,}, {different:,} different |",
        f"| bytes of LOOK and NAMED for a call | {each:.1f} |",
        f"| bytes of the whole log | {log.stat().st_size:,} |",
        f"| report of all analyses | {took:.1f} s |", "",
        f"- {each:.1f} bytes for a call with a path, to be at most {MOST_BYTES}:"
        f" {'yes' if each <= MOST_BYTES else 'no'}",
        f"- the report takes {took:.1f} s, to be at most {MOST_REPORT_S}:"
        f" {'yes' if took <= MOST_REPORT_S else 'no'}",
    ]  # fmt: skip
