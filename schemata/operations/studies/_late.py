# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the time of a player's requests went to: of each moment one layer, by a log's spans."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from klogger.log import Log

# Of the layers that a thread is in at the same time the first counts.
FIRST = ("lock", "journal", "allocation", "device", "queue", "page cache")
OFF_CPU, REST = "not running", "running"
PARTS = (*FIRST, OFF_CPU, REST)
Span = tuple[int, int, str]


@dataclass
class Request:
    """Times in ns of the log. `deadline` 0: none. `parts` has ns by layer; together they are what
    the request took.
    """

    stream: int
    tid: int
    issued: int
    done: int
    deadline: int
    parts: dict[str, int] = field(default_factory=dict)

    @property
    def took(self) -> int:
        return self.done - self.issued

    @property
    def late(self) -> int:
        return max(self.done - self.deadline, 0) if self.deadline else 0

    @property
    def largest(self) -> str:
        return max(self.parts, key=lambda layer: self.parts[layer]) if self.parts else REST


def requests_of(output: str, start_ns: int) -> list[Request]:
    """What the player printed."""
    found = []
    for line in output.splitlines():
        words = line.split()
        if len(words) == 5:
            stream, tid, issued, done, deadline = map(int, words)
            due = deadline - start_ns if deadline else 0
            found.append(Request(stream, tid, issued - start_ns, done - start_ns, due))
    return found


class Spans:
    """Of one thread. `add` takes them in the order in which they begin."""

    def __init__(self) -> None:
        self.all: list[Span] = []
        self.begins: list[int] = []
        # The latest end of each and all before it, by which those are found that still last.
        self.ends: list[int] = []

    def add(self, span: Span) -> None:
        self.all.append(span)
        self.begins.append(span[0])
        self.ends.append(max(span[1], self.ends[-1] if self.ends else 0))

    def within(self, begun: int, ended: int) -> Iterator[Span]:
        """What of them lies between two times."""
        some = self.all[bisect_right(self.ends, begun) : bisect_left(self.begins, ended)]
        for from_ns, to_ns, layer in some:
            if to_ns > begun:
                yield max(from_ns, begun), min(to_ns, ended), layer


def spans_of(log: Log, tids: set[int]) -> dict[int, Spans]:
    """By thread; with the times in which it was off the CPU."""
    listed = ", ".join(map(str, sorted(tids)))
    found: dict[int, Spans] = defaultdict(Spans)
    rows = log.rows(f"""
        SELECT pid, s.from_ns, coalesce(s.to_ns, r.to_ns), layer
        FROM klogger.span AS s, klogger.recording AS r
        WHERE pid IN ({listed}) AND layer <> 'system call'
        UNION ALL
        SELECT o.pid, o.time, coalesce(i.time, r.to_ns), '{OFF_CPU}'
        FROM (FROM SCHEDOUT WHERE pid IN ({listed})) AS o
        ASOF LEFT JOIN (FROM SCHEDIN WHERE pid IN ({listed})) AS i
            ON o.pid = i.pid AND o.time <= i.time, klogger.recording AS r
        ORDER BY 2, 3, 4
    """)
    for pid, from_ns, to_ns, layer in rows:
        found[pid].add((from_ns, to_ns, layer))
    return found


def split(request: Request, spans: Spans) -> dict[str, int]:
    """Of each moment of the request one layer, the first of `FIRST` of those that it was in."""
    cut = {request.issued, request.done}
    inside = list(spans.within(request.issued, request.done))
    for from_ns, to_ns, _ in inside:
        cut |= {from_ns, to_ns}
    parts: dict[str, int] = defaultdict(int)
    edges = sorted(cut)
    for begin, end in itertools.pairwise(edges):
        layers = {layer for from_ns, to_ns, layer in inside if from_ns <= begin and end <= to_ns}
        parts[next((layer for layer in (*FIRST, OFF_CPU) if layer in layers), REST)] += end - begin
    return dict(parts)
