# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs on a file system whose server has stopped: a recording of them goes on, ends by itself
and on a signal, and says which files it could not look at.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import is_stopped, wait_for

FUSE = Path(__file__).parent / "fuse.py"
SLEEPER = r"""
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <linux/futex.h>
static int word;
__attribute__((noinline)) void waits_here(void)
{
    struct timespec t = { 0, 10000000 };

    syscall(SYS_futex, &word, FUTEX_WAIT, 0, &t, 0, 0);
    __asm__ volatile("");
}
int main(void)
{
    waits_here();
    if (write(1, "runs\n", 5) != 5)
        return 1;
    for (;;) waits_here();
}
"""
SILENT = "its file system does not answer"


@dataclass
class Hung:
    """`program` is there, and runs as `pid`; `stop()` ends the answers."""

    program: Path
    pid: int
    server: int

    def stop(self) -> None:
        os.kill(self.server, signal.SIGSTOP)
        wait_for(lambda: is_stopped(self.server))


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Hung]:
    source, mount = folder / "source", folder / "mount"
    for made in (source, mount):
        made.mkdir()
    (folder / "sleeper.c").write_text(SLEEPER)
    build = ["gcc", "-O1", "-g", "-fno-omit-frame-pointer", folder / "sleeper.c", "-o"]
    subprocess.run([*build, source / "sleeper"], check=True)
    server = subprocess.Popen([sys.executable, FUSE, source, mount])
    try:
        wait_for(lambda: os.path.ismount(mount), server)
        program = subprocess.Popen([mount / "sleeper"], stdout=subprocess.PIPE)
        try:
            # It needs no further page of its file.
            assert program.stdout.readline() == b"runs\n"
            yield Hung(mount / "sleeper", program.pid, server.pid)
        finally:
            os.kill(server.pid, signal.SIGCONT)
            program.kill()
            program.wait()
    finally:
        server.send_signal(signal.SIGCONT)
        subprocess.run(["umount", mount], check=False)
        server.kill()
        server.wait()


@pytest.fixture
def hung(recorder):
    if not Path("/dev/fuse").exists():
        pytest.skip("this kernel has no FUSE")
    with served(recorder.dir) as there:
        yield there


def silent(recorder, log):
    done = recorder.command("info", log, "--format", "json")
    assert done.code == 0, done.err
    ledger = json.loads(done.out)["ledger"]
    return [e["text"] for e in ledger if SILENT in e["text"]]


def waits(pid):
    """How often its first thread has gone to sleep."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])


@pytest.mark.full("a look is given up after 3 s")
def test_the_names_of_a_program_that_cannot_be_read(recorder, hung):
    """The recording ends, with the names of the others; the one that hangs is in the ledger."""
    hung.stop()
    done, log = recorder.run("-q", "-s", "futex", "-p", hung.pid, "--for", "1s", timeout=60)
    assert done.code == 0, done.err
    assert any(str(hung.program) in text for text in silent(recorder, log)), done.err
    names = recorder.command("sql", log, "SELECT text FROM klogger.stack", "--format", "csv").out
    assert "syscall" in names and "waits_here" not in names, names


@pytest.mark.full("a look is given up after 3 s")
def test_a_signal_ends_it(recorder, hung):
    out = recorder.path()
    recording = recorder.start("-q", "-s", "futex", "-p", hung.pid, out=out)
    wait_for(lambda: recorder.command("mark", "--recorder", recording.pid, "1").code == 0)
    hung.stop()
    # It waits, and so logs, on.
    before = waits(hung.pid)
    wait_for(lambda: waits(hung.pid) > before + 5)
    recording.terminate()
    _, said = recording.communicate(timeout=60)
    assert recording.returncode == 0, said
    assert silent(recorder, out), said


def test_names_are_found_while_the_server_answers(recorder, hung):
    done, log = recorder.run("-q", "-s", "futex", "-p", hung.pid, "--for", "1s", timeout=60)
    assert done.code == 0 and not silent(recorder, log), done.err
    names = recorder.command("sql", log, "SELECT text FROM klogger.stack", "--format", "csv").out
    assert "waits_here" in names, names


@pytest.mark.full("a look is given up after 3 s")
@pytest.mark.parametrize("command", [
    ["record", "-s", "lifecycle", "-o", "{}/x.klog", "--", "true"],
    ["record", "-s", "lifecycle", "--segment", "1h", "--dir", "{}/segments", "--", "true"],
    ["trace", "-s", "lifecycle", "-o", "{}/lines", "--", "true"],
    ["record", "-s", "block", "-o", "x.klog", "--device", "{}/sleeper", "--", "true"],
    ["record", "-s", "lifecycle", "-o", "x.klog", "--netns", "{}/sleeper", "--", "true"],
], ids=lambda words: " ".join(words[:5]))  # fmt: skip
def test_a_place_that_does_not_answer_is_refused(recorder, hung, command):
    hung.stop()
    words = [word.format(hung.program.parent) for word in command]
    done = recorder.command(*words, timeout=60)
    assert done.code == 2 and SILENT in " ".join(done.err.split()), done.err


def pending(pid):
    """Signals that a process has not seen yet."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("\nShdPnd:")[1].split()[0], 16)


@pytest.mark.full("a write is given up after 5 s")
@pytest.mark.parametrize("options", [[], ["--segment", "1h"]], ids=["file", "segments"])
def test_a_log_that_cannot_be_written_any_more(recorder, hung, options):
    """It says so while it records; the second signal ends it, and the rings have the rest."""
    # The kernel learns that this server has no FLUSH, for which whoever ends would wait.
    hung.program.read_bytes()
    out = hung.program.parent / "log"
    recording = recorder.start("-s", "futex", "-p", hung.pid, *options, out=out)
    wait_for(lambda: recorder.command("mark", "--recorder", recording.pid, "1").code == 0)
    hung.stop()
    said = ""
    while "does not answer" not in " ".join(said.split()):
        line = recording.stderr.readline()
        assert line, said
        said += line
    assert "log" in said and " has taken " in said, said
    recording.terminate()
    wait_for(lambda: not pending(recording.pid))
    recording.terminate()
    assert recording.wait(timeout=60) == -signal.SIGTERM
    listed = recorder.command("rescue").out
    assert f"recorder[{recording.pid}]" in listed, listed
    os.kill(hung.server, signal.SIGCONT)
    done = recorder.command("rescue", recording.pid, "-o", "rescued.klog", timeout=60)
    assert done.code == 0, done.err


@pytest.mark.full("a look is given up after 3 s")
def test_one_deadline_for_all_folders_of_a_mount(recorder, hung):
    folders = ":".join(str(hung.program.parent / f"folder{n}") for n in range(8))
    build = ["gcc", recorder.dir / "sleeper.c", "-o", recorder.dir / "program"]
    subprocess.run([*build, f"-Wl,-rpath,{folders}"], check=True)
    (recorder.dir / "none.klogger").write_text(
        'schema none "A library that is not there"\nevent A { int a }\n'
        'probe user "libklogger-none":f(int a) { klogger(A, a); }\n'
    )
    hung.stop()
    begin = time.monotonic()
    words = ["record", "-s", "none.klogger", "-o", "x.klog", "--", "./program"]
    done = recorder.command(*words, timeout=60)
    assert done.code == 2 and "libklogger-none" in done.err, done.err
    # 3 s for each would be 24 s.
    assert time.monotonic() - begin < 15
