# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls that are made unless they are called off in time, by one thread for all of them: to start a
thread for each statement takes longer than many statements.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# In s: so often it looks, if nothing is due sooner.
LOOK = 300.0


class Deadlines:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        # When the thread looks next.
        self.next = 0.0
        self.thread: threading.Thread | None = None
        self.due: dict[object, tuple[float, Callable[[], None]]] = {}

    def add(self, seconds: float, call: Callable[[], None]) -> object:
        """Calls after so many seconds. Gives what `cancel` takes."""
        key, at = object(), time.monotonic() + seconds
        with self.changed:
            self.due[key] = (at, call)
            # A call that failed has ended it.
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self.watch, daemon=True)
                self.thread.start()
            elif at < self.next:
                self.changed.notify()
        return key

    def cancel(self, key: object) -> None:
        with self.changed:
            self.due.pop(key, None)

    def watch(self) -> None:
        while True:
            self.look()

    def look(self) -> None:
        """Waits until some are due, or for a while, and calls them. Nothing of them is kept."""
        with self.changed:
            now = time.monotonic()
            self.next = min((at for at, _ in self.due.values()), default=now + LOOK)
            self.changed.wait(max(min(self.next - now, LOOK), 0))
            now = time.monotonic()
            keys = [key for key, (at, _) in self.due.items() if at <= now]
        for key in keys:
            # It may have been called off since; and if one fails, the others are still due.
            with self.changed:
                _, call = self.due.pop(key, (0.0, None))
            if call is not None:
                call()
            del call


# Of this process.
deadlines = Deadlines()
