# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Claims about logs, and `klogger verify`: what is so is verified, and whatever of a claim is
altered is refuted.
"""

from __future__ import annotations

import copy
import io
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import support
from simulated_log import write
from simulated_recording import play

from klogger.claims import asked, claim, evidence
from klogger.claims.asked import Items, Table
from klogger.claims.stated import ROW_MAX, TEXT_MAX, cut, row, size, stated
from klogger.cli import verify
from klogger.failure import Failure
from klogger.log import Log

V4 = support.ROOT / "tests" / "logs" / "v4.klog"
Path_ = tuple[Any, ...]


@pytest.fixture(scope="module")
def v4(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with asked.opened(shutil.copy(V4, tmp_path_factory.mktemp("v4"))) as log:
        yield log


@pytest.fixture(scope="module")
def waits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with asked.opened(write(play(7), tmp_path_factory.mktemp("waits") / "w.klog")) as log:
        yield log


@pytest.fixture(scope="module")
def small(small_log: Path) -> Iterator[Log]:
    with asked.opened(small_log) as log:
        yield log


def claims_by(log: Log, by: dict[str, Any], most: int = 3) -> list[dict[str, Any]]:
    """As they are when they have been written to a file."""
    found = asked.find(log, by)
    if isinstance(found, Table):
        row = min(1, max(len(found.rows) - 1, 0))
        made = [claim.of(log, by, found, row, min(len(found.rows) - row, most))]
    else:
        assert isinstance(found, Items)
        made = [claim.of(log, by, found, n) for n in range(min(len(found.values), most))]
    return claim.claims_in(json.dumps(made))


def leaves(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in parts:
        if isinstance(one, (dict, list)) and one:
            yield from leaves(one, (*at, key))
        else:
            yield (*at, key)


def objects(value: Any, at: Path_ = ()) -> Iterator[Path_]:
    """All that have keys."""
    if isinstance(value, dict):
        yield at
    if isinstance(value, (dict, list)):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in parts:
            yield from objects(one, (*at, key))


def other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value * 1.0000001 + 1e-12
        case str():
            return f"{value}x"
        case None:
            return 0
    return [0]


def at(found: Any, path: Path_) -> Any:
    for key in path:
        found = found[key]
    return found


def altered(one: dict[str, Any]) -> Iterator[tuple[Path_, dict[str, Any]]]:
    """Each field in turn has another value, or is not there; and each is a number of another
    type, which Python takes for equal; and each object has a key more.
    """
    for path in objects(one):
        made = copy.deepcopy(one)
        at(made, path)["root cause"] = "mysqld"
        yield (*path, "root cause", "more"), made
    for path in leaves(one):
        if path == ("file",):
            continue
        for what in ("other", "gone", "type"):
            made = copy.deepcopy(one)
            holder, value = at(made, path[:-1]), at(made, path)
            if what == "gone":
                del holder[path[-1]]
            elif what == "other":
                holder[path[-1]] = other(value)
            elif type(value) is int:
                holder[path[-1]] = float(value)
            else:
                continue
            yield (*path, what), made


def outcome(log: Log, one: dict[str, Any]) -> str:
    try:
        (read,) = claim.claims_in(json.dumps(one))
    except Failure:
        return "not known"
    return "refuted" if claim.check(log, read) else "verified"


def check_altered(log: Log, one: dict[str, Any]) -> None:
    assert claim.check(log, one) == []
    found = {path: outcome(log, made) for path, made in altered(one)}
    verified = [path for path, said in found.items() if said == "verified"]
    assert verified == [], one
    # What it is a claim of must be known, before it can be refuted.
    known = {path[:2] for path, said in found.items() if said == "not known"}
    assert {path[0] for path in known} <= {"claim", "by"}
    assert {path[1] for path in known if path[0] == "by"} <= {"kind"}
    assert len(found) > 10


QUERIES = [
    "SELECT time, cpu, serial, pid FROM SCHEDIN ORDER BY time",
    "SELECT event, count(*) AS n, avg(time) AS t FROM happened GROUP BY event ORDER BY event",
    "SELECT comm FROM PROCESS_EXISTS WHERE 1 = 2",
]


def test_altered_rows_are_refuted(v4: Log) -> None:
    (one,) = claims_by(v4, {"kind": "sql", "query": QUERIES[0]}, most=1)
    assert one["events"]["first"] == [["SCHEDIN", *one["value"]["rows"][0][:3]]]
    check_altered(v4, one)


@pytest.mark.full("10 s: each field of twenty claims")
@pytest.mark.parametrize("query", QUERIES)
def test_altered_queries_are_refuted(v4: Log, query: str) -> None:
    (one,) = claims_by(v4, {"kind": "sql", "query": query}, most=2)
    check_altered(v4, one)


@pytest.mark.full("10 s: each field of twenty claims")
def test_altered_losses_and_events_are_refuted(v4: Log) -> None:
    around = {"kind": "events", "time_ns": 300, "before": 2, "after": 3}
    for one in claims_by(v4, {"kind": "ledger"}) + claims_by(v4, around, most=2):
        check_altered(v4, one)


@pytest.mark.full("15 s: each field of claims of an analysis")
def test_altered_answers_of_analyses_are_refuted(small: Log) -> None:
    for part in ("finding", "table"):
        (one, *_) = claims_by(
            small, {"kind": "analysis", "analysis": "quanta", "part": part}, most=1
        )
        check_altered(small, one)


@pytest.mark.full("30 s: each field of claims of where time went")
@pytest.mark.parametrize("part", ["bins", "followed", "because", "threads"])
def test_altered_bins_are_refuted(waits: Log, part: str) -> None:
    found = claims_by(waits, {"kind": "why", "part": part}, most=1)
    assert found
    for one in found:
        check_altered(waits, one)


def test_each_bin_is_verified(waits: Log) -> None:
    """With the events of its longest stretch of time."""
    found = claims_by(waits, {"kind": "why", "part": "bins"}, most=5)
    assert len(found) == 5
    for one in found[:2]:
        assert claim.check(waits, one) == []
        longest = one["value"]["longest"]
        assert longest["from_ns"] <= one["events"]["from_ns"]
        assert one["events"]["to_ns"] <= longest["to_ns"]


def test_each_finding_is_verified(small: Log) -> None:
    result = next(r for r in asked.report(small) if r.findings)
    by = {"kind": "analysis", "analysis": result.analysis.name, "part": "finding"}
    (one, *_) = claims_by(small, by)
    assert one["value"]["text"] in result.findings
    assert one["events"]["count"] > 3 == len(one["events"]["first"])
    assert claim.check(small, one) == []


def test_rows_that_only_look_like_events(v4: Log) -> None:
    """A query can give any column the name of an event's place: it rests on what it reads."""
    query = "SELECT 'SCHEDIN' AS event, time, 7 AS cpu, serial FROM SCHEDIN"
    (one,) = claims_by(v4, {"kind": "sql", "query": query})
    assert one["events"]["count"] == 3 and one["events"]["first"][0] == ["SCHEDIN", 100, 0, 0]
    assert claim.check(v4, one) == []
    (nothing,) = claims_by(v4, {"kind": "sql", "query": "SELECT 1 AS a"})
    assert nothing["events"] == {"count": 0, "from_ns": None, "to_ns": None, "first": []}


@pytest.mark.parametrize(
    "place",
    [["SCHEDIN", 100, 0, 1], ["SCHEDOUT", 100, 0, 0], ["SCHEDIN", 101, 0, 0],
     ["SCHEDIN", 100, None, 0], ["schedin", 100, 0, 0], ["SCHEDIN", 100.0, 0, 0],
     ["SCHEDIN", True, 0, 0], ["SCHEDIN", 2**70, 0, 0], ["klogger.ledger", 0, 0, 0], "SCHEDIN", []],
)  # fmt: skip
def test_events_that_are_not_there(v4: Log, place: Any) -> None:
    (one,) = claims_by(v4, {"kind": "sql", "query": QUERIES[0]})
    one["events"]["first"][0] = place
    found = {refuted.part for refuted in claim.check(v4, one)}
    assert "events.first[0]" in found


@pytest.mark.parametrize(
    "query",
    ["COPY (SELECT 1) TO '/dev/null'", "SELECT * FROM read_text('/etc/hostname')",
     "SELECT 1; SELECT 2", "SELECT * FROM glob('/*')", "SELECT getenv('HOME')", "INSTALL httpfs",
     "SELECT (", "x" * 2000, "SET memory_limit = '1TB'", "CREATE VIEW v AS SELECT 1",
     "DROP VIEW SCHEDIN", "SET threads = 4", "ATTACH '/tmp/x.db'", "CREATE TABLE t AS SELECT 1",
     "WITH a AS (COPY (SELECT 1) TO '/dev/null') FROM a", "PRAGMA database_list", "\udc80", ""],
)  # fmt: skip
def test_queries_of_claims_only_read(v4: Log, query: str) -> None:
    with pytest.raises(Failure):
        asked.find(v4, {"kind": "sql", "query": query})


def test_long_values_have_their_checksums(v4: Log) -> None:
    """And a claim about them is refuted if it has another one."""
    query = "SELECT repeat('ä', 5000) AS text, range(1000) AS list"
    (one,) = claims_by(v4, {"kind": "sql", "query": query})
    assert size(one) < 2000 and claim.check(v4, one) == []
    one["value"]["rows"][0]["sha256"] = "0" * 64
    assert [r.part for r in claim.check(v4, one)] == ["value.rows[0].sha256"]


def test_values_are_bounded_and_harmless() -> None:
    assert stated("\x1b[31m\u202e") == "\ufffd[31m\ufffd"
    assert stated("x" * (TEXT_MAX - 2)) == "x" * (TEXT_MAX - 2)
    for text in ("x" * 10**5, "\U0001f600" * 10**4, '"\\' * 10**4):
        assert size(stated(text)) < TEXT_MAX and stated(text)["bytes"] == len(text.encode())
    assert size(row([{"a": "x" * 300}] * 100)) < ROW_MAX
    assert size(cut("\x1b" * 1000, 50)) <= 50
    assert stated(float("nan")) is None


@pytest.mark.parametrize(
    "by",
    [
        {"kind": "ledger"}, {"kind": "sql", "query": QUERIES[0]},
        {"kind": "events", "time_ns": 300, "before": 2, "after": 3},
        {"kind": "analysis", "analysis": "quanta", "part": "finding"},
        {"kind": "why", "part": "bins"},
    ],
    ids=lambda by: by["kind"],
)  # fmt: skip
def test_a_question_has_nothing_else(v4: Log, by: dict[str, Any]) -> None:
    """What no answer depends on would be called verified with the rest."""
    for key in ("host", "analysis", "root cause", "row"):
        if key not in by:
            with pytest.raises(Failure, match=f"of the kind '{by['kind']}' has no '{key}'"):
                asked.find(v4, {**by, key: "mysqld"})


def test_text_that_was_added_is_not_called_verified(
    tmp_path: Path, v4: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    (one,) = claims_by(v4, {"kind": "sql", "query": QUERIES[0]}, most=1)
    one["by"]["analysis"] = "root cause is mysqld"
    file = tmp_path / "claim.json"
    file.write_text(json.dumps(one))
    assert verify.main([str(file), str(v4.path)]) == 1
    said = capsys.readouterr().out
    assert "verified" not in said and "has no 'analysis'" in said


def test_a_key_that_stands_twice() -> None:
    """Others may read the first, where this checks the last."""
    text = '{"claim": 1, "by": {"kind": "ledger", "row": 0}, "log": "a", "log": "b"}'
    with pytest.raises(Failure, match="twice"):
        claim.claims_in(text)


def test_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = shutil.copy(V4, tmp_path / "x.klog")
    with asked.opened(log) as opened:
        (good,) = claims_by(opened, {"kind": "sql", "query": QUERIES[0]})
    file = tmp_path / "claim.json"
    file.write_text(json.dumps({"claims": [good, good]}))
    assert verify.main([str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{n}: verified: sql row 1" for n in (1, 2)]
    bad = copy.deepcopy(good)
    bad["value"]["rows"][0][3] = "\x1b[2J"
    file.write_text(json.dumps(bad))
    assert verify.main([str(file), str(log), "--format", "json"]) == 1
    (said,) = json.loads(capsys.readouterr().out)
    assert not said["verified"] and [r["part"] for r in said["refuted"]] == ["value.rows[0][3]"]
    assert verify.main([str(file)]) == 1
    assert "\x1b" not in capsys.readouterr().out
    for text in ("", "[]", "{}", '{"claim": 2}', "[" * 10**5, '{"claim": 1, "by": {}}', "NaN"):
        file.write_text(text)
        assert verify.main([str(file), str(log)]) == 2, text
    file.write_text(json.dumps({**good, "file": str(tmp_path / "none.klog")}))
    assert verify.main([str(file)]) == 2
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(good).encode())))
    assert verify.main(["-", str(log)]) == 0
    assert verify.main([str(tmp_path / "none.json")]) == 2


def test_one_that_cannot_be_checked_hides_no_other(
    tmp_path: Path, v4: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    (good,) = claims_by(v4, {"kind": "sql", "query": QUERIES[0]}, most=1)
    bad = {**good, "ledger": {"complete": True, "lost": {}}}
    lost = {**good, "file": str(tmp_path / "none.klog")}
    file = tmp_path / "claims.json"
    for listed, code, said in (
        ([lost, good, bad], 1, ["not known", "verified", "refuted"]),
        ([bad, lost], 1, ["refuted", "not known"]),
        ([good, lost], 2, ["verified", "not known"]),
    ):
        file.write_text(json.dumps(listed))
        assert verify.main([str(file)]) == code
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(": ")[1] for line in lines if line[0] != " "] == said
        assert any("none.klog: no such file" in line for line in lines)
    assert verify.main([str(file), "--format", "json"]) == 2
    first, second = json.loads(capsys.readouterr().out)
    assert first["verified"] and second["verified"] is None and "no such" in second["error"]


def test_large_answers_are_cut(v4: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are the same again."""
    by = {"kind": "sql", "query": "SELECT i, repeat('x', 1000) AS x FROM range(1000) AS t(i)"}
    monkeypatch.setattr(asked, "BYTES_MAX", 150_000)
    found = asked.find(v4, by)
    assert isinstance(found, Table) and found.total is None
    assert [row[0] for row in found.rows] == list(range(150))
    (one,) = claims_by(v4, by)
    assert claim.check(v4, one) == []
    monkeypatch.undo()
    whole = asked.find(v4, by)
    assert isinstance(whole, Table) and whole.total == len(whole.rows) == 1000


def test_no_more_events_are_looked_for_than_a_claim_has(
    v4: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = claims_by(v4, {"kind": "sql", "query": QUERIES[0]}, most=1)
    one["events"]["first"] *= 1000
    looked: list[Any] = []
    monkeypatch.setattr(evidence, "is_there", lambda _log, place: looked.append(place) or True)
    parts = {refuted.part for refuted in claim.check(v4, one)}
    assert "events.first" in parts and len(looked) < 10


def test_another_log(tmp_path: Path, v4: Log) -> None:
    """Is another, however alike; a copy is the same."""
    (one,) = claims_by(v4, {"kind": "sql", "query": QUERIES[0]})
    with asked.opened(shutil.copy(V4, tmp_path / "copy.klog")) as log:
        assert claim.check(log, one) == []
    with asked.opened(shutil.copy(V4.with_name("v3.klog"), tmp_path / "v3.klog")) as log:
        assert [r.part for r in claim.check(log, one)] == ["log"]


def test_a_log_that_was_cut_refutes_what_was_said_of_the_whole(tmp_path: Path, v4: Log) -> None:
    query = {"kind": "sql", "query": QUERIES[0]}
    (whole,) = claims_by(v4, query)
    (tmp_path / "cut.klog").write_bytes(V4.read_bytes()[:9000])
    with asked.opened(tmp_path / "cut.klog") as log:
        parts = {r.part.split(".")[0] for r in claim.check(log, whole)}
        assert "ledger" in parts or "by" in parts
        (own,) = claims_by(log, query)
        assert own["ledger"]["complete"] is False and "file_cut" in own["ledger"]["lost"]
        assert claim.check(log, own) == []
