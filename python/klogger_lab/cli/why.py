# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger why`: runs a command, or takes a log, and says where its elapsed time went."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import klogger
from klogger import outputs, terminal
from klogger.cli import Parser, Progress, add_common, complain, guarded, output, private_as
from klogger.cli.pager import paged
from klogger.failure import Failure
from klogger.why import answer, operations, text
from klogger.why.answer import Answer
from klogger.why.choice import Choice
from klogger.why.operations import Slowest
from klogger_lab import launched
from klogger_lab.cli import seconds, split
from klogger_lab.recorder import words_of

USAGE = "klogger why [OPTIONS] [LOG] [-- COMMAND...]"
LOG = "why.klog"
EPILOG = """\
examples:
  klogger why -- make                     run it, and say where its time went
  klogger why -p 4711 --for 10s           of a running process
  klogger why -a -- curl http://localhost/
                                          with all others whom it waits for
  klogger why -a -s block -- ./database   which requests to disks it waits for
  klogger why why.klog --thread 4712      another thread of the same log
  klogger why why.klog --program nginx    all threads of that name together
  klogger why why.klog --between 1 2      between two marks ('klogger mark 1')
  klogger why why.klog --operation fsync --slowest 1%
                                          the slowest calls of fsync together
  klogger why why.klog --operation REQUEST..REPLY --by kind
                                          from one event to another, by a field
  klogger why --html why.html -- make     also as a page, with the critical path
  klogger why --depth quick -- ./server   cheaper: what ran is not split
  klogger why --format json --report why.json -- make

Every nanosecond of the elapsed time is in one bin: it ran, could run and had no
CPU, waited, or that is unknown because events are missing. Where it waited for
another thread of the log, that one is followed for the same time: 'Because'.
docs/why.md says how each bin is decided.

The answer on a command goes to the standard error. Exit code: the command's.
"""


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger why",
        usage=USAGE,
        description="Where the elapsed time of a command, or of threads of a log, went.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("file", metavar="LOG", nargs="?", help="a log with the schema 'waits'")
    recording = found.add_argument_group("recording")
    recording.add_argument(
        "-p", "--pid", metavar="PID", type=int, action="append", default=[],
        help="these running processes, until --for or Ctrl-C (repeatable)",
    )  # fmt: skip
    recording.add_argument(
        "-s", "--schema", metavar="SCHEMA", action="append", default=[],
        help="record this schema too, whose events --operation can name (repeatable)",
    )  # fmt: skip
    recording.add_argument("--for", dest="duration", metavar="TIME", help="how long: 500ms, 10s")
    recording.add_argument(
        "-a", "--all", action="store_true",
        help="record all processes, so that those are followed too that the command waits for",
    )  # fmt: skip
    recording.add_argument(
        "--depth", choices=["quick", "full"], default="full",
        help="quick: without system calls, page faults, TCP and most stacks: 'ran' is not split"
        " (full)",
    )  # fmt: skip
    recording.add_argument(
        "-o", "--output", metavar="LOG", type=Path, help=f"where the log is kept ({LOG})"
    )
    chosen = found.add_argument_group("whose time")
    chosen.add_argument(
        "--thread", metavar="TID", type=int, action="append", default=[],
        help="of these threads (repeatable)",
    )  # fmt: skip
    chosen.add_argument(
        "--program", metavar="NAME", action="append", default=[],
        help="of all threads of this name (repeatable)",
    )  # fmt: skip
    chosen.add_argument(
        "--between", metavar="MARK", nargs=2, help="between two marks: their numbers or texts"
    )
    chosen.add_argument(
        "--operation", metavar="WHAT",
        help="of each operation: EVENT..EVENT of a thread, a slice of a schema, or the name of a"
        " system call; of all threads, if none are chosen",
    )  # fmt: skip
    chosen.add_argument(
        "--slowest", metavar="PART", type=part,
        help="only of the slowest operations: 1%%, or a number",
    )  # fmt: skip
    chosen.add_argument(
        "--by", metavar="FIELD", help="tell operations apart by this field of their events"
    )
    found.add_argument("--format", choices=["text", "json"], default="text", help="(text)")
    found.add_argument(
        "--report", metavar="FILE", type=output, help="write the answer to this file"
    )
    found.add_argument(
        "--html", metavar="FILE", type=output,
        help="write a page with the critical path and all bins, which needs no network",
    )  # fmt: skip
    add_common(found, is_read=True)
    return found


def main(words: list[str] | None = None) -> int:
    ours, command = split(words)
    if not command and ours and is_command(ours[0]):
        complain(Failure(f"'{ours[0]}' is a command, and no log",
                         help=f"klogger why -- {shlex.join(ours)}"))  # fmt: skip
        return 2
    args = parser().parse_intermixed_args(ours)
    return guarded(lambda: why(args, command))


def part(word: str) -> Slowest:
    number = word.removesuffix("%")
    try:
        value = float(number) / 100 if number != word else int(number)
    except ValueError:
        value = -1
    if not 0 < value <= (1 if number != word else 1 << 40):
        raise argparse.ArgumentTypeError(f"'{word}' is neither a share like 1% nor a number")
    return Slowest(share=value) if number != word else Slowest(count=int(value))


def is_command(word: str) -> bool:
    return word[:1] != "-" and not Path(word).exists() and shutil.which(word) is not None


def why(args: argparse.Namespace, command: list[str]) -> int:
    check(args, command)
    if not records(args, command):
        with paged() if args.report is None else contextlib.nullcontext():
            show(args, args.file, sys.stdout)
        return 0
    with tempfile.TemporaryDirectory(prefix="klogger-why-") as folder:
        log = args.output or Path(LOG)
        code = record(args, command, log, Path(folder) / "messages")
    show(args, log, sys.stderr if command else sys.stdout)
    return code


def records(args: argparse.Namespace, command: list[str]) -> bool:
    return bool(command or args.pid or args.all)


def check(args: argparse.Namespace, command: list[str]) -> None:
    if args.operation is None and (args.slowest or args.by):
        raise Failure("--slowest and --by are of operations", help="add --operation WHAT")
    if args.file and records(args, command):
        raise Failure(
            "give a log, or what is to be recorded, not both",
            help="klogger why -- COMMAND, or klogger why LOG",
        )
    if not args.file and not records(args, command):
        raise Failure(
            "there is neither a command nor a log",
            help="klogger why -- COMMAND, or klogger why LOG",
        )
    if args.file:
        return
    launched.check(command, "klogger why")
    if args.duration is not None:
        try:
            seconds(args.duration)
        except argparse.ArgumentTypeError as wrong:
            raise Failure(f"--for {wrong}") from None


def options(args: argparse.Namespace, log: Path) -> list[str]:
    """Of `klogger record`."""
    found = ["-o", str(log)]
    own = ["waits"] if args.depth == "quick" else ["waits", "peers"]
    for schema in dict.fromkeys([*own, *args.schema]):
        found += ["-s", schema]
    if args.depth == "quick":
        for part in ("calls", "faults", "stacks"):
            found += ["--set", f"waits.{part}=false"]
    for pid in args.pid:
        found += ["-p", str(pid)]
    found += ["-a"] if args.all else []
    found += ["--for", args.duration] if args.duration else []
    return found


def record(args: argparse.Namespace, command: list[str], log: Path, messages: Path) -> int:
    """The exit code of the command. The messages of the recorder are passed on."""
    process = launched.start(words_of(options(args, log)), command, messages)
    with launched.signals_are_the_commands(process.terminate, is_any=bool(command)):
        code = launched.exit_code(process)
    said = launched.said(messages)
    if said.of("error") and not said.of("started"):
        raise said.failure("nothing was recorded")
    launched.relay(said)
    return code


def show(args: argparse.Namespace, file: Path, out: IO[str]) -> None:
    found = find(args, file)
    if args.html:
        from klogger.why import page as pages

        outputs.write(args.html, pages.page(found, str(file)).encode(errors="replace"))
    with writing(args, out) as place:
        if args.format == "json":
            json.dump(found.as_json(), place, ensure_ascii=place.isatty(), indent=1)
            place.write("\n")
            return
        page = terminal.console(place)  # type: ignore[arg-type]
        for line, style in text.lines(found, str(file), page.width):
            terminal.print_line(page, (line, style))


@contextlib.contextmanager
def writing(args: argparse.Namespace, out: IO[str]) -> Iterator[IO[str]]:
    if args.report is None:
        yield out
        return
    with outputs.failing(args.report), outputs.continued(args.report, append=False) as file:
        yield file


def find(args: argparse.Namespace, file: Path) -> Answer:
    progress = Progress(after=1)
    private_as(file)

    def choose(log: klogger.Log) -> Choice:
        since, until = between(log, args.between) if args.between else (None, None)
        wanted = args.operation and operations.find(log, args.operation, args.by or "")
        return Choice(args.thread, args.program, args.pid, since, until, wanted, args.slowest,
                      pictured=args.html is not None)  # fmt: skip

    with progress:
        return answer.of_file(file, choose, progress)


def between(log: klogger.Log, marks: list[str]) -> tuple[int, int]:
    found = [moment(log, mark) for mark in marks]
    if found[0] >= found[1]:
        raise Failure(f"mark {marks[0]} does not come before mark {marks[1]}")
    return found[0], found[1]


def moment(log: klogger.Log, mark: str) -> int:
    """The time of the first mark of this number or text."""
    rows = log.rows("SELECT number, text, time FROM MARK ORDER BY time") if "MARK" in log.events \
        else []  # fmt: skip
    for number, words, time in rows:
        if mark in (str(number), words):
            return int(time)
    known = ", ".join(f"{number} {words}".strip() for number, words, _ in rows[:8])
    raise Failure(
        f"the log has no mark '{mark}'",
        help=f"it has: {known}" if known else "set marks with 'klogger mark NUMBER'",
    )


if __name__ == "__main__":
    sys.exit(main())
