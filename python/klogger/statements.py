# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Executes the SQL of a file, with what it includes. An error names the file and the line."""

from __future__ import annotations

from collections.abc import Callable

import duckdb

from klogger import sqlerror
from klogger.analysis import Analysis
from klogger.failure import Failure

# With the names of what has been included there.
Connection = tuple[duckdb.DuckDBPyConnection, set[str]]
# To the connection for what an analysis, or a file of spans, includes.
Connect = Callable[[Analysis], Connection]


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
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"{path}: {error}") from None
        execute_whole(cursor, text, str(path))
        included.add(name)


def execute_whole(cursor: duckdb.DuckDBPyConnection, text: str, where: str) -> None:
    """Several statements; if one fails, none has been executed, and the next that includes them
    gets the same error.
    """
    cursor.execute("BEGIN")
    try:
        execute(cursor, text, where)
    except Failure:
        cursor.execute("ROLLBACK")
        raise
    cursor.execute("COMMIT")


def execute(cursor: duckdb.DuckDBPyConnection, text: str, where: str) -> duckdb.DuckDBPyConnection:
    try:
        return cursor.execute(text)
    except duckdb.Error as error:
        raise Rejected(where, sqlerror.fault(error, text)) from None
