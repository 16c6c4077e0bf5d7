# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A recording that an agent asks for, within the bounds that the user has set: schemata, seconds,
bytes, and of whom.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klogger import outputs, program
from klogger.claims.stated import cut, stated
from klogger.failure import Failure
from klogger.units import printable
from klogger_lab.mcp.allowed import EXAMPLE, Allowed, Recordings
from klogger_lab.mcp.arguments import is_finite
from klogger_lab.recorder import Recorder

LOOK = 0.01
# After the time that was asked for, the recorder drains its rings and completes the log.
FINISHING = 30.0
# Seconds that a process may take to end when it is asked to.
PATIENCE = 2.0
SAID_MAX = 600
WORD_MAX, WORDS_MAX = 4096, 64


@dataclass(frozen=True)
class Wish:
    """What is asked for. Exactly one of `command`, `pid` and `all`; a command may have `all` too:
    of all processes, while it runs.
    """

    schemata: tuple[str, ...]
    seconds: float | None = None
    command: tuple[str, ...] = ()
    pid: int | None = None
    all: bool = False


def bounds(allowed: Allowed, wish: Wish) -> tuple[Recordings, float]:
    """What is allowed, and for how long; raises Failure if the wish is not."""
    record = allowed.record
    if record is None:
        raise Failure(
            f"recording is not allowed by {allowed.file}",
            help=f"the user may allow it there, for example:\n{EXAMPLE}",
        )
    if not wish.schemata:
        raise Failure("no schema is named", help="'list_schemata' lists them")
    for name in wish.schemata:
        if name not in record.schemata:
            listed = ", ".join(f'"{one}"' for one in dict.fromkeys((*record.schemata, name)))
            raise allowed.refused(
                f"to record the schema '{printable(name)}'", f"schemata = [{printable(listed)}]"
            )
    asked = [bool(wish.command), wish.pid is not None]
    if wish.pid is not None and wish.pid < 1:
        raise Failure(f"{wish.pid} is no process")
    if sum(asked) > 1 or not (any(asked) or wish.all) or (wish.pid is not None and wish.all):
        raise Failure("say of whom: a command, a pid, or all")
    for wanted, is_allowed, what, key in (
        (bool(wish.command), record.commands, "to run a command", "commands"),
        (wish.pid is not None, record.pids, "to record a running process", "pids"),
        (wish.all, record.all, "to record all processes", "all"),
    ):
        if wanted and not is_allowed:
            raise allowed.refused(what, f"{key} = true, in [record]")
    seconds = wish.seconds if wish.seconds is not None else min(record.seconds, 5.0)
    if not is_finite(seconds):
        raise Failure("'seconds' is not a number of seconds")
    if not 0 < seconds <= record.seconds:
        raise allowed.refused(
            f"to record for {seconds:g} s", f"seconds = {seconds:g}, in [record]; up to"
            f" {record.seconds:g} s is allowed"
        )  # fmt: skip
    return record, seconds


def check_folder(folder: Path) -> None:
    try:
        why = outputs.foreign(folder)
    except OSError as error:
        raise Failure(f"{folder}: {error.strerror}", help=f"mkdir -m 700 {folder}") from None
    if why:
        raise Failure(f"{folder}: {why}", help="name a folder that only the user can write")


def record(allowed: Allowed, wish: Wish, ending: threading.Event) -> dict[str, Any]:
    """What was recorded. `ending`: set when the server is to end."""
    bounded, seconds = bounds(allowed, wish)
    check_folder(bounded.folder)
    log = bounded.folder / f"mcp-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}.klog"
    options: list[str] = ["-o", str(log), "--for", f"{max(round(seconds * 1000), 1)}ms"]
    for name in wish.schemata:
        options += ["-s", name]
    if wish.pid is not None:
        options += ["-p", str(wish.pid)]
    options += ["-a"] if wish.all else []
    with tempfile.TemporaryDirectory(prefix="klogger-mcp-") as folder:
        recorder = Recorder(options, Path(folder) / "messages", command=wish.command)
        try:
            with recorder:
                recorder.wait_started(ending=ending)
                ended = watched(recorder, log, bounded.bytes, seconds, ending)
        finally:
            end_group(recorder.pid)
        code = recorder.process.poll()
        said = recorder.read()
    if not log.exists():
        raise said.failure("nothing was recorded")
    return summary(log, ended, code, said, is_command=bool(wish.command))


def end_group(group: int) -> None:
    """Ends what the command has started and left: nobody else would. The recorder, which was the
    first of the group, has ended.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + PATIENCE
        # What is left may have another user's rights: then there is an answer all the same.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
            while time.monotonic() < until:
                os.killpg(group, 0)
                time.sleep(LOOK)


def watched(
    recorder: Recorder, log: Path, most: int, seconds: float, ending: threading.Event
) -> str:
    """Until the recording ends, or has to; why it ended."""
    until = time.monotonic() + seconds + FINISHING
    while recorder.process.poll() is None:
        with contextlib.suppress(OSError):
            if log.stat().st_size > most:
                recorder.stop()
                return f"it had {most} bytes"
        if ending.is_set():
            recorder.stop()
            return "the server was to end"
        if time.monotonic() > until:
            recorder.stop()
            return "it did not end by itself"
        with contextlib.suppress(subprocess.TimeoutExpired):
            recorder.process.wait(LOOK)
    return "the command or the time ended"


def summary(
    log: Path, ended: str, code: int | None, said: program.Said, *, is_command: bool
) -> dict[str, Any]:
    info = program.answer("info", log)
    notes = [str(note.get("text")) for note in [*said.of("note"), *said.of("error")]]
    others = "\n".join(said.others)
    return {
        "log": str(log), "ended": ended,
        **({"exit_code": code} if is_command else {}),
        "events": info.get("logged"), "lost": info.get("lost"), "bytes": os.stat(log).st_size,
        "notes": [stated(note) for note in notes[:4]],
        **({"stderr": cut(printable(others[-SAID_MAX:]), SAID_MAX)} if others else {}),
        "next": ["report", *(["why"] if "BLOCKED" in json.dumps(info.get("events")) else []),
                 "losses"],
    }  # fmt: skip


def words_of(command: Sequence[Any]) -> tuple[str, ...]:
    """A command as a list of words: no shell reads it."""
    if not all(isinstance(word, str) and "\0" not in word for word in command):
        raise Failure("'command' is not a list of words")
    if len(command) > WORDS_MAX or any(len(word) > WORD_MAX for word in command):
        raise Failure("the command is too long", help="put it into a script")
    return tuple(command)
