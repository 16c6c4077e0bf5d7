# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger stopwatch`: the time between two events of a log, or between two points of the running
kernel.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import klogger
from klogger import executor, extras
from klogger.cli import Parser, add_common, complain, fitted, guarded, output, report
from klogger.durations import duration
from klogger.failure import Failure
from klogger.stopwatch import Stopwatch, measure
from klogger.terminal import value_line
from klogger.units import plain
from klogger_lab.cli import split
from klogger_lab.stopwatch import answer, live, places
from klogger_lab.stopwatch.answer import Answer

USAGE = """\
klogger stopwatch [OPTIONS] BEGIN END -- COMMAND...
       klogger stopwatch [OPTIONS] BEGIN END (-a | -p PID) [--for TIME]
       klogger stopwatch [OPTIONS] FILE BEGIN END"""
EPILOG = """\
examples, of points of the kernel:
  klogger stopwatch 'tracepoint block:block_rq_issue' 'tracepoint block:block_rq_complete' \\
                    --key rq -a --for 10s             how long the disks take for a request
  klogger stopwatch 'tracepoint sys_enter' 'tracepoint sys_exit' -- ls -R /usr
                                                     how long system calls take, in each thread
  klogger stopwatch sys_enter sys_exit --if 'id == 1' -- ls -R /usr
                                                     only number 1, which is write on x86-64
  klogger stopwatch 'tracepoint softirq_entry' 'tracepoint softirq_exit' --key cpu -a --for 5s
                                                     how long softirqs take, on each CPU
  klogger stopwatch workqueue_queue_work workqueue_execute_start --key work -a --for 5s
                                                     how long work waits, in whichever threads
  klogger stopwatch sched_wakeup_new sched_switch --key 'p->pid' --stop-key 'next->pid' \\
                    --html new.html -- make          how long a new thread waits for a CPU; a page
                                                     with pictures
  klogger stopwatch 'tracepoint sched_process_fork' 'tracepoint sched_process_fork' -- make
                                                     from each to the next, in each thread

'klogger tracepoints WORD' lists the tracepoints with WORD in their names, and their parameters.
A key is C over these: rq, or 'rq->__sector', or 'p->pid'. A STOP belongs to the latest START with
the same key (of the same thread, on the same CPU) that has none yet.

What the logger itself takes between its two readings of the clock is measured in the same
recording, by pairs with nothing in between, and subtracted. 'klogger report LOG' of a log that was
kept with -o says all about it.

examples, of events of a log:
  klogger stopwatch x.klog REQUEST REPLY              two points of a program, in each thread
  klogger stopwatch x.klog REQUEST REPLY --key id     of each request, whichever threads they are in
  klogger stopwatch x.klog SCHEDIN SCHEDOUT           how long threads run
  klogger stopwatch x.klog FRAME FRAME                from each to the next

There the cost of logging an event is part of each time.
"""


# From so many pairs on, the worst thousandth is at least one.
MANY = 1000


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger stopwatch",
        usage=USAGE,
        description="How long it takes from one point to another: two tracepoints, or "
        "two events of a log.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "words", metavar="[FILE] BEGIN END", nargs="+", help="two points; a log before them is read"
    )
    found.add_argument(
        "--key", metavar="KEY",
        help="what BEGIN and END have in common: thread, cpu, C over the parameters (thread);"
        " in a log, a field (the thread that logged; 'pid' of the kernel's)",
    )  # fmt: skip
    found.add_argument(
        "--stop-key", metavar="KEY", help="the same for END, if its parameters have other names"
    )
    found.add_argument(
        "--if",
        dest="only",
        metavar="CONDITION",
        help="only hits of BEGIN for which this C over its parameters holds",
    )
    found.add_argument("-a", "--all", action="store_true", help="record all processes")
    found.add_argument(
        "-p", "--pid", metavar="PID", help="record these processes, and those that they start"
    )
    found.add_argument(
        "--for", dest="time", metavar="TIME", help="end after this time: 500ms, 30s, 5m"
    )
    found.add_argument("-o", "--output", metavar="LOG", type=Path, help="keep the log")
    found.add_argument("--buffer-size", metavar="SIZE", help="ring of each CPU (4M)")
    found.add_argument(
        "--empty-pairs",
        metavar="N",
        type=int,
        default=live.EMPTY_PAIRS,
        help="for the own cost (100000)",
    )
    found.add_argument(
        "--html",
        metavar="OUT",
        type=output,
        help="write a page with pictures that needs no network",
    )
    found.add_argument("--png", metavar="DIR", type=Path, help="write the pictures")
    found.add_argument(
        "--format", choices=["text", "json"], default="text", help="form of the answer (text)"
    )
    add_common(found)
    return found


def main(words: list[str] | None = None) -> int:
    ours, command = split(words)
    args = parser().parse_intermixed_args(ours)
    return guarded(lambda: stopwatch(args, command))


def stopwatch(args: argparse.Namespace, command: list[str]) -> int:
    if args.png:
        extras.PICTURES.check()
    if len(args.words) == 3 and not command:
        return of_log(args, *args.words)
    if len(args.words) != 2:
        raise Failure(
            f"two points are needed, BEGIN and END; there are {len(args.words)}",
            help="put each into quotes: klogger stopwatch 'tracepoint A' 'tracepoint B' -- COMMAND",
        )
    return of_kernel(args, command)


def of_log(args: argparse.Namespace, file: str, begin: str, end: str) -> int:
    log = klogger.open(file, quiet=False)
    try:
        found = measure(log, begin, end, args.key)
    finally:
        log.close()
    say(args, found, text(found), found.warnings)
    return 0


def of_kernel(args: argparse.Namespace, command: list[str]) -> int:
    if Path(args.words[0]).is_file():
        raise Failure(
            f"{args.words[0]}: of a log, two events are needed",
            help="klogger stopwatch FILE BEGIN END",
        )
    if not (command or args.all or args.pid):
        raise Failure(
            "nothing to record", help="end with -- COMMAND, or say -a or -p PID, and --for TIME"
        )
    if command and (args.all or args.pid):
        raise Failure(
            "a command and -a or -p exclude each other", help="start the command yourself"
        )
    begin, end = places.place(args.words[0]), places.place(args.words[1])
    by = places.key(args.key or "thread", args.stop_key, args.only, begin, end)
    with tempfile.TemporaryDirectory(prefix="klogger-stopwatch-") as name:
        folder = Path(name)
        log = (args.output or folder / "stopwatch.klog").absolute()
        texts = {"stopwatch": places.schema(begin, end, by)}
        if args.empty_pairs > 0:
            texts |= places.empty(os.getpid())
        schemata = [write(folder / f"{schema}.klogger", text) for schema, text in texts.items()]
        code = live.record(
            live.Recording(schemata, log, options(args), command, args.empty_pairs),
            folder,
            complain,
        )
        if not log.exists():
            if code in (0, 130):
                raise Failure("it was ended before anything was recorded")
            return code
        answer_of(args, log, begin.name, end.name, by.text())
    return code


def write(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def options(args: argparse.Namespace) -> list[str]:
    found = ["-a"] if args.all else []
    for option, value in (
        ("-p", args.pid),
        ("--for", args.time),
        ("--buffer-size", args.buffer_size),
    ):
        found += [option, value] if value else []
    return found


def answer_of(args: argparse.Namespace, path: Path, begin: str, end: str, key: str) -> None:
    log = klogger.open(path, quiet=False, locked=True)
    try:
        results = list(executor.run_all(log, executor.choose(log, answer.ANALYSES)))
        for result in results:
            if result.status == "failed":
                raise Failure(result.reason)
        found = answer.of(results, begin, end, key)
    finally:
        log.close()
    say(args, found, kernel_text(found), found.warnings)
    pictures(args, path)


def pictures(args: argparse.Namespace, log: Path) -> None:
    words = [
        f"--{name}={os.path.join(os.curdir, value)}"
        for name, value in (("html", args.html), ("png", args.png))
        if value
    ]
    if words:
        report.main([str(log), *words])


def say(
    args: argparse.Namespace,
    found: Stopwatch | Answer,
    lines: Sequence[str],
    warnings: Sequence[str],
) -> None:
    if args.format == "json":
        values = {n: plain(v) for n, v in dataclasses.asdict(found).items()}
        print(json.dumps(values, indent=2))
    else:
        print(fitted("\n".join(lines), sys.stdout))
    for warning in warnings:
        complain(f"warning: {warning}")


def text(found: Stopwatch) -> list[str]:
    lines = [f"{found.begin} to {found.end}, by {found.key}: {found.intervals:,} intervals"]
    lines[0] += f" of {found.begins:,} {found.begin} and {found.ends:,} {found.end}"
    if found.torn:
        lines.append(f"  {found.torn:,} more have a loss in them, and are left out")
    if not found.intervals:
        return [*lines, "  no two of them follow one another; is it the right --key?"]
    return [*lines, *times(found, found.trimmed_mean)]


def times(found: Stopwatch | Answer, trimmed: float | None) -> list[str]:
    lines = [spread("mean", found.mean, found.sd)]
    line = spread("trimmed", trimmed, found.trimmed_sd)
    # Of fewer, the worst thousandth is none.
    many = (found.intervals if isinstance(found, Stopwatch) else found.pairs) >= MANY
    lines += [f"{line}   without the worst 0.1 %"] if many else []
    parts = {"min": found.min, "50 %": found.p50, "90 %": found.p90, "99 %": found.p99}
    parts |= {"99.9 %": found.p999} if many else {}
    parts["max"] = found.max
    return [*lines, *(value_line(name, time(value)) for name, value in parts.items())]


def spread(label: str, value: float | None, deviation: float | None) -> str:
    return f"{value_line(label, time(value))}   standard deviation {time(deviation):>10}"


def kernel_text(found: Answer) -> list[str]:
    lines = [f"{found.begin} to {found.end}, by {found.key}: {found.pairs:,} pairs"]
    if not found.pairs:
        lines.append(
            f"  none of {found.starts:,} {found.begin} and {found.stops:,}"
            f" {found.end} belong together;"
        )
        lines.append(
            "  is it the right --key? Of a command, only what its own threads do is"
            " recorded; -a records all"
        )
        return lines
    lines += times(found, found.trimmed)
    if found.own:
        lines.append(
            f"  Subtracted: {time(found.own.mean)}, what the stopwatch itself takes (standard"
            f" deviation {time(found.own.sd)},\n  {found.own.pairs:,} empty pairs)."
            + (
                f" With it, the trimmed deviation is {time(found.with_own)}."
                if found.pairs >= MANY
                else ""
            )
        )
    return lines + doubts(found)


def doubts(found: Answer) -> list[str]:
    """What found no partner, and which pairs are not what they seem."""
    lines = []
    if found.no_stop:
        lines.append(f"  {found.no_stop:,} of {found.starts:,} {found.begin} have no {found.end}")
    if found.no_start:
        lines.append(f"  {found.no_start:,} of {found.stops:,} {found.end} have no {found.begin}")
    if found.torn:
        lines.append(f"  {found.torn:,} more pairs have a loss in them, and are left out")
    if found.negative:
        lines.append(
            f"  {found.negative:,} pairs took less than what is subtracted: a"
            " negative time is below the"
        )
        lines.append("  stopwatch's own cost, and counts as it is")
    if found.crossed:
        error = "it is not known how far the CPUs' clocks are apart"
        if found.clock is not None:
            error = f"the CPUs' clocks are at most {time(found.clock)} apart"
        lines.append(f"  {found.crossed:,} pairs ended on another CPU; {error}")
    return lines


def time(ns: float | None) -> str:
    return "-" if ns is None else duration(ns)


if __name__ == "__main__":
    sys.exit(main())
