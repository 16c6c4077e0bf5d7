# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger why` on small logs: its words, its options, and what it refuses."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from klogger import smalllog
from klogger.cli import compare, report
from klogger.why import answer, explain, path_picture, text
from klogger.why.answer import Answer, Line, Walk
from klogger.why.bins import GROUPS, RAN, Bin
from klogger.why.choice import Choice
from klogger_lab.cli import why

SCHEMA = Path(__file__).resolve().parents[2] / "schemata/waits/waits.klogger"
US = 1000
# A command that asks a child, which asks a timer. Times in µs.
EVENTS = """
    10 PROCESS_EXEC pid=20 old_pid=20 filename=/bin/parent
    10 BACK pid=20 prev=0
    20 PROCESS_FORK parent=20 ppid=20 pid=21 tgid=21 comm=child
    30 BLOCKED pid=20 next=21 call=61 state=1
    30 BACK pid=21 prev=20
    40 BLOCKED pid=21 next=0 call=35 state=1
    940 WOKEN pid=21 waker=0 source=1
    950 BACK pid=21 prev=0
    960 WOKEN pid=20 waker=21 call=231
    970 PROCESS_EXIT pid=21
    980 BLOCKED pid=21 next=20 call=231 state=128
    980 BACK pid=20 prev=21
    1000 CALLED pid=20 took=970 call=61
    1000 MARK number=7 text=half
    1090 PROCESS_EXIT pid=20
    1100 BLOCKED pid=20 next=0 call=231 state=128
    1110 BACK pid=22 prev=0
    1190 UNRETURNED pid=22 so_far=40 call=0
"""


def number(word: str) -> int | str:
    return int(word) if word.lstrip("-").isdigit() else word


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    con = duckdb.connect()
    events = smalllog.events_of(str(SCHEMA))
    smalllog.create_tables(con, events)
    columns = {
        table: [name for (name,) in con.execute(
            f"SELECT column_name FROM duckdb_columns() WHERE table_name = '{table}'"
            " ORDER BY column_index").fetchall()]
        for table in {line.split()[1] for line in EVENTS.strip().splitlines()}
    }  # fmt: skip
    for serial, line in enumerate(EVENTS.strip().splitlines()):
        time, table, *pairs = line.split()
        row: dict[str, int | str] = {"time": int(time) * US, "cpu": 0, "serial": serial}
        row |= {name: number(value) for name, _, value in (pair.partition("=") for pair in pairs)}
        for name in {"took", "so_far"} & row.keys():
            row[name] = int(row[name]) * US
        values = [row.get(name, 0) for name in columns[table]]
        con.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
    processes = [(20, "parent", 0, None), (21, "child\x1b[2J", 20 * US, None)]
    out = tmp_path_factory.mktemp("why") / "log"
    return smalllog.write_log(con, out, schema=str(SCHEMA), processes=processes, end=1200 * US)


def asked(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = why.main([*map(str, words)])
    return code, *capsys.readouterr()


def test_a_wait_is_followed(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = asked(capsys, log, "--thread", 20, "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert sum(one["ns"] for one in found["bins"]) == found["elapsed_ns"] == 1090 * US
    assert sum(one["ns"] for one in found["followed"]) == found["elapsed_ns"]
    (chain, *_) = found["because"]
    assert [(step["kind"], step["ns"]) for step in chain] == [
        ("child", 930 * US), ("timer", 900 * US)
    ]  # fmt: skip
    assert chain[1]["longest"] == {
        "ns": 900 * US, "from_ns": 40 * US, "to_ns": 940 * US, "thread": 21
    }  # fmt: skip


def test_the_answer_fits_and_does_not_act_on_a_terminal(
    log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = asked(capsys, log, "--thread", 20)
    assert code == 0
    assert "parent[20]: 1.09 ms elapsed" in out
    words = " ".join(out.split())
    assert "Of these, child" in words and "waited 900 µs for timer" in words
    assert "\x1b" not in out
    lines = [line for line in out.splitlines() if "klogger cat" not in line]
    assert max(map(len, lines)) <= 80


def test_between_marks(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = asked(capsys, log, "--between", "half", "9")
    assert (code, err) == (
        2, "klogger: the log has no mark '9'\n  help: it has: 7 half\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is neither a command nor a log"),
        (["LOG", "--", "true"], "give a log, or what is to be recorded, not both"),
        (["LOG", "--program", "none"], "no thread of the log is called 'none'"),
        (["--", "no such command"], "cannot run 'no such command'"),
        (["--for", "long", "--", "true"], "--for 'long' is no time"),
        (["LOG", "--operation", "wait"], "'wait' is no operation"),
        (["LOG", "--operation", "BLOCKED..NONE"], "the log has no event 'NONE'"),
        (["LOG", "--operation", "BACK..BLOCKED", "--by", "x"], "have no field 'x'"),
        (["LOG", "--operation", "WOKEN..PROCESS_FORK"], "the log has no WOKEN with a"),
        (["LOG", "--operation", "BACK..BLOCKED", "--thread", "9"], "no thread of the log is"),
        (["LOG", "--slowest", "1%"], "--slowest and --by are of operations"),
    ],
)
def test_what_is_refused(
    log: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    given = [str(log) if word == "LOG" else word for word in words]
    code, out, err = asked(capsys, *given)
    assert (code, out) == (2, "")
    assert said in err
    assert "help: " in err or "--for" in said or "--slowest" in err


@pytest.mark.parametrize("word", ["0", "0%", "101%", "-1", "x", "nan%", "inf"])
def test_what_is_no_part(word: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="neither a share like 1% nor"):
        why.part(word)


def operations_of(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    code, out, _ = asked(capsys, *words, "--format", "json")
    found: dict[str, Any] = json.loads(out)
    assert code == 0
    assert sum(one["ns"] for one in found["bins"]) == found["elapsed_ns"]
    assert sum(one["ns"] for one in found["followed"]) == found["elapsed_ns"]
    return found


def test_operations_are_told_apart_by_a_field(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = operations_of(capsys, log, "--operation", "BACK..BLOCKED", "--by", "prev")
    # Three stays on a CPU that end with a wait, or for good: 20, 10 and 120 µs of the parent, and
    # 30 of the child.
    assert found["elapsed_ns"] == (20 + 10 + 120 + 30) * US
    kinds = {one["value"].rpartition("[")[2]: (one["ns"], one["times"], one["ran"])
             for one in found["operations"]["kinds"]}  # fmt: skip
    assert kinds == {"0]": (50 * US, 2, 50 * US), "20]": (10 * US, 1, 10 * US),
                     "21]": (120 * US, 1, 120 * US)}  # fmt: skip


def test_from_one_event_to_the_next_of_its_kind(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = operations_of(capsys, log, "--operation", "back..back", "--thread", 20)
    assert (found["operations"]["times"], found["elapsed_ns"]) == (1, 970 * US)
    assert [note for note in found["notes"] if "began and did not end" in note]


SLICE = {"name": "away", "on": "thread", "by": []}


def with_preamble(log: Path, tmp_path: Path, events: object) -> Path:
    copy = tmp_path / "log"
    shutil.copytree(log, copy)
    file = copy / "meta.json"
    meta = json.loads(file.read_text())
    meta["preamble"]["events"] = events
    file.write_text(json.dumps(meta))
    return copy


def test_a_slice_that_the_log_declares(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [{"name": "BLOCKED", "begins": [SLICE]}, {"name": "BACK", "ends": [SLICE]}]
    copy = with_preamble(log, tmp_path, events)
    found = operations_of(capsys, copy, "--operation", "waits:away", "--by", "state")
    # The parent's and the child's; the third that begins has no end.
    assert {one["value"]: one["times"] for one in found["operations"]["kinds"]} == {"S": 2}


@pytest.mark.parametrize(
    "slices",
    [
        None, 7, "away", {"name": "away"}, ["away", None], [{}], [{"name": 7}],
        [SLICE | {"on": 7}], [SLICE | {"by": "pid"}], [SLICE | {"by": [["pid"]]}],
        [SLICE | {"by": ["none"]}], [SLICE | {"by": {"pid": 1}}],
    ],
)  # fmt: skip
def test_a_log_declares_slices_in_its_own_way(
    slices: object, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [{"name": "BLOCKED", "begins": slices}, {"name": "BACK", "ends": slices}, 7, {},
              {"name": ["BACK"], "ends": slices}]  # fmt: skip
    copy = with_preamble(log, tmp_path, events)
    code, _, err = asked(capsys, copy, "--operation", "away")
    assert (code, err) == (2, "klogger: 'away' is no operation\n  help: give EVENT..EVENT, a slice"
                              " of a schema, or the name of a system call\n")  # fmt: skip


def test_a_call_that_does_not_return(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the one that is looked for."""
    found = operations_of(capsys, log, "--operation", "call:read")
    assert (found["operations"]["times"], found["elapsed_ns"]) == (1, 40 * US)
    assert [note for note in found["notes"] if "1 call of read had not returned" in note]


# Another recorder, whose command was listed first; the own recorder's thread, and its command.
OTHERS, MAKER, COMMAND, RECORDER = 40, 51, 52, 50
LISTED = [(10, OTHERS, 39), (20, MAKER, 1), (30, COMMAND, RECORDER)]


@pytest.mark.parametrize(
    ("listed", "executed", "recorder", "preamble", "expected"),
    [
        (LISTED, [OTHERS, COMMAND], [RECORDER, MAKER], {}, COMMAND),
        # It never executed a program.
        (LISTED, [OTHERS], [RECORDER, MAKER], {}, COMMAND),
        # Numbers of a container: who executes a program is no thread of the recorder.
        (LISTED[1:], [COMMAND], [2, 3], {"recorder": {"pid": 2}}, COMMAND),
        (LISTED, [OTHERS, COMMAND], [RECORDER, MAKER], {"workload": []}, None),
        (LISTED[1:2], [], [RECORDER, MAKER], {}, None),
        (LISTED[2:], [COMMAND], [], {"recorder": {"pid": "50 OR true"}}, COMMAND),
        (LISTED[2:], [COMMAND], [], {"recorder": 7}, COMMAND),
        ([], [], [], {}, None),
    ],
)  # fmt: skip
def test_the_command_is_the_child_of_its_own_recorder(
    listed: list[tuple[int, int, int]],
    executed: list[int],
    recorder: list[int],
    preamble: dict[str, object],
    expected: int | None,
) -> None:
    con = duckdb.connect()
    con.execute("CREATE SCHEMA klogger; CREATE TABLE klogger.recorder (pid INTEGER);"
                " CREATE TABLE PROCESS_EXEC (pid INTEGER); CREATE TABLE PROCESS_EXISTS"
                " (time BIGINT, pid INTEGER, ppid INTEGER, comm VARCHAR)")  # fmt: skip
    for table, pids in (("klogger.recorder", recorder), ("PROCESS_EXEC", executed)):
        con.execute(f"INSERT INTO {table} SELECT unnest($1)", [pids])
    for time, pid, parent in listed:
        con.execute("INSERT INTO PROCESS_EXISTS VALUES (?, ?, ?, 'klogger/command')",
                    [time, pid, parent])  # fmt: skip
    log: Any = SimpleNamespace(
        events=dict.fromkeys(["PROCESS_EXISTS", *(["PROCESS_EXEC"] if executed else [])]),
        preamble={"workload": ["x"], "recorder": {"pid": RECORDER}} | preamble,
        rows=lambda query: con.execute(query).fetchall(),
    )
    assert answer.command_of(log) == expected


@pytest.mark.parametrize(("field", "shown"), [("pid", "parent[20]"), ("call", "wait4")])
def test_a_field_of_calls_is_shown_as_cat_shows_it(
    field: str, shown: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = operations_of(capsys, log, "--operation", "wait4", "--by", field)
    assert {one["value"]: one["times"] for one in found["operations"]["kinds"]} == {shown: 1}


def test_the_slowest_operations(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (log, "--operation", "wait4", "--slowest", "1%")
    found = operations_of(capsys, *words)
    (one,) = found["operations"]["slowest"]
    assert (one["thread"], one["from_ns"], one["ns"]) == (20, 30 * US, 970 * US)
    assert (one["waited"], one["most"]["kind"], one["most_ns"]) == (930 * US, "child", 930 * US)
    code, out, _ = asked(capsys, *words)
    assert code == 0
    assert "wait4: 1 operation, 970 µs together" in out
    assert max(len(line) for line in out.splitlines() if "klogger cat" not in line) <= 100


def test_the_page_has_the_critical_path(
    log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "why.html"
    assert asked(capsys, log, "--thread", 20, "--html", file)[0] == 0
    page = file.read_text()
    assert "\x1b" not in page
    assert "1.09 ms elapsed" in page
    # From the parent to the child, and back.
    assert page.count('class="hand"') == 2
    # The axis has labels.
    assert page.count('class="axis"') >= 3
    assert "waited, timer" in page
    # All bins sum up to the elapsed time.
    data = re.search(r'id="flames">(.*?)</script>', page, re.S)
    assert data is not None
    name, whole, children = json.loads(data[1])["bins"]["root"]
    assert (name, whole) == ("parent[20]", 1090 * US)
    assert sum(child[1] for child in children) == whole
    assert ": waited, timer" in data[1]


def test_a_report_begins_with_where_the_time_went(
    log: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    assert report.main([str(log), "--html", str(file)]) == 0
    page = file.read_text()
    names = re.findall(r'<section id="([a-z_-]+)"', page)
    assert names[:3] == ["why-time", "why-because", "why-icicle"]
    data = re.search(r'id="flames">(.*?)</script>', page, re.S)
    assert data is not None
    _, whole, children = json.loads(data[1])["bins"]["root"]
    assert 0 < whole == sum(child[1] for child in children)
    # Where one analysis is asked for, that is all.
    assert report.main([str(log), "--html", str(file), "--analysis", "off_cpu"]) == 0
    assert "why-time" not in file.read_text()


def test_the_path_is_whole(log: Path) -> None:
    walk = answer.of_file(log, lambda _: Choice(threads=[20], pictured=True)).path
    assert walk is not None
    assert walk.edges[-1] - walk.edges[0] == 1090 * US
    sums = [sum(ns for *_, ns in column) for column in walk.columns]
    assert sums == [b - a for a, b in itertools.pairwise(walk.edges)]


def test_a_page_of_many_hand_overs_has_no_arrows() -> None:
    one, other = ("a", 1, Bin(RAN, "user code"), 10), ("b", 2, Bin(RAN, "user code"), 10)
    few = Walk(list(range(0, 110, 10)), [[one], [other]] * 5)
    many = Walk(list(range(0, 5010, 10)), [[one], [other]] * 250)
    assert path_picture.picture(few).count('class="hand"') == 9
    drawn = path_picture.picture(many)
    assert 'class="hand"' not in drawn
    assert "499 hand-overs" in drawn


def an_answer(seed: int) -> Answer:
    chance = random.Random(seed)
    made = [
        Line(f"program {chance.randrange(3)}", Bin(chance.choice(GROUPS), f"kind {at}"),
             chance.randrange(10**9))
        for at in range(chance.randrange(1, 9))
    ]  # fmt: skip
    return Answer("any", sum(one.ns for one in made), [1], made, made)


@pytest.mark.parametrize("runs", [1, 2, 5])
def test_the_parts_of_a_difference_are_the_whole(runs: int) -> None:
    sides = [[an_answer(side * 100 + n) for n in range(runs)] for side in (1, 2)]
    found = explain.explain(*sides)
    change = sum(part.change for part in found.parts)
    assert change == pytest.approx(found.whole.change, abs=1)
    means = [sum(one.elapsed for one in side) / runs for side in sides]
    assert found.whole.change == pytest.approx(means[1] - means[0], abs=1)
    assert all((part.low is None) == (runs < explain.RUNS_MIN) for part in found.parts)
    assert max(len(line) for line, _ in explain.lines(found, 80)) <= 80


def test_a_log_beside_itself_has_no_difference(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare.main(["--explain", str(log), str(log), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["whole"]["change_ns"] == 0
    assert {part["change_ns"] for part in found["parts"]} == {0}


def test_explain_goes_alone(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(["--explain", str(log), str(log), "--fail-on", "5%"]) == 2
    assert "--explain is without" in capsys.readouterr().err


def test_shares_of_nothing() -> None:
    empty = Answer("any", 0, [1], [], [])
    assert "any: 0 ns elapsed" in [line for line, _ in text.lines(empty, "", 80)]
