# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger collect` without any host: clocks, names, messages that are paired, bad input.
tests/live/test_collect.py has hosts.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from klogger.collected import wall
from klogger.failure import Failure
from klogger_lab.cli import collect
from klogger_lab.collect import collection, fetch, merge
from klogger_lab.collect.clocks import DRIFT, Clock, Measured, Span, exchange
from klogger_lab.collect.host import Plan, folder_of

SECOND = 10**9


def test_an_exchange_bounds_the_offset_by_its_round_trip() -> None:
    found = exchange("python3", ["5000", "300"], 1000, 1100)
    assert found and found.monotonic
    assert (found.realtime, found.realtime.middle, found.realtime.error) == (
        Span(3900, 4000), 3950, 50,
    )  # fmt: skip
    assert found.monotonic == Span(700, 800)


def test_a_clock_that_knows_only_seconds() -> None:
    now = 1_800_000_000 * SECOND
    found = exchange("seconds", ["1800000007"], now, now + 1000)
    assert found and found.monotonic is None
    assert found.realtime == Span(7 * SECOND - 1000, 8 * SECOND)
    assert exchange("date", ["17N"], now, now) is None


def measured(at_ns: int, low: int, high: int) -> Measured:
    return Measured(at_ns, "python3", 30, high - low, Span(low, high), Span(-high, -low))


def test_drift_is_a_part_of_the_error() -> None:
    both = Clock([measured(0, 90, 110), measured(SECOND, 190, 210)])
    assert both.realtime(SECOND) == Span(90, 210) and both.monotonic(SECOND) == Span(-210, -90)
    # Of a host that was gone at the end, as much as a clock may drift.
    one = Clock([measured(0, 90, 110)])
    drift = int(10 * SECOND * DRIFT)
    assert one.realtime(10 * SECOND) == Span(90 - drift, 110 + drift)
    assert Clock().realtime(0) is None and Clock().as_json(0)["realtime"] is None


def test_the_beginning_of_a_log_by_our_clock() -> None:
    clock = {"start_ns": 5, "start_realtime_ns": 1000}
    both = {"monotonic": {"offset_ns": 900}, "realtime": {"offset_ns": 70}}
    assert wall(both, clock) == 905
    assert wall({"monotonic": None, "realtime": {"offset_ns": 70}}, clock) == 930
    assert wall({"monotonic": None, "realtime": None}, clock) == 1000


def test_folders_of_hosts() -> None:
    assert folder_of("root@web-1.example") == "root@web-1.example"
    assert folder_of("ssh://a/../b") == "ssh:%2f%2fa%2f..%2fb"
    assert folder_of("..") == "%2e%2e"


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("recording.klog", True),
        ("recording.segments/segment-000001.klog", True),
        ("recording.snapshot-001.klog", True),
        ("../recording.klog", False),
        ("recording.segments/../../x.klog", False),
        ("recording.klog\n", False),
    ],
)
def test_a_host_cannot_name_files_here(name: str, ours: bool) -> None:
    assert bool(fetch.NAMES.fullmatch(name)) == ours


LOGS = Path(__file__).resolve().parents[2] / "tests" / "logs"


def test_logs_are_merged_with_what_is_missing_in_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host, log, offset in (("new", "v4.klog", 10**18), ("old", "stacks.klog", -(10**16))):
        (tmp_path / host).mkdir()
        shutil.copy(LOGS / log, tmp_path / host / "recording.klog")
        known = {"offset_ns": offset, "error_ns": 1500}
        clock = {"host": host, "log": "recording.klog", "monotonic": known}
        (tmp_path / host / "clock.json").write_text(json.dumps(clock))
    assert collect.main(["--merge", str(tmp_path), "--format", "json"]) == 0
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    assert [row["host"] for row in rows] == ["old"] * 3 + ["new"] * 40
    assert [row["wall_ns"] for row in rows] == sorted(row["wall_ns"] for row in rows)
    assert "klogger: new: warning: 5 events were lost" in printed.err
    assert collect.main(["--merge", str(tmp_path)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == (
        "# by the clock of the machine that collected them: new ± 1.50 µs, old ± 1.50 µs"
    )
    assert [line.split()[1] for line in lines] == ["old"] * 3 + ["new"] * 40
    assert " WROTE tid=10 " in lines[0]


HOSTS = [merge.Source("a", Path("a"), 0, 5), merge.Source("b", Path("b"), 0, 7)]


def checked(monkeypatch: pytest.MonkeyPatch, *events: tuple[int, int, str, int]) -> merge.Answer:
    def fake(
        _: Sequence[merge.Source], words: Sequence[str], _note: object
    ) -> Iterator[merge.Event]:
        assert words == ["--format", "json", "--event", "SENT,RECEIVED"]
        for at, host, name, number in sorted(events):
            yield merge.Event(at, host, f'{{"event": "{name}", "id": {number}}}')

    monkeypatch.setattr(merge, "merged", fake)
    return merge.Checker(HOSTS, merge.Rule.parse(" SENT->RECEIVED by id "), print).run()


def test_messages_that_came_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(
        monkeypatch,
        (100, 0, "SENT", 1), (150, 1, "RECEIVED", 1),
        (212, 0, "SENT", 2), (200, 1, "RECEIVED", 2),
        (313, 0, "SENT", 3), (300, 1, "RECEIVED", 3),
        (401, 0, "SENT", 4), (400, 0, "RECEIVED", 4),
        (500, 0, "SENT", 5), (600, 1, "RECEIVED", 6),
    )  # fmt: skip
    assert (found.pairs, found.early, found.beyond, found.open) == (4, 3, 2, 2)
    assert (found.worst_ns, found.first) == (13, "id=3 from a to b")


def test_an_id_that_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [(at, 0, "SENT", 1) for at in (10, 20, 30)]
    events += [(at, 1, "RECEIVED", 1) for at in (25, 26, 40)]
    found = checked(monkeypatch, *events)
    assert (found.pairs, found.early, found.open) == (3, 0, 0)


def test_bad_rules() -> None:
    assert merge.Rule.parse("A -> B by x, y").fields == ("x", "y")
    for text in ("A -> B", "A by x", "A -> B by", "A -> B by x y"):
        with pytest.raises(Failure, match="no rule"):
            merge.Rule.parse(text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "-a"], "no host to record on"),
        (["x"], "what to record is not said"),
        (["x", "x", "--", "-a"], "x: named twice"),
        (["x y", "--", "-a"], "'x y' is no host"),
        (["x", "--", "-ofile", "-a"], "-ofile: the hosts' own"),
        (["x", "--", "--dir=file", "-a"], "--dir=file: the hosts' own"),
        (["x", "--to", "full", "--", "-a"], "full: the folder is not empty"),
        (["--merge", "full"], "no collection"),
        (["--merge", "full", "x"], "takes a folder, and no hosts"),
        (["x", "--check", "A -> B by x", "--", "-a"], "are for --merge"),
    ],
)
def test_bad_input(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    monkeypatch.chdir(tmp_path)
    assert collect.main(words) == 2
    assert message in capsys.readouterr().err


def test_a_host_is_no_option_of_ssh() -> None:
    assert collect.main(["-oProxyCommand=touch x", "--", "-a"]) == 2
    with pytest.raises(SystemExit):
        collect.main(["-oProxyCommand=touch", "--", "-a"])


def test_a_host_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec sleep 1000\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(collection, "PATIENCE", 0.5)
    plan = Plan(("-a",), tmp_path / "home", version="klogger")
    with collection.Collection(["x"], [], plan) as found:
        found.run(lambda: None)
        [host] = found.hosts
        assert host.failure and "not ready after" in host.failure.message
        assert host.session and host.session.poll() is not None
    assert not found.sockets.exists()
