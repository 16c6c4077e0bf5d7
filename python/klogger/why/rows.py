# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The rows of the tables of bins, in their order, whatever draws them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from klogger.numerals import agreed
from klogger.why.answer import Answer, Line
from klogger.why.bins import GROUPS, UNKNOWN, Bin

# What is less of the elapsed time is summed up.
LEAST = 0.0005
GROUP, BIN, REST = "group", "bin", "rest"


@dataclass(frozen=True)
class Row:
    """`kind`: a group, a bin, or what is left in one row. `times`: how many stretches, and the
    `longest`; 0 of what has no place in time, or of several bins.
    """

    kind: str
    what: str
    ns: int
    times: int = 0
    longest: int = 0


def tree(answer: Answer, most: int) -> Iterator[Row]:
    """The groups, most time first, each with its bins. `unknown` is last, and always there."""
    groups = {group: merged(line for line in answer.own if line.bin.group == group)
              for group in GROUPS}  # fmt: skip
    sums = {group: sum(line.ns for line in found) for group, found in groups.items()}
    for group in sorted(GROUPS, key=lambda group: (group == UNKNOWN, -sums[group])):
        if sums[group] or group == UNKNOWN:
            yield Row(GROUP, group, sums[group])
        yield from some(answer, [(line.bin.text, line) for line in groups[group]], most)


def ends(answer: Answer, most: int) -> Iterator[Row]:
    """Where following ends, by program."""
    named = [(f"{line.program}: {line.bin.phrase}", line) for line in answer.followed]
    yield from some(answer, named, most)


def some(answer: Answer, given: list[tuple[str, Line]], most: int) -> Iterator[Row]:
    """Those with most time, and what is left in one row."""
    least = answer.elapsed * LEAST
    shown = [(what, line) for what, line in given[:most] if line.ns >= least]
    for what, line in shown:
        # Of amounts nobody knows when they were.
        times = line.times if line.longest else 0
        yield Row(BIN, what, line.ns, times, line.longest)
    rest = given[len(shown) :]
    if rest:
        yield Row(REST, agreed(f"{len(rest):,} others"), sum(line.ns for _, line in rest))


def merged(given: Iterable[Line]) -> list[Line]:
    """Of several programs together."""
    made: dict[Bin, Line] = {}
    for line in given:
        one = made.setdefault(line.bin, Line(line.program, line.bin))
        one.add(line.ns, line.times, line.longest, line.since, line.until, line.pid)
    return sorted(made.values(), key=lambda line: -line.ns)
