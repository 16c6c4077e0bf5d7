# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `lifecycle` has what parents are told by waitpid(), and what the kernel's process
connector reports.
"""

import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest
from oracles import Log

SCHEMA = Path(__file__).resolve().parents[2] / "schemata/lifecycle/lifecycle.klogger"
# <linux/netlink.h>, <linux/connector.h>, <linux/cn_proc.h>
NETLINK_CONNECTOR, CN_IDX_PROC, LISTEN, IGNORE = 11, 1, 1, 2
NLMSG = struct.Struct("=IHHII")
CN_MSG = struct.Struct("=IIIIHH")
EVENT = struct.Struct("=IIQ")
FORK, EXEC, EXIT = 0x1, 0x2, 0x80000000


class Connector:
    """The process events of the whole machine, for as long as it is entered."""

    def __init__(self):
        self.events = []
        self.overrun = False

    def __enter__(self):
        try:
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_CONNECTOR)
            self.socket.bind((0, CN_IDX_PROC))
        except OSError as error:
            pytest.skip(f"this kernel has no process connector: {error}")
        self.socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        self.ask(LISTEN)
        self.stop, stopped = os.pipe()
        self.reader = threading.Thread(target=self.read, args=(self.stop,))
        self.stopped = stopped
        self.reader.start()
        return self

    def __exit__(self, *_):
        self.ask(IGNORE)
        os.close(self.stopped)
        self.reader.join()
        os.close(self.stop)
        self.socket.close()

    def ask(self, what: int):
        body = CN_MSG.pack(CN_IDX_PROC, 1, 0, 0, 4, 0) + struct.pack("=I", what)
        self.socket.send(NLMSG.pack(NLMSG.size + len(body), 3, 0, 0, os.getpid()) + body)

    def read(self, stop: int):
        """Until nothing is left after the end."""
        ending = False
        while True:
            ready, _, _ = select.select([self.socket, *([] if ending else [stop])], [], [],
                                        0 if ending else None)  # fmt: skip
            if self.socket in ready:
                try:
                    self.add(self.socket.recv(8192))
                except OSError:
                    self.overrun = True
            elif ending:
                return
            ending = ending or stop in ready

    def add(self, message: bytes):
        body = message[NLMSG.size + CN_MSG.size :]
        what, _cpu, _ns = EVENT.unpack_from(body)
        if what in (FORK, EXEC, EXIT):
            self.events.append((what, struct.unpack_from("=6I", body.ljust(64, b"\0"), EVENT.size)))


@pytest.fixture
def lives(recorder, workloads):
    with Connector() as connector:
        done, path = recorder.run("-s", SCHEMA, "--", workloads / "lives")
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    told = [(what, int(pid), int(status)) for what, pid, status in lines]
    return Log(recorder.klogger, path), told, connector, path


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
    words = [sys.executable, "-m", "klogger.cli.report", path, "--format", "json"]
    env = {
        **os.environ,
        "KLOGGER": str(recorder.klogger),
        "KLOGGER_SCHEMATA": str(SCHEMA.parents[1]),
    }
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300, env=env)
    tables = {one["name"]: one["table"] for one in json.loads(said.stdout)["analyses"]}
    found = {row["pid"]: row["signal"] for row in tables["crashes"]}
    (killed,) = [pid for what, pid, _ in told if what == "killed"]
    names = {11: "SIGSEGV", 6: "SIGABRT", 8: "SIGFPE"}
    assert found == {pid: names[sig] for pid, sig in crashes.items()} | {killed: "SIGKILL"}
    assert len(tables["tree"]) == 1 + len(told)
    assert next(row["threads"] for row in tables["tree"] if row["threads"]) == 64


def test_the_process_connector_reports_the_same(lives):
    log, told, connector, _ = lives
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
