# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ids that programs in PID namespaces (containers) pass, are told, or have in their memory, become
those of the kernel; and who holds a lock is said only where that is known.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from oracles import Log, answers
from test_watch import PATIENCE, watch  # noqa: F401

HERE = Path(__file__).resolve().parent
SCHEMATA = HERE.parents[1] / "schemata"
# Not a wrapper that starts it.
PYTHON = Path(os.path.realpath(sys.executable))
SPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
NESTED = 2
OF_GLIBC = ["recursive", "robust", "pi"]
OF_ITS_OWN = ["passed", "inlined"]
LATER = pytest.mark.full("others of this file are in the gate")

NUMBERS = """schema numbers
event NUMBER { int number  int thread as thread  int process as thread  context tid pidns_tid }
probe syscall getpgid(int number) {
    klogger(NUMBER, number, klogger_thread_of(number), klogger_process_of(number));
}
"""
# With more of them than a node of the kernel's tree has places.
ASKING = """
import os, signal, sys
children = []
for _ in range(67):
    children.append(os.fork())
    if not children[-1]:
        signal.pause()
# Outside of namespaces, any number up to 4,194,304 may be that of some process.
free = children[-1] + 1 if sys.argv[1] != "0" else 4_194_305
for number in [os.getpid(), *children, free, 4_194_306]:
    try: os.getpgid(number)
    except ProcessLookupError: pass
for child in children: os.kill(child, signal.SIGKILL)
print(*children)
"""
WAITING = """
import ctypes, os, signal, time
def child(does):
    pid = os.fork()
    if not pid:
        os._exit(does())
    return pid
def stops():
    os.kill(os.getpid(), signal.SIGSTOP)
    return 41
def lasts():
    signal.pause()
for code in (3, 5):
    os.waitpid(child(lambda: code), 0)
pid = child(lambda: 7)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
os.waitid(os.P_PID, pid, os.WEXITED)
pid = child(stops)
os.waitpid(pid, os.WUNTRACED)
os.kill(pid, signal.SIGCONT)
os.waitpid(pid, 0)
pid = child(lasts)
assert ctypes.CDLL(None).ptrace(0x4206, pid, 0, 0) == 0  # SEIZE
os.kill(pid, signal.SIGKILL)
os.waitpid(pid, 0)
"""


def kinds(folder: Path, *options: str) -> Path:
    made = folder / "lock_kinds"
    source = HERE / "programs/lock_kinds.c"
    subprocess.run(["cc", "-O2", "-pthread", *options, "-o", made, source], check=True)
    return made


@pytest.fixture(scope="module")
def lock_kinds(tmp_path_factory) -> Path:
    return kinds(tmp_path_factory.mktemp("locks"))


def children_of(log, event, parent):
    rows = log.rows(f"SELECT pid FROM {event} WHERE parent = {parent} ORDER BY time")
    return [pid for (pid,) in rows]


@pytest.mark.parametrize("depth", range(NESTED + 1))
def test_a_number_is_that_of_the_callers_namespace(recorder, depth):
    file = recorder.dir / "numbers.klogger"
    file.write_text(NUMBERS)
    command = [*SPACE * depth, PYTHON, "-I", "-c", ASKING, str(depth)]
    done, path = recorder.run("-s", file, "--", *command)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    main = log.one("SELECT any_value(tid) FROM NUMBER")
    made = children_of(log, "PROCESS_FORK", main)
    children = [int(word) for word in done.out.split()]
    of_kernel = dict(zip(children, made, strict=True))
    of_kernel[log.one("SELECT any_value(pidns_tid) FROM NUMBER")] = main
    rows = log.rows("SELECT number, thread, process FROM NUMBER ORDER BY time")
    known, unknown = rows[: len(of_kernel)], rows[len(of_kernel) :]
    assert known == [(n, of_kernel[n], of_kernel[n]) for n in [rows[0][0], *children]]
    assert (rows[0][0] != main) == (depth > 0)
    # In the outermost namespace all numbers are the kernel's, whoever has them.
    assert [process for _, _, process in unknown] == [0, 0]
    assert [thread for _, thread, _ in unknown] == ([0, 0] if depth else [n for n, _, _ in unknown])


@pytest.mark.parametrize("depth", range(NESTED + 1))
def test_a_child_that_was_waited_for_is_the_one_that_ended(recorder, depth):
    command = [*SPACE * depth, PYTHON, "-I", "-c", WAITING]
    done, path = recorder.run("-s", SCHEMATA / "lifecycle/lifecycle.klogger", "--", *command)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    main = log.one("SELECT tracer FROM TRACED")
    made = children_of(log, "STARTED", main)
    told = log.rows(f"SELECT child, status FROM REAPED WHERE tid = {main} ORDER BY time")
    stopped, last = signal.SIGSTOP << 8 | 0x7F, int(signal.SIGKILL)
    statuses = [3 << 8, 5 << 8, 7 << 8, stopped, 41 << 8, last]
    assert told == list(zip([*made[:4], *made[3:]], statuses, strict=True))
    assert log.rows("SELECT pid, result FROM TRACED") == [(made[-1], 0)]
    # Those around it, each of which waits in its own namespace.
    others = f"FROM REAPED AS r JOIN ENDED AS e ON r.child = e.pid WHERE r.tid <> {main}"
    assert log.one(f"SELECT count(*) {others} AND r.status = e.code") == depth
    assert log.one(f"SELECT count(*) FROM REAPED WHERE tid <> {main}") == depth


@pytest.mark.parametrize("depth", [pytest.param(0, marks=LATER), 1])
@pytest.mark.parametrize("kind", [*OF_GLIBC, *OF_ITS_OWN, pytest.param("rwlock", marks=LATER)])
def test_who_holds_a_lock(recorder, lock_kinds, kind, depth):
    """Of what only looks like a mutex, that is a guess."""
    command = [*SPACE * depth, lock_kinds, kind]
    done, path = recorder.run("-s", SCHEMATA / "futex/futex.klogger", "--", *command)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    main = log.one("SELECT max(tgid) FROM WAIT")
    other = log.one(f"SELECT DISTINCT pid FROM process WHERE tgid = {main} AND pid <> {main}")
    waits = log.rows(f"SELECT DISTINCT holder, guess FROM WAIT WHERE tid = {main} AND op IN (0, 6)"
                     " AND (holder > 0 OR guess > 0)")  # fmt: skip
    wanted = [(other, 0)] if kind in OF_GLIBC else [(0, main)] if kind in OF_ITS_OWN else []
    assert waits == wanted
    cycles = answers(recorder.klogger, path)["cycles"]
    assert [row["holders"] for row in cycles] == (["guessed"] if kind in OF_ITS_OWN else [])


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("options", [[], ["-static"]])
def test_a_dead_lock_in_a_container_is_found(watch, tmp_path, options):  # noqa: F811
    """Of a static program the names say that it is glibc that waits."""
    process = watch.start(command=[*SPACE * NESTED, kinds(tmp_path, *options), "dead"])
    (one,) = watch.wait_found(1, process)
    process.terminate()
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    threads = {thread["thread"]: thread["holder"] for thread in one["threads"]}
    assert one["finding"] == "deadlock" and len(threads) == 2
    assert set(threads) == set(threads.values()) and one["process"]["pid"] in threads


@pytest.mark.parametrize("kind", ["passed", pytest.param("inlined", marks=LATER)])
def test_a_guess_raises_no_alarm(watch, lock_kinds, kind):  # noqa: F811
    code, _, err = watch.run("--stop-on-find", command=[lock_kinds, kind])
    (one,) = watch.found()
    assert (code, err, one["finding"]) == (0, "", "guess")
    assert one["title"].startswith("perhaps a dead-lock")
