# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What an event costs with each tool, as a picture beside the text."""

import statistics
from pathlib import Path

from klogger.analysis import Analysis, Column, Picture
from klogger.executor import Result, Rows
from klogger.png import render

NAME = "benchmarks-cost.png"


def cost_picture(hit: dict[str, list[float]], place: str) -> bytes | None:
    """The medians, the cheapest first; on a scale on which twice as much is as far everywhere."""
    medians = {name: statistics.median(values) for name, values in hit.items()}
    rows = [
        [name, round(ns, 1)]
        for name, ns in sorted(medians.items(), key=lambda item: item[1])
        if ns > 0
    ]
    column = Column("ns", "count", False, "nanoseconds of CPU time added to a hit")
    one = Analysis(
        "cost", Path("cost"), "bench", title="What a hit costs that logs two ints",
        question=f"ns added to a hit of {place}, on one CPU; logarithmic",
        columns={"ns": column}, picture=Picture("bars", {"x": "ns", "y": "tool", "scale": "log"}),
    )  # fmt: skip
    return render(Result(one, table=Rows(), points=Rows(["tool", "ns"], rows)))


def draw(tools, folder: Path) -> None:
    """Writes it, if there is something to be drawn."""
    hit = tools.kept.get("hit")
    png = cost_picture(hit, tools.place) if hit else None
    if png is not None:
        (folder / NAME).write_bytes(png)
