# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is in the files: bytes an event, and how fast they are read, of recordings of the same
workload.
"""

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import user_arms
from measure import FAULTS, NOT_HERE, Usage, cell, goal, run, spread, timed, why
from pingpong import perf_record, record, tracepoints
from rivals import LARGE_KB, TRACE_CMD, instance_of_trace_cmd, samples

SIZE_ROUNDS, READ_ROUNDS = 100_000, 200_000
SIZE_GOALS = {"trace-cmd, not compressed": 0.5, "perf record": 0.2}
READ_GOAL = 10
COLUMNS = "read-parquet"


def pingpong(tools, rounds: int) -> list:
    return tools.workload("pingpong", rounds, "processes", tools.cpu)


def by_klogger(tools, command: list, *options) -> tuple[Path, int]:
    """The file, and how many events it has."""
    run(record(tools, "scheduler", *command, options=options))
    log = tools.folder / "bench.klog"
    shown = json.loads(run([tools.klogger, "info", "--format", "json", log]))
    return log, sum(event["logged"] for event in shown["events"])


def by_perf(tools, command: list) -> tuple[Path, int]:
    run(perf_record(tools, tracepoints(tools, "scheduler"), command))
    return tools.folder / "perf.data", samples(tools.folder / "perf.data")


def by_trace_cmd(tools, command: list, *options) -> tuple[Path, int]:
    out = tools.folder / "trace.dat"
    events = [word for event in tracepoints(tools, "scheduler") for word in ("-e", event)]
    with instance_of_trace_cmd(tools):
        run(
            [*TRACE_CMD, "-b", LARGE_KB, *events, *options, "-F", "-c", "-o", out, *command],
            cwd=tools.folder,
        )
    return out, lines_of(["trace-cmd", "report", "-i", out], b": sched_")


def lines_of(command: list, word: bytes) -> int:
    """How many lines with this word a command prints."""
    done = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    )
    return sum(1 for line in done.stdout.splitlines() if word in line)


def size(tools) -> list[str]:
    """Bytes in the file, of the same tracepoints."""
    command = pingpong(tools, SIZE_ROUNDS)
    files = {
        "klogger": lambda: by_klogger(tools, command),
        "klogger --compress": lambda: by_klogger(tools, command, "--compress"),
        "trace-cmd, not compressed": lambda: by_trace_cmd(tools, command, "--compression", "none"),
        "trace-cmd": lambda: by_trace_cmd(tools, command),
        "perf record": lambda: by_perf(tools, command),
    }
    rows, each = [], {}
    for name, make in files.items():
        try:
            file, count = make()
        except FAULTS as error:
            rows.append(f"| {name} | {NOT_HERE}: {why(error)} | | |")
            continue
        whole = file.stat().st_size
        each[name] = [whole / count]
        rows.append(f"| {name} | {count:,} | {whole / count:.1f} | {whole / SIZE_ROUNDS:.0f} |")
        file.unlink()
    return [
        "## Bytes",
        "",
        (
            f"The file of {SIZE_ROUNDS:,} rounds of ping-pong, by its events and by the rounds; the"
            " tracepoints of the"
        ),
        (
            "scheduler schema, of this command and its children only. klogger logs two or three"
            " events of one switch,"
        ),
        "which is one event for the others.",
        "",
        "| | events | bytes an event | bytes a round |",
        "|---|---|---|---|",
        *rows,
        "",
        *(
            goal(f"klogger / {n}, bytes an event", each.get("klogger"), each.get(n), most)
            for n, most in SIZE_GOALS.items()
        ),
        *compressed(each),
    ]


def compressed(each: dict[str, list[float]]) -> list[str]:
    """What bounds the bytes: nothing is compressed, unless it is asked for."""
    if "klogger --compress" not in each or "perf record" not in each:
        return []
    times = each["klogger --compress"][0] / each["perf record"][0]
    return [
        "- What bounds it: an event has 8 bytes of header and 8 to 16 of fields. With --compress"
        f" it is {times:.3f}."
    ]


@contextmanager
def lttng_trace(tools):
    """A trace of events of two ints, by LTTng-UST, and how many they are."""
    arms = user_arms.Arms(tools)
    with user_arms.lttng(arms.folder) as home:
        arms.loop(arms.lttng, "two_ints", **home)
        run(["lttng", "snapshot", "record"], env={**os.environ, **home})
        traces = Path(home["HOME"], "traces")
        yield traces, lines_of(["babeltrace2", traces], b"two_ints")


def readers(tools) -> tuple[dict[str, tuple[list, int]], dict[str, str]]:
    """By name: a command and the number of events that it reads; and why others are missing."""
    command = pingpong(tools, READ_ROUNDS)
    log, events = by_klogger(tools, command)
    ctf, columns = tools.folder / "read-ctf", tools.folder / COLUMNS
    run([tools.klogger, "export", "--to", "ctf", log, "-o", ctf])
    found: dict[str, tuple[list, int]] = {
        "klogger cat": ([tools.klogger, "cat", log], events),
        "klogger export, to columns": ([tools.klogger, "export", log, "-o", columns], events),
        "babeltrace2, klogger's log as CTF, decoding only": (
            ["babeltrace2", "-o", "dummy", ctf],
            events,
        ),
        "babeltrace2, klogger's log as CTF, to text": (["babeltrace2", ctf], events),
    }
    missing = {}
    more = {
        "perf script": lambda: (["perf", "script", "-i"], *by_perf(tools, command)),
        "trace-cmd report": lambda: (["trace-cmd", "report", "-i"], *by_trace_cmd(tools, command)),
    }
    for name, make in more.items():
        try:
            words, file, count = make()
            found[name] = ([*words, file], count)
        except FAULTS as error:
            missing[name] = why(error)
    processor = shutil.which("trace_processor_shell")
    if processor:
        out, query = tools.folder / "read.pftrace", tools.folder / "read.sql"
        run([tools.klogger, "export", "--to", "perfetto", log, "-o", out])
        query.write_text("SELECT count(*) FROM sched;\n")
        found["trace_processor, of klogger's export"] = ([processor, "-q", query, out], events)
    else:
        missing["trace_processor"] = (
            "no trace_processor_shell; Debian has none, and the Python package fetches it when it"
            " is first used"
        )
    return found, missing


def decode(tools) -> list[str]:
    """Readers, one core each: events a second and memory."""
    found, missing = readers(tools)
    used: dict[str, list[Usage]] = {}
    turns = max(3, tools.rounds // 3)
    for _ in range(turns):
        for name, (command, _) in found.items():
            # An export that is there already is not made again.
            shutil.rmtree(tools.folder / COLUMNS, ignore_errors=True)
            used.setdefault(name, []).append(timed(command, core=tools.cpu, cwd=tools.folder))
    name = "babeltrace2, LTTng-UST's own trace, to text"
    try:
        with lttng_trace(tools) as (traces, count):
            found[name] = (["babeltrace2", traces], count)
            used[name] = [timed(found[name][0], core=tools.cpu) for _ in range(turns)]
    except FAULTS as error:
        missing[name] = why(error)
    decoding, text = (
        f"babeltrace2, klogger's log as CTF, {what}" for what in ("decoding only", "to text")
    )
    rates = {n: [found[n][1] / u.cpu_s / 1e6 for u in some] for n, some in used.items()}
    return [
        "## Reading",
        "",
        f"Each its own recording of {READ_ROUNDS:,} rounds of ping-pong, on one core, to "
        "nowhere; a second is one",
        "of CPU time.",
        "",
        "| | events | million events/s | peak MiB |",
        "|---|---|---|---|",
        *(
            f"| {n} | {found[n][1]:,} | {cell(rates[n], 2, 0.1)} | "
            f"{max(u.peak_mib for u in some):.0f} |"
            for n, some in used.items()
        ),
        *(f"| {n} | {NOT_HERE}: {reason} | | |" for n, reason in missing.items()),
        "",
        least("klogger cat / perf script", rates.get("klogger cat"), rates.get("perf script")),
        least("klogger export / babeltrace2's decoding", rates.get("klogger export, to columns"),
              rates.get(decoding)),
        "  What bounds it: klogger writes Parquet files, babeltrace2 throws its events"
        " away. Text against text:",
        least("klogger cat / babeltrace2's text", rates.get("klogger cat"), rates.get(text)),
    ]  # fmt: skip


def least(what: str, over: list[float] | None, under: list[float] | None) -> str:
    """One line: how many times as fast, and what it is to be."""
    if not over or not under:
        return f"- {what}: {NOT_HERE}, to be at least {READ_GOAL}"
    times = spread(over).median / spread(under).median
    return (
        f"- {what}: {times:.1f}, to be at least {READ_GOAL}:"
        f" {'yes' if times >= READ_GOAL else 'no'}"
    )
