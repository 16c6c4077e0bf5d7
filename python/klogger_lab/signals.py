# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How an experiment that changes the machine ends when it is told to."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP end a study as Ctrl-C does: children are stopped, and what was changed is
    put back.

    Writing to a pipe without a reader is an error of that write, not the end of the study.
    """

    def stop(number: int, _: FrameType | None) -> None:
        # Only once: what follows must not be interrupted.
        for one in handled:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt(signal.Signals(number).name)

    handled = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    before = {number: signal.signal(number, stop) for number in handled}
    before[signal.SIGPIPE] = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
