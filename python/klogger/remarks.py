# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What several answers of a report warn of, which is said once, at its head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from klogger.executor import Result

NAMES_MAX = 4


@dataclass(frozen=True)
class Remark:
    """A warning, and the names of the analyses whose answers it is about."""

    text: str
    analyses: tuple[str, ...]

    def names(self) -> str:
        """The first few of the analyses."""
        rest = len(self.analyses) - NAMES_MAX
        return ", ".join(self.analyses[:NAMES_MAX]) + (f" and {rest} more" if rest > 0 else "")


def shared(results: Iterable[Result], said: Sequence[str] = ()) -> list[Remark]:
    """What stands in two answers or more, in the order in which it is met; and of what is `said`
    by the head anyway, whose answers it is about.
    """
    found: dict[str, list[str]] = {text: [] for text in said}
    for result in results:
        for text in dict.fromkeys(result.warnings):
            found.setdefault(text, []).append(result.analysis.name)
    return [
        Remark(text, tuple(names))
        for text, names in found.items()
        if text in said or len(names) > 1
    ]


def own(result: Result, remarks: Iterable[Remark]) -> list[str]:
    """The warnings of an answer that the head does not have."""
    at_head = {remark.text for remark in remarks}
    return [text for text in dict.fromkeys(result.warnings) if text not in at_head]
