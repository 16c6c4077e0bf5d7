# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Queries by Spark give what DuckDB gives, and what it lacks is said in one message. With a master
and workers of its own, reports are the same, and go on when a worker is killed.

That its tasks answer as the other executors do is in test_fleet.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import waiting
from recordings import log_of
from test_fleet import HAS_SPARK, answers, few, free_port, some

from klogger import dataset, executors
from klogger.cli import report, sql
from klogger.dataset import compact, query, sparksql
from klogger.executors import spark
from klogger.failure import Failure
from klogger_lab import cluster

needs_spark = pytest.mark.skipif(not HAS_SPARK, reason="PySpark or Java is not installed")

QUERIES = [
    'SELECT host, count(*) AS n, min(wall_ns - time) AS start FROM "SCHEDIN" GROUP BY host'
    " ORDER BY host",
    "SELECT log, cpu, time, pid FROM schedout ORDER BY log, time",
    "SELECT r.labels['build'] AS build, p.comm FROM process AS p JOIN recording AS r USING (log)"
    " WHERE pid = 10 ORDER BY 1",
    "SELECT * FROM MIGRATE",
    "SELECT schema_, name, logged FROM event ORDER BY log, schema_, name",
    "WITH one AS (SELECT pid, max(time) AS last FROM SCHEDIN GROUP BY pid) SELECT * FROM one"
    " ORDER BY pid DESC",
]


@pytest.fixture
def two(tmp_path: Path) -> dataset.Dataset:
    """A path has what Spark takes for wildcards."""
    into = dataset.open(tmp_path / "d{s},[1]*", create=True)
    for number in range(2):
        into.add(log_of(tmp_path, number, f"host{number}"), {"build": str(number)})
    return into


def of_duckdb(into: dataset.Dataset, text: str) -> Any:
    with query.opened(into, into.entries()) as log:
        return table_of(log.connection.sql(text))


def table_of(found: duckdb.DuckDBPyRelation) -> Any:
    return found.columns, found.fetchall()


@pytest.mark.full("starts Spark")
@needs_spark
def test_spark_answers_as_duckdb(
    two: dataset.Dataset, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before and after the files of both recordings became one, and as the command has it."""
    with spark.spark("local[2]") as found, duckdb.connect() as con:

        def asked(text: str) -> Any:
            root = Path(two.where).absolute()
            return found.ask(lambda s: sparksql.ask(s, two.entries(), root, text))

        for _ in range(2):
            for text in QUERIES:
                assert table_of(con.from_arrow(asked(text))) == of_duckdb(two, text), text
            compact.compact(two)
        for text, said in (
            ("SELECT * FROM SCHEDINN", "there is no table 'SCHEDINN'"),
            ("SELECT pidd FROM SCHEDIN", "pidd"),
            ("SELEC 1", "the query: "),
            ("CREATE TABLE x AS SELECT 1 AS a", "the query: "),
            (f"INSERT OVERWRITE DIRECTORY '{tmp_path}/out' USING csv SELECT 1", "the query: "),
        ):
            with pytest.raises(Failure) as failure:
                asked(text)
            assert said in failure.value.message
            assert "\n" not in failure.value.message
        assert not (tmp_path / "out").exists()
    words = [two.where, "--on", "local[2]", QUERIES[0]]
    assert sql.main([*words, "--format", "json"]) == 0
    said = capfd.readouterr()
    assert [row["n"] for row in json.loads(said.out)] == [20, 20]
    assert said.err == ""
    assert sql.main([*words, "--format", "parquet", "-o", str(tmp_path / "x.parquet")]) == 0
    assert duckdb.sql(f"SELECT n FROM '{tmp_path}/x.parquet'").fetchall() == [(20,), (20,)]


@pytest.mark.full("starts Spark")
@needs_spark
def test_spark_leaves_nothing_in_the_current_folder(two: dataset.Dataset, tmp_path: Path) -> None:
    """Not even of a table that it does not know: it looks for that in its warehouse."""
    here = tmp_path / "here"
    here.mkdir()
    words = [sys.executable, "-m", "klogger.cli.sql", two.where, "--on", "local[1]"]
    done = subprocess.run(
        [*words, "SELECT * FROM nothing"], cwd=here, capture_output=True, text=True, check=False
    )
    assert (done.returncode, os.listdir(here)) == (2, [])
    assert "there is no table 'nothing'" in done.stderr


def test_a_name_of_several_tables_has_the_schema_before_it(two: dataset.Dataset) -> None:
    entry = two.entries()[0]
    part = entry.said["events"]["SCHEDIN"]
    entry.said["events"]["PROCESS"] = part
    named = sparksql.names([entry])
    assert named["scheduler_PROCESS"].name == "PROCESS"
    assert named["klogger_process"].name == "process"
    assert named["SCHEDIN"].schema == "scheduler"
    assert "process" not in named


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--on", "pool", "SELECT 1"], "--on pool: not a Spark"),
        (["--on", "local[2]", ".schema"], "needs no Spark"),
        (["--on", "local[2]", "-i"], "--on takes a query"),
        (["--on", "local[2]", "--allow-files", "SELECT 1"], "--on takes a query"),
    ],
)
def test_what_cannot_be_asked_of_spark(
    two: dataset.Dataset, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sql.main([two.where, *words]) == 2
    assert said in capsys.readouterr().err


def test_a_log_is_not_asked_by_spark(small_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sql.main([str(small_log), "--on", "local[2]", "SELECT 1"]) == 2
    assert "--on is for a dataset" in capsys.readouterr().err


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("main", [report.main, lambda words: sql.main([*words, "SELECT 1"])])
def test_without_pyspark(
    main: Any,
    two: dataset.Dataset,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert main([two.where, "--on", "local[2]"]) == 2
    assert "help: pip install 'klogger[spark]'" in capsys.readouterr().err


@pytest.mark.full("starts Spark")
@needs_spark
def test_a_query_without_java_or_a_master(
    two: dataset.Dataset, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sql.main([two.where, "--on", f"spark://127.0.0.1:{free_port()}", "SELECT 1"]) == 2
    assert "the master cannot be reached" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert sql.main([two.where, "--on", "local[2]", "SELECT 1"]) == 2
    assert "there is no Java runtime" in capsys.readouterr().err


@pytest.fixture
def found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of these tests, by the workers."""
    path = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))


@pytest.mark.full("starts Spark")
@needs_spark
def test_all_cores_work_at_one_time(found_by_name: None, tmp_path: Path) -> None:
    """None of the first three goes on before all have begun."""
    giver = threading.Thread(target=waiting.let_go, args=(tmp_path, 3))
    giver.start()
    names = [str(number) for number in range(15)]
    with executors.chosen("local[3]") as on:
        assert sorted(on.map(waiting.Waiting(tmp_path), names)) == sorted(names)
    giver.join()


@pytest.fixture
def workers(found_by_name: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[cluster.Cluster]:
    # However busy this machine is.
    monkeypatch.setattr(spark, "WORKERS_WITHIN", 600.0)
    with cluster.cluster(2) as found:
        yield found


@needs_spark
@pytest.mark.nightly("starts a Spark of four processes")
def test_a_master_and_two_workers(workers: cluster.Cluster, tmp_path: Path) -> None:
    """The same rows; and nothing of what Spark prints."""
    into = dataset.open(tmp_path / "ds", create=True)
    some(into, tmp_path, few())
    assert answers(into, workers.address) == answers(into, "here")
    done = subprocess.run(
        [sys.executable, "-m", "klogger.cli.sql", into.where, "--on", workers.address,
         "SELECT count(*) AS n FROM recording", "--format", "csv"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "n\n4\n"), done.stderr
    assert "WARN" not in done.stderr and "Spark" not in done.stderr


@needs_spark
@pytest.mark.nightly("starts a Spark of four processes")
def test_a_worker_that_is_killed_costs_nothing_but_time(
    workers: cluster.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = list("abcdef")

    def kill() -> None:
        waiting.let_go(tmp_path, 2, lambda: os.killpg(workers.workers[0].pid, signal.SIGKILL))

    killer = threading.Thread(target=kill)
    killer.start()
    with executors.chosen(workers.address) as on:
        assert sorted(on.map(waiting.Waiting(tmp_path), names)) == [name.upper() for name in names]
        killer.join()
        # And when there is none left, it is said.
        os.killpg(workers.workers[1].pid, signal.SIGKILL)
        monkeypatch.setattr(spark, "WORKERS_WITHIN", 5.0)
        with pytest.raises(Failure, match=r"no worker took any work; 6 of 6 tasks are"):
            list(on.map(waiting.Waiting(tmp_path), names))


@needs_spark
@pytest.mark.nightly("starts a Spark of two processes")
def test_an_interrupted_cluster_leaves_nothing() -> None:
    program = ["sh", "-c", "echo {}; exec sleep 3600"]
    words = [sys.executable, "-m", "klogger_lab.cluster", "1", *program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as one:
        assert one.stdout and one.stdout.readline().startswith("spark://127.0.0.1:")
        started = Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text().split()
        # The master, the worker, the program.
        assert len(started) == 3
        one.send_signal(signal.SIGINT)
        assert one.wait() == 130
    assert not [pid for pid in started if Path("/proc", pid).exists()]
