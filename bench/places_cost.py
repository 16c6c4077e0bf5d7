# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What probes cost that are not at tracepoints: system calls, and functions of programs; against
the least that is possible, and against others at the same places.
"""

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bpf import attached_all
from measure import NOT_HERE, cell, goal, rounds_of, run
from rivals import PATIENCE, aside, attached, other_cpus, running, until

from klogger_lab.recorder import Recorder

HERE = Path(__file__).resolve().parent / "places"
BLOCKS, HITS = 41, 400
# strace stops the program twice for each call.
FEW_BLOCKS, FEW_HITS = 21, 20
OPENED = "a file"
FUNCTION = "place_of_bench"
UNASKED = "klogger, openat only"
PAIR = "empty pair of programs"
CALLS = "klogger"
EMPTY = "empty uprobe"
PROFILE = "profile"
TRACERS_CALLS = {"strace": 0.1, "perf trace": 0.5, "bpftrace": 0.7}


class Loop:
    """bench/places/loop.c, running."""

    def __init__(self, tools, folder: Path):
        self.program = folder / "loop"
        run(["cc", "-O1", "-g", HERE / "loop.c", "-o", self.program])
        self.path = folder / OPENED
        self.path.touch()
        words = [self.program, tools.cpu, self.path]
        self.process = subprocess.Popen(
            list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *_) -> None:
        self.process.communicate(timeout=PATIENCE)

    @property
    def pid(self) -> int:
        return self.process.pid

    def ns(self, kind: str, few: bool = False) -> float:
        """Nanoseconds of a hit: the median of the blocks."""
        # A hit of the timer takes a millisecond.
        few = few or kind == PROFILE
        blocks, hits = (FEW_BLOCKS, FEW_HITS) if few else (BLOCKS, HITS)
        self.process.stdin.write(f"{kind} {blocks} {hits}\n")
        self.process.stdin.flush()
        return statistics.median(map(float, self.process.stdout.readline().split()))


@dataclass(frozen=True)
class Arm:
    """`attach(tools, loop)`: for as long as its block lasts. `few`: a hit takes microseconds."""

    name: str
    how: str
    attach: Callable
    few: bool = False


def added(tools, loop: Loop, kind: str, arm: Arm) -> dict[str, float]:
    """What the arm adds to a hit, in ns."""
    before = loop.ns(kind)
    with arm.attach(tools, loop):
        # The caches, and what the tracer does when it begins.
        loop.ns(kind, few=True)
        during = loop.ns(kind, arm.few)
    return {arm.name: during - (before + loop.ns(kind)) / 2}


def new_file(path: Path) -> Path:
    """What is in it afterwards is of this round."""
    path.unlink(missing_ok=True)
    return path


@contextmanager
def klogger(tools, loop: Loop, schema: Path) -> Iterator[None]:
    log = tools.folder / "places.klog"
    options = ["-s", schema, "-o", log, "--buffer-size", "16M", f"-p{loop.pid}"]
    with Recorder(options, tools.folder / "places.err") as recorder:
        recorder.wait_started()
        run(["taskset", "-a", "-c", "-p", other_cpus(tools), recorder.process.pid])
        yield


def profile_by_klogger(tools, loop: Loop):
    return klogger(tools, loop, HERE / "profile.klogger")


@contextmanager
def perf_profile(tools, loop: Loop) -> Iterator[None]:
    out = new_file(tools.folder / "perf-profile.data")
    words = ["perf", "record", "-q", "-B", "-N", "-e", "cpu-clock", "-F", "999", "-g", "-m", "16M"]
    with running([*aside(tools, [loop.pid]), *words, "-o", out, "-p", loop.pid]) as process:
        until(lambda: out.exists() and out.stat().st_size > 0, process, "perf record")
        time.sleep(0.3)
        yield


def openat_by_klogger(tools, loop: Loop):
    return klogger(tools, loop, HERE / "openat.klogger")


def function_by_klogger(tools, loop: Loop):
    schema = tools.folder / "function.klogger"
    text = (HERE / "function.klogger.in").read_text()
    schema.write_text(text.replace("@PATH@", str(loop.program)))
    return klogger(tools, loop, schema)


def empty_pair(tools, _loop: Loop):
    return attached_all(HERE / "calls.bpf.c", tools.clang)


def empty_uprobe(tools, loop: Loop):
    place = f'"{loop.program}:{FUNCTION}"'
    return attached_all(HERE / "function.bpf.c", tools.clang, f"-DFUNCTION={place}")


@contextmanager
def strace(tools, loop: Loop) -> Iterator[None]:
    out = new_file(tools.folder / "strace.out")
    with running(["strace", "-q", "-e", "trace=openat", "-o", out, "-p", loop.pid]) as process:
        traced = Path(f"/proc/{loop.pid}/status")
        until(lambda: f"TracerPid:\t{process.pid}\n" in traced.read_text(), process, "strace")
        yield


@contextmanager
def perf_trace(tools, loop: Loop) -> Iterator[None]:
    out = new_file(tools.folder / "perf-trace.out")
    words = [
        *aside(tools, [loop.pid]),
        "perf",
        "trace",
        "-e",
        "openat",
        "-m",
        "16M",
        "-o",
        out,
        "-p",
        loop.pid,
    ]
    with running(words) as process:
        # It does not say that it has begun: the first call in its file does.
        def begun() -> bool:
            loop.ns("openat", few=True)
            return out.exists() and out.stat().st_size > 0

        until(begun, process, "perf trace")
        yield


BPFTRACE_CALLS = """
tracepoint:syscalls:sys_enter_openat /pid == {pid}/ {{ @path[tid] = args->filename; }}
tracepoint:syscalls:sys_exit_openat /pid == {pid}/ {{
    printf("%llu %d %s %d\\n", nsecs, tid, str(@path[tid]), args->ret); delete(@path[tid]); }}
"""
BPFTRACE_FUNCTION = (
    'uprobe:{program}:{function} /pid == {pid}/ {{ printf("%llu %d %d\\n", nsecs, arg0, arg1); }}'
)


@contextmanager
def bpftrace(tools, loop: Loop, script: str) -> Iterator[None]:
    words = [*aside(tools, [loop.pid]), "bpftrace", "-B", "full"]
    words += ["-o", tools.folder / "bpftrace.out", "-e", script]
    env = {**os.environ, "BPFTRACE_PERF_RB_PAGES": "4096"}
    with running(words, env=env) as process:
        until(lambda: attached(process.pid), process, "bpftrace")
        yield


def bpftrace_calls(tools, loop: Loop):
    return bpftrace(tools, loop, BPFTRACE_CALLS.format(pid=loop.pid))


def bpftrace_function(tools, loop: Loop):
    names = {"program": loop.program, "function": FUNCTION, "pid": loop.pid}
    return bpftrace(tools, loop, BPFTRACE_FUNCTION.format(**names))


@contextmanager
def perf_probe(tools, loop: Loop) -> Iterator[None]:
    """perf record of a uprobe of its own, which is removed again."""
    event, out = "probe_klogger_bench:place", new_file(tools.folder / "perf.data")
    run(["perf", "probe", "-q", "-x", loop.program, f"{event}={FUNCTION}"])
    try:
        words = [*aside(tools, [loop.pid]), "perf", "record", "-q", "-B", "-N", "-m", "16M"]
        words += ["-e", event, "-o", out]
        with running([*words, "-p", loop.pid]) as process:
            until(lambda: out.exists() and out.stat().st_size > 0, process, "perf record")
            time.sleep(0.3)
            yield
    finally:
        run(["perf", "probe", "-q", "-d", event])


CALLS_ARMS = [
    Arm(CALLS, "`bench/places/openat.klogger`: path and result in one event", openat_by_klogger),
    Arm("strace", "`strace -e trace=openat -o FILE -p PID`", strace, few=True),
    Arm("perf trace", "`perf trace -e openat -m 16M -o FILE -p PID`", perf_trace, few=True),
    Arm("bpftrace", "entry and exit joined by a map, one `printf` with the path", bpftrace_calls),
]
UNASKED_ARMS = [
    Arm(PAIR, "`bench/places/calls.bpf.c`: at all entries, at all exits", empty_pair),
    Arm(UNASKED, "records openat, while the loop calls getppid", openat_by_klogger),
]
FUNCTION_ARMS = [
    Arm(EMPTY, "`bench/places/function.bpf.c`", empty_uprobe),
    Arm(CALLS, "`bench/places/function.klogger.in`: two numbers", function_by_klogger),
    Arm("bpftrace", "`printf` of the time and two numbers", bpftrace_function),
    Arm("perf record", "`perf probe`, `perf record -m 16M -p PID`: no arguments", perf_probe),
]

PROFILE_ARMS = [
    Arm(CALLS, "`bench/places/profile.klogger`: both stacks", profile_by_klogger),
    Arm("perf record", "`perf record -e cpu-clock -F 999 -g -m 16M -p PID`", perf_profile),
]


def section(tools, kind: str, arms: list[Arm], title: str, text: str, goals: list) -> list[str]:
    folder = tools.folder / kind
    folder.mkdir()
    with Loop(tools, folder) as loop:
        plain = loop.ns(kind)
        each = {arm.name: lambda arm=arm: added(tools, loop, kind, arm) for arm in arms}
        results, missing = rounds_of(each, tools.rounds)
    cells = {name: cell(values, 0) for name, values in results.items()}
    cells |= {name: f"{NOT_HERE}: {reason}" for name, reason in missing.items()}
    rows = [f"| {arm.name} | {cells[arm.name]} |" for arm in arms]
    verdicts = [
        goal(f"{over} / {under}", results.get(over), results.get(under), most, paired=True)
        for over, under, most in goals
    ]
    return [
        f"## {title}", "",
        f"{text} Added to a hit, which takes {plain:.0f} ns with nothing attached, in ns of the"
        " clock.", "",
        "| | ns |", "|---|---|", *rows, "", *verdicts, "",
        *(f"- {arm.name}: {arm.how}" for arm in arms),
    ]  # fmt: skip


def unasked(tools) -> list[str]:
    return section(
        tools, "unasked", UNASKED_ARMS, "A system call that nobody asked for",
        "getppid(), while something else is recorded.", [(UNASKED, PAIR, 1.15)],
    )  # fmt: skip


def calls(tools) -> list[str]:
    return section(
        tools, "openat", CALLS_ARMS, "openat() with its path and its result",
        "openat() and close() of one file. All log the path, the result and the time.",
        [(CALLS, name, most) for name, most in TRACERS_CALLS.items()],
    )  # fmt: skip


def function(tools) -> list[str]:
    return section(
        tools, "function", FUNCTION_ARMS, "A function of a program",
        "A function that adds two numbers.", [(CALLS, EMPTY, 1.1)],
    )  # fmt: skip


def profile(tools) -> list[str]:
    return section(
        tools, PROFILE, PROFILE_ARMS, "A timer at 999 Hz, with both stacks",
        "A loop in 16 nested calls, which sees what is taken from it between two reads of the"
        " clock: also by all else that runs there.", [(CALLS, "perf record", 1.0)],
    )  # fmt: skip
