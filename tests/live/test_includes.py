# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Texts that schemata include: klogger's own against what the kernel says elsewhere, messages that
point to the included file, and object scope by what they find.
"""

import array
import fcntl
import json
import os
import shutil
import struct
import sys
import tempfile
from pathlib import Path

import pytest

SCHEMA = """schema opened "What a program asks about its own files with prctl(1000, FD)"
include "paths"
event FILE { int fd  ulong inode  uint device as device  string path as path }
event BY_INODE { string path as path  string[8] why }
probe tracepoint task_prctl_unknown(int option, unsigned long arg2) {
    if (option == 1000) {
        struct file *file = file_of_fd(arg2);
        struct inode *inode = inode_of_file(file);

        klogger(FILE, arg2, inode_number(inode), inode_device(inode), path_of_file(file));
        klogger(BY_INODE, path_of_inode(inode), "inode");
    }
}
"""
WORKLOAD = """
import ctypes, os, sys
prctl = ctypes.CDLL(None).prctl
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    prctl(1000, fd, 0, 0, 0)
    os.close(fd)
prctl(1000, 4000, 0, 0, 0)
"""


@pytest.fixture
def files():
    """Names with spaces and quotes, other scripts, deep folders, and long ones."""
    folder = Path(tempfile.mkdtemp())
    deep = folder / "d0/d1/d2/d3"
    deep.mkdir(parents=True)
    names = ["a b", 'it\'s "x"', "ä日本", "n" * 120]
    paths = [folder / name for name in names] + [deep / "leaf"]
    for path in paths:
        path.write_text("x")
    yield paths
    shutil.rmtree(folder)


def recorded(recorder, schema, paths, *options):
    command = [sys.executable, "-c", WORKLOAD, *paths]
    done, log = recorder.run("-s", schema, *options, "--", *command)
    assert done.code == 0, done.err
    shown = recorder.command("cat", log, "--format", "json", "--event", "FILE,BY_INODE")
    rows = [json.loads(line) for line in shown.out.splitlines()]
    files = [r for r in rows if r["event"] == "FILE"]
    return files, [r for r in rows if r["event"] == "BY_INODE"], done


def test_files_and_their_paths(recorder, files):
    schema = recorder.dir / "opened.klogger"
    schema.write_text(SCHEMA)
    found, by_inode, _ = recorded(recorder, schema, files)
    assert len(found) == len(files) + 1
    for path, row, other in zip(files, found, by_inode, strict=False):
        about = path.stat()
        device = os.major(about.st_dev) << 20 | os.minor(about.st_dev)
        assert (row["inode"], row["device"]) == (about.st_ino, device)
        # Without the mounts above.
        assert str(path).endswith(row["path"]) and row["path"].count("/") >= 3
        assert row["path"] == other["path"]
    assert (found[-1]["inode"], by_inode[-1]["path"]) == (0, "...")


def test_what_has_no_path_is_called_as_in_proc(recorder):
    schema = recorder.dir / "opened.klogger"
    schema.write_text(SCHEMA)
    program = (
        "import ctypes, json, os, select\nlibc = ctypes.CDLL(None)\n"
        "epoll = select.epoll()\n"
        "fds = [libc.inotify_init(), os.eventfd(0), epoll.fileno(), os.pipe()[0]]\n"
        "for fd in fds: libc.prctl(1000, fd, 0, 0, 0)\n"
        "print(json.dumps([os.readlink(f'/proc/self/fd/{fd}') for fd in fds]))"
    )
    done, log = recorder.run("-s", schema, "--", sys.executable, "-c", program)
    assert done.code == 0, done.err
    shown = recorder.command("cat", log, "--format", "json", "--event", "FILE")
    assert [json.loads(line)["path"] for line in shown.out.splitlines()] == json.loads(done.out)


@pytest.mark.full("others of this file are in the gate")
def test_only_one_device_and_folder(recorder, files):
    schema = recorder.dir / "opened.klogger"
    schema.write_text(SCHEMA)
    every, _, _ = recorded(recorder, schema, [*files, "/proc/self/stat"])
    own = f"{os.major(files[0].stat().st_dev)}:{os.minor(files[0].stat().st_dev)}"
    some, others, done = recorded(
        recorder, schema, [*files, "/proc/self/stat"], "--device", own, "--device", "4095:7"
    )
    assert [r["inode"] for r in some] == [p.stat().st_ino for p in files]
    assert "--device does not apply to BY_INODE: without a field 'as device'" in done.err
    assert len(others) == len(every)
    folder = os.path.dirname(every[len(files) - 1]["path"])
    assert folder.endswith("/d3")
    deep, also, _ = recorded(recorder, schema, files, "--path", os.path.dirname(folder) + "/")
    assert [r["inode"] for r in deep] == [files[-1].stat().st_ino]
    assert [r["path"] for r in also] == [deep[0]["path"]]
    # A name that only begins so.
    none, _, _ = recorded(recorder, schema, files, "--path", folder[:-1])
    assert none == []


def test_messages_name_the_included_file(recorder):
    (recorder.dir / "walk.shared").write_text("code {\n    static int twice(int x)\n    {\n"
                                              "        return y * 2;\n    }\n}\n")  # fmt: skip
    schema = recorder.dir / "s.klogger"
    schema.write_text('schema s\ninclude "walk"\nevent E { int x }\n'
                      "probe tracepoint task_prctl_unknown(int option) {\n"
                      "    klogger(E, twice(z));\n}\n")  # fmt: skip
    done = recorder.command("check", schema)
    assert done.code == 2
    assert f"[{recorder.dir}/walk.shared:4:16]" in done.err, done.err
    assert f"[{schema}:5:22]" in done.err, done.err
    found = json.loads(recorder.command("check", "--format", "json", schema).out)[0]["diagnostics"]
    assert [(d.get("file"), d["line"]) for d in found if d["severity"] == "error"] == [
        (f"{recorder.dir}/walk.shared", 4), (None, 5),
    ]  # fmt: skip
    shown = recorder.command("show", schema, "--format", "json")
    assert json.loads(shown.out)["includes"] == [f"{recorder.dir}/walk.shared"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../other/secret", "this is not a name"),
        ("/etc/passwd", "this is not a name"),
        ("secret", "is not a file of the schema's folder"),
        ("self", "it includes itself"),
        ("nothing", "there is no such text"),
    ],
)
def test_includes_that_are_refused(recorder, name, why):
    other = recorder.dir / "other"
    other.mkdir()
    (other / "secret.shared").write_text('enum a { 1 "a" }\n')
    (recorder.dir / "secret.shared").symlink_to(other / "secret.shared")
    (recorder.dir / "self.shared").write_text('include "self"\n')
    schema = recorder.dir / "s.klogger"
    schema.write_text(f'schema s\n\ninclude "{name}"\nevent E {{ int x }}\n')
    done = recorder.command("check", schema)
    assert done.code == 2
    assert why in done.err, done.err
    assert done.err.count("×") == 1
    file, line = (recorder.dir / "self.shared", 1) if name == "self" else (schema, 3)
    assert f"[{file}:{line}:9]" in done.err, done.err


FLUSHED = """schema flushed "Which parts of files are written"
include "requests"
event BEGAN scope all { ulong sector  ulong inode  ulong position in bytes  uint bytes
                        bool known  bool alone }
event ENDED scope all { ulong sector  ulong inode  ulong position in bytes  uint bytes
                        ulong took }
probe tracepoint block_rq_issue(struct request *rq) {
    unsigned long sector = klogger_request_sector(rq);

    request_begins(rq);
    klogger(BEGAN, sector, inode_number(inode_of_request(rq)), position_of_request(rq),
            klogger_request_bytes(rq), request_at(klogger_request_dev(rq), sector) != NULL,
            request_at(klogger_request_dev(rq) ^ 11 << 20, sector) == NULL);
}
probe tracepoint block_rq_complete(struct request *rq) {
    struct issued request;

    if (request_ends(rq, &request))
        klogger(ENDED, klogger_request_sector(rq), request.inode, request.position, request.bytes,
                bpf_ktime_get_ns() - request.since);
}
"""
# Writes so many pages, and waits until they are on the disk.
FLUSH = """
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
for n in range(int(sys.argv[2])):
    os.write(fd, bytes([n % 251]) * 4096)
os.fsync(fd)
"""


def extents(path: Path) -> list[tuple[int, int, int]]:
    """Where a file is on its device: offset, first byte there, and bytes (ioctl FIEMAP)."""
    many = 256
    asked = array.array("B", struct.pack("=QQLLLL", 0, 2**64 - 1, 1, 0, many, 0) + bytes(56 * many))
    with path.open() as file:
        try:
            fcntl.ioctl(file, 0xC020660B, asked)
        except OSError:
            pytest.skip("this file system does not say where files are")
    answer = asked.tobytes()
    (found,) = struct.unpack_from("=L", answer, 20)
    parts = [struct.unpack_from("=QQQ", answer, 32 + 56 * n) for n in range(found)]
    return [(offset, there, length) for offset, there, length in parts]


def start_of(device: int) -> int:
    """The first sector of a partition, or 0 of a whole disk."""
    folder = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not folder.exists():
        pytest.skip("the test's folder is not on a disk")
    # LVM and the like pass requests on, to sectors of other disks.
    if "/virtual/" in str(folder.resolve()):
        pytest.skip("the test's folder is on no disk itself")
    start = folder / "start"
    return int(start.read_text()) if start.exists() else 0


@pytest.mark.full("others of this file are in the gate")
def test_requests_and_the_files_that_they_write(recorder):
    schema, file, pages = recorder.dir / "flushed.klogger", recorder.dir / "file", 769
    schema.write_text(FLUSHED)
    done, log = recorder.run("-s", schema, "--", sys.executable, "-c", FLUSH, file, str(pages))
    assert done.code == 0, done.err
    about = file.stat()
    first = start_of(about.st_dev)
    shown = recorder.command("cat", log, "--format", "json", "--event", "BEGAN,ENDED")
    rows = [json.loads(line) for line in shown.out.splitlines()]
    own = [row for row in rows if row["inode"] == about.st_ino]
    where = extents(file)
    for row in own:
        sectors = {
            first + (there + row["position"] - offset) // 512
            for offset, there, length in where
            if offset <= row["position"] < offset + length
        }
        assert sectors == {row["sector"]}
    for event in ("BEGAN", "ENDED"):
        written = {
            (row["position"] + n) // 4096
            for row in own
            if row["event"] == event
            for n in range(0, row["bytes"], 4096)
        }
        assert written == set(range(pages))
    assert all(row["known"] for row in own if row["event"] == "BEGAN")
    # The same sector of a disk with another major number, and the same minor one.
    assert all(row["alone"] for row in own if row["event"] == "BEGAN")
    assert all(row["took"] > 0 for row in own if row["event"] == "ENDED")


ARGUMENTS = """schema given "With which arguments the program was started that calls prctl(1001)"
include "arguments"
event GIVEN { string[..1000] arguments }
probe tracepoint task_prctl_unknown(int option) {
    if (option == 1001)
        klogger(GIVEN, arguments_of_current());
}
"""


def test_arguments_are_those_of_proc(recorder):
    schema = recorder.dir / "given.klogger"
    schema.write_text(ARGUMENTS)
    program = "import ctypes; ctypes.CDLL(None).prctl(1001, 0, 0, 0, 0)"
    for words in (["two words", ""], ["y" * 1500], []):
        command = [sys.executable, "-c", program, *words]
        done, log = recorder.run("-s", schema, "--", *command)
        assert done.code == 0, done.err
        shown = recorder.command("cat", log, "--format", "json").out.splitlines()
        (given,) = [json.loads(line) for line in shown if '"event":"GIVEN"' in line]
        assert given["arguments"] == " ".join(command)[:1000]


UNNAMED = """
import ctypes, os, socket
prctl = ctypes.CDLL(None).prctl
pair = socket.socketpair()
all = [*os.pipe(), pair[0].fileno(), os.eventfd(0), os.memfd_create("mine")]
for fd in all:
    prctl(1000, fd, 0, 0, 0)
    print(fd, os.readlink(f"/proc/self/fd/{fd}"))
"""


def test_files_in_no_folder_are_called_as_in_proc(recorder):
    schema = recorder.dir / "opened.klogger"
    schema.write_text(SCHEMA)
    done, log = recorder.run("-s", schema, "--", sys.executable, "-c", UNNAMED)
    assert done.code == 0, done.err
    theirs = [line.removesuffix(" (deleted)").split(" ", 1) for line in done.out.splitlines()]
    shown = recorder.command("cat", log, "--format", "json").out.splitlines()
    events = [json.loads(line) for line in shown if '"event":"FILE"' in line]
    assert [[str(one["fd"]), one["path"]] for one in events] == theirs
    assert len(theirs) == 5
