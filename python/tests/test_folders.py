# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Work on the analyses of several folders at one time: who waits for whom, in which order what is
found comes, and how a failure ends it.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from klogger import folders
from klogger.analysis import Analysis

NAMES = ["a/1", "b/1", "a/2", "c/1", "b/2"]
CHOSEN = [Analysis(n, Path(f"/x/{n[0]}/analyses/{n[2]}.sql"), n[0]) for n in NAMES]


class Connection:
    interrupted = False

    def interrupt(self) -> None:
        self.interrupted = True


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_found_comes_in_the_order_of_the_analyses(threads: int) -> None:
    assert folders.each(CHOSEN, lambda one: one.name, list, threads) == NAMES


def test_those_of_one_folder_have_one_thread_and_their_order() -> None:
    seen: dict[str, list[tuple[str, int]]] = {}

    def work(one: Analysis) -> None:
        seen.setdefault(one.schema, []).append((one.name, threading.get_ident()))

    folders.each(CHOSEN, work, list, 2)
    assert {s: [name for name, _ in rows] for s, rows in seen.items()} == {
        "a": ["a/1", "a/2"], "b": ["b/1", "b/2"], "c": ["c/1"],
    }  # fmt: skip
    assert all(len({thread for _, thread in rows}) == 1 for rows in seen.values())


def test_two_folders_are_worked_on_at_one_time() -> None:
    """Each of the first two waits for the other."""
    both = threading.Barrier(2, timeout=30)

    def work(one: Analysis) -> str:
        if one.name in ("a/1", "b/1"):
            both.wait()
        return one.name

    assert folders.each(CHOSEN, work, list, 2) == NAMES


def test_a_failure_interrupts_the_others_and_is_raised() -> None:
    connection = Connection()
    stopped = threading.Event()

    def work(one: Analysis) -> None:
        if one.schema == "a":
            raise ValueError(one.name)
        # A long query, which the failure ends.
        while not connection.interrupted:
            stopped.wait(0.01)

    with pytest.raises(ValueError, match="a/1"):
        folders.each(CHOSEN[:2], work, lambda: [connection], 2)  # type: ignore[arg-type, list-item]
    assert connection.interrupted
