# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What exists when a recording begins and ends: equal to what /proc says."""

import os
import platform
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from oracles import Log

EXISTING = """schema existing "What exists"
event TASK     { int tid as thread  int tgid }
event KERNEL   scope all { int tid as thread  string name }
event OPENED   { int tgid  u32 fd  ulong ino  uint dev as device }
event MAPPED   { int tgid  ulong first as hex  ulong last as hex }
event LISTENER { int state  ushort port  uint uid }
event STAYED     scope tid { int tid as thread }

probe start tasks(struct task_struct *task) { klogger(TASK, task->pid, task->tgid); }
probe start kernel_threads(struct task_struct *task) {
    klogger(KERNEL, task->pid, task->comm);
}
probe start files(struct task_struct *task, u32 fd, struct file *file) {
    klogger(OPENED, task->tgid, fd, klogger_file_ino(file), klogger_file_dev(file));
}
probe start maps(struct task_struct *task, struct vm_area_struct *vma) {
    klogger(MAPPED, task->tgid, vma->vm_start, vma->vm_end);
}
probe start tcp(struct sock_common *sk_common, uid_t uid) {
    klogger(LISTENER, sk_common->skc_state, sk_common->skc_num, uid);
}
probe end tasks(struct task_struct *task) { klogger(STAYED, task->pid); }
"""
# A process with three threads, and many open files.
HOLDER = """
import os, sys, threading
held = [open(sys.argv[1]) for _ in range(int(sys.argv[2]))]
reader, writer = os.pipe()
# Each thread says that it runs, then does nothing that could need memory.
begun = threading.Semaphore(0)
def stay():
    begun.release()
    os.read(reader, 1)
for _ in range(2):
    threading.Thread(target=stay, daemon=True).start()
for _ in range(2):
    begun.acquire()
print("ready", flush=True)
sys.stdin.read()
"""


class Holder:
    def __init__(self, files):
        words = [sys.executable, "-c", HOLDER, __file__, str(files)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
        self.pid = self.process.pid

    def __enter__(self):
        assert self.process.stdout.readline() == "ready\n"
        return self

    def wait_until_asleep(self):
        """Until each thread waits in read(2): what comes before may still change its memory."""
        read = {"63" if platform.machine() == "aarch64" else "0"}
        while {call(self.pid, tid) for tid in tids(self.pid)} != read:
            time.sleep(0.01)

    def __exit__(self, *_):
        self.process.communicate()


def call(pid, tid):
    """The number of the system call in which a thread sleeps, or `running`."""
    return Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()[0]


def tids(pid):
    return sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())


def files(pid):
    """(fd, inode, device) of all open files."""
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        status = fd.stat()
        dev = os.major(status.st_dev) << 20 | os.minor(status.st_dev)
        found.append((int(fd.name), status.st_ino, dev))
    return sorted(found)


def maps(pid):
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    pairs = [line.split()[0].split("-") for line in lines if "vsyscall" not in line]
    return [(int(first, 16), int(last, 16)) for first, last in pairs]


def schema(recorder, text=EXISTING):
    file = recorder.dir / "existing.klogger"
    file.write_text(text)
    return file


def test_a_process_as_proc_shows_it(recorder, clean_kernel):
    with Holder(50) as holder:
        holder.wait_until_asleep()
        oracle = tids(holder.pid), files(holder.pid), maps(holder.pid)
        done, path = recorder.run("-s", schema(recorder), "-p", holder.pid, "--for", "200ms")
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    tasks = log.rows("SELECT tid, tgid FROM task ORDER BY tid")
    assert tasks == [(tid, holder.pid) for tid in oracle[0]]
    opened = log.rows(f"SELECT fd, ino, dev FROM opened WHERE tgid = {holder.pid} ORDER BY fd")
    assert opened == oracle[1]
    assert log.one(f"SELECT count(*) FROM opened WHERE tgid <> {holder.pid}") == 0
    assert log.rows("SELECT first, last FROM mapped ORDER BY first") == oracle[2]
    assert log.rows("SELECT tid FROM stayed ORDER BY tid") == [(tid,) for tid in oracle[0]]
    # Not only of the threads that are recorded, for its event has the scope `all`.
    assert log.one("SELECT count(*) FROM kernel WHERE name = 'kthreadd'") == 1
    # Sockets have no thread.
    assert log.one("SELECT count(*) FROM listener") == 0


@pytest.mark.full("others of this file are in the gate")
def test_of_the_whole_system(recorder, clean_kernel):
    server = socket.create_server(("127.0.0.1", 0))
    with server:
        done, path = recorder.run("-s", schema(recorder), "-a", "--for", "100ms")
        port = server.getsockname()[1]
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.rows(f"SELECT state, uid FROM listener WHERE port = {port}") == [(10, os.geteuid())]
    own = os.getpid()
    assert log.one(f"SELECT count(*) FROM task WHERE tid = {own} AND tgid = {own}") == 1
    kernel = {
        int(folder.name)
        for folder in Path("/proc").glob("[0-9]*")
        if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[6]) & 0x200000
    }
    # Some come and go.
    logged = {tid for (tid,) in log.rows("SELECT tid FROM kernel")}
    assert 2 in logged and len(logged ^ kernel) < len(kernel) / 2


@pytest.mark.full("others of this file are in the gate")
def test_a_list_that_is_longer_than_the_rings(recorder, clean_kernel):
    """The recorder empties the rings while it reads the list."""
    text = """schema many
event OPENED { int tgid  u32 fd  string[200] name }
probe start files(struct task_struct *task, u32 fd, struct file *file) {
    klogger(OPENED, task->tgid, fd, klogger_file_name(file));
}
"""
    with Holder(900) as holder:
        oracle = [row[0] for row in files(holder.pid)]
        words = ("-p", holder.pid, "--for", "100ms", "--buffer-size", "16K", "--max-memory", "1M")
        done, path = recorder.run("-s", schema(recorder, text), *words)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert [fd for (fd,) in log.rows("SELECT fd FROM opened ORDER BY fd")] == oracle


def test_what_the_kernel_cannot_list(recorder):
    for name, message in (
        ("task", "a probe of kind 'start' cannot list 'task'"),
        ("files(int x)", "the parameters of 'start files' are not the kernel's"),
    ):
        probe = name if "(" in name else f"{name}()"
        file = schema(recorder, f"schema s\nevent E {{ }}\nprobe start {probe} {{ klogger(E); }}\n")
        done, _ = recorder.run("-s", file, "-a", "--", "true")
        assert done.code == 2 and message in done.err, done.err
