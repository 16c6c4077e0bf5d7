# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A folder for caches may have any bytes in its name."""

import os
from pathlib import Path

import pytest

from klogger.log import connect


def test_a_cache_folder_that_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    monkeypatch.delenv("KLOGGER_CACHE", raising=False)
    connection = connect()
    assert connection.execute("SELECT sum(range) FROM range(10)").fetchall() == [(45,)]
