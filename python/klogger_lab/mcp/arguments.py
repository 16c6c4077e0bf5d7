# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a tool takes: as JSON schema for the client, and checked when it comes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from klogger.failure import Failure


@dataclass(frozen=True)
class Argument:
    """`kind`: of JSON schema. `items`: of an array."""

    kind: str
    doc: str
    required: bool = False
    items: str = ""

    def as_schema(self) -> dict[str, Any]:
        found: dict[str, Any] = {"type": self.kind, "description": self.doc}
        return {**found, "items": {"type": self.items}} if self.items else found

    def check(self, name: str, value: Any) -> None:
        if not is_of(self.kind, value):
            raise Failure(f"'{name}' is not of the type {self.kind}", help=self.doc)
        if self.items and not all(is_of(self.items, one) for one in value):
            raise Failure(f"'{name}' has more than {self.items}s in it", help=self.doc)


def is_finite(number: float) -> bool:
    """JSON has integers that no float is as large as."""
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


# Columns are of 64 bits.
INTEGERS = range(-(2**63), 2**63)
KINDS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int and value in INTEGERS,
    "number": lambda value: type(value) in (int, float) and is_finite(value),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
}


def is_of(kind: str, value: Any) -> bool:
    return KINDS[kind](value)
