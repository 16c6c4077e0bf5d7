# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `context` adds to an event is what /proc says of the thread that logged it; and helpers of
`code` may take stacks.
"""

import json
import sys
from pathlib import Path

from oracles import Log

SCHEMA = """schema contexts "Who renamed itself"

event RENAMED {
    context tid tgid ppid prio
    uint direct as stack
    uint helped as stack
}

code {
    static u32 here(void) { return klogger_stack(); }
    static u32 from(int n) { return n ? here() : 0; }
}

probe tracepoint task_rename(struct task_struct *task, const char *comm) {
    klogger(RENAMED, klogger_stack(), from(1));
}
"""
# Each process and thread prints what /proc/thread-self/stat says, and then renames itself: a chain
# of children, a thread, and an orphan, whom another process has adopted.
FAMILY = """
import json, os, sys, threading

def tell(lock=threading.Lock()):
    stat = open("/proc/thread-self/stat").read().rpartition(")")[2].split()
    tid = threading.get_native_id()
    said = {"tid": tid, "tgid": os.getpid(), "ppid": int(stat[1]), "prio": int(stat[15])}
    with lock:
        os.write(1, (json.dumps(said) + "\\n").encode())
    with open("/proc/thread-self/comm", "w") as comm:
        comm.write(f"ppid-{tid}")

def chain(n):
    tell()
    if n and not os.fork():
        chain(n - 1)
        os._exit(0)
    if n:
        os.wait()

def orphan():
    if not os.fork():
        parent = os.getpid()
        if not os.fork():
            while os.getppid() == parent:
                os.sched_yield()
            tell()
            os._exit(0)
        os._exit(0)
    os.wait()

chain(3)
thread = threading.Thread(target=tell)
thread.start()
thread.join()
done, writing = os.pipe()
orphan()
os.close(writing)
os.read(done, 1)  # ends when the orphan has
"""


PLACES = """schema places "Where threads rename themselves"

context irq netns pidns_tid comm memcg stack

event RENAMED "a thread has a new name" {
    string[16] name
}

event EXPIRED "a timer of the kernel called its function" scope all {
}

probe tracepoint task_rename(struct task_struct *task, const char *comm) {
    klogger(RENAMED, comm);
}

probe tracepoint timer_expire_entry(struct timer_list *timer, unsigned long baseclk) {
    klogger(EXPIRED);
}

event EXPIRED_HARD "a high-resolution timer called its function" scope all {
}

probe tracepoint hrtimer_expire_entry(struct hrtimer *timer, ktime_t *now) {
    klogger(EXPIRED_HARD);
}
"""
# The process, a child in a network namespace of its own, and one in a pid namespace of its own say
# what the kernel says of them, and rename themselves. The number in the inner pid namespace is the
# last of NSpid.
SPACES = """
import ctypes, json, os, time
libc = ctypes.CDLL(None, use_errno=True)

def tell(name):
    status = dict(line.rstrip().split(":", 1) for line in open("/proc/self/status"))
    groups = [line.rstrip("\\n").split(":", 2) for line in open("/proc/self/cgroup")]
    v1 = [path for _, names, path in groups if "memory" in names.split(",")]
    said = {
        "name": name,
        "comm": open("/proc/self/comm").read().rstrip("\\n"),
        "netns": int(os.readlink("/proc/self/ns/net")[5:-1]),
        "pidns_tid": int(status["NSpid"].split()[-1]),
        "cgroup": v1[0] if v1 else [path for number, _, path in groups if number == "0"][0],
        "v1": bool(v1),
    }
    os.write(1, (json.dumps(said) + "\\n").encode())
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)

def child(flags, name):
    if not os.fork():
        if libc.unshare(flags):
            os._exit(1)
        if not os.fork():
            tell(name)
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0

tell("here")
child(0x40000000, "other net")
child(0x20000000, "other pids")
time.sleep(0.3)
"""


def memory_folders():
    """Where the control groups are mounted that account memory: by version."""
    found = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup" and "memory" in options.split(","):
            found["v1"] = folder
        elif kind == "cgroup2":
            found["v2"] = folder
    return found


def test_contexts_of_namespaces_and_interrupts(recorder):
    (recorder.dir / "places.klogger").write_text(PLACES)
    done, out = recorder.run(
        "-q", "-s", recorder.dir / "places.klogger", "--", sys.executable, "-c", SPACES
    )
    assert done.code == 0, done.err
    told = {line["name"]: line for line in map(json.loads, done.out.splitlines())}
    assert set(told) == {"here", "other net", "other pids"}
    assert told["here"]["netns"] != told["other net"]["netns"]
    assert told["other pids"]["pidns_tid"] == 1
    log = Log(recorder.klogger, out)
    columns = "name, comm, netns, pidns_tid, memcg, irq, stack != 0"
    names = ", ".join(f"'{name}'" for name in told)
    rows = log.rows(f"SELECT {columns} FROM RENAMED WHERE name IN ({names})")
    assert len(rows) == 3
    folders = memory_folders()
    for name, comm, netns, pidns_tid, memcg, irq, has_stack in rows:
        said = told[name]
        assert (comm, netns, pidns_tid) == (said["comm"], said["netns"], said["pidns_tid"])
        folder = folders["v1" if said["v1"] else "v2"] + said["cgroup"]
        assert memcg == Path(folder).stat().st_ino
        assert (irq, has_stack) == (0, True)
    # The kernel runs the functions of its timers in soft interrupts, and those of high-resolution
    # timers in hard ones, but for the few that ask for the other.
    softirq, hardirq = (1,), (2,)
    assert log.rows("SELECT DISTINCT irq FROM EXPIRED") == [softirq]
    hard = log.rows("SELECT DISTINCT irq FROM EXPIRED_HARD")
    assert hardirq in hard and set(hard) <= {softirq, hardirq}
    shown = recorder.command("cat", out, "--event", "EXPIRED")
    assert "irq=softirq" in shown.out.splitlines()[0]


def test_contexts_and_stacks_of_helpers(recorder):
    (recorder.dir / "contexts.klogger").write_text(SCHEMA)
    done, out = recorder.run(
        "-q", "-s", recorder.dir / "contexts.klogger", "--", sys.executable, "-c", FAMILY
    )
    assert done.code == 0, done.err
    told = [json.loads(line) for line in done.out.splitlines()]
    assert len(told) == 6
    assert len({thread["ppid"] for thread in told}) >= 5
    log = Log(recorder.klogger, out)
    names = ", ".join(str(thread["tid"]) for thread in told)
    # The first one has also renamed itself by exec.
    rows = log.rows(f"SELECT DISTINCT tid, tgid, ppid, prio FROM RENAMED WHERE tid IN ({names})")
    # The kernel's priority is 120 where /proc says 20.
    expected = [(t["tid"], t["tgid"], t["ppid"], t["prio"] + 100) for t in told]
    assert sorted(rows) == sorted(expected)
    assert log.count("RENAMED", "direct = 0 OR helped = 0") == 0
    stacks = log.rows("SELECT DISTINCT s.text FROM RENAMED JOIN stack AS s ON s.id = helped")
    assert stacks
    assert all("task_rename" in text or "set_task_comm" in text for (text,) in stacks), stacks
