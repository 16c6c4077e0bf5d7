# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The events of a command, while it runs: `klogger trace` records it and prints them."""

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
from types import TracebackType

from klogger.failure import Failure
from klogger.program import JSON, find_klogger
from klogger_lab import launched
from klogger_lab.watch.detect import Event

SCHEMATA = ("lifecycle", "futex")
# Those that are looked at; others are not even decoded.
EVENTS = re.compile(rb'"event":"(STARTED|RAN|ENDED|SIGNALLED|DELIVERED|WAIT|WAITED|WOKE)"')
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
        words = [*self.words, "-o", f"/dev/fd/{writer}"]
        try:
            self.process = launched.start(words, command, self.messages, [writer])
        except Failure:
            os.close(self.reader)
            raise
        finally:
            os.close(writer)

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

    def wait(self) -> None:
        """A recorder that answers nobody completes its log."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(COMPLETES)


def parsed(line: bytes) -> Iterator[Event]:
    if not EVENTS.search(line):
        return
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict):
            yield found
