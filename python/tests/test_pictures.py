# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each kind of picture, from the least that it may be given, becomes a PNG that is not blank."""

from __future__ import annotations

from pathlib import Path

import pytest

from klogger.analysis import KINDS, Analysis, Column, Picture
from klogger.pictures import Palette, Theme, draw, round_ticks, short
from klogger.png import render
from klogger.run import Result, Rows

ROWS = Rows(["a", "b", "c", "d"], [["x", 10, 20, 1], ["y", 20, 40, 0.5], ["other", 40, 80, 0.25]])
PARTS = {
    "cdf": {"x": "b", "y": "d"},
    "bars": {"x": "b", "y": "a"},
    "stacked": {"x": "b", "y": "a", "colour": "c"},
    "histogram": {"x": "b", "x2": "c", "y": "d"},
    "timeline": {"x": "b", "x2": "c", "row": "a", "colour": "a"},
    "matrix": {"x": "a", "y": "a", "size": "b"},
}


def result(kind: str, parts: dict[str, str], rows: Rows = ROWS) -> Result:
    columns = {n: Column(n, u, False, f"column {n}") for n, u in zip("abcd", ["", "ns", "ns", "share"], strict=True)}
    one = Analysis("x", Path("x.sql"), "s", title="Title", picture=Picture(kind, parts), columns=columns)
    return Result(one, table=rows, points=rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_each_kind(kind: str, scale: str) -> None:
    parts = dict(PARTS[kind])
    if "scale" in KINDS[kind][1]:
        parts["scale"] = scale
    picture = render(result(kind, parts))
    assert picture is not None
    blank = render(result(kind, parts, Rows(ROWS.names, [["x", 1, 1, 0]])))
    assert len(picture) > 3000
    assert picture != blank


def test_one_name_has_one_colour() -> None:
    palette = Palette()
    first = palette.colour("program", "a")
    assert palette.colour("program", "b") != first
    assert palette.colour("program", "a") == first
    assert palette.colour("CPU", "b") == first


def test_values_of_zero_are_left_out_of_a_log_axis() -> None:
    rows = Rows(ROWS.names, [["x", 0, 0, 0], ["x", 10, 0, 1]])
    spec = draw(result("cdf", {"x": "b", "y": "d", "scale": "log"}, rows), Palette(), Theme())
    assert spec is not None
    assert [r["b"] for r in spec["datasets"]["rows"]] == [10]


def test_numbers_and_ticks() -> None:
    assert [short(n) for n in (7, 0.25, 9999, 12_345, 224_000, 5_100_000)] == [
        "7",
        "0.25",
        "9999",
        "12.3k",
        "224k",
        "5.1M",
    ]
    assert round_ticks(8.1e9) == [0, 2e9, 4e9, 6e9, 8e9]
    assert round_ticks(0) == [0]
