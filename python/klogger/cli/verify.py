# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger verify`: whether what was said of a log is so."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Mapping
from typing import Any

from klogger.claims import asked
from klogger.claims import claim as claims
from klogger.claims.claim import Refuted
from klogger.cli import Parser, add_common, guarded, private_as
from klogger.failure import Failure
from klogger.log import Log
from klogger.units import printable

# Of a file with claims. An answer of `klogger mcp` has 4 kB.
SIZE_MAX = 1 << 20
EPILOG = """\
examples:
  klogger verify claim.json               on the log that the claim names
  klogger verify claim.json copy.klog     on this one, which must be the same log
  klogger verify - < answer.json          each claim of an answer of klogger mcp

A claim has what was asked, the answer, the UUID of the log, events that it
rests on, and what the log lacks. All of it is found out again, and must be the
same; docs/mcp.md says what a claim has.

Exit code: 0 all are so, 1 one is not, 2 of one it cannot be found out, and no
other is refuted.
"""


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger verify",
        description="Check again on a log what klogger mcp has said of it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "claim", metavar="FILE", help="JSON: a claim, or an answer with claims; - is the standard"
        " input",
    )  # fmt: skip
    found.add_argument(
        "log", metavar="LOG", nargs="?", help="the log (the file that the claim names)"
    )
    found.add_argument("--format", choices=["text", "json"], default="text", help="(text)")
    add_common(found)
    return found


def main(words: list[str] | None = None) -> int:
    args = parser().parse_intermixed_args(words)
    return guarded(lambda: verify(args))


def verify(args: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        logs = Logs(stack)
        listed = claims.claims_in(read(args.claim))
        found = [(one, logs.checked(one, args.log)) for one in listed]
    if args.format == "json":
        print(json.dumps([as_json(*one) for one in found], indent=1))
    else:
        for number, (one, checked) in enumerate(found, 1):
            show(number, one, checked)
    if any(checked for _, checked in found if isinstance(checked, list)):
        return 1
    return 2 if any(isinstance(checked, Failure) for _, checked in found) else 0


def read(file: str) -> str:
    try:
        if file == "-":
            content = sys.stdin.buffer.read(SIZE_MAX + 1)
        else:
            with open(file, "rb") as opened:
                content = opened.read(SIZE_MAX + 1)
        if len(content) > SIZE_MAX:
            raise Failure(f"{file}: more than {SIZE_MAX >> 20} MiB, which no claim has")
        return content.decode()
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise Failure(f"{file}: byte {error.start} is not UTF-8 text") from None


# What of a claim is refuted; or why nothing can be found out.
Checked = list[Refuted] | Failure


class Logs:
    """Claims of one answer are of one log, and often of one question."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.stack = stack
        self.found: dict[str, tuple[Log, claims.Answers]] = {}

    def checked(self, claim: Mapping[str, Any], log: str | None) -> Checked:
        try:
            return self.refuted(claim, log)
        except Failure as failure:
            return failure

    def refuted(self, claim: Mapping[str, Any], log: str | None) -> list[Refuted]:
        file = log if log is not None else claim.get(claims.PLACE)
        if not isinstance(file, str) or not file or "\0" in file:
            raise Failure("the claim does not name its log", help="klogger verify FILE LOG")
        if file not in self.found:
            private_as(file)
            self.found[file] = self.stack.enter_context(asked.opened(file)), {}
        opened, known = self.found[file]
        return claims.check(opened, claim, known)


def as_json(claim: Mapping[str, Any], checked: Checked) -> dict[str, Any]:
    """`verified` is null if it cannot be found out."""
    by = claim.get("by")
    if isinstance(checked, Failure):
        return {"verified": None, "by": by, "refuted": [], "error": checked.message}
    listed = [{"part": one.part, "text": one.why} for one in checked]
    return {"verified": not checked, "by": by, "refuted": listed}


def show(number: int, claim: Mapping[str, Any], checked: Checked) -> None:
    by = claim["by"]
    words = [by["kind"], by.get("analysis"), by.get("part"), f"row {by.get('row')}"]
    what = printable(" ".join(str(word) for word in words if word is not None))
    if isinstance(checked, Failure):
        print(f"{number}: not known: {what}")
        print(printable(f"   {' '.join(str(checked).split())}"))
        return
    print(f"{number}: {'refuted' if checked else 'verified'}: {what}")
    for one in checked:
        print(printable(f"   {one.part}: {one.why}"))


if __name__ == "__main__":
    sys.exit(main())
