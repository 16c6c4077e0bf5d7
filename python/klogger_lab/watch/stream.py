# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The events of a command, while it runs: `klogger trace` records it and prints them.

The command is in our process group, which has the terminal; the recorder is in one of its own. So
the keys of the terminal (Ctrl-C, Ctrl-Z) are for the command, as without klogger. It has our
standard error, and what else was passed on to us.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, TracebackType

from klogger.program import JSON, Said, cannot_run, find_klogger
from klogger_lab.watch.detect import Event

SCHEMATA = ("lifecycle", "futex")
# Those that are looked at; others are not even decoded.
EVENTS = re.compile(rb'"event":"(STARTED|RAN|ENDED|SIGNALLED|DELIVERED|WAIT|WAITED|WOKE)"')
# What the command ignores, as the shell has it: Python ignores two of them from its start on, so
# `klogger` says what was ignored before.
BY_PYTHON = {int(signal.SIGPIPE), int(signal.SIGXFSZ)}
SAID = os.environ.pop("KLOGGER_IGNORED", "").split(",")
IGNORED = {int(n) for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN}
IGNORED -= BY_PYTHON
IGNORED |= {int(number) for number in SAID if number.isdecimal()}
PART = 1 << 16
# A line is shorter than this, whatever a damaged ring has in it.
LINE_MAX = 1 << 20
# A recorder that was told to end takes the command 5 s to end; then it has its log to write.
PATIENCE = 30.0
COMPLETES = 5.0


class Stream:
    """To be entered; when it is left, the recorder has ended. `log`: what is recorded; `messages`:
    a file for what the recorder says.
    """

    def __init__(self, schemata: Sequence[str], log: Path, messages: Path) -> None:
        self.words = [find_klogger(), "trace", *JSON, "--format", "json", "--log", str(log)]
        self.words += [word for schema in (*SCHEMATA, *schemata) for word in ("-s", schema)]
        self.log = log
        self.messages = messages
        self.rest = b""
        self.ending = False

    def start(self, command: Sequence[str]) -> None:
        self.reader, writer = os.pipe()
        error = os.dup(2)
        own = ["--command-group", str(os.getpgrp()), "--command-stderr", str(error)]
        if IGNORED:
            own += ["--command-ignores", ",".join(map(str, sorted(IGNORED)))]
        words = [*self.words, *own, "-o", f"/dev/fd/{writer}", "--", *command]
        for descriptor in (writer, error):
            os.set_inheritable(descriptor, True)
        try:
            with self.messages.open("wb") as said:
                # The command has what was passed on to us: the recorder passes it on. Our own
                # descriptors are not inherited.
                self.process = subprocess.Popen(
                    words, process_group=0, stderr=said, close_fds=False
                )
        except OSError as failed:
            os.close(self.reader)
            raise cannot_run(words[0], failed) from None
        finally:
            os.close(writer)
            os.close(error)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Also if we fail: the recorder, and with it the command, does not run on."""
        self.end()
        # Without a reader it does not wait for one.
        os.close(self.reader)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        """Tells the recorder, once, to end the command."""
        if not self.ending and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.ending = True

    def events(self, patience: float) -> list[Event] | None:
        """What has come, as soon as something has, or nothing after so many seconds. None: there
        will be no more.
        """
        if not select.select([self.reader], [], [], patience)[0]:
            return []
        found = os.read(self.reader, PART)
        if not found:
            return None
        *lines, self.rest = (self.rest + found).split(b"\n")
        if len(self.rest) > LINE_MAX:
            self.rest = b""
        return [event for line in lines for event in parsed(line)]

    def said(self) -> Said:
        """The messages of the recorder, when it has ended."""
        found = Said()
        found.add(self.messages.read_text(errors="replace").splitlines())
        return found

    def wait(self) -> None:
        """A recorder that answers nobody completes its log."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(COMPLETES)

    def code(self) -> int:
        """The command's, after the last event; waits for the recorder to complete its log."""
        code = self.process.wait()
        return 128 - code if code < 0 else code


def parsed(line: bytes) -> Iterator[Event]:
    if not EVENTS.search(line):
        return
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict):
            yield found


@contextlib.contextmanager
def signals_are_the_commands(stream: Stream) -> Iterator[None]:
    """Keys of the terminal reach the command without us. SIGTERM and SIGHUP end the command."""

    def ignore(_number: int, _frame: FrameType | None) -> None:
        pass

    def end(_number: int, _frame: FrameType | None) -> None:
        stream.end()

    # Handlers, because a signal that is ignored would be so in the command too.
    wanted = {signal.SIGINT: ignore, signal.SIGQUIT: ignore, signal.SIGTERM: end}
    wanted[signal.SIGHUP] = end
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
