# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Sizes, offsets, pointers that are counted on, elements of arrays, bit fields: as the kernel says
itself.

bpftool tells what is right.
"""

import functools
import json
import subprocess
from collections.abc import Iterator

import pytest
from oracles import Log

WHERE = (
    "probe tracepoint sched_switch(bool preempt, struct task_struct *prev, struct task_struct"
    " *next)"
)
COUNTED = """
struct together { struct list_head one; atomic_t two[3]; };
static long a_step(struct request *r) { return (long)(r + 1) - (long)r; }
"""
# What C says: what it is by the kernel's type information.
SIZES = {
    "sizeof(struct request)": lambda: size("request"),
    "a_step(&own)": lambda: size("request"),
    "sizeof(*prev)": lambda: size("task_struct"),
    "(long)(prev + 2) - (long)prev": lambda: 2 * size("task_struct"),
    "(long)&prev[3] - (long)prev": lambda: 3 * size("task_struct"),
    "({ struct task_struct *p = prev; p++; (long)p - (long)prev; })": lambda: size("task_struct"),
    "__builtin_offsetof(struct task_struct, tgid)": lambda: offset("task_struct", "tgid"),
    "__builtin_offsetof(struct task_struct, se.vruntime)": lambda: (
        offset("task_struct", "se") + offset("sched_entity", "vruntime")
    ),
    "sizeof(struct list_head)": lambda: size("list_head"),
    "sizeof(prev->mm->rss_stat[0])": lambda: size("percpu_counter"),
    "(long)&prev->mm->rss_stat[1] - (long)&prev->mm->rss_stat": lambda: size("percpu_counter"),
    "sizeof(struct together)": lambda: size("list_head") + 16,
    "sizeof(spinlock_t)": lambda: size("spinlock"),
    "sizeof(struct hrtimer_cpu_base)": lambda: size("hrtimer_cpu_base"),
    "sizeof(enum hrtimer_restart)": lambda: 4,
}
FRAME = "struct request own;"


@functools.cache
def types() -> dict[int, dict]:
    command = ["bpftool", "btf", "dump", "-j", "file", "/sys/kernel/btf/vmlinux"]
    dumped = subprocess.run(command, capture_output=True, check=True).stdout
    return {found["id"]: found for found in json.loads(dumped)["types"]}


@functools.cache
def structure(name: str) -> dict:
    return next(t for t in types().values() if t["kind"] == "STRUCT" and t["name"] == name)


def size(name: str) -> int:
    return structure(name)["size"]


def offset(name: str, member: str) -> int:
    return next(at for named, at, _ in members(structure(name)) if named == member) // 8


def members(of: dict, start: int = 0) -> Iterator[tuple[str, int, int]]:
    """Name, place in bits, and bits if it is a bit field; also of structures without a name."""
    for member in of["members"]:
        at, inner = start + member["bits_offset"], types()[member["type_id"]]
        if member["name"] == "(anon)" and inner["kind"] in ("STRUCT", "UNION"):
            yield from members(inner, at)
        yield member["name"], at, member.get("bitfield_size", 0)


def flags() -> list[tuple[str, int]]:
    """The bit fields of a thread, of one bit each, with their places."""
    return [(name, at) for name, at, bits in members(structure("task_struct")) if bits == 1]


@pytest.fixture
def logged(recorder):
    """The events of a schema whose body is C."""

    def run(event: str, body: str, code: str = "") -> Log:
        schema = recorder.dir / "types.klogger"
        schema.write_text(f"{event}\ncode {{ {code} }}\n{WHERE} {{ {body} }}\n")
        done, path = recorder.run(
            "-s", schema, "--no-calibrate", "--", "sh", "-c", "sleep 0.1; ls / >/dev/null"
        )
        assert done.code == 0, done.err
        return Log(recorder.klogger, path)

    return run


def test_sizes_and_places(logged):
    fields = [f"v{i}" for i in range(len(SIZES))]
    event = f"event SIZES scope all {{ {' '.join(f'long {name}' for name in fields)} }}"
    log = logged(event, f"{FRAME} klogger(SIZES, {', '.join(SIZES)});", COUNTED)
    found = log.rows(f"SELECT DISTINCT {', '.join(fields)} FROM SIZES")
    assert [dict(zip(SIZES, row, strict=True)) for row in found] == [
        {c: right() for c, right in SIZES.items()}
    ]


def test_elements_of_an_array_in_a_structure(logged):
    """Each by its index, and by where it is."""
    at = offset("mm_struct", "rss_stat")
    step, inner = size("percpu_counter"), offset("percpu_counter", "count")
    body = f"""
        struct mm_struct *mm = next->mm;
        long long sum[3] = {{0}}, raw[3] = {{0}};

        if (!mm)
            return;
        for (int i = 0; i < 3; i++) {{
            sum[i] = mm->rss_stat[i].count;
            klogger_read(&raw[i], (char *)mm + {at} + i * {step} + {inner}, 8);
        }}
        klogger(RSS, sum, raw);
    """
    log = logged("event RSS scope all { long sum[3] long raw[3] }", body)
    rows = log.rows("SELECT sum, raw FROM RSS")
    assert len(rows) > 3
    # Another CPU may count in between.
    assert sum(a == b for a, b in rows) >= len(rows) - 2
    assert any(any(a) for a, _ in rows)


def test_bit_fields(logged):
    chosen = flags()[:14]
    assert len(chosen) > 5
    event = (
        "event BITS scope all { "
        + " ".join(f"uchar {name} uchar raw_{name}" for name, _ in chosen)
        + " }"
    )
    read = "".join(
        f"klogger_read(&raw[{i}], (char *)prev + {bit // 8}, 1);"
        for i, (_, bit) in enumerate(chosen)
    )
    values = ", ".join(
        f"prev->{name}, raw[{i}] >> {bit % 8} & 1" for i, (name, bit) in enumerate(chosen)
    )
    log = logged(
        event, f"unsigned char raw[{len(chosen)}] = {{0}}; {read} klogger(BITS, {values});"
    )
    columns = ", ".join(f"{name}, raw_{name}" for name, _ in chosen)
    rows = log.rows(f"SELECT {columns} FROM BITS")
    for at, (name, _) in enumerate(chosen):
        assert [row[2 * at] for row in rows] == [row[2 * at + 1] for row in rows], name
    assert any(any(row) for row in rows)
