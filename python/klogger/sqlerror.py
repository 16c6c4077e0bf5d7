# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Says clearly what is wrong with a query: what, in which line, and what was probably meant."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

import duckdb

from klogger.failure import nearest

# Kinds of names that DuckDB reports as unknown, and the name in its message.
UNKNOWN = re.compile(
    r"(?:Table with name|Scalar Function with name|Table Function with name|Referenced "
    r"column|Referenced table|"
    r'does not have a column named) "?([^"\s]+)"?'
)
POSITION = re.compile(r"\n\nLINE (\d+): (.*)\n(\s*)\^")
# What is asked for as if each event had it, and how it is told.
TOLD = dict.fromkeys(
    ("comm", "command", "name", "process", "process_name", "program"), "comm(pid, time)"
)
# An error of another thread, as JSON within the message.
WITHIN = re.compile(r'\{"exception_type".*"exception_message":("(?:[^"\\]|\\.)*")')
HINT = re.compile(r"\n(?:Did you mean|Candidate bindings:|Candidate tables:) ([^\n]*)")


@dataclass(frozen=True)
class Fault:
    """`line` counts from 1, and `column` from 0, in `shown`, which may be only a part of the line;
    line 0: it is not known where. `close`: what was probably meant.
    """

    message: str
    line: int = 0
    shown: str = ""
    column: int = 0
    close: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The message, the line with a caret, and what was probably meant."""
        parts = [self.message]
        if self.line:
            label = f"  line {self.line}: "
            parts += [label + self.shown, " " * (len(label) + self.column) + "^"]
        return parts + ([f"  help: {self.meant()}"] if self.close else [])

    def in_one_line(self) -> str:
        place = f"line {self.line}, column {self.column + 1}: " if self.line else ""
        return place + self.message + (f"; {self.meant()}" if self.close else "")

    def meant(self) -> str:
        return f"did you mean {' or '.join(self.close)}?"


def fault(error: duckdb.Error, query: str, names: Iterable[str] = ()) -> Fault:
    """`names`: the nearest of them is offered if one is unknown."""
    text = str(error)
    message = re.sub(r"^\w[\w ]* Error: ", "", text.split("\n", maxsplit=1)[0]).rstrip("!")
    within = WITHIN.search(message)
    if within is not None:
        message = str(json.loads(within[1]))
    unknown = UNKNOWN.search(text)
    position = POSITION.search(text)
    place: tuple[int, str, int] = (0, "", 0)
    if position is not None:
        counted, shown = int(position[1]), position[2]
        line = line_of(query, counted, shown)
        # Where it does not count the empty lines that a query begins with, its caret is too far to
        # the right by as many.
        column = len(position[3]) - len(f"LINE {position[1]}: ") - (line - counted)
        place = (line, shown, min(max(column, 0), len(shown)))
    elif unknown is not None:
        place = place_of(unknown[1], query)
    close: list[str] = []
    if unknown is not None and "Referenced column" in text and unknown[1].lower() in TOLD:
        close = [TOLD[unknown[1].lower()]]
    elif unknown is not None:
        close = nearest(unknown[1].split(".")[-1], [*names, *hinted(text)])
    return Fault(message, *place, tuple(close))


def explain(error: duckdb.Error, query: str, names: Iterable[str] = ()) -> str:
    """The same as several lines of text."""
    return "\n".join(fault(error, query, names).lines())


def line_of(query: str, counted: int, shown: str) -> int:
    """The number of a line that DuckDB shows, perhaps without its ends; it may have counted from
    where one begins.
    """
    part = shown.removeprefix("...").removesuffix("...").strip()
    places = [number for number, line in enumerate(query.splitlines(), 1) if part in line]
    return next((number for number in places if number >= counted), counted)


def hinted(text: str) -> list[str]:
    """Names that DuckDB itself offers, without what they belong to."""
    hint = HINT.search(text)
    return [n.split(".")[-1] for n in re.findall(r'"([^"]+)"', hint[1])] if hint else []


def place_of(name: str, query: str) -> tuple[int, str, int]:
    """The line of the query with the name: its number, its text, and where in it."""
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
    for number, line in enumerate(query.splitlines(), 1):
        match = word.search(line)
        if match is not None:
            return number, line, match.start()
    return 0, "", 0
