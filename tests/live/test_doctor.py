# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger doctor`: what it says of this machine is what the machine says, and what is taken away
is missing.
"""

import ctypes
import json
import os
import platform
import resource
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import as_nobody, wait_for

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="it makes system calls by their numbers on x86-64"
)

NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
RECORD = ["record", "-s", "scheduler", "--", "true"]
STATES = {"ok", "limited", "missing"}


class Doctor:
    """What it says, where something was taken away."""

    def __init__(self, klogger, folder):
        self.klogger, self.folder = klogger, folder

    def run(self, *words, before=(), **more) -> subprocess.CompletedProcess:
        words = [*before, self.klogger, "doctor", *words]
        return subprocess.run(
            words, cwd=self.folder, capture_output=True, text=True, check=False, **more
        )

    def says(self, code=0, **more) -> dict[str, dict]:
        """By the name of what was looked at."""
        done = self.run("--format", "json", **more)
        assert done.returncode == code, done
        said = json.loads(done.stdout)
        assert said["records"] is (code == 0)
        assert {check["state"] for check in said["checks"]} <= STATES
        assert any(check["needed"] for check in said["checks"]) is (code == 1)
        names = [check["name"] for check in said["checks"]]
        assert len(names) == len(set(names)), names
        for check in said["checks"]:
            assert (check["without"] is None) is (check["state"] == "ok"), check
        return {check["name"]: check for check in said["checks"]}


@pytest.fixture
def doctor(klogger, tmp_path):
    return Doctor(klogger, tmp_path)


@pytest.fixture
def public(public_klogger):
    return Doctor(public_klogger, "/")


def state(said, name):
    return said[name]["state"]


def test_it_says_what_the_machine_says(doctor, recorder):
    said = doctor.says()
    assert os.uname().release in said["release"]["found"]
    for name in ("capabilities", "types (BTF)", "BPF programs", "tracepoints"):
        assert state(said, name) == "ok", said[name]
    devices = Path("/sys/bus/event_source/devices")
    if not (devices / "kprobe").exists():
        assert state(said, "functions") == "missing"
    assert (state(said, "hardware counters") == "ok") is counts_cycles()
    (source,) = Path("/sys/devices/system/clocksource").glob("*0/current_clocksource")
    assert said["clock source"]["found"] == source.read_text().strip()
    if not Path("/proc/modules").exists():
        assert state(said, "modules") == "missing"
    engines = json.loads(recorder.command("list", "--engines", "--format", "json").out)
    available = {engine["name"]: engine["available"] for engine in engines}
    assert (state(said, "user engine") == "ok") is available["user"]


def counts_cycles() -> bool:
    """Whether perf_event_open() takes PERF_COUNT_HW_CPU_CYCLES of this thread."""
    attributes = struct.pack("=IIQ", 0, 64, 0).ljust(64, b"\0")
    buffer = ctypes.create_string_buffer(attributes)
    descriptor = ctypes.CDLL(None).syscall(298, buffer, 0, -1, -1, 0)
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


def test_for_people(doctor):
    done = doctor.run()
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    # One word may be as long as it likes, such as the path of a program.
    assert all(len(line) <= 80 or len(line.split()) < 5 for line in lines), max(lines, key=len)
    assert lines[0] == "This process" and any(line.startswith("  ok ") for line in lines)
    assert "can be recorded" in done.stdout
    nothing = {**os.environ, "PATH": "/nowhere"}
    short = doctor.run("--missing", env=nothing).stdout.splitlines()
    assert not any(line.startswith("  ok ") for line in short)
    assert any(line.startswith("  missing  clang ") for line in short) and len(short) < len(lines)


def test_without_privilege(public):
    said = public.says(code=1, before=NOBODY)
    assert said["capabilities"]["needed"] and "sudo" in said["capabilities"]["help"]
    assert not said["BPF programs"]["needed"] and "not tried" in said["BPF programs"]["found"]
    done = as_nobody(public.klogger, *RECORD)
    assert done.code == 2 and "klogger doctor" in done.err, done.err
    # What is wrong with the words is not the machine's fault.
    done = as_nobody(public.klogger, *[word.replace("scheduler", "nothing") for word in RECORD])
    assert done.code == 2 and "klogger doctor" not in done.err, done.err


def test_in_namespaces(doctor, public):
    said = doctor.says(before=["unshare", "--pid", "--fork", "--mount-proc"])
    assert state(said, "pid namespace") == "missing" and "-a" in said["pid namespace"]["help"]
    said = public.says(code=1, before=[*NOBODY, "unshare", "--user", "--map-root-user"])
    assert "user namespace" in said["capabilities"]["found"]


# Runs its arguments with a filter of system calls: bpf() is refused, or nothing is.
FILTERED = """
import ctypes, os, struct, sys
refused = int(sys.argv[1])
load = struct.pack("=HBBI", 0x20, 0, 0, 0)
same = struct.pack("=HBBI", 0x15, 0, 1, refused)
deny, allow = (struct.pack("=HBBI", 0x06, 0, 0, action) for action in (0x00050001, 0x7FFF0000))
code = ctypes.create_string_buffer(load + same + deny + allow)
program = struct.pack("=HxxxxxxQ", 4, ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""
NO_CALL, BPF = 9999, 321


def test_with_a_filter_of_system_calls(doctor):
    filtered = [sys.executable, "-c", FILTERED]
    said = doctor.says(before=[*filtered, str(NO_CALL)])
    assert state(said, "seccomp") == "limited" and state(said, "BPF programs") == "ok"
    said = doctor.says(code=1, before=[*filtered, str(BPF)])
    assert said["BPF programs"]["needed"] and "not permitted" in said["BPF programs"]["found"]


def test_without_programs(doctor, tmp_path):
    said = doctor.says(env={**os.environ, "PATH": str(tmp_path)})
    assert state(said, "clang") == state(said, "QEMU") == state(said, "ssh") == "missing"
    assert "apt-get install" in said["clang"]["help"]


def test_with_limits(doctor, tmp_path):
    few = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))}
    # A recording raises the limit, if it may.
    may = int(Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0], 16) >> 24 & 1
    assert (state(doctor.says(**few), "open files") == "ok") is bool(may)
    said = doctor.says(before=["setpriv", "--bounding-set=-sys_resource"], **few)
    assert state(said, "open files") == "limited" and "512" in said["open files"]["found"]
    mounted = f'mount -t tmpfs -o size=1m none {tmp_path} && cd {tmp_path} && exec "$@"'
    said = doctor.says(before=["unshare", "--mount", "sh", "-c", mounted, "sh"])
    assert said["free space here"]["found"] == "1 MB"
    assert state(said, "free space here") == "limited"


def test_another_recording(doctor, recorder):
    process = recorder.start("-q", "-s", "scheduler", "--", "sleep", "1000", out=recorder.path())

    def others():
        return state(doctor.says(), "other recorders")

    wait_for(lambda: others() == "limited", process)
    process.terminate()
    process.communicate(timeout=60)
