# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""python/commands.json has the options of the programs klogger-NAME, from which the completions and
man pages of `klogger NAME` are made (crates/cli/src/external.rs).

`KLOGGER_BLESS=1 pytest python/tests/test_commands.py` writes it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from klogger.cli import analysis, compare, dataset, output, report, sql, verify
from klogger_lab.cli import bench, collect, guest, mcp, stopwatch, study, top, watch, why

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "python" / "commands.json"
PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "sql": sql.parser,
    "report": report.parser,
    "analysis": analysis.parser,
    "compare": compare.parser,
    "dataset": dataset.parser,
    "verify": verify.parser,
    "mcp": mcp.parser,
    "stopwatch": stopwatch.parser,
    "watch": watch.parser,
    "why": why.parser,
    "top": top.parser,
    "study": study.parser,
    "bench": bench.parser,
    "guest": guest.parser,
    "collect": collect.parser,
}


def described(parser: argparse.ArgumentParser) -> dict[str, object]:
    return {
        "about": parser.description,
        "usage": parser.format_usage().removeprefix("usage: ").strip(),
        "after": parser.epilog or "",
        "arguments": [argument(a) for a in parser._actions if not is_hidden(a)],
    }


def is_hidden(action: argparse.Action) -> bool:
    return action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction)


def argument(action: argparse.Action) -> dict[str, object]:
    """`value`: none if it takes none; `path`: it is a file or a folder."""
    value = action.metavar or (action.dest.upper() if not action.option_strings else None)
    takes = action.nargs != 0
    return {
        "flags": list(action.option_strings),
        "value": str(value or action.dest.upper()) if takes else None,
        "values": [str(choice) for choice in action.choices or []],
        "path": action.type in (Path, output),
        "many": action.nargs in ("+", "*", argparse.REMAINDER),
        "help": (action.help or "").replace("%%", "%"),
    }


def dkms() -> dict[str, object]:
    """A shell script: as its own help has it."""
    program = ROOT / "packaging" / "klogger-dkms"
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    usage, rest = text.removeprefix("usage: ").split("\n\n", 1)
    about, rest = rest.split("\n\n", 1)
    options = re.findall(r"^  (-\w) (\w+) +(.*)$", rest, re.M)
    words = re.findall(r"[A-Z]+", usage.split("]")[1])
    assert options and words, text
    arguments = [(flag, value, text) for flag, value, text in options]
    arguments += [("", word, "") for word in words]
    return {
        "about": " ".join(about.split()),
        "usage": usage,
        "after": rest[rest.index("Examples:") :].strip(),
        "arguments": [
            {
                "flags": [flag] if flag else [],
                "value": value,
                "values": [],
                "path": value in ("DIR", "FILE"),
                "many": value == "FILE",
                "help": text,
            }
            for flag, value, text in arguments
        ],
    }


def test_the_file_has_the_options_of_all_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = {name: described(parser()) for name, parser in PARSERS.items()}
    text = json.dumps({**found, "dkms": dkms()}, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("KLOGGER_BLESS"):
        FILE.write_text(text)
    assert FILE.read_text() == text, "options have changed: run this test with KLOGGER_BLESS=1"


def test_every_program_is_in_it() -> None:
    scripts = (ROOT / "python" / "pyproject.toml").read_text()
    programs = set(re.findall(r"^klogger-(\w+) = ", scripts, re.M))
    assert set(json.loads(FILE.read_text())) == programs | {"dkms"}
