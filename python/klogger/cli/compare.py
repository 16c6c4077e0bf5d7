# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger compare`: what differs between two recordings, and whether it is more than chance."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from typing import TYPE_CHECKING

from klogger import terminal
from klogger.cli import (
    Parser,
    Progress,
    add_common,
    complain,
    fleet,
    guarded,
    output,
    private_as,
)
from klogger.cli.pager import paged
from klogger.compare import Compared, Metric, compare_logs
from klogger.failure import Failure
from klogger.outputs import write

if TYPE_CHECKING:
    from klogger.why.answer import Answer

EPILOG = """\
examples:
  klogger compare old.klog new.klog                            one run each
  klogger compare old1.klog old2.klog old3.klog --with new1.klog new2.klog new3.klog
  klogger compare old*.klog --with new*.klog --html x.html     with pictures
  klogger compare a.klog b.klog --analysis wakeup_latency      all metrics of this analysis
  klogger compare --explain old.klog new.klog      of logs of 'klogger why': what of
                                                   the elapsed time has changed
  klogger compare a*.klog --with b*.klog --metric p99 --fail-on 5%
                                            for CI: exit code 1 if a p99 got worse by more

The fewer metrics are compared, the smaller a difference can be seen. Several runs of each show how
much two runs of the same thing differ, which one run cannot. docs/compare.md says how it is
computed.

exit code: 0; with --fail-on, 1 if a metric is surely worse by more than that; 2 if something
could not be done.
"""

# On each side, of those that can fail a pipeline.
RUNS_MIN = 3


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger compare",
        usage="klogger compare A B [OPTION]...\n"
        "       klogger compare A... --with B... [OPTION]...\n"
        "       klogger compare DATASET --between NAME=VALUE NAME=VALUE [OPTION]...",
        description="What differs between two recordings, or several of each, and whether it"
        " is more than chance.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "logs",
        metavar="A",
        nargs="+",
        help="logs, or directories that 'klogger export' made of them",
    )
    found.add_argument(
        "--with", dest="others", metavar="B", nargs="+", help="those that they are compared with"
    )
    found.add_argument(
        "--between", metavar="NAME=VALUE", nargs=2,
        help="the recordings of a dataset with these labels, hosts or kernels; several with commas"
        " between them must all be met",
    )  # fmt: skip
    found.add_argument(
        "--analysis", metavar="NAME", action="append", default=[], help="this one only (repeatable)"
    )
    found.add_argument(
        "--metric", metavar="PATTERN", action="append", default=[],
        help="only metrics like this: 'p99', 'wakeup_latency/*', 'quanta/make/p50' (repeatable)",
    )  # fmt: skip
    found.add_argument(
        "--fail-on",
        metavar="PERCENT",
        type=percentage,
        help="exit code 1 if a metric got worse by more than this; needs three runs on each side",
    )
    found.add_argument(
        "--explain", action="store_true",
        help="the difference of the elapsed times as a sum of differences of what it went to; "
        "of logs of 'klogger why'",
    )  # fmt: skip
    found.add_argument(
        "--html", metavar="OUT", type=output, help="write one file that needs no network"
    )
    found.add_argument(
        "--format", choices=["text", "json"], help="what goes to the terminal (text)"
    )
    add_common(found, is_read=True)
    return found


def percentage(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not a percentage such as 5%")
    return float(match[1]) / 100


def main(words: list[str] | None = None) -> int:
    args = parser().parse_intermixed_args(words)
    return guarded(lambda: compare(args))


def compare(args: argparse.Namespace) -> int:
    a, b = between(args) if args.between else sides(args.logs, args.others)
    private_as(*a, *b)
    if args.explain:
        return explained(args, a, b)
    check_enough(args.fail_on, a, b)
    with Progress(after=1) as progress:
        found = compare_logs(a, b, args.analysis, args.metric, quiet=False, progress=progress)
        failing = failing_metrics(found, args.fail_on)
        if args.html:
            from klogger.compare.page import page

            write(args.html, page(found).encode(errors="replace"))
    with paged() if args.format != "json" else contextlib.nullcontext():
        show(args, found, failing)
    if any(one.status == "failed" for one in found.comparison.analyses):
        return 2
    if args.fail_on is None:
        return 0
    check_judged(args, found)
    for metric in failing:
        complain(f"worse by more than {100 * args.fail_on:g} %: {metric.name}")
    return 1 if failing else 0


def explained(args: argparse.Namespace, a: list[str], b: list[str]) -> int:
    if args.analysis or args.metric or args.fail_on is not None or args.html:
        raise Failure("--explain is without --analysis, --metric, --fail-on and --html")
    from klogger.why import explain

    with Progress(after=1) as progress:
        found = explain.explain(*([answer_of(log, progress) for log in side] for side in (a, b)))
    if args.format == "json":
        json.dump(found.as_json(), sys.stdout, ensure_ascii=sys.stdout.isatty(), indent=1)
        print()
        return 0
    with paged():
        out = terminal.console(sys.stdout)
        for line in explain.lines(found, out.width):
            terminal.print_line(out, line)
    return 0


def answer_of(file: str, progress: Progress) -> Answer:
    from klogger.why import answer

    progress(file)
    return answer.of_file(file)


def between(args: argparse.Namespace) -> tuple[list[str], list[str]]:
    if len(args.logs) != 1 or args.others or not fleet.is_dataset(args.logs[0]):
        raise Failure("--between is for one dataset", help="klogger compare DIR --between A B")
    return fleet.between(args.logs[0], args.between)


def sides(logs: list[str], others: list[str] | None) -> tuple[list[str], list[str]]:
    if others:
        return logs, others
    if len(logs) != 2:
        what = "one log" if len(logs) == 1 else f"{len(logs)} logs"
        raise Failure(
            f"{what}, but nothing to compare with", help="klogger compare A... --with B..."
        )
    return logs[:1], logs[1:]


def check_enough(limit: float | None, a: list[str], b: list[str]) -> None:
    """A pipeline must not be red, or green, by chance."""
    if limit is not None and min(len(a), len(b)) < RUNS_MIN:
        raise Failure(
            f"--fail-on needs {RUNS_MIN} runs on each side, and was given {len(a)} and {len(b)}:"
            " fewer do not show how much two runs of the same thing differ",
            help="record the two in turn (A, B, A, B ...), and compare A... --with B...",
        )


def failing_metrics(found: Compared, limit: float | None) -> list[Metric]:
    if limit is None:
        return []
    return [
        m
        for m in found.comparison.metrics()
        if (worsened := m.worsened()) is not None and worsened > limit
    ]


def check_judged(args: argparse.Namespace, found: Compared) -> None:
    """A pipeline must not be green because there was nothing to judge."""
    for one in found.comparison.analyses:
        if one.analysis.name in args.analysis and one.status != "answer":
            raise Failure(f"{one.analysis.name} could not be compared: {one.reason}")
    if not any(m.worsened() is not None for m in found.comparison.metrics()):
        raise Failure(
            "--fail-on: none of the metrics can be judged",
            help="record several runs of each; of some metrics neither less nor more is "
            "better (docs/compare.md)",
        )


def show(args: argparse.Namespace, found: Compared, failing: list[Metric]) -> None:
    from klogger.compare import text

    if args.format == "json":
        json.dump(
            text.as_json(found, failing), sys.stdout, ensure_ascii=sys.stdout.isatty(), indent=1
        )
        print()
    elif args.format or not args.html:
        text.write(
            terminal.console(sys.stdout), found, everything=bool(args.analysis or args.metric)
        )


if __name__ == "__main__":
    sys.exit(main())
