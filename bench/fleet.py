# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What reports over a dataset of many recordings cost: the first, which works on each recording,
the second, which combines what is kept; when the first rows are seen; and what it costs to add a
recording.
"""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import fleet_made
from measure import Usage, run, timed

# So that a recording has about 100,000 events.
TIMES, PAIRS = 1245, 8
RECORDINGS = (100, 1000)
ONE = "switches"
MILLION = 1e6
PROVISIONAL = b"Provisional"


def fleet(tools) -> list[str]:
    """FLEET names other numbers of recordings: 100,1000,10000."""
    log, other = tools.folder / "one.klog", tools.folder / "other.klog"
    load = [sys.executable, Path(__file__).with_name("fleet_load.py")]
    run(
        [
            tools.klogger,
            "record",
            "-s",
            "scheduler",
            "-o",
            log,
            "--",
            *load,
            TIMES,
            PAIRS,
        ]
    )
    run(
        [
            tools.klogger,
            "record",
            "-s",
            "scheduler",
            "-o",
            other,
            "--",
            *load,
            TIMES,
            PAIRS,
        ]
    )
    numbers = [int(word) for word in os.environ.get("FLEET", "").split(",") if word]
    rows, first, adding = (
        [],
        [],
        [("an empty dataset", added(tools, tools.folder / "empty", other))],
    )
    for number in numbers or RECORDINGS:
        folder = tools.folder / f"ds{number}"
        events = filled(tools, folder, log, number)
        first += first_rows(tools, folder, number)
        rows += of_dataset(tools, folder, number, events)
        adding.append((f"one of {number:,}", added(tools, folder, other)))
        shutil.rmtree(folder)
    return [*HEAD, *rows, "", *first, "", *lines_of_adding(adding)]


HEAD = [
    "## Reports over many recordings",
    "",
    (
        "Copies of one recording of the schema `scheduler`, of about 100,000 events, as hard links"
        " with other hosts, kernels, labels and times; `klogger report --by kernel --on pool`. CPU"
        " time is that of all processes; events for each second of it are those that one core"
        " works on. The peak is that of the largest process."
    ),
    "",
    "| recordings | events | report | wall s | CPU s | million events/s of CPU | peak MiB |",
    "|---|---|---|---|---|---|---|",
]


def filled(tools, folder: Path, log: Path, number: int) -> int:
    """Gives the number of events."""
    run([tools.klogger, "dataset", "add", folder, log])
    (entry,) = (folder / "recordings").iterdir()
    fleet_made.multiplied(folder, entry.stem, 1, number)
    return number * int(json.loads(entry.read_text())["events_logged"])


def of_dataset(tools, folder: Path, number: int, events: int) -> list[str]:
    report = [tools.klogger, "report", folder, "--on", "pool", "--by"]
    arms = {
        f"first, of `{ONE}`": [*report, "kernel", "--analysis", ONE],
        f"second, of `{ONE}`": [*report, "kernel", "--analysis", ONE],
        "first, of all others": [*report, "kernel"],
        "second, of all": [*report, "kernel"],
        "of all, by host": [*report, "host"],
    }
    return [row(number, events, name, timed(words)) for name, words in arms.items()]


def first_rows(tools, folder: Path, number: int) -> list[str]:
    """When they are seen at a terminal. What the report has kept until then is removed."""
    words = [tools.klogger, "report", folder, "--on", "pool", "--by", "kernel"]
    leader, terminal = pty.openpty()
    begun, said = time.monotonic(), b""
    one = subprocess.Popen(
        [*words, "--analysis", ONE, "--no-pager"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    while PROVISIONAL not in said:
        try:
            said += os.read(leader, 1 << 16)
        except OSError:
            break
    took = time.monotonic() - begun
    if one.poll() is None:
        os.killpg(one.pid, signal.SIGINT)
    while True:
        try:
            if not os.read(leader, 1 << 16):
                break
        except OSError:
            break
    one.wait()
    os.close(leader)
    shutil.rmtree(folder / "cache", ignore_errors=True)
    what = f"after {took:.1f} s" if PROVISIONAL in said else "with all others"
    return [f"- First rows of {number:,} recordings at a terminal, of `{ONE}`: {what}"]


def row(number: int, events: int, name: str, used: Usage) -> str:
    return (
        f"| {number:,} | {events:,} | {name} | {used.wall_s:.2f} | {used.cpu_s:.2f}"
        f" | {events / used.cpu_s / MILLION:.2f} | {used.peak_mib:.0f} |"
    )


def added(tools, folder: Path, log: Path) -> Usage:
    """The log has been exported before: what is measured is the dataset."""
    run([tools.klogger, "dataset", "add", tools.folder / "warm", log])
    return timed([tools.klogger, "dataset", "add", folder, log])


def lines_of_adding(adding: list[tuple[str, Usage]]) -> list[str]:
    return [
        "| to add a recording to | wall s | CPU s |",
        "|---|---|---|",
        *(f"| {name} | {used.wall_s:.2f} | {used.cpu_s:.2f} |" for name, used in adding),
    ]
