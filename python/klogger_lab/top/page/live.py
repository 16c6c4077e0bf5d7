# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From the window to the page: each frame is painted once, for all browsers; without a browser
nothing is made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import datetime

from klogger.analysis import Analysis
from klogger.durations import duration
from klogger_lab.top.page.hub import Hub
from klogger_lab.top.page.paint import Painter, Shown
from klogger_lab.top.page.server import Server
from klogger_lab.top.source import Plan, Source
from klogger_lab.top.window import Frame, Window

# Analyses that are shown until somebody chooses others. Each one costs time.
FIRST = 3
# Seconds between two looks whether somebody is there.
LOOK = 0.1


class Chosen(Window):
    """A window whose analyses are those that the browsers want; before they want any, the one that
    was chosen, or the first few. Names that there are none of, from the address of a page, are left
    out.
    """

    def __init__(
        self, plan: Plan, hub: Hub, every: float = 1.0, source: type[Source] = Source
    ) -> None:
        super().__init__(plan, every, source, FIRST)
        self.hub = hub

    def to_run(self) -> list[Analysis]:
        if not self.hub.first:
            self.hub.first = tuple(one.name for one in super().to_run())
        names = {*self.hub.wanted()}
        return [one for one in self.analyses if one.name in names]


def serve(
    plan: Plan,
    every: float,
    analysis: str | None,
    title: str,
    port: int,
    say: Callable[[str], None],
    stop: threading.Event | None = None,
) -> None:
    """Until `stop`, or until a signal ends it. `say` gets the address when the recorder runs. The
    last frame of a recording that has ended stays on the page.
    """
    hub, painter, stop = Hub(), Painter(), stop or threading.Event()
    # A port that is taken is known before anything is recorded.
    with Server(hub, port) as server, Chosen(plan, hub, every) as window:
        window.choose(analysis)
        hub.changes = window.wanted.set
        say(server.url)
        for frame in window.frames(stop):
            hub.publish(painter.paint(shown(frame, title, hub.first)))
            while not (stop.is_set() or hub.is_watched() or window.is_over()):
                stop.wait(LOOK)


def shown(frame: Frame, title: str, first: tuple[str, ...]) -> Shown:
    facts = [
        f"the last {duration(frame.seconds * 1e9)}",
        f"until {datetime.fromtimestamp(frame.time):%H:%M:%S}",
        f"{frame.events:,} events",
        f"{frame.rate:,.0f}/s",
        f"{frame.lost:,} lost",
        f"{frame.cost.share:.1%} of a CPU",
        frame.cost.said(),
    ]
    losses = [
        *([frame.reason] if frame.state == "failed" else []),
        *([f"{frame.lost:,} events were lost in these seconds"] if frame.lost else []),
        *(frame.ledger.losses() if frame.lost else []),
    ]
    return Shown(title, facts, frame.results, losses, list(notes(frame)), frame.analyses, first)


def notes(frame: Frame) -> Iterable[str]:
    if frame.reason and frame.state != "failed":
        yield frame.reason
    if frame.short:
        yield (
            f"the memory holds only {duration(frame.seconds * 1e9)}, not"
            f" {duration(frame.window * 1e9)}"
        )
    if not frame.events and frame.state == "running":
        yield "no events yet"
    if not frame.analyses:
        yield "the schemata bring no analyses"
    yield from dict.fromkeys(frame.notes)
