# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The functions that make texts of values give what `klogger cat` prints."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from logfile import LogFile

import klogger
from klogger import program

# Of each field of the event: its type and decoding, the function, and values.
V6 = [
    bytes.fromhex(text)
    for text in (
        "00000000000000000000000000000000",
        "00000000000000000000000000000001",
        "20010db8000000000000000000000001",
        "20010000000000010000000000000001",
        "fe800000000000000000000000000000",
        "00010000000100000001000000010000",
        "00000000000000000000ffff01020304",
        "0102030405060708090a0b0c0d0e0f10",
    )
]
SIDES: list[int | list[int] | bytes] = [
    struct.pack("<HH16s", family, port, bytes.fromhex(address))
    for family, port, address in (
        (2, 80, "7f000001"),
        (2, 65535, "c00002ff"),
        (10, 443, V6[0].hex()),
        (10, 8080, "00000000000000000000ffff01020304"),
        (10, 0, "20010db8000000000000000000000001"),
        (1, 0, ""),
        (0, 0, ""),
        (17, 0, "01"),
    )
]
FIELDS: dict[str, tuple[str, str, list[int | list[int] | bytes]]] = {
    "plain_hex": ("u64:hex", "hex({})", [0, 255, 2**64 - 1, 2**63]),
    "signed_hex": ("i16:hex", "hex({})", [0, -1, -32768, 5]),
    "flag_hex": ("bool:hex", "hex({})", [0, 1]),
    "many_hex": ("u16[3]:hex", "hex({})", [[0, 255, 65535]]),
    "mode": ("u16:octal", "octal({})", [0, 0o644, 0o4755, 65535]),
    "mode_signed": ("i16:octal", "octal({})", [0, -1, 5]),
    "modes": ("u32[2]:octal", "octal({})", [[0o27, 0]]),
    "who": ("i32:thread", "thread({}, time)", [10, 20, 30, 0]),
    "where_at": ("u64:code", "code({})", [0x1000, 0x10FF, 0x2010, 0x200000, 7, 2**64 - 1]),
    "path": ("u64[3]:code", "code({})", [[0x1001, 0, 0x2010]]),
    "lock": ("u64:data", "data({}, tgid, time)", [0x1000, 0x1040, 0x2000, 0, 2**64 - 4096]),
    "trace": ("u32:stack", "stack({})", [7, 8]),
    "disk": ("u32:device", "device({})", [8 << 20 | 1, 0, 2**32 - 1]),
    "disk_signed": ("i64:device", "device({})", [8 << 20 | 1, -1]),
    "peer": ("u32:ip", "ip({})", [0x0100007F, 0, 2**32 - 1]),
    "peer_signed": ("i32:ip", "ip({})", [0x0100007F, -1]),
    "peer_bytes": ("u8[4]:ip", "ip({})", [b"\x7f\x00\x00\x01", b"\xc0\x00\x02\xff"]),
    "peer_six": ("u8[16]:ip", "ip({})", list(V6)),
    "side": ("u8[20]:endpoint", "endpoint({})", SIDES),
    "result": ("i64:errno", "errno({})", [-2, -11, -35, -95, -133, -9999, 0, 17]),
    "result_small": ("i8:errno", "errno({})", [-2, 3]),
    "results": ("i32[2]:errno", "errno({})", [[-2, 7]]),
    "op": ("i32:operation", "operation({})", [0, 1, -1, 99]),
    "op_unsigned": ("u64:operation", "operation({})", [1, 2**64 - 1]),
    "ops": ("u8[3]:operation", "operation({})", [[0, 1, 9]]),
    "rights": ("u16:rights", "rights({})", [0, 1, 3, 9, 8]),
    "rights_signed": ("i16:rights", "rights({})", [3, -1]),
    "rights_all": ("u8[2]:rights", "rights({})", [[3, 8]]),
}
DECODINGS = [
    {"name": "operation", "flags": False, "values": [[0, "read"], [1, "write"],
                                                     [2**64 - 1, "none of them"]]},
    {"name": "rights", "flags": True, "values": [[1, "r"], [2, "w"], [4, "x"]]},
]  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = LogFile(preamble={"decodings": DECODINGS})
    log.built_in()
    log.symbols = "1000 alpha\n2000 beta [module]\n"
    log.stacks = "7 inner+0x1f outer+0x2\n"
    log.code = (
        "f 0 - - /bin/prog\nd 10 1000 0 0@0+1000\t0\ta lock\nd 10 1000 9999999 -\n"
        "d 10 1040 0 0@0+1040\t40\ttable\nd 20 2000 0 0@0+2000\t0\tother\n"
        "d 0 fffffffffffff000 0 -\t8\ttasks\n"
    )
    log.add(65535, 0, "KLOGGER_START")
    for pid, comm in ((10, b"make"), (20, b'a "b"\\c')):
        log.add(65535, 0, "PROCESS_EXISTS", pid=pid, tgid=pid, comm=comm)
    for number, (name, (kind, _, values)) in enumerate(FIELDS.items()):
        log.event(name.upper(), f"x:{kind}", "tgid:i32", schema="own")
        for value in values:
            log.add(0, 1000 + number, name.upper(), x=value, tgid=10)
    return log.write(tmp_path_factory.mktemp("decodings") / "x.klog")


@pytest.mark.parametrize("name", FIELDS)
def test_a_function_gives_what_cat_prints(log: Path, name: str) -> None:
    text = program.klogger("cat", str(log), "--event", name.upper())
    printed = re.findall(r" x=(.*) tgid=10$", text, re.MULTILINE)
    kind, function, values = FIELDS[name]
    assert len(printed) == len(values), text
    with klogger.open(log, locked=True) as opened:
        query = f"SELECT {function.format('x')} FROM {name.upper()} ORDER BY serial"
        assert [row[0] for row in opened.rows(query)] == printed, kind


def test_each_decoding_has_a_function_and_a_case() -> None:
    source = (Path(__file__).parents[2] / "crates/log/src/decode.rs").read_text()
    shows = re.search(r"enum Show \{(.*?)\}", source, re.DOTALL)
    assert shows is not None
    kinds = set(re.findall(r"(\w+)(?:\(\w+\))?,", shows[1])) - {"Plain", "Table"}
    assert kinds == {kind.rpartition(":")[2].capitalize() for kind, _, _ in FIELDS.values()} - {
        "Operation",
        "Rights",
    }


def test_values_without_a_text(log: Path) -> None:
    with klogger.open(log, locked=True) as opened:
        numbers = ("hex", "octal", "code", "symbol", "stack", "device", "ip", "endpoint")
        calls = (*numbers, "errno", "operation", "rights")
        query = ", ".join(f"{name}(NULL)" for name in calls)
        assert opened.rows(f"SELECT {query}, thread(NULL, 0)") == [(None,) * (len(calls) + 1)]
        query = "SELECT symbol(4097), symbol(8208), symbol(7), hex('klogger')"
        assert opened.rows(query) == [("alpha", "beta [module]", None, "6B6C6F67676572")]


def test_arguments_whose_type_duckdb_does_not_know(log: Path) -> None:
    """It binds what stands around an aggregate before the aggregate itself."""
    with klogger.open(log, locked=True) as opened:
        query = "SELECT hex(max(x)), rights(min(x)), ip(max(x)), code(min(x)) FROM RIGHTS"
        assert opened.rows(query) == [("0x9", "0", "9.0.0.0", "0x0")]
        query = "SELECT hex(any_value(x)), errno(any_value(x)) FROM RESULTS"
        assert opened.rows(query) == [("[0xfffffffffffffffe,0x7]", "[-ENOENT,7]")]
