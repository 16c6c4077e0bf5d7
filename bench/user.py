# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What an event costs a program: time, instructions, bytes of code; beside LTTng-UST and the least
there is.
"""

import os
import re
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path

from measure import ratio, report_of, run, spread, take_turns, trimmed
from user_arms import EVENTS, FLIGHT, HERE, Arms, lttng

# Pairs of clock readings are few, as in the tables of 2006 and 2007.
PAIRS = 20_000
PAGES = 1000


def table(results: dict, names: list[str], floor: str, key: str = "ns") -> list[str]:
    lines = ["| | ns | times the floor |", "|---|---|---|"]
    for name in names:
        cost = spread(
            [a[key] - b[key] for a, b in zip(results[name], results["empty"], strict=True)]
        )
        lines.append(
            f"| {name} | {cost:.1f} | {spread(ratio(results, name, floor, key, 'empty')):.2f} |"
        )
    return lines


def cost(tools) -> list[str]:
    """One thread: klogger, its parts, and others."""
    arms = Arms(tools)
    with lttng(arms.folder) as home:
        programs = {
            "empty": lambda: arms.loop(arms.plain, "empty"),
            "one rdtsc, unordered": lambda: arms.loop(arms.plain, "rdtsc"),
            "clock_gettime and three stores": lambda: arms.loop(arms.plain, "clock_store"),
            "klogger, two ints": lambda: arms.loop(arms.klogger, "two_ints", **FLIGHT),
            "klogger, eight ints": lambda: arms.loop(arms.klogger, "eight_ints", **FLIGHT),
            "klogger, text of 16 bytes": lambda: arms.loop(arms.klogger, "string_16", **FLIGHT),
            "klogger, two ints, being recorded": lambda: arms.recorded("two_ints", 1),
            "klogger, two ints, without its clock": lambda: arms.loop(
                arms.clockless, "two_ints", **FLIGHT
            ),
            "klogger, off": lambda: arms.loop(arms.klogger, "two_ints"),
            "LTTng-UST, two ints": lambda: arms.loop(arms.lttng, "two_ints", **home),
            "write() to trace_marker": lambda: arms.loop(arms.plain, "trace_marker", events=10_000),
        }
        results = take_turns(programs, tools.rounds)
    lines = [
        "## An event of a program",
        "",
        (
            f"A loop of {EVENTS:,} events on one thread, of which each run takes the median of 21;"
            " what an empty loop"
        ),
        (
            "takes is subtracted. klogger runs as a flight recorder, where no ring fills; LTTng-UST"
            " with a snapshot"
        ),
        "session that overwrites in 4 sub-buffers of 4 MiB. The floor is one unordered rdtsc.",
        "",
        *table(results, list(programs)[1:], "one rdtsc, unordered"),
        "",
    ]
    targets = {
        "one rdtsc, unordered": 1.3,
        "LTTng-UST, two ints": 0.15,
        "clock_gettime and three stores": 0.5,
    }
    for other, bound in targets.items():
        times = spread(ratio(results, "klogger, two ints", other, "ns", "empty"))
        lines.append(f"- klogger, two ints / {other}: {times:.2f}, to be at most {bound}")
    return lines


def threads(tools) -> list[str]:
    """Several threads on this machine's CPUs, in CPU time: what sharing costs."""
    arms = Arms(tools)
    counts = (1, 2, 4, 16)
    with lttng(arms.folder) as home:
        programs = {}
        for n in counts:
            programs[f"klogger {n}"] = lambda n=n: arms.loop(arms.klogger, "two_ints", n, **FLIGHT)
            programs[f"recorded {n}"] = lambda n=n: arms.recorded("two_ints", n)
            programs[f"LTTng-UST {n}"] = lambda n=n: arms.loop(arms.lttng, "two_ints", n, **home)
            programs[f"clock {n}"] = lambda n=n: arms.loop(arms.plain, "clock_store", n)
        results = take_turns(programs, tools.rounds)
    lines = [
        "## Events of many threads",
        "",
        f"Nanoseconds of CPU time for an event of two ints, {os.cpu_count()} CPUs.",
        "",
        "| threads | klogger | klogger, being recorded | LTTng-UST | clock_gettime and stores |",
        "|---|---|---|---|---|",
    ]
    for n in counts:
        names = [f"{kind} {n}" for kind in ("klogger", "recorded", "LTTng-UST", "clock")]
        lines.append(
            f"| {n} | "
            + " | ".join(f"{spread([r['ns'] for r in results[a]]):.1f}" for a in names)
            + " |"
        )
    lost = [
        f"{statistics.median(r['lost'] for r in results[f'recorded {n}']):.0%} of {n}"
        for n in counts
    ]
    return [
        *lines,
        "",
        (
            "The recorder has no CPU of its own here, and threads that do nothing but log fill 16"
            " MiB faster than it gets"
        ),
        f"one: of the events being recorded it lost (median, by threads) {', '.join(lost)}.",
    ]


def instructions_of(arms: Arms, program: Path, arm: str, **more: str) -> float:
    """Instructions of one event: of so many more events, divided by these."""
    counts = []
    for events in (20_000, 40_000):
        out = arms.folder / "callgrind"
        command = [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={out}",
            program,
            arm,
            events,
            1,
            "count",
        ]
        arms.run(command, **more)
        counts.append(int(re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.M)[1]))
    return (counts[1] - counts[0]) / 20_000


def instructions(tools) -> list[str]:
    """Exact, and the same on every machine."""
    arms = Arms(tools)
    # A ring that is never half full: no more than the fast path.
    recorded = {"KLOGGER_RECORD": f"1:1:{os.getpid()}:{1 << 26}:1:1:*:"}
    empty = instructions_of(arms, arms.plain, "empty")
    rows = {
        "klogger, off": instructions_of(arms, arms.klogger, "two_ints"),
        "klogger, two ints": instructions_of(arms, arms.klogger, "two_ints", **recorded),
        "klogger, eight ints": instructions_of(arms, arms.klogger, "eight_ints", **recorded),
        "klogger, text of 16 bytes": instructions_of(arms, arms.klogger, "string_16", **recorded),
        "clock_gettime and three stores": instructions_of(arms, arms.plain, "clock_store"),
    }
    lines = [
        "## Instructions of an event",
        "",
        "Counted by callgrind, without those of the loop. Off to be at most 3.",
        "",
        "| | instructions |",
        "|---|---|",
    ]
    return lines + [f"| {name} | {count - empty:.2f} |" for name, count in rows.items()]


def cycles(arms: Arms, program: Path, arm: str, **more: str) -> list[int]:
    return report_of(arms.run([program, arm, PAIRS, 1, "pairs"], **more))["cycles"]


def pairs(tools) -> list[str]:
    """As in table 1 of LTTng (2006) and table 1 of KLogger (2007): two readings of the TSC around
    each event.
    """
    arms = Arms(tools)
    with lttng(arms.folder) as home:
        programs = {
            "empty": lambda: {"cycles": cycles(arms, arms.klogger, "empty")},
            "klogger, off": lambda: {"cycles": cycles(arms, arms.klogger, "two_ints")},
            "klogger, two ints": lambda: {
                "cycles": cycles(arms, arms.klogger, "two_ints", **FLIGHT)
            },
            "LTTng-UST, two ints": lambda: {"cycles": cycles(arms, arms.lttng, "two_ints", **home)},
            "write() to trace_marker": lambda: {"cycles": cycles(arms, arms.plain, "trace_marker")},
        }
        results = take_turns(programs, tools.rounds)
    lines = [
        "## Single events, in cycles",
        "",
        (
            f"Two ordered readings of the TSC around each of {PAIRS:,} events; the mean of the"
            " empty pair is subtracted."
        ),
        "Mean and deviation are without the worst thousandth, as KLogger's table of 2007 has it.",
        "",
        "| | min | median | mean | sd | 99.9 % | max |",
        "|---|---|---|---|---|---|---|",
    ]
    values = {name: [c for r in results[name] for c in r["cycles"]] for name in programs}
    empty, _ = trimmed(values["empty"])
    for name in list(programs)[1:]:
        ordered = sorted(values[name])
        mean, sd = trimmed(ordered)
        marks = [
            ordered[0],
            statistics.median(ordered),
            ordered[len(ordered) * 999 // 1000],
            ordered[-1],
        ]
        least, middle, high, most = (f"{max(0, mark - empty):.0f}" for mark in marks)
        lines.append(
            f"| {name} | {least} | {middle} | {mean - empty:.1f} | {sd:.1f} | {high} | {most} |"
        )
    return [
        *lines,
        "",
        (
            f"The empty pair: {empty:.1f} cycles. In print: LTTng 0.5 in programs 225 / 297.0 /"
            " 88,913 (min, mean,"
        ),
        (
            "max) and 1,013 / 1,042.2 / 329,062 through a system call; KLogger in the kernel 321"
            " with sd 36."
        ),
    ]


def events_logged(arms: Arms, command: list) -> int:
    """How many records of FUNC the first thread has logged: by its ring's head."""
    run(command, env=arms.environment(FLIGHT))
    (file,) = arms.shared.iterdir()
    with file.open("rb") as f:
        (slots_at,) = struct.unpack("<48xQ", f.read(56))
        f.seek(slots_at)
        (head,) = struct.unpack("<Q", f.read(8))
    file.unlink()
    return head // 32


# Runs a command, and says how long that took without the recorder's own start and end.
INSIDE = (
    "import sys, subprocess, time; s = time.monotonic(); subprocess.run(sys.argv[1:],"
    " check=True); print(time.monotonic() - s)"
)


def programs_of_functions(arms: Arms) -> dict[str, Callable[[], dict]]:
    """A program with each function logged, beside it without, and with gprof."""
    words, hooks = HERE / "words.c", arms.folder / "hooks.o"
    run(["gcc", "-O2", "-I", arms.folder, "-c", HERE / "hooks.c", "-o", hooks])
    build = ["gcc", "-O2", "-fno-inline", words, "-o"]
    run([*build, arms.folder / "words"])
    run([*build, arms.folder / "words-gprof", "-pg"])
    run([*build, arms.folder / "words-logged", "-finstrument-functions", hooks, "-pthread"])
    log = arms.folder / "functions.klog"
    record = [arms.tools.klogger, "record", "--engine", "user", "--user-buffer", "64M"]
    record += ["-o", log, "--"]

    def seconds(command: list, **more: str) -> dict:
        start = time.monotonic()
        arms.run(command, **more)
        return {"s": time.monotonic() - start}

    def recorded() -> dict:
        out = arms.run([*record, "python3", "-c", INSIDE, arms.folder / "words-logged", PAGES])
        return {"s": float(re.findall(r"^\d+\.\d+$", out, re.M)[-1])}

    return {
        "plain": lambda: seconds([arms.folder / "words", PAGES]),
        "gprof": lambda: seconds(
            [arms.folder / "words-gprof", PAGES], GMON_OUT_PREFIX=str(arms.folder / "gmon")
        ),
        "logged, events off": lambda: seconds([arms.folder / "words-logged", PAGES]),
        "logged, flight recorder": lambda: seconds([arms.folder / "words-logged", PAGES], **FLIGHT),
        "logged, being recorded": recorded,
    }


def functions(tools) -> list[str]:
    """LTTng's table 3: each function of a program logged, at its beginning and its end."""
    arms = Arms(tools)
    programs = programs_of_functions(arms)
    results = take_turns(programs, tools.rounds)
    plain = statistics.median(r["s"] for r in results["plain"])
    rows = {name: spread([r["s"] for r in results[name]]) for name in programs}
    events = events_logged(arms, [arms.folder / "words-logged", PAGES])
    off = rows["logged, events off"].median
    lines = [
        "## Each function of a program",
        "",
        (
            f"`bench/user/words.c` with {PAGES} pages, compiled with -finstrument-functions; each"
            " function logs its"
        ),
        f"address, its caller's, and whether it begins or ends: {events:,} events.",
        "",
        "| | s | times plain | ns an event |",
        "|---|---|---|---|",
    ]
    for name, row in rows.items():
        each = f"{(row.median - off) / events * 1e9:.1f}" if name.startswith("logged, ") else ""
        lines.append(f"| {name} | {row:.3f} | {row.median / plain:.2f} | {each} |")
    return [
        *lines,
        "",
        (
            f"The plain program makes {events / plain / 1e6:.0f} million of these events a second."
            " In print: gcc made 28"
        ),
        (
            "million and took 3.48 times plain with LTTng 0.5, without a disk, so 89 ns an event;"
            " 1.73 with gprof."
        ),
    ]


def code_bytes(tools) -> list[str]:
    """LTTng's table 4: what one event adds to an object."""
    arms = Arms(tools)

    def size(call: str, *more: str) -> int:
        out = arms.folder / "shape.o"
        run(
            [
                "gcc",
                "-O2",
                f"-I{arms.folder}",
                f"-DCALL={call}",
                *more,
                "-c",
                HERE / "shapes.c",
                "-o",
                out,
            ]
        )
        run(["strip", "--strip-unneeded", out])
        text, data, bss = map(int, run(["size", out]).splitlines()[1].split()[:3])
        return text + data + bss

    shapes = {
        "4-byte int": "klogger(INT_4, value)",
        "string": "klogger(TEXT, text)",
        "int, string, four 8-byte ints": "klogger(MIXED, value, values, text)",
    }
    lines = [
        "## Bytes of code",
        "",
        (
            "Of a stripped object: one more call of an event, and all that the first call brings to"
            " a program, once."
        ),
        "",
        "| event | one more call | the first, with the runtime |",
        "|---|---|---|",
    ]
    for name, call in shapes.items():
        once, twice, off = size(call), size(call, "-DTWICE"), size(call, "-DKLOGGER_OFF")
        off_twice = size(call, "-DKLOGGER_OFF", "-DTWICE")
        lines.append(f"| {name} | {twice - once - (off_twice - off)} | {once - off} |")
    return [*lines, "", "In print: LTTng 0.5 needed 2,288, 2,384 and 2,432 bytes for each event."]
