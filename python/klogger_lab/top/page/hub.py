# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Between the model, which makes frames, and the browsers, which read them. Only the newest frame
is kept: a slow reader misses some, and nobody waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Sent:
    """What goes to a browser. `number` is 0 if there was no frame yet."""

    number: int = 0
    data: bytes = b""
    ended: bool = False


@dataclass
class Hub:
    """`first`: the analyses of those who have not chosen any; `changes` is called when somebody
    comes, who may want others.
    """

    first: tuple[str, ...] = ()
    changes: Callable[[], None] = lambda: None
    newest: Sent = field(default_factory=Sent)
    readers: dict[int, tuple[str, ...]] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    last_reader: int = 0

    def publish(self, data: bytes, *, ended: bool = False) -> None:
        with self.changed:
            if not self.newest.ended:
                self.newest = Sent(self.newest.number + 1, data, ended)
            self.changed.notify_all()

    def wait(self, after: int, patience: float) -> Sent | None:
        """The newest frame, when it is newer than number `after`; None if none came."""
        with self.changed:
            came = self.changed.wait_for(lambda: self.newest.number > after, patience)
            return self.newest if came else None

    @contextmanager
    def reader(self, wanted: tuple[str, ...]) -> Iterator[None]:
        """A browser that is connected, and wants these analyses; none: the first ones."""
        with self.changed:
            self.last_reader += 1
            number = self.last_reader
            self.readers[number] = wanted
        self.changes()
        try:
            yield
        finally:
            with self.changed:
                del self.readers[number]
                self.changed.notify_all()

    def wait_empty(self, patience: float) -> None:
        """Until all have read the end, if they do."""
        with self.changed:
            self.changed.wait_for(lambda: not self.readers, patience)

    def wanted(self) -> tuple[str, ...]:
        """The analyses that somebody looks at, each once; the first ones if nobody does."""
        with self.changed:
            chosen = [name for names in self.readers.values() for name in names or self.first]
        return tuple(dict.fromkeys(chosen)) or self.first

    def is_watched(self) -> bool:
        with self.changed:
            return bool(self.readers)
