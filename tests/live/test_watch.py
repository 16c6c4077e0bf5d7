# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger watch` reports crashes and dead-locks while the command still runs, and nothing else;
its exit code says whether it did; the terminal is the command's.
"""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "schemata/lifecycle/studies/crash_suite.c"
# Long enough for any machine; what is waited for comes, or the test fails.
PATIENCE = 180


class Watch:
    """`klogger watch` with its findings in a file, and a command that ends when it is told to."""

    def __init__(self, klogger: Path, folder: Path):
        self.folder = folder
        self.report = folder / "found.json"
        self.env = {
            **os.environ,
            "KLOGGER": str(klogger),
            "KLOGGER_SCHEMATA": str(ROOT / "schemata"),
        }
        self.running = []

    def words(self, *options, command) -> list[str]:
        words = [sys.executable, "-m", "klogger_lab.cli.watch", *options, "--", *command]
        return [str(word) for word in words]

    def start(self, *options, command) -> subprocess.Popen:
        options = ["--format", "json", "--report", self.report, *options]
        process = subprocess.Popen(
            self.words(*options, command=command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self.env,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def found(self) -> list[dict]:
        text = self.report.read_text() if self.report.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def wait_found(self, number: int, process: subprocess.Popen) -> list[dict]:
        """As soon as there are so many, with the command still running."""
        until = time.monotonic() + PATIENCE
        while len(found := self.found()) < number:
            assert process.poll() is None and time.monotonic() < until, process.stderr.read()
            time.sleep(0.02)
        assert process.poll() is None
        return found

    def run(self, *options, command) -> tuple[int, str, str]:
        process = self.start(*options, command=command)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    def end(self):
        for process in self.running:
            if process.poll() is None:
                # The recorder is in a process group of its own, and ends with its command.
                process.terminate()
                process.wait(60)


@pytest.fixture
def watch(klogger, tmp_path):
    one = Watch(klogger, tmp_path)
    yield one
    one.end()


@pytest.fixture(scope="module")
def suite(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("suite") / "crash_suite"
    subprocess.run(["cc", "-O2", "-g", "-pthread", "-o", made, SUITE, "-lm"], check=True)
    return made


def test_crashes_are_reported_while_the_command_runs(watch, workloads, clean_kernel):
    process = watch.start(
        "-o", "kept.klog", command=["sh", "-c", '"$0"; read _', workloads / "lives"]
    )
    found = watch.wait_found(3, process)
    out, err = process.communicate("go on\n", timeout=PATIENCE)
    # `read` ends with success.
    assert (process.returncode, err) == (3, "")
    told = {
        int(pid): int(status) & 127
        for what, pid, status in map(str.split, out.splitlines())
        if what == "crash"
    }
    assert {one["process"]["pid"]: one["signal"] for one in found} == told
    assert len(watch.found()) == 3, "others were killed, or handled their faults"
    (fault,) = [one for one in found if one["signal"] == signal.SIGSEGV]
    assert fault["address"] == 0x10
    assert fault["stack"][0]["function"] == "planted_crash"
    assert fault["process"]["program"] == str(workloads / "lives")
    assert "sh" in fault["parents"][-1]["program"]
    # What was before is of the tree, in the order of time; the end is last.
    assert f"ENDED          pid=lives[{fault['process']['pid']}]" in fault["before"][-1]
    assert any("SIGNALLED" in line and "SIGSEGV" in line for line in fault["before"])
    assert (watch.folder / "kept.klog").stat().st_size > 0


def test_the_exit_code_is_the_commands_if_nothing_was_found(watch):
    script = "echo out; echo err >&2; exit 5"
    assert watch.run(command=["sh", "-c", script]) == (5, "out\n", "err\n")
    assert watch.found() == []


@pytest.mark.full("takes more than 3 s")
def test_the_command_itself_may_crash(watch, suite):
    """Its recorder has ended when this is seen, and the names are in the log."""
    code, out, err = watch.run(command=[suite, "segv"])
    assert (code, err) == (3, "")
    (one,) = watch.found()
    assert one["signal_name"] == "SIGSEGV"
    line = out.split()[3]
    assert one["stack"][0]["function"] == "fault"
    assert one["stack"][0]["source"].endswith(f"crash_suite.c:{line}")


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("role", ["handled", "longjmp"])
def test_a_handled_fault_is_no_crash(watch, suite, role):
    code, _, err = watch.run(command=[suite, role])
    assert (code, err, watch.found()) == (0, "", [])


@pytest.mark.full("takes more than 3 s")
def test_a_process_that_was_told_to_end_is_no_crash(watch):
    script = 'for s in TERM INT KILL HUP; do sh -c "kill -$s \\$\\$"; done; exit 0'
    code, _, _ = watch.run(command=["sh", "-c", script])
    assert (code, watch.found()) == (0, [])


@pytest.mark.full("takes more than 3 s")
def test_a_dead_lock_is_reported_while_it_lasts(watch, suite):
    process = watch.start(command=[suite, "deadlock"])
    (one,) = watch.wait_found(1, process)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3 and len(watch.found()) == 1
    _, pid, *locks = out.splitlines()[0].split()
    assert one["finding"] == "deadlock" and one["process"]["pid"] == int(pid)
    assert one["lasted"] is None
    threads = {thread["thread"]: thread for thread in one["threads"]}
    assert {thread["lock"] for thread in threads.values()} == {int(lock, 16) for lock in locks}
    assert len(threads) == 2
    assert all(thread["holder"] in threads for thread in threads.values())
    assert all(thread["holder"] != number for number, thread in threads.items())
    for thread in threads.values():
        names = {frame["function"] for frame in thread["stack"]}
        assert any("lock" in name for name in names), names


@pytest.mark.full("takes more than 3 s")
def test_the_first_finding_may_end_the_command(watch, suite):
    """`sleep` would take longer than the test waits."""
    script = f'"$0" segv; exec sleep {10 * PATIENCE}'
    code, _, _ = watch.run("--stop-on-find", command=["sh", "-c", script, suite])
    assert code == 3 and len(watch.found()) == 1


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("what", ["pingpong", "pi", "free"])
def test_locks_without_a_circle_are_no_dead_lock(watch, workloads, what):
    code, _, _ = watch.run(command=[workloads / "user_locks", what])
    assert (code, watch.found()) == (0, [])


@pytest.mark.full("takes more than 3 s")
def test_text_names_the_program_the_function_and_the_files_before(watch, suite):
    words = ["sh", "-c", 'cat /dev/null /etc/hostname >/dev/null 2>&1; "$0" segv', suite]
    words = watch.words("-s", "files", "--before", "200", command=words)
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=PATIENCE, env=watch.env,
        cwd=watch.folder,
    )  # fmt: skip
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("klogger watch: "))
    assert "crash_suite[" in lines[first] and "SIGSEGV at 0x10" in lines[first]
    assert any(line.startswith("  stack    fault") for line in lines)
    assert sum("READ " in line or "LOOK " in line for line in lines) > 3
    assert lines[-1] == "klogger watch: 1 crash"


def test_bad_input_is_one_message(watch):
    code, _, err = watch.run("-s", "no-such-schema", command=["true"])
    assert code == 2 and err.count("klogger: ") == 1 and "no-such-schema" in err
    code, _, err = watch.run("-o", "/proc/no/such", command=["true"])
    assert code == 2 and err.count("klogger: ") == 1


# Says whether it has the terminal, and ends by Ctrl-C as it likes.
AT_TERMINAL = """
import os, signal, sys, time
def end(*_):
    print("interrupted", flush=True)
    sys.exit(7)
signal.signal(signal.SIGINT, end)
print("foreground", os.isatty(0), os.tcgetpgrp(0) == os.getpgrp(), flush=True)
print("said", input(), flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.mark.full("takes more than 3 s")
def test_the_terminal_is_the_commands(watch):
    """What is typed, and Ctrl-C."""
    words = watch.words(command=[sys.executable, "-c", AT_TERMINAL])
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(watch.folder)
        os.execvpe(words[0], words, watch.env)
    try:
        read_until(terminal, b"foreground True True")
        os.write(terminal, b"hello\n")
        read_until(terminal, b"said hello")
        os.write(terminal, b"\x03")
        read_until(terminal, b"interrupted")
        _, status = os.waitpid(pid, 0)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        raise
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 7


def read_until(terminal: int, wanted: bytes):
    found = b""
    until = time.monotonic() + PATIENCE
    while wanted not in found:
        assert time.monotonic() < until, found
        if select.select([terminal], [], [], 1)[0]:
            found += os.read(terminal, 4096)
