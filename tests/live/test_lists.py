# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Lists and wildcards of system calls, trace events, and places in programs: their hits by place,
against probes at one place, the numbers of all calls, and what a program counts itself.
"""

import collections
import re
import subprocess

import pytest
from conftest import HERE

CALLS = """
schema lists "Lists of system calls"
event HERE { ushort point as place  int abi  context tid }
event SINGLE { int fd  context tid }
event BACK { ushort point as place  long result as errno  context tid }
probe syscall mk*, getppid, dup*() { klogger(HERE, klogger_place(), klogger_syscall_abi()); }
probe syscall dup(unsigned int fd) { klogger(SINGLE, fd); }
probe return syscall open*, getppid(long result) { klogger(BACK, klogger_place(), result); }
"""
ALL = """
schema every "All calls"
event EACH { uint number as syscall  ushort point as place  context tid }
probe syscall *(long number) { klogger(EACH, number, klogger_place()); }
"""
TRACE_EVENTS = """
schema events "Lists of trace events"
event HERE { ushort point as place  int pid as thread }
event RENAMED { int tid as thread }
event FORKED { int tid as thread }
probe trace_event task:task_*(pid_t pid) { klogger(HERE, klogger_place(), pid); }
probe tracepoint task_rename() { klogger(RENAMED, klogger_current_tid()); }
probe tracepoint task_newtask() { klogger(FORKED, klogger_current_tid()); }
"""
PROGRAM = """
schema inside "Lists of places in programs"
event HERE { uint point as place }
event BACK { uint point as place  long result }
event SHOT { ulong place  uint point as place }
probe user command:st?p, LIBRARY:late_*, command:m*y() { klogger(HERE, klogger_place()); }
probe return user command:st*, LIBRARY:late_step(long result) {
    klogger(BACK, klogger_place(), result);
}
probe usdt command:*:sh*(long place) { klogger(SHOT, place, klogger_place()); }
"""


@pytest.fixture
def write(recorder):
    def make(text):
        path = recorder.dir / f"{re.search('schema ([a-z]+)', text)[1]}.klogger"
        path.write_text(text)
        return path

    return make


def places(log) -> dict[int, str]:
    tables = {table["name"]: table["values"] for table in log.meta["preamble"]["decodings"]}
    return dict(map(tuple, tables["place"]))


def hits(log, event) -> dict[str, int]:
    rows = log.rows(f"SELECT point, count(*) FROM {event} GROUP BY 1")
    return {places(log)[point]: times for point, times in rows}


def test_system_calls(recorder, workloads, write, clean_kernel):
    folder = recorder.dir / "folder"
    folder.mkdir()
    words = ["--no-calibrate", "-s", write(CALLS), "-s", write(ALL)]
    log, report = recorder.log(*words, "--", workloads / "calls", folder)
    assert log.rows("SELECT key FROM ledger WHERE severity IN ('loss', 'error')") == []
    here = hits(log, "HERE")
    made = {"mkdir": report["calls_32"]} if report["calls_32"] else {}
    assert here == {"getppid": report["getppid"], "dup": report["dup"], **made}
    # Other probes at one of the calls get all of its hits as well.
    assert log.count("SINGLE") == report["dup"]
    back = hits(log, "BACK")
    assert back["return syscall getppid"] == report["getppid"]
    each = log.rows("SELECT number, count(*) FROM EACH GROUP BY 1")
    tables = {table["name"]: table["values"] for table in log.meta["preamble"]["decodings"]}
    numbers = dict(map(tuple, tables["syscall"]))
    counts = {numbers[number]: times for number, times in each}
    opens = counts["openat"] + counts.get("i386:openat", 0)
    assert back["return syscall openat"] == opens
    # One probe of all calls is one place.
    assert hits(log, "EACH") == {"*": sum(counts.values())}


def test_trace_events(recorder, write, workloads, clean_kernel):
    log, _ = recorder.log("-s", write(TRACE_EVENTS), "--", workloads / "forks", "3", "4")
    here = collections.Counter(hits(log, "HERE"))
    assert here["task:task_rename"] == log.count("RENAMED")
    assert here["task:task_newtask"] == log.count("FORKED") > 0


def build(source, to, *flags):
    command = ["cc", "-O2", "-o", to, HERE / "programs" / source, *flags]
    subprocess.run(list(map(str, command)), check=True)
    return to


@pytest.fixture
def program(recorder):
    recorder.dir.chmod(0o755)
    built = build("places.c", recorder.dir / "places", "-pthread", "-ldl")
    return built, build("late.c", recorder.dir / "liblate.so", "-shared", "-fPIC")


def test_places_in_programs(recorder, program, write, clean_kernel):
    path, library = program
    schema = write(PROGRAM.replace("LIBRARY", str(library)))
    log, report = recorder.log("--no-calibrate", "-s", schema, "--", path, library)
    steps = report["own"] + len(report["threads"]) * report["thread"] + report["made"]
    late = f"{library}:late_step"
    counted = {"command:step": steps, late: report["late"], "command:many": 1}
    assert hits(log, "HERE") == counted
    returned = {f"return user {name}": n for name, n in counted.items() if "many" not in name}
    assert hits(log, "BACK") == returned
    assert hits(log, "SHOT") == {"command:places:shot": log.count("SHOT")}
    assert log.count("SHOT") == 2 * report["shots"]
    states = {p["target"]: p["note"] for p in log.meta["preamble"]["probes"]}
    note = next(note for target, note in states.items() if target.startswith("user command:st?p"))
    assert note == f"3 places: command:step, {late}, command:many"


REFUSED = {
    "syscall zzz*()": (
        "this kernel has no system call 'zzz*'",
        "'klogger places WORD --kind syscall' lists those with a word",
    ),
    "syscall dup, dupp()": ("this kernel has no system call 'dupp'", "did you mean dup"),
    "syscall mk*(const char *path, const char *other)": (
        "none of the 4 places that 'syscall mk*' matches can be attached: of the first, the "
        "parameters are not those of syscall mkdir",
        "kernel: const char *pathname, umode_t mode",
    ),
    "trace_event sched:sched_process_fork, sched:sched_stat_runtime(const char *comm)": (
        "trace event 'sched:sched_process_fork' has no field 'comm'",
        "did you mean",
    ),
    "trace_event task:task_newtask, task:task_rename(const char *comm)": (
        "trace event 'task:task_rename' has no field 'comm'",
        "did you mean newcomm, oldcomm?",
    ),
    "user LIBRARY:nothing*()": (
        "LIBRARY has no function that matches 'nothing*'",
        "'klogger places LIBRARY' lists those that it has",
    ),
    "user libc:strle?()": (
        "none of the 1 places that 'user libc:strle?' matches can be probed: libc:strlen",
        "the loader calls them to choose an implementation, which is what can be probed",
    ),
    "usdt LIBRARY:*:*()": (
        "LIBRARY has no static probe that matches '*:*'",
        "'klogger places LIBRARY' lists those that it has",
    ),
    "user LIBRARY:late_step, LIBRARY:late_stop()": (
        "LIBRARY has no function 'late_stop'",
        "did you mean late_step?",
    ),
    "user MANY:*()": (
        "'user MANY:*' is too many places: 1100 match",
        "a probe has at most 1024 places: write more of their names",
    ),
}


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("probe", REFUSED)
def test_refused(recorder, program, clean_kernel, probe):
    _, library = program
    many = recorder.dir / "libmany.so"
    if "MANY" in probe:
        source = recorder.dir / "many.c"
        source.write_text("".join(f"int f{n}(void) {{ return {n}; }}\n" for n in range(1100)))
        words = ["cc", "-shared", "-nostdlib", "-o", many, source]
        subprocess.run(list(map(str, words)), check=True)
    file = recorder.dir / "bad.klogger"
    there = probe.replace("LIBRARY", str(library)).replace("MANY", str(many))
    file.write_text(f"event A {{ }}\nprobe {there} {{ klogger(A); }}\n")
    done = recorder.command("record", "-s", file, "--", "true")
    said = re.sub(r"[\s│]+", "", done.err)
    assert done.code == 2
    for text in REFUSED[probe]:
        wanted = text.replace("LIBRARY", str(library)).replace("MANY", str(many))
        assert re.sub(r"\s+", "", wanted) in said, done.err
    assert len(re.findall("×", done.err)) == 1


def test_fields_that_are_elsewhere_in_a_record(recorder, write, clean_kernel):
    """One program reads the records of all places: of a wildcard, others are left out."""

    def text(target):
        return f'schema fields "" event A {{ }} probe trace_event {target} {{ klogger(A); }}\n'

    # Of the first, pid is behind the name; of the second, behind the size.
    both = "sched:sched_process_exit, sched:sched_process_exec(pid_t pid)"
    file = recorder.dir / "fields.klogger"
    file.write_text(text(both))
    done = recorder.command("record", "-s", file, "--", "true")
    said = re.sub(r"[\s│]+", " ", done.err)
    assert done.code == 2
    assert (
        "the fields of trace event 'sched:sched_process_exec' are not at the same places as those "
        "of 'sched:sched_process_exit'" in said
    )
    assert "write a second probe for it" in said
    wild = "sched:sched_process_exi*, sched:sched_process_ex*(pid_t pid)"
    file.write_text(text(wild))
    log, _ = recorder.log("-s", file, "--", "sh", "-c", 'echo "{\\"a\\": [1]}"')
    (note,) = [p["note"] for p in log.meta["preamble"]["probes"] if "exi*" in p["target"]]
    assert "left out 1 with other parameters: sched:sched_process_exec" in note
