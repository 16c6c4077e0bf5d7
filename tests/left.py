#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a run of the tests has left on the machine: finds it, and takes it away.

usage: left.py before FOLDER      notes how the machine is (scripts/test makes FOLDER for the run)
       left.py after FOLDER       prints a line for each thing that is there still, and removes it

A process is the run's if KLOGGER_RUN=FOLDER is in its environment; a mount, a loop device or a
device of the device mapper, if it is in FOLDER or over a file of it; a pin or a ring, if it was not
there before and its process has ended. Switches of the kernel that tests turn get the value that
they had. The exit code is 1 if anything was left.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PINS = Path("/sys/fs/bpf/klogger")
RINGS = Path("/dev/shm")
# Those that tests write to.
SWITCHES = [
    Path("/proc/sys/kernel") / name
    for name in (
        "hung_task_check_count",
        "hung_task_timeout_secs",
        "hung_task_warnings",
        "io_uring_disabled",
        "sched_rt_runtime_us",
    )
]
# Processes that were asked to end do so meanwhile.
GRACE = 5.0
LOOK = 0.1


def text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def family() -> set[int]:
    """This process and those above it."""
    pid, found = os.getpid(), set()
    while pid > 0:
        found.add(pid)
        fields = text_of(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        pid = int(fields[1]) if fields else 0
    return found


def processes(run: Path) -> dict[int, str]:
    """Those of the run: number and name."""
    mark, ours, found = f"KLOGGER_RUN={run}", family(), {}
    for folder in Path("/proc").glob("[0-9]*"):
        if mark in text_of(folder / "environ").split("\0") and int(folder.name) not in ours:
            found[int(folder.name)] = text_of(folder / "comm").strip()
    return found


def mounts(run: Path) -> list[str]:
    """Below the folder, the last one first."""
    fields = [line.split() for line in text_of(Path("/proc/self/mounts")).splitlines()]
    places = [re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), field[1]) for field in fields]
    return [place for place in reversed(places) if Path(place).is_relative_to(run)]


def loops(run: Path) -> dict[str, str]:
    """Loop devices over files of the folder: the device and its file."""
    found = {}
    for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
        file = text_of(entry).strip().removesuffix(" (deleted)")
        if Path(file).is_relative_to(run):
            found[f"/dev/{entry.parents[1].name}"] = file
    return found


def mapped(run: Path) -> list[str]:
    """Devices of the device mapper over those loop devices."""
    names = {Path(device).name for device in loops(run)}
    return [
        text_of(folder / "dm/name").strip()
        for folder in Path("/sys/block").glob("dm-*")
        if {slave.name for slave in (folder / "slaves").glob("*")} & names
    ]


def traces() -> set[str]:
    """Pins, and what programs share with recorders, of processes that have ended."""
    found = set()
    for path in [*PINS.glob("[0-9]*"), *RINGS.glob("klogger-*/[0-9]*")]:
        number = re.match(r"\d+", path.name)
        if number and not Path("/proc", number[0]).exists():
            found.add(str(path))
    return found


def state(folder: Path) -> Iterator[Path]:
    return (folder / name for name in ("traces.before", "switches.before"))


def note(folder: Path) -> None:
    seen, values = state(folder)
    seen.write_text("\n".join(sorted(traces())))
    values.write_text("".join(f"{path} {text_of(path)}" for path in SWITCHES if path.exists()))


def end_processes(run: Path) -> list[str]:
    deadline = time.monotonic() + GRACE
    while (found := processes(run)) and time.monotonic() < deadline:
        time.sleep(LOOK)
    said = [f"process {pid} ({name})" for pid, name in found.items()]
    while found:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK)
        found = {pid: name for pid, name in processes(run).items() if not is_stuck(pid)}
    return said


def is_stuck(pid: int) -> bool:
    """Whether it has ended but for its parent's wait, or sleeps so that no signal ends it."""
    fields = text_of(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return not fields or fields[0] in "ZXD"


def command(*words: str) -> None:
    with contextlib.suppress(OSError):
        subprocess.run(words, check=False, capture_output=True, timeout=60)


def remove(path: Path) -> None:
    if path.is_dir():
        command("rm", "-rf", "--one-file-system", str(path))
    else:
        path.unlink(missing_ok=True)


def clean(run: Path) -> list[str]:
    """What was there, in the order in which it can be removed."""
    said = end_processes(run)
    for place in mounts(run):
        said.append(f"mount {place}")
        command("umount", "-l", place)
    for name in mapped(run):
        said.append(f"device {name} of the device mapper")
        command("dmsetup", "remove", "--retry", name)
    for device, file in loops(run).items():
        said.append(f"loop device {device} over {file}")
        command("losetup", "--detach", device)
    seen, values = state(run)
    for path in sorted(traces() - set(text_of(seen).splitlines())):
        said.append(path)
        remove(Path(path))
    for line in text_of(values).splitlines():
        path, _, before = line.partition(" ")
        if (now := text_of(Path(path)).strip()) != before.strip():
            said.append(f"{path}: {now}, before it was {before}")
            Path(path).write_text(before + "\n")
    return said


def main(words: list[str]) -> int:
    if len(words) != 2 or words[0] not in ("before", "after"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    run = Path(words[1]).resolve()
    if words[0] == "before":
        note(run)
        return 0
    said = clean(run)
    for line in said:
        print(f"left behind: {line}")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
