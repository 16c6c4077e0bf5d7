# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Of code that a program has made, only the program itself and root say the names: any user can
make a file of any name in /tmp. What was refused is in the ledger.
"""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import RENAMES, wait_for
from oracles import Log

# It calls a function through code that it has made at CODE, once for each line.
CODE = 0x5000_0000
PROGRAM = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
static __attribute__((noinline)) void renames(const char *name)
{
    long done;
    __asm__ volatile("" : : "r"(__builtin_frame_address(0)));
    __asm__ volatile("syscall" : "=a"(done)
                     : "0"(SYS_prctl), "D"(15), "S"(name) : "rcx", "r11", "memory");
}
/* push %rbp; mov %rsp,%rbp; call *%rsi; pop %rbp; ret */
static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3};
int main(void)
{
    void *at = mmap((void *)0x50000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    void (*made)(const char *, void (*)(const char *)) = at;
    char name[16];
    memcpy(at, code, sizeof(code));
    puts("ready");
    fflush(stdout);
    while (scanf("%15s", name) == 1) {
        made(name, renames);
        puts("done");
        fflush(stdout);
    }
    return 0;
}
"""
NOBODY = 65534


@pytest.fixture(scope="module")
def maker():
    """In a folder that all users can read."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "maker.c").write_text(PROGRAM)
    flags = ["-O1", "-fno-omit-frame-pointer"]
    subprocess.run(["gcc", *flags, folder / "maker.c", "-o", folder / "maker"], check=True)
    yield folder / "maker"
    shutil.rmtree(folder)


def recorded(recorder, maker, write, user=0):
    """What made code is called after `write` has made the map, and what the ledger says of it."""
    (recorder.dir / "who.klogger").write_text(RENAMES)
    out = recorder.path()
    recording = recorder.start("-q", "-s", recorder.dir / "who.klogger", "-a", out=out)
    wait_for(out.exists, recording)
    wait_for(lambda: recorder.command("mark", "--recorder", recording.pid, "on").code == 0)
    program = subprocess.Popen(
        [maker], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, user=user
    )
    path = Path(f"/tmp/perf-{program.pid}.map")
    try:
        assert program.stdout.readline() == "ready\n"
        write(path)
        program.stdin.write("in_made\n")
        assert program.stdout.readline() == "done\n"
        # Names are looked up when the recording ends, and the program still is there.
        recording.terminate()
        _, said = recording.communicate(timeout=60)
        assert recording.returncode in (0, 143), said
    finally:
        program.communicate()
        path.unlink(missing_ok=True)
    info = json.loads(recorder.command("info", out, "--format", "json").out)
    told = [entry["text"] for entry in info["ledger"] if entry["key"] == "code_unnamed"]
    rows = Log(recorder.klogger, out).rows(
        "SELECT s.frames FROM RENAMED JOIN stack AS s ON s.id = user_stack WHERE name = 'in_made'"
    )
    return rows[0][0][1], told


def written(text, user=0, mode=0o644):
    def write(path):
        path.write_text(text)
        path.chmod(mode)
        os.chown(path, user, user)

    return write


MAP = f"{CODE:x} 1000 the_name\n"


def test_the_map_of_its_own_user_and_of_root(recorder, maker):
    for user, owner in ((0, 0), (NOBODY, NOBODY), (NOBODY, 0)):
        name, told = recorded(recorder, maker, written(MAP, owner), user)
        assert (name, told) == ("the_name", []), (user, owner)


def linked(path):
    target = path.with_suffix(".target")
    target.write_text(MAP)
    path.symlink_to(target)


def large(path):
    with path.open("w") as file:
        file.write(MAP)
        file.truncate(129 << 20)


@pytest.mark.parametrize(
    ("write", "user", "why"),
    [
        (written(MAP, NOBODY), 0, "it belongs to user 65534"),
        (written(MAP, 12345), NOBODY, "it belongs to user 12345"),
        (written(MAP, mode=0o666), 0, "others can write it"),
        (linked, 0, "it is not a regular file"),
        (os.mkfifo, 0, "it is not a regular file"),
        (large, 0, "it is larger than 128 MiB"),
    ],
    ids=["another user's", "a third user's", "everybody's", "link", "fifo", "large"],
)
def test_other_maps_are_refused_and_that_is_said(recorder, maker, write, user, why):
    try:
        name, told = recorded(recorder, maker, write, user)
    finally:
        for target in Path("/tmp").glob("perf-*.target"):
            target.unlink()
    assert name != "the_name"
    assert len(told) == 1 and why in told[0] and "/tmp/perf-" in told[0], told


FLOOD = r"""
#include <stdlib.h>
#include <sys/mman.h>
int main(int count, char **words)
{
    for (long n = atol(words[1]); n > 0; n--)
        munmap(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
}
"""


@pytest.mark.full("it takes half a million calls; what is kept is tested in crates/engines")
def test_a_program_that_maps_without_end(recorder, maker):
    """It costs little memory and nobody else's names, and what was not kept is in the ledger."""
    (recorder.dir / "flood.c").write_text(FLOOD)
    subprocess.run(
        ["gcc", "-O1", recorder.dir / "flood.c", "-o", recorder.dir / "flood"], check=True
    )
    flood = [recorder.dir / "flood", "500000"]

    def write(path):
        subprocess.run(flood, check=True)
        written(MAP)(path)

    name, _ = recorded(recorder, maker, write)
    assert name == "the_name"
    info = recorder.command("info", recorder.dir / "test1.klog", "--format", "json")
    told = [e["text"] for e in json.loads(info.out)["ledger"] if e["key"] == "code_unnamed"]
    assert any("were not kept, because programs mapped too much" in text for text in told), told
