# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The waterfall of an operation, from a small log with spans of all layers."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
import support

import klogger
from klogger import expectation, waterfall, waterfall_text
from klogger.cli import report
from klogger.failure import Failure

SCHEMA = """// SPDX-License-Identifier: GPL-2.0-only
schema layers "Spans of all layers, as a test wants them"

event PART "a part of somebody's time" {
    int pid as thread  ulong ns in ns  int helper as thread  string layer  string what
    uint device as device  bool waits
}
"""
SPANS = """-- SPDX-License-Identifier: GPL-2.0-only
CREATE TEMP VIEW layers_span AS
SELECT nullif(pid, 0) AS pid, time - ns::BIGINT AS from_ns, time AS to_ns, layer, what, device,
       NULL AS inode, nullif(helper, 0) AS helper, waits
FROM PART;
"""
LOG = """
process 10 writer
process 20 jbd2/vda-8
process 30 other
1us 0 FILE_SYSTEM device=7340033 disk=7340033 type=ext4 name=loop1
2us 0 NAME_CALL inode=5 result=3 took=1us device=7340033 flags=66 call=openat path=/a tid=10
20us 0 SCHEDOUT pid=10 state=2 next=20
20us 0 SCHEDIN pid=20
90us 0 SCHEDOUT pid=20 state=1 next=10
90us 0 SCHEDIN pid=10
40us 1 PART pid=10 ns=20us layer=lock what=rwsem waits=1
85us 1 PART pid=10 ns=45us layer=journal what="wait for commit 7" helper=20 waits=1
80us 1 PART pid=0 ns=20us layer=journal what="commit 7: logging" device=7340033
79us 1 PART pid=0 ns=20us layer=journal what="commit of another" device=1
70us 1 PART pid=20 ns=9us layer=device what="write 4096 B at 8" device=7340033
95us 1 PART pid=30 ns=90us layer=device what="read of another" device=7340033
100us 0 FILE_CALL inode=5 position=-1 took=90us device=7340033 fd=3 call=fsync tid=10
150us 1 STUCK_CALL inode=5 took=30us device=7340033 tid=30 fd=4 call=fsync
end 200us
"""
TEXT = """\
Operation 2: fsync of writer[10], /a, device 7:1, took 90.0 µs, result 0, began
  at 10.0 µs

                                           0 ns      45.0 µs      90.0 µs
                                           ├────────────┼────────────┤
system call fsync                          ███████████████████████████  90.0 µs
lock        rwsem                             ██████                    20.0 µs
journal     wait for commit 7 (jbd2/vda-8)          ██████████████      45.0 µs
            commit 7: logging                             ▒▒▒▒▒▒        20.0 µs
device      write 4096 B at 8 (jbd2/vda-8)                ▒▒▒           9.00 µs
running     writer[10] on CPU 0            ███                     ███  20.0 µs
            jbd2/vda-8[20] on CPU 0           ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒     70.0 µs

█ it waited, or ran   ▒ others, or not known whether it waited
In no span: 25.0 µs, 28% of its time.
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("waterfall")
    file = tmp_path / "layers" / "layers.klogger"
    file.parent.mkdir()
    file.write_text(SCHEMA)
    (file.parent / "spans.sql").write_text(SPANS)
    case = expectation.Expectation(
        tmp_path / "schemata" / "operations" / "case", "operations", "operations",
        others=("scheduler", str(file)), log=LOG.strip().splitlines(),
    )  # fmt: skip
    return expectation.make(case, tmp_path / "x.klog-parquet")


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = report.main([str(word) for word in words])
    return code, *capsys.readouterr()


def test_a_line_for_each_span_in_80_columns(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, log, "--operation", "2")
    assert (code, out) == (0, TEXT)
    assert max(map(len, out.splitlines())) <= 80
    assert said(capsys, log, "--operation", "slowest") == (0, TEXT, "")


def test_several_and_one_that_has_not_returned(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = said(capsys, log, "--operation", "1,3", "--operation", "2")
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines() if line.startswith("Op")] == [
        "Operation 1", "Operation 3", "Operation 2",
    ]  # fmt: skip
    assert "had not returned after 80.0 µs" in out
    assert "▶ not ended with the log" in out


def test_json(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, log, "--operation", "2", "--format", "json")
    (found,) = json.loads(out)["operations"]
    assert (code, found["took"], found["unexplained"], found["path"]) == (0, 90_000, 25_000, "/a")
    assert [line["layer"] for line in found["lines"]] == [
        "system call", "lock", "journal", "journal", "device", "running", "running",
    ]  # fmt: skip
    # The thread ran until 10 us and from 80 us on; a part of that it waited.
    assert found["causes"] == {
        "lock": 20_000, "journal": 45_000, "running": 20_000 - 0, "not running": 5_000,
    }  # fmt: skip
    assert found["lines"][1]["bars"] == [[10_000, 30_000]]


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("4", "there is no operation 4\n  help: there are 3, from 1 on"),
        ("0", "there is no operation 0"),
        ("-1", "'-1' is no operation"),
        ("fast", "'fast' is no operation\n  help: give its number, or 'slowest'"),
        ("9" * 40, "is no operation"),
        ("", "'' is no operation"),
    ],
)
def test_no_such_operation(
    asked: str, message: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, log, f"--operation={asked}")
    assert (code, out) == (2, "")
    assert message in err


def test_a_log_without_operations_says_what_to_record(
    small_log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, small_log, "--operation", "1")
    assert (code, out) == (2, "")
    assert "the log has no operations on files\n  help: record with -s operations" in err


@pytest.mark.full("others of this file are in the gate")
def test_the_page_and_pictures_have_them(log: Path, tmp_path: Path) -> None:
    page, png = tmp_path / "x.html", tmp_path / "png"
    assert report.main([str(log), "--html", str(page), "--png", str(png)]) == 0
    text = page.read_text()
    for number in (1, 2, 3):
        assert f'<section id="operation_{number}">' in text
    assert report.main([str(log), "--html", str(page), "--operation", "2"]) == 0
    text = page.read_text()
    assert '<section id="operation_2">' in text
    assert '<section id="operation_1">' not in text
    assert report.main([str(log), "--operation", "2", "--png", str(png)]) == 0
    assert (png / "operation-2.png").read_bytes().startswith(b"\x89PNG")


def test_many_spans_of_a_layer_have_one_line_for_the_shorter_ones(log: Path) -> None:
    with klogger.open(log, locked=True) as opened:
        found = waterfall.read(opened, 2)
    spans = [
        waterfall.Line("lock", f"lock {n}", ((n * 1000, n * 1000 + n + 1),)) for n in range(20)
    ]
    found.lines = waterfall.in_layers(spans)
    assert [line.what for line in found.lines] == [
        *(f"lock {n}" for n in range(13, 20)), "13 shorter ones",
    ]  # fmt: skip
    assert len(waterfall_text.lines(found, 80)) == 2 + 1 + 2 + 8 + 1 + 2


def test_names_of_the_log_do_not_act_on_a_terminal(log: Path, tmp_path: Path) -> None:
    con = duckdb.connect()
    support.create_tables(con, support.events_of("operations"))
    con.execute(
        "INSERT INTO NAME_CALL BY NAME SELECT 9 AS time, 0 AS cpu, 1 AS serial, 5 AS took,"
        " 0 AS call, 3 AS tid, chr(27) || '[31m' AS path, 0 AS inode, 0 AS result, 0 AS device,"
        " 0 AS flags"
    )
    made = support.write_log(con, tmp_path / "evil", schema="operations", processes=[])
    with klogger.open(made, locked=True) as opened:
        lines = waterfall_text.lines(waterfall.read(opened, 1), 80)
        with pytest.raises(Failure):
            waterfall.read(opened, 2)
    assert "\x1b" not in "".join(lines)
