# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tables as they are shown: without what says nothing (columns that are empty, rows of zeros), and
with texts for cells. Tables of JSON and Python have everything, as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from klogger.analysis import Column
from klogger.executor import Result, Rows
from klogger.units import numbers_of, show


def trimmed(result: Result) -> tuple[Result, str]:
    """The result as tables show it, and what they do not show: `3 rows of zeros; empty columns:
    most`. The first column stays, and so do rows of zeros if there are no others.
    """
    table = result.table
    columns = [result.analysis.columns.get(n, Column(n, "", False, "")) for n in table.names]
    rows = [row for row in table.rows if not is_zero(row, columns)] or table.rows
    kept = [i for i in range(len(columns)) if i == 0 or any(not is_empty(r[i]) for r in rows)]
    said = []
    if zeros := len(table.rows) - len(rows):
        said.append(f"{zeros:,} row{'' if zeros == 1 else 's'} of zeros")
    if len(kept) < len(columns) and rows:
        names = [c.name.replace("_", " ") for i, c in enumerate(columns) if i not in kept]
        said.append(f"empty column{'' if len(names) == 1 else 's'}: {', '.join(names)}")
    if not said:
        return result, ""
    shown = Rows(
        [table.names[i] for i in kept], [[row[i] for i in kept] for row in rows], table.left_out
    )
    return dataclasses.replace(result, table=shown), "; ".join(said)


def is_empty(value: Any) -> bool:
    return value is None or value in ("", [])


def is_zero(row: list[Any], columns: list[Column]) -> bool:
    """Whether all that is measured in it is 0 or not known. Numbers without a unit are names: of
    CPUs, of threads.
    """
    measured = [value for value, c in zip(row, columns, strict=True) if c.unit or c.bar]
    return bool(measured) and all(nothing(value) for value in measured)


def nothing(value: Any) -> bool:
    if isinstance(value, list):
        return not any(value)
    return is_empty(value) or (isinstance(value, (int, float)) and value == 0)


def cells_of(column: Column, values: Sequence[Any]) -> list[str]:
    """The values of a column as texts; sparks on one scale, if they are to be compared."""
    top = None
    if column.unit == "spark" and not column.each:
        top = max((number for spark in values for number in numbers_of(spark)), default=0)
    return [show(value, column.unit, top) for value in values]
