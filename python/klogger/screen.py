# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What of a report fits on a screen: the answers behind its findings, and names of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from klogger import findings, remarks, terminal
from klogger.analysis import Analysis
from klogger.executor import Result
from klogger.remarks import Remark

# Of a page that is read without scrolling. At least one answer is shown, however long it is.
LINES = 50


def captured(out: terminal.Console, draw: Callable[[], None]) -> str:
    """What a function prints, as it would be printed."""
    with out.capture() as text:
        draw()
    return text.get()


def print_screen(
    out: terminal.Console,
    used: int,
    results: list[Result],
    said: list[Remark],
    asked: str,
) -> None:
    """`used`: the lines of the head; `said`: the warnings that it has; `asked`: the command that
    this is a part of.
    """
    shown: list[Analysis] = []
    room = LINES - used
    for result in in_order(results):
        draw = partial(terminal.print_drawn, out, result, said=said, notes=False, asked=asked)
        text = captured(out, partial(draw, rows=terminal.ROWS))
        room -= text.count("\n")
        if shown and room < 0:
            break
        shown.append(result.analysis)
        out.file.write(text)
    for result in results:
        if result.status == "failed":
            terminal.print_result(out, result, said=said)
    rest = [r for r in results if not any(r.analysis is one for one in shown)]
    lines = list(others(rest, said))
    if lines:
        out.print()
        line = f"Others: '{asked} --analysis NAME' shows one, '{asked} --all' all"
        terminal.print_line(out, line)
        terminal.print_pairs(out, lines, gap=2)


def in_order(results: Iterable[Result]) -> list[Result]:
    """The answers, those with the heaviest findings first."""

    def place(result: Result) -> float:
        found = findings.of(result)
        return -(found[0].weight or 0.0) if found else 1.0

    return sorted((r for r in results if r.status == "answer"), key=place)


def others(results: list[Result], said: list[Remark]) -> Iterator[tuple[tuple[str, str], str]]:
    """(label, names) of answers by schema, and of what is none."""
    named: dict[str, list[str]] = {}
    for result in results:
        if result.status == "answer":
            mark = " (!)" if remarks.own(result, said) else ""
            named.setdefault(result.analysis.schema, []).append(result.analysis.name + mark)
    for schema, names in named.items():
        yield (f"  {schema}", "bold"), ", ".join(names)
    if any(" (!)" in name for names in named.values() for name in names):
        yield ("  (!)", "yellow"), "with a warning"
    empty = [r.analysis.name for r in results if r.status == "empty"]
    if empty:
        yield ("  nothing to show", "dim"), ", ".join(empty)
    lacking: dict[str, list[str]] = {}
    for result in results:
        if result.status == "not_recorded":
            lacking.setdefault(result.reason, []).append(result.analysis.name)
    for reason, names in lacking.items():
        yield ("  no answer", "dim"), f"{', '.join(names)}: {reason}"
