# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger bench`: what klogger costs on this machine, now."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from klogger import terminal
from klogger.cli import Parser, Progress, add_common, guarded, output
from klogger.failure import Failure
from klogger.outputs import write
from klogger_lab.bench import answer as answers
from klogger_lab.bench import cost, events, kernel, rate
from klogger_lab.bench.answer import Answer
from klogger_lab.bench.cost import Costs
from klogger_lab.bench.engines import BPF, ENGINES, check_available
from klogger_lab.bench.loop import cpus, prepare, show
from klogger_lab.cli import check_writable, interruptible, seconds
from klogger_lab.machine import machine
from klogger_lab.signals import stoppable

EPILOG = """\
examples:
  klogger bench                              each event of the schema 'scheduler', in ns
  klogger bench -s ./my.klogger              of a schema of your own
  klogger bench -s locking --event LOCK_BEGIN --passes 31
                                             one event, with less uncertainty
  klogger bench -s ./my.klogger --engine user
                                             what 'klogger(EVENT, ...)' costs a program
  klogger bench -s scheduler --engine kernel by kernel modules, where they can be loaded
  klogger bench --rate --dir /data           and how many events a second go to that disk
  klogger bench --rate --rate-for 1m --buffer-size 16M --dir /data
                                             the same for longer than its cache lasts
  klogger bench --html cost.html             with a picture, in one file that needs no network

A loop hits one place again and again, in short blocks that take turns: with a probe that does
nothing, one that reads the clock, one that logs an event. Use an idle machine. What cannot be told
there from chance is 'not measurable here'. docs/bench.md says what is in the numbers.

Exit code: 0 all is measured; 1 something is not measurable here; 2 it could not be run.
"""
LEAST_PASSES = 3
PASSES = 9


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger bench",
        description="What each event of a schema costs on this machine, beside the "
        "least that is possible,\n"
        "and how many events a second can be recorded.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "-s", "--schema", metavar="SCHEMA", default="scheduler", help="a bundled one or a file"
    )
    found.add_argument(
        "--engine", choices=list(ENGINES), default=BPF.name, help=f"what logs ({BPF.name})"
    )
    found.add_argument(
        "--event", metavar="EVENT", action="append", default=[], help="this one only (repeatable)"
    )
    found.add_argument(
        "--passes", metavar="N", type=passes, default=PASSES, help=f"recordings to make ({PASSES})"
    )
    found.add_argument("--cpu", metavar="CPU", type=int, help="where the loop runs (the last one)")
    found.add_argument("--buffer-size", metavar="SIZE", help="ring of each CPU or thread (4M)")
    found.add_argument(
        "--modules",
        metavar="DIR",
        type=Path,
        help="for --engine kernel: modules that 'klogger build' made",
    )
    found.add_argument(
        "--rate", action="store_true", help="also find the rate without loss, on all CPUs at once"
    )
    found.add_argument(
        "--rate-for",
        metavar="TIME",
        type=seconds,
        default=2.0,
        help="how long each rate lasts (2s)",
    )
    found.add_argument(
        "--dir", metavar="DIR", type=Path, default=Path(), help="where the logs go meanwhile (here)"
    )
    found.add_argument(
        "--html", metavar="OUT", type=output, help="write one file that needs no network"
    )
    found.add_argument(
        "--format", choices=["text", "json"], help="what goes to the terminal (text)"
    )
    add_common(found)
    return found


def passes(word: str) -> int:
    if not word.isdigit() or int(word) < LEAST_PASSES:
        raise argparse.ArgumentTypeError(
            f"'{word}': quartiles need a number of {LEAST_PASSES} or more"
        )
    return int(word)


def main(words: list[str] | None = None) -> int:
    args = parser().parse_intermixed_args(words)
    return guarded(lambda: interruptible(lambda: bench(args)))


@stoppable()
def bench(args: argparse.Namespace) -> int:
    begun = time.monotonic()
    check(args)
    shown = show(args.schema)
    chosen = events.of_schema(shown, args.event)
    found = Answer(
        shown["schema"],
        machine(),
        chosen,
        Costs(args.engine),
        cpu=args.cpu,
        load=os.getloadavg()[0],
    )
    with (
        Progress("bench") as status,
        tempfile.TemporaryDirectory(dir=args.dir, prefix="klogger-bench-") as folder,
    ):
        found.costs = costs_of(args, found, Path(folder), status)
        if args.rate:
            found.disk = rate.disk_rate(Path(folder))
            hits = ENGINES[args.engine].hits
            assert hits is not None, "check() lets no other engine through"
            buffers = [args.buffer_size] if args.buffer_size else rate.BUFFERS
            found.rates = rate.measure(
                args.engine, hits, cpus(), buffers, args.rate_for, Path(folder), status
            )
    found.seconds = time.monotonic() - begun
    if args.html:
        # Pictures cost half a second to load, which the terminal does not need.
        from klogger_lab.bench.page import page

        write(args.html, page(found).encode(errors="replace"))
    if args.format or not args.html:
        say(args, found)
    return 0 if found.measurable else 1


def check(args: argparse.Namespace) -> None:
    """Before anything is measured."""
    if ENGINES[args.engine].hits is None and args.rate:
        others = " or ".join(name for name, engine in ENGINES.items() if engine.hits)
        raise Failure(
            f"--rate goes with --engine {others}",
            help=f"the {args.engine} engine has the same recorder as bpf",
        )
    check_available(args.engine)
    if args.cpu is None:
        # The first one often serves the devices' interrupts.
        args.cpu = cpus()[-1]
    elif args.cpu not in cpus():
        raise Failure(
            f"there is no CPU {args.cpu} to run on", help=f"there are {', '.join(map(str, cpus()))}"
        )
    if not args.dir.is_dir():
        raise Failure(f"{args.dir}: no such directory")
    check_writable(args.html.absolute().parent if args.html else None, args.dir)


def costs_of(
    args: argparse.Namespace, found: Answer, folder: Path, status: Callable[[str], None]
) -> Costs:
    chosen = found.events
    hits = ENGINES[args.engine].hits
    if hits is None:
        status("building modules")
        modules = args.modules or kernel.modules(args.schema, folder)
        return kernel.measure(found.schema, modules, chosen, args.cpu, args.passes, folder, status)
    status("the loop")
    loop = prepare(args.engine, hits, chosen, folder)
    size = [hits.buffer_option, args.buffer_size or hits.buffer_size]
    return cost.measure(loop, chosen, args.cpu, args.passes, size, folder, status)


def say(args: argparse.Namespace, found: Answer) -> None:
    if args.format == "json":
        print(json.dumps(answers.as_json(found), ensure_ascii=sys.stdout.isatty(), indent=1))
        return
    out = terminal.console(sys.stdout)
    terminal.print_summary(out, answers.head(found))
    for result in answers.results(found):
        terminal.print_drawn(out, result)


if __name__ == "__main__":
    sys.exit(main())
