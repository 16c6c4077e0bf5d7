# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All that is shown on a terminal as more than a message: titles, tables, lists, figures; at most
100 columns, colours only on a terminal. No other module knows what draws them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import rich.console
from rich import box
from rich.cells import cell_len
from rich.console import (
    ConsoleOptions,
    ConsoleRenderable,
    JustifyMethod,
    RenderableType,
    RenderHook,
    RenderResult,
)
from rich.table import Column as TableColumn
from rich.table import Table
from rich.text import Text

from klogger import figure, findings
from klogger.analysis import Analysis, Column
from klogger.executor import Result, Rows
from klogger.summary import Summary
from klogger.units import bar, printable, show

# For other modules, too.
Console = rich.console.Console
WIDTH = 100
BAR_WIDTH = 10
ROWS = 10
# Columns of names are not made narrower than this.
NAME_WIDTH = 14
# Of the word before a paragraph.
LABEL_WIDTH = 11
NUMBERS = {"ns", "s", "share", "count", "per_s", "bytes"}


def console(file: TextIO) -> Console:
    """Without a terminal, tables are as wide as they may be, so that a file looks the same
    everywhere.
    """
    found = Console(file=file, highlight=False, soft_wrap=False, markup=False, emoji=False)
    out = Console(
        file=file,
        highlight=False,
        markup=False,
        emoji=False,
        width=min(found.width, WIDTH) if found.is_terminal else WIDTH,
    )
    out.push_render_hook(Harmless())
    return out


class Harmless(RenderHook):
    """Whatever is shown, nothing of it acts on the terminal but colours of our own."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [HarmlessText(r) for r in renderables]


class HarmlessText:
    def __init__(self, shown: RenderableType) -> None:
        self.shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.shown, options):
            lines = segment.text.split("\n")
            yield (
                segment
                if segment.control
                else segment._replace(text="\n".join(map(printable, lines)))
            )


def print_summary(out: Console, summary: Summary) -> None:
    out.print(Text(summary.title, style="bold"))
    for line in summary.lines:
        out.print(Text(f"  {line}"))
    print_warnings(out, summary.warnings)


def print_line(out: Console, *parts: str | tuple[str, str]) -> None:
    """A line of parts, each of which may have a style."""
    found = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        found.append(printable(words), style=style)
    out.print(found)


def print_paragraph(out: Console, label: str, text: str, style: str = "") -> None:
    """A text of several lines beside a word that says what it is."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=LABEL_WIDTH)
    lines = "\n".join(map(printable, text.splitlines()))
    grid.add_row(Text(f"  {label}", style="dim"), Text(lines, style=style))
    out.print(grid)


def print_pairs(out: Console, pairs: Iterable[tuple[tuple[str, str], str]], gap: int = 1) -> None:
    """Lines below each other, each behind a mark or a name, which has a style."""
    grid = Table.grid(padding=(0, gap))
    for (name, style), line in pairs:
        grid.add_row(Text(printable(name), style=style), Text(printable(line)))
    out.print(grid)


def value_line(label: str, value: str) -> str:
    """For a list of values: they stand below each other."""
    return f"  {label:<8} {value:>10}"


def print_findings(out: Console, results: Iterable[Result]) -> None:
    """The findings that matter, of all analyses."""
    found = findings.first(results)
    if found:
        out.print()
        print_texts(out, [(f.text, f.analysis) for f in found])


def print_texts(out: Console, texts: Iterable[tuple[str, str]]) -> None:
    """A list of sentences, and the analyses that say so."""
    grid = Table.grid(padding=(0, 1))
    for sentence, analysis in texts:
        line = Text(printable(sentence))
        line.append(f"  [{analysis}]" if analysis else "", style="dim")
        grid.add_row(Text(" •"), line)
    out.print(grid)


def print_result(out: Console, result: Result, rows: int | None = ROWS) -> None:
    """One analysis: title, question, table. `rows`: how many are shown; None: all."""
    print_title(out, result.analysis)
    if result.status != "answer":
        label = {"empty": "nothing to show", "not_recorded": "no answer", "failed": "failed"}[
            result.status
        ]
        out.print(
            Text(
                f"  {label}: {result.reason}",
                style="red" if result.status == "failed" else "yellow",
            )
        )
    print_warnings(out, result.warnings)
    if result.status == "answer":
        print_texts(out, [(f.text, "") for f in findings.of(result)])
        print_table(out, result, rows)


def print_title(out: Console, analysis: Analysis) -> None:
    out.print()
    title = Text(printable(analysis.title or analysis.name), style="bold cyan")
    title.append(f"  {printable(analysis.question)}", style="not bold default")
    title.append(f"  [{analysis.name}]", style="not bold dim")
    out.print(title)


def print_drawn(out: Console, result: Result, rows: int | None = None) -> None:
    """One analysis with its figure and the notes on it."""
    print_result(out, result, rows)
    drawn = figure.lines(result)
    if drawn:
        out.print()
    for line in drawn:
        out.print(Text(line, no_wrap=True, overflow="ellipsis"))
    for note in result.analysis.notes:
        print_paragraph(out, "note", note, style="dim")


def print_warnings(out: Console, warnings: Iterable[str]) -> None:
    for warning in warnings:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text(" !", style="yellow"), Text(printable(warning), style="yellow"))
        out.print(grid)


def print_table(out: Console, result: Result, limit: int | None) -> None:
    shown = result.table.rows[:limit]
    table, dropped = fitting(out, result, shown)
    out.print(table)
    if dropped:
        names = ", ".join(name.replace("_", " ") for name in dropped)
        out.print(Text(f"  no room for: {names}; --html and --format json have them", style="dim"))
    rest = len(result.table.rows) - len(shown) + result.table.left_out
    if rest:
        hint = (
            ""
            if limit is None
            else f": 'klogger report --analysis {result.analysis.name}' shows all"
        )
        out.print(Text(f"  and {rest:,} more{hint}", style="dim"))


def fitting(out: Console, result: Result, shown: list[list[Any]]) -> tuple[Table, list[str]]:
    """The table, and the columns it has no room for. Bars go first, then names give way; no digit
    is ever cut off.
    """
    wide = out.options.update(max_width=1000)
    columns = list(range(len(result.table.names)))
    table = table_of(result, shown, columns, bars=True)
    if out.measure(table, options=wide).maximum <= out.width:
        return table, []
    dropped: list[str] = []
    while True:
        table = table_of(result, shown, columns, bars=False)
        missing = out.measure(table, options=wide).maximum - out.width
        texts = [at for at, i in enumerate(columns) if column_of(result, i).unit == ""]
        if missing <= 0 or give_way(table, texts, missing) or len(columns) == 1:
            return table, dropped[::-1]
        dropped.append(result.table.names[columns.pop(least_wanted(result, columns))])


def least_wanted(result: Result, columns: list[int]) -> int:
    """Where the last column is that is neither the first nor has bars."""
    return max(
        (at for at, i in enumerate(columns) if at and not column_of(result, i).bar),
        default=len(columns) - 1,
    )


def give_way(table: Table, texts: list[int], missing: int) -> bool:
    """Makes these columns narrower, the widest first, if that is enough."""
    widths = {i: width_of(table.columns[i]) for i in texts}
    if sum(max(width - NAME_WIDTH, 0) for width in widths.values()) < missing:
        return False
    for _ in range(missing):
        widths[max(widths, key=lambda i: widths[i])] -= 1
    for i, width in widths.items():
        table.columns[i].min_width = table.columns[i].max_width = width
    return True


def width_of(column: TableColumn) -> int:
    cells = [column.header, *column.cells]
    return max(cell_len(line) for cell in cells for line in [*str(cell).splitlines(), ""])


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


def table_of(result: Result, shown: list[list[Any]], indices: list[int], *, bars: bool) -> Table:
    """The columns `indices`, each as wide as what is in it."""
    table = empty_table("dim")
    cells = []
    for index in indices:
        column = column_of(result, index)
        texts = [show(row[index], column.unit) for row in shown]
        head = folded(column.name.replace("_", " "), max(map(cell_len, texts), default=0))
        justify: JustifyMethod = "right" if column.unit in NUMBERS else "left"
        table.add_column(Text(head), justify=justify, no_wrap=True, overflow="ellipsis")
        cells.append([Text(text) for text in texts])
        if column.bar and bars:
            top = column_top(result.table, index)
            table.add_column("", no_wrap=True)
            cells.append(
                [Text(bar(float(row[index] or 0), top, BAR_WIDTH), style="cyan") for row in shown]
            )
    for row in zip(*cells, strict=True):
        table.add_row(*row)
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
    the others numbers; the column `gives_way` is cut where there is no room.
    """
    rows = [[printable(word) for word in row] for row in rows]
    needed = [max(cell_len(row[i]) for row in [names, *rows]) for i in range(len(names))]
    room = max(out.width - sum(needed) + needed[gives_way] - 2 * len(names), 8)
    table = empty_table("dim")
    for i, name in enumerate(names):
        most = room if i == gives_way else None
        table.add_column(
            name, justify="left" if i < texts else "right", no_wrap=True, overflow="ellipsis",
            max_width=most, min_width=min(needed[i], most or needed[i]),
        )  # fmt: skip
    for style, row in zip(styles, rows, strict=True):
        table.add_row(Text(row[0], style=style), *(Text(word) for word in row[1:]))
    out.print(table)
