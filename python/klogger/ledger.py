# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The ledger of a log as one table: a row for each kind of loss, and its remedy once."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from klogger.log import Log
from klogger.units import printable

# Stands in the text of an entry between what happened and what one can do (`Entry::new` in
# crates/log/src/ledger.rs).
REMEDY = ". Remedy: "
# No event is missing: only `klogger info` and the whole ledger of a page have these.
HARMLESS = ("ring_grown",)
# A log has at most this many kinds that are worth a line.
KINDS_MAX = 12
# Events, CPUs, and threads, that are named.
NAMES_MAX = 6
TITLES = ("missing", "event", "where", "when", "count")


@dataclass(frozen=True)
class Kind:
    """All entries with one key. `events` and `where` are empty if it may be any, or all."""

    key: str
    severity: str
    count: int
    events: str
    where: str
    when: str
    cause: str
    remedy: str

    def cells(self) -> tuple[str, ...]:
        count = f"{self.count:,}" if self.count else ""
        return tuple(map(printable, (self.key, self.events, self.where, self.when, count)))

    def advice(self) -> str:
        return printable(f"{self.cause}. {self.remedy[:1].upper()}{self.remedy[1:]}".strip())


@dataclass(frozen=True)
class Ledger:
    kinds: list[Kind] = field(default_factory=list)

    def losses(self) -> list[str]:
        """A sentence for each kind of loss: `ring_full (1,234): the ring was full. Use a ...`"""
        return [
            f"{printable(k.key)}{f' ({k.count:,})' if k.count else ''}: {k.advice()}"
            for k in self.kinds
            if k.severity in ("loss", "error")
        ]

    def as_json(self) -> list[dict[str, object]]:
        return [dataclasses.asdict(kind) for kind in self.kinds]


def read(log: Log) -> Ledger:
    """The worst first, then those with the most events."""
    harmless = ", ".join(f"'{key}'" for key in HARMLESS)
    rows = log.rows(
        "SELECT key, arg_max(severity, rank), sum(count)::BIGINT, list_sort(list(DISTINCT text)),"
        " list_sort(list(DISTINCT event) FILTER (event IS NOT NULL)),"
        " list_sort(list(DISTINCT cpu) FILTER (cpu IS NOT NULL)),"
        " list_sort(list(DISTINCT tid) FILTER (tid IS NOT NULL)), min(from_ns), max(to_ns)"
        " FROM (SELECT *, array_position(['info', 'notice', 'loss', 'error'], severity) AS rank"
        "       FROM klogger.ledger)"
        f" WHERE key NOT IN ({harmless})"
        f" GROUP BY key ORDER BY max(rank) DESC, 3 DESC, key LIMIT {KINDS_MAX}"
    )
    found = []
    for key, severity, count, texts, events, cpus, threads, start, end in rows:
        cause, remedy = said([text for text in texts or [] if text])
        found.append(
            Kind(
                key, severity, count or 0, listed(events), where(cpus, threads), when(start, end),
                cause or key, remedy,
            )
        )  # fmt: skip
    return Ledger(found)


def said(texts: list[str]) -> tuple[str, str]:
    """What happened, and the remedy, of all entries of a key. What stands before the explanation
    says which entry it is.
    """
    causes = list(dict.fromkeys(map(cause_of, texts)))
    cause = causes[0] if len(causes) == 1 else shared_end(causes)
    return cause, remedy_of(texts[0]) if texts else ""


def shared_end(causes: list[str]) -> str:
    """`only events of CPU 0: EXPLANATION`, `only X with: EXPLANATION`: the details, then the
    explanation once.
    """
    if not causes:
        return ""
    ends = [cause.rpartition(": ")[2] for cause in causes]
    if len(set(ends)) > 1:
        return causes[0]
    details = [cause.rpartition(": ")[0] for cause in causes][:NAMES_MAX]
    return f"{'; '.join(d for d in details if d)}: {ends[0]}" if any(details) else ends[0]


def cause_of(text: str | None) -> str:
    return (text or "").partition(REMEDY)[0]


def remedy_of(text: str | None) -> str:
    return (text or "").partition(REMEDY)[2]


def listed(names: list[str] | list[int] | None) -> str:
    found = [str(name) for name in names or []]
    rest = len(found) - NAMES_MAX
    return ", ".join(found[:NAMES_MAX]) + (f" and {rest} more" if rest > 0 else "")


def where(cpus: list[int] | None, threads: list[int] | None) -> str:
    parts = [f"{what} {listed(ids)}" for what, ids in (("CPU", cpus), ("thread", threads)) if ids]
    return ", ".join(parts)


def when(start: int | None, end: int | None) -> str:
    """Relative to the log's start."""
    if start is None:
        return ""
    if end is None:
        return f"from {moment(start)}"
    first, last = moment(start), moment(end)
    return first if first == last else f"{first} to {last}"


def moment(ns: int) -> str:
    """Seconds since the log's start, as `klogger cat` and `klogger info` have them."""
    return f"{ns / 1e9:.6f} s"


def places(
    events: list[str] | None,
    cpus: list[int] | None,
    threads: list[int] | None,
    start: int | None,
    end: int | None,
) -> list[str]:
    """Which events, where, and when: for a sentence."""
    return [part for part in (listed(events), where(cpus, threads), when(start, end)) if part]
