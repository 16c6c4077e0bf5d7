# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a program has in its memory: texts, and numbers by klogger_read()."""

import os
import signal
import sys

import pytest
from conftest import wait_for
from oracles import Log

# openat(2) has the number 257 on x86, and its path as its second argument. A name that a program
# has just put together is in its memory.
SCHEMA = """
event OPEN scope current { long number  string[64] fixed  string path }
probe tracepoint sys_enter(struct pt_regs *regs, long id) {
    long long start = 0;

    if (id != 257)
        return;
    klogger_read(&start, (const void *)regs->si, sizeof(start));
    klogger(OPEN, start, (const char *)regs->si, (const char *)regs->si);
}
event BAD scope current { long number  string[8] fixed  string text }
probe tracepoint sys_exit(struct pt_regs *regs, long result) {
    long long number = 1;

    klogger_read(&number, (const void *)16, sizeof(number));
    klogger(BAD, number, (const char *)16, (const char *)16);
}
"""


def test_texts_and_numbers_of_a_program(recorder):
    schema = recorder.dir / "user.klogger"
    schema.write_text(SCHEMA)
    there = recorder.dir / "a-file-to-open"
    there.write_text("")
    done, path = recorder.run("-s", schema, "--no-calibrate", "--", "cat", there)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    number = int.from_bytes(bytes(there)[:8], "little")
    rows = log.rows(
        f"SELECT fixed, path FROM OPEN WHERE number = {number} AND path LIKE '%to-open'"
    )
    assert rows == [(str(there)[:63], str(there))]


def test_what_is_no_memory_reads_as_nothing(recorder):
    schema = recorder.dir / "user.klogger"
    schema.write_text(SCHEMA)
    done, path = recorder.run("-s", schema, "--no-calibrate", "--", "true")
    assert done.code == 0, done.err
    assert Log(recorder.klogger, path).rows("SELECT DISTINCT number, fixed, text FROM BAD") == [
        (0, "", "")
    ]


# What the program below gives to openat(2), together with a folder that is none: each event once
# for each call. Pages that have not been touched are brought in by the call itself, so that each of
# them is missing once.
UNREAD = """
event ONE scope current { string path }
event EACH scope current { char bytes[16]  string[64] fixed  string path }
probe tracepoint sys_enter(struct pt_regs *regs, long id) {
    const char *path = (const char *)regs->si;

    if (id != 257 || (int)regs->di != -7919)
        return;
    klogger(ONE, path);
    klogger(EACH, path, path, path);
}
"""
UNTOUCHED, FORBIDDEN, NULL, THERE = 60, 41, 7, 13
PROGRAM = f"""
import ctypes
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.syscall.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_long]
PRIVATE_ANONYMOUS, READ, NOHUGEPAGE, PAGE = 0x22, 1, 15, 4096
untouched = libc.mmap(None, {UNTOUCHED} * PAGE, READ, PRIVATE_ANONYMOUS, -1, 0)
libc.madvise(untouched, {UNTOUCHED} * PAGE, NOHUGEPAGE)
forbidden = libc.mmap(None, PAGE, 0, PRIVATE_ANONYMOUS, -1, 0)
there = ctypes.create_string_buffer(b"/there-is-no-such-file")
calls = [untouched + n * PAGE for n in range({UNTOUCHED})] + {FORBIDDEN} * [forbidden]
calls += {NULL} * [None] + {THERE} * [ctypes.addressof(there)]
for path in calls:
    libc.syscall(257, -7919, path, 0)
"""


@pytest.mark.full("others of this file are in the gate")
def test_what_could_not_be_read_is_counted_and_null_is_not(recorder):
    schema = recorder.dir / "user.klogger"
    schema.write_text(UNREAD)
    done, path = recorder.run("-s", schema, "--no-calibrate", "--", sys.executable, "-c", PROGRAM)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    unread = UNTOUCHED + FORBIDDEN
    counts = sorted([("", unread + NULL), ("/there-is-no-such-file", THERE)])
    assert sorted(log.rows("SELECT path, count(*) FROM ONE GROUP BY path")) == counts
    assert sorted(log.rows("SELECT fixed, count(*) FROM EACH GROUP BY fixed")) == counts
    said = log.rows(
        "SELECT event, count, severity FROM ledger WHERE key = 'text_unread' ORDER BY event"
    )
    assert said == [("EACH", 3 * unread, "notice"), ("ONE", unread, "notice")]


@pytest.mark.full("others of this file are in the gate")
def test_a_rescued_log_says_it_too(recorder, clean_kernel):
    schema, done = recorder.dir / "user.klogger", recorder.dir / "done"
    schema.write_text(UNREAD)
    last = f"import pathlib, signal\npathlib.Path({str(done)!r}).touch()\nsignal.pause()"
    command = [sys.executable, "-c", PROGRAM + last]
    process = recorder.start("-s", schema, "--no-calibrate", "--", *command, out=recorder.path())
    wait_for(done.exists, process)
    process.kill()
    process.wait()
    os.killpg(process.pid, signal.SIGKILL)
    path = recorder.path()
    rescued = recorder.command("rescue", process.pid, "-o", path)
    assert rescued.code == 0, rescued.err
    assert (UNTOUCHED + FORBIDDEN,) in Log(recorder.klogger, path).rows(
        "SELECT count FROM ledger WHERE key = 'text_unread' AND event = 'ONE'"
    )
