# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A log, and the same as two logs: what an expectation describes, and after it the same again with
each time STRETCH times as long.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

from klogger import expectation
from klogger.expectation import Expectation

# Lines that say something of a log that is not twice as much of two.
STRETCH = 3
UNSUITABLE = ("killed", "ledger", "overwrite")
TIMED = re.compile(r"(\S+)(\s+(?:\d+|-)\s+[A-Z][A-Z_0-9]* ?.*)")


def is_suitable(case: Expectation) -> bool:
    return not any(line.split()[0] in UNSUITABLE for line in case.log)


def length(case: Expectation) -> int:
    """Of one half: no event of it is later."""
    times = [0]
    for line in case.log:
        words = shlex.split(line)
        if words[0] == "end":
            times.append(expectation.time_of(words[1]))
        elif TIMED.fullmatch(line):
            times.append(expectation.time_of(words[0]) + 1000)
        elif words[0] == "process":
            times += [expectation.time_of(w) for w in words[3:]]
    return max(times)


def stretched(line: str, by: int) -> str:
    """And later by so much."""
    words = shlex.split(line)
    if words[0] == "process":
        times = [expectation.time_of(w) for w in words[3:]] or [0]
        return shlex.join([*words[:3], *(f"{STRETCH * t + by}ns" for t in times)])
    found = TIMED.fullmatch(line)
    return f"{STRETCH * expectation.time_of(found[1]) + by}ns{found[2]}" if found else line


def halves(case: Expectation, folder: Path) -> tuple[Path, list[Path]]:
    """The whole, and its two parts."""
    once = [line for line in case.log if not line.startswith("end")]
    end = length(case)
    again = [stretched(line, end) for line in once if not line.startswith(("stack ", "cost "))]
    whole = [*once, *again, f"end {(1 + STRETCH) * end}ns"]
    second = [stretched(line, 0) for line in once]
    parts = []
    for number, lines in enumerate(([*once, f"end {end}ns"], [*second, f"end {STRETCH * end}ns"])):
        half = dataclasses.replace(case, log=lines)
        part = expectation.make(half, folder / f"part{number}.klog-parquet")
        # Another beginning makes it another recording.
        meta = part / "meta.json"
        start = "1700000000000000000"
        meta.write_text(meta.read_text().replace(start, start[:-2] + f"{number:02}"))
        parts.append(part)
    made = dataclasses.replace(case, log=whole)
    return expectation.make(made, folder / "whole.klog-parquet"), parts
