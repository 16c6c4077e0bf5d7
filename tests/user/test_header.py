# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The generated header: every compiler takes it without a word, and what is switched off leaves
nothing.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import CLANG, CLANGXX, PROGRAMS
from shm_oracle import Drainer

C = [("gcc", s) for s in ("c11", "gnu17", "c2x")] + [(CLANG, s) for s in ("c11", "gnu17", "c23")]
CXX = [(cc, s) for cc in ("g++", CLANGXX) for s in ("c++17", "c++20")]


def needs(cc):
    if not cc or not shutil.which(cc):
        pytest.skip("this compiler is not here")


@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize(("cc", "standard"), C + CXX)
def test_compilers(build, room, cc, standard, level):
    """Without a warning; and the program logs what its source says."""
    needs(cc)
    flags = [f"-std={standard}", level, "-pedantic-errors", "-Wno-pedantic", "-Wshadow"]
    if "++" in cc:
        flags += ["-x", "c++"]
    program = build("first.c", "second.c", cc=cc, flags=flags, out=f"first-{cc}-{standard}{level}")
    done, drainer = room.record(program)
    assert (done.code, done.err) == (0, "")
    assert drainer.all("COUNT") == [{"thread": 0, "n": 1, "proof": (1 << 64) - 2}]
    assert [values["value"] for values in drainer.all("OTHER")] == [2, 3]


@pytest.mark.parametrize(
    "flags",
    [
        ["-static"],
        ["-static-pie"],
        ["-no-pie", "-fno-pie"],
        ["-flto"],
        ["-fsanitize=thread"],
        ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
        ["-fstack-protector-all", "-D_FORTIFY_SOURCE=2"],
        ["-O3", "-march=native"],
        ["-Os"],
    ],
    ids=lambda flags: flags[0].strip("-"),
)
def test_kinds_of_program(build, room, flags):
    program = build("flood.c", flags=flags, out="flood" + "".join(flags).replace("/", "_"))
    done, drainer = room.record(program, 4, 5000, 1000)
    assert (done.code, done.err) == (0, ""), done.err
    streams = drainer.streams("COUNT")
    assert sorted(len(stream) for stream in streams.values()) == [5000] * 4


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_sanitizers_and_signals(build, room, sanitizer):
    flags = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
    program = build("signals.c", flags=flags, out="signals-" + sanitizer[0])
    done, drainer = room.record(program, 100_000, 2000)
    assert (done.code, done.err) == (0, ""), done.err
    assert len(drainer.all("COUNT")) + drainer.counted("COUNT") == 100_000


def symbols(program) -> str:
    return subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("cc", ["gcc", CLANG])
def test_off_leaves_nothing(build, room, cc, level):
    needs(cc)
    program = build("flood.c", cc=cc, flags=["-DKLOGGER_OFF", level], out=f"off-{cc}{level}")
    if level == "-O0":
        called = subprocess.run(
            ["objdump", "-d", program], capture_output=True, text=True, check=True
        ).stdout
        assert not re.search(r"call.*klogger", called)
    else:
        assert "klogger" not in symbols(program)
        assert b"klogger" not in program.read_bytes().replace(str(PROGRAMS).encode(), b"")
    done = room.run(program, 2, 10)
    assert (done.code, done.err, room.names()) == (0, "", [])


def test_on_is_seen(build):
    """What the test before looks for is there if the events are."""
    assert "klogger" in symbols(build("flood.c"))


def test_an_event_that_is_off_costs_three_instructions(build):
    """The flag's address, a comparison, a branch; beside them the compiler may move an argument,
    and return.
    """
    program = build("single.c", out="single")
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", "--disassemble=one_event", program],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    code = [
        line.split("\t", 1)[1].split()[0]
        for line in text.splitlines()
        if re.match(r"\s+[0-9a-f]+:\t", line)
    ]
    code = [
        word
        for word in code
        if word not in ("endbr64", "nop", "nopw", "nopl", "cs", "data16", "xchg")
    ]
    path = code[: code.index("ret")]
    assert [word for word in path if word != "mov"] == ["cmpb", "jne"]
    assert len(path) <= 4, path


def of_two_sources(build, folder: Path, *flags: str) -> Path:
    """A program of first.c and second.c, the second compiled with more flags."""
    objects = []
    for source, more in (("first.c", ()), ("second.c", flags)):
        objects.append(folder / (source + ".o"))
        command = ["gcc", "-O2", *more, f"-I{build.headers}", "-c", PROGRAMS / source]
        subprocess.run([*command, "-o", objects[-1]], check=True)
    program = folder / "both"
    subprocess.run(["gcc", *objects, "-o", program, "-pthread"], check=True)
    return program


def test_two_versions_of_a_schema(klogger, build, room, tmp_path):
    """The one that was linked second stays off; the program runs, and says it in one line."""
    subprocess.run([klogger, "gen", PROGRAMS / "newer/other.klogger", "-o", tmp_path], check=True)
    program = of_two_sources(build, tmp_path, "-DNEWER", f"-I{tmp_path}")
    done, drainer = room.record(program)
    assert done.code == 0
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("klogger: ")
    assert "other" in done.err
    assert len(drainer.all("COUNT")) == 1
    assert [len(values) for values in drainer.all("OTHER")] in ([1], [2])
    quiet = room.run(program, record=False)
    assert (quiet.code, quiet.err) == (0, "")


def test_headers_of_two_kloggers(build, room, tmp_path):
    """Code of one runtime never runs on the other's data: what is linked second stays off, and the
    program says so.
    """
    header = (build.headers / "other.klogger.h").read_text()
    (number,) = set(re.findall(r"KLOGGER_RUNTIME != (0x[0-9a-f]{16})ull", header))
    (unit,) = set(re.findall(r"klogger_unit_other_[0-9a-f]{16}", header))
    another = header.replace(number, "0x0123456789abcdef").replace(
        unit, "klogger_unit_other_0123456789abcdef"
    )
    (tmp_path / "other.klogger.h").write_text(another)
    program = of_two_sources(build, tmp_path, f"-I{tmp_path}")
    done, drainer = room.record(program)
    assert done.code == 0
    assert done.err.splitlines() == [
        "klogger: a schema is not logged: its header is from another version of klogger; generate"
        " all headers again: other"
    ]
    assert [values["value"] for values in drainer.all("OTHER")] == [2]
    both = subprocess.run(
        [
            "gcc",
            "-fsyntax-only",
            "-include",
            build.headers / "count.klogger.h",
            f"-I{tmp_path}",
            PROGRAMS / "second.c",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert both.returncode != 0
    assert "from another version of klogger" in both.stderr


def test_a_library_with_a_schema_of_its_own(build, room):
    library = build("library.c", flags=["-shared", "-fPIC"], out="liblibrary.so")
    program = build("host.c", flags=["-ldl"], out="host")
    done, drainer = room.record(program, library, 3)
    assert (done.code, done.err) == (0, "")
    assert [values["n"] for values in drainer.all("COUNT")] == [0, 1, 2]
    assert [values["value"] for values in drainer.all("OTHER")] == [0, 1, 2]
    # One file for the program, and one for each time that the library was opened.
    assert len(drainer.files) == 4
    assert {shared.pid for shared in drainer.files.values()} == {
        next(iter(drainer.files.values())).pid
    }


def test_no_schema_no_file(build, room):
    """Registration without anything to record leaves the folder as it was when the program ends."""
    done = room.run(build("first.c", "second.c"), record=False)
    assert (done.code, done.out, done.err, room.names()) == (0, "", "", [])


def test_only_what_was_asked_for(build, room):
    """Schemata by name, and events that begin disabled."""
    program = build("first.c", "second.c")
    done, drainer = room.record(program, schemata="other", off="OTHER")
    assert done.code == 0
    assert drainer.all("COUNT") == drainer.all("OTHER") == []
    drainer.close()
    done, drainer = room.record(program, schemata="nothing,count", off="OTHER,COUN")
    assert (len(drainer.all("COUNT")), len(drainer.all("OTHER"))) == (1, 0)


def test_every_type(build, room):
    top = {bits: (1 << bits) - 1 for bits in (8, 16, 32, 64)}
    low = {bits: -(1 << (bits - 1)) for bits in top}
    high = {bits: -1 - low[bits] for bits in top}
    done, drainer = room.record(build("types.c"))
    assert (done.code, done.err) == (0, "")
    assert drainer.all("NOTHING") == [{}]
    names = ["b", "c", "uc", "s", "us", "i", "ui", "l", "ul", "ll", "ull"]
    first = [
        True,
        low[8],
        top[8],
        low[16],
        top[16],
        low[32],
        top[32],
        low[64],
        top[64],
        low[64],
        top[64],
    ]
    second = [False, high[8], 0, high[16], 0, high[32], 0, high[64], 0, high[64], 0]
    assert drainer.all("NUMBERS") == [dict(zip(names, v, strict=True)) for v in (first, second)]
    assert drainer.all("PADDED") == [
        {"a": 1, "b": 0x0123456789ABCDEF, "c": 2, "d": 0x89ABCDEF, "e": 3, "f": 0xFEDC}
    ]
    shape = {"triple": [1, 2, 65535], "pair": [low[64], high[64]]}
    assert drainer.all("SHAPES") == [
        {**shape, "five": b"four", "name": b"fifteen letters"},
        {**shape, "five": b"more", "name": b"more than fifte"},
        {**shape, "five": b"", "name": b""},
    ]
    texts = [(1, b"x" * 255, 2), (3, b"x" * 255, 4), (5, b"x" * 254, 6), (7, b"", 8), (9, b"", 10)]
    assert drainer.all("TEXT") == [{"before": a, "text": t, "after": b} for a, t, b in texts]
    path, long = b"p" * 3000, b"p" * 255
    texts = [(b"one", 1, b"", b"three"), (b"", 2, path, b""), (long, 3, path[1:], long)]
    assert drainer.all("TEXTS") == [
        {"first": a, "between": n, "second": b, "third": c} for a, n, b, c in texts
    ]
    assert drainer.all("MARK") == [{"number": -1, "text": b"a word"}]


def test_drainer_and_program_agree_on_the_clock(build, room):
    """Without a TSC, times are those of CLOCK_MONOTONIC; with it, they rise all the same."""
    import time

    before = time.monotonic_ns()
    done, drainer = room.record(build("flood.c"), 1, 1000, clock=0)
    after = time.monotonic_ns()
    (records,) = drainer.records.values()
    times = [record.time for record in records]
    assert done.code == 0
    assert len(times) == 1000
    assert times == sorted(times)
    assert before & ((1 << 48) - 1) <= times[0] <= times[-1] <= after & ((1 << 48) - 1)


def rests(pid: int) -> int:
    """How often the threads of a process have gone to sleep."""
    texts = [status.read_text() for status in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(
        int(n)
        for text in texts
        for n in re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M)
    )


def test_armed_while_it_runs(build, room):
    """A recorder may come later, and go again: only what happens in between is logged."""
    process = room.start(build("flood.c"), 1, 20_000, 10, record=False)
    drainer = Drainer(room.path)
    while not drainer.files:
        assert drainer.round() == 0
    (shared,) = drainer.files.values()
    assert shared.on() == set()
    while rests(process.pid) < 20:
        assert process.poll() is None
    shared.arm(names={"COUNT"})
    while len(drainer.all("COUNT")) < 1000:
        drainer.round()
    shared.disarm()
    _, err = process.communicate(timeout=60)
    drainer.finish()
    numbers = [values["n"] for values in drainer.all("COUNT")]
    assert (process.returncode, err) == (0, "")
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] > 0 and numbers[-1] < 19_999
