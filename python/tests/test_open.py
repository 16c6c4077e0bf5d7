# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From a log to its tables: where the exporter is found, what it is asked, and what its errors
become.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import support

import klogger
from klogger import export
from klogger.cli import report
from klogger.failure import Failure

FAKE = """#!/bin/sh
echo "$@" >> "{record}"
[ "$1 $2 $3" = "export --to parquet" ] || exit 9
[ -n '{fail}' ] && printf '%s\\n' '{fail}' >&2 && exit 2
out="$4-parquet"; [ "$5" = -o ] && out="$6"
mkdir -p "$out" && cp "{tables}"/* "$out"
"""


@pytest.fixture
def fake(tmp_path: Path, small_log: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the klogger program; returns the file in which it records its arguments."""
    return make_fake(tmp_path, small_log, monkeypatch, "")


def make_fake(tmp_path: Path, tables: Path, monkeypatch: pytest.MonkeyPatch, fail: str) -> Path:
    program, record = tmp_path / "bin" / "klogger", tmp_path / "record"
    program.parent.mkdir()
    program.write_text(FAKE.format(record=record, fail=fail, tables=tables))
    program.chmod(0o755)
    monkeypatch.setenv("KLOGGER", str(program))
    return record


def test_tables_beside_the_log(fake: Path, tmp_path: Path) -> None:
    log = tmp_path / "x.klog"
    log.write_text("")
    assert klogger.open(log).sql("SELECT count(*) FROM SCHEDIN").fetchall() == [(40,)]
    assert fake.read_text() == f"export --to parquet {log} --messages json\n"
    assert (tmp_path / "x.klog-parquet" / "meta.json").exists()


def test_tables_elsewhere_if_the_place_cannot_be_written(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "x.klog"
    log.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    klogger.open(log, quiet=False)
    where = export.cache_directory(log)
    assert where.is_relative_to(tmp_path / "cache" / "klogger")
    assert (
        capsys.readouterr().err
        == f"klogger: {tmp_path}: cannot write there; its tables are kept in {where}\n"
    )
    assert not (tmp_path / "x.klog-parquet").exists()


def test_what_the_exporter_says_is_said_once(
    tmp_path: Path,
    small_log: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = '{"message":"error","text":"x.klog: not a log","help":null}'
    make_fake(tmp_path, small_log, monkeypatch, said)
    log = tmp_path / "x.klog"
    log.write_text("")
    assert report.main([str(log)]) == 2
    assert capsys.readouterr().err == "klogger: x.klog: not a log\n"


def test_missing_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert report.main([str(tmp_path / "no.klog")]) == 2
    assert (
        capsys.readouterr().err
        == f"klogger: {tmp_path}/no.klog: no such file\n  help: 'klogger record' makes logs\n"
    )


def test_directory_of_something_else(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert report.main([str(tmp_path)]) == 2
    assert "nor one with the segments of a recording" in capsys.readouterr().err


def test_no_exporter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "x.klog"
    log.write_text("")
    monkeypatch.setenv("KLOGGER", str(tmp_path / "none"))
    assert report.main([str(log)]) == 2
    assert capsys.readouterr().err.endswith("help: set KLOGGER to the klogger program\n")


def test_roles_come_with_the_log(tmp_path: Path) -> None:
    """Also of a log that was recorded before schemata had any."""
    log = shutil.copy(support.ROOT / "tests" / "logs" / "v1.klog", tmp_path / "x.klog")
    with klogger.open(log) as opened:
        assert [e.name for e in opened.with_role("switch_in")] == ["SCHEDIN"]
        assert [e.name for e in opened.with_role("switch_out")] == ["SCHEDOUT"]
        assert opened.with_role("waking") == []


def test_a_query_in_the_place_of_a_log() -> None:
    """Longer than a name of a file can be."""
    with pytest.raises(Failure) as caught:
        klogger.open(f"SELECT {'x, ' * 2000} 1")
    assert caught.value.message.endswith("...: no such file")
    assert len(caught.value.message) < 250
