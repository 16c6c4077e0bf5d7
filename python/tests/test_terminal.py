# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Tables in 100 columns: names give way to numbers, and no digit is cut off."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from klogger import terminal
from klogger.analysis import Analysis, Column
from klogger.cli import report
from klogger.executor import Result, Rows
from klogger.trimmed import trimmed
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


def test_lines_do_not_end_in_blanks_and_are_as_wide_as_columns_says(
    monkeypatch: pytest.MonkeyPatch, small_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for columns in (60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert report.main([str(small_log)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line != line.rstrip()] == []
        assert max(map(len, lines)) <= columns


def test_empty_columns_and_rows_of_zeros_are_left_out() -> None:
    columns = [
        Column("thread", "", False, ""), Column("pid", "", False, ""),
        Column("time", "ns", False, ""), Column("most", "ns", False, ""),
        Column("over", "spark", False, ""),
    ]  # fmt: skip
    rows = [["a", 7, 5, None, [0, 1]], ["b", 0, 0, None, [0, 0]], ["c", 9, None, None, None]]
    one = Analysis("some", Path("some.sql"), "s", columns={c.name: c for c in columns})
    result = Result(one, table=Rows([c.name for c in columns], rows))
    shown, omitted = trimmed(result)
    assert shown.table.names == ["thread", "pid", "time", "over"]
    assert shown.table.rows == [["a", 7, 5, [0, 1]]]
    assert omitted == "2 rows of zeros; empty column: most"
    # If there is nothing else, it stays.
    zeros = Result(one, table=Rows([c.name for c in columns], rows[1:]))
    assert len(trimmed(zeros)[0].table.rows) == 2
    # What has been given is not changed.
    assert len(result.table.rows) == 3 and len(result.table.names) == 5
