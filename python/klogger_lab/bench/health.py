# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whether a machine can be measured at all: its clocks, and what a hypervisor takes from it
meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The kernel slews its clock by at most half a thousandth (NTP); what differs by more does not run
# evenly.
CLOCKS_APART = 1e-3
# Quartiles stand as long as less than a quarter of what they are made of is disturbed.
STOLEN_MOST = 0.25
# From here on it is worth a word.
STOLEN_SOME = 0.02
# As much work from others, for each CPU, is worth a word too.
LOAD_SOME = 0.5
# A block must be so many times as long as the least step of the clock that times it.
STEPS = 20


@dataclass(frozen=True)
class Stolen:
    """Of one CPU, in ticks of /proc/stat: taken by the hypervisor, and all together."""

    stolen: int
    all: int

    @property
    def share(self) -> float:
        return self.stolen / self.all if self.all else 0.0


def ticks(cpu: int, stat: Path = Path("/proc/stat")) -> Stolen:
    found = re.search(rf"^cpu{cpu} (.*)$", stat.read_text(), re.M)
    # Guests' time, the last two, is in the first two already. Old kernels have fewer columns.
    numbers = [int(word) for word in found[1].split()[:8]] if found else []
    return Stolen(numbers[7] if len(numbers) > 7 else 0, sum(numbers))


def between(before: Stolen, after: Stolen) -> Stolen:
    return Stolen(after.stolen - before.stolen, after.all - before.all)


def clock_fault(reports: Iterable[Mapping[str, Any]], block_ns: float) -> str:
    """What is wrong with the clocks, by what the loop has seen of them; or nothing."""
    for one in reports:
        if one["backwards"]:
            return f"its clock is unstable: it went backwards {one['backwards']:,} times"
        # Of short times, the two readings themselves are too large a part.
        apart = abs(one["mono_ns"] - one["raw_ns"])
        if apart > CLOCKS_APART * one["raw_ns"] + 1e4:
            return f"its clock is unstable: two of them were {apart / one['raw_ns']:.2%} apart"
        if one["step_ns"] * STEPS > block_ns:
            return (
                f"its clock is too coarse: steps of {one['step_ns']:,} ns, "
                f"and blocks of {block_ns:,.0f} ns"
            )
    return ""


def fault(reports: Iterable[Mapping[str, Any]], block_ns: float, stolen: Stolen) -> str:
    """Why nothing at all can be measured here, or nothing."""
    if stolen.share > STOLEN_MOST:
        return f"the hypervisor took {stolen.share:.0%} of the CPU meanwhile"
    return clock_fault(reports, block_ns)
