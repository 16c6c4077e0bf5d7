# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `lifecycle` has what parents are told by waitpid(), and what the kernel's process
connector and taskstats report.
"""

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest
from disturbed import disturbed
from oracles import Log, answers
from tiers import scaled

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "schemata/lifecycle/lifecycle.klogger"
FILES = ROOT / "schemata/files/files.klogger"
# <linux/netlink.h>, <linux/connector.h>, <linux/cn_proc.h>
NETLINK_CONNECTOR, CN_IDX_PROC, LISTEN, IGNORE = 11, 1, 1, 2
NLMSG = struct.Struct("=IHHII")
CN_MSG = struct.Struct("=IIIIHH")
EVENT = struct.Struct("=IIQ")
FORK, EXEC, EXIT = 0x1, 0x2, 0x80000000
# <linux/genetlink.h>, <linux/taskstats.h>
NETLINK_GENERIC, GENL_ID_CTRL, GETFAMILY, FAMILY_ID, FAMILY_NAME = 16, 16, 3, 1, 2
GENL = struct.Struct("=BBH")
ATTRIBUTE = struct.Struct("=HH")
GET, REGISTER, DEREGISTER = 1, 3, 4
OF_PID, STATS, PID_AND_STATS = 1, 3, 4
EXIT_CODE = struct.Struct("=4xI")


class Kernel:
    """What the kernel reports of all processes of the machine, for as long as it is entered."""

    def __init__(self):
        self.events = []
        self.overrun = False

    def __enter__(self):
        try:
            self.socket = self.open()
        except OSError as error:
            pytest.skip(f"this kernel has no {type(self).__name__}: {error}")
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        self.listen(True)
        self.stop, stopped = os.pipe()
        self.reader = threading.Thread(target=self.read, args=(self.stop,))
        self.stopped = stopped
        self.reader.start()
        return self

    def __exit__(self, *_):
        self.listen(False)
        os.close(self.stopped)
        self.reader.join()
        os.close(self.stop)
        self.socket.close()

    def send(self, kind: int, flags: int, body: bytes):
        self.socket.send(NLMSG.pack(NLMSG.size + len(body), kind, flags, 0, 0) + body)

    def read(self, stop: int):
        """Until nothing is left after the end."""
        ending = False
        while True:
            ready, _, _ = select.select([self.socket, *([] if ending else [stop])], [], [],
                                        0 if ending else None)  # fmt: skip
            if self.socket in ready:
                try:
                    self.add(self.socket.recv(1 << 16))
                except OSError:
                    self.overrun = True
            elif ending:
                return
            ending = ending or stop in ready


class Connector(Kernel):
    """The process connector: fork, exec, exit."""

    def open(self):
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_CONNECTOR)
        made.bind((0, CN_IDX_PROC))
        return made

    def listen(self, on: bool):
        what = struct.pack("=I", LISTEN if on else IGNORE)
        self.send(3, 0, CN_MSG.pack(CN_IDX_PROC, 1, 0, 0, len(what), 0) + what)

    def add(self, message: bytes):
        body = message[NLMSG.size + CN_MSG.size :]
        what, _cpu, _ns = EVENT.unpack_from(body)
        if what in (FORK, EXEC, EXIT):
            self.events.append((what, struct.unpack_from("=6I", body.ljust(64, b"\0"), EVENT.size)))


def attribute(kind: int, value: bytes) -> bytes:
    size = ATTRIBUTE.size + len(value)
    return ATTRIBUTE.pack(size, kind) + value + b"\0" * (-size % 4)


def attributes(found: bytes) -> dict[int, bytes]:
    result = {}
    while len(found) >= ATTRIBUTE.size:
        size, kind = ATTRIBUTE.unpack_from(found)
        if size < ATTRIBUTE.size:
            break
        result[kind & 0x3FFF] = found[ATTRIBUTE.size : size]
        found = found[size + (-size % 4) :]
    return result


class Taskstats(Kernel):
    """The records of taskstats at the exit of threads: (pid, exit code)."""

    def open(self):
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        made.bind((0, 0))
        self.socket = made
        name = attribute(FAMILY_NAME, b"TASKSTATS\0")
        self.send(GENL_ID_CTRL, 1, GENL.pack(GETFAMILY, 1, 0) + name)
        answer = attributes(made.recv(1 << 16)[NLMSG.size + GENL.size :])
        if FAMILY_ID not in answer:
            raise OSError("no such family")
        self.family = int.from_bytes(answer[FAMILY_ID][:2], sys.byteorder)
        return made

    def listen(self, on: bool):
        cpus = Path("/sys/devices/system/cpu/possible").read_bytes().strip() + b"\0"
        kind = REGISTER if on else DEREGISTER
        self.send(self.family, 1, GENL.pack(GET, 1, 0) + attribute(kind, cpus))

    def add(self, message: bytes):
        _, kind, *_ = NLMSG.unpack_from(message)
        if kind != self.family:
            return
        both = attributes(message[NLMSG.size + GENL.size :]).get(PID_AND_STATS)
        if both is not None:
            one = attributes(both)
            (code,) = EXIT_CODE.unpack_from(one[STATS])
            self.events.append((int.from_bytes(one[OF_PID], sys.byteorder), code))


@pytest.fixture
def lives(recorder, workloads):
    with Connector() as connector, Taskstats() as taskstats:
        done, path = recorder.run("-s", SCHEMA, "--", workloads / "lives")
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    told = [(what, int(pid), int(status)) for what, pid, status in lines]
    return Log(recorder.klogger, path), told, (connector, taskstats), path


def whole(log: Log):
    assert all(log.lost(event) == 0 for event in log.events())


def test_each_ended_as_its_parent_was_told(lives):
    log, told, _, _ = lives
    whole(log)
    assert len(told) == 109
    # The exit code is that of the thread that was last, as in wait(), once for each process.
    ended = dict(log.rows("SELECT tgid, any_value(code) FROM ENDED WHERE last GROUP BY tgid"))
    reaped = dict(log.rows("SELECT child, status FROM REAPED"))
    for what, pid, status in told:
        assert (ended[pid], reaped[pid]) == (status, status), what
    # In the order in which they were made, waited for and ended, one after the other.
    pids = [pid for _, pid, _ in told]
    assert [pid for (pid,) in log.rows("SELECT child FROM REAPED ORDER BY time")] == pids
    started = "SELECT pid FROM STARTED WHERE pid = tgid ORDER BY time"
    assert [pid for (pid,) in log.rows(started)] == pids


def test_crashes_are_those_that_were_planted(lives, recorder):
    log, told, _, path = lives
    crashes = {pid: status & 127 for what, pid, status in told if what == "crash"}
    fatal = dict(
        log.rows("SELECT tgid, sig FROM DELIVERED WHERE action = 0 AND sig NOT IN (9, 17)")
    )
    assert fatal == crashes and sorted(crashes.values()) == [6, 8, 11]
    handlers = log.rows("SELECT tgid, sig, count(*) FROM DELIVERED WHERE action = 2 GROUP BY ALL")
    handled = [(pid, 11, 13) for what, pid, _ in told if what == "handled"]
    assert sorted(handlers) == sorted(handled)
    (ignored,) = [pid for what, pid, _ in told if what == "ignored"]
    sent = log.rows(f"SELECT result, code FROM SIGNALLED WHERE pid = {ignored} AND sig = 2")
    assert sent == [(1, 0)]
    segv = next(pid for pid, sig in crashes.items() if sig == 11)
    where = log.rows(f"""
        SELECT d.address, s.frames[1] FROM DELIVERED AS d JOIN stack AS s ON s.id = d.user_stack
        WHERE d.tgid = {segv} AND d.sig = 11
    """)
    assert where == [(0x10, "planted_crash")]
    tables = answers(recorder.klogger, path)
    found = {row["pid"]: row["signal"] for row in tables["crashes"]}
    (killed,) = [pid for what, pid, _ in told if what == "killed"]
    names = {11: "SIGSEGV", 6: "SIGABRT", 8: "SIGFPE"}
    assert found == {pid: names[sig] for pid, sig in crashes.items()} | {killed: "SIGKILL"}
    assert len(tables["tree"]) == 1 + len(told)
    assert next(row["threads"] for row in tables["tree"] if row["threads"]) == 64


@pytest.mark.full("takes more than 3 s")
def test_the_process_connector_reports_the_same(lives):
    log, told, (connector, _), _ = lives
    whole(log)
    assert not connector.overrun, "the connector's buffer was too small"
    (root,) = {pid for (pid,) in log.rows("SELECT pid FROM RAN")}
    tree = {root, *(pid for _, pid, _ in told)}
    theirs = defaultdict(list)
    for what, words in connector.events:
        if what == FORK and words[3] in tree:
            theirs[words[2]].append("STARTED")
        elif what == EXEC and words[1] in tree and words[0] == words[1]:
            theirs[words[0]].append("RAN")
        elif what == EXIT and words[1] in tree:
            theirs[words[0]].append(f"ENDED {words[2]}")
    ours = defaultdict(list)
    rows = log.rows("""
        SELECT pid, text FROM (
            SELECT time, pid, 'STARTED' AS text FROM STARTED
            UNION ALL SELECT time, pid, 'RAN' FROM RAN
            UNION ALL SELECT time, pid, 'ENDED ' || code FROM ENDED
        ) ORDER BY time
    """)
    for pid, text in rows:
        ours[pid].append(text)
    # The command itself was made before the recording.
    theirs[root] = [text for text in theirs[root] if text != "STARTED"]
    assert dict(ours) == dict(theirs)
    assert len(ours) == 1 + len(told) + 64


@pytest.mark.full("takes more than 3 s")
def test_taskstats_reports_the_same_ends(lives):
    log, told, (_, taskstats), _ = lives
    whole(log)
    assert not taskstats.overrun, "the buffer of taskstats was too small"
    (root,) = {pid for (pid,) in log.rows("SELECT pid FROM RAN")}
    pids = {root, *(pid for (pid,) in log.rows("SELECT pid FROM STARTED"))}
    theirs = [one for one in taskstats.events if one[0] in pids]
    ours = {pid: (tgid, code) for pid, tgid, code in log.rows("SELECT pid, tgid, code FROM ENDED")}
    assert sorted(pid for pid, _ in theirs) == sorted(ours)
    for pid, code in theirs:
        tgid, logged = ours[pid]
        # Older kernels have no exit code of threads that are not the first of their process.
        assert code == logged or (pid != tgid and code == 0), (pid, tgid)
    assert len(theirs) == 1 + len(told) + 64
    # The processes end one after the other.
    order = [pid for (pid,) in log.rows("SELECT pid FROM ENDED WHERE pid = tgid ORDER BY time")]
    assert [pid for pid, _ in theirs if pid in set(order)] == order


@pytest.mark.full("takes more than 3 s")
def test_a_storm_of_processes_is_there_in_order(recorder, workloads):
    """Or the log says how many are not."""
    number = scaled(2003, 10007)
    with Taskstats() as taskstats:
        done, path = recorder.run("-s", SCHEMA, "--", workloads / "storm", number)
    assert done.code == 0, done.err
    told = [tuple(map(int, line.split())) for line in done.out.splitlines()]
    assert len(told) == number
    log = Log(recorder.klogger, path)
    lost = {event: log.lost(event) for event in ("STARTED", "ENDED", "REAPED")}
    if any(lost.values()):
        assert log.count("ENDED") + lost["ENDED"] == number + 1
        disturbed(f"the log counts what it has lost: {lost}")
    order = [pid for (pid,) in log.rows("SELECT pid FROM STARTED ORDER BY time")]
    assert order == [pid for pid, _ in told]
    assert sorted(log.rows("SELECT child, status FROM REAPED")) == sorted(told)
    lives = log.rows("""
        SELECT s.pid, e.code FROM STARTED AS s ASOF JOIN ENDED AS e
        ON e.pid = s.pid AND s.time <= e.time AND e.last
    """)
    assert sorted(lives) == sorted(told)
    if not taskstats.overrun:
        pids = set(order)
        assert sorted(one for one in taskstats.events if one[0] in pids) == sorted(told)


@pytest.mark.full("depends on how busy the machine is")
def test_stops_are_as_long_as_by_the_programs_clock(recorder, workloads):
    done, path = recorder.run("-s", SCHEMA, "--", workloads / "stops")
    assert done.code == 0, done.err
    told = {what: (int(pid), int(ns)) for what, pid, ns in map(str.split, done.out.splitlines())}
    log = Log(recorder.klogger, path)
    whole(log)
    me, _ = told["self"]
    rows = log.rows("""
        SELECT s.pid, s.tgid, s.why, s.sig, c.waker, c.time - s.time FROM STOPPED AS s
        ASOF JOIN CONTINUED AS c ON c.pid = s.pid AND s.time <= c.time ORDER BY s.time
    """)
    assert len(rows) == log.count("STOPPED") == log.count("CONTINUED")
    stops = [row for row in rows if row[1] == told["stopped"][0]]
    # Each of its three threads, each time, by SIGSTOP, woken by us.
    assert len(stops) == 3 * 13
    assert {row[2:5] for row in stops} == {(4, 19, me)}
    # The program is told when all have stopped, and looks at its clock before it wakes them.
    times = defaultdict(list)
    for row in stops:
        times[row[0]].append(row[5])
    assert sum(map(min, zip(*times.values(), strict=True))) >= 0.99 * told["stopped"][1]
    ((_, _, why, sig, waker, ns),) = [row for row in rows if row[1] == told["killed"][0]]
    assert (why, sig, waker) == (4, 19, me) and ns >= 0.99 * told["killed"][1]
    pid, ns = told["attached"]
    attached = [row for row in rows if row[1] == pid and row[2] == 8]
    assert len(attached) == 17 and {row[4] for row in attached} == {me}
    assert sum(row[5] for row in attached) >= 0.99 * ns
    traced = log.rows("SELECT pid, tracer, request, result FROM TRACED ORDER BY time")
    assert traced == [(pid, me, request, 0) for request in (16, 17)] * 17
    table = {(row["pid"], row["why"]): row for row in answers(recorder.klogger, path)["stops"]}
    assert table[told["stopped"][0], "stopped"]["stops"] == 3 * 13
    assert table[pid, "traced"]["stopped"] == sum(row[5] for row in attached)


@pytest.mark.full("takes more than 3 s")
def test_the_story_has_events_of_all_schemata(recorder, workloads, tmp_path):
    """Up to the crash, and of the crashed process's tree."""
    command = 'cat "$0" >/dev/null; "$1" >/dev/null; head -c 1 /dev/zero >/dev/null'
    planted = tmp_path / "planted-name"
    planted.write_text("text")
    done, path = recorder.run(
        "-s", SCHEMA, "-s", FILES, "--", "sh", "-c", command, planted, workloads / "lives"
    )
    assert done.code == 0, done.err
    story = answers(recorder.klogger, path)["story"]
    crashes = {}
    for row in story:
        crashes.setdefault(row["crash"], []).append(row)
    assert len(crashes) == 3 and all(name.startswith("lives[") for name in crashes)
    first = next(iter(crashes.values()))
    events = {row["event"] for row in first}
    assert {"STARTED", "ENDED", "DELIVERED"} <= events
    assert events - {"STARTED", "RAN", "ENDED", "REAPED", "SIGNALLED", "DELIVERED"}, "of files"
    # What was last comes first.
    before = [row["before"] for row in first]
    assert len(first) <= 200 and before == sorted(before) and before[0] == 0
    assert first[0]["event"] == "ENDED" and "code=" in first[0]["what"]


@pytest.mark.full("takes more than 3 s")
def test_the_tree_has_the_ancestors_of_what_began(recorder):
    """In a recording of all processes, what was there before has its parents."""
    made = subprocess.Popen(["sh", "-c", "while :; do sleep 0.05; done"], start_new_session=True)
    try:
        done, path = recorder.run("-s", SCHEMA, "-a", "--for", "1s")
    finally:
        os.killpg(made.pid, signal.SIGKILL)
        made.wait()
    assert done.code == 0, done.err
    tree = [row["process"] for row in answers(recorder.klogger, path)["tree"]]
    depths = {line.strip().rsplit("[", 1)[1]: len(line) - len(line.lstrip()) for line in tree}
    lines = [line.strip().rsplit("[", 1)[1] for line in tree]
    ours, theirs = f"{os.getpid()}]", f"{made.pid}]"
    assert lines.index(ours) < lines.index(theirs)
    assert depths[theirs] == depths[ours] + 2
    below = tree[lines.index(theirs) + 1]
    assert (
        below.strip().startswith("sleep[")
        and len(below) - len(below.lstrip()) == depths[theirs] + 2
    )
