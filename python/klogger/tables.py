# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tables on a terminal, as wide as it is: bars go first where there is no room, then names give
way, then columns go by their rank. No digit is ever cut off.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from klogger.analysis import Column
from klogger.executor import Result, Rows
from klogger.trimmed import cells_of, trimmed
from klogger.units import bar, printable

BAR_WIDTH = 10
# Columns of names are not made narrower than this.
NAME_WIDTH = 14
# Blanks between two columns.
GAP = 3
NUMBERS = {"ns", "s", "share", "count", "per_s", "bytes"}
# Names of columns that describe a distribution.
DESCRIBING = re.compile(r"p\d+|mean|median|sd|least")


def print_table(
    out: Console, result: Result, limit: int | None, asked: str = "klogger report"
) -> None:
    """The first rows. `asked`: the command that this is a part of."""
    result, omitted = trimmed(result)
    shown = result.table.rows[:limit]
    table, dropped = fitting(out, result, shown)
    out.print(table)
    if omitted:
        out.print(Text(f"  not shown: {printable(omitted)}", style="dim"))
    print_dropped(out, [name.replace("_", " ") for name in dropped])
    rest = len(result.table.rows) - len(shown) + result.table.left_out
    if rest:
        hint = "" if limit is None else f": '{asked} --analysis {result.analysis.name}' shows all"
        out.print(Text(f"  and {rest:,} more{hint}", style="dim"))


def print_dropped(out: Console, names: Sequence[str]) -> None:
    if names:
        have = "have them" if len(names) > 1 else "have it"
        text = f"  no room for: {', '.join(names)}; --html and --format json {have}"
        out.print(Text(text, style="dim"))


@dataclass
class Drawn:
    """A column as it is drawn: its head and its cells, and how wide it is. `index`: of the result's
    columns; that of a bar is the one that it stands beside.
    """

    index: int
    head: str
    cells: list[str]
    justify: JustifyMethod
    width: int
    style: str = ""


def fitting(out: Console, result: Result, shown: list[list[Any]]) -> tuple[Table, list[str]]:
    """The table, and the columns it has no room for."""
    columns = [drawn_column(result, shown, index) for index in range(len(result.table.names))]
    whole = [drawn for one in columns for drawn in (one, *bars_beside(result, shown, one))]
    if width_of(whole) <= out.width:
        return table_of(whole), []
    dropped: list[str] = []
    while True:
        missing = width_of(columns) - out.width
        texts = [one for one in columns if column_of(result, one.index).unit == ""]
        if missing <= 0 or give_way(texts, missing) or len(columns) == 1:
            return table_of(columns), dropped[::-1]
        least = least_wanted(result, [one.index for one in columns])
        dropped.append(result.table.names[columns.pop(least).index])


def least_wanted(result: Result, columns: list[int]) -> int:
    """Where the column is that goes first: of those of the lowest rank the last."""
    ranks = [rank(column_of(result, index)) for index in columns]
    return max(range(1, len(columns)), key=lambda at: (-ranks[at], at))


def rank(column: Column) -> int:
    """What a reader can do without goes first: a shape, what describes the rows' distribution,
    other numbers, names; and what has bars at the end.
    """
    if column.unit == "spark":
        return 0
    if column.bar:
        return 4
    if column.unit == "":
        return 3
    return 1 if DESCRIBING.fullmatch(column.name) else 2


def give_way(texts: list[Drawn], missing: int) -> bool:
    """Makes these columns narrower, the widest first, if that is enough."""
    if sum(max(one.width - NAME_WIDTH, 0) for one in texts) < missing:
        return False
    for _ in range(missing):
        max(texts, key=lambda one: one.width).width -= 1
    return True


def width_of(columns: Sequence[Drawn]) -> int:
    return sum(one.width for one in columns) + GAP * (len(columns) - 1)


def column_of(result: Result, index: int) -> Column:
    name = result.table.names[index]
    return result.analysis.columns.get(name, Column(name, "", False, ""))


def empty_table(header_style: str) -> Table:
    return Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        show_edge=False,
        header_style=header_style,
    )


def drawn_column(result: Result, shown: list[list[Any]], index: int) -> Drawn:
    """As wide as what is in it."""
    column = column_of(result, index)
    cells = cells_of(column, [row[index] for row in shown])
    width = max(map(cell_len, cells), default=0)
    head = folded(column.name.replace("_", " "), width)
    width = max(width, *map(cell_len, [*head.splitlines(), ""]))
    return Drawn(index, head, cells, "right" if column.unit in NUMBERS else "left", width)


def bars_beside(result: Result, shown: list[list[Any]], one: Drawn) -> list[Drawn]:
    """The column of bars of one of numbers, if it has bars."""
    index = one.index
    if not column_of(result, index).bar:
        return []
    top = column_top(result.table, index)
    bars = [bar(float(row[index] or 0), top, BAR_WIDTH) for row in shown]
    return [Drawn(index, "", bars, "left", max(map(len, bars), default=0), "cyan")]


def table_of(columns: Sequence[Drawn]) -> Table:
    """With the widths that are known: rich would look at each cell several times to find them."""
    table = empty_table("dim")
    for one in columns:
        table.add_column(
            Text(one.head), justify=one.justify, no_wrap=True, overflow="ellipsis", width=one.width
        )
    for row in zip(*(one.cells for one in columns), strict=True):
        cells = zip(row, columns, strict=True)
        table.add_row(*(Text(text, style=one.style) for text, one in cells))
    return table


def folded(name: str, width: int) -> str:
    """A column's name in lines no longer than what is below it, or than its longest word."""
    longest = max([width, 4, *map(len, name.split())])
    return "\n".join(textwrap.wrap(name, longest, break_on_hyphens=False))


def column_top(table: Rows, index: int) -> float:
    return max(
        (float(r[index]) for r in table.rows if isinstance(r[index], (int, float))), default=0.0
    )


def print_rows(
    out: Console, names: list[str], rows: Iterable[Iterable[Any]], numeric: list[bool]
) -> None:
    """The answer to a query."""
    table = empty_table("bold")
    for name, is_number in zip(names, numeric, strict=True):
        table.add_column(
            Text(printable(name)), justify="right" if is_number else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text("" if v is None else printable(str(v))) for v in row))
    out.print(table)


def print_cells(
    out: Console,
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    styles: Sequence[str],
    *,
    texts: int,
    gives_way: int,
) -> None:
    """A table of texts. `styles` are of each row's first cell; the first `texts` columns are words,
    the others numbers. Where there is no room, the column `gives_way` is cut, and the last columns
    are left out.
    """
    rows = [[printable(word) for word in row] for row in rows]
    needed = [max(cell_len(row[i]) for row in [names, *rows]) for i in range(len(names))]

    def room_of(count: int) -> int:
        """What the first columns leave of a line to the one that gives way."""
        return out.width - sum(needed[:count]) + needed[gives_way] - GAP * (count - 1)

    count = len(names)
    least = min(NAME_WIDTH, needed[gives_way])
    while room_of(count) < least and count > gives_way + 1:
        count -= 1
    room, dropped, names = max(room_of(count), 8), names[count:], names[:count]
    table = empty_table("dim")
    for i, name in enumerate(names):
        most = room if i == gives_way else None
        table.add_column(
            name, justify="left" if i < texts else "right", no_wrap=True, overflow="ellipsis",
            max_width=most, min_width=min(needed[i], most or needed[i]),
        )  # fmt: skip
    for style, row in zip(styles, rows, strict=True):
        table.add_row(Text(row[0], style=style), *(Text(word) for word in row[1:count]))
    out.print(table)
    print_dropped(out, dropped)
