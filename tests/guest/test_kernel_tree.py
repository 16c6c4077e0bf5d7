# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""klogger in a kernel's own source: Debian's 6.1, with klogger() calls in its scheduler.

What needs no kernel to be built is also tried on a tree that has only what klogger looks at.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import oracles
import pytest
from kernels import cache
from oracles import Log, workload_json
from tiers import HOW, SLOW

pytestmark = pytest.mark.full("boots guests of its own")

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = ROOT / "tests/kernel"
HEADER = "include/klogger/sched.klogger.h"
SCHEMA = ".klogger.conf.sched"
# The files of others that klogger changes, and the one that says which kernel this is.
LOOKED_AT = {
    "Makefile": "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 192\n",
    "Kbuild": "bounds-file := bounds.h\n\nPHONY += prepare\nprepare: $(bounds-file)\n\t@:\n",
    "kernel/Makefile": "obj-y = fork.o \\\n\t    exit.o\n\nobj-y += sched/\nobj-y += locking/\n",
    "lib/Kconfig.debug": 'menu "Kernel hacking"\n\nsource "kernel/trace/Kconfig"\n\nendmenu\n',
}


def run(*command, timeout=1800, **more):
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, **more
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def source():
    """Debian's, as it comes."""
    folder = cache() / "linux"
    if not (folder / "complete").exists():
        pytest.skip("no kernel source: run 'scripts/setup linux'")
    return folder / "source"


@pytest.fixture(scope="module")
def linux(source):
    """The folder of kernels, if it may be used: what is not built yet takes minutes."""
    if not SLOW:
        pytest.skip(f"for the night (builds kernels): {HOW} runs it")
    return source.parent


@pytest.fixture(scope="module")
def tree(linux, klogger):
    """A copy of the source with klogger in it. It stays, so that the next time little is
    compiled.
    """
    tree = linux / "tree"
    if not (tree / ".complete").exists():
        shutil.rmtree(tree, ignore_errors=True)
        # Programs that change a file in it make a new one, so that the files may be shared.
        run("cp", "-al", linux / "source", tree)
        run("patch", "-p1", "-d", tree, "-i", OURS / "scheduler.patch")
        (tree / ".complete").touch()
    schema = (OURS / "klogger.conf.sched").read_text()
    ours = tree / SCHEMA
    if not ours.exists() or ours.read_text() != schema:
        ours.write_text(schema)
    run(klogger, "kernel", "integrate", tree)
    return tree


@pytest.fixture(scope="module")
def build(linux, klogger):
    """Builds a kernel as scripts/kernel does; klogger is on the PATH."""

    def build(name, tree, folder, *lines, only=None):
        more = [word for line in lines for word in ("--set", line)]
        more += ["--only", only] if only else []
        path = f"{klogger.parent}:{os.environ['PATH']}"
        words = [ROOT / "scripts/kernel", "--tree", tree, "--out", linux / folder, *more, name]
        return Path(run(*words, env={**os.environ, "PATH": path}).splitlines()[-1])

    return build


@pytest.fixture(scope="module")
def uml(tree, build, klogger, workloads):
    """Runs a shell script in User Mode Linux with klogger in it; what it leaves in /out is in the
    folder.
    """
    kernel = build("uml", tree, "uml-klogger", "CONFIG_KLOGGER=y")

    def uml(script, out, timeout=120):
        path = f"{klogger.parent}:{workloads}:{os.environ['PATH']}"
        words = [ROOT / "scripts/uml", "--kernel", kernel, "--timeout", str(timeout), "--out", out]
        return run(
            *words, "--", "sh", "-c", script, env={**os.environ, "PATH": path}, timeout=timeout + 60
        )

    return uml


@pytest.mark.parametrize(
    "workload", ["pingpong 3000 processes 0", "sleepers 3 53 2000", "spinners 3 700 0"]
)
def test_calls_in_the_scheduler(uml, tree, klogger, tmp_path, workload):
    """Each thread's switches are those that the kernel has counted."""
    uml(
        f"klogger record --engine kernel -s {tree}/{SCHEMA} -o /out/a.klog -- {workload}"
        " >/out/report",
        tmp_path,
    )
    log = Log(klogger, tmp_path / "a.klog")
    oracles.check_whole(log)
    assert log.meta["preamble"]["engine"] == "kernel"
    threads = workload_json((tmp_path / "report").read_text())["threads"]
    assert threads
    for thread in threads:
        mine = f"pid = {thread['tid']} AND time <= {thread['time_ns'] - log.start_ns}"
        out = log.count("SWITCH_OUT", mine)
        preempted = log.count("SWITCH_OUT", f"{mine} AND state = 0")
        assert (out, preempted) == (thread["nvcsw"] + thread["nivcsw"], thread["nivcsw"]), thread
        assert log.count("SWITCH_IN", mine) == out + 1, thread


def test_control_tree(uml, tmp_path):
    """The schema at the tree's top is there from the start, each event with its file and its
    benchmark.
    """
    uml(
        "cd /proc/sys/klogger && ls . benchmarks >/out/ls && cat enable benchmarks/SWITCH_IN"
        " >/out/cat",
        tmp_path,
    )
    names = (tmp_path / "ls").read_text().split()
    assert all(
        names.count(event) == 2 for event in ("SWITCH_OUT", "SWITCH_IN", "WAKING", "MARK")
    ), names
    enable, ticks = (tmp_path / "cat").read_text().split()
    assert enable == "1" and int(ticks) > 0


def pieces(core, folder):
    """What an object brings into the kernel: the bytes of each section, its code, and what the
    linker puts in.
    """
    listing = run("objdump", "--section-headers", core)
    names = re.findall(r"^ *\d+ (\S+) .*\n.*CONTENTS, ALLOC", listing, re.M)
    dumps = {name: folder / str(number) for number, name in enumerate(names)}
    run(
        "objcopy",
        *[f"--dump-section={name}={file}" for name, file in dumps.items()],
        core,
        folder / "copy",
    )
    found = {name: bytearray(file.read_bytes()) for name, file in dumps.items()}
    assert {".text", ".sched.text", "__bug_table"} <= found.keys()
    # Of each BUG() and WARN(), 12 bytes: where it is, its file, its line, flags. Lines of the
    # source have moved.
    for at in range(8, len(found["__bug_table"]), 12):
        found["__bug_table"][at : at + 2] = b"\0\0"
    return found, run("objdump", "--disassemble", "--reloc", core).split("Disassembly", 1)[1]


def test_without_config_nothing_is_there(linux, tree, build, tmp_path):
    """With CONFIG_KLOGGER=n the scheduler with klogger() calls is the scheduler without."""
    assert "klogger(SWITCH_IN" in (tree / "kernel/sched/core.c").read_text()
    made = []
    for folder, source in (("plain", linux / "source"), ("off", tree)):
        core = build("small", source, f"small-{folder}", only="kernel/sched/core.o")
        (tmp_path / folder).mkdir()
        made.append(pieces(core, tmp_path / folder))
    assert made[0] == made[1]


@pytest.fixture(params=["Debian's", "least"])
def plain(request):
    """The texts that klogger looks at, of a tree without it."""
    if request.param == "least":
        return LOOKED_AT
    source = request.getfixturevalue("source")
    return {name: (source / name).read_text() for name in LOOKED_AT}


@pytest.fixture
def scratch(plain, klogger, tmp_path):
    """As much of a tree as is looked at before anything is compiled, with klogger in it."""
    tree = tmp_path / "linux"
    for name, text in {**plain, SCHEMA: (OURS / "klogger.conf.sched").read_text()}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    run(klogger, "kernel", "integrate", tree)
    return tree


def update(tree, path):
    script = tree / "kernel/klogger/update.sh"
    return subprocess.run(
        ["sh", script, tree], capture_output=True, text=True, check=False, env={"PATH": path}
    )


def test_a_changed_schema_is_generated_anew(scratch, klogger):
    (scratch / SCHEMA).write_text((scratch / SCHEMA).read_text() + "event EXTRA { int what }\n")
    (scratch / "mm.klogger").write_text("event PAGE { ulong address }\n")
    without = update(scratch, "/usr/bin:/bin")
    assert (without.returncode, without.stdout) == (1, "")
    assert (
        f"changed since the files of kernel/klogger were made: {SCHEMA} mm.klogger"
        in without.stderr
    )
    assert "EXTRA" not in (scratch / HEADER).read_text()

    path = f"{klogger.parent}:/usr/bin:/bin"
    done = update(scratch, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "klogger_call_EXTRA(int what)" in (scratch / HEADER).read_text()
    assert "klogger_call_PAGE" in (scratch / "include/klogger/mm.klogger.h").read_text()
    assert update(scratch, path).stdout == ""

    (scratch / "mm.klogger").unlink()
    assert update(scratch, path).returncode == 0
    assert not (scratch / "include/klogger/mm.klogger.h").exists()
    assert "mm.klogger.o" not in (scratch / "kernel/klogger/Makefile").read_text()


def lines(text):
    return text.splitlines(keepends=True)


def test_few_lines_of_others_are_changed(scratch, plain):
    """And those are added; all else is in folders of klogger's own."""
    added = []
    for name, text in plain.items():
        ours = lines((scratch / name).read_text())
        added += [line for line in ours if "klogger" in line]
        assert [line for line in ours if "klogger" not in line] == lines(text)
    assert 0 < len(added) < 40
    others = {path.relative_to(scratch).parts[:2] for path in scratch.rglob("*") if path.is_file()}
    own = {("kernel", "klogger"), ("include", "klogger")}
    assert others == own | {tuple(name.split("/")) for name in (*plain, SCHEMA)}


def test_removed_without_a_trace(scratch, plain, klogger):
    run(klogger, "kernel", "integrate", "--remove", scratch)
    (scratch / SCHEMA).unlink()
    assert {
        str(path.relative_to(scratch)): path.read_text()
        for path in scratch.rglob("*")
        if path.is_file()
    } == plain
    assert not list(scratch.rglob("klogger"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("event A { int x }\nevent A { int x }\n", "A"),
        ("event SWITCH_IN { int x }\n", "both have an event SWITCH_IN"),
        ("schema sched\nevent B { int x }\n", "are both the schema 'sched'"),
        (
            "event B { int x }\nprobe tracepoint no_such_thing() { klogger(B, 1); }\n",
            "no_such_thing",
        ),
        ("event B { int x }\nprobe timer 10 hz { klogger(B, 1); }\n", "timer"),
    ],
)
def test_bad_schemata_change_nothing(scratch, klogger, text, message):
    (scratch / "bad.klogger").write_text(text)
    before = (scratch / HEADER).read_text()
    done = subprocess.run(
        [klogger, "kernel", "integrate", scratch], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert (scratch / HEADER).read_text() == before and not (
        scratch / "include/klogger/bad.klogger.h"
    ).exists()
