# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `syscalls`, and `-e CALL`: lines have what a program did, and sums are what it
counted.
"""

import json
import os
import platform
import re
import signal
import sys
from pathlib import Path

import pytest
from oracles import Log

# The programs make some calls by their numbers.
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86-64")

# Each call once, with arguments that are known, or that the program prints.
PROGRAM = r"""
import ctypes, json, mmap, os, resource, select, signal, socket, sys, time
folder = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
told = {}
r, w = os.pipe()
told["pipe"] = os.readlink(f"/proc/self/fd/{r}")
told["r"], told["w"] = r, w
os.write(w, b"seven\n")
poll = select.poll()
poll.register(r, select.POLLIN | select.POLLPRI)
assert poll.poll(7000) == [(r, select.POLLIN)]
assert not select.poll().poll(13)
epoll = select.epoll()
told["epoll"] = epoll.fileno()
epoll.register(r, select.EPOLLIN | select.EPOLLET)
assert epoll.poll(1.7)
assert select.select([r], [], [], 0.29)[0]
os.read(r, 100)
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen(5)
told["port"] = server.getsockname()[1]
client = socket.create_connection(("127.0.0.1", told["port"]))
peer, address = server.accept()
told["client"] = address[1]
told["peer"] = os.readlink(f"/proc/self/fd/{peer.fileno()}")
client.send(b"x" * 11)
assert peer.recv(100) == b"x" * 11
client.send(b"z" * 5)
assert peer.recvfrom(100)[0] == b"z" * 5
client.shutdown(socket.SHUT_WR)
six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
six.bind(("::1", 0))
told["six"] = six.getsockname()[1]
six.sendto(b"y" * 3, ("::1", told["six"]))
assert six.recvmsg(100)[0] == b"yyy"
unix = socket.socket(socket.AF_UNIX)
unix.bind("\0klogger-" + str(os.getpid()))
told["pid"] = os.getpid()
assert socket.socket(socket.AF_UNIX).connect_ex(folder + "/none")
word = ctypes.c_uint32(5)
wait = lambda *spec: libc.syscall(202, ctypes.byref(word), 128, 5, (ctypes.c_long * 2)(*spec), 0, 0)
assert wait(0, 3000000) == -1 and ctypes.get_errno() == 110
told["word"] = hex(ctypes.addressof(word))
libc.syscall(35, (ctypes.c_long * 2)(0, 2000000), None)
file = os.open(folder + "/file", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
told["file"] = file
os.fsync(file), os.fdatasync(file), os.posix_fallocate(file, 4096, 8192)
os.lseek(file, 17, os.SEEK_SET)
libc.sync_file_range(file, 0, 4096, 2)
memory = mmap.mmap(file, 4096)
memory.madvise(mmap.MADV_DONTNEED)
os.dup2(file, 77)
os.close(file)
event = os.eventfd(0)
told["event"] = event
os.close(event)
child = os.fork()
if not child:
    signal.pause()
told["child"] = child
os.kill(child, signal.SIGTERM)
os.waitpid(child, 0)
if not os.fork():
    os._exit(23)
os.wait()
if not os.fork():
    os.execv("/bin/true", ["true", "--one", "two words"])
os.wait()
libc.prctl(15, b"renamed", 0, 0, 0)
resource.getrlimit(resource.RLIMIT_NOFILE)
assert libc.syscall(9999, 1, 2, 3) == -1
os.rename(folder + "/file", folder + "/other")
os.mkdir(folder + "/made")
os.rmdir(folder + "/made")
os.chmod(folder + "/other", 0o4711)
os.umask(0o22)
os.umask(0o27)
libc.mq_open(b"/klogger-test", os.O_CREAT | os.O_RDWR, 0o640, None)
libc.mq_unlink(b"/klogger-test")
if not os.fork():
    os._exit(29)
watched = os.pidfd_open(os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid)
told["watched"] = watched
os.waitid(os.P_PIDFD, watched, os.WEXITED)
print(json.dumps(told))
os._exit(3)
"""

# 23 calls that fail and 29 that do not, of one kind; 31 of another.
COUNTED = r"""
import os, select
for _ in range(23):
    try: os.fsync(1000)
    except OSError: pass
file = os.open("/dev/shm", os.O_RDONLY)
for _ in range(29): os.fsync(file)
poll = select.poll()
for _ in range(31): poll.poll(1)
"""


class Traced:
    """The lines of a program, by call, and what it printed."""

    def __init__(self, recorder, *words, exit=0):
        folder = recorder.dir / "traced"
        folder.mkdir(exist_ok=True)
        lines = recorder.dir / "lines"
        done = recorder.command("trace", "-o", lines, *words)
        assert done.code == exit, done.err
        assert "lost" not in done.err
        self.err = done.err
        self.text = lines.read_text()
        found = re.findall(r"^ +[\d.]+ (\S+)\[(\d+)\] (\S+?)(\(.*)$", self.text, re.M)
        self.lines = [(call, re.sub(r"  <[^>]*>$", "", rest)) for _, _, call, rest in found]
        self.told = json.loads(done.out) if done.out.startswith("{") else {}

    def of(self, call: str) -> list[str]:
        return [rest for name, rest in self.lines if name == call]


@pytest.fixture(scope="module")
def planted(recorder_for_all):
    folder = recorder_for_all.dir / "planted"
    folder.mkdir()
    words = ("-e", "all", "--", sys.executable, "-c", PROGRAM, folder)
    traced = Traced(recorder_for_all, *words, exit=3)
    traced.told["folder"] = str(folder)
    return traced


# A call, and a line of it; in braces what the program printed.
LINES = [
    ("write", '({w} "{pipe}", "seven\\n", 6) = 6'),
    ("read", '({r} "{pipe}", "seven\\n", 100) = 6'),
    ("poll", "({r} POLLIN|POLLPRI; 7.00 s) = 1 ({r} POLLIN)"),
    ("poll", "(; 13.0 ms) = 0"),
    ("epoll_ctl", '({epoll}, EPOLL_CTL_ADD, {r} "{pipe}", EPOLLIN|EPOLLET) = 0'),
    ("listen", ", 5, 127.0.0.1:{port}) = 0"),
    ("connect", ", 127.0.0.1:{port}) = 0"),
    ("accept4", ", 127.0.0.1:{client}) = "),
    ("sendto", ", 11, 127.0.0.1:{port}) = 11"),
    ("recvfrom", '"{peer}", 100, 127.0.0.1:{client}) = 11'),
    # The program asks for an address, of which a stream tells none.
    ("recvfrom", '"{peer}", 100, 127.0.0.1:{client}) = 5'),
    ("shutdown", ", SHUT_WR, 127.0.0.1:{client}) = 0"),
    ("bind", ", [::1]:0) = 0"),
    ("sendto", ", 3, [::1]:{six}) = 3"),
    ("recvmsg", ", 100, [::1]:{six}) = 3"),
    ("bind", ', unix "@klogger-{pid}") = 0'),
    ("connect", ', unix "{folder}/none") = -ENOENT'),
    ("socket", "(AF_INET6, SOCK_DGRAM|SOCK_CLOEXEC, 0) = "),
    ("futex", "({word}, FUTEX_WAIT_PRIVATE, 5; 3.00 ms) = -ETIMEDOUT"),
    ("nanosleep", "(2.00 ms) = 0"),
    ("openat", '(AT_FDCWD, "{folder}/file", O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC, 0640) = {file}'),
    ("fsync", '({file} "{folder}/file") = 0'),
    ("fdatasync", '({file} "{folder}/file") = 0'),
    ("fallocate", '({file} "{folder}/file", 4096, 8192) = 0'),
    ("lseek", '({file} "{folder}/file", 17, SEEK_SET) = 17'),
    ("sync_file_range", '({file} "{folder}/file", 0, 4096, SYNC_FILE_RANGE_WRITE) = 0'),
    ("madvise", ", 4096, MADV_DONTNEED) = 0"),
    ("close", '({file} "{folder}/file") = 0'),
    ("close", '({event} "anon_inode:[eventfd]") = 0'),
    ("kill", "[{child}], SIGTERM) = 0"),
    ("wait4", "({child}) = {child}, SIGTERM"),
    ("wait4", ", exit code 23"),
    ("execve", '("/bin/true", "true --one two words") = 0'),
    ("prctl", '(PR_SET_NAME, "renamed") = 0'),
    ("prlimit64", "(RLIMIT_NOFILE, "),
    # Its only argument.
    ("rmdir", '("{folder}/made") = 0'),
    ("mkdir", '("{folder}/made", 0777) = 0'),
    ("chmod", '("{folder}/other", 04711) = 0'),
    ("umask", "(027) = 022"),
    ("mq_open", '("klogger-test", O_RDWR|O_CREAT, 0640) = '),
    ("waitid", "(-1, "),
    # The kernel calls it anon_inode:[pidfd], or pidfd:[NUMBER].
    ("waitid", '({watched} "'),
    ("pipe2", "({r}, {w}, O_CLOEXEC) = 0"),
    ("eventfd2", "(0x0, 0x80000) = {event}"),
    ("rename", '("{folder}/file", "{folder}/other") = 0'),
    ("9999", "(0x1, 0x2, 0x3, "),
    ("exit_group", "(3) does not return"),
]


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize(
    ("call", "line"), LINES, ids=[f"{c}-{n}" for n, (c, _) in enumerate(LINES)]
)
def test_a_line_says_what_the_program_did(planted, call, line):
    for name, value in planted.told.items():
        line = line.replace(f"{{{name}}}", str(value))
    # Paths are those within the file system.
    found = planted.of(call)
    assert any(line in one for one in found), (line, found)


def test_only_the_calls_that_are_named_are_recorded(recorder):
    done, path = recorder.run("-e", "fsync,poll", "--", sys.executable, "-c", COUNTED)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    of_program = """
        SELECT text, count(*), count(*) FILTER (result < 0) FROM {}
        JOIN decoding ON decoding = 'syscall' AND value = call GROUP BY text"""
    assert log.rows(of_program.format("ON_FILE")) == [("fsync", 52, 23)]
    assert log.rows(of_program.format("POLL")) == [("poll", 31, 0)]
    made = "SELECT sum(n) FROM (SELECT count(*) AS n FROM {})"
    for event in ("CALL6", "CALL0", "CALL3", "TRANSFER", "OPENED", "MAPPING", "FUTEX", "NO_RETURN"):
        assert log.one(made.format(event)) == 0, event


def test_sums_are_what_the_program_did(recorder):
    done = recorder.command(
        *("trace", "-c", "-e", "fsync,poll", "--", sys.executable, "-c", COUNTED)
    )
    assert done.code == 0, done.err
    # poll waits a millisecond each time, and is the first row.
    sums = re.findall(r"^\S+ +(\w+) +(\d+) +(\d+) +[\d.]+ [mµn]?s ", done.out, re.M)
    assert sums == [("poll", "31", "0"), ("fsync", "52", "23")], done.out


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize(
    ("word", "there", "absent"),
    [
        ("trace=network", "socket", "openat"),
        ("%net", "socket", "openat"),
        ("file", "openat", "socket"),
        ("%desc", "epoll_ctl", "futex"),
        ("process", "wait4", "openat"),
        ("!openat", "socket", "openat"),
    ],
)
def test_classes_and_exclusions(recorder, word, there, absent):
    folder = recorder.dir / "planted"
    folder.mkdir()
    traced = Traced(recorder, "-e", word, "--", sys.executable, "-c", PROGRAM, folder, exit=3)
    calls = {call for call, _ in traced.lines}
    assert there in calls and absent not in calls, sorted(calls)


# Files with names of all lengths are closed, and one is executed.
LONG = r"""
import os, shutil, sys
for n in range(10, 128):
    os.close(os.open(sys.argv[1] + "/" + "x" * n, os.O_CREAT | os.O_WRONLY))
program = sys.argv[1] + "/" + "y" * 127
shutil.copy("/bin/true", program)
if not os.fork():
    os.execv(program, ["true"])
os.wait()
"""


def test_a_path_that_is_cut_says_so(recorder):
    folder = recorder.dir / ("z" * 40)
    folder.mkdir()
    done, path = recorder.run(
        "-q", "-s", "syscalls", "-e", "close,execve", "--", sys.executable, "-c", LONG, folder
    )
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)

    def shown(whole):
        return whole if len(whole) <= 159 else whole[:156] + "..."

    closed = [file for (file,) in log.rows("SELECT file FROM ON_FILE") if "/zzz" in file]
    # Within the file system.
    before = min(closed, key=len).split("/zzz", maxsplit=1)[0]
    whole = [f"{before}/{folder.name}/{'x' * n}" for n in range(10, 128)]
    assert {len(file) for file in whole} >= {158, 159, 160}
    assert set(map(shown, whole)) <= set(closed)
    ran = [file for (file,) in log.rows("SELECT path FROM EXECUTED") if "/zzz" in file]
    assert ran == [shown(f"{folder}/{'y' * 127}")]


# A child that reads what nobody writes, and is left behind when it does.
LEFT = r"""
import os
from pathlib import Path
r, w = os.pipe()
child = os.fork()
if not child:
    os.close(1), os.close(2)
    os.read(r, 1)
while not Path(f"/proc/{child}/syscall").read_text().startswith("0 "):
    pass
print(child, flush=True)
os._exit(0)
"""


def test_a_call_that_has_not_returned_is_shown(recorder):
    lines = recorder.dir / "lines"
    done = recorder.command(
        *("trace", "-o", lines, "-s", "syscalls", "-e", "read", "--", sys.executable, "-c", LEFT)
    )
    assert done.code == 0, done.err
    child = int(done.out)
    os.kill(child, signal.SIGKILL)
    last = lines.read_text().splitlines()[-1]
    assert f"[{child}] read(" in last, last
    assert re.search(r"\) has not returned  <[\d.]+ (us|ms|s) so far>$", last), last


@pytest.mark.parametrize(
    ("command", "word", "help"),
    [
        ("record", "fsnc", "did you mean `fsync`?"),
        ("trace", "trace=fsnc", "did you mean `fsync`?"),
        ("record", "%netwrk", "did you mean `network`?"),
        ("trace", "!futx", "did you mean `futex`?"),
    ],
)
def test_a_word_that_is_no_call_is_refused(recorder, command, word, help):
    done = recorder.command(command, "-e", word, "--", "true")
    assert done.code == 2
    assert re.search("this machine has no system call|this kernel has no trace event", done.err)
    assert help in done.err


def test_each_event_with_a_duration_is_in_the_sums():
    shown = Path(__file__).resolve().parents[2] / "schemata/syscalls"
    events = re.findall(
        r"^event (\w+) [^}]*?\btook\b", (shown / "syscalls.klogger").read_text(), re.M
    )
    summed = re.findall(r"took FROM (\w+)", (shown / "analyses/_all.sql").read_text())
    assert len(events) > 30 and events == summed
