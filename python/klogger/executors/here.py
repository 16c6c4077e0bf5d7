# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""In this process, one recording after the other: DuckDB has threads of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Here:
    def map(self, work: Callable[[str], Answer], names: Sequence[str]) -> Iterable[Answer]:
        return (work(name) for name in names)

    def combine(self, merge: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
        return [merge(item) for item in items]
