# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The screen of `klogger top` without a recorder, for its tests: it shows frames that are given."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.widgets import DataTable

from klogger.analysis import Analysis, Column
from klogger.executor import Result, Rows
from klogger_lab.top.cost import Cost
from klogger_lab.top.screen import Top
from klogger_lab.top.window import Behind, Frame

HOSTILE = "[bold red]\x1b[2J\x1b]0;owned\x07[/]"
COST = Cost(0.05, 0.02, 0.1, 4.0, stretched=True)
PATIENCE = 180.0


def result(name: str = "switches", programs: tuple[str, ...] = ("ping", "pong")) -> Result:
    columns = {
        "program": Column("program", "", False, "who"),
        "times": Column("times", "count", True, "how often"),
        "longest": Column("longest", "ns", False, "the longest"),
    }
    one = Analysis(name, Path(f"{name}.sql"), "scheduler", name, "How often?", columns=columns)
    table = Rows(list(columns), [[p, 10 * (i + 1), 5000 - i] for i, p in enumerate(programs)])
    return Result(
        one, table=table, points=table, findings=[f"{programs[0]} is first."], weights=[1]
    )


def frame(number: int = 1, results: list[Result] | None = None, **changes: Any) -> Frame:
    results = [result()] if results is None else results
    found = Frame(
        number, 0.0, 10.0, 10.0, 2_000_000, 0, False, COST,
        analyses=[r.analysis for r in results], results=results,
    )  # fmt: skip
    return dataclasses.replace(found, **changes)


class Fake:
    """A window with frames that are given."""

    def __init__(self, frames: list[Frame]) -> None:
        self.given, self.chosen = frames, None
        self.calls: list[tuple[str, Any]] = []
        self.ended = threading.Event()

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()

    def choose(self, name: str | None) -> None:
        self.chosen = name
        self.calls.append(("choose", name))

    def pause(self, paused: bool) -> None:
        self.calls.append(("pause", paused))

    def behind(self, of: Result, row: list[Any]) -> Behind:
        self.calls.append(("behind", row))
        return Behind(["program = 'x'"], [(1_500_000_000, 0, "SCHEDIN", HOSTILE, "pid=1")], 7)

    def frames(self, stop: threading.Event) -> Iterator[Frame]:
        yield from self.given
        stop.wait(PATIENCE)


def drive(
    fake: Fake,
    test: Callable[[Top, Pilot[None]], Awaitable[None]],
    size: tuple[int, int] = (80, 24),
) -> None:
    async def run() -> None:
        app = Top(fake, "scheduler: ./prog")  # type: ignore[arg-type]
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.frame is fake.given[-1])
            await test(app, pilot)
        assert app.work is not None
        # As `screen.show` ends it.
        app.stopping.set()
        app.work.join(PATIENCE)
        assert fake.ended.is_set()

    asyncio.run(run())


async def until(pilot: Pilot[None], what: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE / 0.05)):
        await pilot.pause(0.05)
        if what():
            return
    raise AssertionError("it does not come")


def screen_of(app: Top) -> list[str]:
    """The lines as they are drawn."""
    lines = app.screen._compositor.render_strips()
    return [strip.text for strip in lines]


def table_of(app: Top) -> list[list[str]]:
    table = app.screen.query_one(DataTable)
    return [[str(cell).strip() for cell in table.get_row_at(i)] for i in range(table.row_count)]
