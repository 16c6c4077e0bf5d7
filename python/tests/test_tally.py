# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What tests/tally.py makes of the results of suites: its sums, and when a run is not good."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tally

GOOD = {"passed": 300, "failed": [], "skipped": 2, "again": [], "disturbed": []}


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """The exit code, and what is printed, of one pytest suite and one of cargo's."""

    def run(live: dict[str, Any] | None, code: int = 0, cargo: str = "") -> tuple[int, str]:
        for name in ("live", "rust"):
            (tmp_path / f"test-{name}.time").write_text("90.4 20.0 10.0\n")
            (tmp_path / f"test-{name}.log").write_text(cargo if name == "rust" else "")
        (tmp_path / "test-live.json").unlink(missing_ok=True)
        if live is not None:
            (tmp_path / "test-live.json").write_text(json.dumps({**GOOD, **live}))
        return tally.main([str(tmp_path), "rust=0", f"live={code}"]), capsys.readouterr().out

    return run


def test_sums(run: Any) -> None:
    code, text = run({}, cargo="test result: ok. 5 passed; 0 failed; 1 ignored;\n" * 2)
    assert code == 0
    assert text.splitlines()[-3].split() == ["total", "310", "0", "4", "0", "0", "180", "60"]


@pytest.mark.parametrize(
    ("live", "code", "said"),
    [
        ({"failed": ["t::a"]}, 1, "failed: t::a"),
        (None, 124, "failed: the suite itself, with exit code 124"),
        ({"again": ["t::a"] * 4}, 0, "run again: 4 of 300 tests (1.3%; at most 1%): too many"),
        (
            {"disturbed": [["t::a", "disturbed: x"]] * 4},
            0,
            "disturbed: 4 of 304 tests (1.3%; at most 1%): too many",
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


@pytest.mark.parametrize("live", [{"again": ["t::a"] * 3}, {"passed": 20, "again": ["t::a"]}])
def test_a_few_may_be_run_again(run: Any, live: dict[str, Any]) -> None:
    code, text = run(live)
    assert code == 0
    assert "  t::a\n" in text


def test_a_rust_test_that_failed(run: Any) -> None:
    code, text = run(
        {}, cargo="test a::b ... FAILED\ntest result: FAILED. 5 passed; 1 failed; 0 ignored;\n"
    )
    assert code == 1
    assert "failed: a::b\n" in text
