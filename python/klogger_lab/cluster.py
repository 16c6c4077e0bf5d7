# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A Spark of a master and workers as processes of this machine, on loopback: for `make
cluster-demo` and for tests.

Usage: python -m klogger_lab.cluster WORKERS COMMAND...     {} in COMMAND is the master's address
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from klogger.failure import Failure

# A busy machine takes its time.
STARTED_WITHIN = 600.0
STOPPED_WITHIN = 20.0
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
STARTED = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
REGISTERED = re.compile(r"Successfully registered with master")


@dataclass
class Cluster:
    address: str
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[Cluster]:
    """Of workers with a core each. All processes have ended when this has."""
    with (
        tempfile.TemporaryDirectory(prefix="klogger-cluster-") as name,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        any_port = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = stack.enter_context(process([MASTER, *any_port], folder / "master.log"))
        found = Cluster(said(master, folder / "master.log", STARTED)[1])
        logs = [folder / f"worker-{number}.log" for number in range(workers)]
        for log in logs:
            room = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
            words = [WORKER, *any_port, *room, found.address]
            found.workers.append(stack.enter_context(process(words, log)))
        for worker, log in zip(found.workers, logs, strict=True):
            said(worker, log, REGISTERED)
        yield found


@contextlib.contextmanager
def process(words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """In a session of its own, with the processes that it starts: Ctrl-C is for this one, which
    ends them.
    """
    given = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(home()),
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_NO_DAEMONIZE": "1",
    }
    with log.open("wb") as file:
        one = subprocess.Popen(
            [home() / "bin" / "spark-class", *words],
            env=given, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield one
    finally:
        stop(one)


def stop(one: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.wait(STOPPED_WITHIN)
    one.wait()


def home() -> Path:
    try:
        import pyspark
    except ImportError as error:
        raise Failure(str(error), help="pip install 'klogger[spark]'") from None
    if not shutil.which("java"):
        raise Failure("there is no Java runtime", help="apt install default-jre-headless")
    return Path(pyspark.__file__).parent


def said(one: subprocess.Popen[bytes], log: Path, wanted: re.Pattern[str]) -> re.Match[str]:
    """What a process has written into its log, as soon as it has."""
    end = time.monotonic() + STARTED_WITHIN
    while time.monotonic() < end and one.poll() is None:
        if found := wanted.search(log.read_text(errors="replace")):
            return found
        time.sleep(0.1)
    lines = log.read_text(errors="replace").splitlines()
    wrong = [line.strip() for line in lines if "xception" in line or "rror" in line]
    raise Failure(f"Spark's {log.stem} does not start: {(wrong or ['it says nothing'])[-1]}")


def interrupted(number: int, _: object) -> None:
    raise KeyboardInterrupt(number)


def main(words: list[str]) -> int:
    if len(words) < 2 or not words[0].isdigit():
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, interrupted)
    try:
        with cluster(int(words[0])) as found:
            command = [word.replace("{}", found.address) for word in words[1:]]
            return subprocess.run(command, check=False).returncode
    except KeyboardInterrupt:
        return 130
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
