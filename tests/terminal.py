# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs commands as a person does: in a shell, in a terminal, in a folder of one's own."""

import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyte

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 80
# Seconds after which a command hangs.
TIMEOUT = 120
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")

# Commands before which something must be there: pattern, and what is run before it, once.
BEFORE = {
    "klogger compare": "for i in 1 2 3; do for name in before after; do "
    "klogger record -s scheduler -o $name$i.klog -- ./my-workload; done; done",
    "./prog": "cc -o prog prog.c",
    "--debug-dir ~/debug": "mkdir -p ~/debug",
}
# Recordings during which a command is typed.
DURING = {
    "klogger mark caches are warm": "klogger record -s scheduler -o marked.klog -- ",
    "klogger disable TRY_TO_WAKEUP": "klogger record -s scheduler -o disabled.klog -- ",
}
# What is typed when a command asks: its prompt, and the answer.
ANSWERS = {"klogger sql a.klog": [("klogger> ", "SELECT 42 AS answer;\n"), ("klogger> ", "\x04")]}


# Slow, because another program takes its CPU: one that waits often, and has precedence over all
# others when it goes on, so that it is the answer on a busy machine too.
SLOW = """#!/bin/sh
taskset -pc 0 $$ >/dev/null
chrt -f 1 ./hog &
i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done
wait
"""
HOG = """#!/usr/bin/perl
for (1 .. 20) {
    select(undef, undef, undef, 0.02);
    for ($i = 0; $i < 200000; $i++) {}
}
"""
BAD_SCHEMA = """schema bad "Mistakes"

event A "no such type" { innt pid }

probe tracepoint sched_swich(bool preempt) { klogger(A, 1); }
"""
BAD_ANALYSIS = """-- question: How long?
-- colunm: pid "thread"
SELECT pid FROM schedot;
"""


# Prompts, and what is typed at each.
Answers = list[tuple[str, str]]


@dataclass
class Shown:
    """The exit code of a command, and what it left on the screen."""

    code: int
    out: str
    err: str


class Room:
    """A folder with what the documents take for granted: a workload, a server, a Makefile."""

    def __init__(self, folder: Path, prefix: Path, root: bool = True):
        self.folder, self.prefix, self.root = folder, prefix, root
        self.running: list[subprocess.Popen] = []
        self.prepared: set[str] = set()

    def __enter__(self) -> "Room":
        forget_programs()
        forget_recorders()
        self.folder.mkdir()
        if not self.root:
            os.chown(self.folder, NOBODY, NOBODY)
        self.env = {
            "PATH": f"{self.prefix}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.folder),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "PAGER": "cat",
        }
        self.save("my-workload", "#!/bin/sh\nfor i in 1 2 3 4 5 6 7; do sleep 0.02; done\n")
        self.save("server", "#!/bin/sh\nexec sleep 1\n")
        self.save("slow", SLOW)
        self.save("hog", HOG)
        self.save("Makefile", "all check:\n\t@sleep 0.1; true\n")
        self.save("my.klogger", "schema my\nevent A { int id }\n")
        self.save("bad.klogger", BAD_SCHEMA)
        self.save("bad.sql", BAD_ANALYSIS)
        self.save("empty.klog", "")
        (self.folder / "empty").mkdir()
        log = (ROOT / "tests/logs/v3.klog").read_bytes()
        for name, part in (("a", log), ("half", log[: len(log) // 2]), ("private", log)):
            (self.folder / f"{name}.klog").write_bytes(part)
        shutil.copyfile(ROOT / "tests/logs/stacks.klog", self.folder / "stacks.klog")
        (self.folder / "private.klog").chmod(0o600)
        for name in ("schemata", "examples"):
            (self.folder / name).symlink_to(self.prefix / "share/klogger" / name)
        server = self.start("while :; do sleep 0.05; done")
        self.env["SERVER"] = str(server.pid)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait()

    def names(self) -> dict[str, str]:
        """What stands in a transcript for the paths of this run."""
        return {str(self.prefix): "PREFIX", str(self.folder): "~"}

    def save(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
        if not self.root:
            os.chown(path, NOBODY, NOBODY)

    def start(self, command: str) -> subprocess.Popen:
        """In the background, until the room is left."""
        null = subprocess.DEVNULL
        process = subprocess.Popen(
            ["sh", "-c", command],
            cwd=self.folder, env=self.env, stdin=null, stdout=null, stderr=null,
            start_new_session=True,
        )  # fmt: skip
        self.running.append(process)
        return process

    def run(self, command: str, root: bool, terminal: bool = True) -> Shown:
        self.prepare(command)
        prefix = () if root else AS_NOBODY
        words = [*prefix, "sh", "-c", command]
        with self.during(command):
            if terminal:
                return in_terminal(words, self.folder, self.env, ANSWERS.get(command, []))
            done = subprocess.run(
                words,
                cwd=self.folder, env=self.env, capture_output=True, text=True, check=False,
                stdin=subprocess.DEVNULL, timeout=TIMEOUT, start_new_session=True,
            )  # fmt: skip
            return Shown(done.returncode, done.stdout, done.stderr)

    def prepare(self, command: str) -> None:
        for pattern, first in BEFORE.items():
            if pattern in command and pattern not in self.prepared:
                self.prepared.add(pattern)
                subprocess.run(
                    ["sh", "-c", first],
                    cwd=self.folder, env=self.env, check=False, capture_output=True,
                )  # fmt: skip

    @contextlib.contextmanager
    def during(self, command: str) -> Iterator[None]:
        """A recording that runs while the command does, if it is about one."""
        recording = DURING.get(command)
        if recording is None:
            yield
            return
        begun = self.folder / "begun"
        begun.unlink(missing_ok=True)
        process = self.start(f"exec {recording} sh -c 'touch begun; exec sleep {TIMEOUT}'")
        deadline = time.monotonic() + TIMEOUT
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        yield
        process.send_signal(signal.SIGINT)
        process.wait()


def forget_programs() -> None:
    """Removes what programs that have ended left for `klogger rescue`, for it would be listed."""
    for file in Path("/dev/shm").glob("klogger-*/*.*"):
        pid = file.name.lstrip(".").split(".")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            file.unlink(missing_ok=True)


def forget_recorders() -> None:
    """Removes the rings of killed recorders, which recordings mention."""
    for folder in Path("/sys/fs/bpf/klogger").glob("*-*"):
        pid = folder.name.split("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def in_terminal(words: list[str], folder: Path, env: dict[str, str], answers: Answers) -> Shown:
    """Its standard input and output are one terminal, standard error another, so that each can be
    read alone.
    """
    screen, errors = Terminal(), Terminal()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *words],
        cwd=folder, env=env, stdin=screen.child, stdout=screen.child, stderr=errors.child,
    )  # fmt: skip
    for terminal in (screen, errors):
        os.close(terminal.child)
    left = list(answers)
    deadline = time.monotonic() + TIMEOUT
    open_ones = {terminal.here: terminal for terminal in (screen, errors)}
    while open_ones:
        ready, _, _ = select.select(list(open_ones), [], [], 1)
        for here in ready:
            if not open_ones[here].read():
                del open_ones[here]
        if left and screen.here in open_ones and screen.asks(left[0][0]):
            os.write(screen.here, left.pop(0)[1].encode())
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)
            raise TimeoutError(f"{' '.join(words)}: still running after {TIMEOUT} s")
    return Shown(process.wait(), screen.text(), errors.text())


class Terminal:
    """What a terminal shows in the end: progress that was written over is gone."""

    def __init__(self) -> None:
        self.here, self.child = pty.openpty()
        fcntl.ioctl(self.child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        attributes = termios.tcgetattr(self.child)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(self.child, termios.TCSANOW, attributes)
        # Wider, so that a line that is too long is seen as one; and with all lines.
        self.screen = pyte.Screen(4 * COLUMNS, 2000)
        self.stream = pyte.ByteStream(self.screen)

    def read(self) -> bool:
        try:
            read = os.read(self.here, 65536)
        except OSError:
            read = b""
        if not read:
            os.close(self.here)
        self.stream.feed(read)
        return bool(read)

    def text(self) -> str:
        last = self.screen.cursor.y
        rows = [self.row(y) for y in range(last + 1)]
        return "\n".join(rows).rstrip("\n") + "\n" if any(rows) else ""

    def asks(self, prompt: str) -> bool:
        return self.row(self.screen.cursor.y) == prompt

    def row(self, y: int) -> str:
        """A row as far as something was written, blanks too."""
        cells = self.screen.buffer[y]
        width = max(cells, default=-1) + 1
        text = "".join(cells[x].data for x in range(width))
        # Progress: erased to its end, or written over with blanks.
        return text.rstrip() if width == self.screen.columns or not text.strip() else text
