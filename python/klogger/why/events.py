# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The events of `waits` as arrays: one structured array for each type of event, with times in ns
since the log began.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from klogger import devices
from klogger.failure import Failure
from klogger.log import Log
from klogger.sqltext import literal
from klogger.why import sockets
from klogger.why.sockets import Sockets

SCHEMA = "waits"
# From here on they are numbers of 32-bit system calls.
COMPAT = 1000
OF_KERNEL = re.compile(r"^(kworker|ksoftirqd|migration|cpuhp|idle_inject|irq_work|rcuc|rcub)/.*")
Array = npt.NDArray[Any]

# Column -> type, for each table. All have `time` and `cpu`; what the log has not is 0.
COLUMNS: dict[str, dict[str, str]] = {
    "BACK": {"pid": "i4", "prev": "i4"},
    "BLOCKED": {
        "pid": "i4", "tgid": "i4", "next": "i4", "argument": "u8", "object": "u8", "lock": "u8",
        "stack": "i8", "interrupted": "i8", "stolen": "i8", "state": "i4", "call": "i4",
        "why": "i4",
    },
    "PREEMPTED": {
        "pid": "i4", "next": "i4", "interrupted": "i8", "stolen": "i8", "call": "i4", "why": "i4",
        "cpus": "u2",
    },
    "WOKEN": {
        "pid": "i4", "waker": "i4", "call": "i4", "number": "i4", "source": "i4", "why": "i4",
        "cpus": "u2", "ready": "u8",
    },
    "TAKEN": {"pid": "i4", "prev": "i4"},
    "CALLED": {"pid": "i4", "took": "i8", "call": "i4"},
    "UNRETURNED": {"pid": "i4", "so_far": "i8", "call": "i4"},
    "FAULTED": {"pid": "i4", "took": "i8", "major": "i4"},
    "SLEPT_BEFORE": {"pid": "i4", "state": "i4", "call": "i4"},
    "PROCESS_FORK": {"pid": "i4", "parent": "i4"},
    "PROCESS_EXEC": {"pid": "i4", "old_pid": "i4"},
    "PROCESS_EXIT": {"pid": "i4"},
    # Of the schema `block`.
    "RQ_DONE": {
        "pid": "i4", "took": "i8", "queued": "i8", "inode": "u8", "device": "u4",
        "file_system": "u4", "kind": "i4", "kernel": "i4",
    },
    "RQ_FLUSHED": {"pid": "i4", "took": "i8", "device": "u4"},
    "BIO_DONE": {
        "pid": "i4", "took": "i8", "inode": "u8", "device": "u4", "file_system": "u4",
        "kind": "i4", "kernel": "i4",
    },
}  # fmt: skip
REQUESTS = ("RQ_DONE", "RQ_FLUSHED", "BIO_DONE")
# In `BLOCKED.why` and `PREEMPTED.why`.
THROTTLED, IN_FAULT, IN_CALL = 1, 2, 4
# In `WOKEN.why`: by the completion of a request of a block device.
BY_REQUEST = 8
# A kind of request, besides those of the kernel: a write that asked for flushes around it.
FLUSHED = 255
# A place or number that there is not.
NONE = -1
# In `BLOCKED.state`: it has ended.
ENDED = 0x80
# Sums of times up to this are exact as floating-point numbers: 104 days.
NS_MAX = 2**53
# Columns with amounts of ns.
AMOUNTS = ("took", "so_far", "interrupted", "stolen", "queued")


@dataclass
class Events:
    """`gaps`: where events are missing: cpu (-1: any), since, until. `names`: of threads, `calls`
    of system calls, `stacks`: functions by number, innermost first; `objects`: what descriptors
    are; `locks`: names of variables by process and address. `costs`: ns of each type of event, with
    its probe. `kernel`: numbers of threads of the kernel that were there before the recording.
    `inodes`: device and inode of what descriptors are. `kinds`: of requests. `whole`: requests of
    all threads are in the log; `missed`: but in these spans of time perhaps not all. `disks`: names
    of block devices by number. `sockets`: those of the objects that are sockets. `cpus`: how many
    the machine had; 0: that is not known.
    """

    begin: int
    end: int
    tables: dict[str, Array]
    gaps: Array
    names: dict[int, str] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)
    calls: dict[int, str] = field(default_factory=dict)
    stacks: dict[int, list[str]] = field(default_factory=dict)
    objects: dict[int, str] = field(default_factory=dict)
    locks: dict[tuple[int, int], str] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    kernel: frozenset[int] = frozenset()
    inodes: dict[int, tuple[int, int]] = field(default_factory=dict)
    kinds: dict[int, str] = field(default_factory=dict)
    whole: bool = False
    missed: Array = field(default_factory=lambda: gaps_of([]))
    disks: dict[int, str] = field(default_factory=dict)
    sockets: Sockets = field(default_factory=Sockets)
    cpus: int = 0

    def name(self, pid: int) -> str:
        return self.names.get(pid) or ("idle" if pid == 0 else f"thread {pid}")

    def program(self, pid: int) -> str:
        """Its name; threads of the kernel that differ in a number only have one."""
        return OF_KERNEL.sub(r"\1", self.name(pid))

    def call(self, number: int) -> str:
        if number >= COMPAT:
            return f"32-bit call {number - COMPAT}"
        return self.calls.get(number) or f"system call {number}"

    def among(self, calls: Array, is_meant: Callable[[str], object]) -> Array:
        """Which of these numbers of system calls have such a name."""
        return np.isin(calls, [number for number, name in self.calls.items() if is_meant(name)])

    def disk(self, device: int) -> str:
        return devices.disk(self.disks, device)

    def request_kind(self, number: int) -> str:
        if number == FLUSHED:
            return "write with flushes"
        return self.kinds.get(number) or f"request {number}"


def dtype(table: str) -> np.dtype[Any]:
    return np.dtype([("time", "i8"), ("cpu", "i4"), *COLUMNS[table].items()])


def table_of(table: str, rows: list[dict[str, int]]) -> Array:
    """An array of rows that have some of the columns, in the order of time."""
    made = np.zeros(len(rows), dtype(table))
    for at, row in enumerate(sorted(rows, key=lambda row: row["time"])):
        for column, value in row.items():
            made[at][column] = value
    return made


def gaps_of(rows: list[tuple[int, int, int]]) -> Array:
    return np.array(rows, dtype=[("cpu", "i4"), ("since", "i8"), ("until", "i8")])


def checked(events: Events) -> Events:
    """The same in the order of time. Damaged logs have times outside of the recording."""
    begin, end = events.begin, events.end
    if not 0 <= begin <= end <= NS_MAX:
        raise Failure(
            f"the log says that it lasts from {begin:,} to {end:,} ns",
            help="it is damaged, or longer than 104 days: cut it with 'klogger cat'",
        )
    gaps = events.gaps.copy()
    for column in ("since", "until"):
        gaps[column] = np.clip(gaps[column], begin - 1, end + 1)
    tables = {name: within(table, begin, end) for name, table in events.tables.items()}
    asleep = tables["SLEPT_BEFORE"]
    # The dead whom nobody has waited for.
    tables["SLEPT_BEFORE"] = asleep[asleep["state"] & ENDED == 0]
    return replace(events, tables=tables, gaps=gaps)


def within(table: Array, begin: int, end: int) -> Array:
    amounts = [name for name in AMOUNTS if name in (table.dtype.names or ())]
    time = np.ascontiguousarray(table["time"])
    # Most of the memory is tables: one that is as it should be is not copied.
    is_whole = is_sorted(time) and (not len(time) or begin <= time[0] <= time[-1] <= end)
    for name in amounts:
        least, most = table[name].min(initial=0), table[name].max(initial=0)
        is_whole = is_whole and 0 <= least <= most <= NS_MAX
    if is_whole:
        return table
    time = np.clip(time, begin, end)
    order = np.argsort(time, kind="stable")
    table = table[order]
    table["time"] = time[order]
    for column in amounts:
        table[column] = np.clip(table[column], 0, NS_MAX)
    return table


def is_sorted(values: Array) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def distinct(keys: Array) -> tuple[Array, Array]:
    """As numpy.unique, with the place of each: without sorting, where they are small. None of them
    is negative.
    """
    behind = int(keys.max(initial=0)) + 1
    if behind > 4 * len(keys):
        return np.unique(keys, return_inverse=True)
    place = np.zeros(behind, "i8")
    place[keys] = 1
    unique = np.flatnonzero(place)
    place[unique] = np.arange(len(unique))
    return unique, place[keys]


class Sums:
    """ns by key, which is not negative; given batch by batch."""

    def __init__(self) -> None:
        self.parts: list[tuple[Array, Array]] = [(np.zeros(0, "i8"), np.zeros(0, "i8"))]

    def add(self, keys: Array, ns: Array) -> None:
        self.parts.append(summed(keys, ns))

    def all(self) -> tuple[Array, Array]:
        """The keys, ascending, and the sum of each."""
        keys, ns = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        return summed(keys, ns)


def summed(keys: Array, ns: Array) -> tuple[Array, Array]:
    unique, which = distinct(keys)
    total = np.zeros(len(unique), "i8")
    np.add.at(total, which, ns)
    return unique, total


def read(log: Log) -> Events:
    begin, end, cpus = log.rows(
        "SELECT from_ns, to_ns, coalesce(len(cpus), 0) FROM klogger.recording"
    )[0]
    gaps = log.rows(
        "SELECT coalesce(cpu, -1), from_ns, to_ns FROM klogger.gap"
        " WHERE key NOT IN ('probe_missed', 'sample_missed')"
        f" AND (event IS NULL OR event IN ({listed(COLUMNS.keys() - set(REQUESTS))}))"
    )
    own = sorted(
        log.rows("SELECT value::BIGINT, text FROM klogger.decoding WHERE decoding = 'syscall'")
    )
    return Events(
        begin=max(begin, first_of(log)),
        end=end,
        tables={name: fetch(log, name) for name in COLUMNS},
        gaps=gaps_of(gaps),
        names=dict(log.rows("SELECT pid, comm FROM klogger.thread")),
        groups=dict(log.rows("SELECT pid, tgid FROM klogger.thread WHERE tgid IS NOT NULL")),
        calls=dict(own),
        stacks=dict(log.rows("SELECT id, frames FROM klogger.stack WHERE kind = 'kernel'")),
        objects=objects(log),
        locks=locks(log),
        costs={name: ns for name, ns in log.rows("SELECT event, ns FROM klogger.cost")},
        kernel=kernel(log),
        inodes=inodes(log),
        disks=devices.disk_names(log.preamble),
        kinds=kinds(log),
        whole=log.preamble.get("scope") == "all",
        missed=missed(log),
        sockets=sockets.read(log),
        cpus=cpus,
    )


def kernel(log: Log) -> frozenset[int]:
    """kthreadd, which is thread 2, and its children."""
    if "PROCESS_EXISTS" not in log.events:
        return frozenset()
    return frozenset(
        pid for (pid,) in log.rows("SELECT pid FROM PROCESS_EXISTS WHERE 2 IN (pid, ppid)")
    )


def first_of(log: Log) -> int:
    """When the first event of the schema was logged: before that nothing was attached."""
    own = [name for name in COLUMNS if not name.startswith("PROCESS_") and name not in REQUESTS]
    tables = [name for name in own if name in log.events]
    each = " UNION ALL ".join(f"SELECT min(time) AS time FROM main.{name}" for name in tables)
    found = log.rows(f"SELECT min(time) FROM ({each})")[0][0] if tables else None
    return int(found or 0)


def objects(log: Log) -> dict[int, str]:
    if "OBJECT" not in log.events:
        return {}
    return {key: name or "" for key, name in log.rows("SELECT object, name FROM OBJECT")}


def inodes(log: Log) -> dict[int, tuple[int, int]]:
    if "OBJECT" not in log.events:
        return {}
    found = log.rows("SELECT object, device, inode FROM OBJECT")
    return {key: (device, inode) for key, device, inode in found}


def kinds(log: Log) -> dict[int, str]:
    own = "decoding = 'request_kind'"
    return dict(log.rows(f"SELECT value::BIGINT, text FROM klogger.decoding WHERE {own}"))


def missed(log: Log) -> Array:
    """Where the kernel skipped probes of requests, or the recording left some out."""
    found = log.rows(
        "SELECT -1, coalesce(l.from_ns, r.from_ns), coalesce(l.to_ns, r.to_ns)"
        " FROM klogger.ledger AS l, klogger.recording AS r"
        " WHERE key = 'probe_missed' AND contains(text, '(schema block)')"
        f" OR event IN ({listed(REQUESTS)})"
    )
    return gaps_of(found)


def listed(names: Iterable[str]) -> str:
    return ", ".join(map(literal, names))


def locks(log: Log) -> dict[tuple[int, int], str]:
    """Names of variables of programs, by process and address."""
    found = log.rows("SELECT tgid, address, name FROM klogger.variable ORDER BY from_ns")
    return {(tgid, address): name for tgid, address, name in found if tgid and name}


def fetch(log: Log, table: str) -> Array:
    event = log.events.get(table)
    # Other schemata may have events of these names.
    if event is None or (table in REQUESTS and event.schema != "block"):
        return np.zeros(0, dtype(table))
    there = {one.name for one in event.fields} | {"time", "cpu"}
    columns = [name for name in dtype(table).names or () if name in there]
    # In any order, as DuckDB takes longer to sort than all else takes.
    found = log.connection.execute(f"SELECT {', '.join(columns)} FROM main.{table}").fetchnumpy()
    time = np.ma.filled(found["time"], 0)
    order = None if is_sorted(time) else np.argsort(time, kind="stable")
    made = np.zeros(len(time), dtype(table))
    for name in columns:
        values = np.ma.filled(found.pop(name), -1 if name == "cpu" else 0)
        made[name] = values if order is None else values[order]
    return made
