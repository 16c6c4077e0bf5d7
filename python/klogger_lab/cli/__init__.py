# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The programs `klogger-study`, `klogger-bench`, `klogger-stopwatch`, `klogger-watch` and
`klogger-guest`: one module for each.

**Invariant:** nothing outside this package and `klogger.cli` prints or exits.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from klogger import outputs
from klogger.failure import Failure

TIMES = {"": 1.0, "s": 1.0, "ms": 1e-3, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds(word: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|ms|m|min|h)?", word)
    if found is None or float(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"'{word}' is no time: 30s, 5m, 1h")
    return float(found[1]) * TIMES[found[2] or ""]


def split(words: list[str] | None) -> tuple[list[str], list[str]]:
    """Our own words, those of the command line if none are given, and the command behind `--`,
    whatever it looks like.
    """
    given = sys.argv[1:] if words is None else words
    at = given.index("--") if "--" in given else len(given)
    return given[:at], given[at + 1 :]


def interruptible(work: Callable[[], int]) -> int:
    """Runs an experiment that puts back what it changes, and says so when it is interrupted."""
    try:
        return work()
    except KeyboardInterrupt:
        print("klogger: interrupted; everything is put back", file=sys.stderr)
        raise


def check_writable(*folders: Path | None) -> None:
    """Before an experiment: its minutes would be lost."""
    for folder in folders:
        try:
            if folder is not None:
                outputs.folder(folder)
                tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise Failure(f"cannot write to {folder}: {error.strerror}") from None
