# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads what somebody types at a prompt: queries of several lines, and commands with a dot."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb

from klogger import outputs
from klogger.failure import Failure

HISTORY_MAX = 1000


def entries(names: Iterable[str] = ()) -> Iterator[str]:
    """Each query with its `;`, and each command, until the end of the input. On a terminal there
    are a history, and the completion of `names`; Ctrl-C gives up the query.
    """
    terminal = sys.stdin.isatty()
    with editing(names) if terminal else contextlib.nullcontext():
        lines: list[str] = []
        while True:
            try:
                line = ask("klogger> " if not lines else "     ... ") if terminal else input()
            except KeyboardInterrupt:
                if not terminal:
                    raise
                print(file=sys.stderr)
                lines = []
                continue
            except EOFError:
                if terminal:
                    print(file=sys.stderr)
                break
            if not lines and line.strip().startswith((".", "\\")):
                yield line.strip()
                continue
            lines.append(line)
            if not "".join(lines).strip():
                lines = []
            elif is_whole("\n".join(lines)):
                yield "\n".join(lines)
                lines = []
        if lines and not terminal:
            yield "\n".join(lines)


def ask(prompt: str) -> str:
    """The prompt goes to the standard error if the answers go to a file."""
    if sys.stdout.isatty():
        return input(prompt)
    print(prompt, end="", file=sys.stderr, flush=True)
    return input()


def is_whole(text: str) -> bool:
    """Whether it ends with a semicolon, which is not in a text or a comment."""
    try:
        places = [at for at, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]
    except duckdb.Error:
        return False
    return bool(places) and text[places[-1] :].lstrip().startswith(";")


@contextlib.contextmanager
def editing(names: Iterable[str]) -> Iterator[None]:
    """Of lines, by readline."""
    try:
        import readline
    except ImportError:
        yield
        return
    history = state_home() / "sql_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(HISTORY_MAX)
    known = sorted(set(names))

    def complete(word: str, number: int) -> str | None:
        found = [name for name in known if name.lower().startswith(word.lower())]
        return found[number] if number < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,()=<>+-*/'\"")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        with contextlib.suppress(OSError, Failure):
            outputs.own_folder(history.parent)
            readline.write_history_file(history)
            history.chmod(0o600)


def state_home() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "klogger"
