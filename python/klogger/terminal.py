# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All that is shown on a terminal as more than a message: titles, lists, figures, and (`tables`)
tables; as wide as the terminal is, with colours only there. No other module knows what draws them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

import rich.console
from rich.console import (
    ConsoleOptions,
    ConsoleRenderable,
    RenderableType,
    RenderHook,
    RenderResult,
)
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from klogger import figure, findings, ledger, remarks, waterfall_text
from klogger.analysis import Analysis
from klogger.executor import Result
from klogger.ledger import Ledger
from klogger.remarks import Remark
from klogger.summary import Summary
from klogger.tables import print_cells, print_rows, print_table
from klogger.units import printable
from klogger.waterfall import Waterfall

__all__ = ["Console", "console", "print_cells", "print_rows", "print_table"]

# For other modules, too.
Console = rich.console.Console
# Columns, where there is no terminal; and of the longest line of a text.
WIDTH = 100
# A table that is wider than this cannot be read; one that is narrower has no room for anything.
WIDEST, NARROWEST = 250, 40
ROWS = 10
# Of the word before a paragraph.
LABEL_WIDTH = 11


def console(file: TextIO) -> Console:
    """As wide as `$COLUMNS` says, else as the terminal is. Without either, tables have 100 columns,
    so that a file looks the same everywhere.
    """
    found = Console(file=file, highlight=False, soft_wrap=False, markup=False, emoji=False)
    asked = os.environ.get("COLUMNS", "").isdigit() or found.is_terminal
    out = Console(
        file=file,
        highlight=False,
        markup=False,
        emoji=False,
        width=min(max(found.width, NARROWEST), WIDEST) if asked else WIDTH,
    )
    out.push_render_hook(Harmless())
    return out


class Harmless(RenderHook):
    """Whatever is shown, nothing of it acts on the terminal but colours of our own; and no line
    ends in blanks.
    """

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [HarmlessText(r) for r in renderables]


class HarmlessText:
    def __init__(self, shown: RenderableType) -> None:
        self.shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line: list[Segment] = []
        for segment in console.render(self.shown, options):
            if segment.control:
                line.append(segment)
                continue
            *whole, last = segment.text.split("\n")
            for text in whole:
                line.append(segment._replace(text=printable(text)))
                yield from without_blanks(line)
                yield Segment.line()
                line = []
            line.append(segment._replace(text=printable(last)))
        yield from line


def without_blanks(line: list[Segment]) -> list[Segment]:
    """A line without the blanks at its end."""
    found = list(line)
    while found and not found[-1].control:
        text = found[-1].text.rstrip(" ")
        found[-1] = found[-1]._replace(text=text)
        if text:
            break
        found.pop()
    return found


@contextlib.contextmanager
def lines(file: TextIO) -> Iterator[Callable[[Sequence[str]], None]]:
    """Lines below what is printed meanwhile, which are drawn again and again and go away in the
    end. Nothing where there is no terminal.
    """
    if not file.isatty():
        yield lambda _: None
        return
    out = Console(file=file, highlight=False, markup=False, emoji=False)
    with Live(console=out, transient=True, auto_refresh=False, vertical_overflow="crop") as live:

        def draw(found: Sequence[str]) -> None:
            text = Text("\n".join(map(printable, found)), no_wrap=True, overflow="ellipsis")
            live.update(text, refresh=True)

        yield draw


def print_grid(out: Console, grid: Table) -> None:
    """Texts, which nobody reads in longer lines."""
    out.print(grid, width=min(out.width, WIDTH))


def print_summary(out: Console, summary: Summary, said: Iterable[Remark] = ()) -> None:
    """`said`: what several of the answers below warn of."""
    out.print(Text(summary.title, style="bold"))
    for line in summary.lines:
        out.print(Text(f"  {line}"))
    print_ledger(out, summary.ledger)
    said = list(said)
    told = {remark.text for remark in said}
    print_remarks(out, [*(Remark(w, ()) for w in summary.warnings if w not in told), *said])


def print_ledger(out: Console, found: Ledger) -> None:
    """What is missing, as one table, and the remedy of each kind below it."""
    if not found.kinds:
        return
    out.print()
    styles = {"loss": "yellow", "error": "red", "notice": "", "info": ""}
    print_cells(
        out, ledger.TITLES, [kind.cells() for kind in found.kinds],
        [styles.get(kind.severity, "") for kind in found.kinds], texts=4, gives_way=1,
    )  # fmt: skip
    out.print()
    print_pairs(out, [((f"  {kind.key}", "dim"), kind.advice()) for kind in found.kinds])


def print_remarks(out: Console, found: Iterable[Remark]) -> None:
    grid = Table.grid(padding=(0, 1))
    for remark in found:
        line = Text(printable(remark.text), style="yellow")
        line.append(f"  [{remark.names()}]" if remark.analyses else "", style="dim")
        grid.add_row(Text(" !", style="yellow"), line)
    if grid.row_count:
        out.print()
        print_grid(out, grid)


def print_line(out: Console, *parts: str | tuple[str, str]) -> None:
    """A line of parts, each of which may have a style."""
    found = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        found.append(printable(words), style=style)
    out.print(found)


def print_path(out: Console, text: str) -> None:
    """A line with a path, which is not broken, however long it is: somebody may copy it."""
    out.print(Text(printable(text)), soft_wrap=True)


def print_paragraph(out: Console, label: str, text: str, style: str = "") -> None:
    """A text of several lines beside a word that says what it is."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=LABEL_WIDTH)
    lines = "\n".join(map(printable, text.splitlines()))
    grid.add_row(Text(f"  {label}", style="dim"), Text(lines, style=style))
    print_grid(out, grid)


def print_pairs(out: Console, pairs: Iterable[tuple[tuple[str, str], str]], gap: int = 1) -> None:
    """Lines below each other, each behind a mark or a name, which has a style."""
    grid = Table.grid(padding=(0, gap))
    for (name, style), line in pairs:
        grid.add_row(Text(printable(name), style=style), Text(printable(line)))
    print_grid(out, grid)


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
    print_grid(out, grid)


def print_result(
    out: Console,
    result: Result,
    rows: int | None = ROWS,
    said: Iterable[Remark] = (),
    asked: str = "klogger report",
) -> None:
    """One analysis: title, question, table. `rows`: how many are shown; None: all. `said`: the
    warnings that the head has. `asked`: the command that this is a part of.
    """
    print_title(out, result.analysis)
    if result.status != "answer":
        label = {"empty": "nothing to show", "not_recorded": "no answer", "failed": "failed"}[
            result.status
        ]
        style = "red" if result.status == "failed" else "yellow"
        out.print(Text(f"  {label}: {result.reason}", style=style))
    print_warnings(out, remarks.own(result, said))
    if result.status == "answer":
        print_texts(out, [(f.text, "") for f in findings.of(result)])
        print_table(out, result, rows, asked)


def print_title(out: Console, analysis: Analysis) -> None:
    out.print()
    title = Text(printable(analysis.title or analysis.name), style="bold cyan")
    title.append(f"  {printable(analysis.question)}", style="not bold default")
    title.append(f"  [{analysis.name}]", style="not bold dim")
    out.print(title)


def print_drawn(
    out: Console,
    result: Result,
    rows: int | None = None,
    said: Iterable[Remark] = (),
    *,
    notes: bool = True,
    asked: str = "klogger report",
) -> None:
    """One analysis with its figure and the notes on it."""
    print_result(out, result, rows, said, asked)
    drawn = figure.lines(result, min(out.width, WIDTH))
    if drawn:
        out.print()
    for line in drawn:
        out.print(Text(line, no_wrap=True, overflow="ellipsis"))
    for note in result.analysis.notes if notes else ():
        print_paragraph(out, "note", note, style="dim")


def print_waterfalls(
    out: Console, found: Iterable[Waterfall], said: Iterable[str], written: Iterable[Path]
) -> None:
    """No wider than a terminal has columns, and 80 where there is none."""
    columns = min(out.width, WIDTH if out.is_terminal else 80)
    print_warnings(out, said)
    for number, one in enumerate(found):
        if number:
            out.print()
        for line in waterfall_text.lines(one, columns):
            out.print(Text(line, no_wrap=True, overflow="ellipsis"))
    for path in written:
        print_path(out, f"wrote {path}")


def print_warnings(out: Console, warnings: Iterable[str]) -> None:
    for warning in warnings:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text(" !", style="yellow"), Text(printable(warning), style="yellow"))
        print_grid(out, grid)
