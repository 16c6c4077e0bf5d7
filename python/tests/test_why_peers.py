# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Who is at the other end of what a thread waits for, what TCP did meanwhile, and on which CPUs a
thread may run: by the rules of docs/why.md, and in logs that do not have it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logfile import LogFile

import klogger
from klogger.why import answer, sockets
from klogger.why import events as reading
from klogger.why.answer import Answer
from klogger.why.bins import WAITED
from klogger.why.choice import Choice
from klogger.why.sockets import Socket, Sockets

READ, WRITE, RECV, SEND, CONNECT, ACCEPT, EPOLL, KILL = 0, 1, 45, 44, 42, 43, 232, 62
# It does not wait, but nothing else would be said of it.
GETPPID, FILLS = 110, "getppid"
CALLS = {GETPPID: FILLS, READ: "read", WRITE: "write", RECV: "recvfrom", SEND: "sendto",
         CONNECT: "connect", ACCEPT: "accept", EPOLL: "epoll_wait", KILL: "kill"}  # fmt: skip
THREAD, TIMER, SOFT, NET_RX = 0, 1, 2, 3
WAITER, OTHER = 10, 11
A, B, FAR, NOWHERE = "127.0.0.1:5001", "127.0.0.1:40000", "192.0.2.7:443", "0.0.0.0:0"
FILE, PIPE, EVENT, TIMERFD, SIGNALFD, INOTIFY, EP, CLIENT, SERVER, LISTENS, REMOTE, UNIX, PAIR = (
    range(1, 14)
)
OBJECTS = {
    FILE: "/etc/hosts", PIPE: "pipe:[7]", EVENT: "anon_inode:[eventfd]",
    TIMERFD: "anon_inode:[timerfd]", SIGNALFD: "anon_inode:[signalfd]",
    INOTIFY: "anon_inode:inotify", EP: "anon_inode:[eventpoll]", CLIENT: "socket:[1]",
    SERVER: "socket:[2]", LISTENS: "socket:[3]", REMOTE: "socket:[4]", UNIX: "socket:[5]",
    PAIR: "socket:[6]",
}  # fmt: skip
SOCKETS = {
    CLIENT: Socket(B, A), SERVER: Socket(A, B), LISTENS: Socket(A, NOWHERE),
    REMOTE: Socket("198.51.100.1:4000", FAR), UNIX: Socket("unix", "unix", "/run/x.sock", OTHER),
    PAIR: Socket("unix", "unix", "", WAITER),
}  # fmt: skip


def played(
    waits: list[dict[str, int]], events: dict[str, list[dict[str, int]]] | None = None, **more: Any
) -> Answer:
    """Each wait is from 100 µs to 200 µs of its millisecond, of `pid` (WAITER)."""
    rows: dict[str, list[dict[str, int]]] = {"BACK": [], "BLOCKED": [], "WOKEN": []}
    for at, wait in enumerate(waits):
        begin, pid = at * 1_000_000, wait.get("pid", WAITER)
        own = {name: wait[name] for name in ("call", "object") if name in wait}
        woken = {name: wait[name] for name in ("waker", "source", "number", "ready", "cpus")
                 if name in wait} | {"call": wait.get("by_call", -1)}  # fmt: skip
        rows["BACK"].append({"time": begin + 10, "pid": pid})
        rows["BLOCKED"].append({"time": begin + 100_000, "pid": pid, "state": 1} | own)
        rows["WOKEN"].append({"time": begin + 200_000, "pid": pid} | woken)
        rows["BACK"].append({"time": begin + 200_010, "pid": pid})
        rows["BLOCKED"].append({"time": begin + 200_020, "pid": pid, "state": 1, "call": GETPPID})
        rows["WOKEN"].append({"time": begin + 990_000, "pid": pid, "source": TIMER})
    for name, more_rows in (events or {}).items():
        rows.setdefault(name, []).extend(more_rows)
    tables = {name: reading.table_of(name, rows.get(name, [])) for name in reading.COLUMNS}
    given: dict[str, Any] = {"objects": OBJECTS, "sockets": Sockets(dict(SOCKETS)), "cpus": 4}
    found = reading.Events(
        0, len(waits) * 1_000_000, tables, reading.gaps_of([]), calls=CALLS,
        names={WAITER: "waiter", OTHER: "other"}, **given | more,
    )  # fmt: skip
    return answer.of_events(found, Choice(threads=[WAITER]))


def waited(*waits: dict[str, int], **more: Any) -> list[str]:
    """The bins of a thread's waits, without those that only fill the time."""
    made = played(list(waits), **more)
    assert sum(line.ns for line in made.own) == made.elapsed
    return sorted(line.bin.text for line in made.own
                  if line.bin.group == WAITED and line.bin.kind != FILLS)  # fmt: skip


def wait(call: int, thing: int, **more: int) -> dict[str, int]:
    return {"call": call, "object": thing, "waker": OTHER} | more


def ready(thing: int, **more: int) -> dict[str, int]:
    return {"call": EPOLL, "object": EP, "ready": thing, "waker": OTHER} | more


FROM_NET = {"source": SOFT, "number": NET_RX}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        # Over the loopback device the sender is still in its call.
        (wait(RECV, CLIENT, by_call=SEND, **FROM_NET), f"socket: {A} (other)"),
        (wait(RECV, SERVER, by_call=SEND, **FROM_NET), f"socket: {B} (other)"),
        (wait(READ, CLIENT, **FROM_NET), f"socket: {A}"),
        (wait(SEND, CLIENT, by_call=READ, **FROM_NET), f"socket: sendto {A}"),
        (wait(CONNECT, CLIENT, **FROM_NET), f"socket: connect {A}"),
        (wait(ACCEPT, LISTENS, by_call=CONNECT, **FROM_NET), f"socket: accept at {A} (other)"),
        (wait(ACCEPT, LISTENS, **FROM_NET), f"network: accept at {A}"),
        # Whom a packet from elsewhere interrupts has not sent it.
        (wait(RECV, REMOTE, by_call=SEND, **FROM_NET), f"network: {FAR}"),
        (wait(RECV, UNIX), "socket: /run/x.sock (other)"),
        (wait(RECV, UNIX, source=SOFT, number=4), "socket: /run/x.sock (other)"),
        # A pair is made by one process.
        (wait(RECV, PAIR, source=SOFT, number=4), "socket: recvfrom"),
        (wait(RECV, PAIR), "socket: recvfrom (other)"),
        (wait(READ, PIPE), "pipe: read (other)"),
        (wait(READ, EVENT), "event: eventfd (other)"),
        (wait(WRITE, EVENT), "event: write eventfd (other)"),
        (wait(READ, INOTIFY), "event: inotify (other)"),
        (wait(READ, TIMERFD, source=TIMER), "timer: timerfd"),
        (wait(READ, SIGNALFD, by_call=KILL), "signal: of other"),
        (wait(READ, FILE), "file: read /etc/hosts (other)"),
        (ready(SERVER, by_call=SEND, **FROM_NET), f"events: socket {B} (other)"),
        (ready(REMOTE, by_call=SEND, **FROM_NET), f"network: socket {FAR}"),
        (ready(UNIX), "events: socket /run/x.sock (other)"),
        (ready(PAIR), "events: socket (other)"),
        (ready(PIPE), "events: pipe (other)"),
        (ready(EVENT), "events: eventfd (other)"),
        (ready(TIMERFD, source=TIMER), "timer: timerfd"),
        (ready(SIGNALFD, by_call=KILL), "signal: of other"),
        # What is ready may not be in the log.
        (ready(99), "events: epoll_wait (other)"),
    ],
)
def test_what_a_wait_was_for(given: dict[str, int], said: str) -> None:
    assert waited(given) == [said]


def test_who_waits_at_the_other_end_is_there() -> None:
    """Where no thread is known to have ended it."""
    silent = {"source": SOFT, "number": 4}
    for thing, other, call, said in (
        (PIPE, PIPE, WRITE, "pipe: read (other)"), (PIPE, PIPE, READ, "pipe: read"),
        (CLIENT, SERVER, RECV, f"socket: {A} (other)"),
    ):  # fmt: skip
        there = {"BLOCKED": [{"time": 50, "pid": OTHER, "object": other, "call": call, "state": 1}],
                 "BACK": [{"time": 20, "pid": OTHER, "cpu": 1}]}  # fmt: skip
        assert waited(wait(READ, thing, **silent), events=there) == [said]


def test_many_connections_of_a_server_have_one_name() -> None:
    clients = {100 + n: Socket(A, f"127.0.0.1:{40000 + n}")
               for n in range(sockets.CLIENTS_MOST + 1)}  # fmt: skip
    objects = OBJECTS | {key: f"socket:[{key}]" for key in clients}
    waits = [wait(RECV, key, by_call=SEND, **FROM_NET) for key in clients]
    more = {"objects": objects, "sockets": Sockets(clients)}
    assert waited(*waits, **more) == [f"socket: clients of {A} (other)"]
    few = dict(list(clients.items())[1:])
    found = waited(*waits[1:], objects=objects, sockets=Sockets(few))
    assert found == [f"socket: {one.destination} (other)" for one in few.values()]


LATE, AGAIN = "delayed acknowledgement of", "with a retransmission"


@pytest.mark.parametrize(
    ("delayed", "sent_again", "said"),
    [
        # The wait is from 100 to 200 µs.
        ({(A, B): [190_000]}, {}, f"{LATE} {A} (other)"),
        ({(B, A): [190_000]}, {}, f"{LATE} {B} (other)"),
        ({(A, B): [90_000]}, {}, f"{A} (other)"),
        ({(A, B): [201_000]}, {}, f"{A} (other)"),
        # It came early, and the answer long after it.
        ({(A, B): [120_000]}, {}, f"{A} (other)"),
        ({(A, B): [120_000, 180_000, 300_000]}, {}, f"{LATE} {A} (other)"),
        ({("127.0.0.1:1", B): [190_000]}, {}, f"{A} (other)"),
        ({}, {(A, B): [110_000]}, f"{A}, {AGAIN} (other)"),
        ({}, {(B, A): [150_000]}, f"{A}, {AGAIN} (other)"),
        ({}, {(B, A): [99_000]}, f"{A} (other)"),
    ],
)
def test_what_tcp_did_meanwhile(
    delayed: dict[tuple[str, str], list[int]],
    sent_again: dict[tuple[str, str], list[int]],
    said: str,
) -> None:
    own = Sockets(dict(SOCKETS), *({pair: np.array(times, "i8") for pair, times in one.items()}
                                   for one in (delayed, sent_again)))  # fmt: skip
    asked = wait(RECV, CLIENT, by_call=SEND, **FROM_NET)
    assert waited(asked, sockets=own) == [f"socket: {said}"]
    watched = ready(CLIENT, by_call=SEND, **FROM_NET)
    words = said if said.startswith(LATE) else f"socket {said}"
    assert waited(watched, sockets=own) == [f"events: {words}"]


@pytest.mark.parametrize(
    ("may", "cpus", "said"),
    [
        (1, 4, "queued behind other, on the only CPU that it may use (2)"),
        (2, 4, "queued behind other, on one of 2 CPUs that it may use"),
        (4, 4, "queued behind other"), (0, 4, "queued behind other"),
        # There is only one.
        (1, 1, "queued behind other"),
        (1, 0, "queued behind other, on the only CPU that it may use (2)"),
        (2, 0, "queued behind other"),
    ],
)  # fmt: skip
def test_on_which_cpus_a_thread_may_run(may: int, cpus: int, said: str) -> None:
    rows = {
        "BACK": [{"time": 10, "pid": WAITER, "cpu": 2},
                 {"time": 500, "pid": WAITER, "prev": OTHER, "cpu": 2}],
        "BLOCKED": [{"time": 100, "pid": WAITER, "next": OTHER, "state": 1, "cpu": 2},
                    {"time": 900, "pid": WAITER, "state": 1, "cpu": 2}],
        "WOKEN": [{"time": 200, "pid": WAITER, "cpus": may, "cpu": 1, "source": TIMER}],
    }  # fmt: skip
    found = reading.Events(
        0, 1000, {name: reading.table_of(name, rows.get(name, [])) for name in reading.COLUMNS},
        reading.gaps_of([]), names={WAITER: "waiter", OTHER: "other"}, cpus=cpus,
    )  # fmt: skip
    made = answer.of_events(found, Choice(threads=[WAITER]))
    assert [line.bin.text for line in made.own if line.bin.group == "could run"] == [said]


def endpoint(family: int, port: int, address: bytes) -> bytes:
    return (family.to_bytes(2, "little") + port.to_bytes(2, "little") + address).ljust(20, b"\0")


OLD = {
    "BACK": ("pid:i32:thread", "prev:i32:thread"),
    "BLOCKED": ("argument:u64", "object:u64", "lock:u64", "pid:i32:thread", "tgid:i32",
                "next:i32:thread", "stack:u32", "interrupted:u32", "stolen:u32", "state:u16",
                "call:i16", "why:u8", "kind:u8"),
    "WOKEN": ("pid:i32:thread", "waker:i32:thread", "call:i16", "number:u16", "source:u8",
              "why:u8"),
    "OBJECT": ("object:u64", "inode:u64", "device:u32", "peer:i32:thread", "name:string"),
}  # fmt: skip
NEW = OLD | {
    "WOKEN": (*OLD["WOKEN"], "cpus:u16", "ready:u64"),
    "SOCKET_ENDS": ("object:u64", "source:u8[20]:endpoint", "destination:u8[20]:endpoint",
                    "type:u16", "protocol:u16", "bound:string"),
}  # fmt: skip
TCP = {
    "TCP_TIMER": ("source:u8[20]:endpoint", "destination:u8[20]:endpoint", "timer:u8"),
    "RETRANSMITTED": ("source:u8[20]:endpoint", "destination:u8[20]:endpoint", "segments:u16"),
}


def written(path: Path, layouts: dict[str, tuple[str, ...]]) -> klogger.Log:
    """A wait for a socket from 100 to 200 µs, and one for an epoll from 300 to 400."""
    calls = {"name": "syscall", "flags": False, "values": list(map(list, CALLS.items()))}
    log = LogFile(preamble={"decodings": [calls], "schemas": [{"name": "waits"}]})
    log.built_in()
    for name, fields in layouts.items():
        log.event(name, *fields, schema="peers" if name in TCP else "waits")
    for pid, name in ((WAITER, b"waiter"), (OTHER, b"other")):
        log.add(65535, 0, "PROCESS_EXISTS", pid=pid, tgid=pid, comm=name)
    log.add(0, 1, "OBJECT", object=CLIENT, name=b"socket:[1]")
    log.add(0, 1, "OBJECT", object=EP, name=b"anon_inode:[eventpoll]")
    if "SOCKET_ENDS" in layouts:
        # A socket of IPv6 that is connected to one of IPv4.
        own = endpoint(10, 40000, bytes(10) + b"\xff\xff\x7f\0\0\1")
        log.add(0, 2, "SOCKET_ENDS", object=CLIENT, source=own,
                destination=endpoint(10, 5001, bytes(10) + b"\xff\xff\x7f\0\0\1"))  # fmt: skip
    if "TCP_TIMER" in layouts:
        ends = {"source": endpoint(2, 5001, b"\x7f\0\0\1"),
                "destination": endpoint(2, 40000, b"\x7f\0\0\1")}  # fmt: skip
        log.add(0, 190_000, "TCP_TIMER", timer=2, **ends)
        log.add(0, 390_000, "TCP_TIMER", timer=1, **ends)
        log.add(0, 391_000, "RETRANSMITTED", segments=1, **ends)
    last = {"ready": CLIENT} if "SOCKET_ENDS" in layouts else {}
    for begin, call, thing, more in ((0, RECV, CLIENT, {}), (200_000, EPOLL, EP, last)):
        log.add(0, begin + 10, "BACK", pid=WAITER)
        log.add(0, begin + 100_000, "BLOCKED", pid=WAITER, call=call, object=thing, state=1)
        log.add(0, begin + 200_000, "WOKEN", pid=WAITER, waker=OTHER, call=SEND, source=SOFT,
                number=NET_RX, **more)  # fmt: skip
    log.add(0, 400_010, "BACK", pid=WAITER)
    log.add(0, 500_000, "BLOCKED", pid=WAITER, state=128, call=-1)
    return klogger.open(log.write(path))


@pytest.mark.parametrize(
    ("layouts", "said"),
    [
        (OLD, ["network: epoll_wait (other)", "network: recvfrom (other)"]),
        (NEW, [f"events: socket {A} (other)", f"socket: {A} (other)"]),
        (NEW | TCP, [f"events: socket {A}, with a retransmission (other)",
                     f"socket: delayed acknowledgement of {A} (other)"]),
    ],
)  # fmt: skip
def test_logs_say_what_they_have(
    layouts: dict[str, tuple[str, ...]], said: list[str], tmp_path: Path
) -> None:
    with written(tmp_path / "x.klog", layouts) as log:
        made = answer.of_log(log, Choice(threads=[WAITER]))
    assert sum(line.ns for line in made.own) == made.elapsed
    found = sorted(line.bin.text for line in made.own if line.bin.group == WAITED)
    assert found == said
