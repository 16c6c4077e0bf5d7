# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where the recordings of a dataset are worked on. Each way is one file with a class of two
functions; the work is the same everywhere.

here     in this process
pool     in as many processes as there are CPUs
spark    as tasks of Spark: `local[N]`, or the address of a master
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from klogger.failure import Failure

Item = TypeVar("Item")
Answer = TypeVar("Answer")

ON = "here, pool, pool:N, local[N] or spark://HOST:PORT"


class Executor(Protocol):
    def map(self, work: Callable[[str], Answer], names: Sequence[str]) -> Iterable[Answer]:
        """`work` of each name (of one thing or several, with blanks between their names), in any
        order, as they are done. It can be pickled, and its answer
        too.
        """

    def combine(self, merge: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
        """`merge` of each item, in their order. Items may name files of this machine."""


def chosen(on: str) -> contextlib.AbstractContextManager[Executor]:
    """By the word after `--on`."""
    if on == "here":
        from klogger.executors.here import Here

        return contextlib.nullcontext(Here())
    if match := re.fullmatch(r"pool(?::([1-9]\d{0,3}))?", on):
        from klogger.executors.pool import pool

        return pool(int(match[1]) if match[1] else None)
    if is_spark(on):
        from klogger.executors.spark import spark

        return spark(on)
    raise Failure(f"--on {on}: there is no such executor", help=f"it is {ON}")


def is_spark(on: str) -> bool:
    return bool(re.fullmatch(r"local(\[(\d+|\*)\])?|spark://[^\s/]+|yarn|k8s://\S+", on))


__all__ = ["ON", "Executor", "Iterator", "chosen", "is_spark"]
