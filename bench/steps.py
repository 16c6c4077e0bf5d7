# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where each nanosecond of an event goes, and what other ways to do the same would take:
steps.bpf.c, arm by arm.
"""

import json
import os
import platform
import statistics
from pathlib import Path

import bpf
from measure import cell, run

HERE = Path(__file__).resolve().parent
# In the order of the program's arms.
PARTS = {
    1: "the clock: `bpf_ktime_get_ns()`",
    3: "another clock: `bpf_ktime_get_boot_ns()`",
    2: "another clock: `bpf_ktime_get_tai_ns()`",
    4: "a time that the scheduler has read before: `rq->clock`",
    5: "the CPU's number",
    6: "finding the ring: the CPU's number and an array map",
    7: "the same in a map for each CPU, which cannot be shared with the recorder",
    8: "the thread's number: `bpf_get_current_pid_tgid()`",
    9: "the thread's number: `bpf_get_current_task_btf()->pid`",
    10: "the way to an event: finding the ring, nested or not, and the clock",
}
WAYS = {
    11: "an event of two ints, as klogger logs it",
    12: "of all threads",
    13: "of all threads, and never off",
    14: "in scope by `bpf_get_current_task_btf()->pid`, not by `bpf_get_current_pid_tgid()`",
    15: "two events of one hit",
}
BARE = {
    13: "as klogger logs it",
    20: "without the clock",
    21: "with `rq->clock` instead of the clock",
    19: "without counting the hits that interrupt each other",
    18: "with space taken by compare-and-swap",
    22: "with the ring in an arena (Linux 6.9)",
    16: "two events of one hit",
    17: "two events of one hit, in one piece of the ring",
}
PLAIN, CLOCK = 11, 1
ARENA = 22


def where(tools) -> list[str]:
    if tools.clang is None:
        raise RuntimeError(bpf.NO_CLANG)
    if not tools.steps:
        raise RuntimeError("STEPS names no program that hits the steps")
    said = measured(tools, arena=True) or measured(tools, arena=False)
    found = said["arms"]
    lines = [
        "## Where the time goes",
        "",
        (
            "Steps of an event and other ways to do the same, all in one BPF program at"
            " `task_prctl_unknown`, which take"
        ),
        "turns in blocks of 100 hits. What each takes more than a probe that does nothing, in ns.",
        "",
        "| step | ns |",
        "|---|---|",
        *(row(found, arm, text) for arm, text in PARTS.items()),
        "",
        "| event of threads in scope | ns |",
        "|---|---|",
        *(row(found, arm, text) for arm, text in WAYS.items()),
        "",
        "| event of all threads, never off | ns |",
        "|---|---|",
        *(row(found, arm, text) for arm, text in BARE.items()),
        "",
    ]
    return lines + share(found) + staleness(said["behind"])


def measured(tools, arena: bool) -> dict | None:
    """`arms` and `behind`. None if the kernel has no arenas, or the compiler."""
    out = tools.folder / "steps.bpf.o"
    runtime = HERE.parent / "runtime"
    options = [f"-I{runtime}/include", f"-I{runtime}/bpf", *(["-DARENA"] if arena else [])]
    options += ["-D__TARGET_ARCH_x86"] if platform.machine() == "x86_64" else []
    arms = ARENA + 1 if arena else ARENA
    try:
        run(
            [
                tools.clang,
                "-O2",
                "-g",
                "-target",
                "bpf",
                "-mcpu=v3",
                *options,
                "-c",
                HERE / "steps.bpf.c",
                "-o",
                out,
            ]
        )
        return json.loads(run([tools.steps, out, str(arms), str(max(tools.rounds, 3))]))
    except (OSError, RuntimeError) as error:
        if arena:
            return None
        raise RuntimeError(f"{error} (on {platform.machine()}, {os.cpu_count()} CPUs)") from None


def row(found: list[list[float]], arm: int, text: str) -> str:
    value = cell(found[arm], 1, least=1.0) if arm < len(found) else "this kernel has none"
    return f"| {text} | {value} |"


def share(found: list[list[float]]) -> list[str]:
    over = [event - clock for event, clock in zip(found[PLAIN], found[CLOCK], strict=True)]
    part = statistics.median(
        clock / event for event, clock in zip(found[PLAIN], found[CLOCK], strict=True)
    )
    return [
        (
            f"Of what an event takes more than an empty probe, the clock is {part:.0%}. Is it on,"
            " and its thread in scope;"
        ),
        (
            "finding the ring, taking space, storing, publishing: together"
            f" {statistics.median(over):.1f} ns."
        ),
    ]


def staleness(behind: list[int]) -> list[str]:
    """What `rq->clock` would do to times: at a switch it is some time old."""
    if len(behind) < 100:
        return ["", f"{len(behind)} switches were too few to say how old `rq->clock` is at them."]
    at = {part: behind[int(len(behind) * part)] for part in (0.1, 0.5, 0.9, 0.99)}
    return [
        "",
        (
            f"`rq->clock` at {len(behind):,} switches of all CPUs in a second, against the clock: a"
            " tenth is older than"
        ),
        (
            f"the freshest by less than {at[0.1]:,} ns, half by more than {at[0.5]:,}, a tenth by"
            f" more than {at[0.9]:,}, a"
        ),
        f"hundredth by more than {at[0.99]:,}.",
    ]
