# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Figures 2 to 4 of the KLogger paper: CPU time lost spinning for locks, by load, parallelism and
lock.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from klogger import executor
from klogger.analysis import Column, Picture
from klogger.durations import duration
from klogger_lab.machine import Machine
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, result

# What the paper's text says of its Figure 2, at 4 processes and at 32: share of all cycles. Empty
# is not told.
PAPER = {
    "web": ("about 9 %", "over 20 %"),
    "compile on disk": ("just over 1 %", "over 15 %"),
    "compile on tmpfs": ("just over 3 %", "over 15 %"),
    "round robin 100:200": ("", "a little over 6 %"),
}
PAPER_CPUS = 4
SIZES = ("1:1", "64:64", "128:8192")
LEVELS = ([1, 2, 4, 8, 16, 32], [1, 2, 4, 8, 32], [1, 4, 32], [1, 32], [32])
# Seconds that an arm takes beside its load, and the least that a load runs.
AROUND = 1.2
LEAST = 0.5
FILES_MAX = 400
# A share of CPU time as ns in a second, which also shows small ones.
LOST = 1e9
# With fewer waits, two shares are not compared.
ENOUGH = 200


@dataclass
class Spun:
    """What a log says, in parts of all CPU time."""

    busy: float
    mutex: float
    classes: dict[str, float]
    waits: int
    ratio: str
    top_wait: str


def levels(plan: Plan) -> list[int]:
    """Numbers of processes at once, as many as there is time for. The loads are five."""
    for some in LEVELS:
        if (len(some) * len(PAPER) + len(SIZES) + 1) * (AROUND + LEAST) <= plan.seconds:
            return some
    return LEVELS[-1]


def arms(plan: Plan) -> list[Arm]:
    counts = levels(plan)
    extra = SIZES if len(counts) > 2 else ()
    number = len(counts) * len(PAPER) + len(extra) + 1
    seconds = max(plan.seconds / number - AROUND, LEAST)
    make = partial(arm, seconds)
    loads, planted = plan.build("loads.c"), plan.build("../workload.c")
    files = min(FILES_MAX, max(24, int(plan.seconds * 4)))
    memory, disk = memory_folder(), plan.folder / "sources"
    found = [make("planted", 4, [planted, "held", "4", f"{seconds:.1f}"], oracle)]
    for n in counts:
        if memory:
            sources = partial(sources_in, memory, files)
            found.append(
                make("compile on tmpfs", n, compile_command(memory, n, files, seconds), sources)
            )
            web: list[str | Path] = [
                loads,
                "web",
                str(n),
                str(files),
                str(memory),
                f"{seconds:.1f}",
            ]
            found.append(make("web", n, web, sources))
        sources = partial(sources_in, disk, files)
        found.append(make("compile on disk", n, compile_command(disk, n, files, seconds), sources))
        found.append(
            make(
                "round robin 100:200",
                n,
                [loads, "rr", str(n), "100", "200", f"{seconds:.1f}"],
                oracle,
            )
        )
    for size in extra:
        command: list[str | Path] = [
            loads,
            "rr",
            str(2 * plan.machine.cpus),
            *size.split(":"),
            f"{seconds:.1f}",
        ]
        found.append(make(f"round robin {size}", 2 * plan.machine.cpus, command, oracle))
    return found


def arm(seconds: float, load: str, count: int, command: Sequence[str | Path], around: Any) -> Arm:
    return Arm(
        f"{load}, {count}", command, seconds, {"load": load, "processes": count}, around=around
    )


def memory_folder() -> Path | None:
    """A folder in memory for the sources, or None if there is no tmpfs that one can write to."""
    mounts = Path("/proc/mounts").read_text().splitlines()
    for line in mounts:
        _, where, kind, *_ = line.split()
        if kind == "tmpfs" and where in ("/dev/shm", "/tmp", "/run") and os.access(where, os.W_OK):
            return Path(where) / f"klogger-study-locks-{os.getpid()}"
    return None


def compile_command(folder: Path, count: int, files: int, seconds: float) -> Sequence[str | Path]:
    """Like make -j: COUNT compilers at once, each for one file, again from the first until the time
    is over.
    """
    compiler = os.environ.get("CC", "cc")
    script = (
        f"while seq {files}; do :; done 2>/dev/null | timeout {seconds:.1f} xargs -P {count} -I N"
        f" {compiler} -O1 -c -o {folder}/N.o {folder}/N.c; true"
    )
    return ["sh", "-c", script]


def source(number: int) -> str:
    """C that gives a compiler some milliseconds of work; each file is another one."""
    functions = [
        f"int f{number}_{k}(int x) {{ for (int i = 0; i < x; i++) x ^= i * {k + number}; return x +"
        ' printf("%d", x); }'
        for k in range(20)
    ]
    return "\n".join(
        ["#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>", *functions, ""]
    )


@contextmanager
def sources_in(folder: Path, files: int) -> Iterator[dict[str, int]]:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for number in range(1, files + 1):
            (folder / f"{number}.c").write_text(source(number))
        with oracle() as counted:
            yield counted
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def oracle() -> Iterator[dict[str, int]]:
    """What the kernel's own accounts say went by, in ns, all CPUs together."""
    counted: dict[str, int] = {}
    before = cpu_times()
    yield counted
    counted.update({name: time - before[name] for name, time in cpu_times().items()})


def cpu_times() -> dict[str, int]:
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    tick = 10**9 // os.sysconf("SC_CLK_TCK")
    return {name: int(word) * tick for name, word in zip(names, words, strict=False)}


def spun(one: Run) -> Spun | None:
    """The answers of this schema's analyses to one log."""
    if one.log is None:
        return None
    wanted = ("waits", "spin_share", "by_class", "ratio_access")
    chosen = [a for a in executor.choose(one.log) if a.schema == "locking" and a.name in wanted]
    answers = {r.analysis.name: r for r in executor.run_all(one.log, chosen)}
    rows = {
        name: [dict(zip(r.table.names, row, strict=True)) for row in r.table.rows]
        for name, r in answers.items()
    }
    shares = {row["lock"]: row["share"] for row in rows.get("spin_share", [])}
    busy = sum(share for lock, share in shares.items() if lock in ("spin lock", "rwlock"))
    classes: dict[str, float] = {}
    whole = sum(shares.values())
    for row in rows.get("by_class", []):
        classes[row["class"]] = classes.get(row["class"], 0.0) + row["share"] * whole
    waits = rows.get("waits", [])
    contended = rows.get("ratio_access", [])
    ratio = contended[0].get("ratio") if contended else None
    named = f"{contended[0]['class']} {ratio:.1f} x {contended[1]['class']}" if ratio else "-"
    top = waits[0]["lock"] if waits else "-"
    return Spun(
        busy, sum(shares.values()) - busy, classes, sum(r["waits"] for r in waits), named, top
    )


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    answer = Answer()
    found = [(one, s) for one in runs if (s := spun(one)) is not None]
    loads = [(one, s) for one, s in found if one.arm.parameters["load"] != "planted"]
    answer.results = [figure2(loads), figure3(loads), figure4(loads), leagues(loads)]
    answer.sentences = sentences(plan.machine, loads)
    answer.checks = checks(found)
    answer.cannot = cannot(plan, loads)
    return answer


def column(name: str, unit: str, doc: str, bar: bool = False) -> Column:
    return Column(name, unit, bar, doc)


def figure2(loads: list[tuple[Run, Spun]]) -> Any:
    columns = [
        column("load", "", "load"),
        column("processes", "count", "processes at once"),
        column(
            "spinning",
            "share",
            "share of all CPU time that went into spinning for spin locks and rwlocks",
        ),
        column(
            "lost",
            "ns",
            "time spent spinning for locks of any kind in each second of CPU time",
            bar=True,
        ),
        column("mutexes", "share", "share that went into spinning for mutexes"),
        column("waits", "count", "waits for locks of any kind"),
        column(
            "system",
            "share",
            "share of all CPU time that the whole machine spent in the kernel, as it counts itself",
        ),
        column("paper", "", "the paper's share, as its text tells it, where it tells one"),
    ]
    rows, points = [], []
    for one, s in sorted(loads, key=order):
        load, count = one.arm.parameters["load"], one.arm.parameters["processes"]
        times = one.oracle or {}
        system = (times.get("system", 0) + times.get("irq", 0) + times.get("softirq", 0)) / max(
            sum(times.values()), 1
        )
        rows.append(
            [
                load,
                count,
                s.busy,
                LOST * (s.busy + s.mutex),
                s.mutex,
                s.waits,
                system,
                paper(str(load), int(count)),
            ]
        )
        points += [
            [f"{load}, {count}", LOST * s.busy, "spin locks, rwlocks"],
            [f"{load}, {count}", LOST * s.mutex, "mutexes"],
        ]
    return drawn(
        "figure2",
        ("CPU time lost spinning",
         "How does spinning grow with the number of processes? (Figure 2)"),
        columns, rows, points, "kind",
        ["The paper counted cycles of four CPUs. Its kernel had the Big Kernel Lock, which"
         " left Linux in 2.6.39."],
    )  # fmt: skip


def figure3(loads: list[tuple[Run, Spun]]) -> Any:
    """The worst class of all levels together against the others, for the compile in memory, or on
    disk without one.
    """
    name = (
        "compile on tmpfs"
        if any(o.arm.parameters["load"] == "compile on tmpfs" for o, _ in loads)
        else "compile on disk"
    )
    mine = sorted((x for x in loads if x[0].arm.parameters["load"] == name), key=order)
    top = worst(mine)
    columns = [
        column("processes", "count", "processes at once"),
        column(
            "lock",
            "",
            "class of the lock; of that with the most spinning at all numbers of processes, and all"
            " others",
        ),
        column("lost", "ns", "time spent spinning in each second of CPU time", bar=True),
        column("paper", "", "what the paper found"),
    ]
    rows, points = [], []
    for one, s in mine:
        count = one.arm.parameters["processes"]
        for lock, share, told in (
            (top, s.classes.get(top, 0.0), "Big Kernel Lock: most of it"),
            (
                "all others",
                sum(s.classes.values()) - s.classes.get(top, 0.0),
                "2 % at most, mostly 0.5 %",
            ),
        ):
            rows.append([count, lock, LOST * share, told])
            points.append([str(count), LOST * share, lock])
    title = f"The worst lock of a {name}"
    return drawn(
        "figure3", (title, "Is it one lock, or many? (Figure 3)"), columns, rows, points, "lock", []
    )


def figure4(loads: list[tuple[Run, Spun]]) -> Any:
    mine = sorted(
        (x for x in loads if x[0].arm.parameters["load"] == "round robin 100:200"), key=order
    )
    total: dict[str, float] = {}
    for _, s in mine:
        for name, share in s.classes.items():
            total[name] = total.get(name, 0.0) + share
    shown = sorted(total, key=lambda c: (-total[c], c))[:7]
    columns = [
        column("processes", "count", "pairs of processes"),
        column("class", "", "class of the lock"),
        column("lost", "ns", "time spent spinning in each second of CPU time", bar=True),
        column("part", "share", "its part of all spinning with so many pairs"),
    ]
    rows, points = [], []
    for one, s in mine:
        count, whole = one.arm.parameters["processes"], sum(s.classes.values())
        named = [(c, s.classes.get(c, 0.0)) for c in shown]
        rest = whole - sum(share for _, share in named)
        for name, share in [*named, ("all others", rest)]:
            if share > 0:
                rows.append([count, name, LOST * share, share / whole])
            points.append([str(count), LOST * max(share, 0.0), name])
    note = (
        "The paper had a network card: the lock of its driver came first, then those of the"
        " sockets; all other locks had about 33 %, mostly wait queues. Loopback has no driver and"
        " no link that can be full."
    )
    return drawn(
        "figure4",
        ("Locks of round robin, 100:200", "Which locks does a network server spin for? (Figure 4)"),
        columns, rows, points, "class", [note],
    )  # fmt: skip


def leagues(loads: list[tuple[Run, Spun]]) -> Any:
    columns = [
        column("load", "", "load"),
        column("processes", "count", "processes at once"),
        column("most", "", "the lock that threads waited for most of the time"),
        column(
            "ratio",
            "",
            "contended acquisitions of the class that has the most, and how many times as many as"
            " the next",
        ),
    ]
    rows = [
        [one.arm.parameters["load"], one.arm.parameters["processes"], s.top_wait, s.ratio]
        for one, s in sorted(loads, key=order)
    ]
    note = (
        "The paper found the driver's lock taken almost 3 times as often as the next one. It"
        " counted all acquisitions; what the kernel's tracepoints show are those that had to wait."
    )
    return result(
        "leagues",
        "Locks that are waited for",
        "Which locks come first?",
        columns,
        rows,
        notes=[note],
    )


def drawn(
    name: str,
    heading: tuple[str, str],
    columns: list[Column],
    rows: list[list[Any]],
    points: list[list[Any]],
    colour: str,
    notes: list[str],
) -> Any:
    picture = Picture("stacked", {"x": "lost", "y": "arm", "colour": colour})
    named = executor.Rows(["arm", "lost", colour], points)
    made = result(name, *heading, columns, rows, picture, named, notes=notes)
    # What the picture shows, and the table does not have.
    shown = {c.name: c for c in columns}
    shown.setdefault(
        "arm",
        column("arm", "", "load and processes at once" if "load" in shown else columns[0].doc),
    )
    shown.setdefault(colour, column(colour, "", "lock"))
    return replace(made, analysis=replace(made.analysis, columns=shown))


def order(x: tuple[Run, Spun]) -> tuple[str, int]:
    return str(x[0].arm.parameters["load"]), int(x[0].arm.parameters["processes"])


def worst(loads: list[tuple[Run, Spun]]) -> str:
    total: dict[str, float] = {}
    for _, s in loads:
        for name, share in s.classes.items():
            total[name] = total.get(name, 0.0) + share
    return min(total, key=lambda c: (-total[c], c)) if total else "none"


def paper(load: str, count: int) -> str:
    at4, at32 = PAPER.get(load, ("", ""))
    return {PAPER_CPUS: at4, 32: at32}.get(count, "")


def sentences(machine: Machine, loads: list[tuple[Run, Spun]]) -> list[str]:
    said = []
    for load, (_, at32) in PAPER.items():
        mine = [
            (int(o.arm.parameters["processes"]), s.busy)
            for o, s in loads
            if o.arm.parameters["load"] == load
        ]
        if mine:
            count, share = max(mine, key=lambda m: m[1])
            paper_said = f"; in the paper it was {at32}, with 32"
            said.append(
                f"{load}: at most {100 * share:.2g} % of CPU time spinning, with {count}"
                f" processes{paper_said}."
            )
    said += compared(machine, loads)
    said.append(
        f"This machine has {machine.cpus} CPUs, the paper's had {PAPER_CPUS}: there cannot be more"
        f" who spin at the same time than {machine.cpus - 1}."
    )
    return said


def compared(machine: Machine, loads: list[tuple[Run, Spun]]) -> list[str]:
    """The compile in memory and on disk, with as many processes as there are CPUs, or nearly."""
    count = nearest(loads, machine.cpus)
    at = {
        str(o.arm.parameters["load"]): s
        for o, s in loads
        if int(o.arm.parameters["processes"]) == count
    }
    memory, disk = at.get("compile on tmpfs"), at.get("compile on disk")
    if memory is None or disk is None:
        return []
    if min(memory.waits, disk.waits) < ENOUGH:
        return [
            f"With {count} processes, too few waits were seen to compare the compiles on tmpfs and"
            " on disk."
        ]
    return [
        f"With {count} processes, the compile on tmpfs spun"
        f" {'more' if memory.busy > disk.busy else 'not more'} than that on disk:"
        f" {100 * memory.busy:.2g} % and {100 * disk.busy:.2g} %. The paper saw 3 % and 1 %. One"
        " run of each: a difference may be chance."
    ]


def nearest(loads: list[tuple[Run, Spun]], cpus: int) -> int:
    counts = sorted(
        {int(o.arm.parameters["processes"]) for o, _ in loads if o.arm.parameters["load"] in PAPER}
    )
    return min(counts, key=lambda n: (abs(n - cpus), n)) if counts else 0


def checks(found: list[tuple[Run, Spun]]) -> list[Check]:
    """Spinning is work of the kernel, so it cannot take more time than the kernel had, with what a
    host took.
    """
    made, worst_case = [], ("", 0.0, 0.0)
    for one, s in found:
        times = one.oracle or {}
        # Each CPU's account may be short by a tick.
        limit = sum(times.get(k, 0) for k in ("system", "irq", "softirq", "steal")) + 20e6 * (
            os.cpu_count() or 1
        )
        if one.log is None or not times:
            continue
        cpu_ns = one.log.sql(
            "SELECT (to_ns - from_ns) * len(cpus) FROM klogger.recording"
        ).fetchall()[0][0]
        spinning = (s.busy + s.mutex) * cpu_ns
        if spinning / max(limit, 1) >= worst_case[1] / max(worst_case[2], 1):
            worst_case = (one.arm.name, spinning, limit)
    if worst_case[0]:
        name, spinning, limit = worst_case
        text = (
            f"at most, with {name}: {duration(spinning)} spinning, {duration(limit)} in the"
            " kernel, stolen time included"
        )
        made.append(
            Check("spin time is not longer than time in the kernel", spinning <= limit, text)
        )
    for one, s in found:
        if one.arm.parameters["load"] == "planted":
            text = (
                "one thread holds the mmap lock long; the lock that was waited for most is:"
                f" {s.top_wait}"
            )
            made.append(
                Check("the planted lock is found", s.top_wait.startswith("mmap lock"), text)
            )
    return made


def cannot(plan: Plan, loads: list[tuple[Run, Spun]]) -> list[str]:
    said = [
        "How often a lock is taken without waiting: the kernel's tracepoints are hit by waits only."
    ]
    if not any(o.arm.parameters["load"] == "web" for o, _ in loads):
        said.append(
            "Compile in memory, and the web server: there is no tmpfs that can be written to."
        )
    if levels(plan) != LEVELS[0]:
        said.append(
            "All numbers of processes from 1 to 32: there was no time for them. Give it a larger"
            " --budget."
        )
    if loads and not any(s.busy for _, s in loads):
        said.append(
            "Spinning for spin locks: none was seen. Without paravirtual locks a virtual machine"
            " shows none, and with two CPUs the first waiter spins where no tracepoint is."
        )
    return said


STUDY = Study(
    name="locks",
    title="CPU time lost spinning for locks",
    question=(
        "Which part of all CPU time is lost spinning for locks of the kernel, and which locks are"
        " responsible?"
    ),
    paper="Figures 2 to 4",
    found=(
        "With 32 processes on 4 CPUs, over 20 % of all cycles went into spinning with a web server,"
        " over 15 % with a parallel compile, 6 % with a network server; nearly all of the compile's"
        " for the Big Kernel Lock."
    ),
    schemata=("locking",),
    arms=arms,
    analyse=analyse,
    seconds=120,
    least_seconds=12,
)
