# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tables in 100 columns: names give way to numbers, and no digit is cut off."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from klogger import terminal
from klogger.analysis import Analysis, Column
from klogger.executor import Result, Rows
from klogger.units import show


def printed(columns: list[Column], row: list[Any]) -> str:
    one = Analysis("some", Path("some.sql"), "s", columns={c.name: c for c in columns})
    out = io.StringIO()
    terminal.print_table(
        terminal.console(out), Result(one, table=Rows([c.name for c in columns], [row])), 10
    )
    assert max(len(line.rstrip()) for line in out.getvalue().splitlines()) <= 100
    return out.getvalue()


def times(count: int) -> list[Column]:
    return [Column(f"time_{i}", "ns", False, "") for i in range(count)]


def test_names_give_way_to_numbers() -> None:
    text = printed([Column("thread", "", False, ""), *times(6)], ["x" * 200, *[63_742_123_456] * 6])
    assert text.count("63.7 s") == 6
    assert "xxx…" in text
    assert "no room" not in text


def test_columns_without_room_are_named() -> None:
    text = printed(
        [Column("thread", "", False, ""), Column("all", "ns", True, ""), *times(15)],
        ["make", *[123_456] * 16],
    )
    shown = text.count("123 µs")
    left = [f"time {i}" for i in range(shown - 1, 15)]
    assert left
    assert f"no room for: {', '.join(left)}; --html" in text
    assert "…" not in text


def test_a_long_head_has_lines() -> None:
    text = printed(
        [Column("thread", "", False, ""), Column("until_it_was_runnable", "count", False, "")],
        ["a", 7],
    )
    heads = [line.removeprefix("thread").strip() for line in text.splitlines()[:4]]
    assert heads[:3] == ["until it", "was", "runnable"]


def test_averages_of_counts_keep_their_digits() -> None:
    assert [show(v, "count") for v in (0.0022364, 1.25, 12.34, 3.0, 1234.5, 0, 7, 0.0001)] == [
        "0.00224", "1.25", "12.3", "3", "1,234", "0", "7", "<0.001",
    ]  # fmt: skip
