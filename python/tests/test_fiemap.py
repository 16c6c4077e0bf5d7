# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The answers of FIEMAP, as tests and studies compare them."""

import os
from pathlib import Path

import pytest

from klogger_lab.fiemap import (
    DELALLOC,
    INLINE,
    LAST,
    SHARED,
    UNWRITTEN,
    Extent,
    fiemap,
    joined,
    placed,
)


def test_borders_that_are_records_only_are_left_out() -> None:
    rows = [
        Extent(0, 8192, 4096, 0),
        Extent(4096, 12288, 4096, SHARED),
        Extent(8192, 16384, 4096, UNWRITTEN),
        Extent(16384, 20480, 4096, UNWRITTEN | LAST),
    ]
    assert joined(reversed(rows)) == [
        Extent(0, 8192, 8192, 0),
        Extent(8192, 16384, 4096, UNWRITTEN),
        Extent(16384, 20480, 4096, UNWRITTEN),
    ]
    assert joined(rows[:3], keep=0) == [Extent(0, 8192, 12288, 0)]


def test_what_has_no_place() -> None:
    rows = [Extent(0, 0, 40, INLINE), Extent(0, 0, 4096, DELALLOC), Extent(0, 0, 4096, UNWRITTEN)]
    assert placed(rows) == []
    assert placed([Extent(0, 4096, 4096, UNWRITTEN)]) == [Extent(0, 4096, 4096, UNWRITTEN)]


def test_a_file_that_was_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 256)
    with file.open() as opened:
        try:
            found = fiemap(opened.fileno())
        except OSError as error:
            pytest.skip(f"no FIEMAP here: {os.strerror(error.errno or 0)}")
    assert sum(extent.length for extent in found) >= 65536
    assert found[-1].flags & LAST
