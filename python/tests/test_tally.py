# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What tests/tally.py makes of the results of suites: its sums, and when a run is not good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tally

GOOD = {"passed": 300, "failed": [], "skipped": 2, "disturbed": [], "left": 7}


def failures(count: int) -> list[list[str]]:
    return [[f"t::{n}", f"assert {n}", f"/tmp/{n}"] for n in range(count)]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """The exit code, and what is printed, of cargo's suite and one of pytest, which may be run once
    more.
    """

    def run(
        live: dict[str, Any] | None,
        code: int = 0,
        cargo: str = "",
        again: dict[str, Any] | None = None,
    ) -> tuple[int, str]:
        for name in ("live", "rust"):
            (tmp_path / f"test-{name}.time").write_text("90.4 20.0 10.0\n")
            (tmp_path / f"test-{name}.log").write_text(cargo if name == "rust" else "")
        for name, results in (("live", live), ("live-again", again)):
            (tmp_path / f"test-{name}.json").unlink(missing_ok=True)
            if results is not None:
                (tmp_path / f"test-{name}.json").write_text(json.dumps({**GOOD, **results}))
        return tally.main([str(tmp_path), "rust=0", f"live={code}"]), capsys.readouterr().out

    return run


def test_sums(run: Any) -> None:
    code, text = run({}, cargo="test result: ok. 5 passed; 0 failed; 1 ignored;\n" * 2)
    assert code == 0
    assert " ".join(text.splitlines()[-3].split()) == "total 310 0 4 0 0 7 180 60"


def test_suites_that_run_beside_each_other(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run({})
    assert tally.main([str(tmp_path), "elapsed=95", "rust=0", "live=0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    total = next(line for line in lines if line.startswith("  total"))
    assert total.split()[-2:] == ["95", "60"]


@pytest.mark.parametrize(
    ("live", "code", "said"),
    [
        ({"failed": failures(1)}, 1, "failed: 1\n  t::0\n    assert 0\n    in /tmp/0\n"),
        (None, 124, "failed: 1\n  the suite itself\n    exit code 124\n"),
        (
            {"disturbed": [["t::a", "disturbed: x"]] * 10},
            0,
            "disturbed: 10 of 310 tests (3.2%; at most 3%): too many",
        ),
        ({"passed": 0}, 0, "run again: 0 of 0 tests"),
    ],
)
def test_a_run_that_is_not_good(
    run: Any, live: dict[str, Any] | None, code: int, said: str
) -> None:
    found, text = run(live, code)
    assert found == 1
    assert said in text


SECOND = {"passed": 0, "skipped": 0, "left": 0}


@pytest.mark.parametrize(
    ("passed", "count", "code"), [(20, 3, 0), (20, 4, 1), (700, 7, 0), (700, 8, 1)]
)
def test_so_many_may_pass_when_they_run_alone(run: Any, passed: int, count: int, code: int) -> None:
    live = {"passed": passed, "failed": failures(count)}
    found, text = run(live, 1, again={**SECOND, "passed": count})
    assert found == code
    assert f"run again: {count} of {passed + count} tests" in text
    assert ("too many" in text) == bool(code)
    assert "  t::0\n    assert 0\n    in /tmp/0\n" in text
    assert "failed:" not in text


def test_what_fails_again_has_failed(run: Any) -> None:
    again = {**SECOND, "passed": 1, "failed": failures(1)}
    code, text = run({"failed": failures(2)}, 1, again=again)
    assert code == 1
    assert "failed: 1\n  t::0\n" in text and "run again: 1 of 302 tests" in text


def test_what_has_no_verdict_alone_has_none(run: Any) -> None:
    again = {**SECOND, "disturbed": [["t::0", "disturbed: x"]]}
    code, text = run({"failed": failures(1)}, 1, again=again)
    assert code == 0
    assert "run again: 0 of 301 tests" in text and "  t::0: disturbed: x" in text


def test_a_second_try_that_ran_nothing_changes_nothing(run: Any) -> None:
    code, text = run({"failed": failures(1)}, 1, again=SECOND)
    assert code == 1 and "failed: 1\n  t::0\n" in text


def test_which_are_run_once_more(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for count, said in ((2, "t::0\nt::1\n"), (21, "")):
        run({"failed": failures(count)}, 1)
        assert tally.main(["--failed", str(tmp_path), "live"]) == 0
        assert capsys.readouterr().out == said


def test_a_rust_test_that_failed(run: Any) -> None:
    code, text = run(
        {}, cargo="test a::b ... FAILED\ntest result: FAILED. 5 passed; 1 failed; 0 ignored;\n"
    )
    assert code == 1
    assert "failed: 1\n  a::b\n" in text
