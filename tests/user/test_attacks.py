# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that lie about whose they are and where their files stand, strangers under a recorder's
name, and limits.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from shm_oracle import Shared

USER = ("--engine", "user")
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
root = pytest.mark.skipif(os.geteuid() != 0, reason="not root")


def until(what, process=None):
    end = time.monotonic() + 60
    while not (found := what()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)
    return found


# In a mount namespace of its own: maps a file, and then the way there leads elsewhere.
SWAP = """
import mmap, os, signal, subprocess, sys
place, victim, name, how = sys.argv[1:]
os.makedirs(place + "/way/k", 0o700)
fd = os.open(f"{place}/way/k/{name}", os.O_RDWR | os.O_CREAT, 0o600)
os.truncate(fd, 4096)
memory = mmap.mmap(fd, 4096)
if how == "link":
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    os.symlink(victim, place + "/way")
else:
    subprocess.run(["mount", "--bind", victim, place + "/way"], check=True)
print("ready", flush=True)
signal.pause()
"""


@root
@pytest.mark.parametrize("how", ["link", "bind"])
def test_another_folder_in_the_place_of_its_own(recorder, how):
    """`-p PID` opens, changes and removes nothing but what the process has mapped."""
    place, victim = recorder.folder / "place", recorder.folder / "victim"
    (victim / "k").mkdir(mode=0o700, parents=True)
    # No process has this number, so that the file looks like a dead program's.
    name = f"{2**22 - 1}.abcdef"
    precious = victim / "k" / name
    precious.write_text("precious")
    precious.chmod(0o600)
    process = recorder.spawn(
        sys.executable, "-c", SWAP, place, victim, name, how, prefix=("unshare", "-m")
    )
    assert process.stdout.readline() == "ready\n"
    done, out = recorder.run(*USER, "-p", process.pid, "--for", "500ms")
    assert done.code == 0, done.err
    assert precious.read_text() == "precious"
    if how == "bind":
        assert recorder.log(out).count("ledger", "key = 'user_hostile'") == 1


# As another user: a copy of a program's file that calls itself a child of PARENT, which RECORDER
# has armed.
FORGE = """
import mmap, os, signal, struct, sys
path, parent, recorder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(path, "rb") as file:
    head = file.read(1 << 18)
folder, name = os.path.dirname(path), f"{os.getpid()}.abcdef"
with open(f"{folder}/.{name}", "x+b") as file:
    os.chmod(file.fileno(), 0o600)
    file.truncate(os.stat(path).st_size)
    file.write(head)
    for offset, value in ((12, os.getpid()), (72, parent), (80, recorder)):
        file.seek(offset)
        file.write(struct.pack("<I", value))
    file.flush()
    memory = mmap.mmap(file.fileno(), 1 << 18)
os.rename(f"{folder}/.{name}", f"{folder}/{name}")
print("ready", name, flush=True)
signal.pause()
"""


@contextmanager
def shared_folder(*files):
    """Programs that another user may run."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder)
        place.chmod(0o755)
        for file in files:
            shutil.copy(file, place)
        yield place


def spawn_outside(recorder, *command):
    """Without a folder of the test's own: where all users have theirs."""
    env = {k: v for k, v in recorder.room.environment(record=False).items() if k != "KLOGGER_DIR"}
    process = subprocess.Popen(
        list(map(str, command)),
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    recorder.running.append(process)
    return process


@root
def test_a_stranger_names_a_parent(recorder, build):
    """It is not recorded. A program that comes later, and is a descendant, is."""
    lives, out = build("lives.c"), recorder.folder / "a.klog"
    with shared_folder(lives) as place:
        model = spawn_outside(recorder, *AS_NOBODY, place / "lives", "sleep", 1_000_000)
        folder = Path(f"/dev/shm/klogger-{NOBODY}")
        (path,) = until(lambda: list(folder.glob(f"{model.pid}.*")), model)
        parent = spawn_outside(
            recorder, "sh", "-c", f"read word; {lives} sleep 1000000 & read word"
        )
        victim = spawn_outside(recorder, lives, "sleep", 1_000_000)
        mine = Path("/dev/shm/klogger-0")
        (recorded,) = until(lambda: list(mine.glob(f"{victim.pid}.*")), victim)
        pids = f"{parent.pid},{victim.pid}"
        recording = spawn_outside(
            recorder, recorder.klogger, "record", *USER, "-p", pids, "-o", out
        )
        until(lambda: "COUNT" in Shared(recorded).on(), recording)
        forger = spawn_outside(
            recorder, *AS_NOBODY, sys.executable, "-c", FORGE, path, victim.pid, recording.pid
        )
        ready, name = forger.stdout.readline().split() or ("", forger.communicate())
        assert ready == "ready", name
        forged = folder / name
        try:
            parent.stdin.write("go\n")
            parent.stdin.flush()
            armed = lambda path: Shared(path).word32(Shared.ARMED) == recording.pid  # noqa: E731

            def later():
                found = mine.glob("[0-9]*.*")
                return [p for p in found if is_child(p, parent.pid) and armed(p)]

            child = int(until(later, recording)[0].name.split(".")[0])
            assert Shared(forged).on() == Shared(path).on() == set()
        finally:
            forged.unlink(missing_ok=True)
        recording.send_signal(signal.SIGINT)
        _, err = recording.communicate(timeout=60)
        for process in (model, forger, victim, parent):
            os.killpg(process.pid, signal.SIGKILL)
        for file in (path, recorded, *mine.glob(f"{child}.*")):
            file.unlink(missing_ok=True)
    log = recorder.log(out)
    assert (
        {victim.pid}
        <= {tgid for (tgid,) in log.rows("SELECT DISTINCT tgid FROM count")}
        <= {victim.pid, child}
    ), err


def is_child(path, parent):
    try:
        return (
            int(
                Path(f"/proc/{path.name.split('.')[0]}/stat")
                .read_text()
                .rsplit(")", 1)[1]
                .split()[1]
            )
            == parent
        )
    except (OSError, ValueError):
        return False


# In a network namespace of its own, where abstract names are its own too.
SQUAT = r"""
import json, os, socket, subprocess, sys
klogger, out, uid = sys.argv[1], sys.argv[2], int(sys.argv[3])

def listen(pid, uid, answer):
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.setuid(uid)
        server = socket.socket(socket.AF_UNIX)
        server.bind(f"\0klogger-recording-{pid}")
        server.listen(1)
        os.write(told, b"x")
        while True:
            peer, _ = server.accept()
            try:
                heard = peer.makefile().readline()
                peer.sendall(answer.replace("HEARD", "heard" if heard else "").encode() + b"\n")
            except OSError:
                pass
            peer.close()
    os.read(ready, 1)
    return child

def run(*words, prefix=()):
    done = subprocess.run(
        [*prefix, klogger, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    return [done.returncode, done.stderr]

found = {}
children = [listen(77, uid, '{"error": "HEARD", "help": null}')]
found["only a squatter"] = run("mark", "1", "secret")
found["by number"] = run("mark", "1", "secret", "--recorder", "77")
own = listen(78, os.getuid(), '{"error": "\\u001b[2Jgone", "help": "\\u001b[1m"}')
found["escapes"] = run("mark", "1")
os.kill(own, 9)
os.waitpid(own, 0)
full = socket.socket(socket.AF_UNIX)
full.bind("\0klogger-recording-79")
full.listen(0)
queue = [socket.socket(socket.AF_UNIX) for _ in range(2)]
for peer in queue:
    peer.setblocking(False)
    try:
        peer.connect("\0klogger-recording-79")
    except BlockingIOError:
        pass
found["full"] = run("mark", "1", "--recorder", "79")
full.close()
recording = subprocess.Popen([klogger, "record", "-q", "--engine", "user", "-a", "-o", out])
while run("mark", "2", "here")[0]:
    assert recording.poll() is None
nobody = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
found["stranger"] = run("mark", "3", "bad", "--recorder", str(recording.pid), prefix=nobody)
bad = ["mark", "bad", "--recorder", str(recording.pid)]
found["stranger without a number"] = run(*bad, prefix=nobody)
found["stranger disables"] = run("disable", "MARK", "--recorder", str(recording.pid), prefix=nobody)
recording.send_signal(2)
recording.wait()
for child in children:
    os.kill(child, 9)
print(json.dumps(found))
"""


@root
def test_strangers_under_a_recorders_name(recorder):
    with shared_folder(recorder.klogger) as place:
        out = recorder.folder / "a.klog"
        words = (sys.executable, "-c", SQUAT, place / recorder.klogger.name, out, NOBODY)
        done = recorder.wait(recorder.spawn(*words, prefix=("unshare", "-n")))
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert {code for code, _ in found.values()} == {2}, found
    said = {what: text for what, (_, text) in found.items()}
    refused = f"klogger: permission denied: the recording of process 77 belongs to user {NOBODY}\n"
    assert (
        said["only a squatter"]
        == said["by number"]
        == f"{refused}  help: run this as user {NOBODY}\n"
    )
    assert "\x1b" not in said["escapes"] and "\\x1b[2Jgone" in said["escapes"]
    assert said["full"].startswith("klogger: no answer from the recording of process 79: ")
    refused = (
        f"klogger: permission denied: only root may control this recording, not user {NOBODY}\n"
        "  help: sudo klogger ...\n"
    )
    for what in ("stranger", "stranger disables", "stranger without a number"):
        assert said[what] == refused, said
    assert set(recorder.log(out).rows("SELECT number FROM mark")) == {(2,)}


def test_a_log_that_may_not_grow(recorder, build):
    """RLIMIT_FSIZE is no signal that ends the recorder, but a full disk."""
    # So many that a recorder which seldom has a CPU gets more than the limit too.
    calls = 20_000_000
    recorder.prefix = ("prlimit", f"--fsize={4 << 20}")
    done, out = recorder.run(
        *USER, "--user-buffer", "1M", "--", build("flood.c"), 1, calls, timeout=120
    )
    assert done.code >= 0 and "is not complete" in done.err, done
    log = recorder.log(out)
    assert 0 < log.count("COUNT") < calls
    assert log.lost("COUNT") > 0
    assert log.count("ledger", "key = 'disk_full'") > 0
    assert log.count("ledger", "key IN ('recorder_killed', 'file_cut')") == 0


def test_programs_notice_that_their_recorder_was_killed(recorder, build):
    """When a ring is full they turn their events off; what was logged until then is saved, and the
    log says so.
    """
    process = recorder.spawn(build("lives.c"), "sleep", 1_000_000)
    (path,) = until(lambda: list(recorder.room.path.glob(f"{process.pid}.*")), process)
    recording, _ = recorder.started(*USER, "-p", process.pid)
    shared = Shared(path)
    until(lambda: "COUNT" in shared.on(), recording)
    assert shared.word32(104) & 0x3FFFFFFF != 0
    recording.kill()
    recording.communicate()
    assert shared.word32(104) == 0x40000000
    (slot,) = until(shared.used_slots, process)
    # As if it had logged so much: its ring has room for no more.
    slot.main.put(slot.main.HARD, slot.main.word(slot.main.HEAD))
    slot.main.put(slot.main.LIMIT, slot.main.word(slot.main.HEAD))
    until(lambda: shared.on() == set(), process)
    assert shared.word32(Shared.ARMED) == recording.pid
    assert "its recorder was killed" in recorder.do("rescue").out
    shared.close()
    process.kill()
    process.communicate()
