# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the recorded costs afterwards: bytes in the log, decoding, export, the report of a large log."""

import json
import shutil

from pingpong import perf_record, record
from measure import run, spread, timed

LARGE = 10_000_000


def logged(info: dict) -> dict[str, int]:
    """Events in a log, by name."""
    return {event["name"]: event["logged"] for event in info["events"]}


def size(tools) -> list[str]:
    """Bytes in the log per event, before compression."""
    command = tools.workload("pingpong", 100_000, "processes", tools.cpu)
    run(record(tools, "scheduler", *command))
    shown = json.loads(run([tools.klogger, "info", "--format", "json", tools.folder / "bench.klog"]))
    lines = [
        "## Bytes",
        "",
        "In a log of 100,000 rounds of ping-pong, before compression.",
        "",
        "| event | events | bytes each |",
        "|---|---|---|",
    ]
    for event in sorted(shown["events"], key=lambda e: -e["logged"]):
        if event["logged"] >= 1000:
            lines.append(f"| {event['name']} | {event['logged']} | {event['bytes'] / event['logged']:.1f} |")
    whole = (tools.folder / "bench.klog").stat().st_size
    total = sum(logged(shown).values())
    lines.append(f"| the whole file | {total} | {whole / total:.1f} |")
    return [*lines, "", "SCHEDIN and SCHEDOUT to be at most 24."]


def decode(tools) -> list[str]:
    """`klogger cat` and `perf script` on recordings of the same workload."""
    command = tools.workload("pingpong", 200_000, "processes", tools.cpu)
    run(record(tools, "scheduler", *command))
    log = tools.folder / "bench.klog"
    shown = json.loads(run([tools.klogger, "info", "--format", "json", log]))
    events = sum(logged(shown).values())
    run(perf_record(tools, ["sched:sched_switch", "sched:sched_waking"], command))
    data = tools.folder / "perf.data"
    perf_events = run(["perf", "script", "-i", data, "-F", "time"]).count("\n")
    klogger, perf = [], []
    for _ in range(max(3, tools.rounds // 3)):
        klogger.append(events / timed([tools.klogger, "cat", log]).wall_s)
        perf.append(perf_events / timed(["perf", "script", "-i", data]).wall_s)
    times = spread(klogger).median / spread(perf).median
    return [
        "## Decoding",
        "",
        f"Text of 200,000 rounds of ping-pong ({events:,} events in klogger's log, {perf_events:,} in perf's).",
        "",
        "| | million events/s |",
        "|---|---|",
        f"| klogger cat | {spread([v / 1e6 for v in klogger]):.2f} |",
        f"| perf script | {spread([v / 1e6 for v in perf]):.2f} |",
        f"| klogger / perf (to be at least 10) | {times:.1f} |",
    ]


def large_log(tools) -> list[str]:
    """A log of 10 million events: export on one core, text, report."""
    log = tools.folder / "large.klog"
    if not tools.synth:
        raise RuntimeError("SYNTH names no program that writes a large log")
    run([tools.synth, log, LARGE])
    export, cat, report = [], [], []
    for _ in range(3):
        out = tools.folder / "export"
        export.append(timed([tools.klogger, "export", "--to", "parquet", log, "-o", out], core=tools.cpu))
        shutil.rmtree(out)
        cat.append(timed([tools.klogger, "cat", log], core=tools.cpu))
    report.append(timed([tools.klogger, "report", log, "--html", tools.folder / "report.html"]))
    report.append(timed([tools.klogger, "report", log]))
    rows = [
        ("export to Parquet, one core", export, "5 M events/s"),
        ("cat, one core", cat, ""),
    ]
    lines = [
        "## A log of 10 million events",
        "",
        f"Synthetic, {log.stat().st_size / 2**20:.0f} MiB.",
        "",
        "| | s | million events/s | peak MiB | to be at least |",
        "|---|---|---|---|---|",
    ]
    for name, used, bound in rows:
        wall = spread([u.wall_s for u in used])
        peak = max(u.peak_mib for u in used)
        lines.append(f"| {name} | {wall:.2f} | {LARGE / wall.median / 1e6:.2f} | {peak:.0f} | {bound} |")
    for name, used in zip(("report with export and HTML", "report again"), report, strict=True):
        lines.append(f"| {name} | {used.wall_s:.2f} | {LARGE / used.wall_s / 1e6:.2f} | {used.peak_mib:.0f} | |")
    return [*lines, "", "The report to be under 10 s and 1024 MiB. The peak is that of the largest process."]
