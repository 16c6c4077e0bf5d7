# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Analyses that a stranger's log names, or that a stranger wrote: which files are read, and what
their SQL may do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

import klogger
from klogger import analysis, sources, statements
from klogger.failure import Failure

STRANGER = 65534
SQL = "-- title: A\n-- question: Q?\n-- events: E\n\n-- table\nSELECT 1 AS n\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="files of two users")


def schema(folder: Path) -> list[dict[str, str]]:
    return [{"name": "no_such_schema", "file": str(folder / "ev.klogger")}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "analyses").mkdir()
    (tmp_path / "analyses" / "a.sql").write_text(SQL)
    return tmp_path


def why(folder: Path) -> str:
    """What is wrong with the one analysis of a folder; empty: it is read."""
    (one,) = analysis.find(schema(folder))
    return one.said(one.faults)


def test_a_file_of_the_caller_is_read(folder: Path) -> None:
    assert why(folder) == ""


@needs_root
def test_the_way_to_a_place_is_trusted_with_it(tmp_path: Path) -> None:
    place = tmp_path / "other" / "schemata"
    inside = place / "one" / "analyses"
    inside.mkdir(parents=True)
    (inside / "a.sql").write_text(SQL)
    os.chown(tmp_path / "other", STRANGER, STRANGER)
    assert sources.read(inside / "a.sql", [place]) == SQL
    assert sources.names_in(inside, [place]) == ["a.sql"]
    for places in ([], [tmp_path / "elsewhere"]):
        with pytest.raises(sources.Refused, match="is in a folder of user"):
            sources.read(inside / "a.sql", places)
    # What is below the place is not.
    os.chown(place / "one", STRANGER, STRANGER)
    with pytest.raises(sources.Refused, match="is in a folder of user"):
        sources.read(inside / "a.sql", [place])


def test_a_byte_order_mark_hides_nothing(folder: Path) -> None:
    (folder / "analyses" / "a.sql").write_text("\ufeff" + SQL)
    (one,) = analysis.find(schema(folder))
    assert (one.title, one.faults) == ("A", [])
    (folder / "beside.sql").write_text("\ufeff" + SQL)
    assert analysis.has_header(folder / "beside.sql")


def test_no_fifo_and_no_device_is_opened(folder: Path) -> None:
    file = folder / "analyses" / "a.sql"
    file.unlink()
    os.mkfifo(file)
    assert "is not a regular file" in why(folder)
    for device in ("/dev/zero", "/dev/fd/0"):
        file.unlink()
        file.symlink_to(device)
        assert "is not a regular file" in why(folder)
    # Nor where any SQL may be.
    (folder / "analyses").rename(folder / "elsewhere")
    (folder / "b.sql").symlink_to("/dev/zero")
    os.mkfifo(folder / "c.sql")
    assert analysis.find(schema(folder)) == []


def test_a_file_has_a_size(folder: Path) -> None:
    with (folder / "analyses" / "a.sql").open("a") as file:
        file.write("-" * sources.SIZE_MAX)
    assert "is larger than 1 MiB" in why(folder)


def test_a_file_that_others_can_write_is_not_read(folder: Path) -> None:
    (folder / "analyses" / "a.sql").chmod(0o666)
    assert "can be written by other users" in why(folder)
    assert "KLOGGER_SCHEMATA" in why(folder)


@needs_root
def test_files_of_others_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = folder / "secret"
    secret.write_text("hash of root")
    secret.chmod(0o600)
    file = folder / "analyses" / "a.sql"
    os.chown(file, STRANGER, STRANGER)
    assert "belongs to user" in why(folder)
    file.unlink()
    file.symlink_to(secret)
    os.lchown(file, STRANGER, STRANGER)
    assert "is behind a link of user" in why(folder)
    assert "hash" not in why(folder)
    # What the user has named is trusted, whoever owns it.
    file.unlink()
    file.write_text(SQL)
    for path in (file, file.parent, folder):
        os.chown(path, STRANGER, STRANGER)
    assert analysis.find(schema(folder)) == []
    assert [f"{folder}/analyses is not read: it is in a folder of user" in said
            for said in analysis.refused(schema(folder))] == [True]  # fmt: skip
    assert analysis.searched(schema(folder)) == "those of its schemata are not read"
    monkeypatch.setenv("KLOGGER_SCHEMATA", str(folder))
    assert why(folder) == ""
    assert analysis.refused(schema(folder)) == []


@needs_root
def test_a_second_name_of_a_file_is_not_read_where_others_can_give_it(folder: Path) -> None:
    os.link(folder / "analyses" / "a.sql", folder / "other")
    assert why(folder) == ""
    (folder / "analyses").chmod(0o1777)
    assert "has a second name" in why(folder)


@needs_root
def test_who_calls_sudo_has_his_own_files_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "analyses" / "a.sql"
    os.chown(file, STRANGER, STRANGER)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    assert why(folder) == ""
    (folder / "root's").write_text(SQL)
    file.unlink()
    file.symlink_to(folder / "root's")
    os.lchown(file, STRANGER, STRANGER)
    assert "is behind a link of user" in why(folder)


def test_what_is_included_is_beside_the_analysis(folder: Path) -> None:
    file = folder / "analyses" / "a.sql"
    for name in ("../secret", "/etc/secret", "../../../etc/secret", "../../a/analyses/../secret"):
        file.write_text(f"-- include: {name}\n{SQL}")
        assert "is neither NAME nor ../../SCHEMA/analyses/NAME" in why(folder)
    (folder / "spans.sql").write_text("-- include: ../secret\n")
    from klogger import spans

    assert spans.parse(folder / "spans.sql", "x").faults


@pytest.fixture
def log() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA klogger; CREATE TABLE E (a INTEGER); CREATE VIEW V AS FROM E")
    return connection


def test_an_analysis_asks_and_makes_temporary_objects(log: duckdb.DuckDBPyConnection) -> None:
    text = """
        CREATE TEMP TABLE q AS SELECT 1 AS x; INSERT INTO q VALUES (2); UPDATE q SET x = 3;
        DELETE FROM q WHERE x = 1; CREATE TEMP MACRO f(y) AS y + 1; SET VARIABLE v = 7;
        CREATE TEMP VIEW w AS FROM q; CREATE TEMP TABLE p AS PIVOT q ON x; DROP TABLE p;
        SELECT f(x) + getvariable('v') AS "copy" FROM w"""
    with statements.executed(log, text, "a.sql") as rows:
        assert rows.fetchall() == [(11,), (11,)]


@pytest.mark.parametrize(
    "text",
    [
        "SET memory_limit = '100GB'", "RESET memory_limit", "PRAGMA memory_limit = '100GB'",
        "SELECT 1; SET threads = 64", "USE klogger", "CALL enable_logging()",
        "COPY E TO 'THERE'", "WITH a AS (COPY E TO 'THERE') FROM a",
        "WITH a AS MATERIALIZED ( /* */ copy (SELECT 1) TO 'THERE') FROM a",
        "EXPLAIN ANALYZE COPY E TO 'THERE'", "EXPORT DATABASE 'THERE'", "ATTACH 'THERE' AS p",
        "INSTALL httpfs", "LOAD httpfs", "CHECKPOINT", "COMMIT; INSERT INTO E VALUES (1)",
        "INSERT INTO E VALUES (1)", "WITH a AS (INSERT INTO E VALUES (1) RETURNING *) FROM a",
        "DELETE FROM E", "DROP TABLE E", "DROP VIEW V", "CREATE OR REPLACE VIEW V AS SELECT 1",
        "CREATE TABLE t (x INTEGER)", "CREATE MACRO klogger.f(x) AS x", "ALTER TABLE E RENAME TO F",
        "CREATE SEQUENCE s", "PREPARE p AS COPY E TO 'THERE'", "TRUNCATE E",
    ],
)  # fmt: skip
def test_an_analysis_changes_nothing(
    log: duckdb.DuckDBPyConnection, tmp_path: Path, text: str
) -> None:
    before = log.execute("SELECT sql FROM duckdb_views() WHERE NOT internal").fetchall()
    text = text.replace("THERE", str(tmp_path / "made"))
    with pytest.raises(statements.Rejected) as caught:
        statements.execute_whole(log, text, "a.sql")
    assert str(caught.value).startswith(f"a.sql: {statements.MAY}")
    assert not list(tmp_path.iterdir())
    assert log.execute("FROM E").fetchall() == []
    assert log.execute("SELECT sql FROM duckdb_views() WHERE NOT internal").fetchall() == before


LONG = """
import os, sys, tempfile
import duckdb
from klogger import cli, statements

statements.GRACE_SECONDS = 0.1
folder = tempfile.TemporaryDirectory(prefix="klogger-")
print(folder.name, flush=True)
text = "SELECT levenshtein(repeat('a', 2000000), repeat('b', 2000000))"
sys.exit(cli.guarded(lambda: statements.execute_whole(duckdb.connect(), text, "long.sql")))
"""


def test_a_command_ends_with_a_function_that_does_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LONG], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, statements.LIMIT_NAME: "0.1"},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "klogger: long.sql: not done after 0.1 s, and given up",
        "  help: KLOGGER_QUERY_SECONDS=SECONDS in the environment gives it more time, 0 all it"
        " takes",
    ]
    assert not Path(done.stdout.strip()).exists()


# All that DuckDB takes for spaces, and others that are not seen.
SPACES = (
    "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u200b"
    "\u202f\u205f\u2060\u3000\ufeff\u00ad\u200c\u200d\u200e\u2028\u2061\u180e"
)


@pytest.mark.parametrize("space", SPACES, ids=lambda c: f"{ord(c):04X}")
def test_no_other_space_hides_a_word(
    log: duckdb.DuckDBPyConnection, tmp_path: Path, space: str
) -> None:
    to = tmp_path / "made"
    for text in (
        f"WITH a AS MATERIALIZED ({space}COPY (SELECT 1) TO '{to}') FROM a",
        f"CREATE TEMP TABLE t AS WITH a AS (COPY{space}(SELECT 1) TO '{to}') FROM a",
        f"WITH a AS MATERIALIZED ( {space} COPY E TO '{to}') FROM a",
        f"SELECT 'ä', ${space}$ ' ${space}$; WITH a AS ({space}COPY E TO '{to}', ' ') FROM a",
        f"SELECT\n  1 +{space}2",
    ):
        with pytest.raises(statements.Rejected):
            statements.execute_whole(log, text, "a.sql")
        assert not list(tmp_path.iterdir())
        assert statements.has_copy(text) or "COPY E TO" not in text or "$" in text
    assert statements.has_copy(f"WITH a AS (COPY{space}(SELECT 1) TO 'x') FROM a")
    with statements.executed(log, f"SELECT '{space}' AS \"a{space}\" -- {space}", "a.sql") as rows:
        assert rows.fetchall() == [(space,)]


def test_a_strange_space_is_named(log: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(statements.Rejected) as caught:
        statements.execute_whole(log, "SELECT 'ä',\n  1\u00a0+ 2", "a.sql")
    assert str(caught.value).splitlines() == [
        "a.sql: the character U+00A0 (no-break space) in the place of a space",
        "  line 2:   1\u00a0+ 2",
        " " * 13 + "^",
    ]


def test_a_column_may_be_called_copy(log: duckdb.DuckDBPyConnection) -> None:
    for text in (
        "SELECT count(copy) FROM (SELECT 1 AS copy)",
        "WITH a(copy) AS (SELECT 1) SELECT (copy), abs(copy), (copy + 0) FROM a",
        "SELECT max(copy) FROM (SELECT 1 AS copy) WHERE (copy = 1)",
        "SELECT 1 AS \"(copy\" WHERE '(copy t' = $$(copy t$$ -- (copy t",
    ):
        with statements.executed(log, text, "a.sql") as rows:
            assert rows.fetchall()[0][0] == 1


def test_a_locked_log_has_no_folder_to_write_in(small_log: Path) -> None:
    before = {file.name: file.stat().st_size for file in small_log.iterdir()}
    with klogger.open(small_log, locked=True) as log:
        assert log.rows("SELECT count(*) FROM SCHEDIN") == [(40,)]
        for to in (small_log / "new.csv", small_log / "SCHEDIN.parquet"):
            with pytest.raises(duckdb.Error, match="disabled by configuration"):
                log.connection.execute(f"COPY (SELECT 1) TO '{to}'")
    assert {file.name: file.stat().st_size for file in small_log.iterdir()} == before


def test_a_section_is_one_query(log: duckdb.DuckDBPyConnection) -> None:
    statements.check_query(log, "SELECT 1 -- one", "a.sql")
    for text in ("SELECT 1; SELECT 2", "SELECT 1); DROP TABLE E; SELECT (1", "DROP VIEW V"):
        with pytest.raises(statements.Rejected):
            statements.check_query(log, text, "a.sql")


class Counting:
    """A connection that counts how often DuckDB reads a text."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection, self.count = connection, 0

    def extract_statements(self, text: str) -> Any:
        self.count += 1
        return self.connection.extract_statements(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


def test_a_text_is_read_once_for_all_logs(log: duckdb.DuckDBPyConnection) -> None:
    """And gives the same each time: rows, and faults."""
    one: Any = Counting(log)
    text = "CREATE TEMP TABLE once AS SELECT 7 AS n; INSERT INTO once SELECT 8; FROM once"
    for _ in range(3):
        with statements.executed(one, text, "a.sql") as rows:
            assert rows.fetchall() == [(7,), (8,)]
        log.execute("DROP TABLE temp.once")
    assert one.count == 1
    for text, said in (("SELECT 1;\nSELECT b", "line 2: SELECT b"), ("SELECT 1; DROP", "DROP")):
        for _ in range(2):
            with pytest.raises(statements.Rejected) as caught:
                statements.execute_whole(log, text, "a.sql")
            assert said in str(caught.value)
    for _ in range(2):
        with pytest.raises(statements.Rejected, match="ATTACH is neither"):
            statements.execute_whole(log, "ATTACH ':memory:' AS other", "a.sql")


def test_a_query_does_not_run_for_ever(
    log: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(statements.LIMIT_NAME, "0.1")
    endless = "SELECT count(*) FROM range(10000000) AS a, range(10000000) AS b"
    with pytest.raises(Failure) as caught:
        statements.execute_whole(log, endless, "endless.sql")
    assert caught.value.message == "endless.sql: not done after 0.1 s, and given up"
    assert "KLOGGER_QUERY_SECONDS=SECONDS" in (caught.value.help or "")
    # The connection is still good.
    monkeypatch.setenv(statements.LIMIT_NAME, "0")
    statements.execute_whole(log, "CREATE TEMP TABLE t AS SELECT 1", "next.sql")
    for wrong in ("soon", "-1", "nan", "1e300"):
        monkeypatch.setenv(statements.LIMIT_NAME, wrong)
        with pytest.raises(Failure, match="is not a number of seconds"):
            statements.execute_whole(log, "SELECT 1", "a.sql")
