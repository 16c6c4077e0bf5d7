# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger watch`: runs a command, and says at once if anything in it crashes or dead-locks."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from klogger import outputs
from klogger.cli import Parser, add_common, complain, fitted, guarded, output
from klogger.failure import Failure
from klogger.program import Said
from klogger_lab import launched
from klogger_lab.cli import split
from klogger_lab.watch.account import Account, Teller
from klogger_lab.watch.blocked import Blocked
from klogger_lab.watch.detect import Crash, Deadlock, Detector
from klogger_lab.watch.stream import Stream

FOUND = 3
# How often threads that wait for each other are looked at, in seconds.
LOOK = 0.05
BEFORE = 12
USAGE = "klogger watch [OPTIONS] -- COMMAND..."
EPILOG = """\
examples:
  klogger watch -- make -j4 check          run it; each crash and dead-lock is shown at once
  klogger watch -s files -- ./prog         with the files that it opened before
  klogger watch -o x.klog -- ./prog        keep the log; 'klogger report x.klog' says more
  klogger watch --stop-on-find -- ./prog   end the command at the first finding
  klogger watch -q --format json --report found.json -- ./prog
  klogger watch -- bash                    a shell in which everything is watched

A crash is a process that is ended by a signal whose default is a core dump (SIGSEGV, SIGABRT,
SIGFPE ...), or by a SIGKILL of the kernel (out of memory). A signal that a program handles is no
crash. A dead-lock is a circle of threads, each of which has waited for 100 ms for a mutex that the
next one holds. Where the holder is a guess, it is "perhaps a dead-lock", and no finding.

Exit code: 3 if anything was found; otherwise the command's own.
"""


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger watch",
        usage=USAGE,
        description="Run a command, and show each crash and dead-lock of its processes at once.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "-s", "--schema", metavar="SCHEMA", action="append", default=[],
        help="record this schema too, so that its events are among the last ones; may be repeated",
    )  # fmt: skip
    found.add_argument("-o", "--output", metavar="LOG", type=Path, help="keep the log")
    found.add_argument(
        "--before", metavar="N", type=int, default=BEFORE,
        help=f"how many of the last events are shown ({BEFORE})",
    )  # fmt: skip
    found.add_argument(
        "--stop-on-find", action="store_true", help="end the command at the first finding"
    )
    found.add_argument(
        "--report", metavar="FILE", type=output,
        help="write findings to this file instead of the standard error",
    )  # fmt: skip
    found.add_argument(
        "--format", choices=["text", "json"], default="text",
        help="form of a finding; json: one object per line (text)",
    )  # fmt: skip
    found.add_argument(
        "-q", "--quiet", action="store_true", help="one line for each finding, and no summary"
    )
    add_common(found)
    return found


def main(words: list[str] | None = None) -> int:
    ours, command = split(words)
    args = parser().parse_args(ours)
    return guarded(lambda: watch(args, command))


def watch(args: argparse.Namespace, command: list[str]) -> int:
    check(args, command)
    with tempfile.TemporaryDirectory(prefix="klogger-watch-") as folder, report_to(args) as out:
        log = (args.output or Path(folder) / "watch.klog").absolute()
        stream = Stream(args.schema, log, Path(folder) / "messages")
        stream.start(command)
        with launched.signals_are_the_commands(stream.end), stream:
            found = follow(args, stream, out)
            code = launched.exit_code(stream.process)
        relay(launched.said(stream.messages))
        if found and not args.quiet and args.format == "text":
            kept = f"; the log is {args.output}" if args.output else ""
            say(out, f"klogger watch: {summary(found)}{kept}")
    return FOUND if found else code


def relay(said: Said) -> None:
    """What the recorder has to say to people, and what it has lost."""
    launched.relay(said)
    for message in said.of("summary"):
        if message.get("lost"):
            complain(
                f"warning: {message['lost']:,} events were lost; a crash or a dead-lock may be"
                " missing"
            )


def check(args: argparse.Namespace, command: list[str]) -> None:
    if not command:
        raise Failure("there is no command to watch", help="klogger watch -- COMMAND")
    launched.check(command, "klogger watch --")
    if args.before < 0:
        raise Failure(f"--before {args.before}: a number of events is not negative")


@contextlib.contextmanager
def report_to(args: argparse.Namespace) -> Iterator[IO[str]]:
    if args.report is None:
        yield sys.stderr
        return
    with outputs.failing(args.report), outputs.continued(args.report, append=False) as file:
        yield file


def follow(args: argparse.Namespace, stream: Stream, out: IO[str]) -> list[Crash | Deadlock]:
    """Until the command has ended; returns what was found."""
    detector, blocked = Detector(), Blocked()
    teller = Teller(stream.pid, stream.log, args.before, stream.wait)
    found: list[Crash | Deadlock] = []
    while (events := stream.events(LOOK if detector.candidates else 1.0)) is not None:
        new: list[Crash | Deadlock] = [one for event in events for one in detector.feed(event)]
        teller.since = detector.began
        new += blocked.look(detector)
        for one in new:
            looked = teller.proved(one) if isinstance(one, Deadlock) else one
            tell(args, out, teller, looked)
            # A guess is told, and is no finding.
            if isinstance(looked, Crash) or looked.known:
                found.append(looked)
        if found and args.stop_on_find:
            stream.end()
    return found


def tell(args: argparse.Namespace, out: IO[str], teller: Teller, found: Crash | Deadlock) -> None:
    account: Account
    account = teller.crash(found) if isinstance(found, Crash) else teller.deadlock(found)
    if args.format == "json":
        out.write(json.dumps({"title": account.title, **account.data}) + "\n")
        out.flush()
        return
    lines = [f"klogger watch: {account.title}", *([] if args.quiet else account.text)]
    say(out, "\n".join(lines))


def say(out: IO[str], text: str) -> None:
    """Names are those of other programs, and must not act on the terminal."""
    print(fitted(text, out), file=out, flush=True)


def summary(found: list[Crash | Deadlock]) -> str:
    crashes = sum(isinstance(one, Crash) for one in found)
    parts = [(crashes, "crash", "crashes"), (len(found) - crashes, "dead-lock", "dead-locks")]
    return ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in parts if n)


if __name__ == "__main__":
    sys.exit(main())
