# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The fixed computations of the study `noise`, and what interrupts each."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from klogger.program import klogger
from klogger_lab.build import build
from klogger_lab.study.model import Arm, Plan

HERE = Path(__file__).resolve().parent
THROTTLE = Path("/proc/sys/kernel/sched_rt_runtime_us")
# Seconds that an arm takes beside its loop, and the least that the loop runs.
AROUND = 1.0
LEAST = 1.0
# Name, bytes that an iteration walks (None: three quarters of the first cache), what interrupts,
# how often a second. The first ones matter most: if there is no time for all, the others are left
# out.
LOOPS: list[tuple[str, int | None, str, int]] = [
    ("nothing else", 8, "none", 1),
    ("1 kHz timer", 8, "timer", 1000),
    ("packets", 8, "packets", 2000),
    ("packets, no memory", 0, "packets", 2000),
    ("packets, array", None, "packets", 2000),
    ("IPIs", 8, "ipi", 2000),
    ("disk", 8, "disk", 500),
]
NEEDS_ANOTHER_CPU = {"packets", "ipi", "disk"}


def arms(plan: Plan) -> list[Arm]:
    chosen = [loop for loop in LOOPS if plan.machine.cpus > 1 or loop[2] not in NEEDS_ANOTHER_CPU]
    chosen = chosen[: max(1, int(plan.seconds / (LEAST + AROUND)))]
    # The paper's million iterations are a thousand seconds.
    seconds = min(max(plan.seconds / len(chosen) - AROUND, LEAST), 1000)
    program, cpu = loop_program(plan), plan.machine.cpus - 1
    array = (plan.machine.l1d or 32 << 10) * 3 // 4 // 64 * 64
    made = []
    for name, given, neighbour, rate in chosen:
        touches = array if given is None else given
        words = [program, f"{seconds:.2f}", str(cpu), str(touches), neighbour, str(rate)]
        said = {"touches": touches, "rate": rate if neighbour != "none" else 0, "cpu": cpu}
        # For half a second at a time, only the loop runs on its CPU: the ring holds what is
        # logged meanwhile.
        made.append(Arm(name, words, seconds, said, ["--buffer-size", "16M"], around=unthrottled))
    return made


def loop_program(plan: Plan) -> Path:
    """Its header is made from the schema, so that it logs what the recorder expects."""
    klogger("gen", HERE.parent / "noise.klogger", "-o", plan.folder, timeout=60)
    for file in ("loop.c", "../../interrupt/studies/timer_interrupts.h"):
        shutil.copy(HERE / file, plan.folder)
    return build(plan.folder, "loop.c")


@contextlib.contextmanager
def unthrottled() -> Iterator[None]:
    """By default a kernel stops real-time threads for 50 ms in each second.

    The old value is put back by a child which waits for the end of its input: so however we end,
    kill -9 included.
    """
    before = THROTTLE.read_text().strip() if THROTTLE.exists() else "-1"
    if before == "-1":
        yield
        return
    script = 'trap "" INT TERM HUP; read -r _; echo "$0" >"$1"'
    with subprocess.Popen(
        ["sh", "-c", script, before, THROTTLE], stdin=subprocess.PIPE, start_new_session=True
    ):
        with contextlib.suppress(OSError):
            THROTTLE.write_text("-1")
        yield
