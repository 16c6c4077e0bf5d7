# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Calls are made when they are due, unless they were called off; and one thread is enough."""

from __future__ import annotations

import threading
import weakref

import pytest

from klogger.deadlines import Deadlines

LONG = 1e6


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_call_that_is_due_is_made() -> None:
    """Also one that is due before those that the thread waits for, and after one that failed."""
    own = Deadlines()
    calls: list[str] = []
    made = threading.Event()
    own.add(LONG, lambda: calls.append("late"))
    (thread,) = [own.thread]
    own.add(0, made.set)
    assert made.wait(60)
    assert own.thread is thread and thread is not None and thread.is_alive()
    assert calls == []
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise SystemExit

    own.add(0, fail)
    thread.join(60)
    assert failed.is_set()
    again = threading.Event()
    own.add(0, again.set)
    assert again.wait(60)


def test_what_was_called_off_is_not_made() -> None:
    own = Deadlines()
    made = threading.Event()
    keys = [own.add(LONG, made.set) for _ in range(1000)]
    assert len(own.due) == 1000
    for key in keys:
        own.cancel(key)
    assert own.due == {}
    own.cancel(keys[0])
    # It has looked meanwhile.
    other = threading.Event()
    own.add(0, other.set)
    assert other.wait(60)
    assert not made.is_set()


def test_nothing_is_kept_of_a_call() -> None:
    """It may hold the connection to a log."""

    class Held:
        pass

    own, held = Deadlines(), Held()
    gone = weakref.ref(held)
    made = threading.Event()

    def call(held: Held = held) -> None:
        made.set()

    own.add(0, call)
    assert made.wait(60)
    del held, call
    # When the thread looks again, it has let go.
    other = threading.Event()
    own.add(0, other.set)
    assert other.wait(60)
    assert gone() is None
