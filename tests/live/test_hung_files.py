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
def served(folder: Path, *stops_at: int) -> Iterator[Hung]:
    """`stops_at`: the kind of a request, and which of them stops the server."""
    source, mount = folder / "source", folder / "mount"
    for made in (source, mount):
        made.mkdir()
    (folder / "sleeper.c").write_text(SLEEPER)
    build = ["gcc", "-O1", "-g", "-fno-omit-frame-pointer", folder / "sleeper.c", "-o"]
    subprocess.run([*build, source / "sleeper"], check=True)
    server = subprocess.Popen([sys.executable, FUSE, source, mount, *map(str, stops_at)])
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
        subprocess.run(["umount", "--lazy", mount], check=False)
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


def read_until(stream, words):
    """What has been printed, as one line, up to these words."""
    said = ""
    while words not in said:
        line = stream.readline()
        assert line, said
        said = " ".join([*said.split(), *line.split()])
    return said


# Requests of FUSE.
UNLINK, RENAME, WRITE, FLUSH, CREATE = 10, 12, 16, 25, 35
AGAIN = "its file system answers again; signals do not end klogger at once any more"


def goes_on(hung, recording, file):
    """The recording has said that `file` hangs. The server goes on, and so does the recording."""
    said = read_until(recording.stderr, SILENT)
    assert f"{file} has taken " in said and "a second Ctrl-C" in said, said
    os.kill(hung.server, signal.SIGCONT)
    said = read_until(recording.stderr, AGAIN)
    assert f"{file} goes on after " in said, said


@pytest.mark.full("a call is told of after 5 s")
@pytest.mark.parametrize("kind", [CREATE, WRITE, RENAME, FLUSH])
def test_a_snapshot_that_hangs_for_a_while(recorder, kind):
    """Each call is watched: that which makes the file, writes it, names it and closes it."""
    with served(recorder.dir, kind, 1) as hung:
        # No names of programs are looked for, on this file system.
        words = ["-s", "scheduler", "--snapshots", "-p", hung.pid]
        recording = recorder.start(*words, out=recorder.path())
        wait_for(lambda: recorder.command("mark", "--recorder", recording.pid, "1").code == 0)
        file = hung.program.parent / "snapshot.klog"
        ask = [recorder.klogger, "snapshot", "--recorder", str(recording.pid), "-o", file]
        with subprocess.Popen(ask, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            goes_on(hung, recording, file)
        recording.terminate()
        recording.terminate()
        _, said = recording.communicate(timeout=60)
        assert recording.returncode == 0, said


@pytest.mark.full("a call is told of after 5 s")
@pytest.mark.parametrize(
    ("kind", "number", "segment"), [(CREATE, 2, 2), (RENAME, 1, 2), (FLUSH, 1, 2), (UNLINK, 1, 1)]
)
def test_a_segment_that_hangs_for_a_while(recorder, kind, number, segment):
    """The next one is made and gets its name, and the first one is removed."""
    with served(recorder.dir, kind, number) as hung:
        folder = hung.program.parent / "segments"
        words = ["--segment", "200ms", "--keep", "1", "-s", "scheduler", "-p", hung.pid]
        recording = recorder.start(*words, out=folder)
        goes_on(hung, recording, folder / f"segment-{segment:06}.klog")
        recording.terminate()
        _, said = recording.communicate(timeout=60)
        assert recording.returncode == 0, said


@pytest.mark.full("a call is told of after 5 s")
def test_a_log_whose_close_hangs_for_a_while(recorder):
    with served(recorder.dir, FLUSH, 1) as hung:
        log = hung.program.parent / "log"
        words = ["-s", "scheduler", "-p", hung.pid, "--for", "100ms"]
        recording = recorder.start(*words, out=log)
        goes_on(hung, recording, log)
        _, said = recording.communicate(timeout=60)
        assert recording.returncode == 0, said


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
    said = read_until(recording.stderr, SILENT)
    assert "log" in said and " has taken " in said and "a second Ctrl-C" in said, said
    recording.terminate()
    wait_for(lambda: not pending(recording.pid))
    recording.terminate()
    assert recording.wait(timeout=60) == -signal.SIGTERM
    listed = recorder.command("rescue").out
    assert f"recorder[{recording.pid}]" in listed, listed
    os.kill(hung.server, signal.SIGCONT)
    done = recorder.command("rescue", recording.pid, "-o", "rescued.klog", timeout=60)
    assert done.code == 0, done.err


@pytest.mark.full("a call is told of after 5 s")
@pytest.mark.parametrize("kind", [CREATE, WRITE, RENAME])
def test_a_rescue_that_hangs(recorder, kind):
    """It says so, a signal ends it, and what it would have saved is still there."""
    with served(recorder.dir, kind, 1) as hung:
        recording = recorder.start("-q", "-s", "scheduler", "-p", hung.pid, out=recorder.path())
        wait_for(lambda: recorder.command("mark", "--recorder", recording.pid, "1").code == 0)
        recording.kill()
        recording.wait()
        out = hung.program.parent / "rescued.klog"
        words = [recorder.klogger, "rescue", str(recording.pid), "-o", out]
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as rescue:
            said = read_until(rescue.stderr, "-o FILE")
            assert f"{out} has taken " in said and SILENT in said, said
            # The kernel lets nobody go whose request the server has read already.
            rescue.terminate()
            os.kill(hung.server, signal.SIGCONT)
            assert rescue.wait(timeout=60) == -signal.SIGTERM
        done = recorder.command("rescue", recording.pid, "-o", "rescued.klog", timeout=60)
        assert done.code == 0, done.err


@pytest.mark.full("a look is given up after 3 s")
def test_one_deadline_for_all_folders_of_a_mount(recorder, hung):
    folders = ":".join(str(hung.program.parent / f"folder{n}") for n in range(8))
    build = ["gcc", recorder.dir / "sleeper.c", "-o", recorder.dir / "program"]
    subprocess.run([*build, f"-Wl,-rpath,{folders}"], check=True)
    (recorder.dir / "none.klogger").write_text(
        'schema none "A library that is not there"\nevent A { int a }\n'
        "probe user libklogger-none:f(int a) { klogger(A, a); }\n"
    )
    hung.stop()
    words = ["record", "-s", "none.klogger", "-o", "x.klog", "--", "./program"]
    done, log = recorder.run("-q", "-s", "lifecycle", "--", recorder.klogger, *words)
    assert done.code == 2 and "libklogger-none" in done.err, done.err
    # A child asks for each folder, some at a time. One that gets no answer is given up after 3 s;
    # whoever would begin after that does not ask any more, however fast the machine is.
    long = "to_ns - from_ns >= 3000000000 AND comm LIKE 'klogger%'"
    waited = recorder.command(
        "sql", log, "--format", "csv",
        f"SELECT from_ns FROM klogger.process WHERE {long}"
        f" AND parent IN (SELECT pid FROM klogger.process WHERE {long})",
    )  # fmt: skip
    begun = [int(line) for line in waited.out.split()[1:]]
    assert begun and max(begun) - min(begun) < 3_000_000_000, waited
