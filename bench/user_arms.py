# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The programs that log, beside LTTng-UST and the least there is: built once, run arm by arm."""

import os
import re
import signal
import statistics
import time
from contextlib import contextmanager
from pathlib import Path

from measure import report_of, run

HERE = Path(__file__).resolve().parent / "user"
EVENTS = 100_000
FLIGHT = {"KLOGGER_FLIGHT": str(1 << 20)}


class Arms:
    """The programs, compiled once, and a folder for what they share."""

    def __init__(self, tools):
        self.tools = tools
        self.folder = tools.folder / "user"
        self.shared = self.folder / "shared"
        self.shared.mkdir(parents=True, exist_ok=True)
        self.shared.chmod(0o700)
        run(
            [
                tools.klogger,
                "gen",
                HERE / "cost.klogger",
                HERE / "shapes.klogger",
                "-o",
                self.folder,
            ]
        )
        self.plain = self.build("plain")
        self.klogger = self.build("klogger")
        self.clockless = self.build("klogger", "clockless", "-D__builtin_ia32_rdtsc()=1ull")
        self.lttng = self.build("lttng", "lttng", "-llttng-ust", "-ldl")

    def build(self, arms: str, out: str = "", *more: str) -> Path:
        program = self.folder / (out or arms)
        command = [
            "gcc",
            "-O2",
            "-pthread",
            "-I",
            self.folder,
            "-I",
            HERE,
            HERE / "cost.c",
            HERE / f"{arms}.c",
        ]
        run([*command, "-o", program, *more])
        return program

    def environment(self, more: dict) -> dict:
        others = {k: v for k, v in os.environ.items() if not k.startswith("KLOGGER_")}
        own = {
            "KLOGGER_DIR": str(self.shared),
            "TRACE_MARKER": str(self.tools.tracing / "trace_marker"),
        }
        return {**others, **own, **more}

    def run(self, command: list, **more: str) -> str:
        """Runs a program and removes what it leaves: a flight recorder's rings."""
        try:
            return run(command, env=self.environment(more))
        finally:
            for left in self.shared.iterdir():
                left.unlink()

    def loop(
        self,
        program: Path,
        arm: str,
        threads: int = 1,
        prefix=(),
        events: int = EVENTS,
        **more: str,
    ) -> dict:
        """Median nanoseconds of CPU time an event."""
        batches = report_of(self.run([*prefix, program, arm, events, threads, "loop"], **more))[
            "batches"
        ]
        return {"ns": statistics.median(batches)}

    def recorded(self, arm: str, threads: int) -> dict:
        """With a recorder that empties the rings meanwhile."""
        log = self.folder / "user.klog"
        prefix = [
            self.tools.klogger,
            "record",
            "--engine",
            "user",
            "--user-buffer",
            "16M",
            "-o",
            log,
            "--",
        ]
        result = self.loop(self.klogger, arm, threads, prefix)
        summary = run([self.tools.klogger, "info", log])
        logged = re.search(r"^events +([\d,]+)", summary, re.M)
        lost = re.search(r"^events .* ([\d,]+) lost", summary, re.M)
        counts = [int(found[1].replace(",", "")) if found else 0 for found in (logged, lost)]
        return {**result, "lost": counts[1] / sum(counts)}


@contextmanager
def lttng(folder: Path):
    """A session daemon of our own, and a session that keeps the newest in large sub-buffers
    and is not read.
    """
    home = folder / "lttng-home"
    home.mkdir(exist_ok=True)
    env = {**os.environ, "HOME": str(home), "LTTNG_HOME": str(home)}
    pid_file = home / "pid"
    run(["lttng-sessiond", "--daemonize", "--no-kernel", "--pidfile", pid_file], env=env)
    daemon = int(pid_file.read_text())
    try:
        run(["lttng", "create", "bench", "--snapshot", f"--output={home}/traces"], env=env)
        sizes = ["--overwrite", "--subbuf-size=4M", "--num-subbuf=4"]
        run(["lttng", "enable-channel", "--userspace", "--buffers-uid", *sizes, "large"], env=env)
        run(["lttng", "enable-event", "--userspace", "--channel=large", "cost:two_ints"], env=env)
        run(["lttng", "start"], env=env)
        yield {"HOME": str(home), "LTTNG_HOME": str(home), "LTTNG_UST_REGISTER_TIMEOUT": "-1"}
        run(["lttng", "destroy"], env=env)
    finally:
        os.kill(daemon, signal.SIGTERM)
        while Path(f"/proc/{daemon}").exists():
            time.sleep(0.1)
