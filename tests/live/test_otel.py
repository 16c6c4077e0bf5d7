# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`context otel`: each event has the ids that its thread had published when it was logged, and none
outside of requests, wherever the variable is: in the program, in a library that was loaded with it
or later.
"""

import subprocess
from pathlib import Path

import pytest
from conftest import wait_for
from oracles import Log

HERE = Path(__file__).parent
SCHEMA = """schema requests "System calls and their requests"

event CALLED { ulong number  context tid otel }

probe syscall prctl(int option, ulong number) {
    if (option == 0x4f54454c)
        klogger(CALLED, number);
}
"""
# As in otel.c.
THREADS, REQUESTS, WARM = 3, 101, 0x7FFF
# The options of the program, those of the library, and what else the program is given.
VARIANTS = {
    "program": (["-DHERE", "-rdynamic"], None, []),
    "fixed": (["-DHERE", "-no-pie", "-Wl,--export-dynamic-symbol=otel_thread_ctx_v1"], None, []),
    "offset": (["-DLINKED"], ["-ftls-model=initial-exec"], []),
    "descriptor": (["-DLINKED"], ["-mtls-dialect=gnu2"], []),
    "module": (["-DLINKED"], ["-mtls-dialect=gnu"], []),
    "late": ([], ["-mtls-dialect=gnu2", "-DLARGE=65536"], ["load"]),
    "late_module": ([], ["-mtls-dialect=gnu", "-DLARGE=65536"], ["load"]),
    "none": (["-DHERE"], None, []),
}


def build(folder: Path, name: str, options: list, library: list | None) -> list:
    """The command."""
    program = folder / name
    words = ["cc", "-O2", *options, HERE / "otel.c", "-o", program, "-ldl", "-lpthread"]
    more = []
    if library is not None:
        shared = folder / f"lib{name}.so"
        made = ["cc", "-O2", "-shared", "-fPIC", *library, HERE / "otel_library.c", "-o", shared]
        subprocess.run(made, check=True)
        if "-DLINKED" in options:
            words += [shared, f"-Wl,-rpath,{folder}"]
        else:
            more = [shared]
    subprocess.run(words, check=True)
    return [program, *more]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("otel")
    made = {}
    for name, (options, library, how) in VARIANTS.items():
        program, *more = build(folder, name, options, library)
        made[name] = (program, [*how, *more])
    return made


def published(variant: int, thread: int, request: int) -> tuple[str, str]:
    """The ids as tracing systems show them."""
    trace = bytes((variant * (n + 3) + thread * 13 + request * 7 * n) & 255 for n in range(16))
    span = bytes((request * (n + 1) + thread + 1) & 255 for n in range(8))
    return trace.hex(), span.hex()


def expected(variant: int, *, known=True) -> dict:
    """Of each number that a program passes, after it has waited: the ids."""
    rows = {}
    for thread in range(THREADS):
        for request in range(1, REQUESTS + 1):
            number = variant << 48 | thread << 32 | request << 1
            rows[number] = ("", "")
            is_whole = known and request % 5 and request % 7 != 3
            ids = published(variant, thread, request) if is_whole else ("", "")
            rows[number | 1] = ids
    return rows


def unreadable() -> int:
    return THREADS * sum(request % 7 == 3 for request in range(1, REQUESTS + 1))


def logged(log: Log) -> dict:
    """The ids by number."""
    query = f"""SELECT number, otel_trace, otel_span FROM called
        WHERE (number >> 1) & 65535 != {WARM}"""
    found = log.rows(query)
    rows = {number: ids for number, *ids in ((n, t, s) for n, t, s in found)}
    assert len(rows) == len(found)
    return {number: tuple(ids) for number, ids in rows.items()}


def started(program, *words) -> subprocess.Popen:
    """A program that has published its first record."""
    process = subprocess.Popen([program, *map(str, words)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def unread(log: Log) -> int:
    """Records that could not be read; other processes of the machine may be the cause of more."""
    rows = "SELECT count FROM ledger WHERE key = 'request_unknown' AND text LIKE '%not be read%'"
    return log.one(rows)


def recorded_until_end(recorder, running: list, go: Path, *options) -> Log:
    """Lets programs go that wait for it."""
    schema = recorder.dir / "requests.klogger"
    schema.write_text(SCHEMA)
    # They have ended, or nearly: their parent is this test.
    ended = " ".join(f"/proc/{process.pid}/status" for process in running)
    wait = "until grep -q State:.Z $p; do sleep 0.02; done"
    script = f"touch {go}; for p in {ended}; do {wait}; done"
    done, out = recorder.run("-q", "-a", "-s", schema, *options, "--", "sh", "-c", script)
    assert done.code == 0, done.err
    return Log(recorder.klogger, out)


def end(running: list) -> None:
    for process in running:
        process.kill()
        process.communicate()


def test_each_event_has_the_ids_of_its_request(recorder, programs):
    """Of processes that were there before."""
    go = recorder.dir / "go"
    wanted, running = {}, []
    try:
        for variant, name in enumerate(VARIANTS, 1):
            program, more = programs[name]
            running.append(started(program, variant, go, *more))
            wanted |= expected(variant, known=name != "none")
        log = recorded_until_end(recorder, running, go)
    finally:
        end(running)
    found = logged(log)
    wrong = {n: ids for n, ids in found.items() if ids != wanted[n]}
    assert not wrong and len(found) == len(wanted)
    assert unread(log) == (len(VARIANTS) - 1) * unreadable()


@pytest.mark.full("others of this file are in the gate")
def test_a_program_that_begins_later_its_child_and_what_that_runs(recorder, programs):
    schema, go = recorder.dir / "requests.klogger", recorder.dir / "go"
    schema.write_text(SCHEMA)
    out = recorder.path()
    # The last one has a variable at the same place, but does not export it.
    (program, _), (none, _) = programs["program"], programs["none"]
    command = [program, "1", go, "after", none]
    recording = recorder.start("-q", "-s", schema, "--", *command, out=out)

    def is_known(variant):
        where = f"number == {variant << 48 | WARM << 1 | 1} && otel_span != ''"
        return out.exists() and recorder.command("cat", out, "--where", where).out.strip()

    wait_for(lambda: is_known(1), recording)
    go.touch()
    wait_for(lambda: is_known(2), recording)
    Path(f"{go}2").touch()
    _, said = recording.communicate(timeout=60)
    assert recording.returncode == 0, said
    log = Log(recorder.klogger, out)
    wanted = expected(1) | expected(2) | expected(3, known=False)
    found = logged(log)
    wrong = {n: ids for n, ids in found.items() if ids != wanted[n]}
    assert not wrong and len(found) == len(wanted)
    assert unread(log) == 2 * unreadable()


@pytest.mark.full("others of this file are in the gate")
def test_events_of_one_request_are_recorded(recorder, programs):
    go = recorder.dir / "go"
    (trace, span), number = published(1, 2, 41), 1 << 48 | 2 << 32 | 41 << 1 | 1
    running = [started(programs["program"][0], 1, go)]
    try:
        where = f"CALLED: otel_trace == '{trace}' && otel_span == '{span}' && number != 0"
        log = recorded_until_end(recorder, running, go, "--where", where)
    finally:
        end(running)
    assert log.rows("SELECT number, otel_trace, otel_span FROM called") == [(number, trace, span)]
