# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A program's shared file, read by the letter of program_shm.h and ring.h and by no code of the
recorder: an independent oracle for what programs log. It can also play the recorder: empty rings
and give their space back.
"""

import mmap
import os
import re
import struct
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

MAGIC = 0x6C7274636767766B
EVENTS_MAX = 1024
TEXT_MAX = 1 << 18
SLACK = 4096
NESTED = 1 << 16
GRID = 64
RING_CONTROL = 4096 + 2 * 8 * EVENTS_MAX
LOST_ID = 8
MARK_ID = 7

TYPES = {
    **{"bool": "?", "char": "b", "s8": "b", "int8_t": "b", "uchar": "B", "u8": "B", "uint8_t": "B"},
    **{"short": "h", "s16": "h", "int16_t": "h", "ushort": "H", "u16": "H", "uint16_t": "H"},
    **{"int": "i", "s32": "i", "int32_t": "i", "uint": "I", "u32": "I", "uint32_t": "I"},
    **{"long": "q", "longlong": "q", "s64": "q", "int64_t": "q"},
    **{"ulong": "Q", "ulonglong": "Q", "u64": "Q", "uint64_t": "Q"},
}
FIELD = re.compile(r"(string|\w+)\s*(?:\[((?:\.\.)?\d+)\])?\s+(\w+)\s*(?:\[(\d+)\])?")


@dataclass(frozen=True)
class Field:
    name: str
    offset: int
    format: str
    shape: str  # one, array, text, tail


@dataclass(frozen=True)
class Layout:
    """Where the fields of an event stand: as a C compiler would put them."""

    name: str
    fields: tuple[Field, ...]
    fixed: int

    @staticmethod
    def of(name: str, text: str) -> "Layout":
        fields, at = [], 8
        for scalar, before, field_name, after in FIELD.findall(text):
            count = 0 if before.startswith("..") else int(before or after or 0)
            if scalar == "string" and not count:
                shape, form = "tail", "H"
            elif scalar == "string" or (scalar == "char" and count):
                shape, form = "text", f"{count}s"
            else:
                shape, form = (
                    ("array", f"{count}{TYPES[scalar]}") if count else ("one", TYPES[scalar])
                )
            size = struct.calcsize(form[-1])
            at = (at + size - 1) // size * size
            fields.append(Field(field_name, at, "<" + form, shape))
            at += struct.calcsize("=" + form)
        return Layout(name, tuple(fields), at)

    def read(self, data, at: int) -> tuple[dict, int]:
        """The values of a record, and its bytes."""
        values, end = {}, self.fixed
        for f in self.fields:
            found = struct.unpack_from(f.format, data, at + f.offset)
            if f.shape == "tail":
                values[f.name] = bytes(data[at + end : at + end + found[0]])
                end += found[0]
            elif f.shape == "array":
                values[f.name] = list(found)
            else:
                values[f.name] = found[0].split(b"\0")[0] if f.shape == "text" else found[0]
        return values, (end + 7) // 8 * 8


OWN = {
    MARK_ID: Layout.of("MARK", "longlong number string text"),
    LOST_ID: Layout.of("LOST", "ulonglong count ulonglong since"),
}


def layouts(text: str) -> list[Layout]:
    """Of the events of a schema that has no units, decodings or probes."""
    text = re.sub(r'//[^\n]*|"[^"\n]*"', "", text)
    return [
        Layout.of(name, body) for name, body in re.findall(r"\bevent\s+(\w+)[^{]*\{([^}]*)\}", text)
    ]


@dataclass(frozen=True)
class Record:
    time: int
    name: str
    values: dict
    nested: bool


class TornError(AssertionError):
    """Something stands in a ring that is no record."""


class Ring:
    """One ring, and how far it has been read."""

    HEAD, LIMIT, MISSED, SINCE, HARD, NEST, FIRST = 0, 8, 16, 24, 32, 40, 64

    def __init__(self, shared: "Shared", base: int, size: int, nested: bool):
        self.shared, self.base, self.size, self.nested = shared, base, size, nested
        self.data = base + RING_CONTROL

    def word(self, offset: int) -> int:
        return self.shared.words[(self.base + offset) // 8]

    def put(self, offset: int, value: int) -> None:
        self.shared.words[(self.base + offset) // 8] = value

    def is_opened(self) -> bool:
        return self.word(self.HARD) != 0

    def lost(self) -> dict[str, int]:
        return self.shared.counters(self.base + 4096)

    def walk(self, at: int, end: int):
        """Positions after each whole record from `at` on, and the records; stops at one that is not
        complete.
        """
        while at < end:
            where = self.data + (at & (self.size - 1))
            header = self.shared.words[where // 8]
            if not header:
                return
            layout = self.shared.layouts.get(header & 0xFFFF)
            if layout is None:
                raise TornError(f"header {header:#x} at {at}, head {end}")
            values, size = layout.read(self.shared.map, where)
            at += size
            yield at, Record(header >> 16, layout.name, values, self.nested)

    def take(self) -> list[Record]:
        """Empties the ring as a recorder does: zeroes what it has read, then raises `hard` and
        `limit`.
        """
        if not self.is_opened():
            return []
        tail, head = self.word(self.HARD) - self.size, self.word(self.HEAD)
        if head - tail > self.size:
            raise TornError(f"head {head} is more than a ring after {tail}")
        at, records = tail, []
        for position, record in self.walk(tail, head):
            at = position
            records.append(record)
        if at > tail:
            self.zero(tail, at)
            self.put(self.HARD, at + self.size)
            self.put(self.LIMIT, at + self.size // 2)
        return records

    def zero(self, start: int, end: int) -> None:
        first, length = start & (self.size - 1), end - start
        here = min(length, self.size + SLACK - first)
        self.shared.map[self.data + first : self.data + first + here] = bytes(here)
        if first + length > self.size:
            # What ran over the end stands in the slack; the next record begins behind it.
            over = first + length - self.size
            self.shared.map[self.data : self.data + over] = bytes(over)

    def newest(self) -> list[Record]:
        """What a flight recorder's ring holds; its program must have stopped."""
        head, limit, part = self.word(self.HEAD), self.word(self.LIMIT), self.size // GRID
        oldest = max(0, limit - self.size)
        firsts = [self.word(self.FIRST + 8 * n) for n in range(GRID)]
        start = 0 if oldest == 0 else min(f for f in firsts if oldest <= f <= head)
        assert oldest == 0 or start < oldest + part + 1024
        return [record for _, record in self.walk(start, head)]


@dataclass(frozen=True)
class Slot:
    number: int
    use: int
    tid: int
    main: Ring
    nested: Ring


@dataclass
class Shared:
    """A shared file, mapped."""

    path: Path
    map: mmap.mmap = field(init=False)

    def __post_init__(self):
        fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self.map = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        self.words = memoryview(self.map).cast("Q")
        magic, self.version, self.pid, self.image, self.token, size = struct.unpack_from(
            "<QIIQQQ", self.map
        )
        self.slots, self.ring_size, self.slots_at, self.stride = struct.unpack_from(
            "<IIQQ", self.map, 40
        )
        self.clock, schemata, self.parent = struct.unpack_from("<III", self.map, 64)
        assert (magic, size) == (MAGIC, len(self.map)), self.path
        self.texts = dict(self.schema(n) for n in range(schemata))

    FAILED, ARMED, ALLOWED, FLIGHT, CALL, SCHEMATA = 76, 80, 84, 88, 92, 240

    def close(self):
        self.words.release()
        self.map.close()

    def word32(self, offset: int) -> int:
        return struct.unpack_from("<I", self.map, offset)[0]

    def put32(self, offset: int, value: int) -> None:
        struct.pack_into("<I", self.map, offset, value)

    def schema(self, n: int) -> tuple[str, tuple[int, str]]:
        base, events, text, length, name = struct.unpack_from(
            "<IIII48s", self.map, self.SCHEMATA + 64 * n
        )
        found = self.map[text : text + length].decode()
        assert len(layouts(found)) == events
        return name.split(b"\0")[0].decode(), (base, found)

    @cached_property
    def layouts(self) -> dict[int, Layout]:
        ids = dict(OWN)
        for base, text in self.texts.values():
            ids.update(enumerate(layouts(text), base))
        return ids

    ON = 240 + 64 * 15

    def on(self) -> set[str]:
        return {
            layout.name for number, layout in self.layouts.items() if self.map[self.ON + number]
        }

    def arm(
        self, pid: int = os.getpid(), allowed: int = 512, names: set[str] | None = None
    ) -> None:
        """As a recorder does it with a program that runs: `names` (or all) of the events."""
        self.put32(self.ALLOWED, allowed)
        self.put32(self.ARMED, pid)
        for number, layout in self.layouts.items():
            self.map[self.ON + number] = names is None or layout.name in names

    def disarm(self) -> None:
        for number in self.layouts:
            self.map[self.ON + number] = 0
        self.put32(self.ARMED, 0)

    def counters(self, base: int) -> dict[str, int]:
        words = struct.unpack_from(f"<{EVENTS_MAX}Q", self.map, base)
        return {self.layouts[number].name: n for number, n in enumerate(words) if n}

    def lost(self) -> dict[str, int]:
        """Events of threads without a ring."""
        return self.counters(4096 + TEXT_MAX)

    SLOTS = 4096 + TEXT_MAX + 8 * EVENTS_MAX

    def used_slots(self) -> list[Slot]:
        """All that ever were in use: no hole of the file is touched."""
        found = []
        for number in range(self.slots):
            use, tid, _, _ = struct.unpack_from("<IIII", self.map, self.SLOTS + 16 * number)
            if not use:
                break
            base = self.slots_at + number * self.stride
            main = Ring(self, base, self.ring_size, False)
            nested = Ring(self, base + RING_CONTROL + self.ring_size + SLACK, NESTED, True)
            found.append(Slot(number, use, tid, main, nested))
        return found

    def emptied(self, slot: Slot) -> None:
        self.put32(self.SLOTS + 16 * slot.number + 8, slot.use)


class Drainer:
    """Plays the recorder for all programs of a folder: what each stream (file, slot, use) has
    logged.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.files: dict[str, Shared] = {}
        self.records: dict[tuple, list[Record]] = defaultdict(list)
        self.tids: dict[tuple, int] = {}

    def round(self) -> int:
        """Empties each ring once; how many records there were."""
        for path in sorted(self.folder.iterdir()):
            if not path.name.startswith(".") and path.name not in self.files:
                self.files[path.name] = Shared(path)
        return sum(self.drain(name, shared) for name, shared in self.files.items())

    def drain(self, name: str, shared: Shared) -> int:
        taken = 0
        for slot in shared.used_slots():
            main, nested = slot.main.take(), slot.nested.take()
            key = (name, slot.number, (slot.use + 1) // 2)
            self.records[key] += main + nested
            self.tids[key] = slot.tid
            taken += len(main) + len(nested)
            # `use` was read before the rings: if it is even, they are empty now for good.
            if slot.use % 2 == 0:
                shared.emptied(slot)
        return taken

    def finish(self) -> None:
        """Until nothing is left."""
        while self.round():
            pass

    def streams(self, event: str) -> dict[tuple, list[dict]]:
        """The values of an event, by stream, in the order of time."""
        found = {}
        for key, records in self.records.items():
            ordered = sorted(records, key=lambda record: record.time)
            mine = [record.values for record in ordered if record.name == event]
            if mine:
                found[key] = mine
        return found

    def all(self, event: str) -> list[dict]:
        return [values for stream in self.streams(event).values() for values in stream]

    def counted(self, event: str) -> int:
        """Events that rings and files say are lost."""
        lost = sum(shared.lost().get(event, 0) for shared in self.files.values())
        for shared in self.files.values():
            for slot in shared.used_slots():
                lost += sum(
                    ring.lost().get(event, 0)
                    for ring in (slot.main, slot.nested)
                    if ring.is_opened()
                )
        return lost

    def close(self) -> None:
        for name, shared in self.files.items():
            shared.close()
            (self.folder / name).unlink(missing_ok=True)
