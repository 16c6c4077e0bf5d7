# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the keys of `klogger top` do, on the screen of `screens`."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from screens import PATIENCE, Fake, drive, frame, result, screen_of, table_of, until
from textual.pilot import Pilot

import klogger
from klogger import executor
from klogger_lab.top.panels import Events, Help
from klogger_lab.top.rows import Order
from klogger_lab.top.screen import Top
from klogger_lab.top.window import Frame


def test_rows_are_sorted_and_filtered_by_keys() -> None:
    async def use(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.shown))
        await pilot.press("s", "s")
        assert app.orders["switches"] == Order("times", True)
        assert [row[0] for row in table_of(app)] == ["pong", "ping"]
        await pilot.press("S")
        assert [row[0] for row in table_of(app)] == ["ping", "pong"]
        await pilot.press("slash", *"PO", "enter")
        assert [row[0] for row in table_of(app)] == ["pong"]
        await pilot.press("escape")
        assert len(table_of(app)) == 2

    drive(Fake([frame()]), use)


def test_an_analysis_is_chosen_by_arrow_and_by_number() -> None:
    fake = Fake([frame(results=[result("one"), result("two"), result("three")])])

    async def use(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: fake.chosen == "one")
        await pilot.press("right")
        await until(pilot, lambda: fake.chosen == "two")
        await pilot.press("left", "left")
        await until(pilot, lambda: fake.chosen == "three")
        await pilot.press("1")
        await until(pilot, lambda: fake.chosen == "one")

    drive(fake, use)


def test_a_pause_is_kept_and_the_row_leads_to_its_events() -> None:
    fake = Fake([frame()])

    async def use(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.shown))
        await pilot.press("space")
        assert app.paused and ("pause", True) in fake.calls
        assert "paused" in "\n".join(screen_of(app))
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, Events))
        assert ("behind", ["pong", 20, 4999]) in fake.calls
        await until(pilot, lambda: bool(table_of(app)))
        assert table_of(app)[0][:3] == ["1.500000", "0", "SCHEDIN"]
        assert "7 events, the newest 1: program = 'x'" in "\n".join(screen_of(app))
        await pilot.press("escape", "question_mark")
        await until(pilot, lambda: isinstance(app.screen, Help))

    drive(fake, use)


def test_the_picture_is_drawn_in_characters(small_log: Path) -> None:
    with klogger.open(small_log) as log, executor.Session(log) as session:
        found = session.run(next(a for a in session.analyses if a.name == "quanta"))

    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.shown))
        await pilot.press("v")
        picture = app.query_one("#figure")
        await until(pilot, lambda: picture.display)
        assert "100%" in "\n".join(screen_of(app)) and "│" in "\n".join(screen_of(app))

    drive(Fake([frame(results=[found])]), look)


class Later(Fake):
    """Its second frame comes when it is asked for."""

    def __init__(self, first: Frame, second: Frame) -> None:
        super().__init__([first])
        self.second, self.go = second, threading.Event()

    def frames(self, stop: threading.Event) -> Iterator[Frame]:
        yield self.given[0]
        # A test that fails does not say it.
        while not self.go.wait(0.05) and not stop.is_set():
            pass
        yield self.second
        stop.wait(PATIENCE)


def test_a_pause_does_not_hide_another_analysis_nor_the_end() -> None:
    ended = frame(2, [result("one"), result("two")], state="ended", reason="it has ended")
    fake = Later(frame(1, [result("one")], analyses=ended.analyses), ended)

    async def use(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.shown))
        await pilot.press("space", "right")
        await until(pilot, lambda: app.shown is None)
        fake.go.set()
        await until(pilot, lambda: bool(app.shown))
        assert "it has ended" in "\n".join(screen_of(app))

    drive(fake, use)


def test_a_pause_before_the_first_frame_does_not_keep_it_away() -> None:
    class Slow(Later):
        def frames(self, stop: threading.Event) -> Iterator[Frame]:
            while not self.go.wait(0.05) and not stop.is_set():
                pass
            yield self.given[0]
            stop.wait(PATIENCE)

    fake = Slow(frame(), frame())

    async def run() -> None:
        app = Top(fake, "scheduler: ./prog")  # type: ignore[arg-type]
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("space", "s", "S", "v", "v", "enter", "2", "right", "slash", "escape")
            assert not app.paused and ("pause", True) not in fake.calls
            fake.go.set()
            await until(pilot, lambda: bool(app.shown))
        assert app.work is not None
        app.stopping.set()
        app.work.join(PATIENCE)

    asyncio.run(run())


def test_keys_do_nothing_below_a_panel() -> None:
    fake = Later(frame(1, [result("one"), result("two")]), frame(2, [result("one")]))

    async def use(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.shown))
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(app.screen, Help))
        # A frame that comes meanwhile is drawn below it.
        fake.go.set()
        await until(pilot, lambda: app.frame is fake.second)
        await pilot.press("space", "s", "S", "slash", "v", "2", "right")
        assert isinstance(app.screen, Help) and not app.paused and not app.drawn
        assert not app.orders and fake.chosen == "one"
        await pilot.resize_terminal(40, 10)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, Help))
        await until(pilot, lambda: app.focused is app.table)
        assert table_of(app) and all(len(line) == 40 for line in screen_of(app))

    drive(fake, use)


def test_the_table_has_the_keys_again_after_the_picture() -> None:
    async def use(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.shown))
        await pilot.press("v", "v", "down", "enter")
        await until(pilot, lambda: isinstance(app.screen, Events))
        assert app.table.cursor_row == 1

    drive(Fake([frame()]), use)


def test_the_chosen_row_stays_chosen_where_it_is_now() -> None:
    names = tuple(f"program {i}" for i in range(60))
    fake = Later(frame(1, [result(programs=names)]), frame(2, [result(programs=names[::-1])]))

    async def use(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.shown))
        await pilot.press("down", "down")
        fake.go.set()
        await until(pilot, lambda: app.frame is fake.second)
        assert table_of(app)[app.table.cursor_row][0] == "program 2"
        await until(pilot, lambda: any("program 2 " in line for line in screen_of(app)))

    drive(fake, use)


def test_columns_that_do_not_fit_are_reached_by_keys() -> None:
    wide = result(programs=("x" * 70, "y"))

    async def use(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.shown))
        assert "longest" not in "\n".join(screen_of(app))
        await pilot.press(">", ">")
        await until(pilot, lambda: "longest" in "\n".join(screen_of(app)))
        # Not only until the next frame.
        app.draw()
        await pilot.pause()
        assert "longest" in "\n".join(screen_of(app))
        await pilot.press("shift+left", "shift+left")
        await until(pilot, lambda: "xxx" in "\n".join(screen_of(app)))

    drive(Fake([frame(results=[wide])]), use)


def test_a_frame_that_comes_at_the_end_is_not_drawn() -> None:
    """Nobody waits for it: neither the one that made it nor the screen."""
    fake = Later(frame(), frame(2, [result("other")]))

    async def use(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.shown))
        # As `exit` does.
        app.stopping.set()
        fake.go.set()
        await until(pilot, fake.ended.is_set)
        assert app.frame is fake.given[0]

    drive(fake, use)


def test_a_terminal_that_takes_no_last_words_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual waits for it without an end; what was started, the guard ends."""
    left: list[int] = []
    monkeypatch.setattr("klogger_lab.top.screen.signal.raise_signal", left.append)
    monkeypatch.setattr("klogger_lab.top.screen.LAST_WORDS", 0.05)

    async def use(app: Top, pilot: Pilot[None]) -> None:
        monkeypatch.setattr(app, "exit", lambda: None)
        await asyncio.to_thread(app.end)
        assert left == [signal.SIGKILL]
        app.gone.set()
        await asyncio.to_thread(app.end)
        assert left == [signal.SIGKILL]

    drive(Fake([frame()]), use)
