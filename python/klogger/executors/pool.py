# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""In several processes of this machine. One that is killed costs the time of what was under way:
the rest is done by new ones.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from klogger import statements
from klogger.failure import Failure

Item = TypeVar("Item")
Answer = TypeVar("Answer")
# So often may processes die before it is given up.
DEATHS_MAX = 3


class Pool:
    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.pool = self.made()

    def made(self) -> ProcessPoolExecutor:
        # DuckDB's threads do not survive a fork.
        return ProcessPoolExecutor(
            self.processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=alone,
            initargs=(statements.ending,),
        )

    def map(self, work: Callable[[str], Answer], names: Sequence[str]) -> Iterable[Answer]:
        left = dict.fromkeys(names)
        for _ in range(DEATHS_MAX):
            try:
                for name, answer in self.tried(work, list(left)):
                    del left[name]
                    yield answer
            except BrokenProcessPool:
                self.pool.shutdown(wait=False, cancel_futures=True)
                self.pool = self.made()
                continue
            return
        raise Failure(
            f"{DEATHS_MAX} times, a process of the pool was killed;"
            f" {sum(len(names.split()) for names in left):,} recordings are not done",
            help="if memory is short, use fewer processes: --on pool:1",
        )

    def tried(
        self, work: Callable[[str], Answer], names: Sequence[str]
    ) -> Iterator[tuple[str, Answer]]:
        futures: dict[Future[Answer], str] = {self.pool.submit(work, n): n for n in names}
        for future in as_completed(futures):
            yield futures[future], future.result()

    def combine(self, merge: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
        """In threads of this process: nearly all of it is DuckDB's work, and to start a process for
        it, and to send it what is known of ten thousand recordings, takes longer.
        """
        with ThreadPoolExecutor(self.processes) as threads:
            return list(threads.map(merge, items))


def alone(ending: Callable[[Failure], None] | None) -> None:
    """Each process has one CPU's worth of threads, and ends with a statement that does not, as
    ours does.
    """
    os.environ["KLOGGER_THREADS"] = "1"
    statements.ending = ending


@contextlib.contextmanager
def pool(processes: int | None) -> Iterator[Pool]:
    found = Pool(processes or len(os.sched_getaffinity(0)))
    try:
        yield found
    finally:
        found.pool.shutdown(wait=False, cancel_futures=True)
