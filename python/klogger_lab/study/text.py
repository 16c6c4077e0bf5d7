# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a study has found, for the terminal: at most 100 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klogger.terminal import (
    Console,
    print_drawn,
    print_line,
    print_pairs,
    print_paragraph,
    print_warnings,
)
from klogger_lab.machine import Machine
from klogger_lab.study.discover import Found
from klogger_lab.study.model import Check
from klogger_lab.study.runner import Done

# Of a table; the page and JSON have them all.
ROWS = 40


def print_done(out: Console, done: Done, machine: Machine) -> None:
    study = done.found.study
    out.print()
    print_line(out, (f"{study.name}: {study.title}", "bold"), (f"  ({study.paper})", "dim"))
    print_line(out, (f"  {machine.line()}", "dim"))
    print_paragraph(out, "question", study.question)
    print_paragraph(out, "paper", f"found: {study.found}")
    if done.failure is not None:
        print_paragraph(out, "no answer", str(done.failure), style="red")
        return
    for sentence in done.answer.sentences:
        print_paragraph(out, "today", sentence, style="bold")
    for result in done.answer.results:
        print_drawn(out, result, ROWS)
    out.print()
    for text in done.answer.cannot:
        print_paragraph(out, "cannot", text, style="yellow")
    for arm in done.arms:
        print_warnings(out, [f"arm '{arm.arm.name}': {loss}" for loss in arm.losses])
    print_checks(out, done.answer.checks)
    took = f"  took {done.seconds:.1f} of {done.budget:.0f} s, {len(done.arms)} arms"
    print_line(out, (took, "dim"))


def print_checks(out: Console, checks: Iterable[Check]) -> None:
    marks = {True: ("  ok", "green"), False: ("  FAILED", "bold red")}
    print_pairs(out, [(marks[check.ok], f"{check.name}: {check.text}") for check in checks])


def print_list(
    out: Console, studies: Iterable[Found], able: Mapping[str, list[str]], machine: Machine
) -> None:
    """The studies, what they re-make and take, and what this kernel can do of them."""
    print_line(out, machine.line())
    if machine.lacks:
        print_line(out, f"this kernel has no {', '.join(machine.lacks)}")
    for found in studies:
        one = found.study
        takes = f"{one.title}: {one.paper}; {one.seconds:g} s, {one.least_seconds:g} at least"
        out.print()
        print_pairs(out, [((f"{one.name:12}", "bold"), takes)], gap=1)
        for line in [one.question, *able.get(one.name, [])]:
            print_paragraph(out, "", line, style="dim")
    out.print()
    print_line(out, "'klogger study NAME' runs one, 'klogger study all' all of them.")
