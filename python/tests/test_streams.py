# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Standard outputs that are full, closed, or of another character set; names that are no text."""

from __future__ import annotations

import decimal
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from klogger import units

SQL = [sys.executable, "-m", "klogger.cli.sql"]


def run(*words: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, SQL), *map(os.fsencode, words)], stdin=subprocess.DEVNULL, text=True,
        errors="surrogateescape", check=False, **{"stderr": subprocess.PIPE, **options},
    )  # type: ignore[call-overload, no-any-return] # fmt: skip


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_full_output_is_one_message(small_log: Path, form: str) -> None:
    with open("/dev/full", "wb") as full:
        done = run(small_log, "SELECT 1", "--format", form, stdout=full)
    assert done.returncode == 2
    assert done.stderr == (
        "klogger: cannot write to the standard output: No space left on device\n"
    )


@pytest.mark.parametrize("closed", [1, 2])
def test_a_closed_output_is_no_traceback(small_log: Path, closed: int) -> None:
    words = [*SQL, str(small_log), "SELECT no_such_column"]
    script = f'exec "$@" {closed}>&-'
    done = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    assert ("no_such_column" in done.stderr) == (closed == 1)


def test_characters_that_a_locale_does_not_have_are_numbers(small_log: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    for query in ("SELECT 'µ日' AS x", "SELECT µ日"):
        done = run(small_log, query, stdout=subprocess.PIPE, env=environment)
        assert "\\xb5\\u65e5" in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_a_name_that_is_no_text(small_log: Path, tmp_path: Path) -> None:
    named = tmp_path / os.fsdecode(b"a\xff")
    named.symlink_to(small_log)
    for form in ("csv", "json", "parquet"):
        out = tmp_path / os.fsdecode(b"out\xff." + form.encode())
        done = run(named, "SELECT count(*) AS n FROM process", "--format", form, "-o", out)
        assert (done.returncode, done.stderr) == (0, "")
        assert out.stat().st_size > 0
    done = run(named, os.fsdecode(b"SELECT \xff"))
    assert (done.returncode, done.stderr) == (2, "klogger: the query is not UTF-8 text\n")
    assert not units.is_utf8(str(named))


def test_names_of_columns_do_not_act_on_a_terminal(small_log: Path) -> None:
    ours, theirs = pty.openpty()
    query = 'SELECT 1 AS "evil\x1b]0;owned\x07\x9b"'
    words = [*SQL, str(small_log), query, "--format", "csv"]
    subprocess.run(words, stdout=theirs, stdin=subprocess.DEVNULL, check=True)
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert "evil" in shown
    assert [c for c in shown if not c.isprintable() and c not in "\r\n"] == []


def test_only_sql_has_decimals_as_digits() -> None:
    long = decimal.Decimal("0.12345678901234567890123")
    assert units.plain([long]) == [float(long)]
    assert units.plain([long], digits=True) == [str(long)]
    for digits in (False, True):
        assert units.plain([decimal.Decimal("0.5"), decimal.Decimal(7)], digits=digits) == [0.5, 7]
        assert units.plain(decimal.Decimal("NaN"), digits=digits) is None
