# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The events of all hosts of a collection in the order of time, by the clock of the machine that
collected them; and which messages came before they were sent.
"""

from __future__ import annotations

import heapq
import json
import re
import subprocess
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from klogger import collected
from klogger.durations import duration
from klogger.failure import Failure
from klogger.program import JSON, answer, cannot_run, find_klogger, said

TIME = re.compile(r" *(\d+)\.(\d{9}) ")
RULE = re.compile(r"\s*(\w+)\s*->\s*(\w+)\s+by\s+(\w+(?:\s*,\s*\w+)*)\s*")


class Event(NamedTuple):
    at_ns: int
    host: int
    text: str


@dataclass(frozen=True)
class Source:
    """The log of a host. `start_ns`: its beginning by our clock; `error_ns`: of all its times."""

    host: str
    log: Path
    start_ns: int
    error_ns: int | None


def sources(folder: Path) -> list[Source]:
    clocks = sorted(folder.glob(f"*/{collected.FILE}"))
    if not clocks:
        raise Failure(
            f"{folder}: no collection: there is no {collected.FILE} in a folder of it",
            help="'klogger collect HOST... --to DIR -- OPTIONS' makes one",
        )
    return [source(file) for file in clocks]


def source(file: Path) -> Source:
    try:
        found = json.loads(file.read_text())
        log = file.parent / Path(found["log"]).name
        clock = answer("info", log)["preamble"]["clock"]
        known = found.get("monotonic") or found.get("realtime")
        start = collected.wall(found, clock)
        return Source(found["host"], log, start, known["error_ns"] if known else None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Failure(f"{file}: not as 'klogger collect' writes it: {error}") from None


def head(found: Sequence[Source]) -> str:
    """What the order is worth."""
    errors = [
        f"{s.host} ± {duration(s.error_ns) if s.error_ns is not None else '?'}" for s in found
    ]
    return f"# by the clock of the machine that collected them: {', '.join(errors)}"


def merged(
    found: Sequence[Source], words: Sequence[str], note: Callable[[str], None]
) -> Iterator[Event]:
    """`words`: options of `klogger cat`; with `--format json` each event is an object. `note` is
    told what is missing in the logs.
    """
    readers = [reader(number, one, words, note) for number, one in enumerate(found)]
    return heapq.merge(*readers, key=lambda event: event.at_ns)


def reader(
    number: int, one: Source, words: Sequence[str], note: Callable[[str], None]
) -> Iterator[Event]:
    command = [find_klogger(), "cat", "--no-pager", *JSON, *words, str(one.log)]
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        try:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace"
            )
        except OSError as error:
            raise cannot_run(command[0], error) from None
        with process:
            assert process.stdout
            parsed = rows if "json" in words else events
            for at, text in parsed(process.stdout):
                yield Event(one.start_ns + at, number, text)
        errors.seek(0)
        found = said(errors.read())
    if process.returncode:
        raise found.failure(f"{one.log}: it could not be read")
    # `klogger cat` says what is lost as text.
    for text in [*(m["text"] for m in found.of("note")), *found.others]:
        note(f"{one.host}: {text.removeprefix('klogger: ')}")


def events(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Each with its time in its log, which its text does not have any more."""
    at, text = None, ""
    for line in lines:
        found = TIME.match(line)
        if not found:
            # Of an event with several lines.
            text += line
            continue
        if at is not None:
            yield at, text.rstrip("\n")
        at, text = int(found[1] + found[2]), line[found.end() :]
    if at is not None:
        yield at, text.rstrip("\n")


def rows(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The same of those in JSON."""
    for line in lines:
        yield int(json.loads(line)["time"]), line


@dataclass(frozen=True)
class Rule:
    """`SENT -> RECEIVED by FIELD, ...`: which event says that a message was sent, which that it was
    received, and by which fields they belong together.
    """

    sent: str
    received: str
    fields: tuple[str, ...]

    @staticmethod
    def parse(text: str) -> Rule:
        found = RULE.fullmatch(text)
        if not found:
            raise Failure(
                f"'{text}' is no rule", help="as in --check 'SENT -> RECEIVED by id'; or 'by a, b'"
            )
        return Rule(found[1], found[2], tuple(re.split(r"\s*,\s*", found[3])))


@dataclass
class Answer:
    """`early`: messages that came before they were sent; `beyond`: of these, those that the error
    of the clocks does not explain; `first`: the worst of them, in words.
    """

    pairs: int = 0
    early: int = 0
    beyond: int = 0
    worst_ns: int = 0
    first: str = ""
    open: int = 0

    def text(self) -> str:
        lines = [
            f"{self.pairs:,} messages; {self.early:,} came before they were sent,"
            f" {self.beyond:,} of them by more than the error of the clocks"
        ]
        lines += [f"  the worst by {duration(self.worst_ns)}: {self.first}"] if self.early else []
        lines += [f"  {self.open:,} were sent or received only"] if self.open else []
        return "\n".join(lines)


@dataclass
class Checker:
    found: Sequence[Source]
    rule: Rule
    note: Callable[[str], None]
    answer: Answer = field(default_factory=Answer)

    def run(self) -> Answer:
        """The first that is sent with a key is the first that is received with it."""
        rule = self.rule
        names = list(dict.fromkeys((rule.sent, rule.received)))
        waiting: dict[tuple[Any, ...], deque[tuple[str, Event]]] = defaultdict(deque)
        words = ["--format", "json", "--event", ",".join(names)]
        for event in merged(self.found, words, self.note):
            row = json.loads(event.text)
            name, key = row["event"], tuple(row.get(f) for f in rule.fields)
            others = waiting[key]
            if others and others[0][0] != name:
                self.pair(name, event, others.popleft()[1], key)
                if not others:
                    del waiting[key]
            else:
                others.append((name, event))
        self.answer.open = sum(map(len, waiting.values()))
        return self.answer

    def pair(self, name: str, later: Event, earlier: Event, key: tuple[Any, ...]) -> None:
        found = self.answer
        found.pairs += 1
        if name == self.rule.received:
            return
        by = later.at_ns - earlier.at_ns
        sent, received = self.found[later.host], self.found[earlier.host]
        found.early += by > 0
        # Two events of one host have the error of neither.
        errors = 0 if sent is received else (sent.error_ns or 0) + (received.error_ns or 0)
        found.beyond += by > errors
        if by > found.worst_ns:
            what = ", ".join(f"{f}={v}" for f, v in zip(self.rule.fields, key, strict=True))
            found.worst_ns = by
            found.first = f"{what} from {sent.host} to {received.host}"
