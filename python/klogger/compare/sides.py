# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the recordings are, and what else than the thing under test differs between them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from klogger.durations import duration
from klogger.log import Log, section
from klogger.summary import command
from klogger.units import printable

# Recordings whose lengths differ by more than this are said to.
LENGTH = 0.1


@dataclass(frozen=True)
class Facts:
    """A run. `same` is what should be the same in all of them, by what it is called."""

    file: str
    command: str
    seconds: float
    events: int
    lost: int
    same: Mapping[str, str]


@dataclass
class Side:
    """All runs of A, or of B."""

    name: str
    runs: list[Facts] = field(default_factory=list)

    def seconds(self) -> float:
        return sum(run.seconds for run in self.runs) / len(self.runs)

    def line(self) -> str:
        """The side in a line or two."""
        names = [run.file for run in self.runs]
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        events, lost = sum(run.events for run in self.runs), sum(run.lost for run in self.runs)
        each = (
            f"{len(names)} runs of {duration(self.seconds() * 1e9)} on average"
            if len(names) > 1
            else ""
        )
        length = each or duration(self.seconds() * 1e9)
        missing = f"{lost:,}" if lost else "none"
        return printable(
            f"{shown}: {self.runs[0].command}; {length}, {events:,} events, {missing} missing"
        )


def facts_of(log: Log) -> Facts:
    events = sum(e.logged for e in log.events.values())
    ((lost,),) = log.rows(
        "SELECT coalesce(sum(count), 0)::BIGINT FROM klogger.ledger"
        " WHERE severity IN ('loss', 'error')"
    )
    return Facts(
        log.path.name,
        command(log.preamble),
        log.seconds(),
        events,
        lost,
        same_of(log.preamble, log.schemas),
    )


def same_of(preamble: dict[str, Any], schemas: list[dict[str, Any]]) -> dict[str, str]:
    host, clock, recorder = (section(preamble, name) for name in ("host", "clock", "recorder"))
    cpus = host.get("cpus")
    found = {
        "command": command(preamble),
        "machine": text(host.get("name")),
        "kernel": text(host.get("kernel")),
        "CPU": text(host.get("cpu_model")),
        "number of CPUs": text(len(cpus) if isinstance(cpus, list) else ""),
        "clock": text(clock.get("source")),
        "schemata": ", ".join(sorted(text(s.get("name")) for s in schemas)),
        "scope": text(preamble.get("scope")),
        "recording": "a flight recording" if recorder.get("overwrite") else "whole",
    }
    for schema in schemas:
        checksum = zlib.crc32(text(schema.get("text")).encode(errors="replace"))
        found[f"text of schema {text(schema.get('name'))}"] = (
            f"the one with checksum {checksum:08x}"
        )
    return found


def text(value: object) -> str:
    return "" if value is None else printable(str(value))


def remarks(a: Side, b: Side) -> list[str]:
    """What differs beside the thing under test, and what the intervals do not cover."""
    found = []
    for key in dict.fromkeys(k for side in (a, b) for run in side.runs for k in run.same):
        values = [
            sorted({run.same[key] for run in side.runs if key in run.same}) for side in (a, b)
        ]
        # That a schema is missing is said as such.
        if all(values) and values[0] != values[1]:
            found.append(f"Different {key}: A has {listed(values[0])}, B has {listed(values[1])}.")
    ratio = b.seconds() / a.seconds() if a.seconds() > 0 else 1.0
    if not 1 / (1 + LENGTH) <= ratio <= 1 + LENGTH:
        found.append(
            f"Different length: A {duration(a.seconds() * 1e9)}, B {duration(b.seconds() * 1e9)}. "
            "Counts and sums grow with the length of a recording."
        )
    return found + repeated(len(a.runs), len(b.runs))


def listed(values: list[str]) -> str:
    return " and ".join(v or "none" for v in values)


def repeated(a: int, b: int) -> list[str]:
    if a == b == 1:
        return [
            "One run each: the intervals cover only how much each run varies within itself, not "
            "how much two runs of the same thing differ. Record three of each, or more, for that."
        ]
    if 1 in (a, b):
        single, many = SINGLE[a == 1]
        return [
            f"One run of {single}: it is taken to vary from run to run as much "
            f"as those of {many} do."
        ]
    return []


SINGLE = {True: ("A", "B"), False: ("B", "A")}
