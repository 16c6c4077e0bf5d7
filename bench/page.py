# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The page of all sections, of which some may have been measured now and others stay as
they were.
"""

import itertools
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterable
from pathlib import Path

from measure import machine

WIDTH = 116
MARK = "<!-- section {} -->"
MARKS = re.compile(r"^<!-- section ([\w-]+) -->\n", re.M)
# What says which version it is of, by name.
VERSIONS = {
    "klogger": ["klogger", "--version"],
    "perf": ["perf", "--version"],
    "trace-cmd": ["trace-cmd", "--version"],
    "bpftrace": ["bpftrace", "--version"],
    "libbpf": ["dpkg-query", "-W", "-f", "${Version}", "libbpf1"],
    "babeltrace2": ["babeltrace2", "--version"],
    "LTTng": ["lttng", "--version"],
    "SystemTap": ["stap", "--version"],
    "clang": ["clang", "--version"],
    "gcc": ["gcc", "--version"],
    "valgrind": ["valgrind", "--version"],
}


def sections_of(text: str) -> dict[str, str]:
    """Of a page that was written before, by name."""
    parts = MARKS.split(text)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def page(head: Iterable[str], sections: dict[str, str], order: Iterable[str]) -> str:
    blocks = [f"{MARK.format(name)}\n{sections[name]}" for name in order if name in sections]
    return "\n\n".join(["\n".join(head).strip(), *blocks]) + "\n"


def wrapped(lines: Iterable[str]) -> list[str]:
    """Paragraphs in lines of equal length; tables, lists and headings stay as they are."""
    found: list[str] = []
    for plain, group in itertools.groupby(
        lines, lambda line: line[:1].isalnum() or line[:1] == "`"
    ):
        some = list(group)
        text = textwrap.wrap(" ".join(some), WIDTH, break_long_words=False, break_on_hyphens=False)
        found += text if plain else some
    return found


def version_of(said: str) -> str:
    """The first word of what a program has said that looks like a version."""
    found = re.search(r"\bv?(\d+(?:\.\d+)+[\w.+:~-]*)", said)
    return found[1] if found else "unknown"


def versions(tools) -> str:
    found = []
    for name, (program, *words) in VERSIONS.items():
        path = {"klogger": tools.klogger, "clang": tools.clang or "clang"}.get(name, program)
        if not shutil.which(path):
            found.append(f"no {name}")
            continue
        done = subprocess.run([path, *words], capture_output=True, text=True, check=False)
        found.append(f"{name} {version_of(done.stdout + done.stderr)}")
    return ", ".join(found)


def head(tools, picture: Path | None) -> list[str]:
    shown = (
        f"![What a hit costs that logs two ints, by tool, on a logarithmic scale]({picture.name})"
    )
    lines = [
        "# Benchmarks",
        "",
        (
            "Written by `make bench`, which installs the others from Debian. Each number is the"
            " median of several"
        ),
        (
            "rounds, in which it took turns with the others of its table, with the quartiles behind"
            " it. Compare ratios:"
        ),
        (
            "nanoseconds belong to the machine. What spreads too wide, or cannot be measured here,"
            " has no number. At"
        ),
        (
            "the end of each section is how many rounds there were, how long they took, and how"
            " much others had to do"
        ),
        (
            "on the machine before: a load of 0 is an idle machine, and what is said in seconds of"
            " the clock suffers."
        ),
        "",
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {text} |" for name, text in [*machine(), ("versions", versions(tools))]),
        "",
        *([shown] if picture and picture.exists() else []),
    ]
    return wrapped(lines)
