# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which views and functions a connection has, so that one that opens log after log makes only
those that differ from the log before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb


class Made:
    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        # By name, what it was made from.
        self.sources: dict[str, tuple[object, ...]] = {}
        # Those of the log that is being opened.
        self.wanted: set[str] = set()
        # What was found out of the logs before, by the digests of their entries (`opening`).
        self.found: dict[tuple[str, str], Any] = {}

    def begin(self) -> None:
        """The next log."""
        self.wanted = set()

    def is_there(self, name: str, *source: object) -> bool:
        """Whether it is made from this already. If not, the caller makes it."""
        self.wanted.add(name)
        if self.sources.get(name) == source:
            return True
        self.sources[name] = source
        return False

    def define(self, name: str, text: str, form: object = None) -> None:
        """`text`: statements that replace what has the name. `form`: what else it depends on."""
        if not self.is_there(name, text, form):
            self.connection.execute(text)

    def view(self, name: str, query: str, form: object = None) -> None:
        self.define(name, f"CREATE OR REPLACE VIEW {name} AS {query}", form)

    def table(
        self, name: str, query: str, values: Sequence[object] = (), *, same: bool = False
    ) -> None:
        """`same`: the rows depend on nothing but the query and the values."""
        if not self.is_there(name, *((query, repr(values)) if same else (object(),))):
            self.connection.execute(f"CREATE OR REPLACE TABLE {name} AS {query}", values)

    def forget(self, start: str) -> None:
        """Something has changed the tables whose names begin so."""
        for name in [name for name in self.sources if name.startswith(start)]:
            self.sources[name] = ()

    def end(self) -> None:
        """Removes what the logs before had and this one does not. Fails if that cannot be."""
        for name in sorted(self.sources.keys() - self.wanted):
            if not name.startswith("main."):
                raise duckdb.Error(f"{name}: this log does not have it")
            self.connection.execute(f"DROP VIEW {name}")
            del self.sources[name]
