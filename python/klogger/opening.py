# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a dataset keeps of opening a log, in the recording's entry: to find it out takes longer than
most analyses of a log of 100,000 events, and it stays the same.

`LIKE` is raised when another klogger would find out something else; then, and of an entry without
it, the tables are read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

LIKE = 1
NAME = "opening"
# A log with more rows in `thread` and `renamed` has them read: it takes long enough as it is.
THREADS_MAX = 256
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Opening:
    """`to_ns`, `finished`: of the table `recording`. `events`, `decodings`: digests, which are the
    same for logs with the same events, but for their `counts` (logged and lost, by name), and with
    the same texts for values. `names`: how many the thread has that has most of them. `threads`,
    `renamed`: the rows of the tables, but for the recorder's own; None if there are many.
    """

    to_ns: int
    finished: bool
    names: int
    events: str
    decodings: str
    counts: Mapping[str, tuple[int, int]]
    threads: tuple[Row, ...] | None = None
    renamed: tuple[Row, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "like": LIKE, "to_ns": self.to_ns, "finished": self.finished, "names": self.names,
            "events": self.events, "decodings": self.decodings,
            "counts": {name: [*counts] for name, counts in self.counts.items()},
            "threads": self.threads, "renamed": self.renamed,
        }  # fmt: skip


def digest(rows: Iterable[object]) -> str:
    found = hashlib.sha256()
    for row in rows:
        found.update(f"{row!r}\n".encode())
    return found.hexdigest()[:32]


def read(said: Mapping[str, Any]) -> Opening | None:
    """Of an entry, which may be somebody else's."""
    found = said.get(NAME)
    if not isinstance(found, dict) or found.get("like") != LIKE:
        return None
    counts = {str(n): (int(logged), int(lost)) for n, (logged, lost) in found["counts"].items()}
    return Opening(
        int(found["to_ns"]), bool(found["finished"]), int(found["names"]), str(found["events"]),
        str(found["decodings"]), counts, rows_of(found["threads"]), rows_of(found["renamed"]),
    )  # fmt: skip


def rows_of(found: Any) -> tuple[Row, ...] | None:
    return None if found is None else tuple(tuple(row) for row in found)
