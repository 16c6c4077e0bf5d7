# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `hang` has what threads say of themselves that are made to hang, what /proc and the
kernel's own detector say of them, and nothing of threads that do not.
"""

import contextlib
import fcntl
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from disturbed import disturbed
from oracles import Log, Stolen, answers

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "schemata/hang/hang.klogger"
FUTEX = ROOT / "schemata/futex/futex.klogger"
WORKLOAD = ROOT / "schemata/hang/workload"
SETTINGS = Path("/proc/sys/kernel")
# In the order in which they begin to wait; the last two wait for the third.
NAMES = ["writer1", "writer2", "memory", "mapper", "reader"]
# Functions that /proc/PID/stack leaves out.
OF_LOCKS = re.compile(r"_*(schedule|percpu_down|rwsem_down|down_)\w*")


@dataclass(frozen=True)
class Hung:
    """A thread, as the workload saw it."""

    tid: int
    state: str
    since: int
    stack: list[str]


def threads_of(text: str) -> dict[str, Hung]:
    words = [line.split() for line in text.splitlines()]
    return {
        name: Hung(int(tid), state, int(since), stack)
        for name, tid, state, since, *stack in (w for w in words if len(w) > 4)
    }


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    program = tmp_path_factory.mktemp("hang") / "program"
    command = ["cc", "-O1", "-Wall", "-pthread", "-o", program, WORKLOAD.parent / "workload.c"]
    subprocess.run(command, check=True)
    missing = [name for name in ("mkfs.ext4", "fsfreeze", "mount") if not shutil.which(name)]
    if missing:
        pytest.skip(f"{', '.join(missing)} is missing")
    if not Path("/dev/loop-control").exists():
        pytest.skip("this kernel has no loop devices")
    return {"WORKLOAD_PROGRAM": str(program)}


@pytest.fixture
def workload(environment, monkeypatch):
    """Its command line; the program is compiled already."""
    monkeypatch.setenv("WORKLOAD_PROGRAM", environment["WORKLOAD_PROGRAM"])
    return lambda what, seconds: [WORKLOAD, str(seconds), what]


@contextlib.contextmanager
def settings(**values):
    """Of the kernel's detector; restored in every case. The study changes them too, and waits."""
    before = {}
    with (SETTINGS / "hung_task_timeout_secs").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            for name, value in values.items():
                before[name] = (SETTINGS / name).read_text()
                (SETTINGS / name).write_text(str(value))
            yield
        finally:
            for name, value in before.items():
                (SETTINGS / name).write_text(value)


def whole(log: Log) -> None:
    events = ("SLEEPS", "RUNS", "FOUND", "LOCK_WAIT", "LOCK_GOT", "FS_FROZEN", "HANG")
    assert [event for event in events if log.lost(event)] == []


def check_stack(logged: list[str], proc: list[str]) -> None:
    """The same functions, but for those of the scheduler and of locks."""
    logged = [frame.split("+")[0] for frame in logged]
    rest = Counter(logged) - Counter(proc)
    assert [f for f in logged if not (f in rest and OF_LOCKS.fullmatch(f))] == proc


def check_ends(log: Log, threads: dict[str, Hung]) -> None:
    """No verdict if the kernel has not reported the switch to one of them when it went on."""
    for name, thread in threads.items():
        if log.count("runs", f"pid = {thread.tid} AND time + {log.start_ns} > {thread.since}") == 0:
            disturbed(f"the kernel left out the switch to {name}")


@pytest.mark.full("takes more than 3 s")
def test_a_frozen_file_system(recorder, workload):
    done, path = recorder.run("-s", SCHEMA, "--set", "stuck=1s", "--", *workload("freeze", 2))
    assert done.code == 0, done.err
    threads = threads_of(done.out)
    frozen, thawed = map(int, done.out.split("freeze ")[1].split())
    assert list(threads) == NAMES
    log = Log(recorder.klogger, path)
    whole(log)
    check_ends(log, threads)
    before = frozen
    for thread in threads.values():
        assert thread.state == "D"
        ((began, stack, ended),) = log.rows(f"""
            SELECT s.time, k.frames, (SELECT min(time) FROM runs WHERE pid = {thread.tid}
                AND time > s.time) FROM sleeps AS s JOIN stack AS k ON k.id = s.stack
            WHERE pid = {thread.tid} AND s.time + {log.start_ns} <= {thread.since}
            ORDER BY s.time DESC LIMIT 1
        """)
        check_stack(stack, thread.stack)
        # The workload starts each when the one before it sleeps.
        assert before <= began + log.start_ns <= thread.since
        assert ended + log.start_ns >= thawed
        before = thread.since
    tables = answers(recorder.klogger, path)
    assert tables["cycles"] == []
    named = {name: f"{name}[{thread.tid}]" for name, thread in threads.items()}
    assert [row["thread"] for row in tables["stuck"]] == list(named.values())
    (cause,) = [row for row in tables["causes"] if row["kind"] == "frozen file system"]
    assert (cause["threads"], cause["direct"], cause["open"]) == (5, 3, 0)
    assert [(row["thread"], row["depth"]) for row in tables["collateral"]] == [
        (named[name], 0 if name in NAMES[:3] else 1) for name in NAMES
    ]
    assert {row["root"] for row in tables["collateral"]} == {cause["root"]}
    waits = {row["waiter"]: (row["holder"], row["known"]) for row in tables["waits_for"]}
    by_memory = (named["memory"], "sleeping reader")
    assert waits[named["mapper"]] == waits[named["reader"]] == by_memory
    assert all(waits[named[name]][1].startswith("it froze") for name in NAMES[:3])


def reported(since: str) -> set[int]:
    """Threads that the kernel's own messages name, after the line `since`."""
    text = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    text = text.split(since)[-1]
    return {int(tid) for tid in re.findall(r"task \S+:(\d+) blocked for more than", text)}


@pytest.mark.full("takes more than 3 s")
def test_what_the_kernel_reports_is_stuck(recorder, workload):
    if not (SETTINGS / "hung_task_timeout_secs").exists():
        pytest.skip("this kernel does not look for hung tasks")
    mark = f"klogger: test_hang {time.monotonic_ns()}"
    Path("/dev/kmsg").write_text(mark + "\n")
    # Each thread is reported within 2 to 4 s of its sleep.
    with settings(hung_task_timeout_secs=2, hung_task_warnings=1000):
        done, path = recorder.run("-s", SCHEMA, "--set", "stuck=1s", "--", *workload("freeze", 7))
        assert done.code == 0, done.err
        said = reported(mark)
    threads = threads_of(done.out)
    log = Log(recorder.klogger, path)
    whole(log)
    check_ends(log, threads)
    hung = {tid for (tid,) in log.rows("SELECT DISTINCT pid FROM hang")}
    ours = {thread.tid for thread in threads.values()}
    assert hung == said & ours
    # SIGKILL ends the waits of the last two: these it does not report.
    assert hung <= {threads[name].tid for name in NAMES[:3]}
    tables = answers(recorder.klogger, path)
    stuck = {int(re.search(r"\[(\d+)\]$", row["thread"])[1]) for row in tables["stuck"]}
    assert hung <= stuck == ours
    if len(hung) < 3:
        disturbed(f"the kernel reported {len(hung)} threads of 3 in 7 s")
    rows = {row["threshold"]: row for row in tables["early"]}
    assert rows["1 s"]["reports"] == rows["1 s"]["for_locks"] == 5
    assert rows["1 s"]["earlier"] > 0 and rows["the kernel"]["reports"] == 3


@contextlib.contextmanager
def frozen(workload, folder):
    """The threads of a file system that stays frozen, and the times of the freeze."""
    out = folder / "out"
    with out.open("w") as file:
        process = subprocess.Popen(
            workload("freeze", 300), stdout=file, start_new_session=True, cwd=folder
        )
    try:
        end = time.monotonic() + 100
        while len(threads_of(out.read_text())) < len(NAMES) or not out.read_text().endswith("\n"):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        yield threads_of(out.read_text())
    finally:
        # It thaws the file system, and removes it.
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM


def status_of(thread: Hung, name: str) -> str:
    text = Path(f"/proc/{thread.tid}/status").read_text()
    return re.search(rf"^{name}:\s*(\w+)", text, re.M)[1]


@pytest.mark.full("takes more than 3 s")
def test_who_sleeps_already_is_found(recorder, workload, tmp_path):
    with Stolen() as stolen, frozen(workload, tmp_path) as threads:
        process = int(status_of(threads["mapper"], "Tgid"))
        # `victim` too, whose command line and maps cannot be read, which are for user stacks: the
        # recorder must not wait for them.
        pids = [threads[name].tid for name in NAMES if name != "mapper"] + [process]
        words = [word for pid in pids for word in ("-p", str(pid))]
        options = ["-s", SCHEMA, "--set", "hang.stuck=1ms", "-s", FUTEX, "--for", "1s"]
        done, path = recorder.run(*options, *words)
        states = {name: status_of(thread, "State") for name, thread in threads.items()}
    assert done.code == 0, done.err
    # It has ended before they went on.
    assert set(states.values()) == {"D"}
    log = Log(recorder.klogger, path)
    whole(log)
    names = {process: "victim"}
    for name, thread in threads.items():
        names[thread.tid] = name
        for last in ("true", "false"):
            ((at, asleep),) = log.rows(
                f"SELECT time, asleep FROM found WHERE pid = {thread.tid} AND last = {last}"
            )
            longest = at + log.start_ns - thread.since
            # The recorder's own last moment is as late as the scheduler has noted it.
            assert abs(asleep - longest) <= stolen.ns + 5e8
    shown = recorder.command("cat", path, "--event", "FOUND").out.splitlines()
    assert len(shown) == 2 * len(NAMES)
    for line in shown:
        thread = threads[re.search(r" pid=(\w+)\[", line)[1]]
        frames = re.search(r"frames=\[([^\]]*)\]", line)[1].split(",")
        assert [f.split("+")[0] for f in frames if f != "0x0"] == thread.stack[:16]
    tables = answers(recorder.klogger, path)
    assert tables["cycles"] == []
    assert len(tables["stuck"]) == len(NAMES)
    assert all(row["open"] and row["before"] > 0 for row in tables["stuck"])
    (cause,) = [row for row in tables["causes"] if row["kind"] == "frozen file system"]
    assert (cause["threads"], cause["open"]) == (3, 3)
    assert {row["comm"] for row in table(log, "process", f"pid = {process}")} == {"victim"}


def table(log: Log, name: str, where: str) -> list[dict]:
    cursor = log.db.execute(f"SELECT * FROM {name} WHERE {where}")
    columns = [column[0] for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


@pytest.mark.full("takes more than 3 s")
def test_who_waits_for_a_child_is_slow_and_not_dead_locked(recorder, workload):
    done, path = recorder.run("-s", SCHEMA, "--set", "stuck=1s", "--", *workload("vfork", 1))
    assert done.code == 0, done.err
    parent = threads_of(done.out)["parent"]
    tables = answers(recorder.klogger, path)
    (row,) = [r for r in tables["stuck"] if r["thread"] == f"parent[{parent.tid}]"]
    assert (row["state"], row["call"], row["lock"]) == ("killable", "vfork", None)
    assert tables["cycles"] == [] and tables["waits_for"] == []
    assert {r["kind"] for r in tables["causes"]} <= {"child", "device", "other"}
    assert [r["threads"] for r in tables["causes"] if r["kind"] == "child"] == [1]


@pytest.mark.full("takes more than 3 s")
def test_who_only_works_is_not_stuck(recorder, workload):
    done, path = recorder.run("-s", SCHEMA, "--", *workload("busy", 2))
    assert done.code == 0, done.err
    tid, switches = map(int, done.out.split()[1:])
    log = Log(recorder.klogger, path)
    whole(log)
    slept = log.count("sleeps", f"pid = {tid}")
    assert 0 < slept <= switches
    # The kernel leaves out a switch now and then.
    assert 0.98 * slept - 2 <= log.count("runs", f"pid = {tid}") <= slept
    tables = answers(recorder.klogger, path)
    assert tables["cycles"] == []
    if tables["stuck"]:
        devices = {row["root"] for row in tables["causes"] if row["kind"] == "device"}
        assert devices, tables["causes"]
        disturbed(f"the disk took longer than 10 s: {sorted(devices)}")


# A thread that runs goes to sleep when it is frozen; of one that sleeps already, the kernel changes
# the state, and no event tells it.
FREEZER = """
(while :; do :; done) &
mkdir "$0/group"
echo $! >"$0/group/cgroup.procs"
echo FROZEN >"$0/group/freezer.state"
until grep -q FROZEN "$0/group/freezer.state"; do sleep 0.02; done
sleep 0.3
echo THAWED >"$0/group/freezer.state"
kill -KILL $!
wait $! || true
rmdir "$0/group"
echo $!
"""


def test_who_is_frozen_on_purpose_is_told_apart(recorder, tmp_path):
    folder = tmp_path / "freezer"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "cgroup", "-o", "freezer", "none", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mount.returncode:
        pytest.skip(f"no freezer of version 1: {mount.stderr}")
    try:
        done, path = recorder.run(
            "-s", SCHEMA, "--set", "stuck=100ms", "--", "sh", "-c", FREEZER, folder
        )
        assert done.code == 0, done.err
    finally:
        subprocess.run(["umount", folder], check=True)
    tables = answers(recorder.klogger, path)
    thread = f"sh[{int(done.out)}]"
    assert [row["state"] for row in tables["stuck"] if row["thread"] == thread] == ["frozen"]
    assert [row["threads"] for row in tables["causes"] if row["kind"] == "freezer"] == [1]
    assert tables["cycles"] == []
