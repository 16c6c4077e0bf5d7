# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The head of a report: what was recorded, where, for how long, and what is missing."""

from __future__ import annotations

import datetime
import shlex
from dataclasses import dataclass, field
from typing import Any

from klogger import analysis, ledger, losses
from klogger.durations import duration
from klogger.ledger import Ledger
from klogger.log import Log, section
from klogger.units import printable


@dataclass
class Summary:
    title: str
    lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)


def summary(log: Log) -> Summary:
    preamble = log.preamble
    head = Summary(f"{printable(log.path.name)}: {command(preamble)}")
    logged = sum(e.logged for e in log.events.values())
    # Events of a block that is damaged are missing too, but their types are not known.
    lost = log.rows(
        "SELECT coalesce(sum(count), 0)::BIGINT FROM klogger.ledger"
        " WHERE severity IN ('loss', 'error')"
    )[0][0]
    types = sum(1 for e in log.events.values() if e.logged)
    head.lines.append(
        f"{duration(log.seconds() * 1e9)}, {logged:,} events of {types} types, {missing(log, lost)}"
    )
    host = section(preamble, "host")
    cpus = host.get("cpus")
    place = [f"Linux {host['kernel']}"] if host.get("kernel") else []
    if isinstance(cpus, list) and cpus:
        place.append(f"{len(cpus)} CPU{'s' if len(cpus) > 1 else ''}")
    if host.get("cpu_model"):
        place.append(str(host["cpu_model"]))
    head.lines.append(printable(", ".join([*when(preamble), *place])))
    threads = chosen(preamble)
    scope = threads or {
        "all": "all threads",
        "processes": "the workload's threads only",
    }.get(str(preamble.get("scope")), "")
    schemas = ", ".join(str(s.get("name")) for s in log.schemas)
    head.lines.append(
        printable(f"schemata: {schemas or 'none'}{f'; scope: {scope}' if scope else ''}")
    )
    head.ledger = ledger.read(log)
    head.warnings = losses.samples(log) + losses.excluded(log) + analysis.refused(log.schemas)
    if not logged:
        head.warnings.append("the log has no events")
    elif threads and not any(e.logged for e in log.events.values() if e.schema != "klogger"):
        head.warnings.append(f"no event was logged of {threads}: perhaps no thread matched")
    return head


def chosen(preamble: dict[str, Any]) -> str:
    """Which threads were chosen by --comm, --uid and --cgroup; empty: none were."""
    threads = section(section(preamble, "recorder"), "threads")
    parts = []
    for key, how in ("comms", "named"), ("users", "of user"), ("cgroups", "in"):
        found = threads.get(key)
        if isinstance(found, list) and found:
            parts.append(f"{how} {' or '.join(map(str, found))}")
    return f"threads {', '.join(parts)}" if parts else ""


def missing(log: Log, lost: int) -> str:
    """What the recorder counted stands at the end of a log: without one, it is not known what else
    was lost.
    """
    if log.rows("SELECT 1 FROM klogger.ledger WHERE key = 'recorder_killed'"):
        return f"{lost:,} or more missing" if lost else "not known how many are missing"
    return f"{lost:,} missing" if lost else "none missing"


def command(preamble: dict[str, Any]) -> str:
    words = preamble.get("workload") or preamble.get("command_line")
    if not isinstance(words, list) or not words:
        return "a recording"
    text = printable(shlex.join(str(w) for w in words))
    return text if len(text) <= 70 else text[:67] + "..."


def when(preamble: dict[str, Any]) -> list[str]:
    ns = section(preamble, "clock").get("start_realtime_ns")
    if not isinstance(ns, int) or not 0 < ns < 4e18:
        return []
    return [
        datetime.datetime.fromtimestamp(ns // 10**9, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    ]


def event_counts(log: Log) -> list[tuple[str, str, int, int]]:
    """(event, documentation, logged, lost), most frequent first."""
    found = [(e.name, e.doc, e.logged, e.lost) for e in log.events.values() if e.logged or e.lost]
    return sorted(found, key=lambda e: (-e[2], e[0]))
