# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Schemata and analyses of the user's own: made, found, checked, and reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest
import support

from klogger import analysis, checking, program, smalllog
from klogger.cli import report

EVENT = "event {} {{ int pid as thread  int n }}\n"
HEAD = """-- title: Sums
-- question: How much?
-- events: WORK
-- picture: bars x=n y=program
-- column program: program
-- column n [count, bar]: how much
"""
TABLE = """
-- table
SELECT comm(pid, time) AS program, sum(n)::BIGINT AS n FROM WORK
GROUP BY program ORDER BY n DESC;
"""


def klogger(folder: Path, *words: str, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [program.find_klogger(), *words],
        cwd=folder,
        env={**os.environ, "XDG_CONFIG_HOME": str(folder / "config"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def make_schema(folder: Path, name: str, event: str = "WORK") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.klogger"
    file.write_text(EVENT.format(event))
    return file


def checked(tmp_path: Path, text: str) -> list[str]:
    """The faults of an analysis beside the schema, without the path of its file."""
    file = make_schema(tmp_path / "mine", "mine")
    (file.parent / "analyses").mkdir()
    path = file.parent / "analyses" / "sums.sql"
    path.write_text(text)
    return [fault.replace(str(path), "sums.sql") for fault in checking.check(path).faults]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("title:", "titel:", "sums.sql:1:4: unknown header key 'titel'\n"
         "  line 1: -- titel: Sums\n             ^^^^^\n  help: did you mean title?"),
        ("[count, bar]", "[cuont]", "sums.sql:6:14: column n: unknown unit 'cuont'; known: bytes,"
         " count, ns, per_s, s, share, spark\n  line 6: -- column n [cuont]: how much\n"
         "                       ^^^^^\n  help: did you mean count?"),
        ("events: WORK", "events: WROK", "sums.sql:3:12: the schema has no event WROK\n"
         "  line 3: -- events: WROK\n                     ^^^^\n  help: did you mean WORK?"),
        ("picture: bars", "picture: barrs", "sums.sql:4:13: unknown kind of picture 'barrs'; known:"
         " cdf, bars, stacked, histogram, timeline, matrix, flame\n"
         "  line 4: -- picture: barrs x=n y=program\n"
         "                      ^^^^^\n  help: did you mean bars?"),
        ("y=program", "y=progam", "sums.sql:4:24: the picture uses column progam, which section"
         " 'table' does not have\n  line 4: -- picture: bars x=n y=progam\n"
         "                                 ^^^^^^\n  help: did you mean program?"),
        ("sum(n)", "sum(m)", "sums.sql, section 'table': Referenced column \"m\" not found in FROM"
         " clause\n  line 9: SELECT comm(pid, time) AS program, sum(m)::BIGINT AS n FROM WORK\n"
         "                                                 ^"),
        ("-- table", "-- tabel", "sums.sql: no section 'table'\n"
         "  help: write a line '-- table' above the query"),
    ],
)  # fmt: skip
def test_a_fault_has_its_place(tmp_path: Path, old: str, new: str, expected: str) -> None:
    text = HEAD + TABLE
    assert old in text
    found = checked(tmp_path, text.replace(old, new, 1))
    assert expected in found
    assert len([f for f in found if "no title" not in f]) == 1


def test_a_good_analysis_has_no_fault(tmp_path: Path) -> None:
    assert checked(tmp_path, HEAD + TABLE) == []


def test_events_of_another_schema(tmp_path: Path) -> None:
    """They need not be those of its own schema: the log may have been recorded with both."""
    text = HEAD.replace("events: WORK", "events: WORK, SCHEDIN") + TABLE
    joined = "FROM WORK JOIN (SELECT pid FROM SCHEDIN) USING (pid)"
    assert checked(tmp_path, text.replace("FROM WORK", joined)) == []


def test_samples_are_checked(tmp_path: Path) -> None:
    text = HEAD + TABLE + "\n-- samples\nSELECT {} AS n, time FROM WORK;\n"
    assert checked(tmp_path / "good", text.format("n")) == []
    (fault,) = checked(tmp_path / "bad", text.format("m"))
    assert fault.startswith("sums.sql, section 'samples': Referenced column \"m\" not found")
    assert "line 13: SELECT m AS n" in fault


def bundled() -> list[Path]:
    """The analyses with what few have: samples, or more than one schema's expectations."""
    files = [path for path in support.SCHEMATA.glob("*/analyses/*.sql") if path.name[0] != "_"]
    several = [re.search("^-- samples$|include: [.][.]", f.read_text(), re.M) for f in files]
    return sorted(file for file, has in zip(files, several, strict=True) if has)


# One with samples, and one that includes what is another schema's.
CHECKED = ("block-latency", "causes-timers")
FULL = pytest.mark.full("the same of each analysis takes 40 s; test_expectations runs them all")


def marked(path: Path) -> Any:
    name = f"{path.parents[1].name}-{path.stem}"
    return pytest.param(path, marks=() if name in CHECKED else FULL, id=name)


@pytest.mark.parametrize("path", [marked(path) for path in bundled()])
def test_bundled_analyses_have_no_fault(path: Path) -> None:
    assert checking.check(path).faults == []


def test_a_failure_of_klogger_does_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_schema(tmp_path / "mine", "mine")
    monkeypatch.setenv("KLOGGER", "/bin/false")
    assert analysis.events_of(file) == frozenset()
    monkeypatch.undo()
    assert analysis.events_of(file) == {"WORK"}


@pytest.mark.parametrize(
    ("event", "more", "fault"),
    [
        ("WORK pid=5 n=3", "table: program n\n  prog 4\n",
         "section 'table', row 1: expected: prog 4; is: prog 3"),
        ("WROK pid=5", "warning:\n", "there is no event 'WROK'; did you mean WORK?"),
        ("WORK pid=me", "warning:\n", "WORK: Could not convert string 'me' to INT32"),
    ],
    ids=["not met", "no such event", "no number"],
)  # fmt: skip
def test_a_fault_of_an_expectation(tmp_path: Path, event: str, more: str, fault: str) -> None:
    folder = tmp_path / "mine" / "expect"
    folder.mkdir(parents=True)
    lines = f"analysis: sums\nlog:\n  process 5 prog\n  1us 0 {event}\n  end 1ms\n"
    (folder / "sums.expect").write_text(lines + more)
    assert checked(tmp_path, HEAD + TABLE) == [f"{folder}/sums.expect: {fault}"]


def a_log(folder: Path, file: Path) -> Path:
    con = duckdb.connect()
    smalllog.create_tables(con, smalllog.events_of(str(file)))
    con.execute("INSERT INTO WORK VALUES (10, 0, 1, 5, 3)")
    processes = [(5, "prog", 0, None)]
    return smalllog.write_log(con, folder, schema=str(file), processes=processes, end=1000)


def test_a_bad_analysis_costs_its_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(tmp_path, HEAD + TABLE) == []
    analyses = tmp_path / "mine" / "analyses"
    (analyses / "header.sql").write_text(HEAD.replace("title", "titel") + TABLE)
    (analyses / "query.sql").write_text(HEAD + TABLE.replace("sum(n)", "sum(m)"))
    (analyses / "words.sql").write_text(HEAD + TABLE.replace("sum(n)::BIGINT", "'many'"))
    (analyses / "bytes.sql").write_bytes(b"-- title: \xff\xfe\n")
    log = a_log(tmp_path / "log", tmp_path / "mine" / "mine.klogger")
    page, pictures = tmp_path / "x.html", tmp_path / "png"
    code = report.main([str(log), "--html", str(page), "--png", str(pictures), "--format", "json"])
    answers = {one["name"]: one for one in json.loads(capsys.readouterr().out)["analyses"]}
    assert code == 2
    assert answers["sums"]["table"] == [{"program": "prog", "n": 3}]
    reasons = {name: one["reason"].split("\n")[0] for name, one in answers.items()}
    assert reasons == {
        "sums": "",
        "header": f"{analyses}/header.sql:1:4: unknown header key 'titel'",
        "query": f"{analyses}/query.sql, section 'table': Referenced column \"m\" not found in FROM"
        " clause",
        "words": f"{analyses}/words.sql:6:11: column n is not a number, but for example 'many'",
        "bytes": f"{analyses}/bytes.sql: byte 10 is not UTF-8 text",
    }
    assert "unknown header key" in page.read_text()
    assert [path.name for path in pictures.iterdir()] == ["sums.png"]


def test_analyses_next_to_the_schema(tmp_path: Path) -> None:
    file = make_schema(tmp_path, "mine")
    (tmp_path / "sums.sql").write_text(HEAD + TABLE)
    (tmp_path / "other.sql").write_text("-- of another database\nSELECT 1;\n")
    schema = {"name": "mine", "file": str(file)}
    assert [one.name for one in analysis.find([schema])] == ["sums"]
    (tmp_path / "analyses").mkdir()
    (tmp_path / "analyses" / "better.sql").write_text(HEAD + TABLE)
    assert [one.name for one in analysis.find([schema])] == ["better"]
    assert analysis.searched([schema]) == f"there are none in {tmp_path}/analyses"


def test_a_schema_without_analyses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Says where they would be."""
    log = a_log(tmp_path / "log", make_schema(tmp_path / "mine", "mine"))
    assert report.main([str(log)]) == 0
    where = f"there are none in {tmp_path}/mine/analyses"
    assert f"no other analyses: {where} (" in " ".join(capsys.readouterr().out.split())
    assert report.main([str(log), "--analysis", "x"]) == 2
    assert (
        capsys.readouterr().err
        == "klogger: no analysis 'x'\n  help: there are: counts, times, pairs\n"
    )


def test_the_order_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the recorder and for reports."""
    places = [tmp_path / "a", tmp_path / "b", tmp_path / "config" / "klogger" / "schemata"]
    for number, names in enumerate((["one"], ["one", "two"], ["one", "two", "three"])):
        for name in names:
            folder = make_schema(places[number] / name, name).parent
            (folder / "analyses").mkdir()
            (folder / "analyses" / "sums.sql").write_text(HEAD + TABLE)
    searched = f"{places[0]}:{places[1]}"
    code, out, _ = klogger(tmp_path, "list", "--format", "json", KLOGGER_SCHEMATA=searched)
    listed = {one["name"]: one["file"] for one in json.loads(out) if one["file"]}
    monkeypatch.setenv("KLOGGER_SCHEMATA", searched)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    wanted = {"one": places[0], "two": places[1], "three": places[2]}
    assert code == 0
    assert listed == {name: str(place / name / f"{name}.klogger") for name, place in wanted.items()}
    for name, place in wanted.items():
        assert analysis.files_of(name, "") == [place / name / "analyses" / "sums.sql"]
        code, out, _ = klogger(tmp_path, "show", name, KLOGGER_SCHEMATA=searched)
        assert (code, f"from {place}/{name}/{name}.klogger" in out) == (0, True)
    code, _, err = klogger(tmp_path, "show", "thre", KLOGGER_SCHEMATA=searched)
    assert (code, err) == (
        2, "klogger: there is no schema 'thre'\n  help: did you mean `three`?\n",
    )  # fmt: skip


def test_bundled_schemata_remain_bundled(tmp_path: Path) -> None:
    """A copy of one, as an installation has it, is the compiled one."""
    code, out, _ = klogger(
        tmp_path, "list", "--format", "json", KLOGGER_SCHEMATA=str(support.SCHEMATA)
    )
    assert code == 0
    assert {one["file"] for one in json.loads(out)} == {None}


def test_a_new_schema_passes_its_check(tmp_path: Path) -> None:
    code, out, err = klogger(tmp_path, "new", "mine")
    assert (code, err) == (0, "")
    assert out == (
        "./mine: a schema with one probe. Next:\n"
        "  klogger check ./mine\n"
        "  klogger record -s ./mine -o mine.klog -- ./mine/workload\n"
        "  klogger report mine.klog\n"
        "Then edit ./mine/mine.klogger; ./mine/README.md says what the files are.\n"
    )
    assert os.access(tmp_path / "mine" / "workload", os.X_OK)
    checked = checking.check(tmp_path / "mine" / "analyses" / "forks.sql")
    assert (checked.faults, checked.expectations) == ([], 1)
    assert klogger(tmp_path, "new", "mine") == (
        2,
        "",
        "klogger: mine exists\n  help: choose another name, or remove it: nothing is overwritten\n",
    )


@pytest.mark.parametrize(
    ("name", "why", "help"),
    [
        ("Mine", "it is not a word of lower-case letters, digits and _",
         "for example: klogger new my_schema"),
        ("scheduler", "a bundled schema has it", "choose another name"),
        ("enum", "it has another meaning in the language", "choose another name"),
    ],
)  # fmt: skip
def test_names_that_cannot_be(tmp_path: Path, name: str, why: str, help: str) -> None:
    expected = f"klogger: '{name}' cannot be the name of a schema: {why}\n  help: {help}\n"
    assert klogger(tmp_path, "new", name) == (2, "", expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("query", "place", "help"),
    [
        ("SELECT pdi FROM SCHEDIN;", (8, 8), "did you mean pid?"),
        ("SELECT 1 AS pid,\n    pdi FROM SCHEDIN;", (9, 5), "did you mean pid?"),
        ("SELECT pid FORM (SELECT 1);", (8, 17), None),
    ],
)
def test_json_has_the_place_of_a_fault_in_sql(
    tmp_path: Path, query: str, place: tuple[int, int], help: str | None
) -> None:
    (tmp_path / "mine.klogger").write_text(
        (support.SCHEMATA / "scheduler/scheduler.klogger")
        .read_text()
        .replace("schema scheduler", "schema mine")
    )
    file = tmp_path / "q.sql"
    file.write_text(
        "-- SPDX-License-Identifier: GPL-2.0-only\n-- title: T\n-- question: Q?\n"
        f"-- events: SCHEDIN\n-- column pid: thread\n\n-- table\n{query}\n"
    )
    code, out, _ = klogger(tmp_path, "check", str(file), "--format", "json")
    (found,) = json.loads(out)
    (fault,) = found["diagnostics"]
    assert (code, found["ok"]) == (2, False)
    assert (fault["line"], fault["column"]) == place
    assert fault["help"] == help
    assert "section" not in fault["message"]


def test_json_has_the_place_of_a_fault_in_a_header(tmp_path: Path) -> None:
    (tmp_path / "mine.klogger").write_text('schema mine "T"\nevent A { int pid }\n')
    file = tmp_path / "q.sql"
    file.write_text(
        "-- title: T\n-- question: Q?\n-- events: B\n-- column pid: P\n\n"
        "-- table\nSELECT pid FROM A;\n"
    )
    _, out, _ = klogger(tmp_path, "check", str(file), "--format", "json")
    (fault,) = json.loads(out)[0]["diagnostics"]
    assert (fault["line"], fault["column"]) == (3, 12)
    assert fault["message"] == "the schema has no event B"


def test_who_declares_an_event_is_found_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_schema(tmp_path / "mine", "mine")
    monkeypatch.setenv("KLOGGER_SCHEMATA", str(tmp_path))
    monkeypatch.setenv("KLOGGER", "/bin/false")
    assert analysis.declaring("work", "other") == "mine"
    assert analysis.declaring("VEC_IN", "causes") == "interrupt"
    # A word in a comment declares nothing.
    (tmp_path / "mine" / "mine.klogger").write_text("/*\nevent WORK\n*/\n// event WORK\n")
    analysis.schema_text.cache_clear()
    assert analysis.declaring("WORK", "other") == "other"
