# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""--comm, --uid and --cgroup: exactly the events of threads that match when the event happens,
however they came to have that name, user or cgroup.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from oracles import Log
from test_recorder import finish, started

# prctl(1000, ...): the kernel does not know it, and hits the tracepoint.
SCHEMA = """schema hits "Hits of a thread"

event HIT {
    int number
    context tid
}

probe tracepoint task_prctl_unknown(int option, unsigned long arg2, unsigned long arg3,
                                    unsigned long arg4, unsigned long arg5) {
    if (option == 1000)
        klogger(HIT, arg2);
}
"""
# What a program of the tests can do.
HEAD = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
def named(name):
    libc.prctl(15, name.encode(), 0, 0, 0)
def hit(times):
    for n in range(times):
        libc.prctl(1000, n, 0, 0, 0)
def child(name, times):
    pid = os.fork()
    if pid == 0:
        named(name) if name else None
        hit(times)
        os._exit(0)
    os.waitpid(pid, 0)
    return pid
def move(folder):
    with open(folder + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
"""
NAMES = """
named("alpha"); hit(1009)
named("beta"); hit(503)
named("alpha"); hit(11)
pids = child(None, 101), child("gamma", 307)
print(os.getpid(), *pids)
"""
USERS = """
named("alpha"); hit(1009)
os.seteuid(65534); hit(503)
pids = child(None, 101), child("beta", 53)
os.seteuid(0); hit(11)
print(os.getpid(), *pids)
"""
CGROUPS = """
here, inner, outer = sys.argv[1:]
hit(1009)
move(here); hit(503)
pid = child(None, 101)
move(inner); hit(307)
move(outer); hit(11)
print(os.getpid(), pid)
"""


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "hits.klogger"
    path.write_text(SCHEMA)
    return path


@pytest.fixture
def cgroup():
    """A folder of a cgroup of version 2, of one in it, and of the one around it."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    root = next((Path(place) for _, place, kind, *_ in mounts if kind == "cgroup2"), None)
    if root is None:
        pytest.skip("no cgroups of version 2 are mounted")
    here = root / "klogger-test"
    try:
        (here / "inner").mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    yield here, here / "inner", root
    (here / "inner").rmdir()
    here.rmdir()


@pytest.fixture
def cgroup_v1():
    """The same, in a hierarchy of version 1, and the line of /proc/PID/cgroup of the first."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        controller = next((c for c in ("pids", "freezer", "memory") if c in options.split(",")), 0)
        if kind == "cgroup" and controller:
            break
    else:
        pytest.skip("no cgroups of version 1 with pids, freezer or memory are mounted")
    own = Path("/proc/self/cgroup").read_text().splitlines()
    own = next(line for line in own if line.split(":")[1].split(",").count(controller))
    outer = Path(place) / own.split(":", 2)[2].lstrip("/")
    here = outer / "klogger-test-v1"
    try:
        (here / "inner").mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    yield (here, here / "inner", outer), own.rstrip("/") + "/klogger-test-v1"
    (here / "inner").rmdir()
    here.rmdir()


def run(recorder, schema, program, *options, words=()):
    """The hits of each thread, of a program that is recorded with these options, and the ids of
    threads that it prints.
    """
    command = [sys.executable, "-c", HEAD + program, *words]
    done, path = recorder.run("-s", schema, *options, "--", *command)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.lost("HIT") == 0
    counts = dict(log.rows("SELECT tid, count(*) FROM hit GROUP BY tid"))
    return counts, [int(word) for word in done.out.split()], log


# Of all threads, and of those of the command.
WHOLE = pytest.mark.parametrize("whole", [["-a"], []], ids=["all", "command"])


@WHOLE
def test_names(recorder, schema, whole, clean_kernel):
    counts, (first, heir, _), log = run(recorder, schema, NAMES, *whole, "--comm", "alpha")
    assert counts == {first: 1009 + 11, heir: 101}
    assert log.meta["preamble"]["scope"] == ("threads" if whole else "processes")
    assert log.meta["preamble"]["recorder"]["threads"] == {"comms": ["alpha"]}
    # The names of threads that were not chosen are in the log.
    assert log.rows("SELECT count(*) FROM process_rename WHERE comm = 'gamma'") == [(1,)]
    counts, (first, _, third), _ = run(
        recorder, schema, NAMES, *whole, "--comm", "beta", "--comm", "gamma"
    )
    assert counts == {first: 503, third: 307}


@pytest.mark.full("others of this file are in the gate")
@WHOLE
def test_users(recorder, schema, whole, clean_kernel):
    """The effective user of a thread changes without any event."""
    counts, (first, second, third), _ = run(recorder, schema, USERS, *whole, "--uid", "65534")
    assert counts == {first: 503, second: 101, third: 53}
    words = ["--uid", "65534", "--comm", "beta"]
    counts, (_, _, third), _ = run(recorder, schema, USERS, *whole, *words)
    assert counts == {third: 53}
    words = ["--uid", "root", "--comm", "alpha"]
    counts, (first, *_), _ = run(recorder, schema, USERS, *whole, *words)
    assert counts == {first: 1009 + 11}


@pytest.mark.full("others of this file are in the gate")
@WHOLE
def test_cgroups(recorder, schema, whole, cgroup, clean_kernel):
    here, inner, _ = cgroup
    for path in here, here.name:
        counts, (first, second), log = run(
            recorder, schema, CGROUPS, *whole, "--cgroup", path, words=cgroup
        )
        assert counts == {first: 503 + 307, second: 101}
        assert log.meta["preamble"]["recorder"]["threads"] == {"cgroups": ["/klogger-test"]}
    counts, (first, _), _ = run(recorder, schema, CGROUPS, *whole, "--cgroup", inner, words=cgroup)
    assert counts == {first: 307}


@WHOLE
def test_cgroups_of_version_1(recorder, schema, whole, cgroup_v1, clean_kernel):
    folders, line = cgroup_v1
    text = line.split(":", 1)[1]
    for path in folders[0], line:
        counts, (first, second), log = run(
            recorder, schema, CGROUPS, *whole, "--cgroup", path, words=folders
        )
        assert counts == {first: 503 + 307, second: 101}
        assert log.meta["preamble"]["recorder"]["threads"] == {"cgroups": [text]}


@pytest.mark.full("others of this file are in the gate")
def test_cgroups_of_both_versions(recorder, schema, cgroup, cgroup_v1, clean_kernel):
    """A thread matches if it is in one of them."""
    (here, _, _), _ = cgroup_v1
    program = """
v1, v2, out1, out2 = sys.argv[1:]
hit(1009)
move(v1); hit(503); move(out1)
move(v2); hit(307); move(out2)
hit(11)
print(os.getpid())
"""
    words = [here, cgroup[0], here.parent, cgroup[2]]
    options = ["--cgroup", here, "--cgroup", cgroup[0]]
    counts, (first,), _ = run(recorder, schema, program, "-a", *options, words=words)
    assert counts == {first: 503 + 307}


def test_only_the_command(recorder, schema, clean_kernel):
    """Another process of the same name is not recorded, unless it is asked for."""
    program = HEAD + "named('alpha'); sys.stdin.readline(); hit(503); print(flush=True)"
    inside = "named('alpha'); hit(1009); sys.stdout.write('\\n')"
    for options, hits in ([], {1009}), (["-a"], {1009, 503}):
        other = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        path = recorder.path()
        # The recorded command waits until the other process has done its hits.
        command = (
            f"{HEAD}{inside}\nos.write({other.stdin.fileno()}, b'go\\n')"
            f"\nos.read({other.stdout.fileno()}, 1)"
        )
        done = subprocess.run(
            [recorder.klogger, "record", "-o", path, "-s", schema, *options, "--comm", "alpha",
             "--", sys.executable, "-c", command],
            pass_fds=[other.stdin.fileno(), other.stdout.fileno()],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        other.communicate(timeout=30)
        assert done.returncode == 0, done.stderr
        log = Log(recorder.klogger, path)
        assert {n for (n,) in log.rows("SELECT count(*) FROM hit GROUP BY tid")} == hits


@pytest.mark.full("others of this file are in the gate")
def test_of_the_whole_system_until_it_is_interrupted(recorder, schema, clean_kernel):
    """A process that was there before, and one that starts later."""
    program = HEAD + "named('alpha'); print(flush=True); sys.stdin.readline(); hit(503)"
    before = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    before.stdout.readline()
    path = recorder.path()
    recording = recorder.start("-s", schema, "--comm", "alpha", out=path)
    assert started(path)
    before.communicate(b"go\n", timeout=30)
    program = HEAD + "hit(11); named('alpha'); hit(101)"
    subprocess.run([sys.executable, "-c", program], timeout=30, check=True)
    recording.send_signal(signal.SIGINT)
    finish(recording)
    log = Log(recorder.klogger, path)
    counts = dict(log.rows("SELECT tid, count(*) FROM hit GROUP BY tid"))
    assert counts.pop(before.pid) == 503
    assert list(counts.values()) == [101]


@pytest.mark.full("others of this file are in the gate")
def test_a_sleeper_is_chosen_when_the_recording_starts(recorder, clean_kernel):
    """It hits no probe itself before it is woken."""
    program = HEAD + "named('sleeper'); print(flush=True); sys.stdin.readline()"
    sleeper = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    sleeper.stdout.readline()
    path = recorder.path()
    recording = recorder.start("-s", "scheduler", "--comm", "sleeper", "--uid", "0", out=path)
    assert started(path)
    sleeper.communicate(b"go\n", timeout=30)
    recording.send_signal(signal.SIGINT)
    finish(recording)
    log = Log(recorder.klogger, path)
    (first,) = log.rows("SELECT pid FROM try_to_wakeup ORDER BY time LIMIT 1")
    assert first == (sleeper.pid,)
    assert log.rows(f"SELECT count(*) > 0 FROM schedin WHERE pid = {sleeper.pid}") == [(True,)]
    assert log.rows(f"SELECT count(*) FROM schedin WHERE pid != {sleeper.pid}") == [(0,)]


def test_a_name_that_no_thread_has(recorder, schema, clean_kernel):
    """That nothing was lost is true, and no answer."""
    done, _ = recorder.run("-s", schema, "--comm", "nosuchname", "--", "true")
    assert "no thread named nosuchname has logged an event" in " ".join(done.err.split()), done.err
    done, _ = recorder.run("-s", "scheduler", "--comm", "sh", "--", "sh", "-c", ": ; sleep 0")
    assert "has logged an event" not in " ".join(done.err.split()), done.err
    assert " kB in " in done.err or " bytes in " in done.err, done.err
