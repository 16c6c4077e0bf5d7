# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Work on the analyses of several folders at one time. Those of one folder share a connection, and
so are worked on in turn, by one thread.

DuckDB has a thread for each core, but much of a query is done by one of them: the next query fills
the gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar

import duckdb

from klogger.analysis import Analysis

# More take more memory, and hardly less time.
THREADS_MAX = 2

Found = TypeVar("Found")


def each(
    chosen: Sequence[Analysis],
    work: Callable[[Analysis], Found],
    connections: Callable[[], Iterable[duckdb.DuckDBPyConnection]],
    threads: int,
) -> list[Found]:
    """What `work` gives for each, in their order. `connections`: those that it uses, which are
    interrupted if it fails, or the user does.
    """
    groups: dict[Path, list[int]] = {}
    for number, one in enumerate(chosen):
        groups.setdefault(one.folder, []).append(number)
    threads = min(threads, THREADS_MAX, len(groups))
    if threads < 2:
        return [work(one) for one in chosen]
    found: dict[int, Found] = {}
    over = False

    def in_turn(numbers: list[int]) -> None:
        for number in numbers:
            if over:
                return
            found[number] = work(chosen[number])

    # Those with most to do come first, so that the last is short.
    in_order = sorted(groups.values(), key=len, reverse=True)
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(in_turn, numbers) for numbers in in_order]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            for future in futures:
                if future.done():
                    future.result()
        except BaseException:
            over = True
            for connection in connections():
                connection.interrupt()
            raise
    return [found[number] for number in range(len(chosen))]
