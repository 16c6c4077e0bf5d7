# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a dataset has beside the tables of a log: derived tables, names and texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pytest
import support
from recordings import log_of
from test_dataset import CASES
from test_fleet import HAS_SPARK

import klogger
from klogger import analysis, checking, dataset, executor, expectation, rules
from klogger.cli import dataset as command
from klogger.cli import sql
from klogger.columns import Column
from klogger.dataset import checks, compact

MADE = {
    f"{path.parents[1].name}_{path.stem}": analysis.parse(path, path.parents[1].name)
    for path in sorted(support.SCHEMATA.glob("*/derived/*.sql"))
}
# Of each schema with derived tables the expectations' logs; in the night, of all of them.
OF_CASES = [path for path in CASES if (path.parents[1] / "derived").is_dir()]
FIRST = [
    next(path for path in OF_CASES if path.parents[1].name == schema)
    for schema in sorted({path.parents[1].name for path in OF_CASES})
]


def added(log: Path, folder: Path) -> tuple[dataset.Dataset, dataset.Entry]:
    into = dataset.open(folder / "ds", create=True)
    done = into.add(log)
    assert done.said == []
    return into, done.entry


def rows_of(log: Path, name: str) -> list[tuple[object, ...]]:
    """What the table's SQL gives of the log itself, with integers as datasets have them."""
    with klogger.open(log, locked=True) as opened, executor.Session(opened) as session:
        found: list[tuple[object, ...]] = []

        def fill(result: executor.Result, cursor: duckdb.DuckDBPyConnection) -> None:
            query = result.analysis.placed("table")
            kinds = cursor.execute(f"DESCRIBE {query}").fetchall()
            cast = ", ".join(Column(c, kind).to_stored() for c, kind, *_ in kinds)
            found.extend(cursor.execute(f"SELECT {cast} FROM ({query}) ORDER BY ALL").fetchall())

        result = session.run(MADE[name], fill)
        assert result.status in ("empty", "not_recorded"), result.reason
        return found


def check_case(path: Path, folder: Path) -> int:
    """Each table of the schema is as its SQL says of the log itself. How many rows there are."""
    log = expectation.make(expectation.read(path), folder / "x.klog-parquet")
    into, entry = added(log, folder)
    total = 0
    for name, part in entry.said["tables"].items():
        if not part.schema:
            continue
        assert rules.check(MADE[name], entry.events) == []
        wanted = rows_of(log, name)
        assert part.rows == len(wanted), (path, name)
        if part.path:
            file = f"read_parquet('{Path(into.where) / part.path}', hive_partitioning = false)"
            given = duckdb.sql(
                f"SELECT * EXCLUDE (host, log, wall_ns) FROM {file} ORDER BY ALL"
            ).fetchall()
            assert given == wanted, (path, name)
        total += len(wanted)
    return total


@pytest.mark.parametrize("path", FIRST, ids=lambda p: f"{p.parents[1].name}/{p.stem}")
def test_a_table_is_as_its_query_of_the_log(path: Path, tmp_path: Path) -> None:
    check_case(path, tmp_path)


@pytest.mark.nightly("the logs of all expectations")
def test_all_tables_are_as_their_queries_of_the_logs(tmp_path: Path) -> None:
    rows = {p: check_case(p, tmp_path / str(n)) for n, p in enumerate(OF_CASES)}
    assert {p.parents[1].name for p, count in rows.items() if count} == {
        p.parents[1].name for p in OF_CASES
    }


def test_quanta_of_a_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By hand: each of 20 quanta of two threads, on two hosts; also after `compact`."""
    into = dataset.open(tmp_path / "ds", create=True)
    for number in range(2):
        assert into.add(log_of(tmp_path, number, f"host{number}")).said == []
    for _ in range(2):
        query = (
            "SELECT host, pid, program, count(*) AS n, sum(ns)::BIGINT AS ns,"
            " min(wall_ns) - 1700000000000000000 AS first, max(state) AS state, max(cause) AS cause"
            " FROM scheduler_quantum GROUP BY ALL ORDER BY ALL"
        )
        assert sql.main([into.where, query, "--format", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        lengths = {10: sum(range(20_000, 40_000, 2000)), 11: sum(range(21_000, 40_000, 2000))}
        assert [tuple(row.values()) for row in rows] == [
            (f"host{h}", pid, name, 10, lengths[pid], first + h, "S", "sleeps")
            for h in (0, 1)
            for pid, name, first in ((10, "hog", 10_000), (11, "thread 11", 90_000))
        ]
        assert compact.compact(into).packs >= 0
    assert checks.check(into).remarks == []


def test_names_and_texts_are_those_of_the_log(tmp_path: Path) -> None:
    """Of each event: the answers of comm() and of the functions of its decodings."""
    lines = [
        "process 10 hog", "process 11 early 0us 30us", "process 11 late 30us",
        "process 12 one 50us 60us", "process 12 two 60us",
        *(f"{t}us 0 SCHEDIN pid={pid}" for t, pid in ((10, 10), (20, 11), (30, 11), (40, 12))),
        *(f"{t}us 0 SCHEDOUT pid={p} state={s} next={n}" for t, p, s, n in (
            (15, 10, 0, 11), (25, 11, 1, 12), (35, 11, 0x402, 12), (45, 12, 0x10000001 % 65536, 99),
            (65, 12, 0x8010, 12),
        )),
        "end 100us",
    ]  # fmt: skip
    case = expectation.Expectation(Path("x"), "scheduler", "scheduler", log=lines)
    log = expectation.make(case, tmp_path / "x.klog-parquet")
    into, entry = added(log, tmp_path)
    with klogger.open(log) as opened:
        wanted = opened.rows(
            "SELECT time, comm(pid, time), task_state(state), comm(next, time) FROM SCHEDOUT"
            " ORDER BY time"
        )
    assert [row[1] for row in wanted] == ["hog", "early", "late", "12", "two"]
    assert [row[3] for row in wanted] == ["early", "12", "12", "99", "two"]
    file = Path(into.where) / entry.events["SCHEDOUT"].path
    given = duckdb.sql(f"SELECT time, comm, state_text, next_comm FROM '{file}' ORDER BY time")
    assert given.fetchall() == wanted
    # The recording, as a log, has the log's own columns.
    with into.opened(entry) as opened:
        assert "comm" not in opened.sql("FROM SCHEDOUT").columns


OWN = support.SCHEMATA / "scheduler"
NEEDED = """\
-- title: Mine
-- question: What?
-- events: SCHEDIN
-- column time [ns]: when
-- column x: what

-- table
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the derived tables of one's own `scheduler`."""
    shutil.copytree(OWN, tmp_path / "own" / "scheduler")
    monkeypatch.setenv("KLOGGER_SCHEMATA", str(tmp_path / "own"))
    return tmp_path / "own" / "scheduler" / "derived"


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT time, 1::HUGEINT AS x FROM SCHEDIN", "column x is HUGEINT, which not every"),
        ("SELECT time, {'a': 1} AS x FROM SCHEDIN", "column x is STRUCT(a INTEGER), which not"),
        ("SELECT time, 1 AS y FROM SCHEDIN", "column y is not documented"),
        ("SELECT 1 AS x FROM SCHEDIN", "no column says when a row is"),
        ("SELECT time, nix AS x FROM SCHEDIN", '"nix" not found'),
        ("SELECT time, error('odd')::INTEGER AS x FROM SCHEDIN", "odd"),
        ("SELECT 1 AS time, content AS x FROM read_text('/etc/passwd')", "disabled"),
    ],
)
def test_a_table_with_a_fault_costs_itself(
    mine: Path, tmp_path: Path, query: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (mine / "mine.sql").write_text(NEEDED + query)
    assert command.main(["add", str(tmp_path / "ds"), str(log_of(tmp_path))]) == 0
    warned = capsys.readouterr().err
    assert "no table scheduler_mine: " in warned and said in warned
    (entry,) = dataset.open(tmp_path / "ds").entries()
    assert entry.tables["scheduler_quantum"].rows == 20
    assert "scheduler_mine" not in entry.tables
    assert checks.check(dataset.open(tmp_path / "ds")).damage == []


@pytest.mark.full("takes more than 3 s")
def test_one_more_table_is_one_more_file(mine: Path, tmp_path: Path) -> None:
    """Unsigned numbers as documented; a log without its events says nothing of it."""
    text = NEEDED + "SELECT time, (18446744073709551615 - pid)::UBIGINT AS x FROM SCHEDIN"
    (mine / "mine.sql").write_text(text)
    (mine / "other.sql").write_text(text.replace("events: SCHEDIN", "events: SCHEDIN, NIX"))
    into, entry = added(log_of(tmp_path), tmp_path)
    assert "scheduler_other" not in entry.tables
    file = Path(into.where) / entry.tables["scheduler_mine"].path
    found = duckdb.sql(f"SELECT DISTINCT x, typeof(x) FROM '{file}' ORDER BY x").fetchall()
    assert found == [(-12, "BIGINT"), (-11, "BIGINT")]
    # Another version of the table, and a recording without it.
    (mine / "mine.sql").write_text(text.replace(" - pid", ""))
    into.add(log_of(tmp_path, 1))
    (mine / "mine.sql").unlink()
    into.add(log_of(tmp_path, 2))
    assert checks.check(into).remarks == [
        "scheduler_mine: up to 1 recordings with their events do not have them: of another version"
        " of klogger; remove them, and add them again",
        "scheduler_mine: made by several versions of their SQL",
    ]


@pytest.mark.full("starts Spark, which takes a minute")
@pytest.mark.skipif(not HAS_SPARK, reason="PySpark or Java is not installed")
def test_plain_sql_gives_the_same_on_spark(tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    into = dataset.open(tmp_path / "ds", create=True)
    for number in range(2):
        into.add(log_of(tmp_path, number, f"host{number}"))
    query = (
        "SELECT host, program, cause, count(*) AS n, sum(ns) AS ns, min(wall_ns) AS first"
        " FROM {} GROUP BY host, program, cause ORDER BY host, program"
    )
    folder = f"{into.where}/tables/scheduler_quantum"
    here = duckdb.sql(query.format(f"read_parquet('{folder}/**/*.parquet')")).fetchall()
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = spark.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    try:
        session.read.parquet(folder).createOrReplaceTempView("t")
        there = [tuple(row) for row in session.sql(query.format("t")).collect()]
    finally:
        session.stop()
    assert len(there) == 4 and there == here


@pytest.mark.full("takes more than 3 s")
def test_check_knows_derived_tables(mine: Path) -> None:
    """`klogger check FILE`: the header, and what is asked of the columns."""
    assert checking.check(mine / "quantum.sql").faults == []
    file = mine / "mine.sql"
    for query, said in (
        ("SELECT time, 1::HUGEINT AS x FROM SCHEDIN", "column x is HUGEINT"),
        ("SELECT 1 AS x FROM SCHEDIN", "no column says when a row is"),
        ("SELECT time, nix AS x FROM SCHEDIN", "nix"),
    ):
        file.write_text(NEEDED + query)
        (fault,) = checking.check(file).faults
        assert said in fault
