# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tables and pictures of the study `contention`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from klogger.analysis import Column, Picture
from klogger.executor import Result, Rows
from klogger_lab.study.model import column, result

from ._contention import Seen

BUCKETS = ("0 to 7", "8 to 15", "16 to 31", "32 to 99", "100 or more")
# Line, samples, total and longest, and the counts of BUCKETS; in cycles.
SOURCE = (
    ("source: mark.c 23:21", 5757, "43,132 cycles", "366 cycles", 4070, 1668, 18, 0, 1),
    ("source: mark.c 23:42", 5786, "40,047 cycles", "439 cycles", 5294, 433, 55, 0, 4),
)


def share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def with_columns(made: Result, columns: Sequence[Column]) -> Result:
    """With those that only the picture shows."""
    shown = {**made.analysis.columns, **{c.name: c for c in columns}}
    return replace(made, analysis=replace(made.analysis, columns=shown))


def guilty_table(loads: list[Seen]) -> Result:
    columns = [
        column("load", "threads that compete"),
        column("planted", "rounds with a guilty mutex", "count"),
        column("first", "of them those in which it is first in the league", "count"),
        column("named", "those in which the rule names it", "count"),
        column(
            "path",
            "those in which the first one's functions are the guilty one's",
            "count",
        ),
        column("clean", "rounds without a guilty mutex", "count"),
        column("alarms", "of them those in which the rule names a mutex", "count"),
        column("precision", "part of what the rule names that is guilty", "share"),
        column(
            "recall",
            "part of the guilty mutexes that the rule names",
            "share",
            bar=True,
        ),
    ]
    drawn = [
        column(
            "part",
            "part of all time of waiting, in rounds with a guilty mutex",
            "share",
        ),
        column("mutex", "mutex"),
    ]
    rows: list[list[Any]] = []
    points: list[list[Any]] = []
    for one in loads:
        planted = [r for r in one.rounds if r.planted]
        clean = [r for r in one.rounds if not r.planted]
        named = sum(r.named is not None for r in one.rounds) + one.strangers
        right = sum(r.right for r in planted)
        rows.append(
            [one.name, len(planted), sum(r.first for r in planted), right,
             sum(r.path for r in planted), len(clean), sum(r.named is not None for r in clean),
             share(right, named), share(right, len(planted))]
        )  # fmt: skip
        whole = sum(r.whole for r in planted)
        guilty, following = sum(r.logged for r in planted), sum(r.next for r in planted)
        for part, mutex in ((guilty, "the guilty one"), (following, "the worst other"),
                            (whole - guilty - following, "the 198 others")):  # fmt: skip
            points.append([one.name, share(part, whole) or 0.0, mutex])
    made = result(
        "guilty",
        "The guilty mutex",
        "Is it found, and nothing else?",
        columns,
        rows,
        Picture("stacked", {"x": "part", "y": "load", "colour": "mutex"}),
        Rows(["load", "part", "mutex"], points),
        notes=[
            (
                "The league ranks by time. The rule asks how evenly waits are spread over a round:"
                " a holder that loses its CPU makes others wait for long, but once."
            )
        ],
    )
    return with_columns(made, drawn)


def times_table(loads: list[Seen]) -> Result:
    columns = [
        column("load", "threads that compete"),
        column(
            "own",
            "time in pthread_mutex_lock() for guilty mutexes, by its own clock",
            "ns",
        ),
        column("logged", "time of the waits for guilty mutexes in the log", "ns", bar=True),
        column("differ", "difference of the two", "share"),
        column("spun", "mutexes got by trying again, by the program's count", "count"),
        column("calls", "calls of pthread_mutex_lock(), by its count", "count"),
        column("waits", "waits in the kernel for a mutex", "count"),
        column("slept", "waits of any kind that slept", "count"),
        column("switches", "voluntary switches of getrusage()", "count"),
    ]
    rows = []
    for one in loads:
        own = sum(r.own for r in one.rounds if r.planted)
        logged = sum(r.logged for r in one.rounds if r.planted)
        rows.append(
            [one.name, own, logged, share(abs(own - logged), own), sum(r.spun for r in one.rounds),
             sum(r.calls for r in one.rounds), one.waits, one.slept, one.switches]
        )  # fmt: skip
    return result(
        "times",
        "Waiting, by two clocks",
        "Does the log agree with the program?",
        columns,
        rows,
        Picture("bars", {"x": "logged", "y": "load"}),
    )


def latency_table(loads: list[Seen]) -> Result:
    columns = [
        column("place", "function that waits, and load; or the source's line"),
        column("samples", "waits; in the source cache misses", "count"),
        column("total", "all of them together"),
        column("longest", "the longest"),
        *(column(b, f"that took {b} us; in the source cycles", "count") for b in BUCKETS),
    ]
    drawn = [
        column("part", "part of the samples of this place", "share"),
        column("took", "time that they took, in us; in the source cycles"),
    ]
    rows: list[list[Any]] = [list(row) for row in SOURCE]
    for one in loads:
        for site, samples, total, longest, *buckets in one.latency:
            rows.append(
                [f"{site}, {one.name}", samples, f"{total // 1000:,} us", f"{longest // 1000:,} us",
                 *buckets]
            )  # fmt: skip
    points = [
        [row[0], count / max(row[1], 1), bucket]
        for row in rows
        for bucket, count in zip(BUCKETS, row[4:], strict=True)
    ]
    made = result(
        "latencies",
        "Latencies by place",
        "How long do the samples of one place in a program take?",
        columns,
        rows,
        Picture("stacked", {"x": "part", "y": "place", "colour": "took"}),
        Rows(["place", "part", "took"], points),
        notes=["The bounds are the source's. It had cycles of cache misses of another program."],
    )
    return with_columns(made, drawn)


def convoys_table(one: Seen) -> Result:
    columns = [
        column("lock", "process and address"),
        column("convoys", "times that three or more threads waited", "count", bar=True),
        column("planted", "convoys that the program made", "count"),
        column("most", "threads that waited at the same time", "count"),
        column("longest", "the longest convoy", "ns"),
    ]
    rows = [
        [row["lock"], row["convoys"], one.planted_convoys, row["most"], row["longest"]]
        for row in one.convoy_rows
    ]
    return result(
        "convoys",
        "Convoys behind a holder that sleeps",
        "Are planted convoys found?",
        columns,
        rows,
    )
