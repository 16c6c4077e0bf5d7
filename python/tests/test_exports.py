# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each export, read by a reader of its own, says what `klogger cat --format json` says of the same
log.
"""

from __future__ import annotations

import csv
import json
import re
import resource
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import ctf2
import duckdb
import pytest
from logfile import RECORDER, START, START_REALTIME, LogFile

from klogger.program import find_klogger

LOGS = Path(__file__).resolve().parents[2] / "tests" / "logs"
HOSTILE = 'a"b\\c\nd\x01$e @f */ }; é'
ODD = b'"quoted" \\ \n\t\x01\xff\xfe$HOME @x ' + "größe".encode()
NOT_RECORDED = 1 << 22

Row = dict[str, Any]


def klogger(*words: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [find_klogger(), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **more)


def rows_of(log: Path) -> list[Row]:
    done = klogger("cat", log, "--format", "json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


def export(log: Path, to: str, out: Path) -> Path:
    done = klogger("export", log, "--to", to, "-o", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(out)
    return out


def declare(log: LogFile) -> None:
    log.built_in()
    wake = ("pid:i32:thread", "prio:i32", "target_cpu:i32", "waker:i32:thread")
    log.event("TRY_TO_WAKEUP", *wake, schema="scheduler", about=["pid", "waker"])
    log.event(
        "ADD_TO_RUNQ", "pid:i32:thread", "prio:i16", "runq:u16", "is_new:u32", schema="scheduler"
    )
    log.event(
        "REMOVE_FROM_RUNQ", "pid:i32:thread", "state:u32:state", schema="scheduler", about=["pid"]
    )
    out = ("pid:i32:thread", "prio:i16", "state:u16:state", "next:i32:thread", "charged:u32")
    log.event("SCHEDOUT", *out, schema="scheduler", about=["pid"])
    log.event(
        "SCHEDIN", "pid:i32:thread", "prio:i32", "tgid:i32", schema="scheduler", about=["pid"]
    )
    log.event(
        "MIGRATE", "pid:i32:thread", "from_cpu:u16", "to_cpu:u16", schema="scheduler", about=["pid"]
    )
    numbers = [f"n_{t}:{t}" for t in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool")]
    log.event("NUMBERS", *numbers, "many:i64[3]", "hex:u64:hex", schema="odd")
    # Words of TSDL, and names that readers might take something off.
    words = (
        "event:string",
        "string:text[8]",
        "stream:u8:colour",
        "_x:i16:colour",
        "align:u32:state",
        "clock:u64:wide",
    )
    log.event("trace", *words, schema="odd", doc="a comment ends here */ } ; struct {")
    log.event("OF_THREAD", "n:u64", "text:string", schema="web")


def fill(log: LogFile) -> None:
    """Two CPUs, two threads of programs, a loss on each kind of stream."""
    declare(log)
    log.add(RECORDER, 0, "KLOGGER_START", buffer_size=1 << 22, kernel=b"6.1.0")
    log.add(
        RECORDER,
        1,
        "PROCESS_EXISTS",
        pid=10,
        tgid=10,
        ppid=1,
        comm=b'a "shell"',
        command=b"sh -c $HOME @\n\xff",
    )
    log.add(RECORDER, 2, "PROCESS_EXISTS", pid=11, tgid=10, ppid=1, comm=b"second", command=b"")
    log.add(RECORDER, 3, "PROCESS_EXISTS", pid=2, tgid=2, ppid=0, comm=b"kthreadd", command=b"")
    log.add(0, 100, "SCHEDIN", pid=10, prio=120, tgid=10)
    log.add(0, 150, "TRY_TO_WAKEUP", pid=11, prio=-5, target_cpu=1, waker=10)
    log.add(1, 160, "ADD_TO_RUNQ", pid=11, prio=-5, runq=1, is_new=0)
    log.add(1, 170, "SCHEDOUT", pid=0, prio=120, state=0, next=11)
    log.add(1, 170, "SCHEDIN", pid=11, prio=-5, tgid=10)
    log.add(0, 200, "PROCESS_FORK", parent=10, pid=20, tgid=20, comm=b'a "shell"')
    log.add(0, 201, "ADD_TO_RUNQ", pid=20, prio=120, runq=0, is_new=1)
    log.add(0, 300, "SCHEDOUT", pid=10, prio=120, state=0x2001, next=20, charged=0xFFFFFFFF)
    log.add(0, 300, "REMOVE_FROM_RUNQ", pid=10, state=0x2001)
    log.add(0, 300, "SCHEDIN", pid=20, prio=120, tgid=20)
    log.add(0, 310, "PROCESS_RENAME", pid=20, comm=b"ne\xffw")
    log.add(0, 311, "PROCESS_EXEC", pid=20, old_pid=20, filename=b"/bin/" + ODD)
    log.add(0, 320, "NUMBERS", n_i8=-128, n_u8=255, n_i16=-(1 << 15), n_u16=65535, n_i32=-(1 << 31),
            n_u32=(1 << 32) - 1, n_i64=-(1 << 63), n_u64=(1 << 64) - 1, n_bool=1,
            many=[-(1 << 63), 0, (1 << 63) - 1], hex=(1 << 64) - 1)  # fmt: skip
    log.add(
        1,
        330,
        "trace",
        event=ODD,
        string=b"12345678",
        stream=2,
        _x=-1,
        align=0x2001,
        clock=(1 << 64) - 1,
    )
    log.add(1, 331, "trace", event=b"", string=b"", stream=77, _x=3, align=0, clock=0)
    log.add(1, 340, "MIGRATE", pid=10, from_cpu=0, to_cpu=1)
    log.add(0, 400, "PROCESS_EXIT", pid=20)
    log.add(0, 410, "SCHEDOUT", pid=20, prio=120, state=0x80, next=0)
    log.add(0, 410, "REMOVE_FROM_RUNQ", pid=20, state=0x80)
    log.add(0, 410, "SCHEDIN", pid=0, prio=120, tgid=0)
    log.add(1, 600, "LOST", count=7, since=START + 450)
    log.add(1, 600, "SCHEDOUT", pid=11, prio=-5, state=2, next=10)
    log.add(1, 600, "SCHEDIN", pid=10, prio=120, tgid=10)
    # A switch that no tracepoint told of.
    log.add(0, 700, "SCHEDOUT", pid=11, prio=120, state=1, next=0)
    log.add(0, 700, "SCHEDIN", pid=0, prio=120, tgid=0)
    log.add(RECORDER, 750, "MARK", number=5, text=b"half \xff")
    log.add((31, 31, 1), 200, "LOST", count=(1 << 40) + 3, since=START + 50)
    log.add((31, 31, 1), 201, "OF_THREAD", n=1, text=ODD)
    log.add((1201, 1200, 2), 500, "OF_THREAD", n=(1 << 64) - 1, text=b"")
    log.add((1201, 1200, 2), 501, "MARK", number=-1, text=b"")
    log.ledger = [
        {"key": "ring_full", "severity": "loss", "source": "recording", "event": "SCHEDIN",
         "cpu": 1, "count": 7,
         "from_ns": START + 450, "to_ns": START + 600, "text": "no space in the ring"},
        {"key": "user_refused", "severity": "loss", "source": "recording", "count": 2,
         "text": HOSTILE},
    ]  # fmt: skip


def describe(log: LogFile) -> None:
    wide = [[(1 << 64) - 1, "most"], [0, HOSTILE]]
    log.preamble = {
        "host": {"name": HOSTILE, "kernel": "6.1.0", "kernel_version": HOSTILE, "machine": "x",
                 "cpus": [0, 1]},
        "command_line": ["klogger", HOSTILE], "workload": ["nul\0", HOSTILE],
        "schemas": [{"name": "web", "user": True}, {"name": HOSTILE}],
        "decodings": [
            {"name": "state", "flags": True,
             "values": [[1, "S"], [2, "D"], [0x80, HOSTILE], [0x2000, "freezable"]]},
            {"name": "colour", "flags": False,
             "values": [[2, "red"], [3, "red"], [(1 << 64) - 1, "least"]]},
            {"name": "wide", "flags": False, "values": wide},
        ],
    }  # fmt: skip


@pytest.fixture(scope="module", params=["odd", "scoped", "v1", "v2", "empty", "nothing"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "x.klog"
    if (LOGS / f"{request.param}.klog").exists():
        return Path(shutil.copy(LOGS / f"{request.param}.klog", path))
    made = LogFile()
    describe(made)
    match request.param:
        case "odd":
            fill(made)
        case "scoped":
            fill(made)
            made.preamble["scope"] = "processes"
        case "empty":
            declare(made)
            made.add(RECORDER, 0, "KLOGGER_START", buffer_size=1, kernel=b"")
    return made.write(path)


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    made = LogFile()
    describe(made)
    fill(made)
    return made.write(tmp_path / "x.klog")


def start_of(log: Path) -> tuple[int, int]:
    """The log's clock at its start, and the time of the day then."""
    clock = json.loads(klogger("info", log, "--format", "json").stdout)["preamble"]["clock"]
    return clock["start_ns"], clock["start_realtime_ns"]


def plain(rows: list[Row]) -> list[str]:
    """In an order that does not depend on how equal times are ordered."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def own(row: Row) -> Row:
    """The event's fields, under their own names."""
    head = ("time", "cpu", "serial", "event", *(("tid", "tgid") if row["cpu"] is None else ()))
    renamed = {"tid_": "tid", "tgid_": "tgid", "event_": "event"}
    return {renamed.get(k, k): v for k, v in row.items() if k not in head}


def without_nul(value: Any) -> Any:
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


# Perfetto


class Perfetto:
    """A trace, read with Perfetto's own classes."""

    def __init__(self, path: Path) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

        trace = Trace()
        trace.ParseFromString(path.read_bytes())
        self.packets = list(trace.packet)
        self.unknown = [
            p for p in self.packets if not p.WhichOneof("data") and not p.HasField("interned_data")
        ]
        self.kernel = [
            (e, p.ftrace_events.cpu)
            for p in self.packets
            if p.HasField("ftrace_events")
            for e in p.ftrace_events.event
        ]
        self.interned = {
            kind: {} for kind in ("event_categories", "event_names", "debug_annotation_names")
        }
        self.tracks = {}
        for packet in self.packets:
            for kind, names in self.interned.items():
                names.update({n.iid: n.name for n in getattr(packet.interned_data, kind)})
            if packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor

    def of(self, kind: str) -> list[tuple[Any, int]]:
        return [(e, cpu) for e, cpu in self.kernel if e.WhichOneof("event") == kind]

    def value(self, annotation: Any) -> Any:
        if annotation.array_values:
            return [self.value(a) for a in annotation.array_values]
        return getattr(annotation, annotation.WhichOneof("value"))

    def instants(self) -> list[tuple[int, str, Row, Any]]:
        found = []
        for packet in self.packets:
            if not packet.HasField("track_event"):
                continue
            event = packet.track_event
            assert event.type == event.TYPE_INSTANT
            name = event.name or self.interned["event_names"][event.name_iid]
            names = self.interned["debug_annotation_names"]
            args = {names[a.name_iid]: self.value(a) for a in event.debug_annotations}
            assert len(args) == len(event.debug_annotations), "two arguments have the same name"
            found.append((packet.timestamp, name, args, self.tracks[event.track_uuid]))
        return found


# How the kernel's own sched_switch shows these states.
REPORTED = {0: 0, 0x2001: 1, 2: 2, 1: 1, 0x80: 0x10, 0x1402: 0x80}
TYPED = {
    "SCHEDIN", "SCHEDOUT", "TRY_TO_WAKEUP", "ADD_TO_RUNQ", "PROCESS_EXISTS", "PROCESS_FORK",
    "PROCESS_EXEC", "PROCESS_RENAME", "PROCESS_EXIT",
}  # fmt: skip


@pytest.fixture
def perfetto(log: Path, tmp_path: Path) -> Perfetto:
    return Perfetto(export(log, "perfetto", tmp_path / "x.pftrace"))


def test_perfetto_switches(log: Path, perfetto: Perfetto) -> None:
    rows, start = rows_of(log), start_of(log)[0]
    switches = [(e.timestamp - start, cpu, e) for e, cpu in perfetto.of("sched_switch")]
    left = [
        (t, cpu, e.sched_switch) for t, cpu, e in switches if e.sched_switch.HasField("prev_prio")
    ]
    found = [(t, cpu, s.prev_pid, s.prev_prio, s.prev_state) for t, cpu, s in left]
    outs = [r for r in rows if r["event"] == "SCHEDOUT"]
    assert Counter(found) == Counter(
        (r["time"], r["cpu"], r["pid"], r["prio"], REPORTED[r["state"]]) for r in outs
    )
    came = [
        (t, cpu, e.sched_switch) for t, cpu, e in switches if e.sched_switch.HasField("next_prio")
    ]
    found_in = [(t, cpu, s.next_pid, s.next_prio) for t, cpu, s in came]
    ins = [r for r in rows if r["event"] == "SCHEDIN"]
    assert Counter(found_in) == Counter((r["time"], r["cpu"], r["pid"], r["prio"]) for r in ins)
    running: dict[int, int] = {}
    for time, cpu, event in switches:
        assert event.pid == event.sched_switch.prev_pid
        assert running.get(cpu, event.sched_switch.prev_pid) == event.sched_switch.prev_pid, (
            f"at {time}"
        )
        running[cpu] = event.sched_switch.next_pid


def test_perfetto_wakeups(log: Path, perfetto: Perfetto) -> None:
    rows, start = rows_of(log), start_of(log)[0]
    found = [
        (
            e.timestamp - start,
            cpu,
            e.pid,
            e.sched_waking.pid,
            e.sched_waking.prio,
            e.sched_waking.target_cpu,
        )
        for e, cpu in perfetto.of("sched_waking")
    ]
    wakings = [r for r in rows if r["event"] == "TRY_TO_WAKEUP"]
    expected = [
        (r["time"], r["cpu"], r["waker"], r["pid"], r["prio"], r["target_cpu"]) for r in wakings
    ]
    assert Counter(found) == Counter(expected)
    for kind, is_new in (("sched_wakeup", 0), ("sched_wakeup_new", 1)):
        made = [(e.timestamp - start, cpu, getattr(e, kind)) for e, cpu in perfetto.of(kind)]
        wakeups = [r for r in rows if r["event"] == "ADD_TO_RUNQ" and r["is_new"] == is_new]
        expected = [(r["time"], r["cpu"], r["pid"], r["prio"], r["runq"]) for r in wakeups]
        found = [(t, cpu, w.pid, w.prio, w.target_cpu) for t, cpu, w in made]
        assert Counter(found) == Counter(expected)


def test_perfetto_processes(log: Path, perfetto: Perfetto) -> None:
    rows, start = rows_of(log), start_of(log)[0]
    of = lambda name: [r for r in rows if r["event"] == name]  # noqa: E731
    trees = [p.process_tree for p in perfetto.packets if p.HasField("process_tree")]
    threads = [(t.tid, t.tgid, t.name) for tree in trees for t in tree.threads]
    named = [(t.tid, t.name) for tree in trees if not tree.processes for t in tree.threads]
    assert Counter(threads) >= Counter(
        [(r["pid"], r["tgid"], r["comm"]) for r in of("PROCESS_EXISTS")]
    )
    assert Counter(named) >= Counter([(r["pid"], r["comm"]) for r in of("PROCESS_RENAME")])
    processes = [(p.pid, p.ppid, " ".join(p.cmdline)) for tree in trees for p in tree.processes]
    first = [r for r in of("PROCESS_EXISTS") if r["pid"] == r["tgid"]]
    assert Counter(processes) == Counter(
        [(r["pid"], r["ppid"], r["command"] or r["comm"]) for r in first]
    )
    forks = [(e.timestamp - start, e.pid, e.task_newtask.pid, e.task_newtask.comm,
              e.task_newtask.clone_flags)
             for e, _ in perfetto.of("task_newtask")]  # fmt: skip
    thread = lambda r: 0 if r["pid"] == r["tgid"] else 0x10000  # noqa: E731
    assert Counter(forks) == Counter(
        [(r["time"], r["parent"], r["pid"], r["comm"], thread(r)) for r in of("PROCESS_FORK")]
    )
    execs = [
        (e.sched_process_exec.pid, e.sched_process_exec.filename)
        for e, _ in perfetto.of("sched_process_exec")
    ]
    assert Counter(execs) == Counter([(r["pid"], r["filename"]) for r in of("PROCESS_EXEC")])
    renames = [
        (e.timestamp - start, e.task_rename.pid, e.task_rename.newcomm)
        for e, _ in perfetto.of("task_rename")
    ]
    assert Counter(renames) == Counter(
        [(r["time"], r["pid"], r["comm"]) for r in of("PROCESS_RENAME")]
    )
    exits = [
        (e.timestamp - start, e.sched_process_exit.pid)
        for e, _ in perfetto.of("sched_process_exit")
    ]
    assert Counter(exits) == Counter([(r["time"], r["pid"]) for r in of("PROCESS_EXIT")])
    assert not perfetto.of("sched_process_free")


def test_perfetto_instants(log: Path, perfetto: Perfetto) -> None:
    """All events that Perfetto has no type for, with all their fields."""
    rows, start = rows_of(log), start_of(log)[0]
    outs = {(r["cpu"], r["time"], r["pid"], r["state"]) for r in rows if r["event"] == "SCHEDOUT"}
    expected = []
    for row in rows:
        name, cpu = row["event"], row["cpu"]
        said = name == "REMOVE_FROM_RUNQ" and (cpu, row["time"], row["pid"], row["state"]) in outs
        if name == "LOST":
            name = f"LOST {row['count']}"
        if name == "MARK":
            name = f"MARK {row['number']}" + (f": {row['text']}" if row["text"] else "")
        if not said and (row["event"] not in TYPED or cpu is None):
            expected.append(
                {
                    "time": row["time"],
                    "name": name,
                    "args": own(row),
                    "thread": row.get("tid") if cpu is None else None,
                }
            )
    found = []
    for time, name, args, track in perfetto.instants():
        if "key" in args and "text" in args and track.name == "klogger":
            continue
        values = {k: v for k, v in args.items() if not k.endswith("_text")}
        found.append((time - start, name, values, track))
    thread = lambda track: track.thread.tid if track.HasField("thread") else None  # noqa: E731
    shown = [{"time": t, "name": n, "args": a} for t, n, a, _ in found]
    assert plain(shown) == plain([{k: v for k, v in e.items() if k != "thread"} for e in expected])
    logged = Counter(e["thread"] for e in expected if e["thread"] is not None)
    on_tracks = Counter(thread(track) for _, _, _, track in found)
    assert all(on_tracks[tid] >= n for tid, n in logged.items())


def test_perfetto_texts_tracks_and_losses(odd: Path, tmp_path: Path) -> None:
    trace = Perfetto(export(odd, "perfetto", tmp_path / "x.pftrace"))
    by_name = {name: (args, track) for _, name, args, track in trace.instants()}
    args, track = by_name["trace"]
    assert (args["align"], args["align_text"], track.name) == (0, "0", "events of CPU 1")
    assert by_name["MIGRATE"][0]["pid_text"] == 'a "shell"'
    thread = by_name["MIGRATE"][1].thread
    assert (thread.pid, thread.tid) == (10, 10)
    assert by_name["OF_THREAD"][1].thread.pid == 1200
    assert by_name["LOST 7"][1].name == "events of CPU 1"
    assert by_name["MARK 5: half \ufffd"][1].name == "klogger"
    # Without a LOST record there is only the ledger; with one, the ledger repeats it.
    refused = {n: a for n, (a, _) in by_name.items() if "key" in a}
    assert (
        list(refused) == ["user_refused: 2 events"]
        and refused["user_refused: 2 events"]["text"] == HOSTILE
    )
    bundles = [p.ftrace_events for p in trace.packets if p.HasField("ftrace_events")]
    after = [b for b in bundles if b.lost_events]
    assert [(b.cpu, b.event[0].timestamp - START) for b in after] == [(1, 600)]
    (snapshot,) = [p.clock_snapshot for p in trace.packets if p.HasField("clock_snapshot")]
    assert {c.clock_id: c.timestamp for c in snapshot.clocks} == {
        1: START_REALTIME,
        3: START,
        6: START,
    }


def test_perfetto_where_no_thread_is_known_to_run(odd: Path, tmp_path: Path) -> None:
    trace = Perfetto(export(odd, "perfetto", tmp_path / "x.pftrace"))
    switches = [(e.timestamp - START, cpu, e.sched_switch) for e, cpu in trace.of("sched_switch")]
    short = [
        (t, cpu, s.prev_pid, s.next_pid)
        for t, cpu, s in switches
        if max(s.prev_pid, s.next_pid) >= NOT_RECORDED
    ]
    first, second = NOT_RECORDED, NOT_RECORDED + 1
    assert sorted(short) == [
        (100, 0, first, 10), (410, 0, 0, first), (450, 1, 11, second), (600, 1, second, 11),
        (700, 0, first, 11),
    ]  # fmt: skip
    unknown = [s for _, _, s in switches if s.prev_pid in (first, second)]
    assert {(s.prev_comm, s.prev_state) for s in unknown} == {("not recorded", 0x40)}


# CTF


def ctf_row(row: Row, log_start: int) -> Row:
    """An event as both readers of CTF give it: no process of CPUs, and a text has no NUL in it."""
    fields = {k: without_nul(v) for k, v in own(row).items()}
    origin = (
        {"tid": row["tid"], "tgid": row["tgid"]} if row["cpu"] is None else {"cpu_id": row["cpu"]}
    )
    if row["cpu"] == -1:
        origin = {}
    time = row["time"] + log_start
    return {
        "time": time,
        "event": row["event"],
        "origin": origin,
        "serial": row["serial"],
        "fields": fields,
    }


TOKEN = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([\w<>?-]+)|([{}\[\],=():]))', re.S)
ESCAPES = {"n": "\n", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "r": "\r", "v": "\v"}
LINE = re.compile(r"\[(\d+)\] (?:\(\+[\d?]+\) )?(?:.*? )?(\w+): (\{.*)", re.S)


class Pretty:
    """Structures as babeltrace2 prints them: { NAME = VALUE, ... }, { ... }"""

    def __init__(self, text: str) -> None:
        self.tokens = [self.token(m) for m in TOKEN.finditer(text.rstrip())]

    @staticmethod
    def token(match: re.Match[str]) -> tuple[str, str]:
        if match[1] is None:
            return ("word", match[2]) if match[2] else ("sign", match[3])

        def escaped(m: re.Match[str]) -> str:
            return chr(int(m[1][1:], 16)) if len(m[1]) > 1 else ESCAPES.get(m[1], m[1])

        return "text", re.sub(r"\\(x[0-9a-fA-F]{2}|.)", escaped, match[1], flags=re.S)

    def skip(self, sign: str) -> bool:
        found = bool(self.tokens) and self.tokens[0] == ("sign", sign)
        if found:
            self.tokens.pop(0)
        return found

    def all(self) -> list[Row]:
        found = [self.value()]
        while self.skip(","):
            found.append(self.value())
        assert not self.tokens
        return found

    def value(self) -> Any:
        if self.skip("{"):
            return self.members("}")
        if self.skip("["):
            return list(self.members("]").values())
        if self.skip("("):
            # The names, then `: container = NUMBER )`.
            while self.tokens.pop(0) != ("word", "container"):
                pass
            return next(iter(self.members(")").values()))
        kind, word = self.tokens.pop(0)
        if kind == "text":
            return word
        return int(word, 8 if re.fullmatch(r"0\d+", word) else 0)

    def members(self, end: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.skip(end):
            bracket = self.skip("[")
            name = "" if self.tokens[0] == ("sign", "=") else self.tokens.pop(0)[1]
            assert not bracket or self.skip("]")
            assert self.skip("=")
            found[name] = self.value()
            self.skip(",")
        return found


def babeltrace(path: Path) -> tuple[list[Row], str]:
    """What it prints as events, and its warnings."""
    if shutil.which("babeltrace2") is None:
        pytest.skip("babeltrace2 is not installed")
    command = ["babeltrace2", "--clock-cycles", "--no-delta", str(path)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    rows = []
    for line in done.stdout.decode().split("\n")[:-1]:
        match = LINE.fullmatch(line)
        assert match, line
        *origin, context, fields = Pretty(match[3]).all()
        origin_row = origin[0] if origin else {}
        rows.append(
            {"time": int(match[1]), "event": match[2], "origin": origin_row}
            | context
            | {"fields": fields}
        )
    return rows, done.stderr.decode()


def test_ctf(log: Path, tmp_path: Path) -> None:
    out = export(log, "ctf", tmp_path / "x-ctf")
    start = start_of(log)[0]
    rows = rows_of(log)
    # (babeltrace2 2.0.4 forgets to empty texts when it uses memory again; these logs are too small
    # for that.)
    found, _ = babeltrace(out) if rows else ([], "")
    number = lambda v: int(v) if isinstance(v, bool) else v  # noqa: E731
    as_numbers = [r | {"fields": {k: number(v) for k, v in r["fields"].items()}}
                  for r in (ctf_row(r, start) for r in rows)]  # fmt: skip
    assert plain(found) == plain(as_numbers)
    times = [r["time"] for r in found]
    assert times == sorted(times)


def test_ctf_bases(tmp_path: Path) -> None:
    """Numbers are shown as `klogger cat` shows them."""
    made = LogFile()
    made.event("OPENED", "mode:u16:octal", "place:u64:hex", "count:u32", schema="own")
    made.add(0, 10, "OPENED", mode=0o4755, place=0xAB, count=19)
    log = made.write(tmp_path / "x.klog")
    assert "mode=04755 place=0xab count=19" in klogger("cat", log).stdout
    trace = ctf2.Trace(export(log, "ctf2", tmp_path / "x-ctf2"))
    (event,) = (e for e in trace.events.values() if e["name"] == "OPENED")
    members = event["payload-field-class"]["member-classes"]
    bases = {m["name"]: m["field-class"].get("preferred-display-base") for m in members}
    assert (bases["mode"], bases["place"], bases["count"]) == (8, 16, None)
    out = export(log, "ctf", tmp_path / "x-ctf")
    babeltrace(out)
    done = subprocess.run(["babeltrace2", out], capture_output=True, check=True, timeout=60)
    assert "mode = 04755, place = 0xAB, count = 19" in done.stdout.decode()


def test_ctf_flags_of_which_none_is_set(odd: Path, tmp_path: Path) -> None:
    out = export(odd, "ctf", tmp_path / "x-ctf")
    done = subprocess.run(["babeltrace2", out], capture_output=True, check=False, timeout=60)
    text = done.stdout.decode()
    assert 'align = ( "0" : container = 0 )' in text and 'state = ( "0" : container = 0 )' in text
    assert "<unknown> : container = 0 " not in text


def test_ctf_losses_and_the_time_of_day(odd: Path, tmp_path: Path) -> None:
    out = export(odd, "ctf", tmp_path / "x-ctf")
    _, warnings = babeltrace(out)
    lost = re.findall(
        r"discarded (\d+) events between \[[^]]*?\.(\d+)\] and \[[^]]*?\.(\d+)\].*?/(\w+)\"",
        warnings,
        re.S,
    )
    assert sorted(lost) == [
        (str((1 << 40) + 3), "000000050", "000000200", "thread_31_1"),
        ("7", "000000340", "000000600", "cpu_1"),
    ]
    done = subprocess.run(
        ["babeltrace2", "--clock-seconds", out], capture_output=True, check=False, timeout=60
    )
    assert done.stdout.decode().startswith(f"[{START_REALTIME // 10**9}.000000000]")


def ctf2_row(event: Row, origin: Row) -> Row:
    head = {"time": event["time"], "event": event["class"]["name"], "origin": origin}
    return head | event["common"] | {"fields": event["payload"]}


def test_ctf2(log: Path, tmp_path: Path) -> None:
    trace = ctf2.Trace(export(log, "ctf2", tmp_path / "x-ctf2"))
    start, realtime = start_of(log)
    found = []
    for roles, _, context, events in trace.packets():
        origin = {k: v for k, v in context.items() if k in ("cpu_id", "tid", "tgid")}
        times = [e["time"] for e in events]
        if events:
            begin, end = context["timestamp_begin"], roles["packet-end-default-clock-timestamp"]
            assert (begin, end) == (times[0], times[-1]) and times == sorted(times)
        found += [ctf2_row(event, origin) for event in events]
    assert plain(found) == plain([ctf_row(row, start) for row in rows_of(log)])
    (clock,) = trace.clocks.values()
    offset = clock["offset-from-origin"]
    assert offset["seconds"] * clock["frequency"] + offset["cycles"] == max(realtime - start, 0)
    assert {s["default-clock-class-id"] for s in trace.streams.values()} <= set(trace.clocks)


def test_ctf2_names_and_losses(odd: Path, tmp_path: Path) -> None:
    trace = ctf2.Trace(export(odd, "ctf2", tmp_path / "x-ctf2"))
    event = next(e for e in trace.events.values() if e["name"] == "trace")
    assert event["attributes"]["klogger"] == {
        "schema": "odd",
        "doc": "a comment ends here */ } ; struct {",
    }
    classes = {m["name"]: m["field-class"] for m in event["payload-field-class"]["member-classes"]}
    assert ctf2.label(classes["align"], 0x2001) == ["S", "freezable"]
    assert ctf2.label(classes["stream"], 2) == ["red"] and ctf2.label(classes["_x"], -1) == [
        "least"
    ]
    assert ctf2.label(classes["clock"], (1 << 64) - 1) == ["most"] and ctf2.label(
        classes["clock"], 0
    ) == [HOSTILE]
    discarded: dict[str, list[int]] = {}
    for roles, _, context, _ in trace.packets():
        key = f"{context.get('cpu_id')} {context.get('tid')}"
        discarded.setdefault(key, []).append(roles["discarded-event-record-counter-snapshot"])
    many = (1 << 40) + 3
    assert discarded == {"0 None": [0], "1 None": [0, 7, 7], "None None": [0],
                         "None 31": [0, many, many],
                         "None 1201": [0]}  # fmt: skip
    assert trace.trace["environment"]["loss_0"].startswith("ring_full: 7 events of SCHEDIN")


def test_the_recorders_threads_have_names(tmp_path: Path) -> None:
    """They are in no process table where a workload is recorded, but run in between."""
    made = LogFile()
    declare(made)
    made.preamble = {"recorder": {"pid": 30, "tids": [30, 32], "names": ["klogger", "klogger/0"]}}
    made.add(0, 10, "SCHEDOUT", pid=10, prio=120, state=0, next=32)
    made.add(0, 10, "SCHEDIN", pid=32, prio=120, tgid=30)
    log = made.write(tmp_path / "x.klog")
    ((event, _),) = Perfetto(export(log, "perfetto", tmp_path / "x.pftrace")).of("sched_switch")
    assert event.sched_switch.next_comm == "klogger/0"
    for to, file in (("ctf", "metadata"), ("lttng", "kernel/metadata")):
        text = (export(log, to, tmp_path / to) / file).read_text()
        assert 'recorder_threads = "30 klogger, 32 klogger/0";' in text
    assert b"klogger/0\0" in (tmp_path / "lttng" / "kernel" / "cpu_0").read_bytes()


def test_many_packets(tmp_path: Path) -> None:
    """More events than fit into one packet of CTF, or one bundle of Perfetto."""
    made = LogFile()
    declare(made)
    for i in range(9000):
        made.add(
            i % 2, i, "SCHEDOUT", pid=1 + i % 5, prio=i % 140, state=i % 2, next=1 + (i + 2) % 5
        )
        made.add(i % 2, i, "SCHEDIN", pid=1 + (i + 2) % 5, prio=i % 140, tgid=1)
    log = made.write(tmp_path / "x.klog")
    expected = plain([ctf_row(row, START) for row in rows_of(log)])
    trace = ctf2.Trace(export(log, "ctf2", tmp_path / "x-ctf2"))
    found = []
    numbers: dict[int, list[int]] = {}
    for roles, _, context, events in trace.packets():
        numbers.setdefault(context["cpu_id"], []).append(roles["packet-sequence-number"])
        found += [ctf2_row(event, {"cpu_id": context["cpu_id"]}) for event in events]
    assert plain(found) == expected
    assert all(n == list(range(len(n))) and len(n) > 2 for n in numbers.values())
    assert plain(babeltrace(export(log, "ctf", tmp_path / "x-ctf"))[0]) == expected
    perfetto = Perfetto(export(log, "perfetto", tmp_path / "x.pftrace"))
    assert len(perfetto.of("sched_switch")) == 9000
    assert len([p for p in perfetto.packets if p.HasField("ftrace_events")]) > 2


# Texts and tables


def test_json_is_what_cat_prints(log: Path, tmp_path: Path) -> None:
    out = export(log, "json", tmp_path / "x.json")
    assert [json.loads(line) for line in out.read_text().split("\n")[:-1]] == rows_of(log)


def test_csv(log: Path, tmp_path: Path) -> None:
    with export(log, "csv", tmp_path / "x.csv").open(newline="") as file:
        found = [
            {k: v for k, v in row.items() if v != ""} for row in csv.DictReader(file, strict=True)
        ]

    def text(value: Any) -> str:
        if isinstance(value, list):
            return " ".join(map(str, value))
        return str(int(value)) if isinstance(value, bool) else str(value)

    rows = [
        {k: text(v) for k, v in row.items() if v is not None and text(v) != ""}
        for row in rows_of(log)
    ]
    assert found == rows


def test_csv_leaves_the_kernels_names(odd: Path, tmp_path: Path) -> None:
    """A program's schema brings columns for its threads; what the kernel calls tgid stays that."""
    with export(odd, "csv", tmp_path / "x.csv").open(newline="") as file:
        found = list(csv.DictReader(file, strict=True))
    assert found and "tgid_" not in found[0] and "tid" in found[0]
    assert {(r["tid"], r["tgid"]) for r in found if r["event"] == "SCHEDIN"} >= {
        ("", "10"),
        ("", "20"),
    }
    assert {(r["tid"], r["tgid"]) for r in found if r["event"] == "OF_THREAD"} == {
        ("31", "31"),
        ("1201", "1200"),
    }


def as_text(value: Any) -> Any:
    """A value as Perl has it: numbers are texts."""
    if isinstance(value, list):
        return [as_text(v) for v in value]
    return value if isinstance(value, str) else str(int(value))


def test_perl(log: Path, tmp_path: Path) -> None:
    if shutil.which("perl") is None:
        pytest.skip("perl is not installed")
    out = export(log, "perl", tmp_path / "x.pl")
    script = (
        "use JSON::PP; my $l = do $ARGV[0]; die $@ if $@; print JSON::PP->new->ascii->encode($l)"
    )
    done = subprocess.run(
        ["perl", "-we", script, str(out)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    start = start_of(log)[0]

    def text(value: Any) -> Any:
        """A string of Perl is bytes."""
        if isinstance(value, list):
            return [text(v) for v in value]
        return value.encode("latin-1").decode("utf-8", "replace")

    found = [
        {k: v if k == "header" else text(v) for k, v in row.items()}
        for row in json.loads(done.stdout)
    ]
    expected = []
    for row in rows_of(log):
        thread = row["cpu"] is None
        head = {
            "type": row["event"],
            "serial": row["serial"],
            "timestamp": row["time"] + start,
            "cpu": row["cpu"],
        }
        head |= {k: row[k] for k in ("tid", "tgid") if thread}
        expected.append({k: as_text(v) for k, v in own(row).items()}
                        | {"header": {k: None if v is None else str(v)
                                      for k, v in head.items()}})  # fmt: skip
    assert found == expected


def test_parquet(log: Path, tmp_path: Path) -> None:
    out = export(log, "parquet", tmp_path / "tables")
    rows = rows_of(log)
    # Those that are of no event.
    tables = {"process", "ledger", "event", "decoding", "stack", "symbol", "parameter", "variable"}
    about = [p.stem for p in out.glob("*.parquet") if p.stem in tables]
    assert len(about) >= 4
    events = {p.stem for p in out.glob("*.parquet")} - set(about)
    assert {r["event"] for r in rows} <= events
    con = duckdb.connect()
    for event in events:
        table = con.execute(f"FROM '{out / event}.parquet' ORDER BY time").fetchall()
        names = [c[0] for c in con.description]
        found = [dict(zip(names, values, strict=True)) for values in table]
        expected = [r for r in rows if r["event"] == event]
        assert len(found) == len(expected), event
        for one, row in zip(sorted(found, key=key), sorted(expected, key=key), strict=True):
            known = {k.replace("event_", "event"): v for k, v in row.items() if k != "event"}
            assert {k: v for k, v in one.items() if k in known} == known, event


def test_parquet_explains_itself(odd: Path, tmp_path: Path) -> None:
    out = export(odd, "parquet", tmp_path / "tables")
    con = duckdb.connect()
    pairs = con.execute(
        f"SELECT key, value FROM parquet_kv_metadata('{out}/trace.parquet')"
    ).fetchall()
    about = {bytes(k).decode(): bytes(v).decode() for k, v in pairs}
    assert (
        about["klogger.doc"] == "a comment ends here */ } ; struct {"
        and about["klogger.schema"] == "odd"
    )
    assert (about["klogger.host"], about["klogger.kernel"]) == (HOSTILE, "6.1.0")
    assert (about["klogger.clock"], about["klogger.start_ns"]) == ("monotonic", str(START))
    types: dict[str, set[str]] = {}
    for file in out.glob("*.parquet"):
        for name, kind, *_ in con.execute(f"DESCRIBE FROM '{file}'").fetchall():
            types.setdefault(name, set()).add(kind)
    ids = ("pid", "tgid", "tid", "parent")
    assert {name: types[name] for name in ids} == {name: {"INTEGER"} for name in ids}


def test_parquet_marks_and_losses_have_the_same_columns_in_each_log(tmp_path: Path) -> None:
    made = LogFile()
    declare(made)
    out = export(made.write(tmp_path / "x.klog"), "parquet", tmp_path / "tables")
    for event in ("MARK", "LOST"):
        columns = duckdb.connect().execute(f"DESCRIBE FROM '{out}/{event}.parquet'").fetchall()
        assert [c[0] for c in columns[:5]] == ["time", "cpu", "serial", "tid", "tgid"]


def key(row: Row) -> tuple[int, int, int, int]:
    return row["time"], -2 if row["cpu"] is None else row["cpu"], row.get("tid") or 0, row["serial"]


# What goes wrong


KINDS = ["perfetto", "ctf", "ctf2", "lttng", "json", "csv", "perl"]


@pytest.mark.parametrize("to", KINDS)
def test_what_is_there_stays(odd: Path, tmp_path: Path, to: str) -> None:
    out = tmp_path / "out"
    export(odd, to, out)

    def contents() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in [out, *out.rglob("*")] if p.is_file()}

    before = contents()
    done = klogger("export", odd, "--to", to, "-o", out)
    assert done.returncode == 2 and "exists" in done.stderr and "--force" in done.stderr, (
        done.stderr
    )
    assert contents() == before
    done = klogger("export", odd, "--to", to, "-o", out, "--force")
    assert done.returncode == 0 and contents() == before, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "x.klog"]


@pytest.mark.parametrize("to", ["ctf", "ctf2", "lttng"])
def test_a_folder_of_something_else_is_never_replaced(odd: Path, tmp_path: Path, to: str) -> None:
    out = tmp_path / "mine"
    out.mkdir()
    (out / "metadata").write_text("mine")
    done = klogger("export", odd, "--to", to, "-o", out, "--force")
    assert done.returncode == 2 and "was not made by klogger export" in done.stderr
    assert (out / "metadata").read_text() == "mine"


def test_a_folder_is_no_file(odd: Path, tmp_path: Path) -> None:
    done = klogger("export", odd, "--to", "perfetto", "-o", tmp_path, "--force")
    assert done.returncode == 2 and "is a directory" in done.stderr


def no_space() -> None:
    """Files may have 512 bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))


@pytest.mark.parametrize("to", [*KINDS, "parquet"])
def test_a_full_disk(odd: Path, tmp_path: Path, to: str) -> None:
    done = klogger("export", odd, "--to", to, "-o", tmp_path / "out", preexec_fn=no_space)
    assert done.returncode == 2, done.stderr
    assert "cannot write" in done.stderr and "free some space" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["x.klog"], "nothing is left behind"


@pytest.mark.parametrize("to", ["perfetto", "json"])
def test_devices_and_pipes(odd: Path, tmp_path: Path, to: str) -> None:
    done = klogger("export", odd, "--to", to, "-o", "/dev/full")
    assert done.returncode == 2 and "No space left" in done.stderr
    piped = subprocess.run(
        [find_klogger(), "export", str(odd), "--to", to, "-o", "-"], capture_output=True, check=True
    )
    out = export(odd, to, tmp_path / "out")
    assert piped.stdout == out.read_bytes() and piped.stdout


@pytest.mark.parametrize("to", KINDS)
def test_a_cut_log_is_exported_as_far_as_it_goes(odd: Path, tmp_path: Path, to: str) -> None:
    whole = odd.read_bytes()
    cut = tmp_path / "cut.klog"
    # In the last block of events: the ledger and the index come after it.
    cut.write_bytes(b"\xb5KLB".join(whole.split(b"\xb5KLB")[:-2])[:-20])
    done = klogger("export", cut, "--to", to, "-o", tmp_path / "out")
    assert done.returncode == 0 and "warning" in done.stderr, done.stderr
    assert (tmp_path / "out").exists()
