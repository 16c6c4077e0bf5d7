# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Executes the SQL of a file, with what it includes. An error names the file and the line.

Such a file may come with a stranger's log. It asks, and makes temporary objects; it cannot change
the tables of the log, write files, change settings, or run for ever:

- which kinds of statements it has is found out by DuckDB's own parser;
- it runs in a transaction that can write nothing but temporary objects;
- COPY, which DuckDB also takes within WITH, is found among the tokens.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator

import duckdb

from klogger import sources, sqlerror
from klogger.analysis import Analysis, remedy, schemata
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
MAY = "an analysis can query the log and make temporary objects"
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
            text = sources.read(path, schemata())
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
    check(cursor, text, where)
    with limited(cursor, text, where):
        cursor.execute(READ_ONLY)
        try:
            yield cursor.execute(text)
        except BaseException:
            with contextlib.suppress(duckdb.Error):
                cursor.execute("ROLLBACK")
            raise
        cursor.execute("COMMIT")


@contextlib.contextmanager
def limited(cursor: duckdb.DuckDBPyConnection, text: str, where: str) -> Iterator[None]:
    """Errors of DuckDB are told with their place; what takes too long is given up."""
    seconds = limit_seconds()
    over = threading.Event()

    def stop() -> None:
        over.set()
        cursor.interrupt()

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    if seconds:
        timer.start()
    try:
        yield
    except duckdb.Error as error:
        if over.is_set():
            raise Failure(
                f"{where}: not done after {seconds:g} s, and given up",
                help=f"{LIMIT_NAME}=SECONDS in the environment gives it more time, 0 all it takes",
            ) from None
        if "transaction is launched in read-only mode" in str(error):
            raise Rejected(where, Fault(f"{MAY}; this changes the log's own tables")) from None
        raise Rejected(where, sqlerror.fault(error, text)) from None
    finally:
        timer.cancel()


def limit_seconds() -> float:
    text = os.environ.get(LIMIT_NAME, "")
    try:
        seconds = float(text or LIMIT_SECONDS)
    except ValueError:
        seconds = -1.0
    # A timer cannot wait for longer than this.
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise Failure(f"{LIMIT_NAME}: '{text}' is not a number of seconds", help="0: no limit")
    return seconds


def check(cursor: duckdb.DuckDBPyConnection, text: str, where: str) -> None:
    """Whether it has only what an analysis may do."""
    with told(text, where):
        found = cursor.extract_statements(text)
    for statement in found:
        kind = statement.type.name
        variable = kind == "SET" and words(statement.query)[:2] == ["SET", "VARIABLE"]
        if kind not in ALLOWED and not variable:
            raise Rejected(where, forbidden(kind.replace("_", " "), text))
    if has_copy(text):
        raise Rejected(where, forbidden("COPY", text))


def has_copy(text: str) -> bool:
    """Whether it writes a file within WITH, as in `WITH a AS (COPY t TO 'file') FROM a`."""
    tokens = words(text)
    return ("(", "COPY") in itertools.pairwise(tokens)


def check_query(cursor: duckdb.DuckDBPyConnection, text: str, where: str) -> None:
    """Whether it is one SELECT, which may stand in a statement of klogger's own."""
    check(cursor, text, where)
    kinds = [statement.type.name for statement in cursor.extract_statements(text)]
    if kinds != ["SELECT"]:
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
    tokens = duckdb.tokenize(text)
    ends = [start for start, _ in tokens[1:]] + [len(text.encode())]
    raw = text.encode()
    found = []
    for (start, kind), end in zip(tokens, ends, strict=True):
        if kind.name not in ("comment", "string_const"):
            found += raw[start:end].decode(errors="replace").upper().split()[:1]
    return found
