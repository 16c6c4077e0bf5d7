# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes a `simulated` recording as a log. The fields of events are those of the schemata."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from logfile import RECORDER, LogFile
from simulated_disks import FLUSHER, KINDS
from simulated_recording import Recording
from simulated_tasks import name_of
from simulated_waits import CALLS, INODES, OBJECTS, STACKS

SCHEMATA = Path(__file__).parents[2] / "schemata"
TYPES = {"ulong": "u64", "long": "i64", "uint": "u32", "int": "i32", "ushort": "u16",
         "short": "i16", "uchar": "u8", "bool": "bool", "string": "string"}  # fmt: skip
EVENT = re.compile(r'^event (\w+) "[^"]*" scope \w+ \{\n(.*?)^\}', re.M | re.S)
FIELD = re.compile(r"^ +(\w+)(?:\[\.\.\d+\])?\s+(\w+)(?:\s+as\s+(\w+))?", re.M)
ARRAY = re.compile(r"\w\[\d+\]")
FLAGS = ("wait_state", "why_off", "kernel_lock", "wake_source", "request_flags", "request_merge",
         "block_status")  # fmt: skip


def write(played: Recording, path: Path, *ledger: dict[str, Any]) -> Path:
    log = declared(played)
    log.ledger += ledger
    for name, row in sorted(log_rows(played), key=lambda one: one[1]["time"]):
        values = {key: value for key, value in row.items() if key not in ("time", "cpu")}
        log.add(row["cpu"], row["time"] - played.events.begin, name, **values)
    return log.write(path)


def declared(played: Recording) -> LogFile:
    calls = {"name": "syscall", "flags": False, "values": list(map(list, CALLS.items()))}
    kinds = {"name": "request_kind", "flags": False, "values": list(map(list, KINDS.items()))}
    schemata = [{"name": name} for name in ("waits", "block")]
    host = {"name": "test", "kernel": "6.1.0", "machine": "x86_64",
            "cpus": list(range(played.events.cpus))}  # fmt: skip
    log = LogFile(preamble={"decodings": [calls, kinds], "schemas": schemata, "scope": "all",
                            "host": host})  # fmt: skip
    log.built_in()
    for name in ("waits", "block"):
        text = (SCHEMATA / name / f"{name}.klogger").read_text()
        for event, fields in EVENT.findall(text):
            if ARRAY.search(fields):
                # The machine has none of these.
                continue
            log.event(event, *map(field, FIELD.findall(fields)), schema=name)
    for number, frames in STACKS.items():
        log.stacks += f"{number} " + " ".join(f"{frame}+0x1f" for frame in frames) + "\n"
    there = [task.pid for task in played.machine.tasks if task.born < played.events.begin]
    for pid in (*there, FLUSHER):
        log.add(RECORDER, 0, "PROCESS_EXISTS", pid=pid, tgid=pid, ppid=1,
                comm=name_of(pid).encode(), command=b"")  # fmt: skip
    for key, name in OBJECTS.items():
        device, inode = INODES.get(key, (0, 0))
        log.add(0, 0, "OBJECT", object=key, device=device, inode=inode, name=name.encode())
    # Without a ledger that says more, the log ends with its last event.
    log.add(RECORDER, played.events.end - played.events.begin, "MARK")
    return log


def field(found: tuple[str, str, str]) -> str:
    kind, name, decoding = found
    shown = f":{decoding}" if decoding and decoding not in FLAGS and decoding != "path" else ""
    return f"{name}:{TYPES[kind]}{shown}"


def log_rows(played: Recording) -> list[tuple[str, dict[str, Any]]]:
    rows = []
    for name, row in played.machine.rows:
        more: dict[str, Any] = {}
        if name == "PROCESS_FORK":
            more = {"tgid": row["pid"], "comm": name_of(row["pid"]).encode()}
        elif name == "PROCESS_EXEC":
            more = {"old_pid": row["pid"], "filename": f"/bin/{name_of(row['pid'])}".encode()}
        rows.append((name, row | more))
    return rows
