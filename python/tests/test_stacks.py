# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The exports that are made of stacks: of one log, made by hand, each says the same, and what is
missing is said.
"""

from __future__ import annotations

import gzip
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from logfile import RECORDER, START, LogFile

from klogger.program import find_klogger

FORMATS = ("folded", "pprof", "firefox", "speedscope")
KERNEL = "7 schedule+0x1f pipe_read+0x2\n8 schedule+0x20 pipe_read+0x2\n"
# 65537 is whole; of 65538 the outermost frame is missing, of 65539 one in the middle; 65540 is cut.
CODE = (
    "f 0 ab - /usr/bin/prog\nf 1 - - /lib/libc.so.6\n"
    "s 65537 9 end 0+10 0+20\ng 65537\n"
    "s 65538 9 - 0+10\ng 65538 0\n"
    "s 65539 9 - 0+10 0+30 1+30\ng 65539 1\n"
    "s 65540 9 cut 0+10\n"
    "n 0+10 0\twork;er\t/src/p.c:3\n"
    "n 0+20 4\tmain\t/src/p.c:30\tinline\t/src/p.c:9\n"
    "n 0+30 4\tmain\t/src/p.c:40\n"
)
WAIT: dict[str, Any] = {"name": "wait", "by": [], "on": "thread"}


def klogger(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [find_klogger(), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def sampled() -> LogFile:
    log = LogFile(stacks=KERNEL, code=CODE)
    log.built_in("PROCESS_EXISTS", "LOST", "MARK", "PROCESS_RENAME", "PROCESS_EXIT")
    log.event("SAMPLED", "period:u64", "stack:u32:stack", "user_stack:u32:stack",
              "tid:i32:thread", schema="own")  # fmt: skip
    # As a schema has it: `period in ns`.
    log.events[-1]["fields"][0]["unit"] = "ns"
    log.add(RECORDER, 0, "PROCESS_EXISTS", pid=10, tgid=10, comm=b"prog")
    log.add(RECORDER, 1, "PROCESS_EXISTS", pid=11, tgid=10, comm=b"worker")
    for time, tid, period, kernel, user in (
        (100, 10, 1000, 0, 65537),
        (200, 10, 2000, 0, 65537),
        (300, 11, 4000, 7, 65537),
        (400, 11, 8000, 8, 65538),
        (500, 11, 16000, 0, 65539),
        (600, 11, 32000, 0, 65540),
        (700, 11, 64000, 99, 0),
        (800, 10, 128000, 0, 0),
    ):
        log.add(0, time, "SAMPLED", period=period, stack=kernel, user_stack=user, tid=tid)
    log.add(RECORDER, 350, "MARK", number=1, text=b"here")
    return log


EXPECTED = {
    ("prog", "main", "inline_[i]", "work:er"): (2, 3000),
    ("worker", "main", "inline_[i]", "work:er", "pipe_read_[k]", "schedule_[k]"): (1, 4000),
    ("worker", "[unknown]", "work:er", "pipe_read_[k]", "schedule_[k]"): (1, 8000),
    ("worker", "libc.so.6+0x31", "[unknown]", "main", "work:er"): (1, 16000),
    ("worker", "[not kept]", "work:er"): (1, 32000),
    ("worker", "[stack not in the log]"): (1, 64000),
    ("prog", "[no stack]"): (1, 128000),
}


def exported(log: Path, to: str, *more: str) -> Path:
    out = log.with_suffix(f".{to}")
    done = klogger("export", log, "--to", to, "-o", out, "--force", *more)
    assert done.returncode == 0, done.stderr
    return out


def folded(file: Path) -> dict[tuple[str, ...], int]:
    lines = [line.rpartition(" ") for line in file.read_text().splitlines()]
    found = {tuple(path.split(";")): int(weight) for path, _, weight in lines}
    assert len(found) == len(lines)
    return found


def test_folded(tmp_path: Path) -> None:
    found = folded(exported(sampled().write(tmp_path / "x.klog"), "folded"))
    assert found == {path: weight for path, (_, weight) in EXPECTED.items()}


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def message(data: bytes) -> dict[int, list[Any]]:
    """The fields of a message of protobuf, by number."""
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value: Any
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            assert key & 7 == 2
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def packed(found: list[Any]) -> list[int]:
    values: list[int] = []
    for data in found:
        at = 0
        while at < len(data):
            value, at = varint(data, at)
            values.append(value)
    return values


def pprof(file: Path) -> tuple[dict[tuple[str, ...], list[int]], dict[str, Any]]:
    """The values by stack, as pprof's .proto file says; and about the profile."""
    profile = message(gzip.decompress(file.read_bytes()))
    texts = [text.decode() for text in profile[6]]
    assert texts[0] == ""
    one = lambda m, field: m.get(field, [0])[0]  # noqa: E731
    functions = {one(m, 1): texts[one(m, 2)] for m in map(message, profile.get(5, []))}
    mappings = {one(m, 1): texts[one(m, 5)] for m in map(message, profile.get(3, []))}
    locations = {}
    for place in map(message, profile.get(4, [])):
        lines = [functions[one(message(line), 1)] for line in place[4]]
        locations[one(place, 1)] = (lines, mappings.get(one(place, 2), ""))
    found: dict[tuple[str, ...], list[int]] = {}
    for sample in map(message, profile.get(2, [])):
        frames = [locations[number] for number in packed(sample[1])]
        path = [line for lines, _ in frames for line in lines][::-1]
        labels = {texts[one(m, 1)]: texts[one(m, 2)] or one(m, 3)
                  for m in map(message, sample[3])}  # fmt: skip
        found[(labels["thread"], *path)] = packed(sample[2])
        assert labels["pid"] == 10
        assert labels["tid"] in (10, 11)
    types = [tuple(texts[one(message(m), i)] for i in (1, 2)) for m in profile[1]]
    comments = [texts[number] for number in packed(profile.get(13, []))]
    return found, {"types": types, "comments": comments, "mappings": set(mappings.values())}


def bare(*marks: str) -> dict[tuple[str, ...], tuple[int, int]]:
    """What is expected, with names as they are: without these marks, and with separators."""

    def name(frame: str) -> str:
        for mark in marks:
            frame = frame.removesuffix(mark)
        return frame.replace("work:er", "work;er")

    return {tuple(map(name, path)): sums for path, sums in EXPECTED.items()}


def test_pprof(tmp_path: Path) -> None:
    found, about = pprof(exported(sampled().write(tmp_path / "x.klog"), "pprof"))
    assert found == {path: list(sums) for path, sums in bare("_[k]", "_[i]").items()}
    assert about["types"] == [("samples", "count"), ("cpu", "nanoseconds")]
    assert about["mappings"] == {"/usr/bin/prog", "/lib/libc.so.6", "[kernel.kallsyms]"}
    assert about["comments"] == [
        "97.3 % have frames in brackets, in the place of some that are not known"
    ]


def is_table(table: dict[str, Any]) -> bool:
    return {len(column) for name, column in table.items() if isinstance(column, list)} <= {
        table["length"]
    }


def test_firefox(tmp_path: Path) -> None:
    """By the types of version 60 of the format."""
    profile = json.loads(exported(sampled().write(tmp_path / "x.klog"), "firefox").read_text())
    assert profile["meta"]["preprocessedProfileVersion"] == 60
    shared = profile["shared"]
    texts = shared["stringArray"]
    tables = [table for name, table in shared.items() if name != "stringArray"]
    assert all(map(is_table, tables))
    stacks, frames, functions = (shared[f"{name}Table"] for name in ("stack", "frame", "func"))

    def path(stack: int | None) -> tuple[str, ...]:
        if stack is None:
            return ()
        above = stacks["prefix"][stack]
        assert above is None or above < stack
        name = functions["name"][frames["func"][stacks["frame"][stack]]]
        return (*path(above), texts[name])

    found: Counter[tuple[str, ...]] = Counter()
    for thread in profile["threads"]:
        samples = thread["samples"]
        assert is_table(samples)
        assert is_table(thread["markers"])
        assert samples["weightType"] == "tracing-ms"
        assert samples["time"] == sorted(samples["time"])
        assert (thread["pid"], thread["processName"]) == ("10", "prog")
        for stack, weight in zip(samples["stack"], samples["weight"], strict=True):
            found[(thread["name"], *path(stack))] += round(weight * 1e6)
    assert found == {path: weight for path, (_, weight) in bare("_[k]", "_[i]").items()}
    (marks,) = [t["markers"] for t in profile["threads"] if t["markers"]["length"]]
    assert [texts[name] for name in marks["name"]] == ["here"]
    assert marks["startTime"] == [0.00035]
    files = {texts[name] for name in shared["sources"]["filename"]}
    assert files == {"/src/p.c", "/lib/libc.so.6"}


def test_firefox_has_each_sample_at_its_time(tmp_path: Path) -> None:
    """A range of time that is selected there has the samples that were taken in it."""
    profile = json.loads(exported(sampled().write(tmp_path / "x.klog"), "firefox").read_text())
    found = {
        thread["name"]: (thread["samples"]["time"], thread["samples"]["weight"])
        for thread in profile["threads"]
    }
    # Those at 100 and 200 have the same stack.
    assert found["prog"] == ([0.0001, 0.0002, 0.0008], [0.001, 0.002, 0.128])
    assert found["worker"][0] == [0.0003, 0.0004, 0.0005, 0.0006, 0.0007]
    # The last one is before the end: else it would not be shown.
    assert profile["meta"]["profilingEndTime"] > 0.0008


def test_speedscope(tmp_path: Path) -> None:
    """As https://www.speedscope.app/file-format-schema.json says."""
    file = json.loads(exported(sampled().write(tmp_path / "x.klog"), "speedscope").read_text())
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = file["shared"]["frames"]
    assert {"name": "inline", "file": "/src/p.c", "line": 9} in frames
    found: Counter[tuple[str, ...]] = Counter()
    for profile in file["profiles"]:
        assert (profile["type"], profile["unit"]) == ("sampled", "nanoseconds")
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        program = profile["name"].partition(" (")[0]
        # Only the order is in the format: equal stacks that follow each other are one.
        assert len(profile["samples"]) == {"prog": 2, "worker": 5}[program]
        for stack, weight in zip(profile["samples"], profile["weights"], strict=True):
            found[(program, *(frames[i]["name"] for i in stack))] += weight
    assert found == {path: weight for path, (_, weight) in bare("_[i]").items()}


def waits(log: LogFile) -> None:
    """Declares a slice by thread whose beginning has a stack."""
    log.built_in("PROCESS_EXISTS", "LOST", "PROCESS_EXIT")
    log.event("ASLEEP", "pid:i32:thread", "stack:u32:stack", schema="own", about=["pid"],
              begins=[WAIT])  # fmt: skip
    log.event("AWAKE", "pid:i32:thread", schema="own", about=["pid"], ends=[WAIT])
    log.add(RECORDER, 0, "PROCESS_EXISTS", pid=10, tgid=10, comm=b"prog")
    log.add(RECORDER, 0, "PROCESS_EXISTS", pid=11, tgid=10, comm=b"other")


def test_the_weight_of_a_slice_is_its_duration(tmp_path: Path) -> None:
    log = LogFile(stacks=KERNEL)
    waits(log)
    # It ends on another CPU; the second beginning ends the slice before it; an exit does.
    log.add(0, 100, "ASLEEP", pid=10, stack=7)
    log.add(1, 130, "AWAKE", pid=10)
    log.add(1, 140, "AWAKE", pid=10)
    log.add(0, 200, "ASLEEP", pid=10, stack=7)
    log.add(0, 250, "ASLEEP", pid=10, stack=8)
    log.add(1, 350, "AWAKE", pid=10)
    log.add(0, 400, "ASLEEP", pid=11, stack=7)
    log.add(0, 407, "PROCESS_EXIT", pid=11)
    # A thread that has ended does not come back.
    log.add(0, 410, "ASLEEP", pid=11, stack=7)
    file = log.write(tmp_path / "x.klog")
    found = folded(exported(file, "folded"))
    path = ("pipe_read_[k]", "schedule_[k]")
    assert found == {("prog", *path): 30 + 50 + 100, ("other", *path): 7}
    _, about = pprof(exported(file, "pprof"))
    assert about["types"] == [("samples", "count"), ("wait", "nanoseconds")]
    assert about["comments"] == []


def notes(stderr: str) -> list[str]:
    found = [line.partition("note: ") for line in stderr.splitlines()]
    return [text for _, mark, text in found if mark]


def test_slices_without_an_end_are_said(tmp_path: Path) -> None:
    log = LogFile(stacks=KERNEL)
    waits(log)
    log.add(0, 100, "ASLEEP", pid=10, stack=7)
    log.add(1, 150, "LOST", count=3, since=START + 120)
    log.add(0, 200, "AWAKE", pid=10)
    log.add(0, 300, "ASLEEP", pid=10, stack=7)
    log.add(0, 310, "AWAKE", pid=10)
    log.add(0, 400, "ASLEEP", pid=10, stack=7)
    file = log.write(tmp_path / "x.klog")
    out = tmp_path / "x.folded"
    done = klogger("export", file, "--to", "folded", "-o", out)
    assert done.returncode == 0
    assert folded(out) == {("prog", "pipe_read_[k]", "schedule_[k]"): 10}
    assert notes(done.stderr) == [
        "weights are ns of wait",
        "1 of 'wait' are not counted: events were lost before they ended",
        "1 of 'wait' are not counted: they had not ended with the log",
    ]


@pytest.mark.parametrize("to", FORMATS)
def test_a_log_without_samples_is_said_to_be(tmp_path: Path, to: str) -> None:
    """All its threads waited all the time."""
    log = LogFile(stacks=KERNEL)
    waits(log)
    log.add(0, 100, "ASLEEP", pid=10, stack=7)
    log.event("SEEN", "stack:u32:stack", schema="own")
    file, out = log.write(tmp_path / "x.klog"), tmp_path / "out"
    said = {}
    for event in ("ASLEEP", "SEEN"):
        done = klogger("export", file, "--to", to, "--event", event, "-o", out, "--force")
        assert done.returncode == 0, done.stderr
        said[event] = [text for text in notes(done.stderr) if not text.startswith("weights")]
        empty(out, to)
    assert said == {
        "ASLEEP": [
            "the export is empty: no ASLEEP ended in this log",
            "1 of 'wait' are not counted: they had not ended with the log",
        ],
        "SEEN": ["the export is empty: no SEEN is in this log"],
    }


def empty(file: Path, to: str) -> None:
    """A whole file, of one thread if its reader needs one."""
    if to == "folded":
        assert file.read_bytes() == b""
    elif to == "pprof":
        assert pprof(file)[0] == {}
    elif to == "firefox":
        (thread,) = json.loads(file.read_text())["threads"]
        assert (thread["name"], thread["samples"]["length"]) == ("no samples", 0)
        assert is_table(thread["samples"])
    else:
        (profile,) = json.loads(file.read_text())["profiles"]
        assert (profile["samples"], profile["weights"], profile["endValue"]) == ([], [], 0)


def test_folded_says_what_its_weights_are(tmp_path: Path) -> None:
    """The file does not. An older log may have the events without the slice."""
    counts = LogFile(stacks=KERNEL)
    counts.event("ASLEEP", "stack:u32:stack", schema="own")
    counts.add(0, 100, "ASLEEP", stack=7)
    for log, unit in ((counts, "events"), (sampled(), "ns of cpu")):
        file = log.write(tmp_path / "x.klog")
        for to in FORMATS:
            done = klogger("export", file, "--to", to, "-o", tmp_path / "out", "--force")
            said = [text for text in notes(done.stderr) if text.startswith("weights")]
            assert said == ([f"weights are {unit}"] if to == "folded" else [])


def test_missed_samples_are_in_the_next_period(tmp_path: Path) -> None:
    """No time is lost with them; but where events are counted, they are missing."""

    def said(log: LogFile, *keys: str) -> list[str]:
        log.ledger = [
            {"key": key, "severity": "loss", "source": "recording", "count": 5, "text": key}
            for key in keys
        ]
        _, about = pprof(exported(log.write(tmp_path / "x.klog"), "pprof"))
        return [text for text in about["comments"] if "ledger" in text]

    counts = sampled()
    del counts.events[-1]["fields"][0]["unit"]
    assert said(sampled(), "sample_missed") == []
    assert said(sampled(), "sample_missed", "ring_full") == ["losses in the log's ledger: 5"]
    assert said(counts, "sample_missed") == ["losses in the log's ledger: 5"]


def test_a_process_has_its_last_name(tmp_path: Path) -> None:
    """Also if its first thread, which has the name, has no sample under it."""
    log = sampled()
    log.add(RECORDER, 900, "PROCESS_RENAME", pid=10, comm=b"later")
    profile = json.loads(exported(log.write(tmp_path / "x.klog"), "firefox").read_text())
    assert [(t["name"], t["processName"]) for t in profile["threads"]] == [
        ("prog", "later"),
        ("worker", "later"),
    ]


@pytest.mark.parametrize(("comm", "command"), [
    (b"libuser-program", ""), (b"other", "/opt/libuser-program-2 -v")
])  # fmt: skip
def test_the_first_file_of_pprof_is_the_program(tmp_path: Path, comm: bytes, command: str) -> None:
    """pprof prints it as that. By the name of the process, which the kernel cuts, or its command.
    The first frames are of the kernel and of a library.
    """
    code = (
        "f 0 ab - /opt/libuser-program-2\nf 1 - - /lib/libc.so.6\n"
        "s 65537 9 end 1+30\ns 65538 9 end 0+10 1+30\n"
    )
    log = LogFile(stacks=KERNEL, code=code)
    log.built_in("PROCESS_EXISTS")
    log.event("SEEN", "stack:u32:stack", "user_stack:u32:stack", "tid:i32:thread",
              schema="own", about=["tid"])  # fmt: skip
    log.add(RECORDER, 0, "PROCESS_EXISTS", pid=10, tgid=10, comm=comm, command=command.encode())
    log.add(0, 100, "SEEN", stack=7, user_stack=65537, tid=10)
    log.add(0, 200, "SEEN", stack=7, user_stack=65538, tid=10)
    profile = message(gzip.decompress(
        exported(log.write(tmp_path / "x.klog"), "pprof").read_bytes()))  # fmt: skip
    first = message(profile[3][0])
    assert (first[1], profile[6][first[5][0]]) == ([1], b"/opt/libuser-program-2")
    assert len(profile[3]) == 3


def test_roles_of_a_switch(tmp_path: Path) -> None:
    log = LogFile(stacks=KERNEL)
    log.built_in("PROCESS_EXISTS")
    log.event("OUT", "pid:i32:thread", "stack:u32:stack", schema="own", about=["pid"],
              role="switch_out")  # fmt: skip
    log.event("IN", "pid:i32:thread", schema="own", about=["pid"], role="switch_in")
    log.add(RECORDER, 0, "PROCESS_EXISTS", pid=10, tgid=10, comm=b"prog")
    log.add(0, 100, "OUT", pid=10, stack=7)
    log.add(1, 142, "IN", pid=10)
    found = folded(exported(log.write(tmp_path / "x.klog"), "folded"))
    assert found == {("prog", "pipe_read_[k]", "schedule_[k]"): 42}


@pytest.mark.parametrize("to", FORMATS)
def test_which_event(tmp_path: Path, to: str) -> None:
    def refused(log: LogFile, *more: str) -> str:
        file = log.write(tmp_path / "x.klog")
        done = klogger("export", file, "--to", to, "-o", tmp_path / "out", *more)
        assert done.returncode == 2
        assert not (tmp_path / "out").exists()
        return " ".join(done.stderr.split())

    none = LogFile()
    none.built_in()
    assert "no event of this log has a stack" in refused(none)
    several = LogFile(stacks=KERNEL)
    waits(several)
    several.event("SEEN", "stack:u32:stack", schema="own")
    several.add(0, 100, "SEEN", stack=7)
    text = refused(several)
    assert "choose one with --event: ASLEEP (time of 'wait'), SEEN (events)" in text
    assert "this log has no event 'AWAKE' with stacks" in refused(several, "--event", "AWAKE")
    file = several.write(tmp_path / "x.klog")
    # Case does not count, as in other commands.
    for name in ("SEEN", "seen"):
        assert exported(file, to, "--event", name).stat().st_size > 0


def test_other_formats_have_all_events(tmp_path: Path) -> None:
    file = sampled().write(tmp_path / "x.klog")
    for to in ("perfetto", "json", "parquet", "ctf"):
        done = klogger("export", file, "--to", to, "--event", "SAMPLED", "-o", tmp_path / "out")
        assert done.returncode == 2
        assert f"--event cannot be used with --to {to}" in done.stderr
