# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger report` as its users meet it, on whole, empty, odd and damaged logs."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import duckdb
import pytest
import support

import klogger
from klogger import screen
from klogger.cli import report
from klogger.executor import Result, choose, run_all

PATHS = [
    p
    for p in (support.SCHEMATA / "scheduler" / "analyses").glob("*.sql")
    if not p.name.startswith("_")
]
ANALYSES = len(PATHS)


def run(capsys: pytest.CaptureFixture[str], log: Path, *words: str) -> tuple[int, str, str]:
    code = report.main([str(log), *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def scheduler_log(out: Path, rows: dict[str, list[str]], **more: object) -> Path:
    """A log from SQL values by event."""
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    for event, values in rows.items():
        con.execute(f"INSERT INTO {event} VALUES {', '.join(values)}")
    given = {"processes": [], "end": 10**6, **more}
    return support.write_log(con, out, **given)  # type: ignore[arg-type]


def drawn(path: Path) -> list[str]:
    """The analyses of a log whose answers have pictures."""
    log = klogger.open(path, locked=True)
    results = list(run_all(log, choose(log)))
    return [
        r.analysis.name
        for r in results
        if r.status == "answer" and r.analysis.picture and r.points.rows
    ]


def answers_of(path: Path) -> list[Result]:
    log = klogger.open(path, locked=True)
    return [r for r in run_all(log, choose(log)) if r.status == "answer"]


def test_summary_fits_and_has_no_colours(
    capsys: pytest.CaptureFixture[str], small_log: Path
) -> None:
    code, out, err = run(capsys, small_log, "--all")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert max(len(line) for line in out.splitlines()) <= 100
    # 40 times four events, a migration, KLOGGER_START and KLOGGER_FINISH
    assert "3.40 ms, 163 events of 7 types, none missing" in out
    for name in (
        "quanta",
        "cut_by",
        "cpu_time",
        "wakeup_latency",
        "switches",
        "migrations",
        "timeline",
    ):
        assert f"[{name}]" in out


def test_json_has_all_answers(capsys: pytest.CaptureFixture[str], small_log: Path) -> None:
    code, out, _ = run(capsys, small_log, "--format", "json")
    answers = {a["name"]: a for a in json.loads(out)["analyses"]}
    assert code == 0
    # No process is made in it.
    assert {name for name, a in answers.items() if a["status"] != "answer"} == {"processes"}
    assert answers["quanta"]["columns"]["p50"] == {
        "unit": "ns",
        "doc": "half of the quanta are shorter",
    }
    assert sum(row["quanta"] for row in answers["quanta"]["table"]) == 40


def test_one_analysis(capsys: pytest.CaptureFixture[str], small_log: Path) -> None:
    code, out, _ = run(capsys, small_log, "--analysis", "quanta")
    assert code == 0
    assert "[quanta]" in out and "[timeline]" not in out


def test_without_all_it_is_one_screen(capsys: pytest.CaptureFixture[str], small_log: Path) -> None:
    """The answers behind the findings, the heaviest first; and the names of the others."""
    _, out, _ = run(capsys, small_log)
    shown, _, rest = out.partition("\nOthers: ")
    assert len(shown.splitlines()) <= screen.LINES
    titles = re.findall(r"\[(\w+)\]$", shown, re.MULTILINE)
    answers = [r.analysis.name for r in answers_of(small_log)]
    named = re.findall(r"\w+", rest.partition("scheduler")[2].partition("nothing to show")[0])
    first = json.loads(run(capsys, small_log, "--format", "json")[1])["findings"][0]["analysis"]
    listed = [name for name in answers if name not in named]
    assert 0 < len(listed) < len(answers) and {*named, *listed} == {*answers}
    assert first in listed and {*listed} <= {*titles}
    assert f"'klogger report {small_log} --all'" in " ".join(rest.split())


def test_one_answer_is_shown_however_long_it_is(
    capsys: pytest.CaptureFixture[str], small_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "LINES", 1)
    _, out, _ = run(capsys, small_log)
    assert out.count("?  [") == 1


def test_unknown_analysis(capsys: pytest.CaptureFixture[str], small_log: Path) -> None:
    code, out, err = run(capsys, small_log, "--analysis", "quantas")
    assert (code, out) == (2, "")
    assert err == "klogger: no analysis 'quantas'\n  help: did you mean quanta?\n"


def test_list(capsys: pytest.CaptureFixture[str], small_log: Path) -> None:
    code, out, _ = run(capsys, small_log, "--list")
    assert code == 0
    assert out.splitlines()[0].split()[0] == "quanta"


def test_empty_log(capsys: pytest.CaptureFixture[str], empty_log: Path, tmp_path: Path) -> None:
    code, out, _ = run(capsys, empty_log, "--all")
    assert code == 0
    assert out.count("nothing to show: ") == ANALYSES
    code, out, _ = run(capsys, empty_log)
    names = " ".join(out.split()).partition("nothing to show ")[2].split(", ")
    assert code == 0 and len(names) == ANALYSES and "Effective quanta" not in out
    code, _, _ = run(capsys, empty_log, "--html", str(tmp_path / "x.html"), "--png", str(tmp_path))
    assert code == 0
    assert list(tmp_path.glob("*.png")) == []
    assert "Nothing to show" in (tmp_path / "x.html").read_text()


def test_events_that_were_not_recorded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = scheduler_log(
        tmp_path / "x.klog-parquet", {}, without=("MIGRATE", "LOST", "KLOGGER_FINISH")
    )
    code, out, _ = run(capsys, log, "--analysis", "migrations")
    assert code == 0
    assert "MIGRATE not recorded: use 'klogger record -s scheduler -- COMMAND'" in out


def test_schema_without_analyses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = scheduler_log(
        tmp_path / "x.klog-parquet",
        {},
        meta={"schemas": [{"name": "mine", "file": "mine.klogger"}]},
    )
    con = duckdb.connect()
    con.execute(f"CREATE TABLE e AS SELECT * REPLACE ('mine' AS schema) FROM '{log}/event.parquet'")
    con.execute(f"COPY e TO '{log}/event.parquet'")
    code, out, _ = run(capsys, log, "--all")
    assert code == 0
    assert all(f"[{name}]" in out for name in ("counts", "times", "pairs"))


def test_analyses_beside_the_users_own_schema(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = (
        "-- title: T\n-- question: Q?\n-- events: SCHEDIN\n-- column pid: thread\n\n"
        "-- table\nSELECT pid FROM SCHEDIN;\n"
    )
    file = support.own_analysis(tmp_path, "threads", text)
    rows = {"SCHEDIN": ["(1, 0, 1, 77, 120, 77)"]}
    log = scheduler_log(
        tmp_path / "x.klog-parquet", rows, meta={"schemas": [{"name": "mine", "file": file}]}
    )
    _, out, _ = run(capsys, log, "--format", "json")
    answers = {a["name"]: a for a in json.loads(out)["analyses"] if a["schema"] == "mine"}
    assert {name: a["table"] for name, a in answers.items()} == {"threads": [{"pid": 77}]}


def test_an_analysis_can_reach_no_other_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "mine" / "analyses"
    folder.mkdir(parents=True)
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    head = "-- title: T\n-- question: Q?\n-- events: SCHEDIN\n-- column a: a\n\n-- table\n"
    (folder / "read.sql").write_text(f"{head}SELECT a FROM '{secret}';\n")
    (folder / "write.sql").write_text(f"{head}COPY (SELECT 1 AS a) TO '{tmp_path}/written.csv';\n")
    (folder / "unlock.sql").write_text(f"{head}SET enable_external_access = true;\n")
    file = str(tmp_path / "mine" / "mine.klogger")
    log = scheduler_log(
        tmp_path / "x.klog-parquet", {}, meta={"schemas": [{"name": "mine", "file": file}]}
    )
    code, out, _ = run(capsys, log, "--format", "json")
    assert code == 2
    answers = [a for a in json.loads(out)["analyses"] if a["schema"] == "mine"]
    assert [a["status"] for a in answers] == ["failed"] * 3
    assert not (tmp_path / "written.csv").exists()


def test_odd_names_and_numbers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pid = 2**31 - 1
    rows = {
        "SCHEDIN": [f"(1000, 0, 1, {pid}, 120, 1)", "(5000, 0, 3, 7, 120, 1)"],
        "SCHEDOUT": [f"(5000, 0, 2, {pid}, 120, 0, -4, 0)", "(9000, 0, 4, 7, 120, 65535, 0, 0)"],
    }
    processes = [(pid, "a\ufffd</script><b>\x1b[31m", 0, None), (7, "", 0, None)]
    log = scheduler_log(tmp_path / "x.klog-parquet", rows, processes=processes, cpus=1)
    page = tmp_path / "x.html"
    code, out, _ = run(
        capsys, log, "--format", "text", "--html", str(page), "--png", str(tmp_path / "png")
    )
    assert code == 0
    assert "\x1b" not in out and f"[{pid}]" in out and "thread 7" in out
    assert "<b>" not in page.read_text()
    # The pictures' data, the timeline's data, the program.
    assert page.read_text().count("</script>") == 3


def test_table_that_is_damaged(
    capsys: pytest.CaptureFixture[str], small_log: Path, tmp_path: Path
) -> None:
    log = tmp_path / "x.klog-parquet"
    shutil.copytree(small_log, log)
    (log / "SCHEDIN.parquet").write_bytes(b"PAR1 not really")
    code, out, err = run(capsys, log)
    assert (code, out) == (2, "")
    assert f"help: remove {log}, and it will be made anew" in err


def test_brackets_in_the_path(
    capsys: pytest.CaptureFixture[str], small_log: Path, tmp_path: Path
) -> None:
    log = tmp_path / "a[1]*.klog-parquet"
    shutil.copytree(small_log, log)
    code, out, _ = run(capsys, log, "--analysis", "quanta")
    assert code == 0
    assert "[quanta]" in out


def test_output_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], small_log: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = run(capsys, small_log, "--html", str(tmp_path / "file" / "x.html"))
    assert code == 2
    assert err.startswith(f"klogger: cannot write {tmp_path}/file/x.html: ")


def test_pictures_are_png(small_log: Path, tmp_path: Path) -> None:
    assert report.main([str(small_log), "--png", str(tmp_path)]) == 0
    pictures = sorted(tmp_path.glob("*.png"))
    assert [p.stem for p in pictures] == sorted(drawn(small_log))
    for picture in pictures:
        head = picture.read_bytes()[:24]
        assert head.startswith(b"\x89PNG")
        assert int.from_bytes(head[16:20], "big") > 500


def test_page_needs_no_network(small_log: Path, tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    assert report.main([str(small_log), "--html", str(page)]) == 0
    text = page.read_text()
    assert len(text) < 4_000_000
    without_scripts = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', without_scripts) == []
    assert "<script src" not in text
    # The timeline is drawn in another way.
    assert set(re.findall(r'data-picture="(\w+)"', text)) == set(drawn(small_log)) - {"timeline"}
    assert text.count('id="threads"') == 1


def test_with_files_the_terminal_has_the_findings_and_the_names_of_the_files(
    capsys: pytest.CaptureFixture[str], small_log: Path, tmp_path: Path
) -> None:
    page, pictures = tmp_path / "x.html", tmp_path / "png"
    code, out, _ = run(capsys, small_log, "--html", str(page), "--png", str(pictures))
    assert code == 0
    head, *wrote = out.split("wrote ")
    assert {Path(name.strip()) for name in "".join(wrote).split("\n") if name} == {
        page, *pictures.iterdir(),
    }  # fmt: skip
    _, whole, _ = run(capsys, small_log)
    assert whole.startswith(head.rstrip()) and "[cpu_time]" in head
    assert "What is" not in head and "How long does a program run" not in head


def test_the_terminal_draws_pictures(capsys: pytest.CaptureFixture[str], small_log: Path) -> None:
    _, out, _ = run(capsys, small_log)
    assert "  100% │" in out and "length of an effective quantum" in out


def test_the_list_as_json(capsys: pytest.CaptureFixture[str], small_log: Path) -> None:
    code, out, _ = run(capsys, small_log, "--list", "--format", "json")
    assert code == 0
    assert {(a["name"], a["schema"]) for a in json.loads(out)} >= {("quanta", "scheduler")}
