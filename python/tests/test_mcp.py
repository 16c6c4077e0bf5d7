# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger mcp`, by the official SDK's own client over stdio."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import support
import test_hostile_log
from agents import LIMIT, Agent, is_harmless, parameters
from simulated_log import write
from simulated_recording import play

import klogger
from klogger.cli import verify
from klogger.failure import Failure
from klogger_lab.cli import mcp
from klogger_lab.mcp import allowed, pages, schemata
from klogger_lab.mcp.tools import TOOLS

LOGS = support.ROOT / "tests" / "logs"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory, small_log: Path) -> Iterator[Agent]:
    """In a folder with several logs, without a configuration."""
    folder = tmp_path_factory.mktemp("agent")
    for name in ("v4.klog", "stacks.klog"):
        shutil.copy(LOGS / name, folder)
    shutil.copytree(small_log, folder / "small.klog-parquet")
    write(play(7), folder / "waits.klog")
    (folder / "cut.klog").write_bytes((LOGS / "v4.klog").read_bytes()[:9000])
    test_hostile_log.log(folder / "hostile.klog")
    with Agent(folder) as connected:
        yield connected


def rows_of(agent: Agent, log: str, query: str) -> list[Any]:
    return [
        row
        for page in agent.pages("sql", log=log, query=query)
        for one in page["claims"]
        for row in one["value"]["rows"]
    ]


def verified(agent: Agent, text: str) -> int:
    """What `klogger verify` says of an answer."""
    file = agent.folder / "answer.json"
    file.write_text(text)
    return verify.main([str(file)])


# --- tools ---


def test_tools_describe_themselves(agent: Agent) -> None:
    listed = {tool.name: tool for tool in agent.tools()}
    assert set(listed) == set(TOOLS)
    for tool in listed.values():
        assert tool.description and len(tool.description) < 600
        assert tool.input_schema["additionalProperties"] is False
        assert set(tool.input_schema["required"]) <= set(tool.input_schema["properties"])
        assert tool.annotations.read_only_hint is (tool.name != "record")


def test_schemata_are_listed_with_their_questions(agent: Agent) -> None:
    found = [one for page in agent.pages("list_schemata") for one in page["schemata"]]
    assert [one["name"] for one in found] == list(schemata.names())
    (waits,) = [one for one in found if one["name"] == "waits"]
    assert waits["question"] == "where the elapsed time of threads goes"
    assert all(one["question"] and "works" in one and one["cost"] for one in found)


@pytest.mark.full("3 s: the kernel is asked for each probe")
def test_a_schema_is_described(agent: Agent) -> None:
    found = list(agent.pages("describe_schema", schema="syscalls"))
    assert len(found) > 1 and type(found[0]["works"]) is bool
    events = {part["event"] for page in found for part in page["parts"] if "event" in part}
    assert events == {event["name"] for event in support.shown("syscalls")["events"]}
    # It is known from now on.
    listed = [one for page in agent.pages("list_schemata") for one in page["schemata"]]
    (same,) = [one for one in listed if one["name"] == "syscalls"]
    assert same["works"] == found[0]["works"]
    assert "syscalls" in agent.refused("describe_schema", schema="sycalls")["help"]


def test_rows_come_in_pages(agent: Agent) -> None:
    query = "SELECT i, repeat('y', i % 50) AS y FROM range(250) AS t(i) ORDER BY i"
    found = list(agent.pages("sql", log="v4.klog", query=query))
    assert len(found) >= 3
    values = [one["value"] for page in found for one in page["claims"]]
    rows = [row for value in values for row in value["rows"]]
    assert rows == [[i, "y" * (i % 50)] for i in range(250)]
    assert all(value["total"] == 250 for value in values)
    # A page is nearly full.
    assert all(len(json.dumps(page)) > LIMIT // 2 for page in found[:-1])


@pytest.mark.full("4 s: two reports")
def test_a_report_begins_with_findings(agent: Agent) -> None:
    log = "small.klog-parquet"
    found = list(agent.pages("report", log=log))
    with klogger.open(agent.folder / log) as opened:
        whole = opened.report()
    said = [one["value"]["text"] for page in found for one in page["claims"]]
    assert said == whole.findings
    names = [one["analysis"] for page in found for one in page["analyses"]]
    assert names == [answer.name for answer in whole]
    # No analysis before the last finding.
    first = next(n for n, page in enumerate(found) if page["analyses"])
    assert not any(page["claims"] for page in found[first + 1 :])


def test_an_analysis_has_all_its_rows(agent: Agent) -> None:
    log, name = "small.klog-parquet", "quanta"
    found = list(agent.pages("report", log=log, analysis=name))
    tables = [c for page in found for c in page["claims"] if c["by"]["part"] == "table"]
    with klogger.open(agent.folder / log) as opened:
        table = opened.report(name)[name].result.table
    rows = [row for one in tables for row in one["value"]["rows"]]
    assert [len(row) for row in rows] == [len(table.names)] * len(table.rows)
    assert [one["value"]["columns"] for one in tables] == [table.names] * len(tables)


@pytest.mark.full("5 s: the log is read for each page")
def test_where_the_time_went(agent: Agent) -> None:
    found = [
        one for page in agent.pages("why", log="waits.klog", part="bins") for one in page["claims"]
    ]
    elapsed = found[0]["value"]["elapsed_ns"]
    assert sum(one["value"]["ns"] for one in found) == elapsed
    assert "thread" in agent.refused("why", log="waits.klog", threads=[10**6])["error"]
    assert "waits" in agent.refused("why", log="v4.klog")["error"]


def test_events_around_a_time(agent: Agent) -> None:
    one = agent.call("events_around", log="v4.klog", serial=1, cpu=0, before=2, after=3)
    rows = one["claims"][0]["value"]["rows"]
    assert [row[3] for row in rows] == ["TASK", "CALL", "TASK", "PROCESS_FORK", "SCHEDOUT"]
    assert one["claims"][0]["by"]["time_ns"] == 300
    assert "several" in agent.refused("events_around", log="v4.klog", serial=2)["error"]
    assert "no event" in agent.refused("events_around", log="v4.klog", serial=10**6)["error"]
    assert "either" in agent.refused("events_around", log="v4.klog")["error"]
    assert "before" in agent.refused("events_around", log="v4.klog", time_ns=0, before=-1)["error"]


def test_losses_are_the_ledger(agent: Agent) -> None:
    found = agent.call("losses", log="cut.klog")
    keys = {one["value"]["key"]: one["value"]["count"] for one in found["claims"]}
    assert keys["file_cut"] == 19 and "recorder_killed" in keys
    assert found["ledger"]["complete"] is False
    # And each other claim about this log says so.
    (claim,) = agent.call("sql", log="cut.klog", query="FROM SCHEDIN")["claims"]
    assert claim["ledger"] == found["ledger"]


# --- claims ---


def test_each_claim_is_verified(agent: Agent) -> None:
    asked = [
        ("sql", {"log": "v4.klog", "query": "SELECT * FROM happened ORDER BY time, cpu, serial"}),
        ("losses", {"log": "cut.klog"}),
        ("report", {"log": "v4.klog"}),
    ]
    for name, arguments in asked:
        text, _ = agent.ask(name, **arguments)
        assert json.loads(text)["claims"]
        assert verified(agent, text) == 0, text


@pytest.mark.full("30 s: every claim of several answers")
def test_each_claim_of_all_tools_is_verified(agent: Agent) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("why", {"log": "waits.klog"}),
        ("why", {"log": "waits.klog", "part": "threads"}),
        ("report", {"log": "small.klog-parquet", "analysis": "quanta"}),
        ("report", {"log": "small.klog-parquet"}),
        ("report", {"log": "stacks.klog"}),
        ("report", {"log": "hostile.klog"}),
        ("events_around", {"log": "v4.klog", "time_ns": 400}),
        ("losses", {"log": "hostile.klog"}),
        ("sql", {"log": "hostile.klog", "query": "FROM A"}),
    ]
    for name, arguments in asked:
        for page in agent.pages(name, **arguments):
            if page["claims"]:
                assert verified(agent, json.dumps(page)) == 0, (name, arguments)


def test_altered_claims_are_refuted(agent: Agent) -> None:
    page = agent.call("losses", log="v4.klog")
    page["claims"][0]["value"]["count"] += 1
    assert verified(agent, json.dumps(page)) == 1


# --- cursors ---

QUERY = "SELECT i FROM range(3000) AS t(i) ORDER BY i"


def test_cursors_that_are_not_of_this_answer(agent: Agent, tmp_path: Path) -> None:
    log = shutil.copy(LOGS / "v3.klog", agent.folder / "changing.klog")
    asked: dict[str, Any] = {"log": "changing.klog", "query": QUERY}
    cursor = agent.call("sql", **asked)["cursor"]
    assert agent.call("sql", **asked, cursor=cursor)["claims"][0]["value"]["rows"][0][0] > 0
    other = {**asked, "query": QUERY.replace("3000", "3001")}
    assert "another request" in agent.refused("sql", **other, cursor=cursor)["error"]
    assert "another request" in agent.refused("losses", log="v4.klog", cursor=cursor)["error"]
    raw = bytearray(base64.urlsafe_b64decode(cursor))
    for at in range(len(raw)):
        changed = bytearray(raw)
        changed[at] ^= 1
        if at % 5 == 0:
            forged = base64.urlsafe_b64encode(changed).decode()
            assert "not of this server" in agent.refused("sql", **asked, cursor=forged)["error"]
    for forged in ("", "x", "ä", "AAAA", cursor[:-4], cursor + "AAAA"):
        assert "not of this server" in agent.refused("sql", **asked, cursor=forged)["error"]
    shutil.copy(LOGS / "v2.klog", log)
    assert "stale" in agent.refused("sql", **asked, cursor=cursor)["error"]


def test_every_change_of_a_cursor_is_seen() -> None:
    cursors, request, state = pages.Cursors(), pages.digest("a"), pages.digest("b")
    cursor = cursors.make(request, state, 5)
    assert cursors.read(cursor, request) == (state, 5)
    raw = base64.urlsafe_b64decode(cursor)
    for bit in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Failure):
            cursors.read(base64.urlsafe_b64encode(changed).decode(), request)
    with pytest.raises(Failure, match="earlier one"):
        pages.Cursors().read(cursor, request)


def test_pages_have_what_fits() -> None:
    cursors, request = pages.Cursors(), pages.digest("x")
    for width in (1, 100, 1000, 3000):
        items = [f"{n:0{width}}" for n in range(50)]
        found, cursor = [], None
        while True:
            read = cursor and cursors.read(cursor, request)
            text = cursors.answer(request, pages.listed({}, "items", items), read)
            assert len(text) <= LIMIT
            page = json.loads(text)
            found += page["items"]
            cursor = page.get("cursor")
            if cursor is None:
                break
        assert found == items
    with pytest.raises(Failure, match="4 kB"):
        cursors.answer(request, pages.listed({}, "items", ["x" * LIMIT]), None)
    with pytest.raises(Failure, match="4 kB"):
        cursors.answer(request, pages.listed({"head": "x" * LIMIT}, "items", []), None)
    for most in range(40):
        assert pages.most(lambda n, most=most: n <= most, 30) == min(most, 30)


def test_wide_rows_are_shortened(agent: Agent) -> None:
    (row,) = rows_of(agent, "v4.klog", "SELECT repeat('\U0001f600', 9999) AS a, range(9999) AS b")
    assert row["bytes"] > 10_000 and len(row["sha256"]) == 64


# --- what is refused ---


def test_logs_of_other_folders_are_refused(agent: Agent, tmp_path: Path) -> None:
    outside = shutil.copy(LOGS / "v4.klog", tmp_path / "outside.klog")
    (agent.folder / "link.klog").symlink_to(outside)
    (agent.folder / "linked").symlink_to(tmp_path)
    (agent.folder / "inner.klog").symlink_to("v4.klog")
    os.mkfifo(agent.folder / "fifo.klog")
    folder = agent.folder / "evil.klog-parquet"
    folder.mkdir()
    (folder / "meta.json").write_text("{}")
    (folder / "A.parquet").symlink_to(outside)
    (agent.folder / "plain").mkdir()
    for path in (
        str(outside), "link.klog", "linked/outside.klog", "../x.klog", "/etc/passwd",
        f"../{agent.folder.name}x/v4.klog", "/proc/self/fd/0", "/proc/self/cwd/../v4.klog",
        "fifo.klog", "evil.klog-parquet", "plain", ".", "", "none.klog", "v4.klog\0", "/dev/null",
    ):  # fmt: skip
        said = agent.refused("losses", log=path)
        assert said["error"], path
    said = agent.refused("losses", log="link.klog")
    assert "not allowed" in said["error"] and f'"{tmp_path}"' in said["help"]
    # Links that stay inside are as good as the log, and a path may go out and come back.
    assert agent.call("losses", log="inner.klog")["claims"]
    assert agent.call("losses", log=f"../{agent.folder.name}/v4.klog")["claims"]


def test_nothing_is_recorded_without_a_configuration(agent: Agent) -> None:
    said = agent.refused("record", schemata=["waits"], command=["true"])
    assert "mcp.toml" in said["error"] and "[record]" in said["help"]
    # What the help says is a configuration that is taken.
    text = said["help"].partition("\n")[2]
    assert allowed.read(Path("x"), allowed.tomllib.loads(text)).record is not None


def test_queries_reach_nothing_else(agent: Agent) -> None:
    """More of them are in test_verify.py: claims have such queries as well."""
    for query in ("SELECT * FROM glob('/*')", "COPY (SELECT 1) TO 'x.csv'", "SET threads = 9"):
        assert agent.refused("sql", log="v4.klog", query=query)["error"], query
    assert not (agent.folder / "x.csv").exists()


# --- what comes in ---


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("sq", {}, "did you mean sql?"), ("sql", {}, "path of a log"),
        ("sql", {"log": 3, "query": "x"}, "path of a log"),
        ("sql", {"log": "v4.klog", "qery": "x"}, "did you mean query?"),
        ("sql", {"log": ["v4.klog"], "query": "x"}, "path of a log"),
        ("record", {"schemata": "waits"}, "names of schemata"),
        ("record", {"schemata": [1]}, "names of schemata"),
        ("events_around", {"log": "v4.klog", "time_ns": 1.5}, "ns since"),
        ("events_around", {"log": "v4.klog", "time_ns": True}, "ns since"),
        ("events_around", {"log": "v4.klog", "time_ns": 2**64}, "ns since"),
        ("why", {"log": "waits.klog", "slowest": 0}, None),
        ("why", {"log": "waits.klog", "part": "x"}, None),
        ("\x1b[2J" * 999, {"\x1b" * 999: "\x1b" * 999}, None),
        ("report", {"log": "v4.klog", "analysis": "\x1b[2J" * 999}, None),
    ],
)  # fmt: skip
def test_calls_that_are_wrong(agent: Agent, name: str, arguments: Any, said: str | None) -> None:
    found = agent.refused(name, **arguments)
    assert said is None or said in found["help"]


def test_lines_that_are_no_requests(tmp_path: Path) -> None:
    """The server goes on after each, and ends with its input."""
    wanted = parameters(tmp_path)
    start = {"protocolVersion": "2025-06-18", "capabilities": {},
             "clientInfo": {"name": "t", "version": "1"}}  # fmt: skip
    lines: list[bytes] = [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"jsonrpc": "2.0"}', b"[" * 5000,
        b'{"jsonrpc": "1.0", "id": 1, "method": "tools/list"}',
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start}).encode(),
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        b'{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": 3}}',
        b'{"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": []}',
        b'{"jsonrpc": "2.0", "id": 4, "method": "no/such"}',
        b'{"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "losses"}}',
    ]  # fmt: skip
    with subprocess.Popen(
        [wanted.command, *wanted.args], cwd=wanted.cwd, env=wanted.env, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as server:  # fmt: skip
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        answers: dict[Any, Any] = {}
        while 5 not in answers:
            said = json.loads(server.stdout.readline())
            answers[said.get("id")] = said
        server.stdin.close()
        assert server.wait(30) == 0
    assert all("error" in answers[number] for number in (2, 4)), answers
    assert answers[5]["result"]["isError"] is True
    assert "serverInfo" in answers[1]["result"]


def test_a_hostile_log_acts_on_nothing(agent: Agent) -> None:
    """All texts of it that come along are harmless, also when they have been decoded."""
    asked = [
        ("losses", {}), ("sql", {"query": "FROM A"}),
        ("events_around", {"time_ns": 0}),
    ]  # fmt: skip
    for name, arguments in asked:
        text, _ = agent.ask(name, log="hostile.klog", **arguments)
        assert is_harmless(json.loads(text)), text
    said = agent.refused("report", log="hostile.klog", analysis="\x1b]0;evil\x07")
    assert is_harmless(said)


def test_bytes_that_are_no_log(agent: Agent) -> None:
    for content in (b"", b"\0" * 4096, b"KLOGGER", (LOGS / "v4.klog").read_bytes()[:300]):
        (agent.folder / "none.klog").write_bytes(content)
        text, is_error = agent.ask("losses", log="none.klog")
        assert is_error or json.loads(text)["ledger"]["complete"] is False, text
    (agent.folder / "none.klog").unlink()


@pytest.mark.full("4 s: a query runs into its limit")
def test_queries_that_never_end_are_given_up(tmp_path: Path) -> None:
    shutil.copy(LOGS / "v4.klog", tmp_path)
    query = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range < b.range"
    config = f'read = ["{tmp_path}"]\nquery_seconds = 3\n'
    with Agent(tmp_path, config) as agent:
        assert "given up" in agent.refused("sql", log="v4.klog", query=query)["error"]
        # And the next one has an answer.
        assert rows_of(agent, "v4.klog", "SELECT 1") == [[1]]


# --- the skill, and without the SDK ---


def test_the_skill_is_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert mcp.main(["--skill"]) == 0
    text = capsys.readouterr().out
    assert text.count("\n") < 80 and max(map(len, text.splitlines())) <= 200
    named = re.findall(r"^- (\w+): (.+)$", text, re.M)
    assert [name for name, _ in named] == list(schemata.names())
    # As their own pages have it.
    for name, question in named:
        title = (support.SCHEMATA / name / "README.md").read_text().splitlines()[1]
        assert title == f"# {name}: {question}"
    assert all(name in text for name in TOOLS if name != "describe_schema")


def test_without_the_sdk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "mcp" else found(name, *a)
    )
    assert mcp.main([]) == 2
    said = capsys.readouterr().err
    assert "pip install 'klogger[mcp]'" in said and said.count("\n") == 2
    # The skill does not need it.
    assert mcp.main(["--skill"]) == 0
