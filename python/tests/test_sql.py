# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger sql` as its users meet it."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
import support

import klogger
from klogger.cli import sql


def ask(capsys: pytest.CaptureFixture[str], log: Path, *words: str) -> tuple[int, str, str]:
    code = sql.main([str(log), *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_answer_in_each_form(
    capsys: pytest.CaptureFixture[str], small_log: Path, tmp_path: Path
) -> None:
    query = "SELECT comm(pid, time) AS program, count(*) AS n FROM schedin GROUP BY 1 ORDER BY 1"
    code, out, err = ask(capsys, small_log, query)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()][2:] == [["find", "20"], ["hog", "20"]]
    _, out, _ = ask(capsys, small_log, query, "--format", "csv")
    assert list(csv.reader(io.StringIO(out))) == [["program", "n"], ["find", "20"], ["hog", "20"]]
    _, out, _ = ask(capsys, small_log, query, "--format", "json")
    assert json.loads(out) == [{"program": "find", "n": 20}, {"program": "hog", "n": 20}]
    file = tmp_path / "out.parquet"
    code, _, err = ask(capsys, small_log, query, "--format", "parquet", "-o", str(file))
    assert (code, err) == (0, "")
    assert duckdb.sql(f"SELECT sum(n) FROM '{file}'").fetchall() == [(40,)]


def test_functions_of_the_schema(small_log: Path) -> None:
    log = klogger.open(small_log)
    assert log.sql(
        "SELECT task_state(0), task_state(3), task_state(65537), task_state(128)"
    ).fetchall() == [("0", "S|D", "S|0x10000", "dead")]
    assert log.sql("SELECT comm(10, 5), comm(999, 5), comm(0, 5)").fetchall() == [
        ("hog", "999", "idle")
    ]
    assert log.sql(
        "SELECT duration(999), duration(1230), duration(12345678), duration(5e9)"
    ).fetchall() == [("999 ns", "1.23 µs", "12.3 ms", "5.00 s")]


def test_tables_are_listed_with_units_and_docs(
    capsys: pytest.CaptureFixture[str], small_log: Path
) -> None:
    code, out, _ = ask(capsys, small_log, ".schema")
    assert code == 0
    assert "SCHEDOUT  the running thread left its CPU (40 logged)" in out
    assert any(
        line.split() == ["buffer_size", "UBIGINT", "[bytes]", "one", "CPU's", "ring"]
        for line in out.splitlines()
    )
    assert "task_state(x)" in out
    assert all(len(line) <= 100 for line in out.splitlines())


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FORM SCHEDIN", 'klogger: syntax error at or near "SCHEDIN"\n'
        '  line 1: SELECT * FORM SCHEDIN\n'
            + " " * 24 + "^\n"),
        ("SELECT 1\nFROM SCHEDINN", "klogger: Table with name SCHEDINN does not exist\n"
        "  line 2: FROM SCHEDINN\n"
            + " " * 15 + "^\n  help: did you mean SCHEDIN or SCHEDOUT?\n"),
        ("SELECT pdi FROM SCHEDIN", 'klogger: Referenced column "pdi" not found in FROM clause\n'
            "  line 1: SELECT pdi FROM SCHEDIN\n" + " " * 17 + "^\n  help: did you mean pid?\n"),
        ("SELECT comm FROM SCHEDIN", 'klogger: Referenced column "comm" not found in FROM clause\n'
            "  line 1: SELECT comm FROM SCHEDIN\n" + " " * 17
            + "^\n  help: did you mean comm(pid, time)?\n"),
        (" ;", "klogger: the query is empty\n"
         "  help: 'klogger sql FILE .schema' lists the tables\n"),
        (".scheme", "klogger: there is no command '.scheme'\n  help: did you mean .schema?\n"),
        (".schema SCHEDINN", "klogger: there is no table 'SCHEDINN'\n"
         "  help: did you mean SCHEDIN or SCHEDOUT?\n"),
    ],
)  # fmt: skip
def test_bad_query(
    capsys: pytest.CaptureFixture[str], small_log: Path, query: str, message: str
) -> None:
    assert ask(capsys, small_log, query) == (2, "", message)


def test_parquet_needs_a_file(capsys: pytest.CaptureFixture[str], small_log: Path) -> None:
    code, _, err = ask(capsys, small_log, "SELECT 1", "--format", "parquet")
    assert (code, err.splitlines()[0]) == (2, "klogger: Parquet is not for the terminal")


def test_query_from_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, small_log: Path
) -> None:
    monkeypatch.setattr(
        "sys.stdin", io.StringIO("CREATE TEMP TABLE x AS SELECT 7 AS a; SELECT a FROM x;")
    )
    assert ask(capsys, small_log, "-", "--format", "csv") == (0, "a\n7\n", "")
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 8 AS a"))
    assert ask(capsys, small_log, "--format", "csv") == (0, "a\n8\n", "")


def test_tables_and_one_of_them(capsys: pytest.CaptureFixture[str], small_log: Path) -> None:
    code, out, err = ask(capsys, small_log, ".tables")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()][-6:] == [
        "recording", "gap", "thread_gap", "operation", "span", "cpu_span",
    ]  # fmt: skip
    code, out, err = ask(capsys, small_log, ".schema migrate")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("MIGRATE  ")
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["time", "cpu", "serial"]


CLOSED = "and queries reach only the log"
OPEN = "  help: --allow-files gives them the files that you can read and write\n"


def test_queries_reach_no_files(
    capsys: pytest.CaptureFixture[str], small_log: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.csv"
    own.write_text("a\n7\n")
    read, out = f"FROM '{own}'", tmp_path / "out.csv"
    assert ask(capsys, small_log, read) == (2, "", f"klogger: {own} is a file, {CLOSED}\n{OPEN}")
    assert ask(capsys, small_log, read, "--format", "csv", "--allow-files") == (0, "a\n7\n", "")
    copy = f"COPY (SELECT 1) TO '{out}'"
    for query in (copy, f"PREPARE x AS {copy}", f"EXPLAIN ANALYZE {copy}"):
        expected = f"klogger: COPY reaches files, {CLOSED}\n{OPEN}"
        assert ask(capsys, small_log, query) == (2, "", expected)
    inside = f"COPY (SELECT 1 AS a) TO '{small_log}/SCHEDIN.parquet'"
    assert ask(capsys, small_log, inside)[0] == 2
    assert not out.exists()
    assert ask(capsys, small_log, copy, "--allow-files")[0] == 0
    assert out.read_text().split() == ["1", "1"]


def test_an_answer_goes_where_it_is_to_go(
    capsys: pytest.CaptureFixture[str], small_log: Path, tmp_path: Path
) -> None:
    for form in ("csv", "json", "parquet"):
        out = tmp_path / f"out.{form}"
        for value in ("1", "2"):
            query = f"SELECT {value} AS a"
            assert ask(capsys, small_log, query, "--format", form, "-o", str(out)) == (0, "", "")
        assert duckdb.sql(f"SELECT a FROM '{out}'").fetchall() == [(2,)]
        assert [path.name for path in tmp_path.iterdir()] == [out.name]
        out.unlink()


def test_a_prompt_on_a_terminal(small_log: Path, tmp_path: Path) -> None:
    """Queries of several lines, a command, errors in one line, and a history."""
    events = len(klogger.open(small_log).events)
    main, side = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb", "COLUMNS": "80"}
    command = [sys.executable, "-m", "klogger.cli.sql", str(small_log), "--format", "csv"]
    with subprocess.Popen(
        command, stdin=side, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as shell:
        os.write(main, b"SELECT ';' AS a,\n 7 AS b;\n.schemata\nSELECT pdi\nFROM SCHEDIN;\n.quit\n")
        out, err = shell.communicate(timeout=120)
    assert (shell.returncode, out.decode()) == (0, "a,b\n;,7\n")
    said = err.decode().replace("klogger> ", "").replace("     ... ", "").splitlines()
    assert said == [
        f"{small_log}: {events} tables of events. '.help' says what to type.",
        "klogger: there is no command '.schemata'; did you mean .schema?",
        'klogger: line 1, column 8: Referenced column "pdi" not found in FROM clause;'
        " did you mean pid?",
    ]


def test_a_prompt_has_a_history(small_log: Path, tmp_path: Path) -> None:
    main, side = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"}
    command = [sys.executable, "-m", "klogger.cli.sql", str(small_log), "--format", "csv"]
    with subprocess.Popen(command, stdin=side, stdout=side, stderr=side, env=environment) as shell:
        os.write(main, b"SELECT 7\n AS b;\n.quit\n")
        assert shell.wait(timeout=120) == 0
    assert "b\r\n7\r\n" in os.read(main, 65536).decode()
    history = tmp_path / "klogger" / "sql_history"
    assert history.read_text().splitlines()[-3:] == ["SELECT 7", " AS b;", ".quit"]
    assert history.stat().st_mode & 0o777 == 0o600


def test_interactive_goes_on_after_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, small_log: Path
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT oops;\nSELECT 1\n AS b;\n"))
    code, out, err = ask(capsys, small_log, "--interactive", "--format", "csv")
    assert (code, out) == (0, "b\n1\n")
    assert err.startswith('klogger: Referenced column "oops" was not found')


def test_losses_of_the_events_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    ledger = [{"key": "ring_full", "count": 5, "event": "SCHEDIN", "text": "a larger ring"}]
    log = support.write_log(con, tmp_path / "x.klog-parquet", processes=[], ledger=ledger)
    _, _, err = ask(capsys, log, "SELECT count(*) FROM SCHEDIN")
    assert err == "klogger: warning: 5 events are missing (SCHEDIN): a larger ring\n"
    _, _, err = ask(capsys, log, "SELECT count(*) FROM MIGRATE")
    assert err == ""


def test_many_rows_are_cut_with_a_word(capsys: pytest.CaptureFixture[str], small_log: Path) -> None:
    _, out, _ = ask(capsys, small_log, "SELECT * FROM range(1001)")
    assert "only the first 1,000 rows are shown" in out
    _, out, _ = ask(capsys, small_log, "SELECT * FROM range(1000)")
    assert "only" not in out


def test_text_of_a_log_cannot_act_on_the_terminal(
    capsys: pytest.CaptureFixture[str], small_log: Path
) -> None:
    _, out, _ = ask(capsys, small_log, "SELECT '\x1b[31m[bold]x' AS a")
    assert "\x1b" not in out
    assert "[31m[bold]x" in out


def test_json_loses_no_column_and_no_digit(
    capsys: pytest.CaptureFixture[str], small_log: Path
) -> None:
    query = (
        "SELECT 1 AS a, 2 AS a, 3 AS a_1, 'nan'::DOUBLE AS n, ['-inf'::DOUBLE] AS l,"
        " 12345678901234567890.12::DECIMAL(38, 2) AS d, 0.25::DECIMAL(38, 2) AS e,"
        " 170141183460469231731687303715884105727::HUGEINT AS h, to_timestamp(0) AS t"
    )
    code, out, _ = ask(capsys, small_log, query, "--format", "json")
    assert code == 0
    (row,) = json.loads(out, parse_constant=pytest.fail)
    assert row == {
        "a": 1, "a_2": 2, "a_1": 3, "n": None, "l": [None], "d": "12345678901234567890.12",
        "e": 0.25, "h": 170141183460469231731687303715884105727, "t": "1970-01-01 00:00:00+00:00",
    }  # fmt: skip


def test_a_csv_says_that_it_has_formulas(
    capsys: pytest.CaptureFixture[str], small_log: Path
) -> None:
    query = "SELECT '=1+2' AS a, '@x' AS b, -1 AS c, '1=1' AS d"
    code, out, err = ask(capsys, small_log, query, "--format", "csv")
    assert (code, out) == (0, "a,b,c,d\n=1+2,@x,-1,1=1\n")
    assert "note: 2 texts begin with =" in err


def test_a_byte_order_mark_is_no_part_of_a_query(
    capsys: pytest.CaptureFixture[str], small_log: Path
) -> None:
    assert ask(capsys, small_log, "\ufeffSELECT 7 AS x", "--format", "csv")[:2] == (0, "x\n7\n")


def test_no_query_writes_files_within_with(
    capsys: pytest.CaptureFixture[str], small_log: Path, tmp_path: Path
) -> None:
    query = f"WITH a AS (COPY (SELECT 1) TO '{small_log}/x.parquet') FROM a"
    code, _, err = ask(capsys, small_log, query)
    assert code == 2
    assert "COPY reaches files" in err
    assert not (small_log / "x.parquet").exists()
