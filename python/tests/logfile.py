# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Writes small logs as docs/log-format.md describes them, with whatever one wants in them."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SIZES = {"bool": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8}
START = 5_000_000_000
START_REALTIME = 1_700_000_000_000_000_000
RECORDER, THREAD = 65535, 65534

# A CPU's number, RECORDER, or (thread id, process id, number of the stream).
Origin = int | tuple[int, int, int]

# Events that every log has, with the fields that readers of logs use.
BUILT_IN = {
    "KLOGGER_START": ("buffer_size:u64", "kernel:string"),
    "PROCESS_EXISTS": (
        "pid:i32:thread", "tgid:i32", "ppid:i32", "comm:text[16]", "command:string",
    ),
    "LOST": ("count:u64", "since:u64"),
    "MARK": ("number:i64", "text:string"),
    "PROCESS_FORK": ("parent:i32:thread", "pid:i32:thread", "tgid:i32", "comm:text[16]"),
    "PROCESS_EXEC": ("pid:i32:thread", "old_pid:i32", "filename:string"),
    "PROCESS_RENAME": ("pid:i32:thread", "comm:text[16]"),
    "PROCESS_EXIT": ("pid:i32:thread",),
}  # fmt: skip
# Events of a scheduler under names that no bundled schema has (readers go by roles): role, fields.
SCHEDULER = {
    "LEAVE": ("switch_out", ("pid:i32:thread", "prio:i16", "state:u16", "next:i32:thread")),
    "COME": ("switch_in", ("pid:i32:thread", "prio:i32")),
    "RING": ("waking", ("pid:i32:thread", "prio:i32", "target_cpu:i32", "waker:i32:thread")),
    "RISE": ("wakeup", ("pid:i32:thread", "prio:i32", "runq:u16", "is_new:u32")),
}


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


# Those that are not tables of a schema.
DECODINGS = ("hex", "octal", "thread", "code", "data", "stack", "device", "ip", "endpoint", "errno")


@dataclass
class Stream:
    records: bytes = b""
    times: list[int] = field(default_factory=list)
    events: int = 0
    lost: int = 0
    first_serial: int = 0


@dataclass
class LogFile:
    """Declare events, add some, write."""

    preamble: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    streams: dict[Origin, Stream] = field(default_factory=dict)
    ledger: list[dict[str, Any]] = field(default_factory=list)
    # Lines `ADDRESS NAME`, and `NUMBER FRAME ...`.
    symbols: str = ""
    stacks: str = ""
    code: str = ""

    def event(
        self,
        name: str,
        *fields: str,
        schema: str = "klogger",
        doc: str | None = None,
        about=(),
        **more: Any,
    ) -> None:
        """A field is `name:type[:decoding]`; a type is a number's, `TYPE[n]`, `text[n]` or
        `string`.
        """
        end, made = 8, []
        for text in fields:
            word, ty, *decode = text.split(":")
            base, _, count = ty.rstrip("]").partition("[")
            scalar = base if base in SIZES else "u8"
            size, align = SIZES[scalar] * int(count or 1), SIZES[scalar]
            shape: Any = {("text" if base == "text" else "array"): int(count)} if count else "one"
            if base == "string":
                shape, size, align = "tail", 2, 2
            offset = -(-end // align) * align
            end = offset + size
            one = {"name": word, "type": ty, "scalar": scalar, "shape": shape, "offset": offset}
            if decode:
                one["decode"] = decode[0] if decode[0] in DECODINGS else {"table": decode[0]}
            made.append(one)
        layout = {
            "id": len(self.events) + 1,
            "schema": schema,
            "name": name,
            "fixed": end,
            "fields": made,
        }
        self.events.append(
            layout
            | ({"doc": doc} if doc else {})
            | ({"about": list(about)} if about else {})
            | more
        )

    def built_in(self, *names: str) -> None:
        """Declares these of klogger's own events; without names, all. Ids follow the order."""
        for name in names or BUILT_IN:
            self.event(name, *BUILT_IN[name])

    def scheduler(self, *names: str) -> None:
        """Declares these events of a scheduler."""
        for name in names:
            role, fields = SCHEDULER[name]
            self.event(name, *fields, schema="own", about=["pid"], role=role)

    def add(self, origin: Origin, time: int, name: str, /, **values: Any) -> None:
        """`time` is ns since the start. What is not said is 0 or empty."""
        layout = next(e for e in self.events if e["name"] == name)
        record, tail = bytearray(layout["fixed"]), b""
        struct.pack_into("<Q", record, 0, (START + time) << 16 & (1 << 64) - 1 | layout["id"])
        for one in layout["fields"]:
            value = values.pop(one["name"], None)
            if value is None:
                continue
            size, at = SIZES[one["scalar"]], one["offset"]
            if one["shape"] == "tail":
                tail = value
                struct.pack_into("<H", record, at, len(value))
            elif isinstance(value, bytes):
                record[at : at + len(value)] = value
            else:
                for i, element in enumerate(value if isinstance(value, list) else [value]):
                    bits = (int(element) & (1 << 8 * size) - 1).to_bytes(size, "little")
                    record[at + i * size : at + (i + 1) * size] = bits
            record = record[: layout["fixed"]]
        assert not values, f"{name} has no fields {list(values)}"
        stream = self.streams.setdefault(origin, Stream())
        stream.records += padded(bytes(record) + tail)
        stream.times.append(START + time)
        if name == "LOST":
            at = next(f["offset"] for f in layout["fields"] if f["name"] == "count")
            stream.lost += struct.unpack_from("<Q", record, at)[0]
        else:
            stream.events += 1

    def begin(self, origin: Origin, serial: int) -> None:
        """The stream of a later segment, whose first event has this serial number."""
        self.streams[origin] = Stream(first_serial=serial)

    def write(self, path: Path) -> Path:
        about = {
            "klogger": "0.1.0", "engine": "bpf", "scope": "all",
            "host": {"name": "test", "kernel": "6.1.0", "machine": "x86_64", "cpus": [0, 1]},
            "clock": {"name": "monotonic", "source": "tsc", "start_ns": START,
                      "start_realtime_ns": START_REALTIME},
        }  # fmt: skip
        text = json.dumps(about | self.preamble | {"events": self.events}).encode()
        head = b"klogger\x02" + struct.pack("<I", len(text))
        out = padded(head + struct.pack("<I", crc32c(head + text)) + text)
        index = b""
        for origin, stream in self.streams.items():
            block = self._block(1, stream.records, origin, stream)
            index += struct.pack("<Q", len(out)) + block[8:72]
            out += block
        for kind, text in ((2, self.symbols), (6, self.stacks), (8, self.code)):
            if text:
                block = self._block(kind, text.encode())
                index += struct.pack("<Q", len(out)) + block[8:72]
                out += block
        ledger = self._block(3, json.dumps({"entries": self.ledger}).encode())
        index += struct.pack("<Q", len(out)) + ledger[8:72]
        out += ledger
        place = struct.pack("<Q", len(out))
        out += self._block(4, index) + place + struct.pack("<II", crc32c(place), 0) + b"klogend\n"
        path.write_bytes(out)
        return path

    def _block(
        self, kind: int, payload: bytes, origin: Origin = 0, stream: Stream | None = None
    ) -> bytes:
        stream = stream or Stream()
        cpu, thread = (THREAD, origin) if isinstance(origin, tuple) else (origin, (0, 0, 0))
        times = (min(stream.times, default=0), max(stream.times, default=0))
        rest = struct.pack("<HBBIIHH", 72, kind, 0, len(payload), len(payload), cpu, 0)
        rest += struct.pack(
            "<QQQQIIII", *times, stream.first_serial, stream.lost, stream.events, *thread
        )
        return b"\xb5KLB" + struct.pack("<I", crc32c(rest + payload)) + padded(rest + payload)
