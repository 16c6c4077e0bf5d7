# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the recorder cannot look at is in the ledger, and is never taken for a value: no descriptor
left, no /sys, a full /dev/shm, and a control group with little memory.
"""

import json
import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import wait_for
from oracles import Log

SCHEMA = """schema looks "Programs log"
event REQUEST "a request" { int number }
"""
PROGRAM = r"""
#include "looks.klogger.h"
int main(void) { for (int i = 0; i < 100; i++) klogger(REQUEST, i); }
"""


def ledger(recorder, log):
    done = recorder.command("info", log, "--format", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)["ledger"]


def switches(pid):
    """How often its first thread has gone to sleep."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def test_no_descriptor_is_left(recorder):
    """The clock source and the CPUs did not change, because they could not be read."""
    out = recorder.path()
    recording = recorder.start("-q", "-s", "lifecycle", "-a", out=out)
    wait_for(lambda: recorder.command("mark", "--recorder", recording.pid, "1").code == 0)
    before = resource.prlimit(recording.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(recording.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    # It looks at the machine a few times a second; requests are answered again after that.
    slept = switches(recording.pid)
    wait_for(lambda: switches(recording.pid) > slept + 20)
    resource.prlimit(recording.pid, resource.RLIMIT_NOFILE, before)
    wait_for(lambda: recorder.command("mark", "--recorder", recording.pid, "2").code == 0)
    recording.terminate()
    _, said = recording.communicate(timeout=60)
    entries = ledger(recorder, out)
    missed = [e["text"] for e in entries if e["key"] == "look_failed"]
    assert any("current_clocksource: Too many open files" in text for text in missed), (
        said,
        entries,
    )
    assert any("CPUs that are online" in text for text in missed), missed
    assert not [e for e in entries if e["key"] in ("clock_step", "cpu_went", "cpu_offline")]


def test_without_sys_it_is_refused(recorder):
    words = [recorder.klogger, "record", "-s", "lifecycle", "-a", "--for", "1s", "-o", "x.klog"]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", 'umount -l /sys; exec "$@"', "sh", *words],
        capture_output=True, text=True, check=False, cwd=recorder.dir, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and "/sys/" in done.stderr, done.stderr
    assert "help: mount it: mount -t sysfs sysfs /sys" in done.stderr


@pytest.mark.parametrize("size", ["4k", "64k"])
def test_a_full_shm_is_no_silence(recorder, size):
    """Whether the program could make its file or not: what it logged is not said to be there."""
    (recorder.dir / "looks.klogger").write_text(SCHEMA)
    (recorder.dir / "program.c").write_text(PROGRAM)
    assert recorder.command("gen", "looks.klogger", "-o", ".").code == 0
    subprocess.run(["gcc", "-O2", "program.c", "-o", "program"], cwd=recorder.dir, check=True)
    words = [recorder.klogger, "record", "-s", "looks.klogger", "-o", "x.klog", "--", "./program"]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} none /dev/shm && exec "$@"',
         "sh", *words],
        capture_output=True, text=True, check=False, cwd=recorder.dir, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "nothing lost" not in done.stderr and "found no program" not in done.stderr
    full = [e for e in ledger(recorder, "x.klog") if "/dev/shm is full" in e["text"]]
    assert [e["severity"] for e in full] == ["loss"], done.stderr


GROUPS = Path("/sys/fs/cgroup/memory")
SCHEMATA = Path(__file__).resolve().parents[2] / "schemata"


@pytest.fixture
def group():
    """A control group for memory of version 1."""
    folder = GROUPS / f"klogger-test-{os.getpid()}"
    if not (GROUPS / "memory.limit_in_bytes").exists():
        pytest.skip("control groups of version 1 are not mounted; crates/os tests those of 2")
    folder.mkdir()
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text())
    folder.rmdir()


def in_group(recorder, group, mib, *words):
    (group / "memory.limit_in_bytes").write_text(str(mib << 20))
    script = f'echo $$ >{group}/cgroup.procs; exec "$@"'
    return subprocess.run(
        ["sh", "-c", script, "sh", recorder.klogger, "record", *words],
        capture_output=True, text=True, check=False, cwd=recorder.dir, timeout=120,
    )  # fmt: skip


def test_the_memory_of_a_control_group(recorder, group):
    """Rings are as large as the group allows, not the machine; and if it allows too little, that is
    said before the kernel kills.
    """
    done = in_group(recorder, group, 256, "-s", "lifecycle", "-a", "--for", "1s", "-o", "x.klog")
    assert done.returncode == 0, done.stderr
    used = int((group / "memory.max_usage_in_bytes").read_text())
    assert used < 256 << 20
    log = Log(recorder.klogger, recorder.dir / "x.klog")
    ring = log.meta["preamble"]["recorder"]["buffer_size"]
    assert 0 < ring * os.cpu_count() <= 128 << 20
    done = in_group(recorder, group, 48, "-s", "lifecycle", "-a", "--for", "1s", "-o", "y.klog")
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert f"the control group {group} leaves" in done.stderr
    assert not (recorder.dir / "y.klog").exists()


BUNDLED = [
    ",".join(names)
    for names in [
        *([folder.name] for folder in sorted(SCHEMATA.iterdir()) if folder.is_dir()),
        ("futex", "files", "scheduler", "lifecycle"),
    ]
]


@pytest.mark.full("takes more than 3 s: seven recordings of each")
@pytest.mark.parametrize("schemata", BUNDLED)
def test_no_limit_of_memory_kills_the_recorder(recorder, group, schemata):
    """A recording is refused, with what it needs, or its log is complete."""
    recorded = []
    for mib in (60, 75, 90, 105, 120, 140, 170):
        (group / "memory.failcnt").write_text("0")
        out = f"{mib}.klog"
        done = in_group(recorder, group, mib, "-s", schemata, "-a", "--for", "0.2s", "-o", out)
        assert done.returncode in (0, 2), (mib, done.returncode, done.stderr)
        if done.returncode == 2:
            assert f"the control group {group} leaves" in done.stderr, done.stderr
            # What fits into less fits.
            assert not recorded, (mib, recorded, done.stderr)
            continue
        recorded.append(mib)
        assert Log(recorder.klogger, recorder.dir / out).meta["complete"], mib
    assert recorded, "it needs more than the largest limit"


def test_costs_are_not_measured_with_little_memory(recorder, group):
    done = in_group(recorder, group, 100, "-s", "files", "-a", "--for", "0.2s", "-o", "x.klog")
    assert done.returncode == 0, done.stderr
    costs = Log(recorder.klogger, recorder.dir / "x.klog").meta["preamble"]["costs"]
    assert "too little memory" in costs["why"], costs


def limited(recorder, files, *words, prefix=()):
    """With limits of open files: SOFT:HARD."""
    command = [*prefix, recorder.klogger, "record", "-q", "-s", "lifecycle", *words]
    return subprocess.run(
        ["prlimit", f"--nofile={files}", *command],
        capture_output=True, text=True, check=False, cwd=recorder.dir, timeout=60,
    )  # fmt: skip


def test_few_open_files_are_enough_for_the_command_only(recorder):
    """The recorder raises its limit, and the command has the one that a shell would give it."""
    show = ["--", "sh", "-c", "ulimit -Sn; ulimit -Hn"]
    done = limited(recorder, "16:4096", "-o", "x.klog", *show)
    assert (done.returncode, done.stdout) == (0, "16\n4096\n"), done.stderr


def test_too_few_open_files_are_the_cause_that_is_named(recorder):
    prefix = ["setpriv", "--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource"]
    done = limited(recorder, "64:64", "-a", "--for", "0.2s", "-o", "y.klog", prefix=prefix)
    assert done.returncode == 2, done.stderr
    assert "open files, and may have 64" in done.stderr and "ulimit -n" in done.stderr


def test_without_proc_the_cause_is_named(recorder):
    words = [recorder.klogger, "record", "-s", "lifecycle", "--cgroup", "/", "-o", "x.klog"]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", 'umount -l /proc; exec "$@"', "sh", *words],
        capture_output=True, text=True, check=False, cwd=recorder.dir, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2 and "/proc/self/mountinfo" in done.stderr, done.stderr
    assert "no cgroups" not in done.stderr


def test_rescue_says_what_it_could_not_look_at(recorder):
    """That others may write there is not the same as nothing there."""
    folder = recorder.dir / "programs"
    folder.mkdir(mode=0o700)
    words = [recorder.klogger, "rescue"]
    environment = {**os.environ, "KLOGGER_DIR": str(folder)}
    done = {}
    for mode in 0o700, 0o777:
        folder.chmod(mode)
        done[mode] = subprocess.run(
            words, env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done[mode].returncode == 0, done[mode].stderr
    assert "could not look at" not in done[0o700].stderr, done[0o700].stderr
    said = " ".join(done[0o777].stderr.split())
    assert f"could not look at {folder}: other users may write to it" in said


def test_an_unreadable_tracefs_is_not_a_missing_event(recorder):
    script = (
        "mount -t tmpfs none /sys/kernel/tracing && "
        'ln -s events /sys/kernel/tracing/events && exec "$@"'
    )
    words = ["record", "-e", "sched:sched_switch", "-o", "x.klog", "--", "true"]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", recorder.klogger, *words],
        capture_output=True, text=True, check=False, cwd=recorder.dir, timeout=60,
    )  # fmt: skip
    said = " ".join(done.stderr.split())
    assert done.returncode == 2 and "(tracefs): Too many levels" in said, done.stderr
    assert "no trace event" not in said and "has no" not in said, said


LOOP = r"""
#include <unistd.h>
#include <stddef.h>
#include <stdio.h>
#include "looks.klogger.h"
int main(void)
{
    printf("%zu\n", offsetof(struct klogger_control, armed));
    fflush(stdout);
    for (int i = 0;; i++) {
        klogger(REQUEST, i);
        usleep(1000);
    }
}
"""


@pytest.mark.full("takes more than 3 s, if it is refused")
def test_a_program_that_rescue_has_claimed_is_waited_for(recorder, monkeypatch):
    """As while `klogger rescue` copies its rings: another klogger that records nothing."""
    programs = recorder.dir / "programs"
    programs.mkdir(mode=0o700)
    monkeypatch.setenv("KLOGGER_DIR", str(programs))
    (recorder.dir / "looks.klogger").write_text(SCHEMA)
    (recorder.dir / "loop.c").write_text(LOOP)
    assert recorder.command("gen", "looks.klogger", "-o", ".").code == 0
    subprocess.run(["gcc", "-O2", "loop.c", "-o", "loop"], cwd=recorder.dir, check=True)
    shutil.copy(shutil.which("sleep"), recorder.dir / "klogger")
    with (
        subprocess.Popen(["./loop"], cwd=recorder.dir, stdout=subprocess.PIPE) as program,
        subprocess.Popen(["./klogger", "60"], cwd=recorder.dir) as other,
    ):
        try:
            place = int(program.stdout.readline())
            wait_for(lambda: list(programs.glob(f"{program.pid}.*")))
            (file,) = programs.glob(f"{program.pid}.*")

            def armed(pid=None):
                with file.open("r+b") as shared:
                    shared.seek(place)
                    if pid is not None:
                        shared.write(pid.to_bytes(4, "little"))
                        return pid
                    return int.from_bytes(shared.read(4), "little")

            armed(other.pid)
            out = recorder.path()
            recording = recorder.start("-s", "looks.klogger", "-p", program.pid, out=out)
            wait_for(lambda: recorder.command("mark", "--recorder", recording.pid, "1").code == 0)
            assert armed() == other.pid
            armed(0)
            wait_for(lambda: armed() == recording.pid)
            recording.terminate()
            _, said = recording.communicate(timeout=60)
            assert "recorded already" not in said, said
        finally:
            program.kill()
            other.kill()
    assert Log(recorder.klogger, out).one("SELECT count(*) > 0 FROM request"), said
