# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The last seconds of a recording, with the answers of the schema's own analyses.

Nothing is computed here that `klogger report` does not compute: each frame is a log of the last
seconds, exported and opened as every log is. The terminal and the page show the same frames:

    with Window(Plan(("-s", "scheduler", "-a")), every=1.0) as window:
        window.choose("quanta")              # None: all analyses
        for frame in window.frames(stop):    # stop: a threading.Event
            show(frame)                      # frame.results, or frame.as_json()

`choose` and `behind` may be called from another thread than the one that takes the frames.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import klogger
from klogger import executor, ledger
from klogger.analysis import Analysis, searched
from klogger.executor import Result
from klogger.failure import Failure, did_you_mean
from klogger.ledger import Ledger
from klogger.log import Log
from klogger_lab.top import behind
from klogger_lab.top.behind import Behind
from klogger_lab.top.cost import Cost, Meter
from klogger_lab.top.source import Plan, Source, Taken

__all__ = ["Behind", "Cost", "Frame", "Plan", "Window"]

# How often it is looked whether the next frame is due, or wanted at once.
LOOK = 0.05
# Seconds until the first frame, which need not have a whole window.
FIRST = 0.3
# Failures of a snapshot in a row, of a recorder that still runs, until we give up.
FAILURES = 5


# Ledger entry of every snapshot, which says that it is one.
OF_SNAPSHOTS = "snapshot"


def own_ledger(log: Log) -> Ledger:
    return Ledger([kind for kind in ledger.read(log).kinds if kind.key != OF_SNAPSHOTS])


@dataclass(frozen=True)
class Frame:
    """What is to be shown. `state` says how it stands with the recording:

    running      it goes on
    ended        the command or the processes have ended; `reason` says how. It is the last frame
    failed       the recorder has ended with an error, `reason`. It is the last frame

    `events` is how many there are in the `seconds` up to `time` (seconds since 1970), `lost` how
    many are missing among them, which `ledger` explains. `short`: the window is shorter than it was
    to be, because the memory holds no more. `results` are of the analyses that are chosen, and
    `analyses` are all.
    """

    number: int
    time: float
    window: float
    seconds: float
    events: int
    lost: int
    short: bool
    cost: Cost
    state: str = "running"
    reason: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    notes: list[str] = field(default_factory=list)
    analyses: list[Analysis] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds if self.seconds > 0 else 0.0

    def result(self, name: str) -> Result | None:
        return next((r for r in self.results if r.analysis.name == name), None)

    def as_json(self) -> dict[str, Any]:
        """As docs/json.md describes it; the analyses are as those of `klogger report`."""
        return {
            "number": self.number, "time": self.time, "state": self.state, "reason": self.reason,
            "window_s": self.window, "seconds": self.seconds, "short": self.short,
            "events": self.events, "events_per_s": self.rate, "lost": self.lost,
            "ledger": self.ledger.as_json(), "notes": self.notes,
            "cost": {
                "share": self.cost.share, "recorder_share": self.cost.recorder,
                "frame_s": self.cost.frame, "every_s": self.cost.every,
            },
            "analyses": [result.as_json() for result in self.results],
        }  # fmt: skip


class Window:
    """To be entered: then the recorder runs, with its files in a private folder. When it is left,
    the recorder has ended and the folder is gone. `most`: how many analyses are run as long as none
    is chosen; None: all.
    """

    def __init__(
        self,
        plan: Plan,
        every: float = 1.0,
        source: type[Source] = Source,
        most: int | None = None,
    ) -> None:
        self.plan, self.every, self.source_class, self.most = plan, every, source, most
        self.begun = False
        self.chosen: str | None = None
        self.number = self.failures = 0
        self.last: Frame | None = None
        self.analyses: list[Analysis] = []
        self.wanted, self.paused = threading.Event(), threading.Event()
        # Of the open log, which frames replace and `behind` asks.
        self.lock = threading.Lock()
        self.log: Log | None = None
        self.session: executor.Session | None = None
        self.taken: Taken | None = None
        self.answers: dict[str, Result] = {}

    def begin(self) -> None:
        """Before the window is entered: the recorder gets ready while others load what they need.
        If the window is never entered, the recorder ends with this process.
        """
        self.begun = True
        self.folder = tempfile.TemporaryDirectory(prefix="klogger-top-")
        self.source = self.source_class(self.plan, Path(self.folder.name))

    def __enter__(self) -> Window:
        if not self.begun:
            self.begin()
        with contextlib.ExitStack() as stack:
            stack.callback(self.folder.cleanup)
            stack.enter_context(self.source)
            stack.callback(self.close)
            self.meter = Meter(self.every, self.source.cpu_seconds)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stack.close()

    def choose(self, name: str | None) -> None:
        """The analysis that is run from now on, alone, and at once; None: the first ones."""
        if name != self.chosen:
            self.chosen = name
            self.wanted.set()

    def pause(self, paused: bool) -> None:
        """No new seconds meanwhile; other analyses of those that are shown can be chosen."""
        (self.paused.set if paused else self.paused.clear)()

    def frames(self, stop: threading.Event) -> Iterator[Frame]:
        """A frame as often as the budget allows, until the recording has ended or `stop` is set."""
        due = time.monotonic() + min(self.every, FIRST)
        while not stop.is_set():
            again = self.wanted.is_set() and self.last is not None
            over = self.is_over()
            early = time.monotonic() < due and not over
            if not again and (early or self.paused.is_set()):
                stop.wait(LOOK)
                continue
            self.wanted.clear()
            begun = time.monotonic()
            frame = self.again() if again and not over else self.frame()
            yield frame
            if frame.state != "running":
                # The last log stays open: other analyses of it may be wanted.
                yield from self.after(stop)
                return
            due = due if again else begun + frame.cost.every

    def after(self, stop: threading.Event) -> Iterator[Frame]:
        while not stop.wait(LOOK):
            if self.wanted.is_set():
                self.wanted.clear()
                yield self.again()

    def is_over(self) -> bool:
        return not self.source.runs() or self.source.command_code() is not None

    def frame(self) -> Frame:
        """The last seconds, as they are now."""
        code = self.source.command_code()
        if not self.source.runs():
            return self.ended()
        try:
            self.open(self.source.take())
            self.failures = 0
        except (Failure, OSError) as failure:
            # It may have ended in between; else it is asked again, also if the disk was full.
            self.failures += 1
            if self.source.runs() and self.failures < FAILURES and code is None:
                return self.unchanged("running", str(failure))
            if not self.source.runs():
                return self.ended()
            return self.unchanged("failed", str(failure))
        if code is not None:
            return self.made("ended", f"the command has ended with exit code {code}")
        return self.made("running", "")

    def again(self) -> Frame:
        """The same seconds, with the analysis that is now chosen."""
        last = self.last
        if last is None or self.log is None:
            return self.frame()
        with self.meter.asked():
            return self.made(last.state, last.reason, self.meter.cost)

    def open(self, taken: Taken) -> None:
        """Takes the place of the log before."""
        try:
            log = klogger.open(taken.log, locked=True)
        finally:
            # The tables have it all.
            taken.log.unlink(missing_ok=True)
        with self.lock:
            self.close()
            self.log, self.session, self.taken = log, executor.Session(log), taken
            self.answers = {}
            self.analyses = self.session.analyses

    def close(self) -> None:
        if self.log is not None and self.session is not None:
            self.session.__exit__()
            self.log.close()
            shutil.rmtree(self.log.directory, ignore_errors=True)
            self.log = self.session = None

    def made(self, state: str, reason: str, cost: Cost | None = None) -> Frame:
        with self.lock:
            assert self.log is not None and self.session is not None and self.taken is not None
            results = [self.answer(self.session, one) for one in self.to_run()]
            found = own_ledger(self.log)
        lost = sum(kind.count for kind in found.kinds if kind.severity in ("loss", "error"))
        self.number += 1
        cost = cost or self.meter.frame_made()
        self.last = Frame(
            self.number, time.time(), self.plan.window, self.taken.seconds, self.taken.events, lost,
            self.taken.short, cost, state, reason, found, self.source.notes(), self.analyses,
            results,
        )  # fmt: skip
        return self.last

    def answer(self, session: executor.Session, one: Analysis) -> Result:
        """Once for each log: an analysis makes tables, which cannot be made twice."""
        if one.name not in self.answers:
            self.answers[one.name] = session.run(one)
        return self.answers[one.name]

    def to_run(self) -> list[Analysis]:
        if self.chosen is None:
            return self.analyses[: self.most]
        found = [one for one in self.analyses if one.name == self.chosen]
        if not found:
            names = [one.name for one in self.analyses]
            listed = f"there are: {', '.join(names)}" if names else self.none()
            raise Failure(
                f"no analysis '{self.chosen}'", help=did_you_mean(self.chosen, names) or listed
            )
        return found

    def none(self) -> str:
        """Why there are no analyses."""
        return searched(self.log.schemas) if self.log is not None else "nothing was recorded yet"

    def ended(self) -> Frame:
        code = self.source.recorder.process.poll()
        if code == 0:
            return self.unchanged("ended", "the recording has ended")
        return self.unchanged("failed", self.source.why_ended())

    def unchanged(self, state: str, reason: str) -> Frame:
        """What was known, in another state."""
        self.number += 1
        last, cost = self.last, self.meter.frame_made()
        self.last = Frame(
            self.number, time.time(), self.plan.window, last.seconds if last else 0.0,
            last.events if last else 0, last.lost if last else 0, last.short if last else False,
            cost, state, reason, last.ledger if last else Ledger(), self.source.notes(),
            self.analyses, last.results if last else [],
        )  # fmt: skip
        return self.last

    def behind(self, result: Result, row: list[Any]) -> Behind:
        """The events of the open log that stand behind a row of an answer."""
        with self.lock, self.meter.asked():
            if self.log is None:
                raise Failure("there is no log of these seconds any more")
            return behind.find(self.log, result, row)
