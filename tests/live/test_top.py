# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger top` of real recordings: its numbers are those of the workload, its screen fits, and
nothing of it is left, however it ends.
"""

import contextlib
import fcntl
import json
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte
import pytest

ROOT = Path(__file__).resolve().parents[2]
# Long enough for any machine; what is waited for comes, or the test fails.
PATIENCE = 180
COLUMNS, LINES = 80, 24
ENDLESS = 1_000_000_000


@pytest.fixture
def env(klogger, tmp_path):
    folder = tmp_path / "private"
    folder.mkdir()
    return {
        **os.environ,
        "KLOGGER": str(klogger),
        "KLOGGER_SCHEMATA": str(ROOT / "schemata"),
        "TMPDIR": str(folder),
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
    }


def words_of(*words):
    return [sys.executable, "-m", "klogger_lab.cli.top", *map(str, words)]


def once(env, *words):
    done = subprocess.run(
        words_of("--once", "--format", "json", *words),
        env=env, capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def written(out):
    """What the workload wrote: a JSON object."""
    return json.loads(out.read_text())


@pytest.mark.full("takes more than 3 s")
def test_one_window_has_the_numbers_of_the_workload(env, workloads, tmp_path):
    """Each switch of two partners, as each counts its own."""
    out = tmp_path / "out"
    found = once(
        env, "--analysis", "switches", "--window", "600s", "--output", out,
        "--", workloads / "pingpong", 3000, "processes", 0,
    )  # fmt: skip
    assert found["state"] == "ended" and found["reason"].endswith("exit code 0")
    assert found["lost"] == 0 and not found["ledger"] and not found["short"]
    threads = written(out)["threads"]
    counted = sum(one["nvcsw"] + one["nivcsw"] for one in threads)
    (analysis,) = found["analyses"]
    switches = sum(row["switches"] for row in analysis["table"] if row["program"] == "pingpong")
    # Each partner ends after it has counted; and their parent waits and ends. On a busy machine any
    # of these can be preempted a few times more.
    assert counted + 2 <= switches <= counted + 60
    assert found["events"] / found["seconds"] == pytest.approx(found["events_per_s"])


@pytest.mark.full("takes more than 3 s")
def test_the_window_is_as_long_as_it_was_asked_to_be(env, workloads):
    found = once(
        env, "--analysis", "quanta", "--window", "500ms",
        "--", workloads / "pingpong", ENDLESS, "processes", 0,
    )  # fmt: skip
    assert found["state"] == "running" and found["events"] > 0
    assert found["window_s"] == 0.5 and found["seconds"] == pytest.approx(0.5)


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("name", ["[red]\x1b[2J", "\x1b]0;owned\x07"])
def test_the_name_of_a_thread_is_text(env, name):
    """Raw in JSON, where it is escaped, and harmless in a text."""
    rename = f"open('/proc/self/comm', 'w').write({name!r})\nfor _ in range(9): time.sleep(0.001)"
    words = ["--analysis", "switches", "--window", "600s", "--", sys.executable, "-c"]
    words.append(f"import time\n{rename}")
    programs = {row["program"] for row in once(env, *words)["analyses"][0]["table"]}
    assert name[:15] in programs
    done = subprocess.run(
        words_of("--once", *words), env=env, capture_output=True, text=True, check=False,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0 and "\x1b" not in done.stdout and "\x07" not in done.stdout


class Screen:
    """`klogger top` in a terminal."""

    def __init__(self, env, *words, shell=False):
        self.screen = pyte.Screen(COLUMNS, LINES)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            command = ["bash", "--norc", "-i"] if shell else words_of(*words)
            os.execvpe(command[0], command, env)
        size = struct.pack("HHHH", LINES, COLUMNS, 0, 0)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, size)
        self.code = None

    def press(self, keys):
        os.write(self.terminal, keys.encode())

    def read(self):
        if self.terminal is None:
            time.sleep(0.05)
        elif select.select([self.terminal], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):
                found = os.read(self.terminal, 1 << 16)
                self.raw += found
                self.stream.feed(found)

    def until(self, what):
        deadline = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < deadline, self.text()
            self.read()

    def text(self):
        return "\n".join(self.screen.display)

    def has(self, word):
        self.until(lambda: word in self.text())

    def ended(self):
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def hang_up(self):
        os.close(self.terminal)
        self.terminal = None

    def close(self):
        # Not at once SIGKILL, after which the command would run on.
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + PATIENCE / 3
            if not self.ended():
                os.kill(self.pid, number)
            while not self.ended() and time.monotonic() < deadline:
                self.read()
        if self.terminal is not None:
            os.close(self.terminal)


@pytest.fixture
def screen(env):
    shown = []

    def show(*words, **options):
        shown.append(Screen(env, *words, **options))
        return shown[-1]

    yield show
    for one in shown:
        one.close()


def recorders(folder):
    """Processes that have a file of this folder among their words."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in one.read_bytes():
                found.append(int(one.parent.name))
    return found


def nothing_is_left(env):
    folder = env["TMPDIR"]
    until(
        lambda: not any(map(is_running, recorders(folder))) and not os.listdir(folder),
        lambda: (recorders(folder), os.listdir(folder)),
    )


def until(what, why=lambda: ""):
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


def is_running(pid):
    """One that has ended may be there until somebody asks for its exit code."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def descendants(pid):
    found, new = set(), {pid}
    while new:
        found |= new
        new = {child for one in new for child in children(one)} - found
    return found - {pid}


def children(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


@pytest.mark.full("takes more than 3 s")
def test_the_screen_in_80x24(env, screen, workloads):
    """Answers, another analysis, the events behind a row; no line is broken."""
    one = screen("--window", "1s", "--", workloads / "pingpong", ENDLESS, "processes", 0)
    one.has("pingpong  ")
    one.has("under 100us")
    one.has("none missing")
    assert "klogger needs" in one.screen.display[2]
    one.press("2")
    one.has("who gets its CPU?")
    one.press("1")
    one.has("before its CPU is given")
    one.press("\r")
    one.has("program = 'pingpong'")
    one.has("SCHEDIN")
    one.press("\x1b")
    one.has("under 100us")
    one.press("q")
    one.until(one.ended)
    assert one.code == 0
    nothing_is_left(env)


@pytest.mark.full("takes more than 3 s")
def test_the_output_of_the_command_is_not_on_the_screen(env, screen, tmp_path):
    out = tmp_path / "out"
    # The words themselves are in the title.
    loud = "printf 'LO%s\\n' UD; printf 'LO%s\\n' UDER >&2; sleep 0.1; exit 3"
    one = screen("--output", out, "--", "sh", "-c", loud)
    one.has("the command has ended with exit code 3")
    one.press("q")
    one.until(one.ended)
    assert one.code == 0 and b"LOUD" not in one.raw
    assert out.read_text() == "LOUD\nLOUDER\n"


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("how", ["SIGHUP", "SIGTERM", "SIGINT", "Ctrl-C", "terminal"])
def test_nothing_is_left_however_it_ends(env, screen, workloads, how):
    one = screen("--window", "1s", "--", workloads / "pingpong", ENDLESS, "processes", 0)
    one.has("under 100us")
    assert recorders(env["TMPDIR"])
    if how == "terminal":
        one.hang_up()
    elif how == "Ctrl-C":
        one.press("\x03")
    else:
        os.kill(one.pid, getattr(signal, how))
    one.until(one.ended)
    nothing_is_left(env)


DEAF = "trap '' INT TERM HUP; while :; do sleep 0.01; done"


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("command", [["-a"], ["--", "sh", "-c", DEAF]])
def test_nothing_outlives_a_screen_that_is_killed(env, screen, command):
    one = screen("--window", "1s", *command)
    one.has("under 100us")
    running = descendants(one.pid)
    assert len(running) >= 3
    os.kill(one.pid, signal.SIGKILL)
    nothing_is_left(env)
    until(lambda: not any(map(is_running, running)))


@pytest.mark.full("takes more than 3 s")
def test_a_command_that_cares_for_no_signal_ends(env, screen):
    one = screen("--window", "1s", "--", "sh", "-c", DEAF)
    one.has("under 100us")
    running = descendants(one.pid)
    one.press("q")
    one.until(one.ended)
    assert one.code == 0
    nothing_is_left(env)
    until(lambda: not any(map(is_running, running)))


@pytest.mark.full("takes more than 3 s")
def test_a_reader_that_has_had_enough_ends_it(env):
    """`klogger top --once | head -1`"""
    with subprocess.Popen(
        words_of("--once", "--window", "100ms", "-a"), env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as one:  # fmt: skip
        one.stdout.close()
        assert one.stderr.read() == ""
    nothing_is_left(env)


@pytest.mark.full("takes more than 3 s")
def test_it_comes_back_from_the_background(env, screen):
    """Of a shell with job control; the recording goes on meanwhile."""
    one = screen(shell=True)
    one.press(shlex.join(words_of("--window", "1s", "-a")) + "\r")
    one.has("under 100us")
    one.press("\x1a")
    one.has("Stopped")
    assert recorders(env["TMPDIR"])
    one.press("fg\r")
    one.has("under 100us")
    one.press("q")
    one.until(lambda: b"\x1b[?1049l" in one.raw[-2000:] and not recorders(env["TMPDIR"]))
    one.press("exit\r")
    one.until(one.ended)
    nothing_is_left(env)


@pytest.mark.full("takes more than 3 s")
def test_a_recorder_that_dies_is_explained(env, screen, workloads):
    one = screen("--window", "1s", "--", workloads / "pingpong", ENDLESS, "processes", 0)
    one.has("under 100us")
    recorder = [pid for pid in recorders(env["TMPDIR"]) if is_klogger(pid)]
    os.kill(recorder[0], signal.SIGKILL)
    one.has("exit code -9")
    one.press("q")
    one.until(one.ended)
    # Its rings would be there for later tests, which are told of them.
    rescue = [env["KLOGGER"], "rescue", str(recorder[0]), "-o", f"{env['TMPDIR']}/rescued.klog"]
    assert subprocess.run(rescue, capture_output=True, check=False).returncode == 0
    Path(rescue[-1]).unlink()
    # The shell that ran the command has lost its pipe, too.
    nothing_is_left(env)


def is_klogger(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1] == b"record"
    return False


def test_a_schema_that_is_not_there_is_said_once(env, screen):
    one = screen("-s", "nosuch", "-a")
    one.until(one.ended)
    one.read()
    assert one.code == 2 and "there is no schema 'nosuch'" in one.raw.decode()
