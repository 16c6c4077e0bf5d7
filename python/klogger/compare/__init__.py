# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger compare`: what differs between two recordings, or several of each, and whether it is
more than chance.

extract      a log -> histograms of samples, and numbers of tables
stats        histograms, numbers -> estimates with their errors
comparison   both sides -> metrics, ranked and judged
sides        what the recordings themselves have in common
outliers     recordings of a dataset -> who is not like the others
text, page   all of it for the terminal, as JSON, and as HTML

from klogger.compare import compare_logs
found = compare_logs(["a.klog"], ["b.klog"])
for metric in found.comparison.metrics("worse"):
    print(metric.name, metric.difference)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import klogger
from klogger import analysis as analyses
from klogger.compare.comparison import Comparison, Metric, compare
from klogger.compare.extract import RECORDING, Measured, length_of, measure
from klogger.compare.sides import Side, facts_of, remarks
from klogger.failure import Failure, did_you_mean
from klogger.log import Log

__all__ = ["Compared", "Metric", "compare_logs"]

AnyPath = str | os.PathLike[str]


@dataclass
class Compared:
    """`remarks`: what must be known before the comparison is used."""

    sides: tuple[Side, Side]
    remarks: list[str]
    comparison: Comparison


def compare_logs(
    a: Sequence[AnyPath],
    b: Sequence[AnyPath],
    chosen: Iterable[str] = (),
    metrics: Iterable[str] = (),
    *,
    quiet: bool = True,
    progress: Callable[[str], None] = lambda _: None,
) -> Compared:
    """Compares the runs of `a` with those of `b`; only the `chosen` analyses, and `metrics`, if any
    are named.
    """
    wanted, known = list(chosen), dict[str, None]()
    sides = Side("A"), Side("B")
    measured: list[list[dict[str, Measured]]] = []
    for side, paths in zip(sides, (a, b), strict=True):
        measured.append([])
        for path in paths:
            measured[-1].append(read(path, side, wanted, known, quiet=quiet, progress=progress))
    for name in wanted:
        if name not in known:
            listed = (
                f"there are: {', '.join(known)}"
                if known
                else "these logs' schemata bring no analyses"
            )
            raise Failure(f"no analysis '{name}'", help=did_you_mean(name, known) or listed)
    progress("bootstrap")
    return Compared(sides, remarks(*sides), compare(measured[0], measured[1], metrics))


def read(
    path: AnyPath, side: Side, wanted: list[str], known: dict[str, None], *, quiet: bool,
    progress: Callable[[str], None],
) -> dict[str, Measured]:  # fmt: skip
    """One log is open at a time. Adds what it is to `side`, and the names of its analyses to
    `known`.
    """
    progress(os.fspath(path))
    with klogger.open(path, quiet=quiet, locked=True) as log:
        found = analyses.find(log.schemas)
        known.update(dict.fromkeys(one.name for one in found))
        side.runs.append(facts_of(log))
        measured = measure(
            log, [one for one in found if not wanted or one.name in wanted], progress
        )
        if of_command(log):
            known[RECORDING.name] = None
            if not wanted or RECORDING.name in wanted:
                measured[RECORDING.name] = length_of(log)
        return measured


def of_command(log: Log) -> bool:
    """Whether the log is as long as a command took. Others have the length that was requested, or
    were cut off.
    """
    workload, overwrite = (
        log.preamble.get("workload"),
        "SELECT overwrite OR NOT finished FROM klogger.recording",
    )
    return bool(workload) and isinstance(workload, list) and not log.rows(overwrite)[0][0]
