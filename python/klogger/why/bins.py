# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The names of bins. A bin is a number here; its name has a group and what it is in there."""

from __future__ import annotations

from typing import NamedTuple

RAN, COULD_RUN, WAITED, UNKNOWN = "ran", "could run", "waited", "unknown"
GROUPS = (RAN, COULD_RUN, WAITED, UNKNOWN)


class Bin(NamedTuple):
    """`kind` is a word of docs/why.md; `what` names the call, lock, file, thread or device.
    `of_request`: a wait for a disk, and no other request can have been what it was for.
    """

    group: str
    kind: str
    what: str = ""
    of_request: bool = False

    @property
    def text(self) -> str:
        if not self.what:
            return self.kind
        return (
            f"{self.kind} {self.what}" if self.group == COULD_RUN else f"{self.kind}: {self.what}"
        )

    @property
    def phrase(self) -> str:
        """What a thread did, behind its name."""
        return f"{self.group}, {self.text}"

    def as_json(self) -> dict[str, str]:
        return {"group": self.group, "kind": self.kind, "what": self.what}


class Bins:
    """Numbers for bins, in the order of their first use."""

    def __init__(self) -> None:
        self.all: list[Bin] = []
        self.numbers: dict[Bin, int] = {}

    def number(self, group: str, kind: str, what: str = "", of_request: bool = False) -> int:
        one = Bin(group, kind, what, of_request)
        if one not in self.numbers:
            self.numbers[one] = len(self.all)
            self.all.append(one)
        return self.numbers[one]

    def __getitem__(self, number: int) -> Bin:
        return self.all[number]
