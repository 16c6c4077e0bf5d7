# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The one file of `make tarball`: unpacked where there is a C library and nothing else, it records
and reads logs.
"""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import rooms

ROOT = Path(__file__).parents[2]
SIZE_MAX = 40_000_000
# Of the C library and the compiler.
LIBRARIES = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}

pytestmark = pytest.mark.full("packs the program, which has much debug information")


@pytest.fixture(scope="module")
def packed(klogger, tmp_path_factory):
    folder = tmp_path_factory.mktemp("packed")
    pack(klogger, folder)
    return folder


def pack(klogger, folder):
    words = [ROOT / "scripts/tarball", folder]
    environment = {**os.environ, "KLOGGER": str(klogger)}
    subprocess.run(words, env=environment, check=True, capture_output=True)


def one(folder, ending) -> Path:
    (found,) = folder.glob(f"klogger-*{ending}")
    return found


@pytest.fixture(scope="module")
def unpacked(packed, tmp_path_factory):
    """A root directory with the program, the libraries that it names, and nothing else."""
    root = tmp_path_factory.mktemp("root")
    with tarfile.open(one(packed, ".tar.gz")) as file:
        file.extractall(root, filter="data")
    (folder,) = root.iterdir()
    program = folder / "bin/klogger"
    named = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for word in named.split():
        if word.startswith("/"):
            assert Path(word).name in LIBRARIES, named
            at = root / word.lstrip("/")
            at.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(word, at)
    for name in (*rooms.MOUNTS, "tmp"):
        (root / name).mkdir()
    return root, Path("/") / folder.name / "bin/klogger"


@pytest.fixture
def run(unpacked):
    root, program = unpacked

    def run(*words):
        return rooms.run(root, program, *words)

    return run


def test_it_is_small_and_whole(packed, unpacked):
    root, program = unpacked
    folder = root / program.parts[1]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= SIZE_MAX
    names = {str(path.relative_to(folder)) for path in files}
    assert {"share/man/man1/klogger-record.1", "share/man/man7/klogger-log-format.7"} <= names
    assert {"share/doc/klogger/LICENSE", "share/zsh/site-functions/_klogger"} <= names
    assert "share/doc/klogger/LIBRARIES" in names
    with tarfile.open(one(packed, ".tar.gz")) as file:
        members = file.getmembers()
    assert {(member.uid, member.gid) for member in members} == {(0, 0)}
    assert all(member.mode & 0o022 == 0 for member in members)
    # The debugger finds what was stripped.
    link = subprocess.run(
        ["readelf", "--string-dump=.gnu_debuglink", root / str(program).lstrip("/")],
        capture_output=True,
        text=True,
        # The checksum is any four bytes.
        errors="replace",
        check=True,
    ).stdout
    assert one(packed, ".debug").name in link


def test_the_same_tree_is_the_same_file(klogger, packed, tmp_path):
    pack(klogger, tmp_path)
    for ending in (".tar.gz", ".debug"):
        assert one(packed, ending).read_bytes() == one(tmp_path, ending).read_bytes()


def test_it_records_and_reads(run, unpacked):
    _, program = unpacked
    done = run("record", "-s", "scheduler", "-o", "/a.klog", "--", program, "--version")
    assert done.returncode == 0 and "SCHEDIN" not in done.stderr, done.stderr
    for words in (["info"], ["cat"], ["check-log"], ["export", "--to", "json", "-o", "-"]):
        done = run(*words, "/a.klog")
        assert done.returncode == 0 and done.stdout, (words, done.stderr)
    assert "SCHEDIN" in run("cat", "/a.klog").stdout
    done = run("trace", "-s", "scheduler", "--", program, "--version")
    assert done.returncode == 0 and "SCHEDIN" in done.stderr, done
    assert run("list").stdout.count("\n") > 20


def test_doctor_says_what_is_not_there(run):
    done = run("doctor", "--missing")
    assert done.returncode == 0 and {"clang", "analyses"} <= set(done.stdout.split()), done


def test_what_needs_python_says_so(run):
    done = run("report", "/a.klog")
    assert done.returncode == 2 and "Python package" in done.stderr, done.stderr
    done = run("record", "-s", "scheduler", "--where", "SCHEDIN: cpu == 0", "-o", "/b.klog", "-a")
    assert done.returncode == 2 and "clang" in done.stderr, done.stderr
