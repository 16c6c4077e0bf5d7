# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names of code are those of the file that a program runs, whatever its path leads to by now: in
mount namespaces with other files at the same path, deleted, replaced, in memory, and of a process
whose first thread has ended. Also after snapshots, for which names are looked up before the end,
and of programs that are killed before it. Where there are none, the ledger says so.
"""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import RENAMES, wait_for
from oracles import Log

# Renames its thread once for each line, in a function whose name is that of the program. PADDING:
# so that the function of one program is not where that of another one is.
PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>
#define NAMED_(who) renames_##who
#define NAMED(who) NAMED_(who)
PADDING
__attribute__((noinline)) void NAMED(WHO)(const char *name)
{
    long done;
    __asm__ volatile("" : : "r"(__builtin_frame_address(0)));
    __asm__ volatile("syscall" : "=a"(done)
                     : "0"(SYS_prctl), "D"(15), "S"(name) : "rcx", "r11", "memory");
}
static void *serve(void *unused)
{
    char name[16];
    puts("ready");
    fflush(stdout);
    while (scanf("%15s", name) == 1) {
        NAMED(WHO)(name);
        puts("done");
        fflush(stdout);
    }
    _exit(0);
}
int main(int count, char **words)
{
    if (count > 1 && !strcmp(words[1], "memory")) {
        int self = open("/proc/self/exe", O_RDONLY), copy = memfd_create("copy", 0);
        char *none[] = {words[0], NULL};
        while (sendfile(copy, self, NULL, 1 << 20) > 0)
            ;
        fexecve(copy, none, none + 1);
        return 1;
    }
    if (count > 1 && !strcmp(words[1], "thread")) {
        pthread_t thread;
        pthread_create(&thread, NULL, serve, NULL);
        pthread_exit(NULL);
    }
    serve(NULL);
}
"""


class Programs:
    def __init__(self, folder: Path, *flags: str):
        self.folder, self.flags = folder, flags
        self.running: dict[str, subprocess.Popen] = {}

    def build(self, who: str, to: str) -> Path:
        functions = range(len(self.running) + 2)
        padding = "\n".join(f"int {who}_{n}(int a) {{ return a * {n + 3}; }}" for n in functions)
        source = self.folder / f"{who}.c"
        source.write_text(PROGRAM.replace("PADDING", padding).replace("WHO", who))
        words = ["cc", "-O2", "-w", "-pthread", "-fno-omit-frame-pointer", *self.flags]
        new = self.folder / f"{who}.new"
        subprocess.run([*words, "-o", new, source], check=True)
        # Another file, not another content.
        new.replace(self.folder / to)
        return self.folder / to

    def start(self, who: str, *words) -> None:
        process = subprocess.Popen(
            [str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.running[who] = process
        assert process.stdout.readline() == "ready\n"

    def rename(self, suffix: str) -> None:
        for who, process in self.running.items():
            process.stdin.write(f"{who}{suffix}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

    def kill(self, who: str) -> None:
        process = self.running.pop(who)
        process.kill()
        process.communicate()

    def end(self) -> None:
        for process in self.running.values():
            process.stdin.close()
            process.wait(60)
            process.stdout.close()


@pytest.fixture(params=["with", "without"], ids=lambda has: f"{has} build id")
def programs(request, tmp_path):
    none = ["-Wl,--build-id=none"] if request.param == "without" else ["-Wl,--build-id"]
    made = Programs(tmp_path, *none)
    yield made
    made.end()


def start_all(programs: Programs) -> None:
    """Those that run before the recording."""
    here = programs.build("here", "prog")
    programs.start("here", here)
    box = programs.build("box", "other")
    inside = f'mount --bind "{box}" "{here}" && exec "{here}"'
    programs.start("box", "unshare", "-m", "sh", "-c", inside)
    gone = programs.build("gone", "gone")
    programs.start("gone", gone)
    gone.unlink()
    programs.start("old", programs.build("old", "replaced"))
    programs.build("new", "replaced")
    programs.start("memory", programs.build("memory", "in_memory"), "memory")
    programs.start("thread", programs.build("thread", "threaded"), "thread")


def stacks(recorder, log: Path) -> dict[str, str]:
    """By the name that the thread was given."""
    query = "SELECT name, s.text FROM RENAMED JOIN stack AS s ON s.id = user_stack"
    return dict(Log(recorder.klogger, log).rows(f"{query} WHERE s.kind = 'user'"))


def test_names_are_those_of_the_file_that_runs(recorder, programs, clean_kernel):
    schema = recorder.dir / "who.klogger"
    schema.write_text(RENAMES)
    start_all(programs)
    own = recorder.path()
    pids = [word for process in programs.running.values() for word in ("-p", process.pid)]
    process = recorder.start("--snapshots", "-s", schema, *pids, out=own)
    wait_for(lambda: own.exists() and recorder.command("ps").out.count(str(process.pid)), process)
    programs.rename("1")
    taken = recorder.command("snapshot", "--recorder", process.pid)
    assert taken.code == 0, taken.err
    # What starts now, and what is mapped after the names were looked up.
    programs.rename("2")
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    found = stacks(recorder, own)
    wrong = {
        name: found.get(name)
        for who in programs.running
        for name in (f"{who}1", f"{who}2")
        if not (found.get(name) or "").startswith(f"renames_{who}+")
    }
    assert not wrong


def test_what_starts_after_a_snapshot_has_names(recorder, programs, clean_kernel):
    """Also from memory; and what is replaced before names are looked up has those of no other
    file.
    """
    schema = recorder.dir / "who.klogger"
    schema.write_text(RENAMES)
    early, late = programs.build("early", "early"), programs.build("late", "late")
    gone, memory = programs.build("gone", "gone"), programs.build("memory", "in_memory")
    go = recorder.dir / "go"
    script = f"""
        echo early | {early}; until test -e {go}; do sleep 0.02; done
        echo late | {late}; echo memory | {memory} memory
        echo gone | {gone}; mv {early} {gone}; exit 0
    """
    own = recorder.path()
    process = recorder.start("--snapshots", "-s", schema, "--", "sh", "-c", script, out=own)
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "done\n"]
    assert recorder.command("snapshot", "--recorder", process.pid).code == 0
    go.touch()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    found = stacks(recorder, own)
    assert found["early"].startswith(("renames_early+", "early+"))
    assert found["late"].startswith("renames_late+")
    # These have ended: whether they were looked at while they ran is chance.
    told = unnamed(recorder, own)
    for who, names in {"memory": ("memfd:copy", "[perf map "), "gone": ("gone",)}.items():
        if not found[who].startswith(f"renames_{who}+"):
            (name,) = [name for name in names if found[who].startswith(name)]
            assert any(name in text.replace("/tmp/perf-", "[perf map ") for text in told), told


def unnamed(recorder, log: Path) -> list[str]:
    """What the ledger says of code without names."""
    rows = Log(recorder.klogger, log).rows("SELECT text FROM ledger WHERE key = 'code_unnamed'")
    return [text for (text,) in rows]


# What a program has mapped as data is looked at as well.
WITH_DATA = RENAMES.replace("name\n", "name\n    ulong word as data\n", 1).replace(
    "comm);", "comm, (unsigned long)comm);"
)


def recording_all(recorder, schema: str):
    """A recording of everything that renames a thread, once it has begun; and its log."""
    (recorder.dir / "who.klogger").write_text(schema)
    own = recorder.path()
    process = recorder.start("-s", recorder.dir / "who.klogger", "-a", out=own)
    wait_for(lambda: recorder.command("mark", "--recorder", process.pid, "on").code == 0, process)
    return process, own


def end(process) -> None:
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said


def holds(process, path: Path | str) -> bool:
    """Whether a process has a file open."""
    found = []
    for entry in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(entry))
    return any(link.removesuffix(" (deleted)") == str(path) for link in found)


@pytest.mark.parametrize("schema", [RENAMES, WITH_DATA], ids=["code", "code and data"])
def test_what_was_killed_has_names(recorder, programs, clean_kernel, schema):
    """Programs that start during the recording, and whose files are gone before it ends."""
    process, own = recording_all(recorder, schema)
    memory = programs.build("memory", "in_memory")
    programs.start("memory", memory, "memory")
    wait_for(lambda: holds(process, "/memfd:copy"), process)
    where = {"memory": memory}
    # Elsewhere an open file would keep its file system mounted.
    if is_on_root(recorder.dir):
        where |= {who: programs.build(who, who) for who in ("deleted", "replaced")}
        for who in ("deleted", "replaced"):
            programs.start(who, where[who])
            wait_for(lambda who=who: holds(process, where[who]), process)
    programs.rename("1")
    if "deleted" in where:
        where["deleted"].unlink()
        programs.build("other", "replaced")
    memory.unlink()
    for who in where:
        programs.kill(who)
    end(process)
    found = stacks(recorder, own)
    wrong = {
        who: found.get(f"{who}1")
        for who in where
        if not (found.get(f"{who}1") or "").startswith(f"renames_{who}+")
    }
    assert not wrong


def is_on_root(folder: Path) -> bool:
    while not os.path.ismount(folder):
        folder = folder.parent
    return folder == Path("/")


def test_what_has_no_names_is_told(recorder, programs, clean_kernel):
    """A program whose file is gone with it, on a file system that nothing keeps mounted."""
    process, own = recording_all(recorder, RENAMES)
    folder = recorder.dir / "box"
    folder.mkdir()
    built = programs.build("box", "prog")
    inside = (
        f'mount -t tmpfs tmpfs "{folder}" && cp "{built}" "{folder}/inside"'
        f' && exec "{folder}/inside"'
    )
    programs.start("box", "unshare", "-m", "sh", "-c", inside)
    programs.rename("1")
    Path(f"/proc/{programs.running['box'].pid}/root{folder}/inside").unlink()
    programs.kill("box")
    end(process)
    assert stacks(recorder, own)["box1"].startswith("inside+0x")
    (told,) = [text for text in unnamed(recorder, own) if "inside" in text]
    assert f"{folder}/inside: " in told and "without names" in told
