# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that log, made with the headers that `klogger gen` writes, and a folder for what they
share.
"""

import json
import os
import resource
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import compilers
import pytest
from oracles import Log, workload_json
from shm_oracle import Drainer

PROGRAMS = Path(__file__).resolve().parent / "programs"
CLANG, CLANGXX = compilers.clang(), compilers.clangxx()


@pytest.fixture(scope="session")
def headers(klogger, tmp_path_factory) -> Path:
    """The generated headers of all schemata in programs/."""
    made = tmp_path_factory.mktemp("headers")
    subprocess.run([klogger, "gen", *sorted(PROGRAMS.glob("*.klogger")), "-o", made], check=True)
    return made


@dataclass
class Builder:
    headers: Path
    folder: Path

    def __call__(self, *sources: str, out: str | None = None, cc="gcc", flags=()) -> Path:
        """Compiles programs/SOURCE...; each warning is an error."""
        program = self.folder / (out or Path(sources[0]).stem)
        flags = ["-O2", *flags] if not any(str(f).startswith("-O") for f in flags) else list(flags)
        command = [
            cc,
            *flags,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            f"-I{self.headers}",
            f"-I{PROGRAMS}",
        ]
        command += ["-o", program, *(PROGRAMS / s for s in sources)]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stderr}"
        return program


@pytest.fixture(scope="session")
def build(headers, tmp_path_factory) -> Builder:
    return Builder(headers, tmp_path_factory.mktemp("programs"))


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def report(self) -> dict:
        return json.loads(self.out)


def report_in(done: Done) -> dict:
    """What a program printed among the output of its recorder."""
    return workload_json(done.out)


@dataclass
class Room:
    """A folder of shared files, and programs that use it."""

    path: Path

    def environment(
        self, record=True, ring=1 << 20, slots=512, clock=1, schemata="*", off="", **more
    ) -> dict:
        env = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith("KLOGGER_") and k != "XDG_RUNTIME_DIR"
        }
        env["KLOGGER_DIR"] = str(self.path)
        if record:
            env["KLOGGER_RECORD"] = (
                f"1:1234abcd:{os.getpid()}:{ring}:{slots}:{clock}:{schemata}:{off}"
            )
        return {**env, **{k: str(v) for k, v in more.items()}}

    def start(self, *command, prefix=(), **env) -> subprocess.Popen:
        return subprocess.Popen(
            list(map(str, (*prefix, *command))),
            env=self.environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command, timeout=120, **env) -> Done:
        process = self.start(*command, **env)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return Done(process.returncode, out, err)

    def record(self, *command, timeout=300, **env) -> tuple[Done, Drainer]:
        """Runs a program, and empties its rings meanwhile."""
        drainer = Drainer(self.path)
        process = self.start(*command, **env)
        until = time.monotonic() + timeout
        try:
            while process.poll() is None:
                assert time.monotonic() < until, "the program hangs"
                if not drainer.round():
                    time.sleep(0.001)
            drainer.finish()
            out, err = process.communicate()
        finally:
            process.kill()
        return Done(process.returncode, out, err), drainer

    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())


@pytest.fixture
def room() -> Iterator[Room]:
    """In memory, where such folders usually are; and programs by the thousand have a file each."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        path = Path(folder, "shared")
        path.mkdir(mode=0o700)
        yield Room(path)


@dataclass
class Recorder:
    """`klogger record`, with a folder of shared files of its own."""

    klogger: Path
    room: Room
    folder: Path
    prefix: tuple = ()

    def __post_init__(self):
        self.logs = 0
        self.running: list[subprocess.Popen] = []

    def spawn(self, *command, prefix=()) -> subprocess.Popen:
        process = subprocess.Popen(
            list(map(str, (*prefix, *command))),
            env=self.room.environment(record=False),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def start(self, *arguments) -> tuple[subprocess.Popen, Path]:
        self.logs += 1
        out = self.folder / f"test{self.logs}.klog"
        return self.spawn(self.klogger, "record", "-o", out, *arguments, prefix=self.prefix), out

    def started(self, *arguments) -> tuple[subprocess.Popen, Path]:
        """When it records: it can be told to write a mark."""
        process, out = self.start(*arguments)
        until = time.monotonic() + 60
        while self.do("mark", "--recorder", process.pid, 0, "ready").code != 0:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until, "the recorder does not begin"
            time.sleep(0.02)
        return process, out

    def end(self, process: subprocess.Popen, timeout=120) -> Done:
        process.send_signal(signal.SIGINT)
        return self.wait(process, timeout)

    def wait(self, process: subprocess.Popen, timeout=120) -> Done:
        out, err = process.communicate(timeout=timeout)
        return Done(process.returncode, out, err)

    def run(self, *arguments, timeout=300) -> tuple[Done, Path]:
        process, out = self.start(*arguments)
        return self.wait(process, timeout), out

    def do(self, *words) -> Done:
        """As the user of the recorder: no other user may control it."""
        return self.wait(self.spawn(self.klogger, *words, prefix=self.prefix))

    def log(self, path: Path) -> Log:
        return Log(self.klogger, path)

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


@pytest.fixture
def recorder(klogger, room, tmp_path) -> Iterator[Recorder]:
    recorder = Recorder(klogger, room, tmp_path)
    yield recorder
    recorder.close()
