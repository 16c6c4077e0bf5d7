# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How a recorder is waited for, what becomes of its messages, and that it is stopped. It is a
double, which says what the real one says (docs/messages.md).
"""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import pytest

from klogger import program
from klogger.failure import Failure
from klogger_lab.recorder import Recorder

STARTED = '{"message":"started","log":"/x.klog","pid":1,"command_pid":null}'
ERROR = '{"message":"error","text":"no such event X","help":"there are: Y"}'


def double(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    script = folder / "klogger"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setenv("KLOGGER", str(script))
    return folder / "messages"


def test_it_is_waited_for_until_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f"echo \"$@\" >{tmp_path}/words; echo '{STARTED}' >&2; exec sleep 100"
    errors = double(tmp_path, monkeypatch, body)
    with Recorder(["-a", "-o", "x.klog"], errors, command=["true", 1]) as recorder:
        recorder.wait_started()
        assert recorder.process.poll() is None
        recorder.check()
    assert recorder.process.returncode is not None
    words = (tmp_path / "words").read_text()
    assert words == "record -q --messages json -a -o x.klog -- true 1\n"


def test_its_error_becomes_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = double(tmp_path, monkeypatch, f"echo noise >&2; echo '{ERROR}' >&2; exit 2")
    with (
        Recorder([], errors) as recorder,
        pytest.raises(Failure, match="no such event X") as found,
    ):
        recorder.wait_started()
    assert found.value.help == "there are: Y"
    assert recorder.said.others == ["noise"]
    with pytest.raises(Failure, match="no such event"):
        recorder.check()


def test_without_an_error_the_command_has_the_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = double(tmp_path, monkeypatch, f"echo '{STARTED}' >&2; echo 'cc: no input' >&2; exit 1")
    with Recorder([], errors) as recorder:
        recorder.wait_started()
        assert recorder.process.wait(60) == 1
        assert recorder.failure().message == "cc: no input"


def test_half_a_line_is_left_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The double writes the other half when it is told to."""
    body = f"printf '%s' '{STARTED[:20]}' >&2; read -r _; echo '{STARTED[20:]}' >&2; read -r _"
    errors = double(tmp_path, monkeypatch, body)
    with Recorder([], errors, stdin=subprocess.PIPE) as recorder:
        assert recorder.process.stdin is not None
        with pytest.raises(Failure, match="was not ready after 0 s"):
            recorder.wait_started(0.2)
        assert recorder.said.messages == recorder.said.others == []
        recorder.process.stdin.write(b"go on\n")
        recorder.process.stdin.flush()
        recorder.wait_started()
        recorder.process.stdin.close()


def test_the_waiting_ends_when_it_is_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = double(tmp_path, monkeypatch, "exec sleep 100")
    ending = threading.Event()
    ending.set()
    with Recorder([], errors) as recorder:
        recorder.wait_started(60, ending)
        assert not recorder.said.of("started") and recorder.process.poll() is None


def test_one_that_does_not_listen_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klogger_lab.recorder.LAST_WORDS", 0.1)
    monkeypatch.setattr("klogger_lab.recorder.AGAIN", 0.1)
    body = f"trap '' INT TERM; echo '{STARTED}' >&2; while :; do sleep 0.05; done"
    errors = double(tmp_path, monkeypatch, body)
    with Recorder([], errors) as recorder:
        recorder.wait_started()
    assert recorder.process.wait(60) == -9


def test_errors_of_a_schema_have_their_place() -> None:
    one = {"message": "error", "text": "not declared", "help": None, "file": "x.klogger", "line": 7}
    found = program.said(json.dumps(one) + '\nnot JSON\n{"no":"message"}\n{broken\n')
    assert str(found.failure("")) == "x.klogger:7: not declared"
    assert found.others == ["not JSON", '{"no":"message"}', "{broken"]


def test_what_fails_without_a_message_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double(tmp_path, monkeypatch, "exit 9")
    with pytest.raises(Failure, match="'klogger show' failed with exit code 9"):
        program.answer("show", "scheduler")
    double(tmp_path, monkeypatch, "echo no json")
    with pytest.raises(Failure, match="'klogger show' gave no JSON"):
        program.answer("show", "scheduler")
