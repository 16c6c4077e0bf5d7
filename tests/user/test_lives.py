# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What programs do in their lives, and where they must live: they go on as they would without
klogger.
"""

import os
import subprocess
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import Room
from shm_oracle import Shared
from tiers import scaled

END = 1_000_000
root = pytest.mark.skipif(os.geteuid() != 0, reason="not root")


def numbers(drainer, who: int = 0) -> list[int]:
    return sorted(values["n"] for values in drainer.all("COUNT") if values["thread"] == who)


@pytest.mark.parametrize("quiet", [False, True], ids=["logged-before", "quiet-before"])
@pytest.mark.parametrize("what", ["close", "setuid", "chroot", "lock", "sleep", "nothing"])
def test_goes_on_logging(build, room, what, quiet):
    """A thread that has logged, and one that gets its first ring after the change."""
    if os.geteuid() != 0 and what in ("setuid", "chroot", "lock"):
        pytest.skip("not root")
    done, drainer = room.record(build("lives.c"), what, 1, **({"QUIET": 1} if quiet else {}))
    assert (done.code, done.err) == (7, "")
    assert numbers(drainer) == ([] if quiet else [0]) + ([1] if what == "sleep" else []) + [END]
    assert drainer.counted("COUNT") == 0


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("page", [4096, 16384, 65536])
@pytest.mark.parametrize("what", ["fork", "clone", "threads"])
def test_pages_of_all_sizes(build, room, what, page):
    """Forked children log on kernels with larger pages as well, where no file can be mapped from
    within a page.
    """
    n = 5
    shim = build("pages.c", out="pages.so", flags=["-shared", "-fPIC"])
    done, drainer = room.record(build("lives.c"), what, n, LD_PRELOAD=shim, PAGE=page)
    assert (done.code, done.err) == (7, "")
    expected = {"fork": 2 + n + 3 * n, "clone": 2 + 2 * n, "threads": n + 2}
    assert len(drainer.all("COUNT")) == expected[what]
    assert drainer.counted("COUNT") == 0


@root
def test_locked_memory_is_not_all_slots(build, room):
    """mlockall() brings in what is mapped; the slots of threads that do not exist are not to be
    among that.
    """
    done, drainer = room.record(build("lives.c"), "lock", 1)
    assert done.code == 7
    (shared,) = drainer.files.values()
    assert shared.path.stat().st_blocks * 512 < 32 << 20


@pytest.mark.parametrize("quiet", [False, True], ids=["logged-before", "quiet-before"])
@pytest.mark.parametrize("what", ["fork", "clone"])
def test_forks(build, room, what, quiet):
    """Each process has a file of its own, names its parent, and logs its own events only."""
    n = scaled(50, 1000)
    done, drainer = room.record(
        build("lives.c"), what, n, timeout=600, **({"QUIET": 1} if quiet else {})
    )
    assert (done.code, done.err) == (7, "")
    assert drainer.counted("COUNT") == 0
    assert numbers(drainer) == ([] if quiet else [0]) + [*range(1, n + 1), END]
    assert Counter(numbers(drainer, 1)) == {i: 2 if what == "fork" else 1 for i in range(n)}
    assert numbers(drainer, 2) == (list(range(n)) if what == "fork" else [])
    assert len(drainer.files) == 1 + n * (2 if what == "fork" else 1)
    pids = {shared.pid for shared in drainer.files.values()}
    assert len(pids) == len(drainer.files)
    orphans = [shared for shared in drainer.files.values() if shared.parent not in pids]
    assert [shared.parent for shared in orphans] == [0]
    for (name, _, _), stream in drainer.streams("COUNT").items():
        depth = {values["thread"] for values in stream}
        assert len(depth) == 1, name


def test_vfork_and_exec(build, room):
    n = scaled(20, 1000)
    done, drainer = room.record(build("lives.c"), "vfork", n)
    assert (done.code, done.err) == (7, "")
    assert numbers(drainer) == sorted([0, *range(1, n + 1), END] + [0, END] * n)
    assert len(drainer.files) == n + 1


def test_exec(build, room):
    """The same process, another program: a file for each, and the events of both."""
    done, drainer = room.record(build("lives.c"), "exec", 3)
    assert (done.code, done.err) == (7, "")
    assert numbers(drainer) == [0, 0, 0, 0, END]
    assert len({shared.pid for shared in drainer.files.values()}) == 1
    assert len({shared.image for shared in drainer.files.values()}) == 4


def test_before_and_after_main(build, room):
    done, drainer = room.record(build("lives.c"), "exit", EARLY=1)
    assert (done.code, done.err) == (7, "")
    assert numbers(drainer) == [0, 1001, 1002, 1003, END]


def test_killed(build, room):
    done, drainer = room.record(build("lives.c"), "kill")
    assert done.code == -9
    assert numbers(drainer) == [0]


@pytest.mark.full("takes more than 3 s")
def test_nothing_is_left(build, room):
    for what in ("nothing", "fork", "clone", "vfork", "threads", "close", "exit"):
        done = room.run(build("lives.c"), what, 3, record=False)
        assert (done.code, done.err) == (7, "")
        assert room.names() == [], what


def test_what_the_killed_left_is_swept(build, room):
    program = build("lives.c")
    for _ in range(3):
        room.run(program, "kill", record=False)
    running = room.start(program, "sleep", 100_000, record=False)
    try:
        while not list(room.path.glob(f"{running.pid}.*")):
            assert running.poll() is None
        room.run(program, "nothing", record=False)
        (left,) = room.names()
        assert left.startswith(f"{running.pid}."), "the file of a program that runs stays"
    finally:
        running.kill()
        running.communicate()


def test_sweep_leaves_strangers_alone(build, room):
    """Only files that are a dead program's by name and by content."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    strangers = ["notes", f"{dead.pid}.txt", "0.1", "-5.1", "99999999999999999999.1", ".hidden"]
    for name in strangers:
        (room.path / name).write_text("not klogger's" * 1000)
    (room.path / f"{dead.pid}.folder").mkdir()
    (room.path / f"{dead.pid}.link").symlink_to("/etc/hostname")
    os.mkfifo(room.path / f"{dead.pid}.fifo")
    before = room.names()
    assert room.run(build("lives.c"), "nothing", record=False, timeout=10).code == 7
    assert room.names() == before


def check_goes_on(room, program, **env):
    """The same exit code; at most a line on stderr."""
    for what in ("nothing", "fork", "threads"):
        done = room.run(program, what, 3, **env)
        assert done.code == 7, (what, done)
        assert len(done.err.splitlines()) <= 1, done.err
        assert "klogger: " in done.err or not done.err


@contextmanager
def small_folder(options: str):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "none", folder], check=True
        )
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


@pytest.mark.full("others of this file are in the gate")
@root
@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize("size", ["4k", "8k", "64k", "300k", "1m", "3m"])
def test_full_folder(build, size, record):
    """Wherever memory ends: no SIGBUS."""
    with small_folder(f"size={size}") as folder:
        check_goes_on(Room(folder), build("lives.c"), record=record)
        done = Room(folder).run(build("signals.c"), 50_000, 100, record=record)
        assert done.code == 0, done


@root
@pytest.mark.parametrize("options", ["nr_inodes=1", "nr_inodes=2", "ro"])
def test_unwilling_folder(build, options):
    with small_folder(options) as folder:
        check_goes_on(Room(folder), build("lives.c"))
        done = Room(folder).run(build("lives.c"), "nothing", record=False)
        assert (done.code, done.err) == (7, "")


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("blocks", [0, 1, 100, 336, 700, 5000])
def test_limited_file_size(build, room, blocks):
    """RLIMIT_FSIZE, whose excess is a signal that ends a program; in KiB."""
    for record in (True, False):
        done = room.run(
            "bash",
            "-c",
            f'ulimit -f {blocks}; exec "$@"',
            "-",
            build("lives.c"),
            "nothing",
            record=record,
        )
        assert (done.code, len(done.err.splitlines())) in ((7, 0), (7, 1)), done


@pytest.mark.parametrize("mib", [64, 256, 1024])
def test_limited_address_space(build, room, mib):
    """RLIMIT_AS: what klogger maps leaves the program most of it."""
    command = f'ulimit -v {mib * 1024}; exec "$@"'
    done = room.run("bash", "-c", command, "-", build("lives.c"), "threads", 3)
    assert (done.code, len(done.err.splitlines())) in ((7, 0), (7, 1)), done


@root
@pytest.mark.parametrize("mode", [0o000, 0o500, 0o777])
def test_no_permission(build, tmp_path, mode):
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    program = folder / "lives"
    try:
        folder.chmod(0o755)
        program.write_bytes(build("lives.c").read_bytes())
        program.chmod(0o755)
        shared = folder / "shared"
        shared.mkdir()
        os.chown(shared, 65534, 65534)
        shared.chmod(mode)
        room = Room(shared)
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        done = room.run(*nobody, program, "nothing")
        assert done.code == 7
        assert len(done.err.splitlines()) == 1
        assert done.err.startswith("klogger: ")
        assert list(shared.iterdir()) == []
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


@pytest.mark.parametrize("kind", ["file", "link", "missing parent", "long"])
def test_no_folder(build, tmp_path, kind):
    path = tmp_path / "shared"
    if kind == "file":
        path.write_text("")
    elif kind == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        path.symlink_to("real")
    elif kind == "missing parent":
        path = path / "folder"
    else:
        path = path / ("x" * 255)
    check_goes_on(Room(path), build("lives.c"))


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize(
    "request_",
    [
        "",
        "1",
        "1:",
        "1:1:1:1:1:1:*:",
        "2:1:1:1048576:1:1:*:",
        "1:zz:1:1048576:1:1:*:",
        "1:1:1:1048577:4:1:*:",
        "1:1:1:1099511627776:4:1:*:",
        "1:1:1:1048576:4294967295:1:*:",
        "1:1:1:1048576:4:1",
        "x" * 100_000,
        "1:1:1:1048576:4:1:" + "count," * 10_000 + ":" + "COUNT" * 10_000,
    ],
    ids=range(12),
)
def test_odd_requests(build, room, request_):
    done = room.run(build("lives.c"), "nothing", record=False, KLOGGER_RECORD=request_)
    assert (done.code, len(done.err.splitlines())) in ((7, 0), (7, 1)), done


@root
def test_a_privileged_program_ignores_the_environment(build, room):
    """Set-user-ID programs ignore KLOGGER_RECORD and the like, and write nothing where these
    point.
    """
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    program = folder / "lives"
    try:
        folder.chmod(0o755)
        program.write_bytes(build("lives.c").read_bytes())
        os.chown(program, 1, 1)
        program.chmod(0o4755)
        room.path.chmod(0o777)
        room.path.parent.chmod(0o755)
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        done = room.run(*nobody, program, "nothing")
        assert (done.code, done.err, room.names()) == (7, "", [])
    finally:
        subprocess.run(["rm", "-rf", folder, "/dev/shm/klogger-1"], check=True)


def test_a_file_is_complete_when_it_is_seen(build, room):
    """A file that has its name can be used: it is named last."""
    program = build("lives.c")
    seen = runs = 0
    # Whether this process looks in between is chance: until it did.
    while runs < scaled(20, 300) or (not seen and runs < 5000):
        runs += 1
        process = room.start(program, "nothing")
        while process.poll() is None:
            for path in room.path.glob("[0-9]*"):
                shared = Shared(path)
                assert list(shared.texts) == ["count"]
                seen += 1
                shared.close()
        process.communicate()
        for path in room.path.glob("[0-9]*"):
            path.unlink()
    assert seen > 0
