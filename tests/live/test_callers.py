# SPDX-License-Identifier: GPL-2.0-only
"""Callers of functions without frame pointers: a chain of five functions into a library, with and
without frame pointers, unwind tables and symbols.
"""

import platform
import re
import subprocess
from pathlib import Path

import pytest
from oracles import Log

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="elsewhere only frame pointers are followed"
)

SCHEMA = """schema callers "Who reads a byte, who waits for a lock"

event READS { context user_stack }
event WAITS { context user_stack }
event SLEEPS { context user_stack }

probe syscall read(unsigned int fd, char *buffer, size_t size) {
    if (size == 1)
        klogger(READS);
}

code {
    static int sleeps[1024];
}

probe syscall nanosleep() {
    sleeps[klogger_cpu() & 1023] = klogger_current_tid();
}

// With interrupts off, where the kernel looks up one address at a hit.
probe tracepoint sched_switch(bool preempt, struct task_struct *prev) {
    int *sleeper = &sleeps[klogger_cpu() & 1023];

    if (*sleeper == prev->pid)
        klogger(SLEEPS);
    *sleeper = 0;
}

probe syscall futex(unsigned int *lock, int op) {
    if ((op & 127) == 0)
        klogger(WAITS);
}
"""
TIMES = 7
CHAIN = ["fifth", "fourth", "third", "second", "first"]
PROGRAMS = {
    "frameless": ["-fomit-frame-pointer"],
    "framed": ["-fno-omit-frame-pointer"],
    "tableless": ["-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("callers")
    source = Path(__file__).parent / "callers.c"
    for name, flags in PROGRAMS.items():
        words = ["cc", "-O2", *flags, "-fno-optimize-sibling-calls", source, "-o", name]
        subprocess.run([*words, "-lpthread"], cwd=folder, check=True)
    subprocess.run(["strip", "-o", "stripped", "frameless"], cwd=folder, check=True)
    words = ["cc", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-o", "reclaimed"]
    subprocess.run([*words, source.with_name("reclaimed.c")], cwd=folder, check=True)
    return folder


@pytest.fixture
def stacks(recorder, programs):
    """(frames, files, whole, text) of the stacks that lead through a program, by its name and that
    of the event, with the number of events.
    """
    names = [*PROGRAMS, "stripped"]
    script = " && ".join(f"{programs}/{name} {TIMES}" for name in names)
    log = recorded(recorder, script)

    def of(program, event):
        return rows_of(log, programs / program, event)

    return of


def recorded(recorder, script):
    (recorder.dir / "callers.klogger").write_text(SCHEMA)
    words = ["-q", "-s", recorder.dir / "callers.klogger", "--", "sh", "-c", script]
    done, out = recorder.run(*words)
    assert done.code == 0, done.err
    return Log(recorder.klogger, out)


def rows_of(log, program, event):
    return log.rows(
        f"SELECT s.frames, s.files, s.whole, s.text, count(*) FROM {event}"
        " JOIN stack AS s ON s.id = user_stack"
        f" WHERE list_contains(s.files, '{program}') GROUP BY ALL"
    )


def library(files):
    """How many frames are in libraries, from the innermost one on."""
    return next(n for n, file in enumerate(files) if not Path(file).name.startswith("lib"))


def own(rows):
    """The functions of the program itself, and how many events had them."""
    counts = {}
    for frames, files, whole, text, count in rows:
        at = library(files)
        assert at > 0, text
        chain = (tuple(frames[at:]), whole, "?" in text)
        counts[chain] = counts.get(chain, 0) + count
    return counts


def test_all_callers_are_there(stacks):
    for program in ("frameless", "framed"):
        reads = own(stacks(program, "READS"))
        assert sum(reads.values()) == 2 * TIMES
        called = {}
        for (chain, whole, gap), count in reads.items():
            assert whole and not gap, chain
            called[chain[0]] = called.get(chain[0], 0) + count
            if chain[0] == "fifth":
                assert list(chain[:6]) == [*CHAIN, "main"], chain
            else:
                # The library's own functions are between the two.
                assert list(chain)[chain.index("fifth") :][:6] == [*CHAIN, "main"], chain
                assert 1 < chain.index("fifth") < 6, chain
        assert called == {"fifth": TIMES, "compares": TIMES}
        waits = [row for row in stacks(program, "WAITS") if "fifth" in row[0]]
        assert sum(row[-1] for row in waits) == TIMES, waits
        for frames, files, whole, text, _ in waits:
            at = library(files)
            assert frames[at : at + 6] == [*CHAIN, "waits"], text
            assert any("pthread_mutex_lock" in name for name in frames[:at]), text
            assert whole and "?" not in text, text


def test_without_tables_there_is_a_gap_and_no_other_name(stacks):
    reads, waits = own(stacks("tableless", "READS")), own(stacks("tableless", "WAITS"))
    assert sum(reads.values()) == 2 * TIMES
    for (chain, whole, gap), _ in [*reads.items(), *waits.items()]:
        assert chain[0] in ("fifth", "compares", "main") and len(chain) == 1, chain
        assert not whole and gap


def test_without_symbols_the_addresses_are_right(stacks, programs):
    listed = subprocess.run(
        ["nm", "-S", "--defined-only", programs / "frameless"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    symbols = re.findall(r"^([0-9a-f]+) ([0-9a-f]+) [tT] (\w+)$", listed, re.MULTILINE)
    functions = {
        name: range(int(at, 16), int(at, 16) + int(size, 16)) for at, size, name in symbols
    }
    found = 0
    for *_, text, count in stacks("stripped", "READS"):
        addresses = [int(at, 16) for at in re.findall(r"<stripped\+0x([0-9a-f]+)", text)]
        names = [name for at in addresses for name, place in functions.items() if at - 1 in place]
        assert len(names) == len(addresses), text
        assert names[names.index("fifth") :][:6] == [*CHAIN, "main"], text
        found += count
    assert found == 2 * TIMES


def test_in_a_library_only_threads_begin(recorder, programs):
    """Where the callers are too far away to be recorded, so that stacks end in libc."""
    rows = rows_of(
        recorded(recorder, f"{programs}/framed {TIMES} far"), programs / "framed", "READS"
    )
    found = {"compares_far": 0, "main": 0, "goes_deep": 0}
    for frames, files, whole, text, count in rows:
        (begin,) = [name for name in found if name in frames]
        at = frames.index(begin)
        assert all(Path(file).name.startswith("lib") for file in files[at + 1 :] if file), text
        if begin == "compares_far":
            assert not whole and text.endswith("<?"), text
        else:
            assert whole and "?" not in text, text
            assert frames.count("deep") == 21, text
        found[begin] += count
    assert found == dict.fromkeys(found, TIMES)


def test_callers_whose_code_is_not_in_memory(recorder, programs):
    """Its page is dropped just before the event, as by fork() or when memory is reclaimed."""
    script = " && ".join([f"{programs}/reclaimed"] * TIMES)
    rows = rows_of(recorded(recorder, script), programs / "reclaimed", "READS")
    assert sum(row[-1] for row in rows) == TIMES
    for frames, _, whole, text, _ in rows:
        assert frames[:4] == ["innermost", "middle", "outer", "main"], text
        assert whole and "?" not in text, text


def test_callers_whose_code_is_not_in_memory_with_interrupts_off(recorder, programs):
    """Each hit finds out more: after some of them, within a second, all is known."""
    rows = rows_of(recorded(recorder, f"{programs}/reclaimed 61"), programs / "reclaimed", "SLEEPS")
    assert 0 < sum(row[-1] for row in rows) <= 61
    whole = [row for row in rows if row[2]]
    assert whole and all(row[0][:4] == ["innermost", "middle", "outer", "main"] for row in whole)
