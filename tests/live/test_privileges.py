# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Recording without root: which capabilities each kind of probe needs, found by taking them away
one by one; and whose processes may be recorded.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from oracles import Log

USER = 65531
TIMES = 13
BPF = ("bpf", "perfmon")

# Each of the calls so many times.
WORK = f"""#include <sys/prctl.h>
#include <unistd.h>
volatile int counted;
int main(void)
{{
	for (int n = 0; n < {TIMES}; n++) {{
		prctl(1000, n, 0, 0, 0);
		getpgid(0);
		counted = n;
	}}
	return 0;
}}
"""
# Where tracefs is, if it is anywhere, only its mount says.
MOUNTED = 'mount -t tracefs nodev /sys/kernel/tracing; exec "$@"'
PRCTL = "int option, unsigned long arg2, unsigned long arg3, unsigned long arg4, unsigned long arg5"
# Of each kind: a probe, the capabilities that it needs, and how many events there are (None: some).
KINDS = {
    "tracepoint": (f"tracepoint task_prctl_unknown({PRCTL})", BPF, TIMES),
    "syscall": ("syscall getpgid(int pid)", BPF, TIMES),
    "return syscall": ("return syscall getpgid(long result)", BPF, TIMES),
    "trace_event": ("trace_event task:task_prctl_unknown()", (*BPF, "dac_read_search"), TIMES),
    "user": ("user libc.so.6:getpgid()", BPF, TIMES),
    "return user": ("return user libc.so.6:getpgid()", BPF, TIMES),
    "timer": ("timer 1ms()", BPF, None),
    "sample": ("sample page-faults every 1()", BPF, None),
    "breakpoint": ("breakpoint COUNTED:4 w()", BPF, None),
    "start": ("start tasks(struct task_struct *task)", BPF, None),
}


@pytest.fixture(scope="module")
def home():
    """A folder of the user's, with the program `work`."""
    folder = Path(tempfile.mkdtemp())
    (folder / "work.c").write_text(WORK)
    subprocess.run(["cc", "-O1", "-no-pie", "work.c", "-o", "work"], cwd=folder, check=True)
    os.chown(folder, USER, USER)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def user(public_klogger, home):
    """Runs klogger as an ordinary user with these capabilities."""

    def run(capabilities, *words):
        given = ",".join(f"+{name}" for name in capabilities) or "-all"
        who = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        held = [f"--inh-caps=-all,{given}", f"--ambient-caps=-all,{given}"]
        return subprocess.run(
            [
                "unshare",
                "--mount",
                "sh",
                "-c",
                MOUNTED,
                "sh",
                "setpriv",
                *who,
                *held,
                public_klogger,
                *map(str, words),
            ],
            cwd=home,
            env={"HOME": str(home), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


def address_of(program, name):
    listed = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    (address,) = re.findall(rf"^([0-9a-f]+) \w {name}$", listed, re.MULTILINE)
    return f"0x{int(address, 16):x}"


def recorded(user, home, kind, capabilities):
    """What came of it, and the log."""
    probe = KINDS[kind][0].replace("COUNTED", address_of(home / "work", "counted"))
    name = kind.replace(" ", "_")
    schema = home / f"{name}.klogger"
    schema.write_text(
        f"schema {name}\n\nevent HIT {{ context tid }}\n\nprobe {probe} {{\n    klogger(HIT);\n}}\n"
    )
    log = home / f"{name}.klog"
    log.unlink(missing_ok=True)
    words = ["record", "-q", "-s", schema, "-o", log, "--", "./work"]
    return user(capabilities, *words), log


# The first one is enough for the gate.
OTHERS = [pytest.param(kind, marks=pytest.mark.full("others are in the gate")) for kind in KINDS]


@pytest.mark.parametrize("kind", ["tracepoint", *OTHERS[1:]])
def test_with_these_capabilities_it_is_recorded(klogger, user, home, kind):
    _, capabilities, times = KINDS[kind]
    done, log = recorded(user, home, kind, capabilities)
    assert done.returncode == 0, done.stderr
    found = Log(klogger, log).one("SELECT count(*) FROM HIT")
    assert found == times if times else found > 0, found


@pytest.mark.full("its refusals of tracepoints are in the gate")
@pytest.mark.parametrize("kind", KINDS)
def test_without_one_of_them_it_is_not(user, home, kind):
    _, capabilities, _ = KINDS[kind]
    for less in capabilities:
        done, log = recorded(user, home, kind, [name for name in capabilities if name != less])
        assert done.returncode == 2 and not log.exists(), (less, done)
        assert f"CAP_{less.upper()}" in done.stderr, (less, done)


@pytest.fixture
def sleeper():
    """A process of that user: its id."""
    started = []

    def start(uid):
        process = subprocess.Popen(["sleep", "1000"], user=uid, group=uid, extra_groups=[])
        started.append(process)
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_processes_of_others_are_refused(user, home, sleeper):
    record = ["record", "-q", "-s", "scheduler", "-o", home / "of.klog", "--for", "100ms"]
    own, other = sleeper(USER), sleeper(0)
    assert user(BPF, *record, "-p", own).returncode == 0
    done = user(BPF, *record, "-p", own, "-p", other)
    assert done.returncode == 2, done
    assert f"process {other} is another user's" in done.stderr and "PTRACE" in done.stderr
    for words in (["-a"], ["--uid", "root"], ["--comm", "sleep"]):
        done = user(BPF, *record, *words)
        assert done.returncode == 2 and "CAP_SYS_PTRACE" in done.stderr, (words, done)
    assert user((*BPF, "sys_ptrace"), *record, "-p", other).returncode == 0
    assert user((*BPF, "sys_ptrace"), *record, "-a").returncode == 0


def test_a_program_with_capabilities_of_its_own(klogger, user, home):
    """As `setcap` gives them, for a group: the kernel treats such a process as not its user's."""
    if os.statvfs(home).f_flag & os.ST_NOSUID:
        pytest.skip(f"{home.parent} is mounted with nosuid: programs have no capabilities there")
    program = home / "klogger-with"
    shutil.copy(klogger, program)
    subprocess.run(["setcap", "cap_bpf,cap_perfmon+ep", program], check=True)
    probe, _, times = KINDS["tracepoint"]
    (home / "own.klogger").write_text(f"event HIT {{ }}\nprobe {probe} {{ klogger(HIT); }}\n")
    words = ["record", "-q", "-s", "./own.klogger", "-o", "own.klog", "--", "./work"]
    who = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", program]
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    subprocess.run([*who, *words], cwd=home, env=env, check=True, timeout=120)
    assert Log(klogger, home / "own.klog").count("HIT") == times
