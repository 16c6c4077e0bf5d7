# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Datasets: what is added is found again, as the log has it; once, whole or not at all."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
import support
from recordings import Datasets, log_of

import klogger
from klogger import dataset, executor, expectation, prelude, sources
from klogger.cli import dataset as command
from klogger.cli import report, sql
from klogger.dataset import checks, compact
from klogger.failure import Failure

CASES = sorted(support.SCHEMATA.glob("*/expect/*.expect"))


@pytest.fixture
def one(tmp_path: Path, datasets: Datasets) -> tuple[dataset.Dataset, dataset.Entry, Path]:
    """A dataset with one recording, and its log."""
    into = datasets.copy(tmp_path, ("example",), built=True)
    (entry,) = into.entries()
    return into, entry, tmp_path / "0.klog-parquet"


def path_of(into: dataset.Dataset, entry: dataset.Entry) -> Path:
    return Path(into.where) / entry.name


def answers(path: Path, case: expectation.Expectation) -> Any:
    with klogger.open(path, locked=True) as log, executor.Session(log) as session:
        found = session.find(case.schema, case.analysis)
        assert found is not None
        # Sums of floating-point numbers depend on the order of their parts.
        return rounded(session.run(found).as_json())


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def tables(path: Path) -> dict[str, tuple[object, ...]]:
    """Of all that a log has: columns with their types, and rows."""
    with klogger.open(path, locked=True) as log:
        names = [f'main."{e.name}"' for e in log.events.values()]
        names += [f"klogger.{name}" for name in (*prelude.TABLES, "recording", "gap", "cost")]
        found = {}
        for name in names:
            rows = log.connection.sql(f"SELECT * FROM {name} ORDER BY ALL")
            found[name] = (rows.columns, [str(t) for t in rows.types], rows.fetchall())
        return found


# One log of each schema is enough at once, the smallest; in the night all of them are.
FIRST = [
    min(folder.glob("*.expect"), key=lambda p: (p.stat().st_size, p))
    for folder in sorted({path.parent for path in CASES})
]

# Their events have texts, arrays, and names of places.
GATE = ("scheduler", "extents", "hang", "xfs")
FULL = pytest.mark.full("the same of each schema takes 20 s")


def check_case(path: Path, folder: Path) -> None:
    """A recording has the tables of its log, and answers as it does."""
    case = expectation.read(path)
    log = expectation.make(case, folder / "x.klog-parquet")
    into = dataset.open(folder / "ds", create=True)
    recording = path_of(into, into.add(log).entry)
    assert tables(recording) == tables(log), path
    assert answers(recording, case) == answers(log, case), path


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path.parents[1].name in GATE else FULL) for path in FIRST],
    ids=lambda p: f"{p.parents[1].name}/{p.stem}",
)
def test_a_recording_is_as_its_log(path: Path, tmp_path: Path) -> None:
    check_case(path, tmp_path)


@pytest.mark.nightly("the logs of all expectations")
def test_all_recordings_are_as_their_logs(tmp_path: Path) -> None:
    for number, path in enumerate(CASES):
        check_case(path, tmp_path / str(number))


def test_types_and_values_are_those_of_the_log(tmp_path: Path) -> None:
    """Also of unsigned numbers, which a dataset does not have."""
    con = duckdb.connect()
    support.create_tables(con, support.events_of("traps"))
    most = 2**64 - 1
    for k, number in enumerate([0, 1, 2**63 - 1, 2**63, most]):
        con.execute(f"INSERT INTO FAULT BY NAME SELECT {k} AS time, 0 AS cpu, {number} AS addr")
    log = support.write_log(
        con, tmp_path / "x.klog-parquet", schema="traps", processes=[], end=1000
    )
    into = dataset.open(tmp_path / "ds", create=True)
    entry = into.add(log).entry
    for query in ("SELECT * FROM FAULT ORDER BY time", "DESCRIBE FAULT", "DESCRIBE SYS_IN"):
        with klogger.open(log) as a, klogger.open(path_of(into, entry)) as b:
            assert a.rows(query) == b.rows(query)
    file = Path(into.where) / entry.events["FAULT"].path
    stored = duckdb.sql(f"SELECT addr, host, log, wall_ns FROM '{file}'")
    assert [str(t) for t in stored.types[:1]] == ["BIGINT"]
    found = stored.fetchall()
    assert [row[0] for row in found] == [0, 1, 2**63 - 1, -(2**63), -1]
    assert {row[1:3] for row in found} == {("example", entry.log)}
    assert [row[3] - 1_700_000_000 * 10**9 for row in found] == [0, 1, 2, 3, 4]
    kinds = duckdb.sql(
        f"SELECT DISTINCT column_type FROM (DESCRIBE FROM '{into.where}/**/*.parquet')"
    )
    assert not [kind for (kind,) in kinds.fetchall() if kind.startswith("U")]


def test_the_same_log_twice_is_once(one: tuple[dataset.Dataset, dataset.Entry, Path]) -> None:
    into, entry, log = one
    again = into.add(log)
    assert (again.new, again.entry.log) == (False, entry.log)
    assert [e.log for e in into.entries()] == [entry.log]


def test_a_log_that_has_changed_is_refused(
    one: tuple[dataset.Dataset, dataset.Entry, Path],
) -> None:
    into, entry, log = one
    file = log / "SCHEDIN.parquet"
    duckdb.sql(f"COPY (FROM '{file}' LIMIT 7) TO '{file}.new' (FORMAT parquet)")
    os.replace(f"{file}.new", file)
    events = log / "event.parquet"
    changed = "* REPLACE (CASE name WHEN 'SCHEDIN' THEN 7 ELSE logged END AS logged)"
    duckdb.sql(f"COPY (SELECT {changed} FROM '{events}') TO '{events}.new' (FORMAT parquet)")
    os.replace(f"{events}.new", events)
    with pytest.raises(Failure, match="42 events, and now 29: it was cut or continued"):
        into.add(log)
    into.remove(entry)
    assert into.add(log).new


def test_labels_are_given_once(one: tuple[dataset.Dataset, dataset.Entry, Path]) -> None:
    into, _, log = one
    with pytest.raises(Failure, match="other labels: build=0"):
        into.add(log, {"build": "2"})


def test_what_is_removed_leaves_nothing(
    one: tuple[dataset.Dataset, dataset.Entry, Path],
) -> None:
    into, entry, _ = one
    into.remove(entry)
    assert into.entries() == []
    assert list(into.store.files()) == [dataset.MANIFEST]


@pytest.mark.full("takes more than 3 s")
def test_compacting_changes_no_answer(tmp_path: Path) -> None:
    into = dataset.open(tmp_path / "ds", create=True)
    entries = [into.add(log_of(tmp_path, n, "ab"[n % 2])).entry for n in range(4)]
    before = {e.log: answer_of(into, e) for e in entries}
    done = compact.compact(into)
    assert done.before == 2 * done.packs
    assert {e.log: answer_of(into, e) for e in into.entries()} == before
    into.remove(entries[0])
    assert compact.compact(into).packs > 0
    assert compact.compact(into).packs == 0
    assert {e.log: answer_of(into, e) for e in into.entries()} == {
        log: rows for log, rows in before.items() if log != entries[0].log
    }
    found = checks.check(into)
    assert (found.damage, found.stray) == ([], [])
    # A user's own SQL sees no row of what was removed.
    everything = f"read_parquet('{into.where}/events/**/*.parquet', union_by_name = true)"
    rows = duckdb.sql(f"SELECT DISTINCT log FROM {everything}").fetchall()
    assert {log for (log,) in rows} == {e.log for e in entries[1:]}


def answer_of(into: dataset.Dataset, entry: dataset.Entry) -> list[object]:
    with into.opened(entry) as log:
        return log.rows("SELECT * FROM SCHEDIN UNION ALL BY NAME FROM SCHEDOUT ORDER BY ALL")


def adding(where: Path, logs: list[Path]) -> None:
    into = dataset.open(where)
    for log in logs:
        into.add(log)


@pytest.mark.full("5 s: two processes that add logs")
def test_two_writers_at_once(tmp_path: Path) -> None:
    """Each adds half of the logs, and both add some that are the same."""
    logs = [log_of(tmp_path, n) for n in range(5)]
    dataset.open(tmp_path / "ds", create=True)
    context = multiprocessing.get_context("spawn")
    halves = [logs[:3], logs[2:]]
    writers = [context.Process(target=adding, args=(tmp_path / "ds", half)) for half in halves]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    into = dataset.open(tmp_path / "ds")
    assert len(into.entries()) == 5
    found = checks.check(into)
    assert (found.damage, found.stray) == ([], [])


@pytest.mark.full("5 s: processes that are killed")
def test_a_killed_writer_leaves_nothing_half_seen(tmp_path: Path) -> None:
    """However far it had come."""
    logs = [log_of(tmp_path, n) for n in range(4)]
    into = dataset.open(tmp_path / "ds", create=True)
    context = multiprocessing.get_context("spawn")
    for number in range(2):
        writer = context.Process(target=adding, args=(tmp_path / "ds", logs))
        writer.start()
        end = time.monotonic() + 60
        while len(into.entries()) < 2 * number + 1 and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        for entry in into.entries():
            assert len(answer_of(into, entry)) == 40
        assert checks.check(into).damage == []
    adding(tmp_path / "ds", logs)
    compact.compact(into)
    assert checks.check(into).stray == []
    assert [len(answer_of(into, entry)) for entry in into.entries()] == [40] * 4


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """As on a full disk: one message, and no part of the recording."""
    log, where = log_of(tmp_path), tmp_path / "ds"
    dataset.open(where, create=True)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))

    words = [sys.executable, "-m", "klogger.cli.dataset", "add", str(where), str(log)]
    done = subprocess.run(words, preexec_fn=limit, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    (said,) = done.stderr.splitlines()
    assert "File too large" in said and "{" not in said
    found = dataset.open(where)
    assert found.entries() == [] and list(found.store.files()) == ["dataset.json"]
    assert found.add(log).new


def test_what_a_killed_writer_left_is_swept(
    one: tuple[dataset.Dataset, dataset.Entry, Path],
) -> None:
    into, entry, _ = one
    (Path(into.where) / entry.name).unlink()
    assert len(checks.check(into).stray) > 5
    assert compact.compact(into).stray == len([*entry.files()])
    assert list(into.store.files()) == [dataset.MANIFEST]


def test_check_names_what_is_damaged(
    one: tuple[dataset.Dataset, dataset.Entry, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    into, entry, _ = one
    file = Path(into.where) / entry.events["SCHEDIN"].path
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    (Path(into.where) / entry.events["SCHEDOUT"].path).write_bytes(b"PAR1")
    assert command.main(["check", into.where]) == 1
    said = capsys.readouterr().out
    assert "event=SCHEDIN/host=example" in said and "not what was written" in said
    assert "4 bytes instead of" in said and "2 damaged files" in said


def test_check_says_what_differs(tmp_path: Path) -> None:
    """Two versions of a schema: a column that is new, and one that has grown."""
    old, new = log_of(tmp_path, 1), log_of(tmp_path, 2)
    file = new / "SCHEDIN.parquet"
    wider = "SELECT * REPLACE (pid::BIGINT AS pid), 5 AS added"
    duckdb.sql(f"COPY ({wider} FROM '{file}') TO '{file}.new' (FORMAT parquet)")
    os.replace(f"{file}.new", file)
    meta = json.loads((new / "meta.json").read_text())
    meta["preamble"]["schemas"][0]["text"] = "another"
    meta["preamble"]["clock"]["start_realtime_ns"] = 10**18 * 4 + 5
    (new / "meta.json").write_text(json.dumps(meta))
    into = dataset.open(tmp_path / "ds", create=True)
    for log in (old, new):
        into.add(log)
    found = checks.check(into)
    assert found.remarks[:2] == [
        "schema scheduler: 2 versions, of 1, 1 recordings",
        "scheduler: SCHEDIN: pid is INTEGER in 1 and BIGINT in 1 recordings; added is missing in"
        " 1 of 2 recordings",
    ]
    assert [line.split(" is ")[0] for line in found.remarks[2:4]] == [
        "scheduler: scheduler_quantum: pid", "scheduler: scheduler_wait: pid",
    ]  # fmt: skip
    assert "its clock was not set: it says 2096-10-02" in found.remarks[4]


ODD = ["a b", "ü/%=*?[x]", "..", "'; DROP", "x" * 60]


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("host", ODD)
def test_odd_hosts_and_labels(tmp_path: Path, host: str) -> None:
    log = log_of(tmp_path, host=host)
    into = dataset.open(tmp_path / "d's [1]", create=True)
    entry = into.add(log, {"branch": host}).entry
    assert (entry.value("host"), entry.value("label.branch")) == (host, host)
    with into.opened(entry, locked=True) as opened:
        assert len(opened.rows("FROM SCHEDIN")) == 20
    # As every engine reads it: from the folder's name.
    found = duckdb.sql(
        "SELECT DISTINCT host, recording FROM read_parquet($1, hive_partitioning = true)",
        params=[str(tmp_path / "d's ?1?/events/*/event=SCHEDIN/*/*/*.parquet")],
    )
    assert [(h, str(r)) for h, r in found.fetchall()] == [(host, entry.log)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "{}/nothing"], "not a dataset"),
        (["add", "{}/full", "x.klog"], "is there, is not empty, and is no dataset"),
        (["add", "{}/ds", "{}/nix.klog"], "no such file"),
        (["add", "{}/ds", "x.klog", "--label", "build"], "'build' is not a label"),
        (["add", "{}/ds", "x.klog", "--label", "a'b=1"], "is not a label"),
        (["add", "{}/ds", "x.klog", "--label", "a=\x1b[2J"], "characters that cannot be printed"),
        (["add", "{}/ds"], "needs something to add"),
        (["list", "{}/ds", "more"], "needs only DIR"),
        (["remove", "{}/ds", "abcd1234"], "no recording 'abcd1234'"),
        (["list", "{}/newer"], "a dataset of version 99"),
        (["list", "{}/odd"], "not the manifest of a dataset"),
        (["list", "nix://x"], "klogger: nix://x: "),
    ],
)
def test_what_cannot_be_done(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (
        ("ds", '{"klogger dataset": 1}'), ("newer", '{"klogger dataset": 99}'), ("odd", "[]"),
    ):  # fmt: skip
        (tmp_path / name).mkdir()
        (tmp_path / name / "dataset.json").write_text(text)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("")
    assert command.main([word.format(tmp_path) for word in words]) == 2
    assert said in capsys.readouterr().err


def test_an_entry_of_somebody_else_leads_nowhere(
    one: tuple[dataset.Dataset, dataset.Entry, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    into, entry, _ = one
    text = path_of(into, entry).read_text()
    for old, new in (
        (entry.events["SCHEDIN"].path, "../secret.parquet"),
        (entry.events["SCHEDIN"].path, "/etc/passwd"),
        (str(entry.said["meta"]), "../secret.json"),
        (str(entry.said["meta"]), "/etc/passwd"),
        (text, "[" * 10**5),
        ('"INTEGER"', '"INTEGER; DROP"'),
        (text, "{"),
    ):
        path_of(into, entry).write_text(text.replace(old, new))
        with pytest.raises(Failure, match="not an entry of a dataset"):
            klogger.open(path_of(into, entry))
        assert command.main(["list", into.where]) == 0
        assert "not an entry" in capsys.readouterr().err
        assert command.main(["check", into.where]) == 1


def test_files_of_somebody_else_are_regular(
    one: tuple[dataset.Dataset, dataset.Entry, Path],
) -> None:
    """A pipe would be waited for, and a device has no end."""
    into, entry, tables = one
    places = [
        (tables / "meta.json", tables),
        (Path(into.where) / str(entry.said["meta"]), path_of(into, entry)),
        (Path(into.where) / entry.events["SCHEDIN"].path, path_of(into, entry)),
        (path_of(into, entry), path_of(into, entry)),
    ]
    for file, opened in places:
        kept = file.rename(file.with_name("kept"))
        os.mkfifo(file)
        with pytest.raises(Failure, match=r"regular file|neither"):
            klogger.open(opened)
        file.unlink()
        file.symlink_to("/dev/zero")
        with pytest.raises(Failure, match=r"regular file|neither"):
            klogger.open(opened)
        file.unlink()
        kept.rename(file)
        klogger.open(opened).close()
    path_of(into, entry).unlink()
    path_of(into, entry).symlink_to("/dev/zero")
    assert into.entries() == [] and "regular file" in into.unreadable[entry.log]


def test_files_have_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"12345")
    assert sources.content(file, 5) == b"12345"
    with pytest.raises(sources.Refused, match="larger"):
        sources.content(file, 4)


def test_list_and_add_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [str(log_of(tmp_path, n, f"host{n}")) for n in range(2)]
    where = str(tmp_path / "ds")
    assert command.main(["add", where, *logs, "nix.klog", "--label", "build=7"]) == 1
    said = capsys.readouterr()
    assert said.out.count("added ") == 2 and "nix.klog: no such file" in said.err
    assert command.main(["list", where, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(e["host"], e["labels"], e["events_logged"]) for e in found] == [
        ("host0", {"build": "7"}, 42), ("host1", {"build": "7"}, 42),
    ]  # fmt: skip
    assert command.main(["list", where]) == 0
    assert "2 recordings, 84 events" in capsys.readouterr().out
    assert command.main(["remove", where, found[0]["log"][:8]]) == 0
    assert [e.host for e in dataset.open(where).entries()] == ["host1"]


@dataclass
class Server:
    """An S3-like store on this machine. What it has outlives it."""

    port: int = 0
    running: Any = None

    def start(self) -> None:
        server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", self.port)
        server.start()
        self.port, self.running = server.get_host_and_port()[1], server

    def stop(self) -> None:
        if self.running:
            self.running.stop()
        self.running = None


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    pytest.importorskip("s3fs")
    found = Server()
    found.start()
    address = f"http://127.0.0.1:{found.port}"
    given = {
        "AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1",
    }  # fmt: skip
    before = dict(os.environ)
    os.environ.update(given)
    import s3fs

    s3fs.S3FileSystem(endpoint_url=address).mkdir("bucket")
    yield found
    os.environ.clear()
    os.environ.update(before)
    found.stop()


@pytest.fixture
def s3(server: Server) -> str:
    if not server.running:
        server.start()
    return "s3://bucket"


def told_of(into: dataset.Dataset, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """A query over a derived table, and a report."""
    query = "SELECT log, count(*) AS n, sum(ns) AS ns FROM scheduler_quantum GROUP BY 1 ORDER BY 1"
    assert sql.main([into.where, query, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert report.main([into.where, "--by", "label.n", "--format", "json"]) == 0
    return {"sql": rows, "report": json.loads(capsys.readouterr().out)["analyses"]}


@pytest.mark.full("10 s: a store that answers late")
def test_a_store_that_is_far_away(
    s3: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S3: everything that a folder can do."""
    into = dataset.open(f"{s3}/runs", create=True)
    logs = [log_of(tmp_path, n) for n in range(2)]
    entries = [into.add(log, {"n": str(n)}).entry for n, log in enumerate(logs)]
    assert not into.add(logs[0]).new
    assert len(dataset.open(f"{s3}/runs").entries()) == 2
    before = [answer_of(into, e) for e in entries]
    assert [len(rows) for rows in before] == [40, 40]
    near = dataset.open(tmp_path / "near", create=True)
    for n, log in enumerate(logs):
        near.add(log, {"n": str(n)})
    wanted = told_of(near, capsys)
    assert len(wanted["sql"]) == 2 and all(wanted.values())
    assert told_of(into, capsys) == wanted
    compact.compact(into)
    assert [answer_of(into, e) for e in into.entries()] == before
    assert told_of(into, capsys) == wanted
    assert checks.check(into).damage == []
    victim = into.entries()[1]
    into.store.write(victim.events["SCHEDIN"].path, b"nothing")
    assert "7 bytes instead of" in checks.check(into).damage[0]
    into.remove(into.entries()[0])
    assert len(into.entries()) == 1


def stopped_after(count: int, call: Any, server: Server) -> Any:
    """The same function; from the call after `count` on, the store is gone."""
    calls = itertools.count()

    def stopped(*args: Any) -> Any:
        if next(calls) == count:
            server.stop()
        return call(*args)

    return stopped


@pytest.mark.full("waits for a store that has stopped")
def test_a_store_that_stops(
    s3: str, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """While a recording is added, and during a report: nothing is half there, and what is missing
    is said.
    """
    where = f"{s3}/stops"
    logs = [log_of(tmp_path, n, f"host{n}") for n in range(3)]
    into = dataset.open(where, create=True)
    kept = [into.add(log).entry.log for log in logs[:2]]
    remote = type(into.store)
    # Its files are there then, and its entry is not.
    with monkeypatch.context() as patched:
        patched.setattr(remote, "write", stopped_after(0, remote.write, server))
        assert command.main(["add", where, str(logs[2])]) == 2
    said = capsys.readouterr().err
    assert where in said and "Could not connect" in said and "Traceback" not in said
    assert command.main(["list", where]) == 2
    assert f"klogger: {where}: Could not connect" in capsys.readouterr().err
    server.start()
    capsys.readouterr()
    assert [e.log for e in dataset.open(where).entries()] == kept
    # The second recording's files cannot be had.
    with monkeypatch.context() as patched:
        patched.setattr(remote, "fetch", stopped_after(12, remote.fetch, server))
        assert report.main([where, "--analysis", "quanta", "--format", "json"]) == 1
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert len(told["recordings"]) == 1 and len(told["left_out"]) == 1
    assert "is left out" in said.err and "Could not connect" in said.err
    server.start()
    assert command.main(["add", where, str(logs[2])]) == 0
    assert checks.check(dataset.open(where)).damage == []


@pytest.mark.full("5 s: eight datasets")
def test_the_clock_of_a_collection_counts(tmp_path: Path) -> None:
    """As `klogger collect` has found it, for the log that it names, and no other."""
    log = log_of(tmp_path)
    meta = json.loads((log / "meta.json").read_text())
    meta["preamble"]["clock"]["start_ns"] = 5000
    (log / "meta.json").write_text(json.dumps(meta))
    start = 1_700_000_000 * 10**9
    monotonic = {"offset_ns": start - 3_000_000, "error_ns": 1500}
    realtime = {"offset_ns": 700, "error_ns": 40}
    cases = [
        ({"log": "another.klog", "monotonic": monotonic}, start, 30),
        ({"log": f"/far/{log.name}", "monotonic": monotonic, "realtime": realtime},
         start - 3_000_000 + 5000, 1500),
        # Its time of day was read with an error of its own, 30.
        ({"log": log.name, "monotonic": None, "realtime": realtime}, start - 700, 70),
        ({"log": log.name, "monotonic": None, "realtime": None}, start, 30),
    ]  # fmt: skip
    for number, (clock, wanted, error) in enumerate(cases):
        (tmp_path / "clock.json").write_text(json.dumps(clock))
        into = dataset.open(tmp_path / f"ds{number}", create=True)
        entry = into.add(log).entry
        assert (entry.said["from_wall_ns"], entry.said["clock_error_ns"]) == (wanted, error)
        assert entry.said["to_wall_ns"] == wanted + 3_400_000
        file = Path(into.where) / entry.events["SCHEDIN"].path
        assert duckdb.sql(f"SELECT min(wall_ns - time) FROM '{file}'").fetchall() == [(wanted,)]
        # From one dataset into another, the clock is kept.
        other = dataset.open(tmp_path / f"other{number}", create=True)
        again = other.add(path_of(into, entry)).entry
        assert (again.said["from_wall_ns"], again.said["clock_error_ns"]) == (wanted, error)
    for text in ("{", "[]", json.dumps({"log": log.name, "monotonic": {"offset_ns": "x"}})):
        (tmp_path / "clock.json").write_text(text)
        with pytest.raises(Failure, match=r"clock\.json: not as 'klogger collect' writes it"):
            dataset.open(tmp_path / "new", create=True).add(log)
