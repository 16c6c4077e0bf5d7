# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A reader of CTF 2 traces, after the published specification: what of it klogger's exports use,
and some more.

It reads the metadata without knowing what klogger writes: types and roles decide, not names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]


@dataclass
class Bits:
    """A place in a packet, counted in bits."""

    data: bytes
    at: int = 0

    def align(self, bits: int) -> None:
        self.at = -(-self.at // bits) * bits

    def take(self, bits: int) -> bytes:
        assert self.at % 8 == 0 and bits % 8 == 0, "this reader takes whole bytes"
        start, self.at = self.at // 8, self.at + bits
        assert self.at <= 8 * len(self.data), "the data ends in the middle of a field"
        return self.data[start : self.at // 8]


def read(cls: Json, bits: Bits, roles: Json) -> Any:
    """The field at a place; what has a role is also put into `roles`."""
    value = read_plain(cls, bits, roles)
    for role in cls.get("roles", []):
        roles[role] = value
    return value


def read_plain(cls: Json, bits: Bits, roles: Json) -> Any:
    match cls["type"]:
        case "structure":
            names = [m["name"] for m in cls.get("member-classes", [])]
            assert len(names) == len(set(names)), "two members have the same name"
            return {
                m["name"]: read(m["field-class"], bits, roles)
                for m in cls.get("member-classes", [])
            }
        case "static-length-array":
            return [read(cls["element-field-class"], bits, roles) for _ in range(cls["length"])]
        case "static-length-blob":
            bits.align(8)
            return bits.take(8 * cls["length"])
        case "null-terminated-string":
            bits.align(8)
            start = bits.at // 8
            end = bits.data.index(0, start)
            bits.at = 8 * (end + 1)
            return bits.data[start:end].decode()
        case "fixed-length-boolean":
            return bool(read_number(cls, bits, signed=False))
        case "fixed-length-signed-integer":
            return read_number(cls, bits, signed=True)
        case "fixed-length-unsigned-integer" | "fixed-length-bit-map":
            return read_number(cls, bits, signed=False)
        case other:
            raise ValueError(f"fields of type {other} are not in klogger's exports")


def read_number(cls: Json, bits: Bits, signed: bool) -> int:
    bits.align(cls.get("alignment", 1))
    order = {"little-endian": "little", "big-endian": "big"}[cls["byte-order"]]
    return int.from_bytes(bits.take(cls["length"]), order, signed=signed)  # type: ignore[arg-type]


def label(cls: Json, value: int) -> list[str]:
    """The names of a value: by mappings, or by flags."""
    if cls["type"] == "fixed-length-bit-map":
        flags = cls["flags"].items()
        return [
            name
            for name, ranges in flags
            if any(value >> bit & 1 for a, b in ranges for bit in range(a, b + 1))
        ]
    return [
        name
        for name, ranges in cls.get("mappings", {}).items()
        if any(a <= value <= b for a, b in ranges)
    ]


class Trace:
    """A directory: `metadata`, and data streams in all other files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fragments = list(self._fragments())
        assert self.fragments[0]["type"] == "preamble" and self.fragments[0]["version"] == 2
        of = lambda kind: [f for f in self.fragments if f["type"] == kind]  # noqa: E731
        (self.trace,) = of("trace-class")
        self.clocks = {c["id"]: c for c in of("clock-class")}
        self.streams = {s["id"]: s for s in of("data-stream-class")}
        self.events = {(e["data-stream-class-id"], e["id"]): e for e in of("event-record-class")}

    def _fragments(self) -> Iterator[Json]:
        text = (self.path / "metadata").read_text()
        assert text.startswith("\x1e"), "a JSON text sequence begins with RS"
        for part in text.split("\x1e")[1:]:
            assert part.endswith("\n")
            yield json.loads(part)

    def packets(self) -> Iterator[tuple[Json, Json, Json, list[Json]]]:
        """(roles of header and context, header, context, events) of all packets, file by file."""
        for file in sorted(p for p in self.path.iterdir() if p.name != "metadata"):
            rest = file.read_bytes()
            while rest:
                bits, roles = Bits(rest), {}
                header = read(self.trace["packet-header-field-class"], bits, roles)
                stream = self.streams[roles["data-stream-class-id"]]
                context = read(stream["packet-context-field-class"], bits, roles)
                assert roles["packet-magic-number"] == 0xC1FC1FC1
                assert list(roles["metadata-stream-uuid"]) == self.fragments[0]["uuid"]
                assert roles["packet-content-length"] <= roles["packet-total-length"]
                bits.data = rest[: roles["packet-content-length"] // 8]
                yield roles, header, context, list(self._records(bits, stream))
                rest = rest[roles["packet-total-length"] // 8 :]

    def _records(self, bits: Bits, stream: Json) -> Iterator[Json]:
        while bits.at < 8 * len(bits.data):
            roles: Json = {}
            read(stream["event-record-header-field-class"], bits, roles)
            cls = self.events[stream["id"], roles["event-record-class-id"]]
            common = read(stream["event-record-common-context-field-class"], bits, roles)
            payload = read(cls["payload-field-class"], bits, roles)
            yield {
                "class": cls,
                "time": roles["default-clock-timestamp"],
                "common": common,
                "payload": payload,
            }


__all__ = ["Trace", "label"]
