# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a study is made of: all that the runner and the renderers of answers depend on.

A study plans its arms (one recording each) for the machine and the time that it is given, and turns
what was recorded into an answer: results, which are drawn as those of an analysis are; sentences;
and checks against what others counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klogger.analysis import Analysis, Column, Picture
from klogger.executor import Result, Rows
from klogger.log import Log
from klogger_lab.machine import Machine


@dataclass(frozen=True)
class Plan:
    """What a study may use: `seconds` for all of its arms together, `folder` for files of its
    workloads.
    """

    machine: Machine
    seconds: float
    folder: Path
    # build("x.c", compiler="", flags=()): compiles a C file that stands beside the study, once,
    # with `cc` or another compiler; raises a Failure that holds the compiler's message.
    build: Callable[..., Path]


@dataclass(frozen=True)
class Arm:
    """One recording. `seconds` is how long it is expected to take, for the progress that is shown.

    `around` is entered before the recording begins and left after it has ended; what it yields
    becomes `Run.oracle`. An arm whose command is empty is not recorded: `around` measures alone.
    """

    name: str
    command: Sequence[str | Path]
    seconds: float
    parameters: Mapping[str, int | float | str] = field(default_factory=dict)
    record: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    around: Callable[[], AbstractContextManager[Any]] | None = None


@dataclass
class Run:
    """An arm that has been run. `output` is what its command printed; `log` is None if nothing was
    recorded.
    """

    arm: Arm
    log: Log | None
    output: str
    oracle: Any = None


@dataclass(frozen=True)
class Check:
    """An invariant, compared with another counter. `text` has both numbers."""

    name: str
    ok: bool
    text: str


@dataclass
class Answer:
    """`sentences`: what was seen, and how it differs from the paper. `cannot`: what was not asked
    here, and why.
    """

    results: list[Result] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    cannot: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Study:
    """`paper` names what is re-made ("Figure 5"), `found` is what the paper found there, in a
    sentence or two.
    """

    name: str
    title: str
    question: str
    paper: str
    found: str
    schemata: tuple[str, ...]
    arms: Callable[[Plan], list[Arm]]
    analyse: Callable[[Plan, list[Run]], Answer]
    # Seconds that it takes by default, and the least that it can do something in.
    seconds: float = 60
    least_seconds: float = 5


def column(name: str, doc: str, unit: str = "", bar: bool = False) -> Column:
    return Column(name, unit, bar, doc)


def result(  # noqa: PLR0917
    name: str,
    title: str,
    question: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[Any]],
    picture: Picture | None = None,
    points: Rows | None = None,
    findings: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Result:
    """A table, with its picture, that no SQL file has made."""
    analysis = Analysis(
        name,
        Path(),
        "",
        title,
        question,
        picture=picture,
        columns={c.name: c for c in columns},
        notes=list(notes),
    )
    table = Rows([c.name for c in columns], [list(row) for row in rows])
    return Result(analysis, table=table, points=points or table, findings=list(findings))
