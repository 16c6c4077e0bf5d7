# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tables and pictures of the study `player`, beside the source's."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

from klogger.analysis import Column, Picture
from klogger.executor import Result, Rows
from klogger_lab.study.model import column, result

from ._late import PARTS

if TYPE_CHECKING:
    from .player import Edited, Played

# Average, standard deviation and maximum, in ms: requests of 128 KiB of so many threads, and what
# was later than due with threads at a rate.
SOURCE_LATENCY = (
    ("4 streams, as fast as they can", "paper, ext3", 17.96, 72.70, 877),
    ("4 streams, as fast as they can", "paper, XFS", 17.84, 72.70, 528),
    ("4 streams, as fast as they can", "paper, its library", 17.85, 71.79, 413),
)
SOURCE_JITTER = (
    ("4 streams, 72 % of the disk", "paper, ext3", 18.00, 41.72, 694),
    ("4 streams, 72 % of the disk", "paper, XFS", 15.67, 30.25, 249),
    ("6 streams, 65 % of the disk", "paper, ext3", 24.80, 48.43, 791),
    ("6 streams, 65 % of the disk", "paper, XFS", 23.81, 42.20, 297),
)
SOURCE_COPY_S, SOURCE_CUT_S = 3.9, 0.274
POINTS = 200


def ns(ms: float) -> int:
    return round(ms * 1e6)


def spread(values: list[int]) -> tuple[int, int, int, int]:
    """Average, standard deviation, the value below which 99 % are, maximum."""
    if not values:
        return 0, 0, 0, 0
    ordered = sorted(values)
    return (
        round(statistics.fmean(ordered)), round(statistics.pstdev(ordered)),
        ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)], ordered[-1],
    )  # fmt: skip


def times(played: list[Played]) -> Result:
    columns = [
        column("load", "streams, which read 128 KiB at a time, and what they want"),
        column("on", "file system"),
        column("requests", "of all streams", "count"),
        column("average", "of the time from a request's begin to its end", "ns", bar=True),
        column("deviation", "standard deviation of it", "ns"),
        column("p99", "99 % took less", "ns"),
        column("longest", "the longest", "ns"),
    ]
    rows: list[list[Any]] = []
    points: list[list[Any]] = []
    for one in played:
        took = sorted(request.took for request in one.timed or one.requests)
        rows.append([one.load, one.kind, len(took), *spread(took)])
        for n in range(POINTS if took and not one.percent else 0):
            at = (len(took) - 1) * n // (POINTS - 1)
            points.append([took[at], (at + 1) / len(took), f"{one.kind}, {one.streams} streams"])
    rows += [
        [load, on, None, ns(average), ns(sd), None, ns(longest)]
        for load, on, average, sd, longest in SOURCE_LATENCY
    ]
    made = result(
        "times", "Latency", "How long does a request take?", columns, rows,
        Picture("cdf", {"x": "took", "y": "part", "colour": "on_what", "scale": "log"}),
        Rows(["took", "part", "on_what"], points),
        notes=["The picture has the streams without deadlines."],
    )  # fmt: skip
    return drawn(
        made, column("took", "time of a request", "ns"),
        column("part", "part of the requests that took no longer", "share"),
        column("on_what", "file system and streams"),
    )  # fmt: skip


def drawn(made: Result, *columns: Column) -> Result:
    """With columns that only the picture shows."""
    made.analysis.columns.update({c.name: c for c in columns})
    return made


def lateness(played: list[Played]) -> Result:
    columns = [
        column("load", "streams, and what they want of what the disk can"),
        column("on", "file system"),
        column("requests", "with a deadline", "count"),
        column("late", "that ended after their deadline", "count"),
        column("part", "of all requests", "share", bar=True),
        column("average", "by which those that were late were late", "ns"),
        column("deviation", "standard deviation of it", "ns"),
        column("longest", "the latest", "ns"),
        column("layer", "which is the largest part of most of those that were late"),
    ]
    rows: list[list[Any]] = []
    for one in played:
        if not one.timed:
            continue
        late = [request.late for request in one.late]
        average, deviation, _, longest = spread(late)
        layers = Counter(request.largest for request in one.late).most_common(1)
        count = len(one.timed)
        rows.append(
            [one.load, one.kind, count, len(late), len(late) / count if count else 0.0, average,
             deviation, longest, layers[0][0] if layers else ""]
        )  # fmt: skip
    rows += [
        [load, on, None, None, None, ns(average), ns(sd), ns(longest), None]
        for load, on, average, sd, longest in SOURCE_JITTER
    ]
    return result(
        "lateness", "Deadlines", "How many requests are late, and by how much?", columns, rows,
        notes=["The source's figures are of all that was later than due, by its own definition."],
    )  # fmt: skip


def layers(played: list[Played]) -> Result:
    columns = [
        column("load", "file system, streams and what they want"),
        column("requests", "that were late; if none was, the slowest 1 %", "count"),
        column("took", "all of them together", "ns"),
        *(column(part.replace(" ", "_"), f"of that time: {part}", "share") for part in PARTS),
    ]
    rows: list[list[Any]] = []
    points: list[list[Any]] = []
    for one in played:
        requests = one.explained()
        took = sum(request.took for request in requests)
        shares = [
            sum(request.parts.get(part, 0) for request in requests) / took if took else 0.0
            for part in PARTS
        ]
        name = f"{one.kind}, {one.load}"
        rows.append([name, len(requests), took, *shares])
        points += [[name, share, part] for share, part in zip(shares, PARTS, strict=True)]
    made = result(
        "layers", "Which layer is late", "What did the late requests wait for?", columns, rows,
        Picture("stacked", {"x": "share", "y": "load", "colour": "layer"}),
        Rows(["load", "share", "layer"], points),
        notes=[
            "A moment in which a request is in several layers counts for one of them: lock,"
            " journal, allocation, device, queue, page cache, in this sequence. 'not running':"
            " off the CPU, and none of them."
        ],
    )  # fmt: skip
    return drawn(
        made, column("share", "part of the time of these requests", "share"),
        column("layer", "what they waited for"),
    )  # fmt: skip


def edits(edited: list[Edited]) -> Result:
    columns = [
        column("method", "file system, and how the half of a file is cut and pasted"),
        column("took", "with writing all of it to the device", "s"),
        column("edited", "that were cut and pasted", "bytes"),
        column("read", "by the device", "bytes"),
        column("written", "by the device", "bytes"),
        column("moved", "bytes of the device for each byte that was edited", bar=True),
    ]
    rows: list[list[Any]] = []
    for one in edited:
        name = f"{one.kind}, {one.method}"
        if one.error:
            rows.append([f"{name}: {one.error}", None, None, None, None, None])
        else:
            rows.append([name, one.seconds, one.edited, one.read, one.written, one.moved])
    rows += [
        ["paper: copy loop, ext3", SOURCE_COPY_S, 65_536_000, None, None, None],
        ["paper: its library", SOURCE_CUT_S, 65_536_000, None, None, None],
    ]
    points = [[name, moved] for name, *_, moved in rows if moved]
    return result(
        "edits", "Cut and paste", "How many bytes move with half a file?", columns, rows,
        Picture("bars", {"x": "moved", "y": "method", "scale": "log"}),
        Rows(["method", "moved"], points),
        notes=[
            "'within': a quarter of one file is cut, and as much room made at its begin. The"
            " library has its files as rows of a database, as the source's has."
        ],
    )  # fmt: skip
