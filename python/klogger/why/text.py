# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The answer in lines of text, each with its style."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator

from klogger.numerals import agreed
from klogger.units import show
from klogger.why import rows
from klogger.why.answer import Answer, Chain, Line, Thread
from klogger.why.bins import COULD_RUN, RAN, UNKNOWN, WAITED
from klogger.why.operated import Operated

Styled = tuple[str, str]
# Bins of a group, and places where following ends; threads.
BINS_MOST, ENDS_MOST, THREADS_MOST = 6, 8, 8
# Values of a field of operations.
KINDS_MOST = 10
HEAD = f"  {'time':>9}  {'share':>6}  {'times':>7}  {'longest':>9}"
NAME_WIDTH = 22


def lines(answer: Answer, log: str, columns: int) -> Iterator[Styled]:
    yield from head(answer)
    yield from tree(answer, columns)
    if answer.chains:
        yield from ends(answer, columns)
        yield from because(answer, log, columns)
    if answer.operated is not None:
        yield from operated(answer, answer.operated, log, columns)
    elif len(answer.threads) > 1:
        yield from threads(answer, columns)
    for note in answer.notes:
        yield "", ""
        yield from wrapped(f" ! {note}", columns, "   ", "yellow")


def head(answer: Answer) -> Iterator[Styled]:
    if (found := answer.operated) is not None:
        times = agreed(f"{found.times:,} operations")
        yield f"{answer.title}: {times}, {show(answer.elapsed, 'ns')} together; median" \
            f" {show(found.median, 'ns')}, longest {show(found.longest, 'ns')}", "bold"  # fmt: skip
        return
    number = len(answer.chosen)
    together = f" together of {agreed(f'{number:,} threads')}" if number > 1 else ""
    yield f"{answer.title}: {show(answer.elapsed, 'ns')} elapsed{together}", "bold"


def tree(answer: Answer, columns: int) -> Iterator[Styled]:
    yield "", ""
    yield HEAD, "dim"
    for one in rows.tree(answer, BINS_MOST):
        yield row(answer, one, columns, "" if one.kind == rows.GROUP else "  ")


STYLES = {rows.GROUP: "bold", rows.BIN: "", rows.REST: "dim"}


def row(answer: Answer, one: rows.Row, columns: int, indent: str = "") -> Styled:
    share = show(one.ns / answer.elapsed if answer.elapsed else 0.0, "share")
    times, longest = (f"{one.times:,}", show(one.longest, "ns")) if one.times else ("", "")
    numbers = f"  {show(one.ns, 'ns'):>9}  {share:>6}  {times:>7}  {longest:>9}"
    return cut(f"{numbers}  {indent}{one.what}", columns), STYLES[one.kind]


def ends(answer: Answer, columns: int) -> Iterator[Styled]:
    yield "", ""
    yield "With what those did that it waited for, in place of the waits", "bold"
    yield HEAD, "dim"
    for one in rows.ends(answer, ENDS_MOST):
        yield row(answer, one, columns)


def because(answer: Answer, log: str, columns: int) -> Iterator[Styled]:
    yield "", ""
    yield "Because", "bold"
    for number, chain in enumerate(answer.chains, 1):
        yield from wrapped(f" {number}. {sentence(chain)}", columns, "    ", "")
        last = chain.steps[-1]
        if last.until > last.since and log:
            yield f"    {command(log, last.pid, last.since, last.until)}", "dim"


def sentence(chain: Chain) -> str:
    """`make waited 812 ms for child. Of these, cc1 waited 790 ms for lock: ...`"""
    names = [step.program for step in chain.steps]
    # Each thread of a chain is another one.
    who = [f"another {name}" if name in names[:at] else name for at, name in enumerate(names)]
    return ". Of these, ".join(map(step_text, chain.steps, who)) + "."


def step_text(step: Line, who: str) -> str:
    took = show(step.ns, "ns")
    match step.bin.group:
        case "waited" if step.bin.kind in ("stopped", "frozen", "interrupted"):
            return f"{who} waited {took}, {step.bin.text}"
        case "waited":
            return f"{who} waited {took} for {step.bin.text}"
        case "ran":
            return f"{who} ran {took}, {step.bin.text}"
        case "could run":
            return f"{who} could have run for {took}, {step.bin.text}"
    return f"of {took} of {who} nothing is known, {step.bin.text}"


def command(log: str, pid: int, since: int, until: int) -> str:
    """A stretch of time of a thread, and a little around it."""
    begin, end = max(since - 1000, 0) / 1e9, (until + 1000) / 1e9
    return (f"klogger cat {shlex.quote(log)} --from {begin:.6f}s --to {end:.6f}s"
            f" --where 'pid == {pid}'")  # fmt: skip


def operated(answer: Answer, found: Operated, log: str, columns: int) -> Iterator[Styled]:
    if found.by:
        yield "", ""
        yield f"By {found.by}", "bold"
        yield f"  {'time':>9}  {'share':>6}  {'times':>7}  {'median':>9}  {'longest':>9}", "dim"
        for one in found.kinds[:KINDS_MOST]:
            share = show(one.ns / answer.elapsed if answer.elapsed else 0.0, "share")
            text = (f"  {show(one.ns, 'ns'):>9}  {share:>6}  {one.times:>7,}"
                    f"  {show(one.median, 'ns'):>9}  {show(one.longest, 'ns'):>9}"
                    f"  {one.value or '(none)'}: {one.most.phrase}")  # fmt: skip
            yield cut(text, columns), ""
        rest = found.kinds[KINDS_MOST:]
        if rest:
            ns = show(sum(one.ns for one in rest), "ns")
            yield f"  {ns:>9}  {agreed(f'{len(rest):,} others')}", "dim"
    yield "", ""
    yield "The slowest", "bold"
    for one in found.slowest:
        share = show(one.most_ns / one.ns if one.ns else 0.0, "share")
        text = f"  {show(one.ns, 'ns'):>9}  thread {one.pid}: {share} {one.most.phrase}"
        yield cut(text, columns), ""
        if log:
            yield f"    {command(log, one.pid, one.since, one.since + one.ns)}", "dim"


def threads(answer: Answer, columns: int) -> Iterator[Styled]:
    yield "", ""
    yield "Threads", "bold"
    yield (f"  {'elapsed':>9}  {'ran':>6}  {'could':>6}  {'waited':>6}  {'unknown':>7}"
           f"  {'':{NAME_WIDTH}}  most"), "dim"  # fmt: skip
    for one in answer.threads[:THREADS_MOST]:
        yield thread_row(one, columns), ""
    rest = answer.threads[THREADS_MOST:]
    if rest:
        longest = show(max(one.elapsed for one in rest), "ns")
        yield f"  {agreed(f'{len(rest):,} others')}, of at most {longest}", "dim"


def thread_row(one: Thread, columns: int) -> str:
    shares = [show(one.groups[group] / one.elapsed if one.elapsed else 0.0, "share")
              for group in (RAN, COULD_RUN, WAITED, UNKNOWN)]  # fmt: skip
    most = one.most.text if one.most else ""
    name = f"{one.name}[{one.pid}]"
    text = (f"  {show(one.elapsed, 'ns'):>9}  {shares[0]:>6}  {shares[1]:>6}  {shares[2]:>6}"
            f"  {shares[3]:>7}  {name:{NAME_WIDTH}}  {most}")  # fmt: skip
    return cut(text, columns)


def cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else text[: columns - 1] + "…"


def wrapped(text: str, columns: int, indent: str, style: str) -> Iterator[Styled]:
    for line in textwrap.wrap(text, columns, subsequent_indent=indent, break_long_words=False,
                              break_on_hyphens=False):  # fmt: skip
        yield line, style
