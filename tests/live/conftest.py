# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The live kernel: a recorder to run in the tests, and the certainty that it leaves nothing in the
kernel.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import oracles
import pytest
from disturbed import disturbed
from oracles import Log, Stolen, workload_json
from witness import Witness

from klogger_lab.disk import loop_disk

HERE = Path(__file__).resolve().parent
# For programs whose user stacks are to have names.
RENAMES = """schema who "Who renames a thread"
event RENAMED "a thread has a new name" {
    string[16] name
    context    user_stack stack
}
probe tracepoint task_rename(struct task_struct *task, const char *comm) {
    klogger(RENAMED, comm);
}
"""


def why_not() -> str | None:
    if os.geteuid() != 0:
        return "not root"
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "this kernel has no type information (/sys/kernel/btf/vmlinux)"
    return None


def pytest_collection_modifyitems(items):
    reason = why_not()
    for item in items:
        if reason and HERE in Path(item.path).parents:
            item.add_marker(
                pytest.mark.skip(reason=f"the live kernel cannot be recorded: {reason}")
            )


@dataclass
class Done:
    code: int
    out: str
    err: str


def wait_for(what, process=None, patience=60):
    """Until `what()` is true, which is returned, while the process runs."""
    deadline = time.monotonic() + patience
    while not (found := what()):
        assert time.monotonic() < deadline, "it takes too long"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.01)
    return found


@contextlib.contextmanager
def small_disk_at(folder: Path, size: str) -> Iterator[Path]:
    """A file system of so many bytes in a folder that it makes."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def rings_allowed() -> Iterator[None]:
    """The kernel may forbid io_uring."""
    switch = Path("/proc/sys/kernel/io_uring_disabled")
    before = switch.read_text() if switch.exists() else None
    try:
        if before is not None:
            switch.write_text("0\n")
        yield
    finally:
        if before is not None:
            switch.write_text(before)


@contextlib.contextmanager
def limited(what, *choices) -> Iterator[Path]:
    """The file that takes the processes of a control group with limits. `choices`: by the version
    of control groups, the folder of groups, and what is written to files of the new one.
    """
    for folder, files in choices:
        group = Path(folder) / f"klogger-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            try:
                for name, value in files.items():
                    (group / name).write_text(value)
            except OSError:
                continue
            yield group / "cgroup.procs"
            return
        finally:
            group.rmdir()
    pytest.skip(f"no control group with {what} can be made")


@pytest.fixture
def disk():
    """A loop device in memory."""
    with (
        tempfile.TemporaryDirectory(prefix="klogger-disk-", dir="/dev/shm") as folder,
        loop_disk(Path(folder), 256) as made,
    ):
        yield made


def is_stopped(pid):
    """Each of its threads."""
    stats = [
        stat.read_text().rsplit(")", 1)[1].split()
        for stat in Path(f"/proc/{pid}/task").glob("*/stat")
    ]
    return all(fields[0] == "T" for fields in stats)


@dataclass
class WhileStopped:
    """What a workload printed, and the recorder said; between which times (ns) the recorder was
    stopped.
    """

    report: dict
    said: str
    stopped: int
    until: int


@dataclass
class Recorder:
    """Runs `klogger record`, from a folder of its own."""

    klogger: Path
    dir: Path
    logs: int = 0
    running: list = field(default_factory=list)

    def path(self) -> Path:
        self.logs += 1
        return self.dir / f"test{self.logs}.klog"

    def start(self, *arguments, out: Path, prefix=()) -> subprocess.Popen:
        """In a process group of its own, as a shell does it. `out` is a folder with --segment."""
        where = "--dir" if "--segment" in arguments else "-o"
        process = subprocess.Popen(
            [*prefix, self.klogger, "record", where, out, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.dir,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def run(self, *arguments, out: Path | None = None, timeout=120) -> tuple[Done, Path]:
        out = out or self.path()
        process = self.start(*arguments, out=out)
        stdout, stderr = process.communicate(timeout=timeout)
        return Done(process.returncode, stdout, stderr), out

    def log(self, *arguments, timeout=120) -> tuple[Log, dict]:
        """Records a workload that prints a report; both."""
        with Stolen() as stolen:
            done, out = self.run(*arguments, timeout=timeout)
        assert done.code == 0, done.err
        return Log(self.klogger, out), workload_json(done.out) | {"stolen_ns": stolen.ns}

    def while_stopped(self, *arguments, command, out: Path, seconds=0.0) -> WhileStopped:
        """Records a command that prints a report, which begins when the recorder is stopped, and
        ends before it goes on, for so many seconds at least: so what its rings do not hold is lost,
        whatever the machine.
        """
        go = self.dir / f"go{self.logs}"
        wait = 'echo ready; while [ ! -e "$0" ]; do sleep 0.02; done; exec "$@"'
        process = self.start(*arguments, "--", "sh", "-c", wait, go, *command, out=out)
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        os.kill(process.pid, signal.SIGSTOP)
        try:
            wait_for(lambda: is_stopped(process.pid), process)
            stopped = time.monotonic_ns()
            go.touch()
            text = ""
            while not text.endswith("]}\n"):
                text += process.stdout.readline()
            time.sleep(max(0.0, seconds - (time.monotonic_ns() - stopped) / 1e9))
            until = time.monotonic_ns()
        finally:
            os.kill(process.pid, signal.SIGCONT)
        _, said = process.communicate(timeout=60)
        return WhileStopped(workload_json(text), said, stopped, until)

    def checked(self, check, *arguments) -> tuple[Log, dict]:
        """Records a workload and checks the log; again if the kernel, not the recorder, left out a
        switch.

        Whatever the kernel leaves out, each time that a thread stopped running is in the log: only
        switches from other threads, and from the idle ones, are known to stay unreported.
        """
        for _ in range(5):
            with Witness() as ftrace:
                log, report = self.log(*arguments)
            try:
                check(log, report)
            except AssertionError as error:
                if not ftrace.unreported() or not ftrace.clears(log, report):
                    raise
                for thread in report["threads"]:
                    oracles.check_switched_out(log, thread)
                last = error
            else:
                return log, report
        disturbed(
            f"the kernel did {ftrace.unreported()} switches that ftrace has not seen either: {last}"
        )

    def command(self, *words, timeout=120, **more) -> Done:
        words = [self.klogger, *map(str, words)]
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.dir,
            timeout=timeout,
            **more,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def end(self):
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def refused_place(recorder: Recorder, program: Path, kind: str, place: str) -> tuple[str, str]:
    """Checks that a probe in a program is refused; the message and the remedy."""
    schema = recorder.dir / "refused.klogger"
    schema.write_text(f"event E {{ }}\nprobe {kind} {program}:{place}() {{ klogger(E); }}\n")
    checked = recorder.command("check", "--format", "json", schema)
    assert checked.code == 2, checked.err
    found = json.loads(checked.out)[0]["diagnostics"][0]
    message, help = (found[key].replace(str(program), "PROGRAM") for key in ("message", "help"))
    return message, help


@pytest.fixture
def public_klogger(klogger):
    """klogger in a folder that all users can read, for those that are not root."""
    public = Path(tempfile.mkdtemp())
    public.chmod(0o755)
    yield Path(shutil.copy(klogger, public / "klogger"))
    shutil.rmtree(public)


def as_nobody(*words) -> Done:
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=120,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def recorder(klogger, tmp_path):
    recorder = Recorder(klogger, tmp_path)
    yield recorder
    recorder.end()


@pytest.fixture(scope="module")
def recorder_for_all(klogger, tmp_path_factory):
    """For a recording that several tests of a module read, and none changes."""
    recorder = Recorder(klogger, tmp_path_factory.mktemp("recorded"))
    yield recorder
    recorder.end()


def is_ours(pid: str) -> bool:
    """Whether a process descends from the tests."""
    while pid not in ("0", str(os.getpid())):
        pid = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
    return pid != "0"


def others() -> list[str]:
    """The klogger processes that are not ours: someone may be recording beside the tests."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "comm").read_text() == "klogger\n" and not is_ours(folder.name):
                found.append(folder.name)
    return found


def opened(pids) -> set:
    """(kind, id) of the BPF programs and maps that processes have open."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for file in Path(f"/proc/{pid}/fdinfo").iterdir():
                ids = re.findall(r"^(prog|map)_id:\s*(\d+)$", file.read_text(), re.M)
                found.update((kind, int(number)) for kind, number in ids)
    return found


def bpf_objects() -> set:
    """(kind, id, name) of each BPF program and map of klogger, but for those of other recorders."""
    recorders = others()
    found, theirs = {}, opened(recorders)
    for kind in ("map", "prog"):
        listed = subprocess.run(
            ["bpftool", "-f", "-j", kind, "show"], capture_output=True, text=True, check=True
        ).stdout
        for item in json.loads(listed or "[]"):
            if "klogger" in item.get("name", ""):
                found[kind, item["id"]] = item["name"]
            # The folder of a recorder's pins is PID-TIME.
            pins = [Path(pin).parent.name.split("-")[0] for pin in item.get("pinned", [])]
            if any(pid in recorders for pid in pins):
                theirs.add((kind, item["id"]))
            if (kind, item["id"]) in theirs:
                theirs.update(("map", number) for number in item.get("map_ids", []))
    return {(*key, name) for key, name in found.items() if key not in theirs}


@pytest.fixture
def clean_kernel():
    """Fails a test that leaves a BPF program or map behind."""
    if not shutil.which("bpftool"):
        pytest.skip("bpftool is needed to see what is left in the kernel")
    before = bpf_objects()
    yield
    # The kernel frees them when the last reader is certainly gone.
    for _ in range(100):
        left = bpf_objects() - before
        if not left:
            return
        time.sleep(0.1)
    pytest.fail(f"left in the kernel: {sorted(left)}")
