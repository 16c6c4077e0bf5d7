# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Figure 11: what the timer interrupt costs, by the clock that the kernel keeps its time with; and
what it buys.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from klogger.analysis import Column, Picture
from klogger.durations import duration
from klogger.executor import Result
from klogger.failure import Failure
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run, Study, result

CLOCKS = Path("/sys/devices/system/clocksource/clocksource0")
CURRENT, AVAILABLE = CLOCKS / "current_clocksource", CLOCKS / "available_clocksource"
GETTIMEOFDAY = 96
# Calls that are logged, so that one can see whether they enter the kernel; and calls that are
# timed, without a log.
LOGGED, TIMED = 1000, 200_000
AROUND = 1.5
# Another clock is for all programs of this machine: it is tried only if there is time to learn
# something.
SECONDS_FOR_OTHERS = 12


def arms(plan: Plan) -> list[Arm]:
    """Each clock twice, in turn and back: what changes in the course of time must not look like the
    clock's doing.
    """
    names = clocks(plan)
    order = [*names, *reversed(names)] if len(names) > 1 else names
    seconds = max(plan.seconds / len(order) - AROUND, 1)
    program, cpu = plan.build("clocks.c"), plan.machine.cpus - 1
    timed = [program, "0", str(cpu), str(TIMED)]
    return [
        Arm(
            f"{name}, {'again' if name in order[:k] else 'first'}",
            [program, f"{seconds:.2f}", str(cpu), str(LOGGED)],
            seconds,
            {"cpu": cpu, "clock": name},
            around=partial(with_clock, name, timed),
        )
        for k, name in enumerate(order)
    ]


def clocks(plan: Plan) -> list[str]:
    """The current one first."""
    current = plan.machine.clocksource
    others = (
        [n for n in AVAILABLE.read_text().split() if n != current] if AVAILABLE.exists() else []
    )
    return [current, *others] if plan.seconds >= SECONDS_FOR_OTHERS else [current]


@contextlib.contextmanager
def with_clock(name: str, timed: list[Any]) -> Iterator[dict[str, Any]]:
    """What calls cost is measured before the recording, which would be part of it."""
    with chosen(name):
        done = subprocess.run(
            [str(w) for w in timed], capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode != 0:
            raise Failure(done.stderr.strip() or f"{timed[0]} failed")
        yield {"cost": json.loads(done.stdout)}


@contextlib.contextmanager
def chosen(name: str) -> Iterator[None]:
    """The kernel's clock, for as long as this lasts. A child puts the old one back,
    however we end.
    """
    before = CURRENT.read_text().strip() if CURRENT.exists() else name
    if before == name:
        yield
        return
    script = 'trap "" INT TERM HUP; read -r _; echo "$0" >"$1"'
    with subprocess.Popen(
        ["sh", "-c", script, before, CURRENT], stdin=subprocess.PIPE, start_new_session=True
    ):
        try:
            CURRENT.write_text(name)
        except OSError as error:
            raise Failure(
                f"the kernel does not take the clock '{name}': {error.strerror}"
            ) from None
        yield


COLUMNS = [
    Column("clock", "", False, "clock"),
    Column("ticks", "count", False, "ticks of the busy CPU"),
    Column("p50", "ns", False, "a tick's timer interrupt; half of them take no longer"),
    Column("p99", "ns", False, "99 of 100 take no longer"),
    Column("later", "ns", False, "soft interrupts of the timer, for each tick"),
    Column("of_cpu", "share", False, "of this CPU's time, both together"),
    Column("library", "ns", False, "one gettimeofday() of the C library"),
    Column("kernel", "ns", False, "one system call gettimeofday"),
    Column("enters", "share", False, "part of the library's calls that enter the kernel"),
]
SHOWN = ["clock", "ticks", "p50", "p99", "later", "of_cpu", "library", "kernel", "enters"]


def analyse(plan: Plan, runs: list[Run]) -> Answer:
    answer = Answer(cannot=cannot(plan, runs))
    rows = [row_of(one) for one in runs]
    records = [dict(zip(SHOWN, row, strict=True)) for row in rows]
    answer.results.append(table(rows))
    answer.sentences = sentences(plan, records)
    for one, record in zip(runs, records, strict=True):
        answer.checks += checks(plan, one, record)
    return answer


def row_of(one: Run) -> list[Any]:
    """Of the ticks in the time in which the CPU was busy with the loop: an idle CPU stops them.

    Timers of threads bring timer interrupts, too, whose cost is that of other work: these do not
    count here.
    """
    assert one.log is not None
    cursor = one.log.cursor()
    cursor.execute((Path(__file__).resolve().parents[1] / "analyses" / "_handler.sql").read_text())
    since, until = busy(one)
    cpu = int(one.arm.parameters["cpu"])
    ((count, p, own),) = cursor.execute(f"""
        WITH tick AS (
            SELECT DISTINCT i.from_ns, i.to_ns, i.self_ns
            FROM (SELECT * FROM HRT_IN WHERE cpu = {cpu} AND fn_symbol LIKE 'tick_nohz_handler%'
                  OR cpu = {cpu} AND fn_symbol LIKE 'tick_sched_timer%') AS h
            ASOF JOIN (FROM handler WHERE cpu = {cpu} AND name = 'local_timer') AS i
            ON h.time >= i.from_ns
            WHERE h.time <= i.to_ns AND i.from_ns BETWEEN {since} AND {until}
        )
        SELECT count(*), quantile_disc(self_ns, [0.5, 0.99]), sum(self_ns) FROM tick""").fetchall()
    ((later,),) = cursor.execute(
        f"""
        SELECT coalesce(sum(self_ns), 0) FROM handler
        WHERE cpu = {cpu} AND from_ns BETWEEN {since} AND {until}
        AND name IN ('softirq TIMER', 'softirq SCHED', 'softirq RCU', 'softirq HRTIMER')"""
    ).fetchall()
    cursor.close()
    if not count:
        raise Failure(f"arm '{one.arm.name}': the log has no tick of CPU {cpu}")
    entered = one.log.rows(f"SELECT count(*) FROM SYS_IN WHERE id = {GETTIMEOFDAY}")[0][0]
    cost = one.oracle["cost"]
    share = (int(own) + int(later)) / max(until - since, 1)
    calls = [cost["library_ns"], cost["kernel_ns"], max(entered - LOGGED, 0) / LOGGED]
    return [one.arm.name, count, p[0], p[1], int(later) / count, share, *calls]


def busy(one: Run) -> tuple[int, int]:
    """From when until when the program computed, in the log's time."""
    assert one.log is not None
    said = json.loads(one.output)
    start = one.log.start_ns
    return said["began"] - start, said["ended"] - start


def table(rows: list[list[Any]]) -> Result:
    return result(
        "figure_11",
        "Figure 11",
        "What does one timer interrupt cost, and one question for the time, by the kernel's clock?",
        COLUMNS,
        rows,
        Picture("bars", {"x": "p50", "y": "clock"}),
        notes=[
            (
                "Figure 11 is a graph over generations of the Pentium, without numbers to put"
                " beside. Of the logs of other machines, `klogger report LOG --analysis timer_cost`"
                " has the same."
            ),
            "Five events of the log are in each tick, about 0.5 µs.",
        ],
    )


def sentences(plan: Plan, records: list[dict[str, Any]]) -> list[str]:
    first = records[0]
    said = [
        f"With the clock {clock_of(first)}, a tick takes {duration(first['p50'])}, and the work"
        f" that it puts off {duration(first['later'])}: {100 * first['of_cpu']:.2f} % of a busy"
        " CPU."
    ]
    if len(records) > 1:
        said.append(compared(records))
    for record in records[: len({clock_of(r) for r in records})]:
        inside = "enters the kernel" if record["enters"] > 0.5 else "is answered without the kernel"
        said.append(
            f"{clock_of(record)}: a gettimeofday() of the library {inside} and takes"
            f" {duration(record['library'])}; the system call takes {duration(record['kernel'])}."
        )
    if first["kernel"] > first["library"]:
        calls = first["p50"] / (first["kernel"] - first["library"])
        said.append(
            f"A tick costs what {calls:,.0f} calls save by being answered without the kernel."
        )
    return said


def clock_of(record: dict[str, Any]) -> str:
    return str(record["clock"]).split(",", maxsplit=1)[0]


def compared(records: list[dict[str, Any]]) -> str:
    """Two measurements for each clock: a difference that is not greater than that between the two
    is none.
    """
    by: dict[str, list[float]] = {}
    for record in records:
        by.setdefault(clock_of(record), []).append(record["p50"])
    cheap, dear = (pick(by, key=lambda name: sum(by[name]) / len(by[name])) for pick in (min, max))
    ranges = [
        f"{duration(min(some))} to {duration(max(some))} with {name}" for name, some in by.items()
    ]
    text = f"In two runs of each, a tick took {', '.join(ranges)}"
    if min(by[dear]) > 1.1 * max(by[cheap]):
        return f"{text}: as in 2007, the clock makes a difference."
    return (
        f"{text}: unlike in 2007, no difference is seen; today the tick reads no device for the"
        " time."
    )


def checks(plan: Plan, one: Run, record: dict[str, Any]) -> list[Check]:
    """Against the program's own count of its calls, the kernel's count of interrupts, and its rate
    of ticks.
    """
    assert one.log is not None
    name, cpu = one.arm.name, int(one.arm.parameters["cpu"])
    entered = one.log.rows(f"SELECT count(*) FROM SYS_IN WHERE id = {GETTIMEOFDAY}")[0][0]
    text = (
        f"{entered:,} in the log; {LOGGED:,} were made as system calls, {LOGGED:,} by the library"
    )
    made = [Check(f"{name}: calls of gettimeofday", entered in (LOGGED, 2 * LOGGED), text)]
    since, until = busy(one)
    counted = json.loads(one.output).get("timer", -1)
    if counted >= 0:
        query = (
            f"SELECT count(*) FROM VEC_IN WHERE kind = 0 AND cpu = {cpu} AND time BETWEEN {since}"
            f" AND {until}"
        )
        logged = one.log.rows(query)[0][0]
        allowed = 3 + 0.02 * counted + sum(e.lost for e in one.log.events.values())
        text = (
            f"{logged:,} in the log while the CPU was busy; {counted:,} by /proc/interrupts, which"
            f" the program read before and after (may differ by {allowed:,.0f})"
        )
        made.append(
            Check(f"{name}: timer interrupts of CPU {cpu}", abs(logged - counted) <= allowed, text)
        )
    if plan.machine.hz:
        rate = record["ticks"] / ((until - since) / 1e9)
        text = (
            f"{rate:,.0f} a second while the CPU was busy; the kernel ticks {plan.machine.hz} times"
            " a second"
        )
        # Stolen time hides ticks.
        made.append(
            Check(f"{name}: ticks", 0.5 * plan.machine.hz <= rate <= 1.05 * plan.machine.hz, text)
        )
    return made


def cannot(plan: Plan, runs: list[Run]) -> list[str]:
    done = {str(one.arm.parameters["clock"]) for one in runs}
    said = [
        "Parts of the timer interrupt (reading the clock, setting the next one): tracepoints do not"
        " show functions."
    ]
    others = (
        [n for n in AVAILABLE.read_text().split() if n not in done] if AVAILABLE.exists() else []
    )
    if others:
        said.append(
            f"not in this time: {', '.join(others)}. A longer --budget tries them, and changes the"
            " clock of this machine for as long."
        )
    if not done & {"hpet", "acpi_pm", "pit"}:
        said.append(
            "A clock behind the I/O bus (hpet, acpi_pm, the 8253), as the paper's: not tried, or"
            " not offered here."
        )
    return said


STUDY = Study(
    name="timer",
    title="The timer interrupt and the clock",
    question=(
        "What does the timer interrupt cost, by the clock that the kernel keeps its time with, and"
        " what for?"
    ),
    paper="Figure 11",
    found=(
        "When time is kept with the TSC, the handler reads the 8253 over the I/O bus at each tick:"
        " the same microseconds on every generation, so more and more cycles. In PIT mode it takes"
        " the same cycles on all."
    ),
    schemata=("interrupt", "causes", "traps"),
    arms=arms,
    analyse=analyse,
    seconds=20,
    least_seconds=4,
)
