# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger top`: the analyses of a schema over the last seconds, while it runs."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path

from klogger import outputs
from klogger.cli import Parser, add_common, complain, guarded
from klogger.failure import Failure
from klogger.units import printable
from klogger_lab.cli import seconds, split
from klogger_lab.signals import stoppable
from klogger_lab.top.window import Frame, Plan, Window

SCHEMA = "scheduler"
WINDOW, EVERY = 10.0, 1.0
# A shorter window has no events, a longer one does not fit into memory.
SHORTEST, LONGEST = 0.1, 600.0
USAGE = "klogger top [OPTIONS] [-p PID | -a | -- COMMAND...]"
EPILOG = """\
examples:
  klogger top -a                         who runs where, on the whole machine
  klogger top -s locking -p 4711         waits for locks of a process
  klogger top -s futex --analysis locks -- ./server
  klogger top --window 30s --every 5s -a
  klogger top -a --once --format json    one window, for scripts
  klogger top -a --html                  a page with pictures, for a browser

keys: left and right or 1 to 9 choose an analysis, up and down a row, Enter shows the events behind
it; s and S sort, / filters, space pauses, v shows the picture, ? lists all keys, q ends.

The time between two frames is so long that klogger needs less than 10 % of one CPU. The output of
COMMAND goes to /dev/null, or to the file of --output.
"""


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger top",
        usage=USAGE,
        description="Show a schema's own analyses of the last seconds, again and again.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "-s", "--schema", metavar="SCHEMA", action="append", default=[],
        help=f"what is recorded, as for 'klogger record'; may be repeated ({SCHEMA})",
    )  # fmt: skip
    found.add_argument(
        "--analysis", metavar="NAME",
        help="begin with this analysis; with --once, only this one",
    )  # fmt: skip
    found.add_argument(
        "--window", metavar="TIME", type=seconds, default=WINDOW,
        help=f"how much of the time until now is looked at ({WINDOW:g}s)",
    )  # fmt: skip
    found.add_argument(
        "--every", metavar="TIME", type=seconds, default=EVERY,
        help=f"the least time from one frame to the next ({EVERY:g}s)",
    )  # fmt: skip
    found.add_argument("-a", "--all", action="store_true", help="all processes")
    found.add_argument(
        "-p", "--pid", metavar="PID", action="append", default=[],
        help="these processes and their descendants; may be repeated",
    )  # fmt: skip
    found.add_argument(
        "--output", metavar="FILE", type=Path,
        help="append the output of the command to this file",
    )  # fmt: skip
    found.add_argument(
        "--once", action="store_true", help="wait for one window, print the answers, and end"
    )
    found.add_argument(
        "--format", choices=["text", "json"], default="text",
        help="with --once: format of the answers (text)",
    )  # fmt: skip
    found.add_argument(
        "--html", action="store_true",
        help="show it as a page with pictures, for browsers on this machine, instead of here",
    )  # fmt: skip
    found.add_argument(
        "--port", metavar="N", type=int, help="with --html: listen on this port (a free one)"
    )
    add_common(found)
    return found


def main(words: list[str] | None = None) -> int:
    ours, command = split(words)
    args = parser().parse_args(ours)
    return guarded(lambda: top(args, command))


def top(args: argparse.Namespace, command: list[str]) -> int:
    check(args, command)
    plan = Plan(scope(args), tuple(command), args.window, output_of(args))
    if args.once:
        return once(args, plan)
    if args.html:
        return page(args, plan, title(args, command))
    with stoppable():
        window = Window(plan, args.every, most=1)
        # It gets ready while the screen is loaded.
        window.begin()
        from klogger_lab.top import screen

        return screen.show(window, args.analysis, title(args, command))


def check(args: argparse.Namespace, command: list[str]) -> None:
    if not SHORTEST <= args.window <= LONGEST:
        raise Failure(
            f"--window {args.window:g}s: not between {SHORTEST:g}s and {LONGEST:g}s",
            help="'klogger record' is for longer times",
        )
    if args.every > 3600:
        raise Failure(f"--every {args.every:g}s: longer than an hour", help="use --once, and cron")
    if args.all and args.pid:
        raise Failure("-a and -p contradict each other", help="give one of them")
    if args.format == "json" and not args.once:
        raise Failure("--format json is for --once", help="klogger top --once --format json")
    if args.output is not None and not command:
        raise Failure("--output is for the output of a command", help="klogger top ... -- COMMAND")
    if not (args.all or args.pid or command):
        raise Failure(
            "nobody to look at",
            help="klogger top -a (all processes), -p PID, or -- COMMAND",
        )
    if command and shutil.which(command[0]) is None:
        raise Failure(
            f"cannot run '{command[0]}': there is no such command",
            help="give its path, or check its spelling and the PATH",
        )
    if args.html and args.once:
        raise Failure("--html and --once contradict each other", help="give one of them")
    if args.port is not None and not args.html:
        raise Failure("--port is for the page", help="klogger top --html --port N")
    if not (args.once or args.html):
        check_terminal()


def check_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Failure(
            "the standard input and output are no terminal",
            help="'klogger top --once' prints one window, also as JSON",
        )
    if os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        raise Failure(
            "this terminal (TERM=dumb) cannot be drawn on",
            help="set TERM, as in TERM=xterm; or 'klogger top --once'",
        )


def scope(args: argparse.Namespace) -> tuple[str, ...]:
    """Options of `klogger record`."""
    words = [word for schema in args.schema or [SCHEMA] for word in ("-s", schema)]
    words += ["-a"] if args.all else []
    return tuple(words + [word for pid in args.pid for word in ("-p", pid)])


def output_of(args: argparse.Namespace) -> str:
    if args.output is None:
        return os.devnull
    # The command opens it by this descriptor: the path may lead elsewhere by then.
    with outputs.continued(args.output, append=True) as file:
        descriptor = os.dup(file.fileno())
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def title(args: argparse.Namespace, command: list[str]) -> str:
    """What is looked at, in a few words."""
    who = "all processes" if args.all else " ".join(command) if command else ""
    if args.pid:
        who = ", ".join(filter(None, [f"process {', '.join(args.pid)}", who]))
    return printable(f"{','.join(args.schema or [SCHEMA])}: {who}")


def once(args: argparse.Namespace, plan: Plan) -> int:
    """Waits for a whole window, or for the end of the command."""
    with stoppable(), Window(plan, args.every) as window:
        window.choose(args.analysis)
        until = time.monotonic() + plan.window
        while time.monotonic() < until and not window.is_over():
            time.sleep(0.02)
        frame = window.frame()
        # Before the end of the recorder, which may take a while.
        tell(args, frame)
    if frame.state == "failed" or (frame.state == "running" and frame.reason):
        raise Failure(frame.reason)
    for note in frame.notes:
        complain(note)
    return 2 if any(r.status == "failed" for r in frame.results) else 0


def tell(args: argparse.Namespace, frame: Frame) -> None:
    try:
        if args.format == "json":
            json.dump(frame.as_json(), sys.stdout, ensure_ascii=sys.stdout.isatty(), indent=1)
            print(flush=True)
        else:
            print_frame(frame)
    except BrokenPipeError:
        # Who reads has had enough (`| head`). What is left must not be written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def page(args: argparse.Namespace, plan: Plan, what: str) -> int:
    """Until Ctrl-C, or until the terminal is gone."""
    from klogger_lab.top.page import live

    with stoppable():
        live.serve(plan, args.every, args.analysis, what, args.port or 0, say_address)
    return 0


def say_address(url: str) -> None:
    print(url, flush=True)
    complain("the page is for browsers on this machine that have this address; Ctrl-C ends it")


def print_frame(frame: Frame) -> None:
    # It takes long to load, and the screen does not need it.
    from klogger import terminal

    out = terminal.console(sys.stdout)
    terminal.print_line(
        out, (f"the last {frame.seconds:.3g} s: {frame.events:,} events", "bold"),
        f", {frame.rate:,.0f}/s, {f'{frame.lost:,} missing' if frame.lost else 'none missing'}",
    )  # fmt: skip
    if frame.short:
        terminal.print_line(out, "  the window is shorter than asked: the memory holds no more")
    terminal.print_ledger(out, frame.ledger)
    terminal.print_findings(out, frame.results)
    for result in frame.results:
        terminal.print_drawn(out, result, notes=False)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
