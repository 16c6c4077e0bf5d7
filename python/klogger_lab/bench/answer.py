# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The answer in the forms that reports have: tables and pictures for terminal and page, and data
for other programs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klogger.analysis import Analysis, Column, Picture
from klogger.durations import duration
from klogger.executor import Result, Rows
from klogger.summary import Summary
from klogger.units import size
from klogger_lab.bench import health
from klogger_lab.bench.cost import Costs, Count
from klogger_lab.bench.engines import ENGINES
from klogger_lab.bench.events import STORE, TEXT, Event
from klogger_lab.bench.rate import DISK_BYTES, EVENTS_A_HIT, Step
from klogger_lab.bench.stats import Cost, Spread
from klogger_lab.machine import Machine

NOT_HERE = "not measurable here"


@dataclass
class Answer:
    """`rates` is empty if they were not asked for; `disk` is bytes a second."""

    schema: str
    machine: Machine
    events: Sequence[Event]
    costs: Costs
    rates: Sequence[Step] = ()
    disk: float | None = None
    cpu: int = 0
    # Of the last minute, before anything was measured.
    load: float = 0.0
    seconds: float = 0.0

    @property
    def measurable(self) -> bool:
        return all(cost.ns is not None for cost in self.costs.added.values())


def head(answer: Answer) -> Summary:
    here, costs = answer.machine, answer.costs
    found = Summary(f"klogger bench: schema {answer.schema}, engine {costs.engine}")
    words = [f"Linux {here.kernel}", f"{here.cpus} CPU{'s' if here.cpus > 1 else ''}", here.model]
    found.lines.append(", ".join([*words, "virtual"] if here.virtual else words))
    stolen = f"; {costs.stolen.share:.1%} of it stolen by the hypervisor" if here.virtual else ""
    found.lines.append(
        f"clock {here.clocksource}; on CPU {answer.cpu}{stolen}; took "
        f"{duration(answer.seconds * 1e9)}"
    )
    if costs.stolen.share > health.STOLEN_SOME:
        found.warnings.append(f"the hypervisor took {costs.stolen.share:.1%} of the CPU meanwhile")
    if answer.load > health.LOAD_SOME * here.cpus:
        found.warnings.append(
            f"others use this machine (load {answer.load:.1f}): an idle one spreads less"
        )
    reasons: dict[str, list[str]] = {}
    for arm, cost in costs.added.items():
        if cost.ns is None:
            reasons.setdefault(cost.why, []).append(arm)
    found.warnings += [f"{NOT_HERE}: {', '.join(arms)}: {why}" for why, arms in reasons.items()]
    return found


def results(answer: Answer) -> list[Result]:
    found = [floor_result(answer), events_result(answer)]
    return [*found, rate_result(answer)] if answer.rates else found


COSTS = {
    "added_ns": Column(
        "added_ns", "count", False, "nanoseconds of CPU time that a hit takes more; the median"
    ),
    "from": Column("from", "count", False, "a quarter of the passes were below this"),
    "to": Column("to", "count", False, "a quarter of the passes were above this"),
    "over_empty": Column(
        "over_empty", "count", False, "nanoseconds more than a probe that does nothing"
    ),
    "times_floor": Column(
        "times_floor",
        "count",
        False,
        "added, as a multiple of what reads the clock and stores 16 bytes",
    ),
    "bytes": Column("bytes", "count", False, "bytes of an event in the log, header included"),
    "hits": Column("hits", "count", False, "how often the loop has logged it"),
    "lost": Column("lost", "count", False, "events that found no space, by the log's own count"),
}


def floor_result(answer: Answer) -> Result:
    costs = answer.costs
    rows = [
        [arm, *cells(costs.added[arm]), *over_cell(costs, arm), words]
        for arm, words in ENGINES[costs.engine].floor.items()
    ]
    found = Rows(["what", "added_ns", "from", "to", "over_empty", "it_is"], rows)
    if not costs.over_empty:
        found = without(found, "over_empty")
    return table(
        "floor", "The floor of this machine", "What is the least that logging can cost here?", found
    )


def events_result(answer: Answer) -> Result:
    costs = answer.costs
    rows = []
    for event in answer.events:
        count = costs.counts.get(event.name, Count())
        each = count.each if costs.counts else float(event.bytes)
        cost = costs.added[event.name]
        over = over_cell(costs, event.name)
        rows.append(
            [event.name, each, *cells(cost), *over, times(cost, costs), count.hits, count.lost]
        )
    names = [
        "event",
        "bytes",
        "added_ns",
        "from",
        "to",
        "over_empty",
        "times_floor",
        "hits",
        "lost",
    ]
    question = "What does a hit cost that logs this event, and how much does it take?"
    found = table("events", "Events", question, Rows(names, rows))
    for name in [
        *([] if costs.over_empty else ["over_empty"]),
        *([] if costs.counts else ["hits", "lost"]),
    ]:
        found.table = without(found.table, name)
    place, bare = costs.place, f"{costs.bare_ns:.0f} ns"
    found.analysis.notes = [
        note.format(place=place, bare=bare) for note in ENGINES[costs.engine].notes
    ]
    if any(event.of_text() for event in answer.events):
        found.analysis.notes.append(
            f"Texts have {len(TEXT)} letters; longer ones cost and take more."
        )
    if costs.block:
        found.analysis.notes.append(
            f"Each pass is a recording with {costs.rounds} blocks of {costs.block} hits of each"
            f" kind, which take turns; median and quartiles are of {costs.passes} passes."
        )
    found.points, found.analysis.picture = (
        ladder(costs),
        Picture("bars", {"x": "added_ns", "y": "what"}),
    )
    return found


def ladder(costs: Costs) -> Rows:
    """What the picture shows: the floor, then the events."""
    rows = [[arm, round(max(c.ns.median, 0.0), 2)] for arm, c in costs.added.items() if c.ns]
    return Rows(["what", "added_ns"], rows)


def over_cell(costs: Costs, arm: str) -> list[Any]:
    """Empty beside a cost that is not measurable."""
    cost = costs.over_empty.get(arm)
    return [None] if cost is None or costs.added[arm].ns is None else cells(cost)[:1]


def cells(cost: Cost) -> list[Any]:
    if cost.ns is None:
        return [NOT_HERE, None, None]
    return [round(value, 1) for value in (cost.ns.median, cost.ns.low, cost.ns.high)]


def times(cost: Cost, costs: Costs) -> float | None:
    floor = costs.added[STORE].ns
    return (
        round(cost.ns.median / floor.median, 2) if cost.ns and floor and floor.median > 0 else None
    )


def rate_result(answer: Answer) -> Result:
    rows = [
        [
            step.buffer, step.asked or "as many as it can", round(step.offered),
            step.bytes / step.seconds, step.lost, step.lossless_s, round(step.recorder_cpus, 3),
            step.bound,
        ]
        for step in answer.rates
    ]  # fmt: skip
    names = [
        "ring",
        "asked",
        "made_a_second",
        "log_a_second",
        "lost",
        "first_loss_after",
        "recorder_cpus",
        "bound_by",
    ]
    found = table(
        "rate",
        "Rate",
        "How many events a second can all CPUs log together, so that none is lost?",
        Rows(names, rows),
    )
    found.findings = [
        sentence(answer, buffer) for buffer in dict.fromkeys(s.buffer for s in answer.rates)
    ]
    found.weights = [1.0] * len(found.findings)
    found.analysis.notes = disk_note(answer)
    return found


RATES = {
    "asked": Column(
        "asked", "count", False, "events a second that the loops were asked for, on all CPUs"
    ),
    "made_a_second": Column("made_a_second", "count", False, "events a second that they have made"),
    "log_a_second": Column(
        "log_a_second", "bytes", False, "bytes that went into the log, a second"
    ),
    "first_loss_after": Column(
        "first_loss_after", "s", False, "how long it went before the first event was lost"
    ),
    "recorder_cpus": Column(
        "recorder_cpus", "share", False, "CPU time of the recorder, of one CPU"
    ),
    "bound_by": Column("bound_by", "", False, "what held the recorder up when events were lost"),
}


def sentence(answer: Answer, buffer: str) -> str:
    """The fastest step without a loss, and the slowest with one."""
    steps = [step for step in answer.rates if step.buffer == buffer]
    kept = max((s for s in steps if not s.lost), key=lambda s: s.offered, default=None)
    lossy = min((s for s in steps if s.lost), key=lambda s: s.offered, default=None)
    words = f"rings of {buffer}iB: "
    words += (
        f"{kept.offered:,.0f} events a second for {kept.seconds:.0f} s, none lost"
        if kept
        else "no rate without loss"
    )
    if lossy is None:
        return f"{words}; faster, these loops could not"
    after = f" after {duration(lossy.lossless_s * 1e9)}" if lossy.lossless_s is not None else ""
    return (
        f"{words}; {lossy.offered:,.0f} a second lost {lossy.lost / lossy.made:.1%}, "
        f"the first{after}: {lossy.bound}"
    )


def disk_note(answer: Answer) -> list[str]:
    logged = sum(step.logged for step in answer.rates)
    if not answer.disk or not logged:
        return []
    each = sum(step.bytes for step in answer.rates) / logged
    return [
        f"Events of two ints, {each:.0f} bytes each, {EVENTS_A_HIT} in a hit. The disk took"
        f" {size(DISK_BYTES)} at {size(answer.disk)} a second, which is {answer.disk / each:,.0f}"
        " events. What comes faster for long, memory has to hold."
    ]


def table(name: str, title: str, question: str, rows: Rows) -> Result:
    known = COSTS | (RATES if name == "rate" else {})
    columns = {n: known[n] for n in rows.names if n in known}
    one = Analysis(name, Path(name), "bench", title=title, question=question, columns=columns)
    return Result(one, table=rows, points=Rows())


def without(rows: Rows, name: str) -> Rows:
    at = rows.names.index(name)
    return Rows(
        rows.names[:at] + rows.names[at + 1 :], [row[:at] + row[at + 1 :] for row in rows.rows]
    )


def as_json(answer: Answer) -> dict[str, Any]:
    """Stable: names are only added."""
    costs = answer.costs
    return {
        "schema": answer.schema, "engine": costs.engine,
        "machine": dataclasses.asdict(answer.machine), "cpu": answer.cpu,
        "stolen": round(costs.stolen.share, 4), "load": round(answer.load, 2),
        "seconds": round(answer.seconds, 2), "measurable": answer.measurable,
        "place": costs.place or None, "bare_ns": round(costs.bare_ns, 2) or None,
        "passes": costs.passes, "rounds": costs.rounds or None, "block": costs.block or None,
        "floor": [
            {"name": arm, "what": words, **cost_json(costs, arm)}
            for arm, words in ENGINES[costs.engine].floor.items()
        ],
        "events": [
            {"name": e.name, **cost_json(costs, e.name), **count_json(e, costs.counts.get(e.name))}
            for e in answer.events
        ],
        "rates": [dataclasses.asdict(step) for step in answer.rates],
        "disk_bytes_per_s": round(answer.disk) if answer.disk else None,
    }  # fmt: skip


def cost_json(costs: Costs, arm: str) -> dict[str, Any]:
    added, over = costs.added[arm], costs.over_empty.get(arm)
    return {
        "added_ns": spread_json(added.ns), "over_empty_ns": spread_json(over.ns) if over else None,
        "not_measurable": added.why or None,
    }  # fmt: skip


def spread_json(found: Spread | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        n: round(v, 3)
        for n, v in (("median", found.median), ("low", found.low), ("high", found.high))
    }


def count_json(event: Event, count: Count | None) -> dict[str, Any]:
    declared: Mapping[str, Any] = {"bytes_least": event.bytes, "bytes_most": event.bytes_max}
    if count is None:
        return {**declared, "bytes": None, "hits": None, "logged": None, "lost": None}
    return {
        **declared,
        "bytes": count.each,
        "hits": count.hits,
        "logged": count.logged,
        "lost": count.lost,
    }
