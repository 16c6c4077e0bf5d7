# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger analysis`, which `klogger check` runs for SQL files."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from klogger import checking
from klogger.checking import Checked
from klogger.cli import Parser, add_common, complain, guarded
from klogger.units import printable


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger analysis",
        description="Check analyses: their headers, their SQL against the tables of their schema,"
        " their pictures, and what they answer to the logs of their expectations."
        " 'klogger check' does the same.",
        epilog="example: klogger analysis mine/analyses/*.sql",
    )
    found.add_argument("files", metavar="FILE.sql", nargs="+", type=Path)
    found.add_argument("--format", choices=["text", "json"], default="text")
    add_common(found)
    return found


def main(words: list[str] | None = None) -> int:
    args = parser().parse_intermixed_args(words)
    return guarded(lambda: check(args))


def check(args: argparse.Namespace) -> int:
    every = [checking.check(path) for path in args.files]
    if args.format == "json":
        json.dump([as_json(one) for one in every], sys.stdout, indent=1)
        print()
    else:
        for one in every:
            show(one)
    return 2 if any(one.faults for one in every) else 0


def show(one: Checked) -> None:
    for fault in one.faults:
        complain(fault)
    if not one.faults:
        count = f"{one.expectations} expectation{'s' if one.expectations != 1 else ''}"
        print(printable(f"{one.path}: ok, {count}"))


def as_json(one: Checked) -> dict[str, object]:
    faults = [
        {
            "severity": "error", "message": told.message, "help": told.help,
            "line": told.line, "column": told.column,
        }
        for told in one.told
    ]  # fmt: skip
    return {"file": str(one.path), "ok": not faults, "diagnostics": faults, "probes": None}


if __name__ == "__main__":
    sys.exit(main())
