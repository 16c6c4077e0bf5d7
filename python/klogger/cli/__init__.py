# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The programs `klogger-sql`, `klogger-report` and their like: one module for each.

**Invariant:** nothing outside this package prints or exits, but for the exporter's note of where
its tables are.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import errno
import io
import json
import os
import re
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, NoReturn

from klogger import statements
from klogger.export import Printed
from klogger.failure import Failure, nearest
from klogger.units import printable

# What a standard output ends with that is full, closed, or on a disk that fails.
OUTPUT = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EFBIG, errno.EDQUOT, errno.EPIPE)
CLEANING_SECONDS = 5.0
# The environment variable that says how messages are printed.
MESSAGES = "KLOGGER_MESSAGES"


class Parser(argparse.ArgumentParser):
    """Says of an option that does not exist which one may have been meant."""

    def error(self, message: str) -> NoReturn:
        before, what, words = message.partition("unrecognized arguments: ")
        if what and not before:
            message += self.tip(words.split())
        if "help: " not in message:
            message += f"\n  help: '{self.prog} --help' lists the options"
        complain(message, self.prog)
        raise SystemExit(2)

    def tip(self, words: list[str]) -> str:
        option = next((word.split("=")[0] for word in words if word.startswith("-")), None)
        found = nearest(option, self._option_string_actions) if option else []
        return f"\n  help: did you mean {found[0]}?" if found else ""


class Messages(argparse.Action):
    """`--messages json`: each message is an object, as docs/messages.md describes. A variable of
    the environment keeps it, which klogger sets for the programs that it runs.
    """

    def __call__(self, _parser: object, _args: object, value: object, _option: object = "") -> None:
        os.environ[MESSAGES] = str(value)


class Paged(argparse.Action):
    """`--no-pager`, as `$KLOGGER_PAGER` is in `pager`."""

    def __call__(
        self, _parser: object, _args: object, _value: object, _option: object = ""
    ) -> None:
        os.environ["KLOGGER_PAGER"] = ""


def add_common(found: argparse.ArgumentParser, *, is_read: bool = False) -> None:
    """The options that all commands have. `is_read`: its text goes to a pager."""
    found.add_argument(
        "--messages", choices=["text", "json"], action=Messages, default=argparse.SUPPRESS,
        help="format of messages on standard error; json: one object per line (text)",
    )  # fmt: skip
    if is_read:
        found.add_argument(
            "--no-pager", action=Paged, nargs=0, default=argparse.SUPPRESS,
            help="print directly to the terminal, without $KLOGGER_PAGER, $PAGER or less",
        )  # fmt: skip


def output(word: str) -> Path:
    """Where an option's file is written. `-` is no name for it: other texts go to the standard
    output, too.
    """
    if word == "-":
        raise argparse.ArgumentTypeError(
            "'-' is no file\n  help: /dev/stdout is the standard output, ./- a file of that name"
        )
    return Path(word)


def complain(what: object, who: str = "klogger") -> None:
    """A message on the standard error, as wide as its terminal: an error if it is a Failure, else a
    note. A log is untrusted, and its names must not act on the terminal.
    """
    if os.environ.get(MESSAGES) == "json":
        kind = "note" if who == "klogger" else "error"
        said: dict[str, object] = {"message": kind, "text": str(what)}
        if isinstance(what, Failure):
            said = {"message": "error", "text": what.message, "help": what.help}
        say(json.dumps(said))
        return
    say(fitted(f"{who}: {what}", sys.stderr))


def say(line: str) -> None:
    """Where nobody can read it, it is not said."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def complain_of(missing: Mapping[str, str]) -> None:
    """Of recordings of a dataset."""
    for log, why in missing.items():
        complain(f"warning: recording {log} is left out: {why}")


def fitted(text: str, file: IO[str]) -> str:
    """Harmless, and as wide as the terminal if the file is one: lines are broken between words, and
    what follows is under the first word after the label, as width.rs does it.
    """
    lines = [printable(line) for line in text.split("\n")]
    if not file.isatty():
        return "\n".join(lines)
    columns = max(shutil.get_terminal_size().columns, 40)
    found = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        # A caret is under the word of the line that it marks.
        marked = after.strip() == "^" or not line.strip("^ ")
        found += [line.rstrip()] if marked else broken(line, columns)
    return "\n".join(found)


def broken(line: str, columns: int) -> list[str]:
    label = re.match(r" +[a-z]+: ", line)
    blanks = len(label[0]) if label else len(line) - len(line.lstrip()) + 2
    return textwrap.wrap(
        line,
        columns,
        subsequent_indent=" " * blanks,
        break_long_words=False,
        break_on_hyphens=False,
    )


def private_as(*logs: str | os.PathLike[str]) -> None:
    """What this process writes from now on can be read only by users who can read these logs."""
    for log in logs:
        with contextlib.suppress(OSError):
            mode = os.stat(log).st_mode
            hidden = (0o070 if not mode & 0o040 else 0) | (0o007 if not mode & 0o004 else 0)
            os.umask(os.umask(0o077) | hidden)


def guarded(work: Callable[[], int]) -> int:
    """Runs a command: a Failure becomes one message and exit code 2, and so does an output that
    cannot be written.
    """
    # As other filters do: `klogger sql ... | head` ends without a word.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # While it is ignored, the exit codes of programs that we run are lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prepare_streams()
    statements.ending = end_process
    try:
        code = ended(work)
        sys.stdout.flush()
        return code
    except OSError as error:
        if error.filename is not None or error.errno not in OUTPUT:
            raise
        # What is left of it must not be written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        complain(Failure(f"cannot write to the standard output: {error.strerror}"))
        return 2


def end_process(failure: Failure) -> None:
    """From another thread than the one that works, which does not come to its end."""
    complain(failure)
    # What removes temporary files must not keep the process.
    cleaning = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    cleaning.start()
    cleaning.join(CLEANING_SECONDS)
    os._exit(2)


def prepare_streams() -> None:
    """A descriptor that was closed by the caller leads nowhere: a file that is opened later must
    not get its number. A character that the locale does not have is written as its number.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free.
            os.open(os.devnull, os.O_RDWR)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def ended(work: Callable[[], int]) -> int:
    """The exit code of a command."""
    try:
        return work()
    except Printed:
        return 2
    except Failure as failure:
        complain(failure)
        return 2
    except KeyboardInterrupt:
        return 130


class Progress:
    """Says on a terminal what is being done, and leaves nothing behind. `after`: only from so many
    seconds after this was made. `name`: of what is under way.
    """

    def __init__(self, name: str = "", *, after: float = 0.0) -> None:
        self.name = name
        self.begin = time.monotonic() + after
        self.shown = 0

    def __enter__(self) -> Progress:
        return self

    def __call__(self, what: str) -> None:
        if sys.stderr.isatty() and time.monotonic() >= self.begin:
            line = f"{self.name}: {what}" if self.name else f"{what} ..."
            line = line[: shutil.get_terminal_size().columns - 1]
            print(line.ljust(self.shown), end="\r", file=sys.stderr, flush=True)
            self.shown = len(line)

    def clear(self) -> None:
        if self.shown:
            print(" " * self.shown, end="\r", file=sys.stderr, flush=True)
        self.shown = 0

    def __exit__(self, *_: object) -> None:
        self.clear()
