# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Addresses of data have the names of variables: of programs and libraries, as they were mapped at
the time. The program tells which lock it waits for, and how often.
"""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from oracles import answers

import klogger

PROGRAM = Path(__file__).parent / "programs/named_locks.c"
LIBRARY = """
static unsigned int library_data = 1, library_bss;
static char more[20000];
unsigned int *data(void) { return &library_data; }
unsigned int *bss(void) { return more[0] ? 0 : &library_bss; }
"""
SYSCALLS = Path(__file__).resolve().parents[2] / "schemata/syscalls/syscalls.klogger"
FUTEX = Path(__file__).resolve().parents[2] / "schemata/futex/futex.klogger"
# What of it is needed here: its user stacks take seconds.
WAITS = """
schema waits
event WAIT { ulong lock as data  context tid tgid }
probe syscall futex(unsigned long lock, int op, int expected) {
    if (!(op & 127) && expected == 7)
        klogger(WAIT, lock);
}
"""
# Of each lock the waits. Where one has no name, it is its address.
TIMES = {"global_lock": 3, "static_lock": 5, "table+0x40": 7, "library_data": 11,
         "library_bss": 13, "shared.queue+0x1040": 19}  # fmt: skip
WITHOUT = {17, 23}
KERNEL = """
schema kernel_data
parameter ulong address = 0
event SEEN { ulong lock as data  ulong task as data  context tid }
probe return syscall getppid(long result) {
    klogger(SEEN, address, (unsigned long)klogger_current());
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("named")
    (folder / "library.c").write_text(LIBRARY)
    (folder / "shared.queue").write_bytes(bytes(8192))
    flags = {"pie": ["-fPIE", "-pie"], "fixed": ["-fno-pie", "-no-pie"]}
    made = [
        ["-shared", "-fPIC", "-o", "library.so", "library.c"],
        *(["-O1", "-o", name, *given, PROGRAM] for name, given in flags.items()),
    ]
    for words in made:
        subprocess.run(["cc", *words], cwd=folder, check=True)
    for name in flags:
        shutil.copy(folder / name, folder / f"{name}_stripped")
        subprocess.run(["strip", folder / f"{name}_stripped"], check=True)
    return folder


def recorded(recorder, *command, schema: Path | None = None):
    waits = recorder.dir / "waits.klogger"
    waits.write_text(WAITS)
    options = [] if "--" in command else ["--"]
    done, path = recorder.run("-s", schema or waits, *options, *command)
    assert done.code == 0, done.err
    told = [line.split() for line in done.out.splitlines()]
    return told, path


def rows(path: Path, query: str) -> list:
    with klogger.open(path) as log:
        return log.rows(query)


def counts(path: Path, where: str = "true") -> Counter:
    query = f"SELECT data(lock, tgid, time), count(*) FROM WAIT WHERE {where} GROUP BY ALL"
    return Counter(dict(rows(path, query)))


@pytest.mark.parametrize("name", ["pie", "fixed"])
def test_locks_have_the_names_of_variables(recorder, built, name):
    told, path = recorded(recorder, built / name, built / "library.so", built / "shared.queue")
    found = counts(path)
    assert {lock: found[lock] for lock in TIMES} == TIMES
    unnamed = {int(address, 16) for lock, address in told if lock == "-"}
    assert {found[f"{address:#x}"] for address in unnamed} == WITHOUT
    text = recorder.command("cat", path, "--event", "WAIT").out
    assert Counter(re.findall(r" lock=(\S+)", text)) == found


@pytest.mark.full("records user stacks, which takes 8 s")
def test_a_report_names_the_locks(recorder, built):
    command = (built / "pie", built / "library.so", built / "shared.queue")
    _, path = recorded(recorder, *command, schema=FUTEX)
    league = answers(recorder.klogger, path)["league"]
    said = {row["lock"].partition(" (")[0]: row["waits"] for row in league}
    assert {lock: said.get(lock) for lock in TIMES} == TIMES
    assert all(" (pie[" in row["lock"] for row in league if row["lock"].startswith("global"))


@pytest.mark.full("takes more than 3 s")
def test_system_calls_name_them(recorder, built):
    command = (built / "pie", built / "library.so", built / "shared.queue")
    _, path = recorded(recorder, *command, schema=SYSCALLS)
    query = "SELECT data(address, tgid, time), count(*) FROM FUTEX WHERE value = 7 GROUP BY ALL"
    found = dict(rows(path, query))
    assert {lock: found.get(lock) for lock in TIMES} == TIMES


@pytest.mark.parametrize("name", ["pie_stripped", "fixed_stripped"])
def test_of_a_stripped_program_the_file_is_named(recorder, built, name):
    _, path = recorded(recorder, built / name, built / "library.so", built / "shared.queue")
    found = counts(path)
    table = subprocess.run(
        ["nm", built / name.removesuffix("_stripped")], capture_output=True, text=True, check=True
    ).stdout
    addresses = {line.split()[2]: int(line.split()[0], 16) for line in table.splitlines()
                 if len(line.split()) == 3}  # fmt: skip
    for lock in ("global_lock", "static_lock", "table+0x40"):
        variable, _, offset = lock.partition("+")
        address = addresses[variable] + int(offset or "0", 16)
        # Another file may export it.
        assert found[f"{name}+{address:#x}"] == TIMES[lock], found
    assert found["library_data"] == TIMES["library_data"]


def test_two_processes_of_one_program(recorder, built):
    words = f"{built}/pie {built}/library.so {built}/shared.queue"
    _, path = recorded(recorder, "sh", "-c", f"{words} & {words}; wait")
    processes = rows(path, "SELECT DISTINCT tgid FROM WAIT")
    assert len(processes) == 2
    for (pid,) in processes:
        found = counts(path, f"tgid = {pid}")
        assert {lock: found[lock] for lock in TIMES} == TIMES


def test_a_program_that_was_replaced_has_no_names(recorder, built, tmp_path):
    """The other one has other variables at these addresses."""
    program = tmp_path / "program"
    shutil.copy(built / "fixed", program)
    words = f"{program} {built}/library.so {built}/shared.queue"
    other = f"cp {built}/pie {tmp_path}/new; mv {tmp_path}/new {program}"
    _, path = recorded(recorder, "sh", "-c", f"{words}; {other}")
    found = counts(path)
    assert not any(lock.startswith(("global_lock", "static_lock", "program+")) for lock in found)
    assert found["library_data"] == TIMES["library_data"]


def test_names_are_found_later_in_debug_information(recorder, built, tmp_path):
    """By the build id, of a stripped program: without any user stack in the log."""
    _, path = recorded(recorder, built / "pie_stripped", built / "library.so",
                       built / "shared.queue")  # fmt: skip
    notes = subprocess.run(
        ["readelf", "-n", built / "pie"], capture_output=True, text=True, check=True
    ).stdout
    build_id = re.search(r"Build ID: ([0-9a-f]+)", notes)
    if build_id is None:
        pytest.skip("this linker makes no build ids")
    folder = tmp_path / "debug/.build-id" / build_id[1][:2]
    folder.mkdir(parents=True)
    debug = folder / f"{build_id[1][2:]}.debug"
    subprocess.run(["objcopy", "--only-keep-debug", built / "pie", debug], check=True)
    done = recorder.command("symbolize", path, "--debug-dir", tmp_path / "debug")
    assert done.code == 0, done.err
    found = counts(path)
    assert {lock: found[lock] for lock in TIMES} == TIMES


def test_a_process_that_was_there_before(recorder, built):
    program = subprocess.Popen(
        [built / "pie", built / "library.so", built / "shared.queue", "pause"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout.readline() == "mapped\n"
    # Until it has ended, or nearly: its parent is this test.
    ended = f"grep -q 'State:.Z' /proc/{program.pid}/status"
    go_on = f"echo > /proc/{program.pid}/fd/0; until {ended}; do sleep 0.02; done"
    try:
        _, path = recorded(recorder, "-a", "--", "bash", "-c", go_on)
    finally:
        program.kill()
        program.communicate()
    found = counts(path, f"tgid = {program.pid}")
    assert {lock: found[lock] for lock in TIMES} == TIMES


def test_data_of_the_kernel(recorder, tmp_path):
    schema = tmp_path / "kernel_data.klogger"
    schema.write_text(KERNEL)
    symbols = [line.split() for line in Path("/proc/kallsyms").read_text().splitlines()]
    has_variables = any(kind in "db" for _, kind, *_ in symbols)
    wanted = "tasklist_lock" if has_variables else "__start_rodata"
    (address, *_) = [int(word, 16) for word, _, name, *_ in symbols if name == wanted]
    if address == 0:
        pytest.skip("the kernel hides its addresses")
    calls = "import os; [os.getppid() for _ in range(7)]"
    command = ["--set", f"address={address}", "--", "python3", "-c", calls]
    done, path = recorder.run("-s", schema, *command)
    assert done.code == 0, done.err
    found = Counter(dict(rows(path, "SELECT data(lock, 0, time), count(*) FROM SEEN GROUP BY ALL")))
    # Symbols of the linker alone are not those of variables.
    shown = wanted if has_variables else f"{address:#x}"
    assert found[shown] >= 7 and len(found) == 1
    # Memory that the kernel has allocated.
    tasks = rows(path, "SELECT DISTINCT data(task, 0, time) FROM SEEN")
    assert all(task.startswith("0xffff") for (task,) in tasks)
    text = recorder.command("cat", path, "--event", "SEEN").out
    assert text.count(f" lock={shown} ") == found[shown]
