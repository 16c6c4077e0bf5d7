# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A recorder between the shell and a command, which gets what it would get from the shell.

The command is in our process group, which has the terminal; the recorder is in one of its own. So
the keys of the terminal (Ctrl-C, Ctrl-Z) are for the command, as without klogger. It has our
standard error, and what else was passed on to us.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from klogger.cli import complain
from klogger.failure import Failure
from klogger.program import Said, cannot_run, failure_of

# What the command ignores, as the shell has it: Python ignores two of them from its start on, so
# `klogger` says what was ignored before.
BY_PYTHON = {int(signal.SIGPIPE), int(signal.SIGXFSZ)}
SAID = os.environ.pop("KLOGGER_IGNORED", "").split(",")
IGNORED = {int(n) for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN}
IGNORED -= BY_PYTHON
IGNORED |= {int(number) for number in SAID if number.isdecimal()}


def check(command: Sequence[str], usage: str) -> None:
    """Whether `command` (empty: there is none) is there, and can be recorded. `usage`: the start of
    the command line that needs root.
    """
    if command and shutil.which(command[0]) is None:
        raise Failure(
            f"cannot run '{command[0]}': there is no such command",
            help="give its path, or check its spelling and the PATH",
        )
    if os.geteuid() != 0:
        raise Failure("only root can record", help=f"sudo {usage} ...")


def start(
    words: Sequence[str], command: Sequence[str], messages: Path, passed: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Runs `klogger record` or `klogger trace`, as `words` has it, with the command. What it says
    goes to `messages`. `passed`: descriptors that it gets as well.
    """
    error = os.dup(2)
    own = ["--command-group", str(os.getpgrp()), "--command-stderr", str(error)]
    if IGNORED:
        own += ["--command-ignores", ",".join(map(str, sorted(IGNORED)))]
    try:
        for descriptor in (error, *passed):
            os.set_inheritable(descriptor, True)
        with messages.open("wb") as said:
            # The command has what was passed on to us: the recorder passes it on. Our own
            # descriptors are not inherited.
            return subprocess.Popen(
                [*words, *own, *(["--", *command] if command else [])],
                process_group=0, stderr=said, close_fds=False,
            )  # fmt: skip
    except OSError as failed:
        raise cannot_run(words[0], failed) from None
    finally:
        os.close(error)


def exit_code(process: subprocess.Popen[bytes]) -> int:
    """The command's; waits for the recorder to complete its log."""
    code = process.wait()
    return 128 - code if code < 0 else code


def said(messages: Path) -> Said:
    """The messages of the recorder, when it has ended."""
    found = Said()
    found.add(messages.read_text(errors="replace").splitlines())
    return found


def relay(found: Said) -> None:
    """What it has to say to people."""
    for message in [*found.of("note"), *found.of("error")]:
        complain(failure_of(message))
    for line in found.others:
        complain(line)


@contextlib.contextmanager
def signals_are_the_commands(end: Callable[[], None], *, is_any: bool = True) -> Iterator[None]:
    """Keys of the terminal reach the command without us. SIGTERM and SIGHUP end the command; if
    there is none (`is_any`), the keys end the recording.
    """

    def ignore(_number: int, _frame: FrameType | None) -> None:
        pass

    def ends(_number: int, _frame: FrameType | None) -> None:
        end()

    # Handlers, because a signal that is ignored would be so in the command too.
    key = ignore if is_any else ends
    wanted = {signal.SIGINT: key, signal.SIGQUIT: key, signal.SIGTERM: ends, signal.SIGHUP: ends}
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
