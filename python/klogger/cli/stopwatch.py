# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger stopwatch`: the time between two events of a log."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

import klogger
from klogger.cli import guarded
from klogger.stopwatch import Stopwatch, measure
from klogger.units import duration, plain

EPILOG = """\
examples:
  klogger stopwatch x.klog REQUEST REPLY              two points of a program, in each thread
  klogger stopwatch x.klog REQUEST REPLY --key id     of each request, whichever threads they are in
  klogger stopwatch x.klog SCHEDIN SCHEDOUT           how long threads run
  klogger stopwatch x.klog FRAME FRAME                from each to the next

Both points are events, so what logging one of them costs is part of each time.
"""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="klogger stopwatch",
        description="How long it takes from one event to the next other one of the same thread.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("file", metavar="FILE", help="a log, or the directory that 'klogger export --to parquet' made")
    found.add_argument("begin", metavar="BEGIN", help="event that starts the watch")
    found.add_argument("end", metavar="END", help="event that stops it")
    found.add_argument(
        "--key", metavar="FIELD", help="field in which both agree (the thread that logged; 'pid' of the kernel's)"
    )
    found.add_argument("--format", choices=["text", "json"], default="text", help="form of the answer (text)")
    return found


def main(words: list[str] | None = None) -> int:
    args = parser().parse_args(words)
    return guarded(lambda: stopwatch(args))


def stopwatch(args: argparse.Namespace) -> int:
    log = klogger.open(args.file, quiet=False)
    try:
        found = measure(log, args.begin, args.end, args.key)
    finally:
        log.close()
    if args.format == "json":
        print(json.dumps({name: plain(value) for name, value in dataclasses.asdict(found).items()}, indent=2))
    else:
        print("\n".join(text(found)))
    for warning in found.warnings:
        print(f"klogger: warning: {warning}", file=sys.stderr)
    return 0


def text(found: Stopwatch) -> list[str]:
    lines = [f"{found.begin} to {found.end}, by {found.key}: {found.intervals:,} intervals"]
    lines[0] += f" of {found.begins:,} {found.begin} and {found.ends:,} {found.end}"
    if found.torn:
        lines.append(f"  {found.torn:,} more have a loss in them, and are left out")
    if not found.intervals:
        return [*lines, "  no two of them follow one another; is it the right --key?"]
    lines.append(f"  mean     {time(found.mean):>10}   standard deviation {time(found.sd):>10}")
    trimmed = f"  trimmed  {time(found.trimmed_mean):>10}   standard deviation {time(found.trimmed_sd):>10}"
    lines.append(f"{trimmed}   without the worst 0.1 %")
    parts = {"min": found.min, "50 %": found.p50, "90 %": found.p90, "99 %": found.p99}
    parts |= {"99.9 %": found.p999, "max": found.max}
    return [*lines, *(f"  {name:<8} {time(value):>10}" for name, value in parts.items())]


def time(ns: float | None) -> str:
    return "-" if ns is None else duration(ns)


if __name__ == "__main__":
    sys.exit(main())
