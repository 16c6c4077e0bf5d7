# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Frames of a small log. The recorder is a double, which has troubles, and ends."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import klogger
from klogger.failure import Failure
from klogger_lab.top.source import Plan, Taken
from klogger_lab.top.window import FAILURES, Window

CUT = "cut"


class Double:
    """In place of `Source`: each window is the same log. `troubles` come first."""

    troubles: list[Exception | str]

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.troubles, self.number, self.code, self.going = [], 0, None, True
        self.recorder: Any = self
        self.process: Any = self
        self.ended = False

    def __enter__(self) -> Double:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True

    def poll(self) -> int | None:
        return None if self.going else 0

    def runs(self) -> bool:
        return self.going

    def command_code(self) -> int | None:
        return self.code

    def cpu_seconds(self) -> float:
        return 0.0

    def notes(self) -> list[str]:
        return []

    def why_ended(self) -> str:
        return "why"

    def take(self) -> Taken:
        self.number += 1
        trouble = self.troubles.pop(0) if self.troubles else None
        if isinstance(trouble, Exception):
            raise trouble
        log = self.folder / f"window-{self.number}.klog"
        log.write_text(trouble or "whole")
        return Taken(log, 7, 1.0, short=False)


@pytest.fixture
def window(small_log: Path, monkeypatch: pytest.MonkeyPatch) -> Window:
    """As if its logs were exported."""
    real = klogger.open

    def opened(path: Path, **options: bool) -> klogger.Log:
        if path.read_text() == CUT:
            raise Failure("this is no log")
        tables = shutil.copytree(small_log, f"{path}-parquet")
        return real(tables, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(klogger, "open", opened)
    return Window(Plan(("-a",)), 0.01, Double)  # type: ignore[arg-type]


def test_troubles_with_one_frame_do_not_end_the_view(window: Window) -> None:
    """A disk that is full for a moment, a recorder that is slow to answer."""
    with window:
        source: Any = window.source
        window.choose("quanta")
        good = window.frame()
        assert good.result("quanta") is not None and not good.reason
        source.troubles = [Failure("no answer"), OSError(28, os.strerror(28)), CUT]
        bad = [window.frame() for _ in range(3)]
        assert [one.state for one in bad] == ["running"] * 3 and all(one.reason for one in bad)
        # What was known is still shown, and nothing is left of what was not.
        assert all(one.results == good.results for one in bad)
        assert len(list(source.folder.iterdir())) == 1
        assert not window.frame().reason
        source.troubles = [Failure("no answer")] * FAILURES
        assert [window.frame().state for _ in range(FAILURES)][-1] == "failed"


def test_tables_of_old_frames_are_removed(window: Window) -> None:
    with window:
        for _ in range(4):
            window.frame()
            folder = window.source.folder
            assert len(list(folder.iterdir())) == 1
    assert not folder.exists() and window.source.ended  # type: ignore[attr-defined]


def test_only_the_first_analyses_are_run_until_one_is_chosen(window: Window) -> None:
    window.most = 1
    with window:
        first = window.frame()
        assert [r.analysis for r in first.results] == first.analyses[:1] and len(first.analyses) > 1
        window.choose(first.analyses[1].name)
        assert [r.analysis for r in window.again().results] == [first.analyses[1]]


def test_a_command_that_ends_during_a_pause_is_told_after_it(window: Window) -> None:
    stop = threading.Event()
    with window:
        source: Any = window.source
        frames = window.frames(stop)
        assert next(frames).state == "running"
        window.pause(True)
        # Another analysis of the seconds that stand still.
        window.choose("switches")
        again = next(frames)
        assert [r.analysis.name for r in again.results] == ["switches"] and source.number == 1
        source.code = 3
        window.pause(False)
        last = next(frames)
        assert last.state == "ended" and last.reason.endswith("exit code 3")
        window.choose("quanta")
        assert next(frames).state == "ended" and source.number == 2
        stop.set()
        assert list(frames) == []


def test_a_folder_of_a_window_that_was_never_entered_is_removed() -> None:
    begun = Window(Plan(("-a",)), 1.0, Double)  # type: ignore[arg-type]
    begun.begin()
    folder = begun.source.folder
    assert folder.exists()
    del begun
    assert not folder.exists()
