# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Probes of all kinds that every kernel has, on other kernels than this machine's: each against
what a program counts, or /proc says, in that guest.
"""

import errno
import re

import oracles
import pytest
from boots import BPF, Case
from kernels import HERE, ROOT, debian
from oracles import Log, workload_json
from test_contended import compiler

pytestmark = pytest.mark.full("boots guests of its own")

SCHEMA = HERE / "kinds.klogger"
PORT = 4711
CALLS = 2000
# What exists before the recording: a process with open files and a thing that listens.
SCRIPT = f"""
mkdir -p /tmp/folder && ip link set lo up
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
sleep 1000 3</kinds.klogger 4</bin/busybox & held=$!
nc -l -p {PORT} 127.0.0.1 & listens=$!
sleep 1
uname -r >/out/kernel
for file in /proc/$held/fd/*; do
    echo "$held ${{file##*/}} $(stat -L -c %i $file)"
done >/out/files
ls -d /proc/[0-9]*/task/[0-9]* >/out/tasks
cat /proc/net/tcp >/out/sockets
grep '^pgfault ' /proc/vmstat >/out/before
klogger record -a --no-calibrate -s /kinds.klogger -o /out/kinds.klog -- calls /tmp/folder \\
    >/out/json 2>/out/err
echo $? >/out/code
grep '^pgfault ' /proc/vmstat >/out/after
klogger record -a --no-calibrate -s /kinds.klogger --overwrite -o /out/newest.klog \\
    -- calls /tmp/folder >/out/newest.json 2>/out/newest.err
echo $? >/out/newest.code
cat /sys/kernel/debug/sched/preempt >/out/preempt
klogger record --no-calibrate -s /contended_calls.klogger --overwrite -o /out/calls.klog \\
    -- /bin/contend 1 {CALLS} 1 >/out/calls.json 2>/out/calls.err
echo $? >/out/calls.code
kill $held $listens
klogger record --no-calibrate -s /passed_on.klogger -o /out/passed_on.klog -- pass_on \\
    >/out/passed_on.json 2>/out/passed_on.err
echo $? >/out/passed_on.code
"""


def files(_=None) -> list[str]:
    schemata = [SCHEMA, HERE / "contended_calls.klogger", ROOT / "tests/live/passed_on.klogger"]
    return [*(f"{path}=/{path.name}" for path in schemata), f"{compiler()}=/bin/clang"]


CASES = {"kinds": Case(BPF, SCRIPT, files, seconds=300)}


@pytest.fixture(scope="module")
def recorded(boots):
    return boots.case("kinds")


def test_every_kind(recorded, klogger):
    assert (recorded / "kernel").read_text().startswith("6.1.")
    check(recorded, klogger)


@pytest.mark.nightly("boots other kernels")
@pytest.mark.parametrize("name", ["6.12", "7.2"])
def test_every_kind_elsewhere(guest, klogger, tmp_path, name):
    image, reason = debian(name)
    if image is None:
        pytest.skip(reason)
    done = guest(SCRIPT, tmp_path, add=files(), kernel=image, memory="2G", timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "kernel").read_text().startswith(f"{name}.")
    check(tmp_path, klogger)


def check(out, klogger):
    assert (out / "code").read_text() == "0\n", (out / "err").read_text()
    log, report = Log(klogger, out / "kinds.klog"), workload_json((out / "json").read_text())
    assert log.rows("SELECT key, text FROM ledger WHERE severity IN ('loss', 'error')") == []
    check_calls(log, report)
    check_tracepoints(log)
    check_what_existed(log, out)
    oracles.check_serials(log)
    assert (out / "newest.code").read_text() == "0\n", (out / "newest.err").read_text()
    newest = Log(klogger, out / "newest.klog")
    check_calls(newest, workload_json((out / "newest.json").read_text()))
    # Debian's kernels do not preempt the kernel, so also before 6.11 programs of functions can use
    # the main ring, and be in a flight recorder.
    mode = re.search(r"\((\w+)\)", (out / "preempt").read_text())[1]
    assert mode in ("voluntary", "lazy")
    assert (out / "calls.code").read_text() == "0\n", (out / "calls.err").read_text()
    assert Log(klogger, out / "calls.klog").count("C_CALL") == CALLS
    check_states(out, klogger)


def check_states(out, klogger):
    assert (out / "passed_on.code").read_text() == "0\n", (out / "passed_on.err").read_text()
    report = workload_json((out / "passed_on.json").read_text())
    oracles.check_passed_on(Log(klogger, out / "passed_on.klog"), report)


def places(log, event: str, where: str) -> dict[str, int]:
    tables = {table["name"]: table["values"] for table in log.meta["preamble"]["decodings"]}
    names = dict(map(tuple, tables["place"]))
    rows = log.rows(f"SELECT point, count(*) FROM {event} WHERE {where} GROUP BY 1")
    return {names[point]: times for point, times in rows}


def check_calls(log, report):
    """Also those that 32-bit programs make, which Debian's kernels have."""
    own = f"tid IN {tuple(report['pids'])}"
    called = {"getppid": report["getppid"], "dup": report["dup"], "mkdir": report["calls_32"]}
    assert report["calls_32"] > 0 and places(log, "ENTERED", own) == called
    assert log.rows(f"SELECT DISTINCT abi FROM ENTERED WHERE {own} ORDER BY 1") == [(0,), (1,)]
    by_32 = f"path = 'thirty-two' AND result = {-errno.ENOENT}"
    assert log.count("OPENED", f"{own} AND {by_32}") == report["calls_32"]
    opened = sum(times for _, times in report["paths"]) + report["bad"] + report["calls_32"] + 1
    assert log.count("OPENED", own) == opened


def check_tracepoints(log):
    """One probe at several, against probes at one each."""
    took = places(log, "TOOK", "true")
    assert took["task_rename"] == log.count("RENAMED") > 0
    assert took["task_newtask"] == log.count("FORKED") > 0


def check_what_existed(log, out):
    lines = (out / "files").read_text().splitlines()
    expected = sorted(tuple(map(int, line.split())) for line in lines)
    held = expected[0][0]
    found = log.rows(f"SELECT tgid, fd, ino FROM FILE WHERE tgid = {held} ORDER BY ALL")
    assert found == expected and len(found) >= 5
    listed = re.findall(r"/proc/(\d+)/task/(\d+)", (out / "tasks").read_text())
    tasks = set(log.rows("SELECT tid, tgid FROM TASK"))
    # Threads of the kernel may end meanwhile, and `ls` has.
    gone = {(int(tid), int(tgid)) for tgid, tid in listed} - tasks
    assert len(tasks) > 20 and len(gone) <= 5 and (held, held) in tasks
    sockets = (out / "sockets").read_text()
    ports = re.findall(r": [0-9A-F]{8}:([0-9A-F]{4}) [0-9A-F:]+ 0A", sockets)
    listeners = log.rows("SELECT port FROM LISTENER WHERE state = 10 ORDER BY 1")
    assert listeners == sorted((int(port, 16),) for port in ports) == [(PORT,)]
    faults = [fault for (fault,) in log.rows("SELECT pgfault FROM VM ORDER BY time")]
    first, last = (int((out / name).read_text().split()[1]) for name in ("before", "after"))
    assert len(faults) >= 2 and [first, *faults, last] == sorted([first, *faults, last])
