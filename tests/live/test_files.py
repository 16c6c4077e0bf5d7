# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schema `files` has what a program planted, and what strace and the kernel count."""

import errno
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from conftest import rings_allowed
from oracles import Log, answers

SCHEMA = Path(__file__).resolve().parents[2] / "schemata/files/files.klogger"
# Calls and their results, by event; of calls that have two events, one.
NAME = """(
    SELECT regexp_replace(text, '^.* ', '') FROM decoding WHERE decoding = 'place' AND value = call
)"""
CALLS = " UNION ALL ".join(
    f"SELECT {NAME} AS call, result FROM {event} WHERE tid = {{0}}"
    for event in ("LOOK", "READ", "WRITE", "LISTED", "CLOSED", "COPIED")
)


def words_of(line: str) -> tuple[str, int, int]:
    call, error, times = line.split()
    return call, int(error), int(times)


class Planted:
    """A recording of the program, and what it printed."""

    def __init__(self, recorder, workloads, folder: Path):
        folder.mkdir()
        self.command = [workloads / "planted_files", folder]
        done, path = recorder.run("-s", SCHEMA, "--", *self.command)
        assert done.code == 0, done.err
        *lines, io = done.out.splitlines()
        self.log = Log(recorder.klogger, path)
        self.tid = self.log.one("SELECT pid FROM process WHERE comm = 'planted_files'")
        self.calls = Counter()
        for call, error, times in map(words_of, lines):
            self.calls[call, error] += times
        self.read, self.written = map(int, io.split()[1:])
        # From the program's first call on.
        self.since = self.log.one("SELECT max(time) FROM PROCESS_EXEC")

    def counted(self) -> Counter:
        rows = self.log.rows(
            f"SELECT call, greatest(-result, 0), count(*)"
            f" FROM ({CALLS.format(self.tid)}) GROUP BY ALL"
        )
        return Counter({(call, error): times for call, error, times in rows})


@pytest.fixture(scope="module")
def planted(recorder_for_all, workloads):
    return Planted(recorder_for_all, workloads, recorder_for_all.dir / "folder")


def test_each_planted_call_and_error(planted):
    assert all(planted.log.lost(event) == 0 for event in ("LOOK", "READ", "WRITE", "NAMED"))
    found = planted.counted()
    for (call, error), times in planted.calls.items():
        # Of those that succeed, its start and its reading of the counters have some.
        more = found[call, error] - times
        assert more == 0 if error else 0 <= more <= 8, (call, errno.errorcode.get(error), more)


def test_paths_and_what_they_were(planted):
    names = planted.log.rows(f"""
        SELECT n.path, count(*), any_value(n.inode) FROM LOOK AS l JOIN NAMED AS n USING (file)
        WHERE {NAME} = 'openat' AND l.result = -2 GROUP BY ALL
    """)
    assert names == [("absent", 101, 0)]
    # A look at a file that has grown is another one; all are at the same inode.
    inodes = planted.log.rows("""
        SELECT DISTINCT n.inode FROM LOOK AS l JOIN NAMED AS n USING (file)
        WHERE n.path = 'file' AND l.result >= 0 AND n.inode > 0
    """)
    assert len(inodes) == 1
    sizes = planted.log.rows(f"""
        SELECT DISTINCT n.size FROM LOOK AS l JOIN NAMED AS n USING (file)
        WHERE n.path = 'file' AND {NAME} = 'newfstatat'
    """)
    assert sizes == [(43 * 65537,)]
    assert planted.log.one("SELECT count(*) FROM LOOK LEFT JOIN NAMED USING (file)"
                           " WHERE NAMED.path IS NULL") == 0  # fmt: skip
    assert planted.log.one("SELECT max(entries) FROM LISTED") == 3


def test_bytes_are_those_of_the_kernel(planted):
    io = planted.log.rows(f"""
        SELECT r.time FROM READ AS r JOIN (
            SELECT inode FROM NAMED WHERE path = '/proc/self/io'
        ) USING (inode) WHERE r.tid = {planted.tid} ORDER BY r.time
    """)
    (first, last) = (io[0][0], io[-1][0])
    assert first < last
    when = f"tid = {planted.tid} AND time >= {first} AND time < {last} AND result > 0"
    not_mapped = f"AND {NAME} <> 'mmap'"
    read = planted.log.one(f"SELECT sum(result) FROM READ WHERE {when} {not_mapped}")
    written = planted.log.one(f"SELECT sum(result) FROM WRITE WHERE {when}")
    assert (read, written) == (planted.read, planted.written)
    assert written == 43 * 65537 + 47 * 11


@pytest.mark.skipif(not shutil.which("strace"), reason="strace is not here: scripts/setup test")
def test_as_many_as_strace_counts(planted, tmp_path):
    shutil.rmtree(planted.command[1])
    planted.command[1].mkdir()
    said = tmp_path / "strace"
    done = subprocess.run(
        ["strace", "-f", "-c", "-o", said, *planted.command],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    line = re.compile(r"^ +[\d.]+ +[\d.]+ +\d+ +(\d+) +(\d+)? +(\w+)$", re.M)
    strace = {call: (int(calls), int(errors or 0)) for calls, errors, call in
              line.findall(said.read_text())}  # fmt: skip
    rows = planted.log.rows(
        "SELECT call, count(*), count(*) FILTER (result < 0)"
        f" FROM ({CALLS.format(planted.tid)}) GROUP BY call"
    )
    ours = {call: (calls, errors) for call, calls, errors in rows}
    # Of mmap only those of files are logged, of fcntl those that copy; klogger itself reads a byte
    # before it becomes the program.
    compared = set(ours) - {"mmap", "read", "fcntl"}
    assert {"openat", "stat", "statx", "pread64", "close"} <= compared
    assert {call: ours[call] for call in compared} == {call: strace[call] for call in compared}


def of_path(tables: dict, path: Path, column: str) -> int:
    return sum(row[column] for row in tables["paths"] if row["path"] == str(path))


@pytest.mark.full("others of this file are in the gate")
def test_what_is_done_through_copies_and_by_children_belongs_to_the_path(
    recorder, workloads, tmp_path
):
    done, path = recorder.run("-s", SCHEMA, "--", workloads / "passed_files", tmp_path)
    assert done.code == 0, done.err
    tables = answers(recorder.klogger, path)
    assert of_path(tables, tmp_path / "file", "written") == int(done.out)
    assert of_path(tables, tmp_path / "file", "read") == 1
    assert of_path(tables, tmp_path / "file", "opens") == 2
    # One write is of the program that the child has started, which the kernel names after the link.
    by = {row["program"]: row["written"] for row in tables["paths"] if row["written"]}
    assert by == {"passed_files": int(done.out) - 23, "exe": 23}
    unused = [(row["example"], row["opens"]) for row in tables["unread"]]
    assert unused == [(f"{tmp_path}/.", 1)]


def test_a_descriptor_is_that_of_the_table_which_its_thread_has(recorder, workloads, tmp_path):
    """Of tables that processes share, that threads have left, or that exec has made."""
    done, path = recorder.run("-s", SCHEMA, "--", workloads / "shared_tables", tmp_path)
    assert done.code == 0, done.err
    wanted = {name: int(size) for name, size in map(str.split, done.out.splitlines())}
    tables = answers(recorder.klogger, path)
    assert {name: of_path(tables, tmp_path / name, "read") for name in wanted} == wanted
    assert not [row for row in tables["unread"] if row["folder"] == str(tmp_path)]


@pytest.mark.full("others of this file are in the gate")
def test_a_relative_path_of_chdir_begins_in_the_directory_that_is_left(recorder, tmp_path):
    (tmp_path / "left/entered").mkdir(parents=True)
    script = f"import os; os.chdir('{tmp_path}/left'); os.chdir('entered'); open('file', 'w')"
    python = Path("/proc/self/exe").resolve()
    done, path = recorder.run("-s", SCHEMA, "--", python, "-I", "-c", script)
    assert done.code == 0, done.err
    rows = Log(recorder.klogger, path).rows(f"""
        SELECT n.path, n.base FROM LOOK AS l JOIN NAMED AS n USING (file)
        WHERE {NAME} = 'chdir' AND n.path NOT LIKE '/%'
            OR n.path = 'file' AND {NAME} = 'openat' ORDER BY l.time
    """)
    # Within its file system, which may be mounted anywhere.
    for (name, base), folder in zip(rows, ("left", "left/entered"), strict=True):
        assert str(tmp_path / folder).endswith(base) and base.endswith(f"/{folder}"), name


@pytest.mark.full("others of this file are in the gate")
def test_the_loader_maps_what_ldd_lists(recorder, tmp_path):
    """Each object once; each library is looked for in a directory that has none, too."""
    program = next((p for p in map(Path, ("/bin/ls", "/usr/bin/ls")) if p.exists()), None)
    listed = program and subprocess.run(
        ["ldd", program], capture_output=True, text=True, check=False
    ).stdout  # fmt: skip
    wanted = set(re.findall(r"=> (/\S+)", listed or ""))
    if not wanted:
        pytest.skip("ls is not dynamic here, or there is no ldd")
    done, path = recorder.run(
        "-s", SCHEMA, "--", "env", f"LD_LIBRARY_PATH={tmp_path}", program, tmp_path
    )
    assert done.code == 0, done.err
    rows = [row for row in answers(recorder.klogger, path)["loader"] if row["program"] == "ls"]
    found = {row["object"]: row for row in rows if row["maps"]}
    libraries = set(found) - {"/etc/ld.so.cache"}
    assert {os.path.realpath(name) for name in libraries} == set(map(os.path.realpath, wanted))
    for name in libraries:
        assert found[name]["opens"] == 1 and found[name]["failed"] >= 1, found[name]
        # A mapping of the whole has its parts without the sections that are not loaded.
        assert 0.3 < found[name]["bytes"] / os.stat(name).st_size < 3, found[name]
    assert rows[-1]["object"] == "(relocation)" and rows[-1]["protects"] >= len(libraries)


@pytest.mark.full("others of this file are in the gate")
def test_requests_of_io_uring_are_calls_with_their_file(recorder, workloads, tmp_path):
    with rings_allowed():
        done, path = recorder.run("-s", SCHEMA, "--", workloads / "ring_files", tmp_path)
    if done.code == 77:
        pytest.skip("this kernel has no io_uring")
    assert done.code == 0, done.err
    planted = {call: (int(times), int(size)) for call, times, size in
               map(str.split, done.out.splitlines())}  # fmt: skip
    tables = answers(recorder.klogger, path)
    found = {
        row["call"].removeprefix("io_uring:"): (row["calls"], row["bytes"])
        for row in tables["calls"] if row["call"].startswith("io_uring:")
    }  # fmt: skip
    assert found == planted
    file = Path(os.path.realpath(tmp_path)) / "ringed"
    inode = file.stat().st_ino
    log = Log(recorder.klogger, path)
    assert log.one(f"SELECT count(*) FROM RING WHERE inode = {inode} AND fd >= 0") == 37 + 41
    opened = log.rows(f"SELECT path, result >= 0 FROM RING WHERE op = 18 AND inode = {inode}")
    # Within its file system, which may be mounted anywhere.
    ((name, ok),) = opened
    assert ok and str(file).endswith(name)
    assert log.one("SELECT min(result) FROM RING WHERE op = 18") == -errno.ENOENT
    rows = [row for row in tables["paths"] if row["path"] == name]
    assert sum(row["written"] for row in rows) == planted["write"][1]
    assert sum(row["read"] for row in rows) == planted["read"][1]


@pytest.mark.full("others of this file are in the gate")
def test_the_answers_name_the_waste(recorder, tmp_path):
    """Files that are opened for nothing, read again, guessed: as often as a script does it."""
    (tmp_path / "f").write_text("x" * 100)
    for number in range(31):
        (tmp_path / f"font{number}").write_text("")
    script = f"""
import os
for _ in range(53):
    with open("{tmp_path}/f") as f: f.read()
for n in range(31):
    os.close(os.open(f"{tmp_path}/font{{n}}", os.O_RDONLY))
for n in range(13):
    try: os.stat(f"{tmp_path}/device/{{n}}")
    except OSError: pass
print(len(os.listdir("{tmp_path}")))
"""
    (tmp_path / "script.py").write_text(script)
    # Not a wrapper that starts it.
    python = Path("/proc/self/exe").resolve()
    done, path = recorder.run("-s", SCHEMA, "--", python, "-I", tmp_path / "script.py")
    assert done.code == 0, done.err
    tables = answers(recorder.klogger, path)

    def rows(name, **wanted):
        found = [
            one for one in tables[name] if all(one[key] == value for key, value in wanted.items())
        ]
        assert found, (name, wanted, tables[name])
        return found[0]

    again = rows("again", path=f"{tmp_path}/f")
    assert (again["again"], again["bytes"]) == (52, 5200)
    unread = rows("unread", folder=str(tmp_path))
    assert (unread["files"], unread["opens"]) == (31, 31)
    guessed = rows("guessed", folder=f"{tmp_path}/device")
    assert (guessed["names"], guessed["absent"], guessed["of_all"]) == (13, 13, 1)
    # With . and ..
    assert rows("listed", folder=str(tmp_path))["entries"] == int(done.out) + 2
