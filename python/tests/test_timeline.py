# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the page's timeline is given, against logs worked out by hand."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import support

import klogger
from klogger import executor, timeline


def make(out: Path, rows: dict[str, list[str]], **more: Any) -> Path:
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    for event, values in rows.items():
        con.execute(f"INSERT INTO {event} VALUES {', '.join(values)}")
    processes = [(7, "waker", 0, None), (8, "woken", 0, None), (9, "hog", 0, None)]
    return support.write_log(con, out, **{"processes": processes, "end": 10_000, **more})


def read(log: Path, at: tuple[int, ...] = ()) -> timeline.Timeline | None:
    opened = klogger.open(log, locked=True)
    with executor.Session(opened) as session:
        return timeline.read(session, at)


# CPU 0: waker 1000 to 3000, then sleeps. CPU 1: woken 1000 to 1500, sleeps, is woken at 2000, runs
# 2300 to 4000, is preempted, and runs again from 6000 to 7000, though it was "woken" at 5000 while
# it could run.
ROWS = {
    "SCHEDIN": [
        "(1000, 0, 1, 7, 120, 7)", "(1000, 1, 1, 8, 120, 8)", "(2300, 1, 4, 8, 120, 8)",
        "(6000, 1, 7, 8, 120, 8)"],
    "SCHEDOUT": [
        "(3000, 0, 3, 7, 120, 1, 0, 0)", "(1500, 1, 2, 8, 120, 2, 0, 0)",
        "(4000, 1, 5, 8, 120, 0, 0, 0)", "(7000, 1, 8, 8, 120, 1, 0, 0)",
    ],
    "TRY_TO_WAKEUP": ["(2000, 0, 2, 8, 120, 1, 7)", "(5000, 0, 4, 8, 120, 1, 7)"],
}  # fmt: skip


def test_quanta_and_wakeups(tmp_path: Path) -> None:
    found = read(make(tmp_path / "x.klog-parquet", ROWS))
    assert found is not None
    assert [t["name"] for t in found.threads] == ["0 other threads", "woken[8]", "waker[7]"]
    assert [t["ns"] for t in found.threads] == [0, 500 + 1700 + 1000, 2000]
    assert found.windows == [timeline.Window("all", 0, 10_000)]
    columns = {name: column.tolist() for name, column in found.quanta.items()}
    assert columns == {
        "start": [1000, 1000, 2300, 6000],
        "length": [2000, 500, 1700, 1000],
        "cpu": [0, 1, 1, 1],
        "id": [2, 1, 1, 1],
        # slept, waited (D), was preempted, slept
        "how": [2, 3, 1, 2],
        "waited": [0, 0, 300, 0],
        # On CPU 0, which is the first.
        "waker_cpu": [0, 0, 1, 0],
        "waker": [0, 0, 2, 0],
    }


def test_why_quanta_ended_is_said_by_the_log(tmp_path: Path) -> None:
    """The texts are those of the scheduler's decoding; 1 is always that it could still run."""
    found = read(make(tmp_path / "x.klog-parquet", ROWS))
    assert found is not None
    assert found.reasons == ["", "preempted or yielded", "sleeps (S)", "waits (D)"]


def test_bins_hold_all_of_the_time(tmp_path: Path) -> None:
    found = read(make(tmp_path / "x.klog-parquet", ROWS))
    assert found is not None
    assert found.width_ns == 1
    by_thread = (
        np.bincount(found.bins["id"], weights=found.bins["share"])
        * found.width_ns
        / timeline.SHARE_MAX
    )
    assert by_thread.tolist() == [0, 3200, 2000]


def test_bins_of_many_quanta_are_made_coarser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeline, "PARTS_MAX", 600)
    found = read(make(tmp_path / "x.klog-parquet", ROWS))
    assert found is not None
    assert found.width_ns == 16
    assert len(found.bins["bin"]) <= 600
    ns = found.bins["share"].sum() * found.width_ns / timeline.SHARE_MAX
    assert abs(ns - 5200) < 1


def many(out: Path) -> Path:
    """A thousand quanta of 50 ns, one each 100 ns; but ten times as dense from 60,000 ns on."""
    starts = [100 * k for k in range(1, 600)] + [60_000 + 10 * k for k in range(401)]
    ins = [f"({t}, 0, {2 * i}, {7 + i % 2}, 120, 7)" for i, t in enumerate(starts)]
    ends = [t + (50 if t < 60_000 else 5) for t in starts]
    outs = [f"({t}, 0, {2 * i + 1}, {7 + i % 2}, 120, 1, 0, 0)" for i, t in enumerate(ends)]
    return make(out, {"SCHEDIN": ins, "SCHEDOUT": outs}, end=100_000, cpus=1)


def test_windows_of_a_log_that_is_too_big(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline, "QUANTA_MAX", 200)
    log = many(tmp_path / "x.klog-parquet")
    found = read(log)
    assert found is not None
    assert [w.name for w in found.windows] == ["the beginning", "the busiest part"]
    assert found.windows[0].from_ns == 0
    assert found.windows[1].to_ns >= 60_000
    assert found.windows[1].from_ns <= 64_010
    assert found.total == 1000
    for window in found.windows:
        inside = (found.quanta["start"] < window.to_ns) & (
            found.quanta["start"] + found.quanta["length"] > window.from_ns
        )
        # Everything that there is.
        log_rows = klogger.open(log).rows(
            f"SELECT count(*) FROM SCHEDOUT WHERE time > {window.from_ns} AND time - 50 <"
            f" {window.to_ns}"
        )
        assert 80 <= inside.sum() <= 101
        assert abs(inside.sum() - log_rows[0][0]) <= 6
    chosen = read(log, at=(30_000, 30_100))
    assert chosen is not None
    assert [w.name for w in chosen.windows] == ["around 3e-05 s"]
    assert chosen.windows[0].from_ns < 30_000 < chosen.windows[0].to_ns


def test_grow() -> None:
    counts = np.array([5, 1, 1, 9, 1, 1, 5])
    assert timeline.grow(counts, 3, 9) == (3, 4)
    assert timeline.grow(counts, 3, 13) == (1, 6)
    assert timeline.grow(counts, 0, 7) == (0, 3)
    assert timeline.grow(counts, 3, 10**6) == (0, 7)
    # One slice that is too much is still given: it is cut elsewhere.
    assert timeline.grow(counts, 3, 2) == (3, 4)


def unpack(packed: dict[str, Any]) -> dict[str, list[int]]:
    """As page/timeline.js does it."""
    planes = np.frombuffer(gzip.decompress(base64.b64decode(packed["data"])), dtype=np.uint8)
    found, at = {}, 0
    for column in packed["layout"]:
        size = column["depth"] * packed["rows"]
        bytes_of = planes[at : at + size].reshape(column["depth"], packed["rows"]).astype(np.int64)
        at += size
        numbers = sum(bytes_of[d] << (8 * d) for d in range(column["depth"]))
        found[column["name"]] = (np.cumsum(numbers) if column["ascending"] else numbers).tolist()
    assert at == len(planes)
    return found


def test_pack() -> None:
    columns = {
        "start": np.array([0, 5, 5, 2**50]),
        "small": np.array([0, 255, 1, 2]),
        "big": np.array([256, 0, 2**32, 2**53 - 1]),
    }
    assert unpack(timeline.pack(columns, "start")) == {
        name: c.tolist() for name, c in columns.items()
    }
    assert unpack(timeline.pack({"start": np.array([], dtype=np.int64)}, "start")) == {"start": []}


def test_logs_without_quanta_have_no_timeline(tmp_path: Path, empty_log: Path) -> None:
    assert read(empty_log) is None
    assert read(make(tmp_path / "x.klog-parquet", {}, without=("SCHEDIN",))) is None


def test_gaps_and_names(tmp_path: Path) -> None:
    processes = [(7, "a\x1b[31m</script>", 0, None), (8, "", 0, None)]
    ledger = [{"key": "torn", "count": 3, "cpu": 1, "from_ns": 8000, "to_ns": 9000}]
    found = read(make(tmp_path / "x.klog-parquet", ROWS, processes=processes, ledger=ledger))
    assert found is not None
    assert found.gaps == [[1, 8000, 9000]]
    assert all(t["name"].isprintable() for t in found.threads)


def test_join_drops_only_what_is_the_same() -> None:
    """The quantum that is in two windows is there once; one that begins with it, but lasts longer,
    is another.
    """

    def part(*rows: tuple[int, int, int]) -> dict[str, Any]:
        start, length, number = np.array(rows, dtype=np.int64).T
        return {
            "start": start,
            "length": length,
            "cpu": np.zeros(len(rows), dtype=np.int64),
            "id": number,
        }

    joined = timeline.join([part((10, 5, 1), (20, 5, 2)), part((20, 5, 2), (20, 9, 3))])
    assert joined["start"].tolist() == [10, 20, 20]
    assert joined["id"].tolist() == [1, 2, 3]
