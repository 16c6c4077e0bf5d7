# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What bodies can ask of threads, files and block requests: what the system, and the kernel's own
trace events, say of the same.
"""

import os
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
