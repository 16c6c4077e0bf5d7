# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `context` adds to an event is what /proc says of the thread that logged it; and helpers of
`code` may take stacks.
"""

import json
import sys

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
