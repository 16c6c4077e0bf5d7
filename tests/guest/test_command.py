# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger guest`, with Debian's kernel. python/tests/test_guest.py has what needs no boot."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import oracles
import pytest
from kernels import cache, headers
from oracles import Log, workload_json

pytestmark = pytest.mark.full("boots guests of its own")

# For a boot by plain emulation, on a machine that has other things to do as well.
PATIENCE = 600


@dataclass
class Guest:
    """Runs `klogger guest` in a folder."""

    klogger: Path
    folder: Path

    def start(self, *words: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "klogger_lab.cli.guest", *words],
            cwd=self.folder,
            env={
                **os.environ,
                "KLOGGER": str(self.klogger),
                "KLOGGER_CACHE": str(cache()),
                "GREETING": "it's me",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # The shell that starts the tests may have set it to be ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
        )

    def run(self, *words: str) -> subprocess.CompletedProcess:
        process = self.start(*words)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            process.terminate()
            process.wait()
        return subprocess.CompletedProcess(words, process.returncode, out, err)


@pytest.fixture
def command(klogger, tmp_path) -> Guest:
    if not list((cache() / "guest").glob("linux-image-*.deb")):
        pytest.skip("no kernel for a guest: run 'scripts/setup guest'")
    return Guest(klogger, tmp_path)


SCRIPT = """
uname -r; id -u; pwd; echo "$GREETING"
cat here
echo changed >here; echo new >there; touch /etc/klogger-was-here
echo to-stderr >/dev/stderr
"$1" 23
sleep 1000 &
exit 7
"""


def test_a_command_is_run_and_recorded(command, workloads):
    """Its output, its exit code and the log come out, and nothing else."""
    (command.folder / "here").write_text("unchanged\n")
    words = ["-s", "scheduler", "--engine", "bpf", "-o", "x.klog", "--", "sh", "-c", SCRIPT, "sh"]
    done = command.run(*words, str(workloads / "forks"))
    assert done.returncode == 7, done.stdout + done.stderr
    release, user, folder, greeting, here, report = done.stdout.splitlines()
    assert release.startswith("6.1.")
    assert (user, folder, greeting, here) == ("0", str(command.folder), "it's me", "unchanged")
    assert "to-stderr\n" in done.stderr
    assert "in x.klog; nothing lost" in done.stderr, "the log is named as the user named it"
    assert (command.folder / "here").read_text() == "unchanged\n"
    assert sorted(path.name for path in command.folder.iterdir()) == ["here", "x.klog"]
    assert not Path("/etc/klogger-was-here").exists()

    log = Log(command.klogger, command.folder / "x.klog")
    assert log.meta["preamble"]["host"]["kernel"] == release
    oracles.check_whole(log)
    oracles.check_forks(log, workload_json(report), 23)


def test_the_whole_guest_is_recorded(command):
    (command.folder / "scheduler.klog").write_text("older")
    done = command.run(
        "-s",
        "scheduler",
        "-a",
        "--record=--compress",
        "--smp",
        "1",
        "--",
        "sh",
        "-c",
        "nproc; exit 3",
    )
    assert (done.returncode, done.stdout) == (3, "1\n"), done.stderr
    assert (command.folder / "scheduler.klog.old").read_text() == "older"
    log = Log(command.klogger, command.folder / "scheduler.klog")
    oracles.check_whole(log)
    assert log.one("SELECT text FROM mark") == "the command begins"
    # The idle thread is no child of the command.
    assert log.count("SCHEDIN", "pid = 0") > 0


def test_a_panic_is_told_and_the_log_up_to_it_is_kept(command):
    """A recorder writes what it has once a second."""
    script = (
        'while [ $(stat -c %s "$0") -lt 9999 ]; do /bin/true; done; sleep 3; echo c'
        " >/proc/sysrq-trigger; sleep 1000"
    )
    done = command.run(
        "-s",
        "scheduler",
        "--",
        "sh",
        "-c",
        script.replace('"$0"', "/tmp/klogger-guest-*/scheduler.klog"),
    )
    assert done.returncode == 2
    assert "panicked: sysrq triggered crash\n  its console said:\n" in done.stderr
    assert "what was recorded until then is in " in done.stderr
    text = subprocess.run(
        [command.klogger, "cat", command.folder / "scheduler.klog"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert text.stdout.count("SCHEDOUT") > 23, text.stderr


def test_a_command_that_does_not_end_is_ended(command):
    done = command.run(
        "--timeout", "2", "-v", "--append", "loglevel=7", "--", "sh", "-c", "echo begun; sleep 1000"
    )
    assert (done.returncode, done.stdout) == (2, "begun\n"), done.stderr
    assert "Linux version 6.1." in done.stderr, "-v shows the console"
    assert "klogger: the command was still running after " in done.stderr
    assert "\n  help: --timeout gives it more time\n" in done.stderr


def test_a_kernel_without_drivers_is_refused(command):
    """An image alone: Debian's has all drivers in modules."""
    (command.folder / "vmlinuz").write_bytes((cache() / "guest/vmlinuz").read_bytes())
    done = command.run("--kernel", "vmlinuz", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        "klogger: the guest's kernel cannot mount this machine's files: it has no driver for 9p"
        in done.stderr
    )
    assert "\n  help: it needs CONFIG_VIRTIO_PCI" in done.stderr


def emulators(folder: Path) -> list[str]:
    """The QEMUs of guests that were started there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                b"qemu-system" in (process / "cmdline").read_bytes()
                and (process / "cwd").resolve() == folder
            ):
                found.append(process.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_guest_ends_with_its_command_line(command, number, code):
    process = command.start("--", "sleep", "1000")
    try:
        until = time.monotonic() + PATIENCE
        # The first one may be there only for its version or for a trial of KVM.
        while not (started := emulators(command.folder)) and time.monotonic() < until:
            time.sleep(0.1)
        assert started, "QEMU was not started"
        process.send_signal(number)
        assert process.wait(timeout=PATIENCE) == code
        assert emulators(command.folder) == []
    finally:
        process.kill()
        process.communicate()


@pytest.mark.nightly("a bench in a guest")
def test_what_events_of_the_kernel_engine_cost(command):
    """`klogger bench` in a guest: for each event a number, or why there is none. An emulator may
    have no good clock.
    """
    schema = Path(__file__).resolve().parents[2] / "bench/kernel/hits/calls.klogger"
    build = [command.klogger, "build", "--kernel", headers(), "-s", schema, "-o", "modules"]
    subprocess.run(build, cwd=command.folder, check=True, capture_output=True)
    bench = '"$0" -m klogger_lab.cli.bench --engine kernel -s "$1" --event TWO'
    bench += " --modules modules --passes 3 --format json"
    script = f"{bench}; echo $?; cat /proc/modules"
    done = command.run("--", "sh", "-c", script, sys.executable, str(schema))
    assert "}\n" in done.stdout, done.stdout + done.stderr
    text, after = done.stdout.rsplit("}\n", 1)
    found = json.loads(text + "}")
    assert (found["engine"], found["schema"]) == ("kernel", "calls"), done.stderr
    assert [(e["name"], e["bytes_least"]) for e in found["events"]] == [("TWO", 16)]
    for event in found["events"]:
        assert (event["added_ns"] is None) == bool(event.get("not_measurable"))
        assert event["added_ns"] is None or event["added_ns"]["median"] > 0
    code, *modules = after.splitlines()
    assert code == str(int(not found["measurable"]))
    # What it has loaded, it has taken out again.
    assert not any(line.startswith("klogger") for line in modules)
