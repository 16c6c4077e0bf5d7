# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger why` says who is at the other end of what a thread waits for: what the program says of
its own sockets, what /proc/PID/fdinfo says of its epoll, and what the kernel counts of TCP.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_why import Why, bins, sums_are_right

HERE = Path(__file__).parent
# A prime, so that nothing else comes to the same number by chance.
TIMES = 13
NAMED = """
import ctypes, json, os, select, socket, sys, time
TIMES = int(sys.argv[1])
def named(name):
    open("/proc/self/comm", "w").write(name)
def text(name):
    if isinstance(name, (str, bytes)):
        return os.fsdecode(name)
    return "%s:%d" % ("[" + name[0] + "]" if ":" in name[0] else name[0], name[1])
"""
# A client asks, and a server takes its time to answer. sys.argv: the address.
TALK = (
    NAMED
    + """
where = json.loads(sys.argv[2])
family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET6 if ":" in where[0] \
    else socket.AF_INET
listens = socket.socket(family)
listens.bind(where if isinstance(where, str) else tuple(where))
listens.listen()
ready, told = os.pipe()
child = os.fork()
if not child:
    named("server")
    os.write(told, b"x")
    one, _ = listens.accept()
    for _ in range(TIMES):
        one.recv(1)
        time.sleep(0.003)
        one.send(b"x")
    one.recv(1)
    os._exit(0)
named("client")
os.read(ready, 1)
one = socket.socket(family)
one.connect(listens.getsockname())
for _ in range(TIMES):
    # So that the other end waits, even if it is late.
    time.sleep(0.003)
    one.send(b"x")
    one.recv(1)
print(json.dumps({"own": text(one.getsockname() or ""), "other": text(one.getpeername()),
                  "client": os.getpid(), "server": child}))
one.close()
os.wait()
sys.exit(7)
"""
)
# The loopback device of a new network namespace; at the end, what the kernel has counted in it.
COUNTED = """
import fcntl, json, socket, struct, subprocess, sys
with socket.socket() as one:
    fcntl.ioctl(one, 0x8914, struct.pack("16sH14x", b"lo", 0x49))
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, check=True)
found = json.loads(done.stdout)
for file in ("snmp", "netstat"):
    lines = [line.split() for line in open(f"/proc/net/{file}")]
    for names, values in zip(lines[::2], lines[1::2]):
        found |= dict(zip((names[0] + name for name in names[1:]), map(int, values[1:])))
print(json.dumps(found))
sys.exit(7)
"""


@pytest.fixture
def why(recorder):
    return Why(recorder)


@pytest.fixture(scope="module")
def tcp(tmp_path_factory):
    out = tmp_path_factory.mktemp("peers") / "tcp"
    source = HERE.parents[1] / "schemata/peers/workload.c"
    subprocess.run(["cc", "-O1", source, "-o", out], check=True)
    return out


def python(program, *words):
    return [sys.executable, "-c", program, *map(str, words)]


def of_thread(why, pid):
    answer, _ = why(why.file, "--thread", pid, code=0)
    sums_are_right(answer)
    return answer


def texts(answer, *kinds):
    return {one["what"]: one["times"] for kind in kinds for one in bins(answer, "waited", kind)}


SLOW = pytest.mark.full("takes more than 3 s")


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=SLOW)])
def test_the_other_end_of_a_connection(why, host):
    if ":" in host and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    answer, out = why("--", *python(TALK, TIMES, json.dumps([host, 0])))
    sums_are_right(answer)
    said = json.loads(out)
    asked = of_thread(why, said["client"])
    client = texts(asked, "socket", "network")
    server = texts(of_thread(why, said["server"]), "socket", "network")
    # Whoever is late finds the answer there, and does not wait.
    assert 0 < client.pop(f"{said['other']} (server)") <= TIMES
    assert 0 < server.pop(f"{said['own']} (client)") <= TIMES + 1
    assert not [what for what in client if "connect" not in what]
    assert not [what for what in server if "accept" not in what]
    # The client is followed to what the server did.
    chain = next(one for one in asked["because"] if one[0]["kind"] == "socket")
    assert [step["program"] for step in chain][:2] == ["client", "server"]


@pytest.mark.parametrize("name", ["path", pytest.param("abstract", marks=SLOW)])
def test_a_local_socket_by_its_name(why, name, tmp_path):
    where = str(tmp_path / "x.sock") if name == "path" else f"\0klogger-test-{os.getpid()}"
    answer, out = why("--", *python(TALK, TIMES, json.dumps(where)))
    sums_are_right(answer)
    said = json.loads(out)
    shown = where.replace("\0", "@")
    client = texts(of_thread(why, said["client"]), "socket")
    server = texts(of_thread(why, said["server"]), "socket")
    # Whoever has sent is also woken when the other end has taken it.
    assert 0 < client[f"{shown} (server)"] <= 2 * TIMES
    assert 0 < server[f"{shown} (client)"] <= 2 * TIMES + 1
    log = why.log()
    peers = dict(log.rows(
        "SELECT b.pid, max(o.peer) FROM BLOCKED AS b JOIN OBJECT AS o USING (object)"
        " JOIN SOCKET_ENDS AS s USING (object) GROUP BY b.pid"
    ))  # fmt: skip
    # To the client the other end is who had made the socket that listens.
    assert peers[said["server"]] == peers[said["client"]] == said["client"]


def test_which_descriptor_of_an_epoll_was_ready(why):
    answer, out = why("--", *[sys.executable, HERE / "watcher.py", TIMES])
    sums_are_right(answer)
    said = json.loads(out)
    log = why.log()
    lists = log.rows(
        "SELECT count, fds, list_transform(watched, lambda key: key::VARCHAR) FROM EPOLL_WATCHES"
        " WHERE object IN (SELECT object FROM BLOCKED WHERE pid ="
        f" {said['pid']}) ORDER BY time"
    )
    inodes = {str(key): inode for key, inode in log.rows("SELECT object, inode FROM OBJECT")}
    found = [[[fd, inodes[str(key)]] for fd, key in zip(fds[:count], keys, strict=False)]
             for count, fds, keys in lists]  # fmt: skip
    assert [sorted(one) for one in found] == [sorted(one) for one in said["lists"]]
    events = texts(of_thread(why, said["pid"]), "events")
    most = {"pipe (writer)": 2 * TIMES, "eventfd (writer)": TIMES + 1, "socket (writer)": TIMES,
            f"socket {said['socket']} (writer)": TIMES}  # fmt: skip
    # There is no wait of which it is not known.
    assert events.keys() == most.keys()
    assert all(0 < events[what] <= most[what] for what in most), events


def counted(why, *command):
    """The answer, what the program and the kernel say, and how often each event of TCP was logged
    of its connection.
    """
    answer, out = why("-s", "peers", "--", "unshare", "-n", *python(COUNTED, *command))
    sums_are_right(answer)
    said = json.loads(out)
    log = why.log()
    place = f"127.0.0.1:{said['port']}"
    own = f"'{place}' IN (endpoint(source), endpoint(destination))"
    timers = [f"count(*) FILTER (timer = {n}) AS timer_{n}" for n in (1, 2, 3, 5)]
    done = why.recorder.command(
        "sql", why.file, "--format", "json",
        f"SELECT * FROM (SELECT {', '.join(timers)} FROM TCP_TIMER WHERE {own}),"
        f" (SELECT coalesce(sum(segments), 0)::INT AS sent FROM RETRANSMITTED WHERE {own}),"
        f" (SELECT count(*) AS dropped FROM PACKET_DROPPED WHERE {own}"
        "   AND skb_drop_reason(reason) = 'SKB_DROP_REASON_SOCKET_FILTER')",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert log.one("SELECT count(*) FROM ledger WHERE key = 'probe_missed'") == 0
    return said, json.loads(done.out)[0], place


def thread_named(why, name):
    answer, _ = why(why.file, "--program", name, code=0)
    sums_are_right(answer)
    return answer


def test_delayed_acknowledgements_are_those_that_the_kernel_counts(why, tcp):
    said, found, _ = counted(why, tcp, "late", TIMES)
    done, later = said["TcpExt:DelayedACKs"], said["TcpExt:DelayedACKLocked"]
    # While the program uses the socket the kernel puts it off, and decides then.
    assert done > 0 and abs(found["timer_2"] - done) <= later
    assert found["sent"] == said["Tcp:RetransSegs"]
    assert found["timer_1"] >= said["TcpExt:TCPTimeouts"]


@pytest.mark.full("how long an acknowledgement is delayed is up to the kernel")
def test_who_waits_for_a_delayed_acknowledgement(why, tcp):
    _, found, place = counted(why, tcp, "late", TIMES)
    assert found["timer_2"] >= TIMES - 1
    late = f"delayed acknowledgement of {place}"
    client = texts(thread_named(why, "client"), "socket")
    assert TIMES - 1 <= client[f"{late} (server)"] <= TIMES
    server = texts(thread_named(why, "server"), "socket")
    assert any(what.startswith(late) for what in server), server


@SLOW
def test_retransmissions_are_those_that_the_kernel_counts(why, tcp):
    said, found, place = counted(why, tcp, "lost", 450)
    assert found["sent"] == said["Tcp:RetransSegs"] > 0
    assert found["timer_1"] == said["TcpExt:TCPTimeouts"]
    assert found["timer_5"] == said["TcpExt:TCPLossProbes"]
    # The filter drops what is sent first, and again each time but the last.
    assert found["dropped"] == found["sent"]
    client = texts(thread_named(why, "client"), "socket")
    assert client[f"{place}, with a retransmission (server)"] == 1


@SLOW
def test_the_only_cpu_that_a_thread_may_use(why, tmp_path):
    program = tmp_path / "why"
    subprocess.run(["cc", "-O1", "-pthread", HERE / "why.c", "-o", program],
                   check=True)  # fmt: skip
    answer, out = why("--", program, "compete", 60)
    sums_are_right(answer)
    said = [json.loads(line) for line in out.splitlines()]
    (cpu,) = {one["cpu"] for one in said}
    where = f", on the only CPU that it may use ({cpu})"
    for one in said:
        own = bins(of_thread(why, one["pid"]), "could run")
        # Since it is pinned it has not waited for any other one.
        pinned = sum(b["ns"] for b in own if b["what"].endswith(where))
        assert 0 < pinned < 2 * one["queued"] + 1e8
        assert 0.95 * (one["queued"] - one["before"]) - 1e6 < pinned
