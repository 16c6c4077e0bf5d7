# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What several tests need: a small log with an answer to every question, and one without
an event.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import support
from recordings import Datasets

# pytest-xdist sets it in its workers; tests that are about widths set their own.
os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session")
def small_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two programs on two CPUs, with wake-ups and a migration."""
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    for k in range(40):
        start, pid, cpu = 10_000 + 80_000 * k, 10 + k % 2, k // 2 % 2
        state, next_pid = k % 2, 11 - k % 2
        con.execute(
            f"INSERT INTO TRY_TO_WAKEUP VALUES ({start - 4000}, {cpu}, {4 * k}, {pid}, 120,"
            f" {cpu}, 1)"
        )
        con.execute(
            f"INSERT INTO ADD_TO_RUNQ VALUES ({start - 3000}, {cpu}, {4 * k + 1}, {pid}, 120,"
            f" {cpu}, 0)"
        )
        con.execute(f"INSERT INTO SCHEDIN VALUES ({start}, {cpu}, {4 * k + 2}, {pid}, 120, {pid})")
        end = start + 20_000 + 1000 * k
        con.execute(
            f"INSERT INTO SCHEDOUT VALUES ({end}, {cpu}, {4 * k + 3}, {pid}, 120, {state},"
            f" {next_pid}, 0)"
        )
    con.execute("INSERT INTO MIGRATE VALUES (100000, 0, 999, 10, 0, 1)")
    out = tmp_path_factory.mktemp("small") / "small.klog-parquet"
    return support.write_log(
        con, out, processes=[(10, "hog", 0, None), (11, "find", 0, None)], end=3_400_000
    )


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    return Datasets(tmp_path_factory.mktemp("datasets"))


@pytest.fixture(scope="session")
def empty_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tables, no rows but those of the recorder."""
    return support.empty_log(tmp_path_factory.mktemp("empty") / "empty.klog-parquet", "scheduler")


@pytest.fixture(autouse=True)
def own_treatment_of_pipes() -> Iterator[None]:
    """A command that was called lets a pipe without a reader end its process; here that would be
    ours, when a later test writes to a connection that is closed.
    """
    yield
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def own_umask() -> Iterator[None]:
    """A command that reads a private log hides what it writes; the next test must not notice."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)
