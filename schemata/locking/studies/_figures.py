# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tables and figures of the study `locks`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from klogger import executor
from klogger.analysis import Column, Picture
from klogger_lab.study.model import Run, column, result

# What the paper's text says of its Figure 2, at 4 processes and at 32: share of all cycles. Empty
# is not told.
PAPER = {
    "web": ("about 9 %", "over 20 %"),
    "compile on disk": ("just over 1 %", "over 15 %"),
    "compile on tmpfs": ("just over 3 %", "over 15 %"),
    "round robin 100:200": ("", "a little over 6 %"),
}
PAPER_CPUS = 4
# A share of CPU time as ns in a second, which also shows small ones.
LOST = 1e9


@dataclass
class Spun:
    """What a log says, in parts of all CPU time."""

    busy: float
    mutex: float
    classes: dict[str, float]
    waits: int
    ratio: str
    top_wait: str


def figure2(loads: list[tuple[Run, Spun]]) -> Any:
    columns = [
        column("load", "load"),
        column("processes", "processes at once", "count"),
        column(
            "spinning",
            "share of all CPU time that went into spinning for spin locks and rwlocks",
            "share",
        ),
        column(
            "lost",
            "time spent spinning for locks of any kind in each second of CPU time",
            "ns",
            bar=True,
        ),
        column("mutexes", "share that went into spinning for mutexes", "share"),
        column("waits", "waits for locks of any kind", "count"),
        column(
            "system",
            "share of all CPU time that the whole machine spent in the kernel, as it counts itself",
            "share",
        ),
        column("paper", "the paper's share, as its text tells it, where it tells one"),
    ]
    rows, points = [], []
    for one, s in sorted(loads, key=order):
        load, count = one.arm.parameters["load"], one.arm.parameters["processes"]
        times = one.oracle or {}
        system = (times.get("system", 0) + times.get("irq", 0) + times.get("softirq", 0)) / max(
            sum(times.values()), 1
        )
        rows.append(
            [
                load,
                count,
                s.busy,
                LOST * (s.busy + s.mutex),
                s.mutex,
                s.waits,
                system,
                paper(str(load), int(count)),
            ]
        )
        points += [
            [f"{load}, {count}", LOST * s.busy, "spin locks, rwlocks"],
            [f"{load}, {count}", LOST * s.mutex, "mutexes"],
        ]
    return drawn(
        "figure2",
        ("CPU time lost spinning",
         "How does spinning grow with the number of processes? (Figure 2)"),
        columns, rows, points, "kind",
        ["The paper counted cycles of four CPUs. Its kernel had the Big Kernel Lock, which"
         " left Linux in 2.6.39."],
    )  # fmt: skip


def figure3(loads: list[tuple[Run, Spun]]) -> Any:
    """The worst class of all levels together against the others, for the compile in memory, or on
    disk without one.
    """
    name = (
        "compile on tmpfs"
        if any(o.arm.parameters["load"] == "compile on tmpfs" for o, _ in loads)
        else "compile on disk"
    )
    mine = sorted((x for x in loads if x[0].arm.parameters["load"] == name), key=order)
    top = worst(mine)
    columns = [
        column("processes", "processes at once", "count"),
        column(
            "lock",
            "class of the lock; of that with the most spinning at all numbers of processes, and all"
            " others",
        ),
        column("lost", "time spent spinning in each second of CPU time", "ns", bar=True),
        column("paper", "what the paper found"),
    ]
    rows, points = [], []
    for one, s in mine:
        count = one.arm.parameters["processes"]
        for lock, share, told in (
            (top, s.classes.get(top, 0.0), "Big Kernel Lock: most of it"),
            (
                "all others",
                sum(s.classes.values()) - s.classes.get(top, 0.0),
                "2 % at most, mostly 0.5 %",
            ),
        ):
            rows.append([count, lock, LOST * share, told])
            points.append([str(count), LOST * share, lock])
    title = f"The worst lock of a {name}"
    return drawn(
        "figure3", (title, "Is it one lock, or many? (Figure 3)"), columns, rows, points, "lock", []
    )


def figure4(loads: list[tuple[Run, Spun]]) -> Any:
    mine = sorted(
        (x for x in loads if x[0].arm.parameters["load"] == "round robin 100:200"), key=order
    )
    total: dict[str, float] = {}
    for _, s in mine:
        for name, share in s.classes.items():
            total[name] = total.get(name, 0.0) + share
    shown = sorted(total, key=lambda c: (-total[c], c))[:7]
    columns = [
        column("processes", "pairs of processes", "count"),
        column("class", "class of the lock"),
        column("lost", "time spent spinning in each second of CPU time", "ns", bar=True),
        column("part", "its part of all spinning with so many pairs", "share"),
    ]
    rows, points = [], []
    for one, s in mine:
        count, whole = one.arm.parameters["processes"], sum(s.classes.values())
        named = [(c, s.classes.get(c, 0.0)) for c in shown]
        rest = whole - sum(share for _, share in named)
        for name, share in [*named, ("all others", rest)]:
            if share > 0:
                rows.append([count, name, LOST * share, share / whole])
            points.append([str(count), LOST * max(share, 0.0), name])
    note = (
        "The paper had a network card: the lock of its driver came first, then those of the"
        " sockets; all other locks had about 33 %, mostly wait queues. Loopback has no driver and"
        " no link that can be full."
    )
    return drawn(
        "figure4",
        ("Locks of round robin, 100:200", "Which locks does a network server spin for? (Figure 4)"),
        columns, rows, points, "class", [note],
    )  # fmt: skip


def leagues(loads: list[tuple[Run, Spun]]) -> Any:
    columns = [
        column("load", "load"),
        column("processes", "processes at once", "count"),
        column("most", "the lock that threads waited for most of the time"),
        column(
            "ratio",
            "contended acquisitions of the class that has the most, and how many times as many as"
            " the next",
        ),
    ]
    rows = [
        [one.arm.parameters["load"], one.arm.parameters["processes"], s.top_wait, s.ratio]
        for one, s in sorted(loads, key=order)
    ]
    note = (
        "The paper found the driver's lock taken almost 3 times as often as the next one. It"
        " counted all acquisitions; what the kernel's tracepoints show are those that had to wait."
    )
    return result(
        "leagues",
        "Locks that are waited for",
        "Which locks come first?",
        columns,
        rows,
        notes=[note],
    )


def drawn(
    name: str,
    heading: tuple[str, str],
    columns: list[Column],
    rows: list[list[Any]],
    points: list[list[Any]],
    colour: str,
    notes: list[str],
) -> Any:
    picture = Picture("stacked", {"x": "lost", "y": "arm", "colour": colour})
    named = executor.Rows(["arm", "lost", colour], points)
    made = result(name, *heading, columns, rows, picture, named, notes=notes)
    # What the picture shows, and the table does not have.
    shown = {c.name: c for c in columns}
    shown.setdefault(
        "arm",
        column("arm", "load and processes at once" if "load" in shown else columns[0].doc),
    )
    shown.setdefault(colour, column(colour, "lock"))
    return replace(made, analysis=replace(made.analysis, columns=shown))


def order(x: tuple[Run, Spun]) -> tuple[str, int]:
    return str(x[0].arm.parameters["load"]), int(x[0].arm.parameters["processes"])


def worst(loads: list[tuple[Run, Spun]]) -> str:
    total: dict[str, float] = {}
    for _, s in loads:
        for name, share in s.classes.items():
            total[name] = total.get(name, 0.0) + share
    return min(total, key=lambda c: (-total[c], c)) if total else "none"


def paper(load: str, count: int) -> str:
    at4, at32 = PAPER.get(load, ("", ""))
    return {PAPER_CPUS: at4, 32: at32}.get(count, "")
