# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""When a log began, by the clock of the machine that collected it: `klogger collect` compares the
clocks, and writes what it found beside the log (docs/collect.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from klogger.failure import Failure

FILE = "clock.json"


@dataclass(frozen=True)
class Clock:
    """`start_ns`: the time of day at the log's time 0; None: not known. `error_ns`: how wrong it
    may be.
    """

    start_ns: int | None
    error_ns: int | None


def wall(offsets: Mapping[str, Any], clock: Mapping[str, Any]) -> int:
    """The beginning of a log by our clock: `offsets` as in FILE, `clock` of its preamble."""
    if offsets.get("monotonic"):
        return int(clock["start_ns"] + offsets["monotonic"]["offset_ns"])
    realtime = offsets.get("realtime") or {"offset_ns": 0}
    return int(clock["start_realtime_ns"] - realtime["offset_ns"])


def clock_of(log: Path, preamble: Mapping[str, Any]) -> Clock:
    """Of a log: as it says itself, or as FILE beside it says, if that is of this log."""
    clock = preamble.get("clock")
    clock = clock if isinstance(clock, dict) else {}
    file = log.parent / FILE
    try:
        found = json.loads(file.read_text())
        if Path(found["log"]).name == log.name:
            known = found.get("monotonic") or found.get("realtime")
            if known:
                error = int(known["error_ns"])
                # The time of day at which it began was read beside its own clock.
                error += 0 if found.get("monotonic") else number(clock.get("uncertainty_ns")) or 0
                return Clock(valid(wall(found, clock)), error)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(
            f"{file}: not as 'klogger collect' writes it: {error}",
            help="without it, the log's own clock counts: move it away",
        ) from None
    return Clock(valid(clock.get("start_realtime_ns")), number(clock.get("uncertainty_ns")))


def valid(start: Any) -> int | None:
    """No time that can be added to others is outside of this."""
    return start if isinstance(start, int) and 0 < start < 2**62 else None


def number(value: Any) -> int | None:
    return value if isinstance(value, int) else None
