# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Other tracers at the place that a loop hits, each configured as its own documentation advises for
speed.

A rival is attached for as long as a block lasts. What the block has yielded says afterwards how
many events are in the rival's file, if it has one, and how large that is.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bpf import compiled
from measure import run

HERE = Path(__file__).resolve().parent
# For a tracer to attach, and to write down what it has.
PATIENCE = 60.0
INSTANCE = "klogger-bench"
SMALL_KB, LARGE_KB = 4096, 16384
# Without -d and -k it would touch the tracer of functions, which not every kernel allows.
TRACE_CMD = ["trace-cmd", "record", "-q", "-d", "-k", "-B", INSTANCE]
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


@dataclass
class Kept:
    """What a rival's file has, after the block. None: there is no file."""

    events: int | None = None
    bytes: int = 0


@dataclass(frozen=True)
class Rival:
    """`how`: its configuration, in words. `attach(tools, pids, kb)`, with a buffer of so many KiB
    for each CPU.
    """

    name: str
    how: str
    attach: Callable


def other_cpus(tools) -> str:
    """Where a reader does not stand in the way of the loop; the loop's own CPU, if there is no
    other.
    """
    return ",".join(str(cpu) for cpu in range(os.cpu_count()) if cpu != tools.cpu) or str(tools.cpu)


def aside(tools, pids: Sequence[int]) -> list[str]:
    """Before a command: to the side of one loop. Of loops on all CPUs there is no side."""
    return ["taskset", "-c", other_cpus(tools)] if len(pids) == 1 else []


def until(done: Callable[[], bool], process: subprocess.Popen, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        if process.poll() is not None:
            said = process.stderr.read().strip() if process.stderr else ""
            raise RuntimeError(
                f"{what} has ended with exit code {process.returncode}: {said}".rstrip(": ")
            )
        if time.monotonic() > end:
            raise RuntimeError(f"{what} was not ready after {PATIENCE:.0f} s")
        time.sleep(0.02)


@contextmanager
def running(words: list, **more) -> Iterator[subprocess.Popen]:
    """A tracer that ends by SIGINT, as Ctrl-C ends it; or, if it reads from us, with its input."""
    words = list(map(str, words))
    quiet = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    process = subprocess.Popen(words, **{**quiet, **more}, process_group=0)
    try:
        yield process
    finally:
        if process.poll() is None and process.stdin is None:
            process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def switched_on(folder: Path, events: list[str]):
    for event in events:
        (folder / "events" / event / "enable").write_text("1")
    try:
        yield
    finally:
        for event in events:
            (folder / "events" / event / "enable").write_text("0")


@contextmanager
def ftrace_events(tools, events: list[str], kb: int = LARGE_KB):
    """An ftrace instance of our own, whose buffer keeps the newest; it is not read."""
    instance = tools.tracing / "instances" / INSTANCE
    instance.mkdir()
    try:
        (instance / "buffer_size_kb").write_text(str(kb))
        with switched_on(instance, events):
            yield Kept()
    finally:
        instance.rmdir()


def ftrace(tools, _pids, kb):
    return ftrace_events(tools, [f"task/{tools.place}"], kb)


def buffered(instance: Path) -> int:
    """Events that an instance's buffers have had room for: those that were read, and those that are
    still there.
    """
    total = 0
    for stats in instance.glob("per_cpu/cpu*/stats"):
        of = dict(line.split(": ") for line in stats.read_text().splitlines() if ": " in line)
        total += int(of["entries"]) + int(of["read events"])
    return total


@contextmanager
def instance_of_trace_cmd(tools) -> Iterator[Path]:
    """The folder of its instance, which it leaves behind; as it leaves all tracing switched off."""
    instance, switch = tools.tracing / "instances" / INSTANCE, tools.tracing / "tracing_on"
    before = switch.read_text()
    try:
        yield instance
    finally:
        switch.write_text(before)
        if instance.exists():
            (instance / "events/enable").write_text("0")
            instance.rmdir()


@contextmanager
def trace_cmd(tools, pids, kb):
    """Its own instance, whose full buffers overwrite the oldest, as ftrace does; its readers splice
    pages to files.
    """
    out, kept = tools.folder / "trace.dat", Kept()
    words = [*aside(tools, pids), *TRACE_CMD, "-b", kb, "-e", f"task:{tools.place}", "-o", out]
    try:
        with instance_of_trace_cmd(tools) as instance:
            enabled = instance / "events/task" / tools.place / "enable"
            # It runs as long as its command does.
            with running([*words, "cat"], cwd=tools.folder, stdin=subprocess.PIPE) as process:
                until(
                    lambda: enabled.exists() and enabled.read_text().strip() == "1",
                    process,
                    "trace-cmd record",
                )
                # The readers start after the events.
                time.sleep(0.2)
                yield kept
                enabled.write_text("0")
                kept.events = buffered(instance)
            kept.bytes = out.stat().st_size
    finally:
        for left in tools.folder.glob("trace.dat*"):
            left.unlink()


def perf(tools, pids, kb):
    return perf_events(tools, pids, [f"task:{tools.place}"], kb)


def perf_words(events: Sequence[str], buffer: str) -> list[str]:
    """perf record with least effort: no build ids, no cache of them."""
    return ["perf", "record", "-q", "-B", "-N", "-m", buffer, "-e", ",".join(events)]


@contextmanager
def perf_events(tools, pids: Sequence[int], events: Sequence[str], kb: int, *more: str):
    """perf record of processes that run already; its own answer says that it has begun."""
    out, control, answer = (
        tools.folder / name for name in ("perf.data", "perf-control", "perf-answer")
    )
    for fifo in (control, answer):
        fifo.unlink(missing_ok=True)
        os.mkfifo(fifo)
    words = [*aside(tools, pids), *perf_words(events, f"{kb}K"), *more]
    words += [
        "-p",
        ",".join(map(str, pids)),
        "-D",
        "-1",
        "--control",
        f"fifo:{control},{answer}",
        "-o",
        out,
    ]
    kept = Kept()
    try:
        with (
            opened(control, os.O_RDWR) as orders,
            opened(answer, os.O_RDONLY | os.O_NONBLOCK) as said,
        ):
            os.write(orders, b"enable\n")
            with running(words) as process:
                until(lambda: there_is(said), process, "perf record")
                yield kept
        kept.events, kept.bytes = samples(out), out.stat().st_size
    finally:
        out.unlink(missing_ok=True)


@contextmanager
def opened(fifo: Path, flags: int) -> Iterator[int]:
    """A FIFO, without waiting for who opens its other end."""
    fd = os.open(fifo, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def there_is(fifo: int) -> bool:
    try:
        return os.read(fifo, 64) != b""
    except BlockingIOError:
        return False


def samples(data: Path) -> int:
    """Of a perf.data: its samples."""
    for line in run(["perf", "report", "--stats", "-i", data]).splitlines():
        words = line.split()
        if words[:2] == ["SAMPLE", "events:"]:
            return int(words[2])
    return 0


BPFTRACE = 'tracepoint:task:{place} {{ printf("%llu %d %d\\n", nsecs, args->option, args->arg2); }}'


@contextmanager
def bpftrace(tools, pids, kb):
    """A printf() for each event, which bpftrace's reader makes a line of. It has no cheaper way to
    get events out.
    """
    out = tools.folder / "bpftrace.out"
    env = {**os.environ, "BPFTRACE_PERF_RB_PAGES": str(kb // PAGE_KB)}
    words = [
        *aside(tools, pids),
        "bpftrace",
        "-B",
        "full",
        "-o",
        out,
        "-e",
        BPFTRACE.format(place=tools.place),
    ]
    kept = Kept()
    try:
        with running(words, env=env) as process:
            until(lambda: attached(process.pid), process, "bpftrace")
            yield kept
        with out.open("rb") as lines:
            kept.events = sum(1 for line in lines if line[:1].isdigit())
        kept.bytes = out.stat().st_size
    finally:
        out.unlink(missing_ok=True)


def attached(pid: int) -> bool:
    """Whether a process has a program at a tracepoint."""
    return any(
        one["pid"] == pid for one in json.loads(run(["bpftool", "-j", "perf", "show"]) or "[]")
    )


def ring_programs(tools, times: int = 1) -> tuple[Path, Path]:
    """ring.bpf.c, which logs so many events a hit, and its reader; compiled once."""
    reader, program = tools.folder / "ring", tools.folder / f"ring-{times}.o"
    if not reader.exists():
        if not Path("/usr/include/bpf/libbpf.h").exists():
            raise RuntimeError("no bpf/libbpf.h: apt-get install libbpf-dev")
        run(["gcc", "-O2", HERE / "ring.c", "-lbpf", "-o", reader])
    if not program.exists():
        compiled("ring", tools.place, tools.clang, program, f"-DTIMES={times}")
    return reader, program


@contextmanager
def ring(tools, pids, kb, times: int = 1):
    """One ring for all CPUs, with as much memory as others have for each of them."""
    reader, program = ring_programs(tools, times)
    out, bytes_all = tools.folder / "ring.out", kb * 1024
    while bytes_all < kb * 1024 * os.cpu_count():
        bytes_all *= 2
    kept = Kept()
    words = [*aside(tools, pids), reader, program, bytes_all, out]
    try:
        with running(words, stdout=subprocess.PIPE) as process:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(
                    f"the ring buffer program has not begun: {process.stderr.read().strip()}"
                )
            yield kept
            process.send_signal(signal.SIGINT)
            kept.events = json.loads(process.stdout.readline())["logged"]
        kept.bytes = out.stat().st_size
    finally:
        out.unlink(missing_ok=True)


RIVALS = {
    "ftrace event": Rival(
        "ftrace event", "an instance of its own that overwrites the oldest; it is not read", ftrace
    ),
    "trace-cmd record": Rival(
        "trace-cmd record", "`trace-cmd record -d -k -B NAME -e task:PLACE`", trace_cmd
    ),
    "perf record": Rival("perf record", "`perf record -B -N -e task:PLACE -p PID`", perf),
    "bpftrace": Rival(
        "bpftrace",
        '`bpftrace -B full -o FILE`, `printf("%llu %d %d\\n", nsecs, args->option, args->arg2)`:'
        " the only way out for single events",
        bpftrace,
    ),
    "BPF ring buffer": Rival(
        "BPF ring buffer",
        "`bench/ring.bpf.c`: reserve, fill, submit, woken every 256 KiB; `bench/ring.c` writes the"
        " events to a file",
        ring,
    ),
}


def why_no_lttng() -> str:
    """LTTng's tracer of the kernel is a module."""
    if not Path("/proc/modules").exists():
        return "this kernel loads no modules, which LTTng's tracer of the kernel is made of"
    if not shutil.which("lttng"):
        return "no lttng: apt-get install lttng-tools lttng-modules-dkms"
    done = subprocess.run(
        ["modprobe", "-n", "lttng-tracer"], capture_output=True, text=True, check=False
    )
    return done.stderr.strip() or "its modules can be loaded, but this table has no arm for them"
