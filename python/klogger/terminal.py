# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A report, and tables in general, for the terminal: at most 100 columns, colours only on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from klogger import findings
from klogger.analysis import Column
from klogger.run import Result, Rows
from klogger.summary import Summary
from klogger.units import bar, printable, show

WIDTH = 100
BAR_WIDTH = 10
ROWS = 10
NUMBERS = {"ns", "s", "share", "count", "per_s", "bytes"}


def console(file: TextIO) -> Console:
    """Without a terminal, tables are as wide as they may be, so that a file looks the same everywhere."""
    found = Console(file=file, highlight=False, soft_wrap=False, markup=False, emoji=False)
    return Console(
        file=file,
        highlight=False,
        markup=False,
        emoji=False,
        width=min(found.width, WIDTH) if found.is_terminal else WIDTH,
    )


def print_summary(out: Console, summary: Summary) -> None:
    out.print(Text(summary.title, style="bold"))
    for line in summary.lines:
        out.print(Text(f"  {line}"))
    print_warnings(out, summary.warnings)


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
    out.print()
    title = Text(printable(result.analysis.title or result.analysis.name), style="bold cyan")
    title.append(f"  {printable(result.analysis.question)}", style="not bold default")
    title.append(f"  [{result.analysis.name}]", style="not bold dim")
    out.print(title)
    if result.status != "answer":
        label = {"empty": "nothing to show", "not_recorded": "no answer", "failed": "failed"}[result.status]
        out.print(Text(f"  {label}: {result.reason}", style="red" if result.status == "failed" else "yellow"))
    print_warnings(out, result.warnings)
    if result.status == "answer":
        print_texts(out, [(f.text, "") for f in findings.of(result)])
        print_table(out, result, rows)


def print_warnings(out: Console, warnings: Iterable[str]) -> None:
    for warning in warnings:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text(" !", style="yellow"), Text(printable(warning), style="yellow"))
        out.print(grid)


def print_table(out: Console, result: Result, limit: int | None) -> None:
    shown = result.table.rows[:limit]
    table = table_of(result, shown, bars=True)
    if out.measure(table, options=out.options.update(max_width=1000)).maximum > out.width:
        table = table_of(result, shown, bars=False)
    out.print(table)
    rest = len(result.table.rows) - len(shown) + result.table.left_out
    if rest:
        hint = "" if limit is None else f": 'klogger report --analysis {result.analysis.name}' shows all"
        out.print(Text(f"  and {rest:,} more{hint}", style="dim"))


def table_of(result: Result, shown: list[list[Any]], *, bars: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False, header_style="dim")
    columns = [result.analysis.columns.get(n, Column(n, "", False, "")) for n in result.table.names]
    for column in columns:
        table.add_column(
            column.name.replace("_", " "), justify="right" if column.unit in NUMBERS else "left", no_wrap=True,
            overflow="ellipsis", min_width=4,
        )  # fmt: skip
        if column.bar and bars:
            table.add_column("", no_wrap=True)
    tops = [column_top(result.table, i) for i in range(len(columns))]
    for row in shown:
        cells = []
        for value, column, top in zip(row, columns, tops, strict=True):
            cells.append(Text(show(value, column.unit)))
            if column.bar and bars:
                cells.append(Text(bar(float(value or 0), top, BAR_WIDTH), style="cyan"))
        table.add_row(*cells)
    return table


def column_top(table: Rows, index: int) -> float:
    return max((float(r[index]) for r in table.rows if isinstance(r[index], (int, float))), default=0.0)


def print_rows(out: Console, names: list[str], rows: Iterable[Iterable[Any]], numeric: list[bool]) -> None:
    """The answer to a query."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False, header_style="bold")
    for name, is_number in zip(names, numeric, strict=True):
        table.add_column(Text(printable(name)), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if v is None else printable(str(v))) for v in row))
    out.print(table)
