# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Bad moments, bad neighbours and odd names: the recorder ends as it should, and leaves nothing
running.
"""

import os
import pty
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import compilers
import oracles
import pytest
from oracles import Log
from test_recorder import FLOOD, finish, started, wait_for

ODD_NAMES = ['a "b".klogger', "a\\b%s.klogger", "a\tb\n.klogger", "ä ö.klogger"]
SCHEMA = """schema odd "Odd, but right"
event NOTHING { }
event copy { int commit }
event WIDE { u8 bytes[1000] }
event TEXTS { string first  string[16] second }
event CONTEXT { int x  context tid tgid prio cgroup }
event BITS { uint a  bool b  uchar c  short d  longlong e }
probe tracepoint task_rename(struct task_struct *task, const char *comm) {
    klogger(NOTHING);
    klogger(copy, 7);
    klogger(WIDE, (const unsigned char *)task);
    klogger(TEXTS, comm, comm);
    klogger(CONTEXT, 5);
    klogger(BITS, task->sched_reset_on_fork, task->pid, 44, -1, -1);
}
"""


def of_recorder(path):
    """Process ids of those whose command line names the log."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if os.fsencode(path) in words:
            found.append(int(pid))
    return found


@pytest.mark.full("others of this file are in the gate")
def test_killed_while_the_command_is_held(recorder, clean_kernel):
    """The command waits for a word of the recorder. It must not wait for one that is gone."""
    held = turns = 0
    # On a busy machine the command has often ended before it is looked at.
    while held < 5:
        turns += 1
        assert turns < 200, f"the command was met before its start {held} times"
        path = recorder.path()
        process = recorder.start("-q", "-s", "scheduler", "--", "sleep", "0", out=path)
        assert wait_for(
            lambda path=path, of=process: len(of_recorder(path)) > 1 or of.poll() is not None
        )
        held += process.poll() is None
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        assert wait_for(lambda path=path: not of_recorder(path), 60), "a process waits for ever"
        # One that was killed late has left its rings, which are there until they are rescued.
        if f"recorder[{process.pid}]" in recorder.command("rescue").out:
            rescued = recorder.command("rescue", process.pid, "-o", recorder.path())
            assert rescued.code == 0 or "has been freed" in rescued.err, rescued.err


@pytest.mark.full("others of this file are in the gate")
def test_an_error_after_the_command_was_made(recorder, clean_kernel):
    path = recorder.dir / "no" / "x.klog"
    done, _ = recorder.run("-s", "scheduler", "--", "sleep", "0", out=path, timeout=60)
    assert done.code == 2
    assert wait_for(lambda: not of_recorder(path), 60)


@pytest.mark.full("others of this file are in the gate")
def test_a_signal_before_the_start_starts_nothing(recorder):
    """Wherever the signal hits: an end, and either the command did not run or the log is whole."""
    for turn in range(10):
        path, ran = recorder.path(), recorder.dir / f"ran{turn}"
        process = recorder.start("-q", "-s", "scheduler", "--", "touch", ran, out=path)
        time.sleep(0.02 * turn)
        process.terminate()
        finish(process)
        if ran.exists():
            oracles.check_whole(Log(recorder.klogger, path))
        elif process.returncode == 2:
            assert not path.exists()


def test_control_c_on_a_terminal(recorder):
    """Once to the command, although the recorder hears it as well; the recording ends as
    it should.
    """
    path, heard = recorder.path(), recorder.dir / "heard"
    script = f"trap 'echo x >> {heard}; sleep 0.5; exit 5' INT; while :; do sleep 0.05; done"
    words = [
        str(recorder.klogger),
        "record",
        "-s",
        "scheduler",
        "-o",
        str(path),
        "--",
        "sh",
        "-c",
        script,
    ]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(words[0], words)
    try:
        assert started(path)
        time.sleep(0.5)
        os.write(terminal, b"\x03")
        shown = b""
        while part := read_terminal(terminal):
            shown += part
    finally:
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 5, shown
    assert heard.read_text() == "x\n"
    oracles.check_whole(Log(recorder.klogger, path))


def read_terminal(fd):
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""


def test_it_ends_with_the_last_of_its_processes(recorder):
    sleepers = [subprocess.Popen(["sleep", "600"]) for _ in range(2)]
    process = recorder.start(
        *("-s", "scheduler", "--for", "600s", "-p", ",".join(str(s.pid) for s in sleepers)),
        out=recorder.path(),
    )
    assert started(recorder.dir / f"test{recorder.logs}.klog")
    for sleeper in sleepers:
        assert process.poll() is None
        sleeper.kill()
        sleeper.wait()
    code, _, err = finish(process)
    assert code == 0, err
    log = Log(recorder.klogger, recorder.dir / f"test{recorder.logs}.klog")
    for sleeper in sleepers:
        assert log.count("EXIT", f"pid = {sleeper.pid}") == 1


# What is made at a path, and what is said of it.
ODD_OUTPUTS = {
    "fifo": (os.mkfifo, "it is a pipe"),
    "folder": (os.mkdir, "it is a directory"),
    "link": (lambda path: os.symlink("/dev/full", path), "it is a symbolic link"),
    "link to nothing": (lambda path: os.symlink("nothing", path), "it is a symbolic link"),
    "full": (lambda path: os.mknod(path, 0o600 | 0o020000, os.makedev(1, 7)), "it is a device"),
}


@pytest.mark.parametrize("kind", ODD_OUTPUTS)
def test_what_cannot_hold_a_log(recorder, kind):
    path = recorder.dir / "x.klog"
    make, said = ODD_OUTPUTS[kind]
    try:
        make(path)
    except PermissionError:
        pytest.skip("no device nodes here")
    before = path.lstat()
    done, _ = recorder.run("-s", "scheduler", "--", "true", out=path, timeout=60)
    assert done.code == 2
    assert said in done.err and done.err.startswith(f"klogger: cannot write {path}: "), done.err
    assert len(done.err.splitlines()) == 2, done.err
    after = path.lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert list(recorder.dir.iterdir()) == [path]


def test_a_log_is_private(recorder):
    """Whatever the umask; and what stood there before is not written to."""
    path, victim = recorder.dir / "x.klog", recorder.dir / "victim"
    victim.touch()
    os.link(victim, path)
    os.chmod(victim, 0o666)
    for mode in ([], ["--mode", "0644"]):
        done, _ = recorder.run("-q", "-s", "scheduler", *mode, "--", "true", out=path)
        assert (done.code, done.err) == (0, ""), done.err
        assert path.stat().st_mode & 0o777 == (0o644 if mode else 0o600)
    assert victim.read_bytes() == b""


def test_a_failed_start_leaves_the_old_log(recorder):
    path = recorder.path()
    path.write_text("what was there")
    done, _ = recorder.run("-s", "scheduler", "--", "/no/such/program", out=path)
    assert done.code == 2
    assert path.read_text() == "what was there"
    assert [p.name for p in recorder.dir.iterdir()] == [path.name]


def test_a_device_is_not_removed(recorder):
    """As -o /dev/null, but on a node of the test's own."""
    node = recorder.dir / "null"
    try:
        os.mknod(node, 0o600 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no device nodes here")
    done, _ = recorder.run("-s", "scheduler", "--", "/no/such/program", out=node)
    assert done.code == 2
    assert node.is_char_device()


def connect(pid):
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(f"\0klogger-recording-{pid}")
    return peer


@pytest.mark.full("others of this file are in the gate")
def test_slow_and_silly_peers(recorder):
    """They hold up neither marks nor the end."""
    path = recorder.path()
    process = recorder.start("-s", "scheduler", "--", "sleep", "60", out=path)
    assert started(path)
    assert wait_for(
        lambda: recorder.command("mark", 1, "here", "--recorder", process.pid).code == 0
    )
    slow = connect(process.pid)
    for peer in (connect(process.pid) for _ in range(3)):
        peer.sendall(b"\xff" * 100 + b"\n")
    huge = connect(process.pid)
    huge.sendall(b"x" * 8192)
    try:
        for _ in range(10):
            slow.sendall(b"x")
            time.sleep(0.1)
    except OSError:
        pass
    os.killpg(process.pid, signal.SIGINT)
    # They are there for as long as this test; so it does not wait for them.
    finish(process, 60)
    assert Log(recorder.klogger, path).rows("SELECT number FROM mark") == [(1,)]


@pytest.mark.full("others of this file are in the gate")
def test_dumps_in_mid_flood(recorder, workloads):
    """A dump shuts nothing out. What later events overwrite is counted; what is there has a number
    of its own.
    """
    path, n = recorder.path(), 300_000
    process = recorder.start(
        *("-s", FLOOD, "--overwrite", "--buffer-size", "64K", "--", workloads / "flood", n, -1),
        out=path,
    )
    assert started(path)
    while process.poll() is None:
        try:
            os.kill(process.pid, signal.SIGUSR1)
        except ProcessLookupError:
            break
        time.sleep(0.02)
    code, _, err = finish(process)
    assert code == 0, err
    log = Log(recorder.klogger, path)
    assert log.rows("SELECT cpu, serial FROM flood GROUP BY ALL HAVING count(*) > 1") == []
    ledger = log.rows("SELECT key, sum(count) FROM ledger WHERE event = 'FLOOD' GROUP BY key")
    assert {key for key, _ in ledger} == {"overwritten"}
    assert log.count("LOST") == 0
    # On each CPU something was overwritten before the oldest event of some dump, and nothing after
    # the newest.
    (span,) = log.rows(
        "SELECT min(from_ns), max(to_ns) FROM ledger WHERE key = 'overwritten' AND event = 'FLOOD'"
    )
    assert 0 <= span[0] < span[1] <= log.one("SELECT max(time) FROM flood")
    # The threads' names, and the command's own at its exec, are changes too.
    attempts = log.count("FLOOD") + sum(count for _, count in ledger)
    assert n * os.cpu_count() <= attempts < n * os.cpu_count() + 100


@pytest.mark.full("others of this file are in the gate")
def test_interrupted_while_it_compiles(recorder):
    """The folder of generated C goes with it."""
    temporary, file = (recorder.dir / name for name in ("tmp", "odd.klogger"))
    temporary.mkdir()
    file.write_text(SCHEMA)
    # The user nobody runs it.
    place = tempfile.TemporaryDirectory(prefix="klogger-test-")
    compiler = Path(place.name) / compilers.BEST
    compiler.write_text("#!/bin/sh\nsleep 1\n")
    for path in (compiler, compiler.parent):
        path.chmod(0o755)
    for _ in range(10):
        process = subprocess.Popen(
            [recorder.klogger, "check", file],
            env={
                **os.environ,
                "TMPDIR": str(temporary),
                "PATH": f"{place.name}:{os.environ['PATH']}",
            },
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # A shell that runs the tests in the background may have set it to be ignored.
            # There are no threads.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )
        recorder.running.append(process)
        assert wait_for(lambda: of_recorder(compiler), 60)
        assert list(temporary.iterdir()) != []
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
        assert list(temporary.iterdir()) == []
    place.cleanup()


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_odd_names_of_schemata(recorder, name):
    file = recorder.dir / name
    file.write_text(SCHEMA)
    done, path = recorder.run("-q", "-s", f"./{name}", "--", "sh", "-c", "echo x > /proc/self/comm")
    assert (done.code, done.err) == (0, ""), done.err
    log = Log(recorder.klogger, path)
    for event in ("NOTHING", "copy", "WIDE", "TEXTS", "CONTEXT", "BITS"):
        assert log.count(event) == log.count("PROCESS_RENAME") > 0, event
    file.write_text(SCHEMA.replace("klogger(copy, 7)", "klogger(copy, nosuch)"))
    error = recorder.command("check", f"./{name}")
    assert error.code == 2
    assert "C: use of undeclared identifier 'nosuch'" in error.err, error.err
    assert ".klogger:10:" in error.err, error.err


def test_what_the_verifier_refuses(refused_schema):
    error = refused_schema("for (;;) klogger(A, task->pid);")
    assert ".klogger:2: the kernel refuses tracepoint" in error
    assert len(error.splitlines()) < 30, error


@pytest.fixture
def refused_schema(recorder, clean_kernel):
    def run(body):
        file = recorder.dir / "bad.klogger"
        head = (
            "event A { u64 a }\nprobe tracepoint task_rename(struct task_struct *task, const char"
            " *comm)"
        )
        file.write_text(f"{head} {{ {body} }}\n")
        done, path = recorder.run("-q", "-s", file, "--", "true")
        assert done.code == 2
        assert not path.exists()
        return done.err

    return run
