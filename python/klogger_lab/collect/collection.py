# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""All hosts of a collection: they begin at one time, and are stopped together."""

from __future__ import annotations

import contextlib
import queue
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from klogger.failure import Failure
from klogger_lab.collect.host import Host, Plan
from klogger_lab.collect.ssh import Ssh

# Seconds: how often is looked at the hosts; from the last host that is ready to the beginning.
LOOK = 0.1
AHEAD = 0.5
# How long the others wait for a host that does not answer.
PATIENCE = 90.0


class Collection:
    """`told` is called with what there is to say, again and again: a host, and a note or the line
    of a command. To be entered.
    """

    def __init__(self, names: Sequence[str], options: Sequence[str], plan: Plan) -> None:
        self.plan = plan
        self.notes: queue.Queue[tuple[str, Any]] = queue.Queue()
        # The path of a socket may have 107 bytes, with what ssh adds to it.
        place = tempfile.gettempdir()
        place = place if len(place) < 60 else "/tmp"
        self.sockets = Path(tempfile.mkdtemp(prefix="klogger-", dir=place))
        self.hosts = [
            Host(Ssh(name, options, self.sockets / str(number)), plan, self.notes)
            for number, name in enumerate(names)
        ]
        self.stops = 0

    def __enter__(self) -> Collection:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            host.start_at(None)
            host.give_up()
        for host in self.hosts:
            if host.thread.ident:
                host.thread.join()
        shutil.rmtree(self.sockets, ignore_errors=True)

    def run(self, told: Callable[[], None]) -> None:
        with self.signals():
            for host in self.hosts:
                host.thread.start()
            until = time.monotonic() + PATIENCE
            self.wait(told, lambda host: host.prepared.is_set() or time.monotonic() > until)
            for host in self.hosts:
                if not host.prepared.is_set():
                    host.give_up(Failure(f"it was not ready after {PATIENCE:.0f} s"))
            at = self.plan.reference.now() + int(AHEAD * 1e9)
            for host in self.hosts:
                host.start_at(None if self.stops else at)
            self.wait(told, lambda host: not host.thread.is_alive())
        told()

    def wait(self, told: Callable[[], None], done: Callable[[Host], bool]) -> None:
        for host in self.hosts:
            while not done(host):
                told()
                host.thread.join(LOOK)
                if done(host) or not host.thread.is_alive():
                    break

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """The first ends the recordings, and their logs are brought home. The second gives up: what
        is recorded is ended there, but not fetched.
        """
        wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self.stop) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def stop(self, number: int, _: FrameType | None) -> None:
        self.stops += 1
        if self.stops > 1:
            raise KeyboardInterrupt(signal.Signals(number).name)
        for host in self.hosts:
            host.stop()

    def spread_ns(self) -> int | None:
        """Between the first recording that began and the last."""
        begun = [at for host in self.hosts if (at := host.begun_ns()) is not None]
        return max(begun) - min(begun) if len(begun) > 1 else None
