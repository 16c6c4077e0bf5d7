# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What there is to say of a crash or a dead-lock: where the threads were, and what happened before.

Stacks are named by the recorder, which knows what processes had mapped. The last events are read
from the log.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from klogger.durations import duration
from klogger.failure import Failure
from klogger.program import JSON, answer, find_klogger
from klogger_lab.watch.detect import Crash, Deadlock, Wait

# Of a stack, so many functions are printed.
FRAMES = 16
# Names that only glibc has, of what waits for its mutexes, as in _futex.sql.
OF_GLIBC = re.compile(r"_*(GI_+)?(lll_[a-z]*lock_wait|pthread_mutex_lock_full)\b")
# Where the last events are looked for: so many ns before the end, or else in all of the log.
REACHES = (50_000_000, 2_000_000_000)
# What is written to the log is up to so many seconds late.
LATE = 1.5
AGAIN = 0.1
PATIENCE = 20.0


@dataclass
class Account:
    """`text`: its lines; `data`: the same for programs."""

    title: str
    text: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)


@dataclass
class Teller:
    """`recorder`: its process; `before`: how many events are told; `wait`: until the recorder has
    ended; `since`: when the command began, in ns since the beginning of the log.
    """

    recorder: int
    log: Path
    before: int
    wait: Callable[[], object] = lambda: None
    since: int = 0

    def crash(self, crash: Crash) -> Account:
        name = crash.process.name
        how = crash.signal_name
        how += f" at {crash.address:#x}" if crash.address is not None else ""
        how += f", sent by {crash.sender.name}" if crash.sender else ""
        how += ", sent by the kernel" if crash.signal == 9 else ""
        title = f"{name} crashed: {how}{' (core dumped)' if crash.core else ''}"
        frames = self.stack(crash.stack)
        events = self.last_events(crash.time)
        text = rows("program", [crash.process.program])
        text += rows("made by", [" < ".join(one.name for one in crash.parents)])
        if crash.thread not in (None, crash.process.pid):
            text += rows("thread", [str(crash.thread)])
        text += rows("stack", shown(frames))
        text += rows("before", events)
        data = {
            "finding": "crash", "time": crash.time, "process": asdict(crash.process),
            "parents": [asdict(one) for one in crash.parents], "signal": crash.signal,
            "signal_name": crash.signal_name, "core": crash.core, "thread": crash.thread,
            "address": crash.address, "stack": frames, "before": events,
            "sender": asdict(crash.sender) if crash.sender else None,
        }  # fmt: skip
        return Account(title, text, data)

    def deadlock(self, found: Deadlock) -> Account:
        count = len(found.waits)
        title = "" if found.known else "perhaps a "
        title += f"dead-lock in {found.process.name}: " + (
            "a thread waits for a lock that it holds"
            if count == 1
            else f"{count} threads wait for each other"
        )
        title += f", since {duration(found.time)}"
        title += f", for {duration(found.lasted)}" if found.lasted is not None else ""
        text: list[str] = []
        threads = []
        for wait in found.waits:
            frames = self.stack(wait.stack)
            holder = f"{'perhaps ' if wait.guessed else ''}held by {wait.holder}"
            text += rows(f"{wait.thread}", [f"waits for {wait.lock:#x}, {holder}"])
            text += rows("", shown(frames))
            threads.append({**asdict(wait), "stack": frames})
        events = self.last_events(found.time)
        text += rows("before", events)
        data = {
            "finding": "deadlock" if found.known else "guess", "time": found.time,
            "process": asdict(found.process), "lasted": found.lasted, "threads": threads,
            "before": events,
        }  # fmt: skip
        return Account(title, text, data)

    def proved(self, found: Deadlock) -> Deadlock:
        """With what the names of functions prove of its guesses: that it is glibc that waits."""
        return replace(
            found, waits=tuple(replace(w, guessed=self.is_guess(w)) for w in found.waits)
        )

    def is_guess(self, wait: Wait) -> bool:
        if not wait.guessed:
            return False
        names = [str(frame.get("function")) for frame in self.stack(wait.stack)]
        innermost = next((name for name in names if not name.startswith("futex_wait")), "")
        return OF_GLIBC.match(innermost) is None

    def stack(self, number: int) -> list[dict[str, Any]]:
        """Empty if there is none. A recorder that has ended has written the names to its log."""
        if number == 0:
            return []
        where = ["--recorder", str(self.recorder)]
        try:
            found = answer("stack", str(number), *where, timeout=PATIENCE)
        except Failure:
            self.wait()
            try:
                found = answer("stack", str(number), "--log", str(self.log), timeout=PATIENCE)
            except Failure:
                return []
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def last_events(self, time_ns: int) -> list[str]:
        """The events up to a time, the last one last, as `klogger cat` prints them."""
        if self.before == 0:
            return []
        end = time.monotonic() + LATE
        for reach in (*REACHES, time_ns):
            begin = max(self.since, time_ns - reach)
            lines = self.cat(begin, time_ns)
            while not any(is_at(line, time_ns) for line in lines) and time.monotonic() < end:
                time.sleep(AGAIN)
                lines = self.cat(begin, time_ns)
            if len(lines) >= self.before or begin == self.since:
                break
        return [ago(line, time_ns) for line in lines[-self.before :]]

    def cat(self, from_ns: int, to_ns: int) -> list[str]:
        """Of a log that has no end yet, there are warnings, which say so."""
        times = ["--from", seconds(from_ns), "--to", seconds(to_ns)]
        words = [find_klogger(), "cat", str(self.log), *times, *JSON]
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, errors="replace", timeout=PATIENCE,
                check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return []
        return [line for line in done.stdout.splitlines() if is_told(line)]


def seconds(ns: int) -> str:
    return f"{ns // 10**9}.{ns % 10**9:09}"


def is_at(line: str, time_ns: int) -> bool:
    return line.strip().startswith(seconds(time_ns))


def ago(line: str, time_ns: int) -> str:
    """The line with its time before `time_ns`, and without the CPU."""
    at, _cpu, what = line.split(maxsplit=2)
    whole, _, part = at.partition(".")
    if not (whole + part).isdigit() or len(part) != 9:
        return line
    before = time_ns - int(whole) * 10**9 - int(part)
    return f"{'-' + duration(before) if before > 0 else '0':>9}  {what}"


def is_told(line: str) -> bool:
    """Not what the recorder logs for itself."""
    words = line.split(maxsplit=3)
    return len(words) > 2 and words[1] != "-" and not words[2].startswith("PROCESS_")


def shown(frames: Iterable[dict[str, Any]]) -> list[str]:
    """Code that uses the frame pointer for other things may make a stack that repeats itself."""
    lines = [line for line, _ in groupby(frame_line(frame) for frame in frames)]
    more = [f"... {len(lines) - FRAMES} more"] if len(lines) > FRAMES else []
    return lines[:FRAMES] + more


def frame_line(frame: dict[str, Any]) -> str:
    text = str(frame.get("function", "?"))
    place = str(frame.get("source") or frame.get("file") or "")
    return f"{text}  {place}" if place else text


def rows(label: str, lines: Iterable[str]) -> list[str]:
    """Nothing without lines; the label before the first."""
    found = [line for line in lines if line]
    labels = [label, *[""] * len(found)]
    return [f"  {head:8} {line}" for head, line in zip(labels, found, strict=False)]
