# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Functions and static probes of programs, against the counts and the values that a program has."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import HERE, as_nobody, wait_for
from oracles import Log

SCHEMA = """
schema places "What tests/live/programs/places.c does"
event STEP { long n  context tid }
event STEPPED { long result  context tid }
event LATE { long n }
event NARROW { bool b  char c  short s  int i  uchar u  ushort v }
event NARROWED { bool b }
event MANY { long a  long b  long c  long d  long e  long f  int g  long h  char i }
event TEXT { string text }
event AFTER { string text }
event SHOT { long place  int a  long b  short c }
probe user command:step(long n) { klogger(STEP, n); }
probe return user command:step(long result) { klogger(STEPPED, result); }
probe user LIBRARY:late_step(long n) { klogger(LATE, n); }
probe user command:narrow(bool b, signed char c, short s, int i, unsigned char u,
                          unsigned short v) {
    klogger(NARROW, b, c, s, i, u, v);
}
probe return user command:narrow(bool b) { klogger(NARROWED, b); }
probe user command:many(long a, long b, long c, long d, long e, long f, int g, long h, char i) {
    klogger(MANY, a, b, c, d, e, f, g, h, i);
}
probe user command:text(const char *t) { klogger(TEXT, t); }
probe return user command:text(const char *t) { klogger(AFTER, t); }
probe usdt command:places:shot(long place, int a, long b, short c) {
    klogger(SHOT, place, a, b, c);
}
"""


def build(source, to, *flags):
    command = ["cc", "-O2", "-o", to, HERE / "programs" / source, *flags]
    subprocess.run(list(map(str, command)), check=True)
    return to


@pytest.fixture
def places(recorder):
    """The program, its library, and the schema."""
    recorder.dir.chmod(0o755)
    program = build("places.c", recorder.dir / "places", "-pthread", "-ldl")
    library = build("late.c", recorder.dir / "liblate.so", "-shared", "-fPIC")
    schema = recorder.dir / "places.klogger"
    schema.write_text(SCHEMA.replace("LIBRARY", str(library)))
    return program, library, schema


def check_counts(log: Log, report: dict):
    step = "SELECT tid, count(*), min(n), max(n), sum(n) FROM STEP GROUP BY tid"

    def calls(first, count):
        numbers = range(first, first + count)
        return (count, first, numbers[-1], sum(numbers))

    expected = {
        report["pid"]: calls(0, report["own"]),
        report["child"]: calls(2000, report["made"]),
    }
    expected |= {tid: calls(1000, report["thread"]) for tid in report["threads"]}
    assert {tid: tuple(rest) for tid, *rest in log.rows(step)} == expected
    # Each call returns, with its result, in the same thread.
    assert log.rows("SELECT tid, 3 * n + 1 FROM STEP ORDER BY ALL") == log.rows(
        "SELECT tid, result FROM STEPPED ORDER BY ALL"
    )
    assert log.one("SELECT count(*) FROM LATE") == report["late"]
    assert log.rows("SELECT n FROM LATE ORDER BY time") == [(n,) for n in range(report["late"])]


def check_values(log: Log, report: dict):
    assert log.rows("SELECT b, c, s, i, u, v FROM NARROW ORDER BY time") == [
        (False, -128, -32768, -(2**31), 255, 65535),
        (True, 127, 32767, 2**31 - 1, 0, 0),
    ]
    assert log.rows("SELECT b FROM NARROWED ORDER BY time") == [(False,), (True,)]
    values = log.rows("SELECT a, b, c, d, e, f, g, h, i FROM MANY")
    assert values == [(1, -2, 3, -4, 5, -6, -7, 2**40, ord("x"))]
    said = 'a text with "quotes" and ümläute'
    assert log.rows("SELECT text FROM TEXT") == [(said,)]
    assert log.rows("SELECT text FROM AFTER") == [(said[1:],)]
    shots = log.rows("SELECT place, a, b, c FROM SHOT ORDER BY time")
    first = [(1, n, -5000000000, -n) for n in range(report["shots"])]
    assert shots == first + [(2, -7, 700, -n) for n in range(report["shots"])]
    assert report["semaphore"] > 0


def test_counts_and_values(recorder, places, clean_kernel):
    program, library, schema = places
    log, report = recorder.log("-s", schema, "--no-calibrate", "--", program, library)
    check_counts(log, report)
    check_values(log, report)
    assert log.rows("SELECT key FROM ledger WHERE severity IN ('loss', 'error')") == []


@pytest.mark.full("others of this file are in the gate")
def test_a_stripped_program_has_static_probes_and_exported_functions(
    recorder, places, clean_kernel
):
    program, library, _ = places
    subprocess.run(["strip", program, library], check=True)
    schema = recorder.dir / "stripped.klogger"
    schema.write_text(
        "event LATE { long n }\nevent SHOT { int a }\n"
        f"probe user {library}:late_step(long n) {{ klogger(LATE, n); }}\n"
        f"probe usdt {program}:places:shot(long place, int a) {{ klogger(SHOT, a); }}\n"
    )
    log, report = recorder.log("-s", schema, "--no-calibrate", "--", program, library)
    assert log.count("LATE") == report["late"]
    assert log.count("SHOT") == 2 * report["shots"]
    assert report["semaphore"] > 0


@pytest.mark.full("others of this file are in the gate")
def test_other_processes_that_execute_the_same_file_are_out_of_scope(
    recorder, places, clean_kernel
):
    program, library, schema = places
    schema.write_text(SCHEMA.replace("LIBRARY", str(library)).replace("command:", f"{program}:"))
    again = f"while :; do {program} {library}; done"
    outside = subprocess.Popen(["sh", "-c", again], stdout=subprocess.DEVNULL)
    try:
        log, report = recorder.log("-s", schema, "--no-calibrate", "--", program, library)
    finally:
        outside.kill()
        outside.wait()
    check_counts(log, report)
    check_values(log, report)


@pytest.mark.full("others of this file are in the gate")
def test_returns_of_calls_within_calls(recorder, places, clean_kernel):
    """The kernel marks 64 calls of a thread: docs/loss.md."""
    program, library, _ = places
    schema = recorder.dir / "deep.klogger"
    schema.write_text(
        "event ENTERED { int n }\nevent LEFT_AGAIN { long result }\n"
        "probe user command:deep(int n) { klogger(ENTERED, n); }\n"
        "probe return user command:deep(long result) { klogger(LEFT_AGAIN, result); }\n"
    )
    log, report = recorder.log("-s", schema, "--no-calibrate", "--", program, library, 100)
    assert report["deep"] == 100
    assert log.rows("SELECT n FROM ENTERED ORDER BY time") == [(n,) for n in range(100, -1, -1)]
    assert log.rows("SELECT result FROM LEFT_AGAIN ORDER BY time") == [(n,) for n in range(37, 101)]


REFUSED = {
    "/nowhere/program:main": (
        "cannot probe /nowhere/program: there is no such file",
        "write the whole path of a program or library, or the name of one, such as 'libc'",
    ),
    "/etc/passwd:main": ("cannot probe /etc/passwd: it is not a program (no ELF file)", None),
    "/etc:main": ("cannot probe /etc: it is a directory", None),
    "/dev/null:main": ("cannot probe /dev/null: it is not a file", None),
    "libnone-such:main": (
        "there is no library 'libnone-such'",
        "the folders of the dynamic loader have none of this name; write its path",
    ),
    "none-such:main": (
        "there is no program 'none-such'",
        "write its path; the names of libraries begin with 'lib', and 'command' is the program "
        "that is recorded",
    ),
    "PROGRAM:stepp": ("PROGRAM has no function 'stepp'", "did you mean step"),
    "PROGRAM:step+0x1": (
        "'step+0x1' of PROGRAM is in the middle of an instruction",
        "'objdump -d PROGRAM' shows where each one begins",
    ),
    "PROGRAM:step+4096": ("'step+0x1000' of PROGRAM is not in the function", "it has 0x"),
    "PROGRAM:sizeless+4": (
        "cannot check whether an instruction begins at 'sizeless+0x4' of PROGRAM",
        "the size of the function is not known; probe its beginning",
    ),
    "PROGRAM:0x3": ("PROGRAM has no code at 0x3", None),
    "PROGRAM:inlined": (
        "PROGRAM has no function 'inlined'",
        "a function that was inlined everywhere is not in the program; 'klogger places "
        "PROGRAM' lists those that are",
    ),
    "libc:strlen": (" is one of several implementations, chosen at the start", None),
}
"""By the place: the message, and how the help begins."""

BAD_PROGRAM = """
static inline __attribute__((always_inline)) int inlined(int n) { return n + 1; }
__attribute__((noipa)) long step(long n) { return 3 * n + 1; }
asm(".globl sizeless\\n.type sizeless, @function\\nsizeless: nop\\nnop\\nnop\\nnop\\nnop\\nret");
int main(int argc, char **argv) { (void)argv; return step(inlined(argc)) == 0; }
"""


@pytest.fixture
def refused(recorder):
    """Checks that a probe is refused; returns the message and the remedy."""
    source = recorder.dir / "bad.c"
    source.write_text(BAD_PROGRAM)
    program = build(source, recorder.dir / "bad")

    def check(kind, place, parameters="void"):
        schema = recorder.dir / "refused.klogger"
        place = place.replace("PROGRAM", str(program))
        schema.write_text(f"event E {{ }}\nprobe {kind} {place}({parameters}) {{ klogger(E); }}\n")
        checked = recorder.command("check", "--format", "json", schema)
        assert checked.code == 2, checked.err
        # What the compiler says of it may follow.
        found = json.loads(checked.out)[0]["diagnostics"][0]
        assert (found["severity"], found["line"]) == ("error", 2)
        texts = found["message"], found["help"] or ""
        return tuple(text.replace(str(program), "PROGRAM") for text in texts)

    return check


ALTERNATIVE = "name an alternative with 'or', or see 'klogger show' for what this kernel offers"


@pytest.mark.parametrize("place", REFUSED)
def test_what_cannot_be_probed(refused, place):
    message, help = REFUSED[place]
    said = refused("user", place)
    if place.startswith("libc"):
        assert message in said[0]
        return
    assert said[0] == message
    assert said[1].startswith(help or ALTERNATIVE)


@pytest.mark.full("others of this file are in the gate")
def test_a_recording_with_such_a_probe_is_rejected(recorder, clean_kernel):
    schema = recorder.dir / "refused.klogger"
    schema.write_text(
        "event E { }\nprobe user command:main() { klogger(E); }\n"
        "probe user /bin/sh:none_such() { klogger(E); }\n"
    )
    done, path = recorder.run("-s", schema, "--", "/bin/sh", "-c", "true")
    assert done.code == 2 and not path.exists()
    assert "has no function 'none_such'" in done.err
    shown = recorder.command("show", schema)
    assert "none: a recording with this schema is rejected" in shown.out


@pytest.mark.full("others of this file are in the gate")
def test_a_program_of_32_bits(recorder, refused):
    program = recorder.dir / "narrow"
    header = bytearray((recorder.dir / "bad").read_bytes())
    header[4] = 1
    program.write_bytes(header)
    assert refused("user", f"{program}:main") == (
        f"cannot probe {program}: it is a program of 32 bits",
        "probes in programs of 32 bits are not supported: their arguments are passed differently",
    )


@pytest.mark.full("others of this file are in the gate")
def test_a_script_names_the_program_that_runs_it(recorder, refused):
    script = recorder.dir / "script"
    script.write_text("#!/bin/sh\ntrue\n")
    assert refused("user", f"{script}:main") == (
        f"cannot probe {script}: it is a script, and has no functions for probes",
        "name the program that runs it: /bin/sh:FUNCTION",
    )


def test_static_probes_that_are_not_there(places, refused):
    program, *_ = places
    assert refused("usdt", f"{program}:places:shoot") == (
        f"{program} has no static probe 'places:shoot'",
        "did you mean places:shot?",
    )
    five = "long a, long b, long c, long d, long e"
    assert refused("usdt", f"{program}:places:shot", five) == (
        f"static probe 'places:shot' of {program} has 4 arguments, not 5",
        "a probe has at most as many parameters, from the first argument on",
    )
    assert refused("usdt", "PROGRAM:places:shot") == (
        "PROGRAM has no static probe 'places:shot'",
        "it has no static probes at all",
    )


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        (
            "double d",
            "the parameter 'double d' is a floating-point number, which a probe cannot read",
        ),
        (
            "struct page p",
            "the parameter 'struct page p' is a structure, which has no register of its own",
        ),
        ("__int128 i", "the parameter '__int128 i' is an integer of 128 bits, in two registers"),
    ],
)
def test_parameters_that_cannot_be_read(refused, parameter, message):
    assert refused("user", "PROGRAM:step", parameter)[0] == message


@pytest.mark.full("others of this file are in the gate")
def test_the_recorded_program_is_named_by_no_recording_without_one(recorder, clean_kernel):
    schema = recorder.dir / "command.klogger"
    schema.write_text("event E { }\nprobe user command:main() { klogger(E); }\n")
    checked = recorder.command("check", schema)
    assert checked.code == 0, checked.err
    done, _ = recorder.run("-s", schema, "-a", "--for", "1s")
    assert done.code == 2
    assert "'command' is the program that is recorded, and there is none" in done.err


@pytest.fixture
def elsewhere(recorder, places):
    """A root directory with the program, as a container has; and a shell there, which runs it."""
    program, library, _ = places
    root = recorder.dir / "root"
    for file in [program, library, Path("/bin/sh")]:
        listed = subprocess.run(["ldd", file], capture_output=True, text=True, check=True)
        needed = [word for word in listed.stdout.split() if word.startswith("/")]
        for each in [*needed, file] if file.parent != recorder.dir else needed:
            to = root / str(each).lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(each, to)
    (root / "app").mkdir()
    shutil.copy(program, root / "app" / "places")
    shutil.copy(library, root / "app" / "liblate.so")
    # A link that leads out of it.
    (root / "app" / "out").symlink_to(program)
    shell = subprocess.Popen(
        ["chroot", root, "/bin/sh", "-c", "read x; /app/places /app/liblate.so; read x"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: Path(f"/proc/{shell.pid}/root").resolve() == root.resolve(), shell)
    yield shell
    if shell.poll() is None:
        shell.communicate("\n\n")


@pytest.mark.full("others of this file are in the gate")
def test_a_process_of_another_root(recorder, elsewhere, clean_kernel):
    schema = recorder.dir / "own.klogger"
    schema.write_text(
        "event LATE { long n }\nevent STEP { long n }\nevent MADE { ulong size }\n"
        "probe user /app/liblate.so:late_step(long n) { klogger(LATE, n); }\n"
        "probe user /app/places:step(long n) { klogger(STEP, n); }\n"
        "probe user libc:malloc(unsigned long size) { klogger(MADE, size); }\n"
    )
    path = recorder.path()
    words = ("--messages", "json", "-s", schema, "--no-calibrate", "-p", elsewhere.pid)
    recording = recorder.start(*words, out=path)
    while '"started"' not in recording.stderr.readline():
        assert recording.poll() is None
    elsewhere.stdin.write("\n")
    elsewhere.stdin.flush()
    report = json.loads(elsewhere.stdout.readline())
    elsewhere.communicate("\n")
    _, said = recording.communicate(timeout=30)
    assert recording.returncode == 0, said
    log = Log(recorder.klogger, path)
    assert log.count("LATE") == report["late"]
    calls = report["own"] + report["made"] + len(report["threads"]) * report["thread"]
    assert log.count("STEP") == calls
    assert log.count("MADE") > 0


@pytest.mark.full("others of this file are in the gate")
def test_links_do_not_lead_out_of_another_root(recorder, elsewhere, clean_kernel):
    schema = recorder.dir / "out.klogger"
    schema.write_text("event E { }\nprobe user /app/out:step() { klogger(E); }\n")
    done, path = recorder.run("-s", schema, "-p", elsewhere.pid, "--for", "1s")
    assert done.code == 2 and not path.exists()
    assert "cannot probe /app/out: there is no such file" in done.err


@pytest.mark.full("others of this file are in the gate")
def test_users_who_are_not_root_can_check(places, public_klogger):
    _, library, _ = places
    public = public_klogger.parent
    shutil.copy(library, public / "liblate.so")
    text = f"event E {{ }}\nprobe user {public}/liblate.so:late_step(long n) {{ klogger(E); }}\n"
    (public / "one.klogger").write_text(text)
    checked = as_nobody(public_klogger, "check", public / "one.klogger")
    assert (checked.code, checked.err) == (0, "")
    (public / "one.klogger").write_text(text.replace("late_step", "late_stop"))
    checked = as_nobody(public_klogger, "check", public / "one.klogger")
    assert checked.code == 2
    assert "did you mean late_step?" in checked.err
