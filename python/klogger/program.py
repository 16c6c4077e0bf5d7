# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The klogger program: where it is, and what it says. Its messages are read as JSON
(docs/messages.md), never as text.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klogger.failure import Failure

JSON = ("--messages", "json")


def own_file() -> Path | None:
    """The file of this program. None for `python -c` and prompts: the current folder, whose files
    may be another user's, is no place for parts of klogger.
    """
    return Path(sys.argv[0]) if "/" in sys.argv[0] else None


def find_klogger() -> str:
    """$KLOGGER, else the program beside this one, else the one on the PATH."""
    named = os.environ.get("KLOGGER")
    if named:
        return named
    for file in filter(None, (own_file(), Path(sys.executable))):
        if os.access(file.with_name("klogger"), os.X_OK):
            return str(file.with_name("klogger"))
    found = shutil.which("klogger")
    if found is None:
        raise Failure(
            "cannot find the klogger program, which reads logs",
            help="put it on the PATH, or set KLOGGER to it",
        )
    return found


@dataclass
class Said:
    """What stood on a standard error: klogger's messages, and the lines of others (the command that
    was recorded).
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def add(self, lines: Iterable[str]) -> None:
        for line in lines:
            message = message_of(line)
            if message is not None:
                self.messages.append(message)
            else:
                self.others.append(line)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The messages of a kind: `started`, `note`, `error`, ..."""
        return [m for m in self.messages if m["message"] == kind]

    def failure(self, otherwise: str) -> Failure:
        """The first error, else what others said, else the words that are given."""
        for error in self.of("error"):
            return failure_of(error)
        return Failure("\n".join(self.others).strip() or otherwise)


def said(text: str) -> Said:
    found = Said()
    found.add(text.splitlines())
    return found


def message_of(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("message"), str) else None


def failure_of(error: dict[str, Any]) -> Failure:
    """A message for people, with its place in a schema, if it has one."""
    file, line = error.get("file"), error.get("line")
    place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
    return Failure(f"{place}{error.get('text')}", help=error.get("help"))


def cannot_run(program: str, error: OSError) -> Failure:
    return Failure(
        f"cannot run {program}: {error.strerror}", help="set KLOGGER to the klogger program"
    )


def klogger(*words: str | os.PathLike[str], timeout: float | None = None) -> str:
    """Runs a command that records nothing, and returns its output; its error becomes a Failure."""
    command = [find_klogger(), *map(str, words), *JSON]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout, check=False
        )
    except OSError as error:
        raise cannot_run(command[0], error) from None
    except subprocess.TimeoutExpired:
        raise Failure(f"'klogger {words[0]}' has not ended after {timeout:.0f} s") from None
    if done.returncode != 0:
        otherwise = f"'klogger {words[0]}' failed with exit code {done.returncode}"
        raise said(done.stderr).failure(otherwise)
    return done.stdout


def answer(*words: str | os.PathLike[str], timeout: float | None = None) -> Any:
    """What a command says with `--format json`."""
    text = klogger(*words, "--format", "json", timeout=timeout)
    try:
        return json.loads(text)
    except ValueError:
        raise Failure(f"'klogger {words[0]}' gave no JSON") from None
