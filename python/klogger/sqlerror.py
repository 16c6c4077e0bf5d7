# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Says clearly what is wrong with a query: what, in which line, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable

import duckdb

from klogger.failure import nearest

# Kinds of names that DuckDB reports as unknown, and the name in its message.
UNKNOWN = re.compile(
    r"(?:Table with name|Scalar Function with name|Table Function with name|Referenced "
    r"column|Referenced table|"
    r'does not have a column named) "?([^"\s]+)"?'
)
POSITION = re.compile(r"\n\nLINE (\d+): (.*)\n(\s*)\^")
HINT = re.compile(r"\n(?:Did you mean|Candidate bindings:|Candidate tables:) ([^\n]*)")


def explain(error: duckdb.Error, query: str, names: Iterable[str] = ()) -> str:
    """The message, the line with a caret, and the nearest of `names` if one is unknown. Several
    lines of text.
    """
    text = str(error)
    message = re.sub(r"^\w[\w ]* Error: ", "", text.split("\n", maxsplit=1)[0]).rstrip("!")
    unknown = UNKNOWN.search(text)
    position = POSITION.search(text)
    parts = [message]
    if position is not None:
        label = f"line {line_of(query, int(position[1]), position[2])}: "
        caret = len(position[3]) - len(f"LINE {position[1]}: ") + len(label)
        parts += [f"  {label}{position[2]}", "  " + " " * caret + "^"]
    elif unknown is not None:
        parts += point_at(unknown[1], query)
    if unknown is not None:
        close = nearest(unknown[1].split(".")[-1], [*names, *hinted(text)])
        if close:
            parts.append(f"  help: did you mean {' or '.join(close)}?")
    return "\n".join(parts)


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


def point_at(name: str, query: str) -> list[str]:
    """The line of the query with the name, and a caret below it."""
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
    for number, line in enumerate(query.splitlines(), 1):
        match = word.search(line)
        if match is not None:
            label = f"  line {number}: "
            return [label + line, " " * (len(label) + match.start()) + "^"]
    return []
