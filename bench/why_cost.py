# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the recording of `klogger why` costs servers: Redis and PostgreSQL, with their own load
programs; and how the stacks of all waits cost beside `perf record -g -e sched:sched_switch`.
"""

import os
import re
import shutil
import socket
import statistics
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from measure import NOT_HERE, cell, goal, rounds_of, run
from rivals import LARGE_KB, perf_events, running, until

from klogger_lab.cli import why
from klogger_lab.recorder import Recorder

NOBODY = "65534"
REQUESTS, TRANSACTIONS, CLIENTS = 200_000, 8_000, 8
QUICK, FULL = "klogger why --depth quick", "klogger why"
STACKS, PERF = "klogger, all stacks", "perf record -g -e sched:sched_switch"
DEPTHS = {
    QUICK: ("quick",),
    FULL: ("full",),
    STACKS: ("quick", "--set", "waits.stacks=true", "--set", "waits.callers=true"),
}
MOST = {QUICK: 1.05, FULL: 1.12}


class Server(NamedTuple):
    """`load`: a command that makes so many requests of it."""

    pid: int
    load: list


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"no {name}: apt-get install redis-server")
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def redis(_folder: Path) -> Iterator[Server]:
    """Without a file of its data, over TCP."""
    port = free_port()
    words = [tool("redis-server"), "--bind", "127.0.0.1", "--port", port, "--save", ""]
    client = [tool("redis-benchmark"), "-h", "127.0.0.1", "-p", port, "-c", CLIENTS, "-q"]
    with running(words, stderr=subprocess.PIPE) as process:
        until(lambda: answers(port), process, "redis-server")
        yield Server(process.pid, [*client, "-n", REQUESTS, "-t", "get,set"])


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def postgres(folder: Path) -> Iterator[Server]:
    """Selections by key, over a socket; it refuses to run as root."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        raise RuntimeError("no PostgreSQL: apt-get install postgresql")
    place, user = programs[-1].parent, ["setpriv", "--reuid", NOBODY, "--regid", NOBODY,
                                        "--clear-groups"]  # fmt: skip
    data = folder / "postgres"
    data.mkdir()
    # What the unprivileged user is to reach: also the folder of the run, which is root's alone.
    for way in (folder.parent, folder):
        os.chmod(way, 0o711)
    os.chown(data, int(NOBODY), int(NOBODY))
    run([*user, place / "initdb", "-D", data, "-U", "bench", "-A", "trust", "--no-sync"], cwd=data)
    words = [*user, place / "postgres", "-D", data, "-k", data, "-c", "listen_addresses=",
             "-c", "fsync=off"]  # fmt: skip
    client = ["-h", data, "-U", "bench", "postgres"]
    with running(words, cwd=data) as process:
        ready = [place / "pg_isready", "-h", data, "-q"]
        until(lambda: subprocess.run(ready, check=False).returncode == 0, process, "postgres")
        run([place / "pgbench", "-i", "-q", *client], cwd=data)
        each = TRANSACTIONS // CLIENTS
        yield Server(process.pid, [place / "pgbench", "-n", "-S", "-c", CLIENTS, "-t", each,
                                   *client])  # fmt: skip


def requests_a_second(said: str) -> float:
    """Of all kinds of requests together: redis-benchmark has a line for each."""
    found = re.findall(r"([\d.]+) requests per second|^tps = ([\d.]+) ", said, re.MULTILINE)
    rates = [float(redis_ or pgbench) for redis_, pgbench in found]
    if not rates or min(rates) <= 0:
        raise RuntimeError(f"the load says no rate: {said.strip()[-200:]}")
    return len(rates) / sum(1 / rate for rate in rates)


def around(tools, server: Server, arm: str):
    if arm == PERF:
        return perf_events(tools, [server.pid], ["sched:sched_switch"], LARGE_KB, "-g")
    depth, *more = DEPTHS[arm]
    words = why.parser().parse_args(["-p", str(server.pid), "--depth", depth])
    return recorded(tools, [*why.options(words, tools.folder / "why.klog"), *more])


@contextmanager
def recorded(tools, words: list[str]) -> Iterator[None]:
    with Recorder(words, tools.folder / "why.err") as recorder:
        recorder.wait_started()
        yield


def slower(tools, server: Server, arm: str) -> dict[str, float]:
    """The time of a request as a multiple of what it is without, before and after."""
    rates = [requests_a_second(run(server.load))]
    with around(tools, server, arm):
        with_it = requests_a_second(run(server.load))
    rates.append(requests_a_second(run(server.load)))
    return {arm: statistics.fmean(rates) / with_it}


def table(tools, name: str, start: Callable, arms: list[str]) -> tuple[list[str], dict]:
    folder = tools.folder / f"why-{name}"
    folder.mkdir(exist_ok=True)
    try:
        with start(folder) as server:
            each = {arm: lambda arm=arm: slower(tools, server, arm) for arm in arms}
            results, missing = rounds_of(each, tools.rounds)
    except (RuntimeError, OSError) as error:
        return [f"| {name} | {NOT_HERE}: {error} | |"], {}
    rows = [f"| {name} | {arm} | {NOT_HERE}: {missing[arm]} |" if arm in missing else
            f"| {name} | {arm} | {cell(results[arm], 2, 0.3)} |" for arm in arms]  # fmt: skip
    return rows, results


def cost(tools) -> list[str]:
    rows, goals = [], []
    for name, start in (("redis", redis), ("pgbench", postgres)):
        # perf follows no process that is forked later, so of PostgreSQL it sees the first one only.
        arms = [QUICK, FULL, *([STACKS, PERF] if name == "redis" else [])]
        made, results = table(tools, name, start, arms)
        rows += made
        one = [1.0] * tools.rounds
        goals += [goal(f"{name}, {arm} / without", results.get(arm), one, MOST[arm])
                  for arm in (QUICK, FULL)]  # fmt: skip
        if name == "redis":
            added = {arm: [max(value - 1, 0.0) for value in results.get(arm, [])]
                     for arm in (STACKS, PERF)}  # fmt: skip
            goals.append(goal(f"what {STACKS} adds / what {PERF} adds",
                              added[STACKS], added[PERF], 0.5, paired=True))  # fmt: skip
    return [
        "## Servers under klogger why", "",
        f"redis-benchmark (GET and SET, {CLIENTS} clients, {REQUESTS:,} requests each, over the"
        f" loopback device) and `pgbench -S` ({CLIENTS} clients, {TRANSACTIONS:,} transactions);"
        " the server is recorded, by its process. The time of a request, as a multiple of the same"
        " without a recorder, just before and after.", "",
        "| load | recorded by | time of a request |", "|---|---|---|", *rows, "", *goals,
    ]  # fmt: skip
