# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Columns of a dataset: of the types that every engine has, and back to those of a log.

Spark, Trino and others have no unsigned integers. One of 8, 16 or 32 bits is kept in the next
larger signed type. One of 64 bits is kept in a BIGINT with the same bits: a value of 2^63 or more
is negative there (two's complement), so that values are equal if they were, but are not ordered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from klogger.sqltext import identifier, literal

WIDER = {"UTINYINT": "SMALLINT", "USMALLINT": "INTEGER", "UINTEGER": "BIGINT"}
# The columns of every event's rows in a dataset, and those that the folders' names give. A field
# with such a name has a `_` added.
OWN = ("host", "log", "wall_ns", "schema", "event", "recording")
ELEMENT = '"klogger element"'
Converter = Callable[[str, str], str]


@dataclass(frozen=True)
class Column:
    """`name` and `type` as the log has them."""

    name: str
    type: str

    @property
    def stored(self) -> str:
        """Its name in the dataset."""
        return self.name + "_" if self.name.rstrip("_") in OWN else self.name

    def to_stored(self) -> str:
        return (
            f"{expression(identifier(self.name), self.type, signed)} AS {identifier(self.stored)}"
        )

    def from_stored(self) -> str:
        source = identifier(self.stored)
        return f"{expression(source, self.type, unsigned)} AS {identifier(self.name)}"


def expression(source: str, kind: str, convert: Converter) -> str:
    if kind.endswith("[]"):
        inner = expression(ELEMENT, kind[:-2], convert)
        return (
            source if inner == ELEMENT else f"list_transform({source}, lambda {ELEMENT}: {inner})"
        )
    return convert(source, kind)


def signed(source: str, kind: str) -> str:
    if kind == "UBIGINT":
        return (
            f"CASE WHEN {source} > 9223372036854775807"
            f" THEN ({source}::HUGEINT - 18446744073709551616)::BIGINT ELSE {source}::BIGINT END"
        )
    return f"{source}::{WIDER[kind]}" if kind in WIDER else source


def unsigned(source: str, kind: str) -> str:
    if kind == "UBIGINT":
        return (
            f"CASE WHEN {source} < 0"
            f" THEN ({source}::HUGEINT + 18446744073709551616)::UBIGINT ELSE {source}::UBIGINT END"
        )
    return f"{source}::{kind}" if kind in WIDER else source


def written(columns: Iterable[Column], host: str, log: str, wall_ns: str | None) -> str:
    """What a dataset has of the rows of a log. `wall_ns`: an expression; None: the table has no
    such column.
    """
    own = [f"{literal(host)} AS host", f"{literal(log)} AS log"]
    own += [f"({wall_ns})::BIGINT AS wall_ns"] if wall_ns is not None else []
    return ", ".join([*own, *(c.to_stored() for c in columns)])


def read(columns: Iterable[Column]) -> str:
    """The other way round."""
    return ", ".join(c.from_stored() for c in columns)


def nothing(columns: Iterable[Column]) -> str:
    """A query without rows."""
    return f"SELECT {', '.join(f'NULL::{c.type} AS {identifier(c.name)}' for c in columns)} LIMIT 0"
