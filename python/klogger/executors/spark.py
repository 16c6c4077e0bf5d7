# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""As tasks of Spark, in its Python workers: the same work, one task for each name. The workers need
this package, DuckDB, the `klogger` program and the dataset under the same path or address.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from klogger.failure import Failure

Item = TypeVar("Item")
Answer = TypeVar("Answer")
REACHED_WITHIN = 10
# Seconds without any process that takes work. A busy machine needs some to start one.
WORKERS_WITHIN = 60.0
# Spark gives answers when a job is done. With jobs of so many tasks for each core, two at a time,
# no core waits for the last task of a job, and few answers are in memory.
TASKS_PER_CORE = 4
JOBS = 2
# What the workers take over from this process.
PASSED_ON = ("PATH", "PYTHONPATH", "KLOGGER", "KLOGGER_SCHEMATA", "KLOGGER_CACHE", "HOME")


class Spark:
    def __init__(self, session: Any, master: str, noise: Path) -> None:
        self.session = session
        self.master = master
        # What Spark's programs print.
        self.noise = noise
        self.deserted = threading.Event()

    def map(self, work: Callable[[str], Answer], names: Sequence[str]) -> Iterable[Answer]:
        waiting, running = iter(names), deque[Future[list[Answer]]]()
        done = 0
        with self.watched(), ThreadPoolExecutor(JOBS) as threads:
            while True:
                # Workers come and go: asked for each job.
                while len(running) < JOBS and (some := self.next_of(waiting)):
                    running.append(threads.submit(self.job, work, some))
                if not running:
                    return
                try:
                    answers = running.popleft().result()
                    done += len(answers)
                    yield from answers
                except BaseException as error:
                    self.cancel()
                    if isinstance(error, (Failure, KeyboardInterrupt, GeneratorExit)):
                        raise
                    left = f"{len(names) - done:,} of {len(names):,} tasks are not done"
                    raise self.failed(error, left) from None

    def next_of(self, waiting: Iterator[str]) -> list[str]:
        return list(itertools.islice(waiting, TASKS_PER_CORE * self.cores()))

    def job(self, work: Callable[[str], Answer], names: Sequence[str]) -> list[Answer]:
        """A task for each: if a worker is lost, others do again what it had."""
        return list(self.session.sparkContext.parallelize(names, len(names)).map(work).collect())

    def ask(self, question: Callable[[Any], Answer]) -> Answer:
        """Of the session."""
        with self.watched():
            try:
                return question(self.session)
            except Failure:
                raise
            except Exception as error:
                raise self.failed(error, "the query has no answer") from None

    def cores(self) -> int:
        return int(self.session.sparkContext.defaultParallelism)

    def combine(self, merge: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
        return [merge(item) for item in items]

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Spark itself would wait for workers without an end."""
        over = threading.Event()
        thread = threading.Thread(target=self.watch, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def watch(self, over: threading.Event) -> None:
        step, alone = 0.5, 0.0
        while not over.wait(step):
            alone = 0.0 if self.has_workers() else alone + step
            if alone >= WORKERS_WITHIN:
                self.deserted.set()
                self.cancel()

    def cancel(self) -> None:
        """Of a Spark that has ended, the jobs have as well."""
        with contextlib.suppress(Exception):
            self.session.sparkContext.cancelAllJobs()

    def has_workers(self) -> bool:
        """This process is in the list as well; with `local` it does the work."""
        if self.master.startswith("local"):
            return True
        with contextlib.suppress(Exception):
            return int(self.session.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) > 1
        return False

    def failed(self, error: BaseException, left: str) -> Failure:
        if self.deserted.is_set():
            return Failure(
                f"--on {self.master}: for {WORKERS_WITHIN:.0f} s no worker took any work; {left}",
                help="is a worker registered with the master, and has it a core and 1 GiB free?",
            )
        return Failure(f"--on {self.master}: {cause(error, self.noise)}; {left}")


def cause(error: BaseException, noise: Path) -> str:
    """One line: of the exception in a worker's Python, else of what Spark says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python = [n for n, line in enumerate(lines) if line.startswith("Traceback (most recent")]
    if python:
        rest = lines[python[-1] + 1 :]
        named = [line for line in rest if re.match(r"[\w.]+(Error|Exception|Failure)\b", line)]
        if named:
            return named[0]
    said = [line for line in lines if re.match(r": [\w.]+: ", line)]
    if said:
        return said[0].removeprefix(": ")
    with contextlib.suppress(OSError):
        lines += [one for one in noise.read_text(errors="replace").splitlines() if "rror" in one]
    return lines[-1] if lines else type(error).__name__


@contextlib.contextmanager
def spark(master: str) -> Iterator[Spark]:
    check_installed(master)
    address = check_reached(master)
    # About pandas 3, which is not used by way of Spark here.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support", FutureWarning)
    silence()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    conf = SparkConf().setMaster(master).setAppName("klogger")
    conf.setAll(list(settings(address).items()))
    java, noise = started()
    # Spark makes it when it is first asked: else in the current folder.
    conf.set("spark.sql.warehouse.dir", str(Path(kept_folder().name) / "warehouse"))
    with own_signals():
        try:
            SparkContext(conf=conf, gateway=java)
            session = SparkSession.builder.getOrCreate()
        except Exception as error:
            raise Failure(f"--on {master}: Spark does not start: {cause(error, noise)}") from None
        try:
            yield Spark(session, master, noise)
        finally:
            session.stop()


def silence() -> None:
    """PySpark prints the faults of queries, which are in the exceptions as well."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def own_signals() -> Iterator[None]:
    """Commands let a pipe without a reader end them, and here it may be that to Spark; and Spark
    has a treatment of Ctrl-C of its own.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGPIPE, signal.SIGINT)}
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, treatment in before.items():
            signal.signal(number, treatment)


def check_installed(master: str) -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise Failure(
            f"--on {master}: {error}", help="pip install 'klogger[spark]', or use --on pool"
        ) from None
    java = os.environ.get("JAVA_HOME")
    if not shutil.which(os.path.join(java, "bin", "java") if java else "java"):
        raise Failure(
            f"--on {master}: there is no Java runtime", help="apt install default-jre-headless"
        )


@functools.cache
def started() -> tuple[Any, Path]:
    """The Java process of Spark, which ends with this one, and the file of what it prints: that is
    for those who know Spark.
    """
    from pyspark import java_gateway

    # Some of its functions have types, and this one has none.
    launch: Any = java_gateway.launch_gateway
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    noise = Path(kept_folder().name) / "log"
    with noise.open("wb") as file:
        try:
            return launch(popen_kwargs={"stdout": file, "stderr": file}), noise
        except Exception as error:
            raise Failure(f"Spark's Java process does not start: {cause(error, noise)}") from None


@functools.cache
def kept_folder() -> tempfile.TemporaryDirectory[str]:
    """Until this process ends."""
    return tempfile.TemporaryDirectory(prefix="klogger-spark-")


def settings(address: str) -> dict[str, str]:
    found = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.executorEnv.KLOGGER_THREADS": "1",
        # As DuckDB has it: "name" is a name.
        "spark.sql.ansi.enabled": "true",
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    }
    if address:
        found |= {"spark.driver.host": address, "spark.driver.bindAddress": address}
    known = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return found | {f"spark.executorEnv.{name}": value for name, value in known.items()}


def check_reached(master: str) -> str:
    """Spark itself tries for minutes. Gives the address at which this machine can be reached, if it
    is known.
    """
    if not master.startswith("spark://"):
        return "127.0.0.1" if master.startswith("local") else ""
    place = urlsplit(master)
    try:
        address = (place.hostname or "", place.port or 7077)
        with socket.create_connection(address, REACHED_WITHIN) as connection:
            return str(connection.getsockname()[0])
    except (OSError, ValueError) as error:
        raise Failure(
            f"--on {master}: the master cannot be reached: {error}",
            help="start one: $SPARK_HOME/sbin/start-master.sh, and a worker",
        ) from None
