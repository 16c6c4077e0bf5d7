# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Threads of several C libraries, from their creation to their end; what their locks, signals,
timers and loaders cost. The source compared glibc with uClibc, and listed most of this without
measuring it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from klogger.durations import duration
from klogger.executor import Result
from klogger.ledger import read
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, column

from . import _libraries as libraries
from . import _limits, _lives, _mutexes, _starts, _told
from ._libraries import figure, here, of_part


def arms(plan: Plan) -> list[Arm]:
    return [
        *_lives.arms(plan),
        *_mutexes.arms(plan),
        *_told.arms(plan),
        *_starts.arms(plan),
    ]


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    lives = [_lives.look(name, run) for name, run in of_part(runs, "lives")]
    slopes = [found for one in lives if (found := _lives.slopes(one)) is not None]
    limits = _limits.found_by(of_part(runs, "limits"))
    mutexes = of_part(runs, "mutexes")
    locks = [one for name, run in mutexes for one in _mutexes.locks(name, run)]
    turns = [_mutexes.turns(name, run) for name, run in mutexes]
    robust = [one for name, run in mutexes for one in _mutexes.robust(name, run)]
    shared = _mutexes.shared_of(mutexes)
    told = of_part(runs, "told")
    taken = [one for name, run in told for one in _told.taken(name, run)]
    cancelled = [one for name, run in told for one in _told.cancelled(name, run)]
    expired = [one for name, run in told for one in _told.expired(name, run)]
    starts = [one for _, run in of_part(runs, "starts") for one in _starts.look(run)]
    sizes = libraries.measure()
    return Answer(
        [
            _lives.lifecycle(lives), _lives.first_run(lives), _lives.rate(lives),
            _limits.maximum(limits), _lives.memory(slopes), _mutexes.futex_ratio(locks),
            _mutexes.hand_off(turns), _told.signals(taken), _told.cancel(cancelled),
            _told.timers(expired), _starts.loader(starts), _starts.startup(starts),
            libraries.sizes(sizes),
            criteria(sizes, lives, slopes, taken, shared),
        ],
        [
            *versions(), *_lives.sentences(lives), *_limits.sentences(limits),
            *_mutexes.sentences(locks), *_told.sentences(taken, cancelled),
            *_starts.sentences(starts),
        ],
        [
            *_lives.checks(lives, slopes),
            *_limits.checks(limits),
            *_mutexes.checks(locks, turns, robust, shared),
            *_told.checks(taken, cancelled, expired),
            *_starts.checks(starts),
            complete(runs),
        ],
        cannot(plan, lives, limits),
    )  # fmt: skip


def versions() -> list[str]:
    return [f"Compared are {', '.join(libraries.version(one) for one in here())}."]


# The source's Table 2, as LinuxThreads and NPTL.
CRITERIA = {
    "storage": ("smallest", "largest"),
    "memory": ("smallest", "largest"),
    "number of threads": ("hard-coded", "dynamic"),
    "efficiency": ("slowest", "fastest"),
    "signals to a thread": ("no", "yes"),
    "shared by processes": ("no", "yes"),
    "POSIX.1": ("no", "(yes)"),
}


def criteria(
    sizes: dict[str, dict[str, int | None]],
    lives: list[_lives.Lives],
    slopes: list[_lives.Slopes],
    taken: list[_told.Taken],
    shared: dict[str, dict[str, int]],
) -> Result:
    """The source's table of criteria, with what was measured here."""
    names = [library.name for library in here(threads=True)]
    told: dict[str, dict[str, str]] = {criterion: {} for criterion in CRITERIA}
    for name in names:
        size = sizes.get(name, {}).get("shared libc")
        told["storage"][name] = f"{size:,} bytes of libc" if size else "not known"
        told["POSIX.1"][name] = "not tested"
    for s in slopes:
        told["memory"][s.library] = f"{s.resident / 1024:.1f} KiB each"
    for x in lives:
        made = max((m["threads"] for m in x.memory), default=0)
        failed = f", then error {x.failed[0]['errno']}" if x.failed else " at once"
        told["number of threads"][x.library] = f"{made:,}{failed}"
        if x.rows:
            told["efficiency"][x.library] = f"{duration(x.rows[0]['total'])} to the first run"
    for t in taken:
        if t.at_target is not None:
            told["signals to a thread"][t.library] = f"{100 * t.at_target:.0f} % at the target"
    for name, one in shared.items():
        both = "yes" if one["held"] == one["pairs"] else "no"
        told["shared by processes"][name] = f"{both}, {one['pairs']:,} locks"
    columns = [
        column("criterion", "criterion"),
        *(column(name, f"{name} here") for name in names),
        column("paper_linuxthreads", "LinuxThreads in the paper"),
        column("paper_nptl", "NPTL in the paper"),
    ]
    rows = [
        [criterion, *(told[criterion].get(name, "-") for name in names), *paper]
        for criterion, paper in CRITERIA.items()
    ]
    question = "How do the thread libraries compare by the source's criteria?"
    return figure("criteria", ("The source's criteria", question), columns, rows)


def complete(runs: list[Run]) -> Check:
    """What is missing in a log makes the other checks fail as well."""
    bad = [
        f"{run.arm.name}: {loss}"
        for run in runs
        if run.log is not None
        for loss in read(run.log).losses()
    ]
    return Check("losses", not bad, "; ".join(bad) or "no event was lost")


def cannot(
    plan: Plan, lives: Sequence[_lives.Lives], limits: Sequence[tuple[str, dict[str, Any]]]
) -> list[str]:
    said = [*libraries.missing(), *_starts.cannot()]
    if not any(m["level"] == _lives.MOST for x in lives for m in x.memory):
        why = _lives.why_not_most(plan) or "there was no time for them. Give it a larger --budget."
        said.append(f"{_lives.MOST:,} threads at once: {why}")
    if not any(one["kind"] == "user" for _, one in limits):
        said.append("The limit of a user: this process may not become another user.")
    said += [
        "uClibc, LinuxThreads and MIPS, which the source measured: they are not here. Its numbers"
        " are printed beside those of this machine's libraries.",
        "The source's tests of conformance (LTP, Open POSIX, the NPTL tests of glibc) and the time"
        " to build a toolchain: they are not run again.",
        "dietlibc's threads: it serves for the start of programs only."
        if any(not x.threads for x in here())
        else "",
    ]
    return [sentence for sentence in said if sentence]


STUDY = Study(
    name="threads",
    title="Threads of C libraries",
    question=(
        "What do threads, locks, signals, timers and the start of a program cost with different C"
        " libraries?"
    ),
    paper="S. J. Hill, NPTL Support for uClibc, Linux Symposium 2006",
    found=(
        "uClibc with native threads needs 991,509 bytes of shared libraries, glibc 2,807,474;"
        " toolchains are built in 21 m 33 s and 53 m 9 s. Native threads are the fastest and need"
        " the most storage and memory; their number is not built in, and signals reach single"
        " threads. These criteria were listed and not measured."
    ),
    schemata=("lifecycle", "scheduler"),
    arms=arms,
    analyse=analyse,
    seconds=120,
    least_seconds=18,
)
