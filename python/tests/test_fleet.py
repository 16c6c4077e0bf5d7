# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Analyses and queries over a dataset: on each executor the same, and what is missing is said."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
import support
from recordings import Datasets, log_of

from klogger import dataset, executors, expectation
from klogger.cli import compare, report, sql
from klogger.dataset import checks, fleet
from klogger.failure import Failure

HAS_SPARK = bool(importlib.util.find_spec("pyspark") and shutil.which("java"))
EXPECTED = sorted(support.SCHEMATA.glob("*/expect/*.expect"))


def some(into: dataset.Dataset, folder: Path, files: Sequence[Path]) -> None:
    """Two recordings of each expectation, on two hosts."""
    for number, file in enumerate(files):
        log = expectation.make(expectation.read(file), folder / f"{number}.klog-parquet")
        meta = json.loads((log / "meta.json").read_text())
        for host in ("a", "b"):
            meta["preamble"]["clock"]["start_realtime_ns"] += 1000 * number + 1
            meta["preamble"]["host"]["name"] = host
            (log / "meta.json").write_text(json.dumps(meta))
            into.add(log, {"number": str(number), "half": host})


def answers(into: dataset.Dataset, on: str) -> list[tuple[Any, ...]]:
    found = fleet.answers(into, into.entries(), by=["host"], on=on)
    assert found.damage == {}
    return [
        (r.analysis.name, r.status, r.reason, r.warnings, r.table.names, r.table.rows)
        for r in found.results
    ]


def few() -> list[Path]:
    return [
        support.SCHEMATA / name
        for name in ("scheduler/expect/quanta.expect", "traps/expect/calls.expect")
    ]


@pytest.mark.parametrize(
    "on", ["pool:2", pytest.param("local[2]", marks=pytest.mark.full("starts Spark"))]
)
def test_executors_give_the_same(on: str, tmp_path: Path) -> None:
    """Row for row."""
    if on != "pool:2" and not HAS_SPARK:
        pytest.skip("PySpark or Java is not installed")
    into = dataset.open(tmp_path / "ds", create=True)
    some(into, tmp_path, few())
    here = answers(into, "here")
    assert sum(status == "answer" for _, status, *_ in here) > 5
    assert answers(into, on) == here


@pytest.mark.nightly("all analyses, three times")
def test_executors_give_the_same_of_all_analyses(tmp_path: Path) -> None:
    into = dataset.open(tmp_path / "ds", create=True)
    some(into, tmp_path, EXPECTED)
    here = answers(into, "here")
    for on in ("pool:2", *(["local[2]"] if HAS_SPARK else [])):
        assert answers(into, on) == here


@pytest.mark.full("takes more than 3 s")
def test_a_process_that_is_killed_costs_nothing_but_time(tmp_path: Path) -> None:
    marker = tmp_path / "killed"
    with executors.chosen("pool:1") as pool:
        done = list(pool.map(Deadly(str(marker)), ["a", "b", "c"]))
    assert sorted(done) == ["A", "B", "C"]
    with executors.chosen("pool:1") as pool, pytest.raises(Failure, match="was killed"):
        list(pool.map(Deadly(""), ["b"]))


class Deadly:
    """Kills its process at `b`: once, if there is a file to remember it by."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __call__(self, name: str) -> str:
        if name == "b" and not (self.marker and os.path.exists(self.marker)):
            if self.marker:
                Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return name.upper()


@pytest.fixture
def two(tmp_path: Path, datasets: Datasets) -> dataset.Dataset:
    return datasets.copy(tmp_path, ("host0", "host1"), built=True)


def test_report_of_a_dataset(two: dataset.Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    words = [two.where, "--analysis", "quanta", "--format", "json"]
    assert report.main(words) == 0
    together = json.loads(capsys.readouterr().out)["analyses"][0]
    assert report.main([*words, "--by", "host,label.build"]) == 0
    apart = json.loads(capsys.readouterr().out)["analyses"][0]
    assert [(r["host"], r["label.build"]) for r in apart["table"]] == [
        (f"host{n}", str(n)) for n in (0, 0, 1, 1)
    ]
    for row in together["table"]:
        mine = [r for r in apart["table"] if r["program"] == row["program"]]
        assert row["quanta"] == sum(r["quanta"] for r in mine) == 20
        assert (row["max"], row["p50"]) == (mine[0]["max"], mine[0]["p50"])
    assert report.main([*words, "--only", "build=1"]) == 0
    only = json.loads(capsys.readouterr().out)
    assert [row["quanta"] for row in only["analyses"][0]["table"]] == [10, 10]
    assert report.main([two.where, "--by", "host", "--no-pager"]) == 0
    assert "2 recordings of 2 hosts" in capsys.readouterr().out


@pytest.mark.full("takes more than 3 s")
def test_losses_keep_their_warnings(
    two: dataset.Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = {"key": "ring_full", "count": 3, "cpu": 0, "from_ns": 5, "to_ns": 9, "text": "full"}
    case = expectation.read(few()[0])
    case.log.append("ledger " + " ".join(f"{k}={v}" for k, v in lost.items()))
    entry = two.add(expectation.make(case, tmp_path / "lost.klog-parquet")).entry
    assert report.main([two.where, "--analysis", "quanta", "--format", "json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["analyses"][0]["warnings"]
    start = f"example, {entry.log[:8]}: 3 events are missing (CPU 0"
    assert [w for w in warnings if w.startswith(start)]


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("content", [b"PAR1", None])
def test_a_damaged_file_is_named_and_left_out(
    two: dataset.Dataset, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = two.entries()[0]
    file = Path(two.where) / entry.events["SCHEDIN"].path
    if content is None:
        # As it was but for the data, which is noticed when it is read.
        kept = bytearray(file.read_bytes())
        kept[4 : len(kept) // 2] = bytes(len(kept) // 2 - 4)
        content = bytes(kept)
    file.write_bytes(content)
    assert report.main([two.where, "--analysis", "quanta", "--format", "json"]) == 1
    said = capsys.readouterr()
    assert f"recording {entry.log} is left out" in said.err
    found = json.loads(said.out)
    assert list(found["left_out"]) == [entry.log]
    assert [row["quanta"] for row in found["analyses"][0]["table"]] == [10, 10]


def test_a_damaged_entry_is_named_and_left_out(
    two: dataset.Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = two.entries()
    for left, entry in zip((1, 0), entries, strict=True):
        (Path(two.where) / entry.name).write_text("{}")
        words = [two.where, "--analysis", "quanta", "--format", "json"]
        assert report.main(words) == (1 if left else 2)
        said = capsys.readouterr()
        assert f"recordings/{entry.log}.json: not an entry" in said.err or not left
        assert left or "no recording can be read: recordings/" in said.err
        assert not left or len(json.loads(said.out)["recordings"]) == left


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize(
    ("changed", "code", "said"),
    [
        ("pid::VARCHAR AS pid", 0, "pid is INTEGER in 1 and VARCHAR in 1 recordings"),
        ("[pid] AS pid", 2, "pid"),
    ],
)
def test_schemata_that_clash(
    two: dataset.Dataset,
    tmp_path: Path,
    changed: str,
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A column that is something else in one recording."""
    log = log_of(tmp_path, 7, "another")
    into = dataset.open(tmp_path / "clash", create=True)
    into.add(log)
    file = log / "SCHEDIN.parquet"
    duckdb.sql(
        f"COPY (SELECT * REPLACE ({changed}) FROM '{file}') TO '{file}.new' (FORMAT parquet)"
    )
    os.replace(f"{file}.new", file)
    meta = json.loads((log / "meta.json").read_text())
    meta["preamble"]["clock"]["start_realtime_ns"] += 1
    (log / "meta.json").write_text(json.dumps(meta))
    into.add(log)
    query = "SELECT pid, count(*) FROM SCHEDIN GROUP BY ALL ORDER BY ALL"
    assert sql.main([into.where, query, "--format", "json"]) == code
    shown = capsys.readouterr()
    assert said in shown.err and "Traceback" not in shown.err
    assert len(json.loads(shown.out)) == 2 if code == 0 else shown.out == ""


@pytest.mark.full("takes more than 3 s")
def test_a_clock_that_is_off_by_years(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its recording is as good as the others, but for the time of the day."""
    into = dataset.open(tmp_path / "ds", create=True)
    for number, years in enumerate((0, -50, 80)):
        start = (1_700_000_000 + years * 31_557_600) * 10**9
        clock = {"start_realtime_ns": start, "uncertainty_ns": 30}
        into.add(log_of(tmp_path, number, f"h{number}", clock=clock))
    assert report.main([into.where, "--analysis", "quanta", "--no-pager"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "3 recordings of 3 hosts, 10.2 ms together" in said
    assert len([line for line in checks.check(into, content=False).remarks if "clock" in line]) == 2


def test_queries_over_all_events(
    two: dataset.Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = "SELECT host, count(*) AS n, min(wall_ns - time) AS start FROM SCHEDIN GROUP BY ALL"
    assert sql.main([two.where, f"{query} ORDER BY 1", "--format", "json"]) == 0
    start = 1_700_000_000 * 10**9
    assert json.loads(capsys.readouterr().out) == [
        {"host": f"host{n}", "n": 20, "start": start + n} for n in range(2)
    ]
    joined = "SELECT r.labels['build'] AS build, p.comm FROM process AS p JOIN recording AS r"
    assert sql.main([two.where, f"{joined} USING (log) WHERE pid = 10 ORDER BY 1"]) == 0
    assert "0       hog" in capsys.readouterr().out
    assert sql.main([two.where, "SELECT * FROM MIGRATE", "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("host,log,wall_ns,time,cpu")
    assert sql.main([two.where, ".tables"]) == 0
    assert "SCHEDOUT" in capsys.readouterr().out
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    assert sql.main([two.where, f"FROM '{secret}'"]) == 2


def test_compare_two_labels(two: dataset.Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    words = [two.where, "--analysis", "switches", "--format", "json", "--between"]
    assert compare.main([*words, "build=0", "build=1"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert compare.main([*words, "build=0", "build=7"]) == 2
    assert "no recording has build=7" in capsys.readouterr().err
    assert compare.main([*words, "build=0", "host=host0"]) == 2
    assert "1 recordings are on both sides" in capsys.readouterr().err


def test_a_page(two: dataset.Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One answer for both hosts, and its SQL; the terminal has the name of the file."""
    page = tmp_path / "page.html"
    words = [two.where, "--analysis", "switches", "--by", "host", "--html", str(page)]
    assert report.main(words) == 0
    said = capsys.readouterr().out
    assert f"wrote {page}" in said and "Switches" not in said
    whole = page.read_text()
    assert "<td>host0</td>" in whole and "<td>host1</td>" in whole
    assert "The SQL behind it" in whole and "2 recordings of 2 hosts" in whole
    assert report.main([*words, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["analyses"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--by", "hosts"], "'hosts' is none of host, kernel"),
        (["--by", "label.nix"], "no recording has a label 'nix'"),
        (["--only", "build=9"], "no recording has build=9"),
        (["--analysis", "quante"], "did you mean quanta"),
        (["--on", "nowhere"], "there is no such executor"),
        (["--png", "pictures"], "are for one recording"),
        (["--operation", "slowest"], "are for one recording"),
    ],
)
def test_what_cannot_be_asked(
    two: dataset.Dataset, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        assert report.main([two.where, *words]) == 2
    except SystemExit as end:
        assert end.code == 2
    assert said in capsys.readouterr().err


def test_an_empty_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = dataset.open(tmp_path / "ds", create=True).where
    for main in (report.main, lambda words: sql.main([*words, "SELECT 1"])):
        assert main([where]) == 2
        assert "the dataset is empty" in capsys.readouterr().err


def test_a_log_is_no_dataset(small_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(small_log), "--by", "host"]) == 2
    assert "are for a dataset" in capsys.readouterr().err


@pytest.mark.skipif(not HAS_SPARK, reason="PySpark or Java is not installed")
def test_spark_that_is_not_there(
    two: dataset.Dataset, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert report.main([two.where, "--on", f"spark://127.0.0.1:{free_port()}"]) == 2
    assert "the master cannot be reached" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert report.main([two.where, "--on", "local[2]"]) == 2
    assert "there is no Java runtime" in capsys.readouterr().err


def test_the_first_rows_come_before_the_last(
    two: dataset.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the recordings that are done by then; the answer is the same as without them."""
    monkeypatch.setattr(fleet, "FIRST_AFTER", 0)
    some: list[fleet.Fleet] = []
    found = fleet.answers(two, two.entries(), ["quanta"], ["host"], first=some.append)
    (first,) = some
    assert [e.host for e in first.entries] == ["host0"]
    (rows,), (whole,) = ([r.table.rows for r in f.results] for f in (first, found))
    assert rows == [row for row in whole if row[0] == "host0"]
    again = fleet.answers(two, two.entries(), ["quanta"], ["host"], first=some.append)
    assert len(some) == 1
    assert [r.table.rows for r in again.results] == [whole]
