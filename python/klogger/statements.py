# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Executes the SQL of a file, with what it includes. An error names the file and the line.

Such a file may come with a stranger's log. It asks, and makes temporary objects; it cannot change
the tables of the log, write files, change settings, or run for ever:

- which kinds of statements it has is found out by DuckDB's own parser;
- it runs in a transaction that can write nothing but temporary objects;
- COPY, which DuckDB also takes within WITH, is found among the tokens.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Iterator, Sequence

import duckdb

from klogger import sqlerror
from klogger.analysis import Analysis, remedy
from klogger.deadlines import deadlines
from klogger.failure import Failure
from klogger.sqlerror import Fault

# With the names of what has been included there.
Connection = tuple[duckdb.DuckDBPyConnection, set[str]]
# To the connection for what an analysis, or a file of spans, includes.
Connect = Callable[[Analysis], Connection]

# Those of temporary objects, for the transaction is read only. MULTI: what DuckDB makes of PIVOT.
ALLOWED = {"SELECT", "CREATE", "DROP", "INSERT", "UPDATE", "DELETE", "MULTI"}
# How long one statement may take, in seconds.
LIMIT_NAME, LIMIT_SECONDS = "KLOGGER_QUERY_SECONDS", 300.0
# A single function, as of two long texts, is not interrupted. So much later a command ends.
GRACE_SECONDS = 5.0
# Ends the process with a message. None: a program that uses klogger has other things to do, and
# waits for the statement.
ending: Callable[[Failure], None] | None = None
MAY = "an analysis can query the log and make temporary objects"
# What follows a column of the name "copy", and nothing that COPY writes.
AFTER_A_NAME = tuple("),.=<>+-*/%|")
# Categories of characters: spaces, and what cannot be seen.
INVISIBLE = ("Zs", "Zl", "Zp", "Cf")
QUOTED = re.compile(r'"(?:[^"]|"")*"')
DOLLARS = re.compile(r"\$[^$]*\$?")
READ_ONLY = "BEGIN TRANSACTION READ ONLY"


class Rejected(Failure):
    """SQL that DuckDB rejects: why, and where in the file."""

    def __init__(self, where: str, fault: sqlerror.Fault) -> None:
        super().__init__("\n".join([f"{where}: {fault.lines()[0]}", *fault.lines()[1:]]))
        self.fault = fault


def include(one: Analysis, cursor: duckdb.DuckDBPyConnection, included: set[str]) -> None:
    for name in one.includes:
        if name in included:
            continue
        path = one.folder / f"{name}.sql"
        try:
            text = one.including(name)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}", help=remedy(error) or None) from None
        except UnicodeDecodeError as error:
            raise Failure(f"{path}: byte {error.start} is not UTF-8 text") from None
        execute_whole(cursor, text, str(path))
        included.add(name)


def execute_whole(cursor: duckdb.DuckDBPyConnection, text: str, where: str) -> None:
    """Several statements; if one fails, none has been executed, and the next that includes them
    gets the same error.
    """
    with executed(cursor, text, where):
        pass


@contextlib.contextmanager
def executed(
    cursor: duckdb.DuckDBPyConnection, text: str, where: str
) -> Iterator[duckdb.DuckDBPyConnection]:
    """The rows of the last statement are there until the end of the block."""
    found = check(cursor, text, where)
    with limited(cursor, text, where):
        cursor.execute(READ_ONLY)
        try:
            yield run(cursor, found, text)
        except BaseException:
            with contextlib.suppress(duckdb.Error):
                cursor.execute("ROLLBACK")
            raise
        cursor.execute("COMMIT")


def run(
    cursor: duckdb.DuckDBPyConnection, found: Sequence[duckdb.Statement], text: str
) -> duckdb.DuckDBPyConnection:
    """Executes a text as DuckDB has read it already."""
    if any(statement.type.name == "MULTI" for statement in found) or not found:
        return cursor.execute(text)
    for statement in found:
        cursor.execute(statement)
    return cursor


@contextlib.contextmanager
def limited(cursor: duckdb.DuckDBPyConnection, text: str, where: str) -> Iterator[None]:
    """Errors of DuckDB are told with their place; what takes too long is given up."""
    seconds = limit_seconds()
    over, done = threading.Event(), threading.Event()
    given_up = Failure(
        f"{where}: not done after {seconds:g} s, and given up",
        help=f"{LIMIT_NAME}=SECONDS in the environment gives it more time, 0 all it takes",
    )

    def end() -> None:
        if ending is not None and not done.is_set():
            ending(given_up)

    def stop() -> None:
        # What the cursor does next has a time of its own.
        if done.is_set():
            return
        over.set()
        asked.append(deadlines.add(GRACE_SECONDS, end))
        # It may just have been closed.
        with contextlib.suppress(duckdb.Error):
            cursor.interrupt()

    asked = [deadlines.add(seconds, stop)] if seconds else []
    try:
        yield
    except duckdb.Error as error:
        if over.is_set():
            raise given_up from None
        if "transaction is launched in read-only mode" in str(error):
            raise Rejected(where, Fault(f"{MAY}; this changes the log's own tables")) from None
        raise Rejected(where, sqlerror.fault(error, text)) from None
    finally:
        done.set()
        for one in asked:
            deadlines.cancel(one)


def limit_seconds() -> float:
    text = os.environ.get(LIMIT_NAME, "")
    try:
        seconds = float(text or LIMIT_SECONDS)
    except ValueError:
        seconds = -1.0
    # A timer cannot wait for longer than this.
    if not 0 <= seconds <= threading.TIMEOUT_MAX - GRACE_SECONDS:
        raise Failure(f"{LIMIT_NAME}: '{text}' is not a number of seconds", help="0: no limit")
    return seconds


# The texts that may be executed, as DuckDB has read them: of thousands of logs they are the same.
KNOWN_MAX = 256
known: dict[str, list[duckdb.Statement]] = {}
# DuckDB's module complains of what is still there when Python ends.
atexit.register(known.clear)


def check(cursor: duckdb.DuckDBPyConnection, text: str, where: str) -> Sequence[duckdb.Statement]:
    """Whether it has only what an analysis may do; its statements."""
    found = known.get(text)
    if found is None:
        found = checked(cursor, text, where)
        if len(known) >= KNOWN_MAX:
            known.clear()
        known[text] = found
    return found


def checked(cursor: duckdb.DuckDBPyConnection, text: str, where: str) -> list[duckdb.Statement]:
    with told(text, where):
        found = cursor.extract_statements(text)
    if hidden := strange_space(text):
        raise Rejected(where, hidden)
    for statement in found:
        kind = statement.type.name
        variable = kind == "SET" and words(statement.query)[:2] == ["SET", "VARIABLE"]
        if kind not in ALLOWED and not variable:
            raise Rejected(where, forbidden(kind.replace("_", " "), text))
    if has_copy(text):
        raise Rejected(where, forbidden("COPY", text))
    return found


def has_copy(text: str) -> bool:
    """Whether it writes a file within WITH, as in `WITH a AS (COPY t TO 'file') FROM a`."""
    # Nearly all texts have no such word, and looking at their tokens takes long.
    if "COPY" not in text.upper():
        return False
    tokens = [*words(text), "", ""]
    return any(
        three[:2] == ("(", "COPY") and three[2][:1] not in AFTER_A_NAME
        for three in zip(tokens, tokens[1:], tokens[2:], strict=False)
    )


def strange_space(text: str) -> Fault | None:
    """The first character that cannot be told from a space, or cannot be seen, outside of texts
    and comments. DuckDB takes some of them for spaces, but not where it finds the tokens.
    """
    # Of ASCII only the space is in these categories.
    if text.isascii():
        return None
    for start, token in code(text):
        # The name of a text in dollars counts: DuckDB looks for it among the spaces.
        name = DOLLARS.match(token)
        seen = name[0] if name else QUOTED.sub("", token)
        found = next((c for c in seen if c != " " and unicodedata.category(c) in INVISIBLE), None)
        if found is not None:
            at = start + token.index(found)
            called = unicodedata.name(found, "it has no name").lower()
            line = text.count("\n", 0, at) + 1
            shown = text.split("\n")[line - 1]
            message = f"the character U+{ord(found):04X} ({called}) in the place of a space"
            return Fault(message, line, shown, at - text.rfind("\n", 0, at) - 1)
    return None


def check_query(cursor: duckdb.DuckDBPyConnection, text: str, where: str) -> None:
    """Whether it is one SELECT, which may stand in a statement of klogger's own."""
    if [statement.type.name for statement in check(cursor, text, where)] != ["SELECT"]:
        raise Rejected(where, Fault("a section is one query"))


@contextlib.contextmanager
def told(text: str, where: str) -> Iterator[None]:
    """An error of DuckDB names the file and the line."""
    try:
        yield
    except duckdb.Error as error:
        raise Rejected(where, sqlerror.fault(error, text)) from None


def forbidden(kind: str, text: str) -> Fault:
    number, shown, column = sqlerror.place_of(kind.split(maxsplit=1)[0], text)
    return Fault(f"{MAY}; {kind} is neither", number, shown, column)


def words(text: str) -> list[str]:
    """The tokens of an SQL text, in capitals; texts and comments are left out."""
    found = []
    for _, token in code(text):
        if not token.startswith("$"):
            plain = "".join(" " if unicodedata.category(c) in INVISIBLE else c for c in token)
            found += plain.upper().split()[: 1 if token.startswith('"') else None]
    return found


def code(text: str) -> Iterator[tuple[int, str]]:
    """The tokens but for comments and texts in quotes, each with its place in the text."""
    raw = text.encode()
    tokens = duckdb.tokenize(text)
    ends = [start for start, _ in tokens[1:]] + [len(raw)]
    place = end_before = 0
    for (start, kind), end in zip(tokens, ends, strict=True):
        place += len(raw[end_before:start].decode(errors="replace"))
        end_before = start
        token = raw[start:end].decode(errors="replace")
        if kind.name == "comment" or (kind.name == "string_const" and not token.startswith("$")):
            continue
        yield place, token
