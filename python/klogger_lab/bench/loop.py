# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The program that hits the place, and a recorder around it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any

from klogger import program
from klogger.failure import Failure
from klogger_lab.bench import events as of
from klogger_lab.bench.engines import Hits
from klogger_lab.bench.events import Event, Place
from klogger_lab.build import build
from klogger_lab.recorder import Recorder


@dataclass(frozen=True)
class Bench:
    """A schema with the events, and the program that logs or causes them. `off` is the event that
    is off.
    """

    engine: str
    hits: Hits
    place: Place | None
    schema: Path
    program: Path
    off: str


def prepare(engine: str, hits: Hits, events: Sequence[Event], folder: Path) -> Bench:
    place = find_place() if hits.in_kernel else None
    schema = folder / "bench.klogger"
    schema.write_text(of.schema(events, place))
    source = folder / "klogger_loop.c"
    source.write_text(resources.files("klogger_lab").joinpath("bench", "loop.c").read_text())
    if place is None:
        program.klogger("gen", schema, "-o", folder)
        (folder / "arms.h").write_text(of.program(events))
    else:
        (folder / "arms.h").write_text(place.hit)
    return Bench(engine, hits, place, schema, build(folder, source.name), of.name_of_off(events))


def show(schema: str) -> dict[str, Any]:
    found: dict[str, Any] = program.answer("show", schema)
    return found


def find_place() -> Place:
    """The first of the places that this kernel has."""
    there = {t["name"] for t in program.answer("tracepoints")}
    for place in of.PLACES:
        if place.name in there:
            return place
    raise Failure(f"this kernel has none of the tracepoints {', '.join(p.name for p in of.PLACES)}")


class Loop:
    """The program, waiting for orders on one CPU. With several, each is on its own."""

    def __init__(self, bench: Bench, cpu: int) -> None:
        words: list[str | Path] = [
            bench.program,
            str(cpu),
            str(bench.hits.block),
            str(bench.hits.pause_ns),
        ]
        # Ctrl-C is for us, and we end the loop.
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
        )

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """At the end of its input it ends; one that is in the middle of something is killed."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self.process.communicate(timeout=1)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, *words: object) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        except OSError:
            raise self.gone() from None

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise self.gone()
        found: dict[str, Any] = json.loads(line)
        return found

    def gone(self) -> Failure:
        return Failure(
            f"the loop has ended with exit code {self.process.wait()} in the "
            "middle of the measurement"
        )

    def rounds(self, count: int, arms: Sequence[int]) -> dict[str, Any]:
        self.ask("rounds", count, *arms)
        return self.answer()


@contextlib.contextmanager
def recording(
    bench: Bench, pids: Sequence[int], log: Path, options: Sequence[str]
) -> Iterator[int]:
    """Records the loops while it is entered; what it yields is the recorder's process id."""
    options_of = ["--no-calibrate", "--engine", bench.engine, "-s", str(bench.schema)]
    where = "--dir" if "--segment" in options else "-o"
    options_of += [where, str(log), "--disable", bench.off, *(f"-p{pid}" for pid in pids), *options]
    with Recorder(options_of, log.with_suffix(".err")) as recorder:
        recorder.wait_started()
        yield recorder.pid
        if recorder.process.poll() is not None:
            raise recorder.failure()
    recorder.check()


def info(log: Path) -> dict[str, Any]:
    found: dict[str, Any] = program.answer("info", log)
    return found


def cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0))
