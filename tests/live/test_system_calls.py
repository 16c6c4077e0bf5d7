# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""System calls: what is logged is what a program says that it called, and what strace counts."""

import collections
import errno
import re
import shutil
import subprocess

import oracles
import pytest
from oracles import Log

# Two schemata with probes at the same calls, which must not disturb each other.
ALL = """
event CALLED { uint number as syscall  int abi  context tid }
event RETURNED { uint number as syscall  long result as errno  context tid }
event LONGER { uint number as syscall  int dfd  string[1000] path }

probe syscall *(long number) { klogger(CALLED, number, klogger_syscall_abi()); }
probe return syscall *(long result, long number) { klogger(RETURNED, number, result); }
probe return syscall openat(long result, int dfd, const char *path) {
    klogger(LONGER, 257, dfd, klogger_user_string(path));
}
"""
SOME = """
event OPENED { int dfd  long result as errno  int flags as hex  string path  context tgid }
event ENTERED { string path  uint stack as stack }
event COPIED { long size  long text  long begin as hex  long number }
event MADE { int mode  int abi }

probe syscall openat(int dfd, const char *path) {
    klogger(ENTERED, klogger_user_string(path), klogger_stack());
}
probe return syscall openat(long result, int dfd, const char *path, int flags) {
    char text[16] = {};
    u64 begin = 0;
    long error = klogger_user(&begin, path, sizeof(begin));
    long length = klogger_user_text(text, path, sizeof(text));

    klogger(OPENED, dfd, result, flags, klogger_user_string(path));
    klogger(COPIED, error, length, begin, result);
}
probe return syscall mkdir(long result, const char *path, umode_t mode) {
    klogger(MADE, mode, klogger_syscall_abi());
}
"""
CUT = 255
# A path that the program opens by a 32-bit call.
AS_32_BIT = "thirty-two"


def written(recorder, name, text):
    path = recorder.dir / f"{name}.klogger"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("calls")


def test_what_is_logged_is_what_was_called(recorder, workloads, folder, clean_kernel):
    some, every = written(recorder, "planted", SOME), written(recorder, "every_call", ALL)
    log, report = recorder.log("-s", some, "-s", every, "--", workloads / "calls", folder)
    assert sum(log.lost(name) for name in log.events()) == 0
    oracles.check_serials(log)
    check_paths_and_errors_are_those_of_the_program(log, report)
    check_copies_tell_a_bad_address_from_an_empty_one(log, report)
    check_counts_of_each_call(log, report)
    check_calls_of_32_bit_are_told_apart(log, report)
    check_stacks_begin_in_the_kernel(log)
    check_strace_counts_the_same(log, report, workloads, folder)


def names(log: Log) -> dict[int, str]:
    tables = {table["name"]: table["values"] for table in log.meta["preamble"]["decodings"]}
    return dict(map(tuple, tables["syscall"]))


def planted(report) -> dict[bytes, int]:
    return {bytes.fromhex(path): times for path, times in report["paths"]}


def check_paths_and_errors_are_those_of_the_program(log, report):
    paths = planted(report)
    logged = collections.Counter()
    for path, result, times in log.rows(
        "SELECT path, result, count(*) FROM OPENED WHERE dfd = 3 GROUP BY ALL"
    ):
        logged[path] += times
        expected = {"": -errno.EFAULT, "missing": -errno.ENOENT, "x" * CUT: -errno.ENAMETOOLONG}
        expected[AS_32_BIT] = -errno.ENOENT
        if path.startswith("//"):
            assert result == -errno.ENOENT
        elif path in expected:
            assert result == expected[path]
        else:
            assert result >= 0
    expected = {path[:CUT].decode(errors="replace"): times for path, times in paths.items()}
    by_32 = {AS_32_BIT: report["calls_32"]} if report["calls_32"] else {}
    assert logged == expected | {"": report["bad"]} | by_32
    # In a text of a fixed size there is room for more.
    longer = log.rows("SELECT path, count(*) FROM LONGER WHERE dfd = 3 GROUP BY ALL")
    expected = {p[:999].decode(): times for p, times in paths.items()}
    assert dict(longer) == expected | {"": report["bad"]} | by_32
    # Texts that could not be read are counted, by event; at the entry also those that were not in
    # memory yet.
    unread = dict(log.rows("SELECT event, count FROM ledger WHERE key = 'text_unread'"))
    assert [unread["OPENED"], unread["LONGER"]] == [report["bad"]] * 2
    assert unread["ENTERED"] >= report["bad"]


def check_copies_tell_a_bad_address_from_an_empty_one(log, report):
    bad = log.count("COPIED", f"size = {-errno.EFAULT} AND text = {-errno.EFAULT} AND begin = 0")
    assert bad == report["bad"]
    start = int.from_bytes(b"with several"[:8], "little")
    assert log.rows(f"SELECT size, text, count(*) FROM COPIED WHERE begin = {start} GROUP BY ALL")[
        0
    ] == (0, 15, 14)


def check_counts_of_each_call(log, report):
    own = f"tid IN {tuple(report['pids'])}"
    for event in ("CALLED", "RETURNED"):
        counts = {
            names(log)[n]: times
            for n, times in log.rows(f"SELECT number, count(*) FROM {event} WHERE {own} GROUP BY 1")
            if n in names(log)
        }
        assert counts["getppid"] == report["getppid"]
        assert counts["dup"] == report["dup"]
        assert counts["openat"] == sum(planted(report).values()) + report["bad"] + 1
    dups = log.rows(
        "SELECT DISTINCT result FROM RETURNED"
        f" WHERE number = {next(n for n, name in names(log).items() if name == 'dup')} AND {own}"
    )
    assert dups == [(-errno.EBADF,)]


def check_calls_of_32_bit_are_told_apart(log, report):
    if not report["calls_32"]:
        pytest.skip("this kernel has no system calls of 32-bit programs")
    rows = log.rows("SELECT number, count(*) FROM CALLED WHERE abi = 1 GROUP BY 1 ORDER BY 1")
    called = [(names(log)[n], times) for n, times in rows]
    calls = ("i386:mkdir", "i386:mmap2", "i386:openat")
    assert called == [(call, report["calls_32"]) for call in calls]
    # A probe gets the calls of its name, whatever their number: this one is getpid() of a 64-bit
    # program.
    assert log.rows("SELECT abi, mode, count(*) FROM MADE GROUP BY ALL") == [
        (1, 0o750, report["calls_32"])
    ]
    own = f"tid IN {tuple(report['pids'])}"
    assert log.count("CALLED", f"number = 39 AND {own}") == 1
    opened = "SELECT DISTINCT dfd, flags, result FROM OPENED WHERE path = 'thirty-two'"
    assert log.rows(opened) == [(3, 0, -errno.ENOENT)]


def check_stacks_begin_in_the_kernel(log):
    assert log.count("ENTERED", "stack = 0") == 0
    frames = log.rows("SELECT DISTINCT frames[1] FROM stack")
    assert any("sys" in (name or "") or "enter" in (name or "") for (name,) in frames), frames


def check_strace_counts_the_same(log, report, workloads, folder):
    """Per call, also those that failed."""
    strace = shutil.which("strace")
    if not strace:
        pytest.skip("strace is not installed")
    own = f"tid IN {tuple(report['pids'])}"
    done = subprocess.run(
        [strace, "-f", "-c", "-o", "/dev/stderr", workloads / "calls", folder],
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = {}
    prefix = ""
    for line in done.stderr.splitlines():
        if "for 32 bit mode" in line:
            prefix = "i386:"
        row = re.fullmatch(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(\d*)\s*(\w+)", line)
        if row and row[3] != "total":
            theirs[prefix + row[3]] = (int(row[1]), int(row[2] or 0))
    ours = {}
    for number, times in log.rows(f"SELECT number, count(*) FROM CALLED WHERE {own} GROUP BY 1"):
        failed = log.count("RETURNED", f"number = {number} AND result < 0 AND {own}")
        ours[names(log)[number]] = (times, failed)
    # strace does not count what never returns.
    assert ours.pop("exit_group") == (2, 0)
    assert ours == theirs


@pytest.mark.full("others of this file are in the gate")
def test_one_program_at_each_tracepoint(recorder, workloads, folder, clean_kernel):
    """And a call that nobody asked for is not logged."""
    text = "event UNLINK { string path }\nprobe return syscall unlink(long result, const char *p) {"
    schema = written(recorder, "unlinks", text + " klogger(UNLINK, klogger_user_string(p)); }")
    log, _ = recorder.log("-s", schema, "--", workloads / "calls", folder)
    assert log.count("UNLINK") == 0
    states = [(p["target"], p["attached"]) for p in log.meta["preamble"]["probes"]]
    assert ("return syscall unlink", True) in states


@pytest.mark.parametrize(
    ("probe", "said", "help"),
    [
        (
            "syscall sys_openat(int dfd)",
            "this kernel has no system call 'sys_openat'",
            "write 'syscall openat'",
        ),
        (
            "syscall opennat(int dfd)",
            "this kernel has no system call 'opennat'",
            "did you mean openat, openat2?",
        ),
        (
            "return syscall exit_group(long result)",
            "no probe can be at the return of system call 'exit_group'",
            "it does not return: write 'probe syscall exit_group'",
        ),
        (
            "syscall openat(const char *path)",
            "the parameters are not those of syscall openat",
            "schema: const char *path kernel: int dfd, const char *filename, int flags, umode_t"
            " mode",
        ),
        (
            "syscall dup(unsigned int fd, int more)",
            "the parameters are not those of syscall dup",
            "schema: unsigned int fd, int more kernel: unsigned int fildes",
        ),
        (
            "syscall *(const char *name)",
            "the parameters are not those of syscall *",
            "schema: const char *name kernel: long number, unsigned long arg0, unsigned long arg1,"
            " unsigned long arg2, unsigned long arg3, unsigned long arg4, unsigned long arg5",
        ),
        (
            "tracepoint sys_enter_openat(int dfd)",
            "this kernel has no tracepoint 'sys_enter_openat'",
            "write 'syscall openat'",
        ),
    ],
)
def test_messages(recorder, probe, said, help, clean_kernel):
    schema = written(recorder, "wrong", f"event A {{ }}\nprobe {probe} {{ klogger(A); }}\n")
    for command in (["check", schema], ["record", "-s", schema, "--", "true"]):
        done = recorder.command(*command)
        text = " ".join(re.sub(r"[│·×╰╯╭─┬]", " ", done.err + done.out).split())
        assert (done.code, said in text, help in text) == (2, True, True), text


def test_alternatives(recorder, clean_kernel):
    text = "event A { }\nprobe syscall no_such_call(int a) or syscall getppid() { klogger(A); }\n"
    log_done, out = recorder.run(
        "-s", written(recorder, "either", text), "--", "sh", "-c", "exec true $PPID"
    )
    assert log_done.code == 0, log_done.err
    assert Log(recorder.klogger, out).count("A") >= 1


@pytest.mark.full("others of this file are in the gate")
def test_conditions_of_texts(recorder, workloads, folder, clean_kernel):
    """What is not wanted is not logged."""
    some = written(recorder, "planted", SOME)
    log, report = recorder.log(
        *("-s", some, "--where", 'OPENED: path =~ "^with " && result >= 0'),
        *("--where", "COPIED: begin != 0 && number < 0"),
        *("--", workloads / "calls", folder),
    )
    paths = {path.decode(): n for path, n in planted(report).items() if path.startswith(b"with ")}
    assert dict(log.rows("SELECT path, count(*) FROM OPENED GROUP BY 1")) == paths
    assert log.count("COPIED", "number >= 0") == 0 < log.count("COPIED")
