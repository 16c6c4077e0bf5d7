# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What bodies can ask of threads, files and block requests: what the system, and the kernel's own
trace events, say of the same.
"""

import os
import socket
import sys
from pathlib import Path

import pytest
from oracles import Log

THREAD = """schema helpers
event A {
    u64       cgroup_of
    int       tid      as thread
    int       parent
    ulong     ino
    uint      dev      as device
    string    name
    context cgroup ppid
}
probe tracepoint task_prctl_unknown(int option) {
    struct task_struct *task = klogger_current();
    struct file *file;

    if (option != 1000)
        return;
    file = task->mm->exe_file;
    klogger(A, klogger_task_cgroup(task), task->pid, klogger_task_ppid(task),
            klogger_file_ino(file), klogger_file_dev(file), klogger_file_name(file));
}
"""
ASKING = """
import ctypes, os
ctypes.CDLL(None).prctl(1000, 0, 0, 0, 0)
print(os.getpid(), os.getppid(), os.readlink("/proc/self/exe"))
"""
REQUEST = """schema requests
event REQUEST { ulong sector  uint dev as device  uint bytes }
probe tracepoint block_rq_issue(struct request *rq) {
    klogger(REQUEST, klogger_request_sector(rq), klogger_request_dev(rq),
            klogger_request_bytes(rq));
}
"""
WRITER = """
import os
fd = os.open("blocks", os.O_CREAT | os.O_WRONLY)
for n in range(13):
    os.write(fd, bytes(4096 * (n + 1)))
    os.fsync(fd)
"""


def test_of_the_running_thread_and_its_file(recorder, clean_kernel):
    file = recorder.dir / "helpers.klogger"
    file.write_text(THREAD)
    done, path = recorder.run("-s", file, "--", sys.executable, "-c", ASKING)
    assert done.code == 0, done.err
    pid, ppid, program = done.out.split()
    log = Log(recorder.klogger, path)
    found = log.rows("SELECT tid, parent, ppid, ino, dev, name FROM a")
    status = os.stat(program)
    dev = os.major(status.st_dev) << 20 | os.minor(status.st_dev)
    assert found == [(int(pid), int(ppid), int(ppid), status.st_ino, dev, Path(program).name)]
    assert log.one("SELECT cgroup_of = cgroup AND cgroup > 0 FROM a")


def test_of_block_requests(recorder, clean_kernel):
    """The same as the kernel's own trace event has, in the same order, on each CPU."""
    file = recorder.dir / "requests.klogger"
    file.write_text(REQUEST)
    done, path = recorder.run(
        *("-s", file, "-e", "block_rq_issue", "-a", "--", sys.executable, "-c", WRITER)
    )
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    columns = "cpu, dev, sector, bytes"
    ours = log.rows(f"SELECT {columns} FROM request ORDER BY cpu, serial")
    theirs = log.rows(f"SELECT {columns} FROM block_rq_issue ORDER BY cpu, serial")
    if not theirs:
        pytest.skip("writing to this file system causes no requests to block devices")
    # A flush has no position, for which the trace event has -1 or 0.
    placed = [row for row in theirs if row[3]]
    assert placed and [row for row in ours if row[3]] == placed


WORDS = """schema words
event WORDS { u64 now  u64 task as hex  u64 number as hex  u64 odd }
probe tracepoint task_prctl_unknown(int option) {
    struct task_struct *task = klogger_current();
    u64 number = klogger_number(task);

    if (option == 1000)
        klogger(WORDS, klogger_time(), (u64)task, number, number * 3 + (number & 1) - 2 * number);
}
"""


def test_the_time_of_a_hit_and_an_address_as_a_number(recorder, clean_kernel):
    file = recorder.dir / "words.klogger"
    file.write_text(WORDS)
    done, path = recorder.run("-s", file, "--", sys.executable, "-c", ASKING)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.rows(f"SELECT now - {log.start_ns}, number, odd FROM words") == log.rows(
        "SELECT time, task, task FROM words"
    )
    assert log.count("words") == 1


SOCKETS = """schema held
event SOCK {
    u32    fd
    int    family
    int    state
    ushort port
    ushort peer_port
    uint   address as ip
    uint   peer as ip
    u8     address6[16] as ip
}
event FILE { u32 fd  ulong ino  uint dev as device  ulong same  string name }
event STATE { uint value as enum zone_stat_item  uint none as enum no_such_enum }
probe start files(struct task_struct *task, u32 fd, struct file *file) {
    struct sock *sk = klogger_file_sock(file);

    if (sk)
        klogger(SOCK, fd, klogger_sock_family(sk), klogger_sock_state(sk), klogger_sock_port(sk),
                klogger_sock_peer_port(sk), klogger_sock_address(sk), klogger_sock_peer(sk),
                klogger_sock_address6(sk));
    else
        klogger(FILE, fd, klogger_inode_ino(file->f_inode), klogger_inode_dev(file->f_inode),
                klogger_dentry_ino(file->f_path.dentry), klogger_dentry_name(file->f_path.dentry));
    klogger(STATE, 0, 7);
}
"""


def number(sock):
    """An IPv4 address as the field has it."""
    return int.from_bytes(socket.inet_aton(sock[0]), "little")


def test_of_sockets_and_inodes(recorder, clean_kernel):
    """Of this process: a connection over IPv4, a server over IPv6, and a file."""
    file = recorder.dir / "held.klogger"
    file.write_text(SOCKETS)
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    six = socket.create_server(("::1", 0), family=socket.AF_INET6)
    with server, client, six, Path(__file__).open() as held:
        done, path = recorder.run("-s", file, "-p", os.getpid(), "--for", "50ms")
        own, peer, port6 = client.getsockname(), client.getpeername(), six.getsockname()[1]
        fds = client.fileno(), six.fileno(), held.fileno()
        status = os.fstat(held.fileno())
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    columns = "family, state, port, peer_port, address, peer"
    assert log.rows(f"SELECT {columns} FROM sock WHERE fd = {fds[0]}") == [
        (socket.AF_INET, 1, own[1], peer[1], number(own), number(peer))
    ]
    found = log.rows(f"SELECT family, state, port, address6 FROM sock WHERE fd = {fds[1]}")
    assert found == [(socket.AF_INET6, 10, port6, [0] * 15 + [1])]
    dev = os.major(status.st_dev) << 20 | os.minor(status.st_dev)
    assert log.rows(f"SELECT ino, dev, same, name FROM file WHERE fd = {fds[2]}") == [
        (status.st_ino, dev, status.st_ino, Path(__file__).name)
    ]
    # Enums are those of this kernel.
    text = recorder.command("cat", path).out
    assert "value=NR_FREE_PAGES none=7" in text
    assert "this kernel has no enum 'no_such_enum'" in done.err
