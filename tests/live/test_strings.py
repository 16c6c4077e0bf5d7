# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Several texts in one event, and texts that are longer than 255 bytes: those that a program has
passed, and those that strace prints.
"""

import collections
import re
import shutil
import sys

import oracles
import pytest

SCHEMA = """
event RENAMED { long result as errno  string old_path  uint flags  string new_path }
event LINKED { string[..1900] old_path  long result as errno  string[..1900] new_path }
event MADE { long result as errno  string[..4000] path as path }
event TICK { int n  string word  string[..300] long_word  string last }

code {
    static const char word[] = "a word of the kernel";
    static const char words[] = "0123456789012345678901234567890123456789012345678901234567890123"
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"
        "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567";
}

probe return syscall renameat2(long result, int olddfd, const char *from, int newdfd,
                               const char *to, unsigned int flags) {
    klogger(RENAMED, result, klogger_user_string(from), flags, klogger_user_string(to));
}
probe return syscall linkat(long result, int olddfd, const char *from, int newdfd,
                            const char *to) {
    klogger(LINKED, klogger_user_string(from), result, klogger_user_string(to));
}
probe return syscall mkdirat(long result, int dfd, const char *path) {
    klogger(MADE, result, klogger_user_string(path));
}
probe timer 997Hz() { klogger(TICK, 7, word, words, "last"); }
"""
# Each pair of paths, and how often; a number is an address that cannot be read.
PROGRAM = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"renameat2": 316, "linkat": 265, "mkdirat": 258}
def call(name, *arguments):
    libc.syscall(NUMBERS[name], *arguments)
def place(path):
    return ctypes.c_char_p(path) if isinstance(path, bytes) else ctypes.c_void_p(path)
NOWHERE = ctypes.c_int(-100)
for name, first, second, times in eval(sys.stdin.read()):
    for _ in range(times):
        if name == "mkdirat":
            call(name, NOWHERE, place(first), 0)
        else:
            call(name, NOWHERE, place(first), NOWHERE, place(second), 0)
"""
SPECIAL = [
    (b"/no/a b  c", b"/no/\"quoted\" and 'so'", 31),
    (b"/no/\xc3\xa4\xe2\x82\xac", b"/no/\xf0\x9f\x98\x80", 37),
    (b"", b"/no/empty", 41),
    (b"/no/empty", b"", 43),
    (b"", b"", 47),
    (1, b"/no/bad pointer before", 53),
    (b"/no/bad pointer behind", 1 << 47, 59),
    (None, -4096, 61),
    (b"/no/\\n\n\t", b"/no/" + b"x" * 251, 67),
    (b"/no/" + b"y" * 251, b"/no/" + b"x" * 252, 71),
]
LONG = [
    (b"/no/" + b"l" * 1895, b"/no/" + b"m" * 1896, 73),
    (b"/no/" + b"l" * 4091, b"/no/" + b"m" * 300, 79),
]
CALLS = [
    *(("renameat2", *row) for row in SPECIAL + LONG),
    *(("linkat", *row) for row in SPECIAL + LONG),
    *(("mkdirat", first, None, times) for first, _, times in SPECIAL + LONG),
    # A path as long as a path can be, and one of the length of the field.
    ("mkdirat", b"/no/" + b"z" * 4091, None, 83),
    ("mkdirat", b"/no/" + b"z" * 3996, None, 89),
]
MOST = {"renameat2": 255, "linkat": 1900, "mkdirat": 4000}


def read(path) -> bytes:
    return path if isinstance(path, bytes) else b""


def expected() -> collections.Counter:
    found = collections.Counter()
    for name, first, second, times in CALLS:
        texts = [first] if name == "mkdirat" else [first, second]
        found[name, *(read(text)[: MOST[name]].decode() for text in texts)] += times
    return found


def logged(log) -> collections.Counter:
    found = collections.Counter()
    for name, event, texts in (
        ("renameat2", "RENAMED", "old_path, new_path"),
        ("linkat", "LINKED", "old_path, new_path"),
        ("mkdirat", "MADE", "path"),
    ):
        for *row, times in log.rows(f"SELECT {texts}, count(*) FROM {event} GROUP BY ALL"):
            found[name, *row] += times
    return found


LINE = re.compile(rb"(?:\d+ +)?(renameat2|linkat|mkdirat)\((.*)\) += (-?\d+)(?: (E\w+).*)?")
ARGUMENT = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"|(NULL|0x[0-9a-f]+)(?=,|$)')


def seen(text: bytes) -> collections.Counter:
    """By strace: each call with its texts, cut as the events cut them."""
    found = collections.Counter()
    for line in text.splitlines():
        row = LINE.match(line)
        if not row:
            continue
        name = row[1].decode()
        texts = [bytes.fromhex(m[1].decode().replace("\\x", "")) if m[1] is not None else b""
                 for m in ARGUMENT.finditer(row[2])]  # fmt: skip
        found[name, *(one[: MOST[name]].decode() for one in texts)] += 1
    return found


def test_two_texts_are_those_of_strace(recorder, clean_kernel):
    strace = shutil.which("strace")
    if not strace:
        pytest.skip("strace is not installed")
    schema = recorder.dir / "texts.klogger"
    schema.write_text(SCHEMA)
    calls, out = recorder.dir / "calls", recorder.dir / "strace.out"
    calls.write_text(repr(CALLS))
    command = [strace, "-f", "-xx", "-s", "5000", "-e", "trace=renameat2,linkat,mkdirat"]
    program = f"exec {sys.executable} -c '{PROGRAM}' < {calls}"
    done, path = recorder.run("-s", schema, "--", *command, "-o", out, "sh", "-c", program)
    assert done.code == 0, done.err
    log = oracles.Log(recorder.klogger, path)
    assert sum(log.lost(name) for name in log.events()) == 0
    oracles.check_serials(log)
    theirs = seen(out.read_bytes())
    assert logged(log) == theirs == expected()
    check_unread(log)
    check_ticks(log)
    # What is cut is shown to be so.
    text = recorder.command("cat", path, "--event", "MADE").out
    cut = re.findall(r" path=(\S*)(?<!\.)(\.\.\.)?$", text, re.M)
    assert {len(path) for path, dots in cut if dots} == {4000}
    assert all(len(path.strip('"')) < 4000 for path, dots in cut if not dots)


def check_unread(log):
    """Texts that could not be read, each counted once; NULL is none."""
    unread = dict(log.rows("SELECT event, count FROM ledger WHERE key = 'text_unread'"))
    one = sum(times for first, _, times in SPECIAL if isinstance(first, int))
    other = sum(times for _, second, times in SPECIAL if isinstance(second, int))
    assert unread == {"RENAMED": one + other, "LINKED": one + other, "MADE": one}


def check_ticks(log):
    """Hits that interrupt other ones, with texts of their own."""
    rows = log.rows("SELECT n, word, long_word, last, count(*) FROM TICK GROUP BY ALL")
    ((*values, times),) = rows
    long = "".join(str(n % 10) for n in range(64)) + "".join(str(n % 10) for n in range(88)) * 3
    assert values == [7, "a word of the kernel", long[:300], "last"]
    assert times > 10
