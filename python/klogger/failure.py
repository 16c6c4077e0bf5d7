# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is raised when something cannot be done: one message, and a remedy where there is one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Failure(Exception):
    """Printed by the commands as `klogger: MESSAGE`, then `  help: REMEDY`; exit code 2."""

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.help = help

    def __str__(self) -> str:
        return f"{self.message}\n  help: {self.help}" if self.help else self.message


def nearest(word: str, candidates: Iterable[str]) -> list[str]:
    """The candidates that `word` may have been meant to be, best first; upper and lower case are
    the same.
    """
    by_lower = {c.lower(): c for c in candidates}
    return [by_lower[c] for c in difflib.get_close_matches(word.lower(), by_lower, n=3, cutoff=0.6)]


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    found = nearest(word, candidates)
    return f"did you mean {' or '.join(found)}?" if found else None
