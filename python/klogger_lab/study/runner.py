# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs a study: plans its arms, records each, opens the logs, and has them analysed. Prints
nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import random
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import klogger
from klogger import ledger, outputs, program
from klogger.failure import Failure
from klogger.program import find_klogger
from klogger.units import printable
from klogger_lab.build import build
from klogger_lab.machine import Machine
from klogger_lab.signals import stoppable
from klogger_lab.study import discover, recording
from klogger_lab.study.discover import Found
from klogger_lab.study.model import Answer, Arm, Plan, Run
from klogger_lab.study.planning import OVERHEAD, arm_seconds

T = TypeVar("T")


@dataclass
class ArmReport:
    """How an arm went. `losses`: what its log's ledger says is missing."""

    arm: Arm
    seconds: float
    events: int = 0
    losses: list[str] = field(default_factory=list)


@dataclass
class Done:
    """A study that has been run; `failure` says why it has no answer."""

    found: Found
    budget: float
    seconds: float = 0.0
    arms: list[ArmReport] = field(default_factory=list)
    answer: Answer = field(default_factory=Answer)
    failure: Failure | None = None

    @property
    def failed_checks(self) -> int:
        return sum(not check.ok for check in self.answer.checks)


@dataclass
class Progress:
    """What is being done now. `shown` is called with a line, again and again while it lasts."""

    shown: Callable[[str], None]
    done: float = 0.0
    expected_done: float = 0.0

    def arm(self, number: int, arms: Sequence[Arm]) -> Callable[[], None]:
        begun = time.monotonic()
        rest = sum(a.seconds + OVERHEAD for a in arms[number:])

        def tick() -> None:
            left = rest * self.slowness() - (time.monotonic() - begun)
            self.shown(
                f"arm {number + 1} of {len(arms)}: {arms[number].name}, {max(left, 0):.0f} s left"
            )

        return tick

    def slowness(self) -> float:
        """How much longer the arms took so far than was expected of them."""
        return self.done / self.expected_done if self.expected_done else 1.0

    def finished(self, arm: Arm, seconds: float) -> None:
        self.done += seconds
        self.expected_done += arm.seconds + OVERHEAD


def run(
    found: Found,
    machine: Machine,
    budget: float,
    keep: Path | None,
    seed: int,
    settings: Sequence[str],
    shown: Callable[[str], None],
) -> Done:
    """Raises a Failure if the study cannot be run; nothing that it started or changed is
    left then.
    """
    study = found.study
    done = Done(found, budget)
    begun = time.monotonic()
    with stoppable(), places(study.name, keep) as (folder, logs):
        shown("planning")
        plan = Plan(machine, 0.0, folder, partial(build, found.path.parent))

        def arms_in(seconds: float) -> list[Arm]:
            random.seed(seed)
            given = dataclasses.replace(plan, seconds=seconds)
            return calling(found, "arms", lambda: study.arms(given))

        plan = dataclasses.replace(plan, seconds=arm_seconds(budget, arms_in))
        arms = [with_settings(arm, settings) for arm in arms_in(plan.seconds)]
        runs: list[Run] = []
        try:
            record_all(found, arms, folder, logs, done, runs, Progress(shown))
            shown("analysing")
            random.seed(seed)
            done.answer = calling(found, "analyse", lambda: study.analyse(plan, runs))
        finally:
            for one in runs:
                if one.log is not None:
                    one.log.close()
    done.seconds = time.monotonic() - begun
    return done


def with_settings(arm: Arm, settings: Sequence[str]) -> Arm:
    """The arm with these values of parameters, each as `klogger record --set` takes it."""
    words = [word for setting in settings for word in ("--set", setting)]
    return dataclasses.replace(arm, record=[*arm.record, *words])


def record_all(
    found: Found,
    arms: Sequence[Arm],
    folder: Path,
    logs: Path,
    done: Done,
    runs: list[Run],
    progress: Progress,
) -> None:
    schemata = [schema_word(found, name) for name in found.study.schemata]
    for number, arm in enumerate(arms):
        begun = time.monotonic()
        tick = progress.arm(number, arms)
        tick()
        around = arm.around() if arm.around is not None else contextlib.nullcontext()
        log, output = None, ""
        with calling_context(found, arm, around) as oracle:
            if arm.command:
                path = logs / f"{number + 1:02}-{safe(arm.name)}.klog"
                output = recording.record(arm, schemata, path, folder, tick)
        if arm.command:
            log = klogger.open(path)
        runs.append(Run(arm, log, output, oracle))
        seconds = time.monotonic() - begun
        events = sum(e.logged for e in log.events.values()) if log else 0
        done.arms.append(ArmReport(arm, seconds, events, ledger.read(log).losses() if log else []))
        progress.finished(arm, seconds)


def calling(found: Found, what: str, work: Callable[[], T]) -> T:
    """A fault of a study's own code becomes one message with its place."""
    try:
        return work()
    except Failure:
        raise
    except Exception as error:
        raise fault(found, what, error) from None


@contextlib.contextmanager
def calling_context(
    found: Found, arm: Arm, around: contextlib.AbstractContextManager[Any]
) -> Iterator[Any]:
    try:
        with around as oracle:
            yield oracle
    except Failure:
        raise
    except Exception as error:
        raise fault(found, f"arm '{arm.name}'", error) from None


def fault(found: Found, what: str, error: Exception) -> Failure:
    if os.environ.get("KLOGGER_DEBUG"):
        traceback.print_exception(error)
    return Failure(
        f"study '{found.study.name}', {what}: {discover.place(error, found.path.parent)}"
    )


def schema_word(found: Found, name: str) -> str:
    """What -s gets: the bundled schema if it is as new as the file, else the file, which is
    compiled then.
    """
    if "/" in name or "." in name:
        return str(found.path.parent / name)
    file = found.path.parents[2] / name / f"{name}.klogger"
    if not file.is_file():
        return name
    installed = file.parents[2].name == "klogger" and file.parents[3].name == "share"
    if installed or (
        name in bundled() and file.stat().st_mtime < Path(find_klogger()).stat().st_mtime
    ):
        return name
    return str(file)


@functools.cache
def bundled() -> frozenset[str]:
    """The schemata that are built into klogger."""
    try:
        return frozenset(str(one["name"]) for one in program.answer("list", timeout=20))
    except (Failure, KeyError, TypeError):
        return frozenset()


def safe(name: str) -> str:
    """A part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", printable(name)).strip("-.")[:60] or "arm"


@contextlib.contextmanager
def places(name: str, keep: Path | None) -> Iterator[tuple[Path, Path]]:
    """A folder for the workloads' files, which is removed, and one for the logs, which
    may be kept.
    """
    # Logs may be big, and /tmp is often memory.
    base = os.environ.get("TMPDIR") or ("/var/tmp" if os.access("/var/tmp", os.W_OK) else None)
    with contextlib.ExitStack() as stack:
        try:
            made = tempfile.TemporaryDirectory(
                prefix="klogger-study-", dir=base, ignore_cleanup_errors=True
            )
            top = Path(stack.enter_context(made))
            folder, logs = top / "work", keep / name if keep else top / "logs"
            folder.mkdir()
            outputs.folder(logs)
        except OSError as error:
            raise Failure(f"cannot make {error.filename}: {error.strerror}") from None
        yield folder, logs.absolute()


def shares(studies: Sequence[Found], budget: float | None) -> list[float]:
    """The seconds that each study gets: in proportion to what it takes by default, but not less
    than its least.
    """
    if budget is None:
        return [f.study.seconds for f in studies]
    least = sum(f.study.least_seconds for f in studies)
    if budget < least:
        what = (
            f"'{studies[0].study.name}' needs"
            if len(studies) == 1
            else f"these {len(studies)} studies need"
        )
        raise Failure(
            f"{what} at least {least:g} s, and the budget is {budget:g} s",
            help=f"--budget {least:g}s",
        )
    rest = sum(f.study.seconds for f in studies) or 1.0
    spare = budget - least
    return [f.study.least_seconds + spare * f.study.seconds / rest for f in studies]


def root() -> None:
    if os.geteuid() != 0:
        words = " ".join(sys.argv[1:])
        raise Failure(
            "a study records the kernel's events, which needs root",
            help=f"sudo klogger study {words}",
        )
