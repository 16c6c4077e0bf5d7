# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The table of an answer as the screen has it: sorted, filtered, and as texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from klogger.analysis import Column
from klogger.executor import Result
from klogger.tables import BAR_WIDTH, NUMBERS, column_of, column_top
from klogger.trimmed import trimmed
from klogger.units import bar, show


@dataclass(frozen=True)
class Order:
    """`column` by name; empty: in the order of the analysis."""

    column: str = ""
    falling: bool = True


@dataclass(frozen=True)
class Shown:
    """`rows` are those of the answer in the order of the screen, and `cells` their texts, one for
    each of `titles`; `left_out` rows do not match the filter.
    """

    columns: list[Column]
    rows: list[list[Any]]
    cells: list[list[str]]
    left_out: int
    omitted: str = ""

    def titles(self, order: Order) -> list[str]:
        marks = {order.column: " ▼" if order.falling else " ▲"}
        return [c.name.replace("_", " ") + marks.get(c.name, "") for c in self.columns]


def shown(result: Result, order: Order, words: str) -> Shown:
    """Without columns that say nothing, as tables of `klogger report`."""
    trim, omitted = trimmed(result)
    indices = range(len(trim.table.names))
    columns = [column_of(trim, i) for i in indices]
    # The row of the whole answer, which has the columns that are not shown.
    names = [result.table.names.index(name) for name in trim.table.names]
    rows = [row for row in result.table.rows if [row[i] for i in names] in trim.table.rows]
    pairs = [(row, texts(trim, columns, [row[i] for i in names])) for row in rows]
    found = [(row, cells) for row, cells in pairs if matches(cells, words)]
    if order.column in result.table.names:
        at = result.table.names.index(order.column)
        found.sort(key=lambda pair: sort_key(pair[0][at]), reverse=order.falling)
    return Shown(
        columns, [row for row, _ in found], [cells for _, cells in found], len(pairs) - len(found),
        omitted,
    )  # fmt: skip


def texts(result: Result, columns: list[Column], row: list[Any]) -> list[str]:
    cells = []
    for i, (column, value) in enumerate(zip(columns, row, strict=True)):
        text = show(value, column.unit)
        if column.bar:
            top = column_top(result.table, i)
            drawn = bar(float(value or 0), top, BAR_WIDTH)
            text = f"{text} {drawn:<{BAR_WIDTH}}"
        cells.append(text)
    return cells


def is_number(column: Column) -> bool:
    return column.unit in NUMBERS


def matches(cells: list[str], words: str) -> bool:
    """Whether each word is somewhere in the row; upper and lower case are the same."""
    line = " ".join(cells).lower()
    return all(word in line for word in words.lower().split())


def sort_key(value: Any) -> tuple[int, float, str]:
    """Numbers below texts; what is not known is the least."""
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, (int, float)):
        return (1, float(value), "")
    return (2, 0.0, str(value))


def next_order(order: Order, columns: list[Column]) -> Order:
    """The next column, then the order of the analysis."""
    names = ["", *(column.name for column in columns)]
    at = names.index(order.column) if order.column in names else 0
    return Order(names[(at + 1) % len(names)], falling=True)
