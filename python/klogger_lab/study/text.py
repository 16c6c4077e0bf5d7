# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a study has found, for the terminal: at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from klogger import figure, terminal
from klogger.executor import Result
from klogger.units import printable
from klogger_lab.machine import Machine
from klogger_lab.study.discover import Found
from klogger_lab.study.model import Check
from klogger_lab.study.runner import ArmReport, Done

# Of a table; the page and JSON have them all.
ROWS = 40


def print_done(out: Console, done: Done, machine: Machine) -> None:
    study = done.found.study
    out.print()
    head = Text(f"{study.name}: {study.title}", style="bold")
    head.append(f"  ({study.paper})", style="not bold dim")
    out.print(head)
    out.print(Text(f"  {machine.line()}", style="dim"))
    paragraph(out, "question", study.question)
    paragraph(out, "paper", f"found: {study.found}")
    if done.failure is not None:
        paragraph(out, "no answer", str(done.failure), style="red")
        return
    for sentence in done.answer.sentences:
        paragraph(out, "today", sentence, style="bold")
    for result in done.answer.results:
        print_result(out, result)
    out.print()
    for text in done.answer.cannot:
        paragraph(out, "cannot", text, style="yellow")
    print_losses(out, done.arms)
    print_checks(out, done.answer.checks)
    out.print(
        Text(
            f"  took {done.seconds:.1f} of {done.budget:.0f} s, {len(done.arms)} arms", style="dim"
        )
    )


def print_result(out: Console, result: Result) -> None:
    terminal.print_result(out, result, ROWS)
    drawn = figure.lines(result)
    if drawn:
        out.print()
    for line in drawn:
        out.print(Text(line, no_wrap=True, overflow="ellipsis"))
    for note in result.analysis.notes:
        paragraph(out, "note", note, style="dim")


def paragraph(out: Console, label: str, text: str, style: str = "") -> None:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=11)
    grid.add_row(Text(f"  {label}", style="dim"), Text(printable_lines(text), style=style))
    out.print(grid)


def printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.splitlines())


def print_losses(out: Console, arms: Iterable[ArmReport]) -> None:
    for arm in arms:
        terminal.print_warnings(out, [f"arm '{arm.arm.name}': {loss}" for loss in arm.losses])


def print_checks(out: Console, checks: Iterable[Check]) -> None:
    grid = Table.grid(padding=(0, 1))
    for check in checks:
        mark = Text("  ok", style="green") if check.ok else Text("  FAILED", style="bold red")
        grid.add_row(mark, Text(printable(f"{check.name}: {check.text}")))
    out.print(grid)


def print_list(
    out: Console, studies: Iterable[Found], able: Mapping[str, list[str]], machine: Machine
) -> None:
    """The studies, what they re-make and take, and what this kernel can do of them."""
    out.print(Text(machine.line()))
    if machine.lacks:
        out.print(Text(f"this kernel has no {', '.join(machine.lacks)}"))
    for found in studies:
        one = found.study
        head = Text(f"\n{one.name:12} ", style="bold")
        head.append(
            printable(
                f"{one.title}: {one.paper}; {one.seconds:g} s, {one.least_seconds:g} at least"
            ),
            "not bold",
        )
        out.print(head)
        for line in [one.question, *able.get(one.name, [])]:
            paragraph(out, "", line, style="dim")
    out.print(Text("\n'klogger study NAME' runs one, 'klogger study all' all of them."))
