# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger collect` against an sshd of our own on the loopback, which has a port for each host."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import wait_for

from klogger.failure import Failure
from klogger_lab.collect import fetch
from klogger_lab.collect.clocks import Reference
from klogger_lab.collect.ssh import Ssh

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
# One port for each, so that sshd can give each an environment of its own.
HOSTS = ("alpha", "beta", "bare", "ahead", "dated")

# What the clock of `ahead` shows to who asks for it; that of its log is the true one. By this clock
# each message comes too early, however late it is: hosts begin when they can.
AHEAD_NS, MONOTONIC_NS = 4_000_000_123_456_789, 1000 * 10**9
MESSAGES = 211
SCHEMA = """
schema messages "Messages from one host to another"

event SENT { ulong id }
event RECEIVED { ulong id }

probe tracepoint task_prctl_unknown(int option, unsigned long arg2) {
    if (option == 0x4b01)
        klogger(SENT, arg2);
    else if (option == 0x4b02)
        klogger(RECEIVED, arg2);
}
"""
# Each host runs it. A message is on its way when it has been logged, and logged when it came.
WORK = """
import ctypes, os, sys
prctl = ctypes.CDLL(None).prctl
host, folder, count = os.environ["HOST"], sys.argv[1], int(sys.argv[2])
ways = {name: os.open(f"{folder}/{name}", os.O_RDWR) for name in ("beta", "ahead")}
if host == "alpha":
    for number in range(count):
        prctl(0x4b01, ctypes.c_ulong(number), 0, 0, 0)
        for way in ways.values():
            os.write(way, b"m")
elif host in ways:
    for number in range(count):
        os.read(ways[host], 1)
        prctl(0x4b02, ctypes.c_ulong(number), 0, 0, 0)
print("done on", host)
"""

pytestmark = pytest.mark.skipif(
    not SSHD or not shutil.which("ssh"), reason="openssh-server is not here"
)


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@dataclass
class Server:
    """An sshd in a folder, and how ssh gets to its hosts."""

    klogger: Path
    folder: Path
    ports: dict[str, int] = field(default_factory=dict)
    running: list[subprocess.Popen] = field(default_factory=list)

    @property
    def options(self) -> list[str]:
        return [f"--ssh=-F{self.folder / 'ssh_config'}"]

    def path(self, host: str) -> Path:
        """The folder of programs that a host has besides the system's."""
        return self.folder / "bin" / host

    def remote(self, host: str) -> Path:
        """Where a host keeps its logs meanwhile."""
        return self.folder / "remote" / host

    def configure(self) -> None:
        for key in ("host_key", "user_key"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key], check=True
            )
        shutil.copy(self.folder / "user_key.pub", self.folder / "authorized")
        public = (self.folder / "host_key.pub").read_text()
        (self.folder / "known").write_text("".join(f"{host} {public}" for host in HOSTS))
        self.ports = dict(zip((*HOSTS, "refuses"), free_ports(len(HOSTS) + 1), strict=True))
        (self.folder / "sshd_config").write_text(self.sshd_config())
        (self.folder / "ssh_config").write_text(self.ssh_config())
        (self.folder / "home").mkdir()
        for host in HOSTS:
            self.path(host).mkdir(parents=True)
            self.remote(host).mkdir(parents=True)
            if host != "bare":
                (self.path(host) / "klogger").symlink_to(self.klogger)

    def sshd_config(self) -> str:
        lines = [f"ListenAddress 127.0.0.1:{self.ports[host]}" for host in HOSTS]
        lines += [
            f"HostKey {self.folder}/host_key", f"AuthorizedKeysFile {self.folder}/authorized",
            "StrictModes no", "UsePAM no", "PidFile none", "PermitRootLogin prohibit-password",
            "PasswordAuthentication no", "MaxStartups 100",
        ]  # fmt: skip
        for host in HOSTS:
            lines += [
                f"Match LocalPort {self.ports[host]}",
                f"  SetEnv PATH={self.path(host)}:/usr/bin:/bin TMPDIR={self.remote(host)}"
                f" KLOGGER_SCHEMATA={ROOT / 'schemata'} HOST={host}"
                # Where no shell finds anything that it should read first.
                f" HOME={self.folder / 'home'}",
            ]
        return "\n".join(lines) + "\n"

    def ssh_config(self) -> str:
        lines = [
            "Host *", "  HostName 127.0.0.1", "  User root", "  IdentitiesOnly yes",
            f"  IdentityFile {self.folder}/user_key",
            f"  UserKnownHostsFile {self.folder}/known", "  StrictHostKeyChecking yes",
        ]  # fmt: skip
        for host, port in self.ports.items():
            lines += [f"Host {host}", f"  Port {port}", f"  HostKeyAlias {host}"]
        return "\n".join(lines) + "\n"

    def words(self, *words) -> list[str]:
        return [sys.executable, "-m", "klogger_lab.cli.collect", *map(str, words)]

    def start(self, *words) -> subprocess.Popen:
        found = subprocess.Popen(
            self.words(*self.options, *words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=self.folder, start_new_session=True,
            env={**os.environ, "KLOGGER": str(self.klogger), "TMPDIR": str(self.folder)},
        )  # fmt: skip
        self.running.append(found)
        return found

    def run(self, *words) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, out, err

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait()

    def folders(self) -> list[Path]:
        """What is on the hosts."""
        return [file for host in HOSTS for file in self.remote(host).iterdir()]

    def recorder(self, host: str) -> int:
        """Its process there, when it listens."""
        [file] = wait_for(lambda: [f for f in self.remote(host).glob("*/pid") if f.read_text()])
        pid = int(file.read_text())
        wait_for(lambda: pid in self.listening())
        return pid

    def listening(self) -> set[int]:
        words = [self.klogger, "ps", "--format", "json"]
        listed = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        return {row["pid"] for row in listed if row.get("logged") is not None}

    def info(self, log: Path) -> dict:
        words = [self.klogger, "info", "--format", "json", log]
        return json.loads(subprocess.run(words, capture_output=True, check=True).stdout)

    def events(self, log: Path, name: str) -> list[dict]:
        words = [self.klogger, "cat", "--format", "json", "--event", name, log]
        lines = subprocess.run(words, capture_output=True, check=True).stdout.splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def sshd(tmp_path_factory, klogger) -> Iterator[Server]:
    found = Server(klogger, tmp_path_factory.mktemp("sshd"))
    found.configure()
    plant(found)
    # Where sshd, as root, wants an empty folder.
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with (found.folder / "sshd.log").open("w") as log:
        daemon = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", found.folder / "sshd_config"],
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    try:
        wait_for(lambda: can_connect(found.ports["dated"]), daemon)
        yield found
    finally:
        found.end()
        daemon.terminate()
        daemon.wait(PATIENCE)


def can_connect(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def plant(server: Server) -> None:
    """The clock of `ahead` is wrong; `dated` has no Python that works."""
    shifted = (
        f"#!{sys.executable}\n"
        "import sys, time\n"
        "wall, monotonic = time.time_ns, time.monotonic_ns\n"
        f"time.time_ns = lambda: wall() + {AHEAD_NS}\n"
        f"time.monotonic_ns = lambda: monotonic() + {MONOTONIC_NS}\n"
    )
    python = "script, sys.argv = sys.argv[2], ['-c', *sys.argv[3:]]\nexec(script)\n"
    date = "ns = time.time_ns()\nprint(ns if 's' in sys.argv[1] else f'{ns % 10**9:09}')\n"
    for name, rest in (("python3", python), ("date", date)):
        program = server.path("ahead") / name
        program.write_text(shifted + rest)
        program.chmod(0o755)
    (server.path("dated") / "python3").symlink_to("/bin/false")


@pytest.fixture(scope="module")
def collected(sshd) -> tuple[int, str, str]:
    """Of hosts with work to do, and of two that cannot do it."""
    (sshd.folder / "messages.klogger").write_text(SCHEMA)
    (sshd.folder / "work.py").write_text(WORK)
    for way in ("beta", "ahead"):
        os.mkfifo(sshd.folder / way)
    # So that no message is gone with a host that has done its work.
    ways = [os.open(sshd.folder / way, os.O_RDWR) for way in ("beta", "ahead")]
    work = [sys.executable, sshd.folder / "work.py", sshd.folder, MESSAGES]
    schema = sshd.folder / "messages.klogger"
    found = sshd.run(*HOSTS, "refuses", "--to", "all", "--", "-s", schema, "--", *work)
    for way in ways:
        os.close(way)
    return found


def clock_of(sshd: Server, host: str) -> dict:
    return json.loads((sshd.folder / "all" / host / "clock.json").read_text())


def test_each_host_has_recorded_what_it_did(sshd, collected):
    _, out, err = collected
    done = ["alpha", "beta", "ahead", "dated"]
    assert sorted(out.splitlines()) == sorted(f"{host}: done on {host}" for host in done), err
    for host in done:
        log = sshd.folder / "all" / host / "recording.klog"
        found = sshd.info(log)
        assert found["complete"] and found["sound"] and found["lost"] == 0
        ids = {name: [e["id"] for e in sshd.events(log, name)] for name in ("SENT", "RECEIVED")}
        # They saw those of the others as well if they ran at the same time: this is one kernel.
        own = {"alpha": "SENT", "beta": "RECEIVED", "ahead": "RECEIVED"}.get(host)
        for name, numbers in ids.items():
            assert numbers == (list(range(MESSAGES)) if name == own else []), (host, name)
        assert log.stat().st_mode & 0o777 == 0o600
    assert sshd.folders() == []


@pytest.mark.full("others of this file are in the gate")
def test_hosts_that_fail_are_named(sshd, collected):
    code, _, err = collected
    assert code == 1
    assert "klogger: bare: there is no klogger on its PATH\n" in err
    refused = next(line for line in err.splitlines() if line.startswith("klogger: refuses: "))
    assert refused.endswith("Connection refused")
    assert {file.name for file in (sshd.folder / "all").iterdir()} == set(HOSTS) - {"bare"}
    assert "the recordings began within " in err


@pytest.mark.full("depends on how busy the machine is")
def test_planted_offsets_are_found(sshd, collected):
    planted = {"alpha": (0, 0), "ahead": (AHEAD_NS, MONOTONIC_NS)}
    true_ns = Reference().base
    for host, (wall, monotonic) in planted.items():
        found = clock_of(sshd, host)
        error = found["realtime"]["error_ns"]
        assert abs(found["realtime"]["offset_ns"] - wall) <= error, host
        # Our own clock may have been adjusted since then.
        by = found["monotonic"]["offset_ns"] + monotonic - true_ns
        assert abs(by) <= found["monotonic"]["error_ns"] + 1_000_000, host
        assert [m["how"] for m in found["measured"]] == ["python3"] * 2
        assert error >= found["measured"][0]["round_trip_ns"] // 2


@pytest.mark.full("others of this file are in the gate")
def test_a_clock_without_python(sshd, collected):
    found = clock_of(sshd, "dated")
    assert [m["how"] for m in found["measured"]] == ["date"] * 2
    assert found["monotonic"] is None
    assert abs(found["realtime"]["offset_ns"]) <= found["realtime"]["error_ns"]


def part_of(sshd: Server, *hosts: str) -> Path:
    """The collection as if it were of these hosts only."""
    folder = sshd.folder / "-".join(hosts)
    if not folder.exists():
        for host in hosts:
            shutil.copytree(sshd.folder / "all" / host, folder / host)
    return folder


def test_events_of_all_hosts_in_the_order_of_time(sshd, collected):
    folder = part_of(sshd, "alpha", "beta")
    words = ["--merge", folder, "--event", "SENT,RECEIVED"]
    code, out, _ = sshd.run(*words, "--format", "json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and len(rows) == 2 * MESSAGES
    times = [row["wall_ns"] for row in rows]
    assert times == sorted(times) and abs(times[0] - time.time_ns()) < 3600 * 10**9
    for host, name in (("alpha", "SENT"), ("beta", "RECEIVED")):
        of_host = [row for row in rows if row["host"] == host]
        assert [(row["event"], row["id"]) for row in of_host] == [
            (name, number) for number in range(MESSAGES)
        ]
    code, out, _ = sshd.run(*words)
    head, *lines = out.splitlines()
    assert head.startswith("# by the clock of the machine") and "alpha ±" in head
    assert len(lines) == 2 * MESSAGES
    assert [line.split()[1] for line in lines] == [row["host"] for row in rows]


def test_messages_that_came_before_they_were_sent(sshd, collected):
    rule = ["--check", "SENT -> RECEIVED by id", "--format", "json"]
    code, out, _ = sshd.run("--merge", part_of(sshd, "alpha", "beta"), *rule)
    found = json.loads(out)
    assert (code, found["pairs"], found["beyond"], found["open"]) == (0, MESSAGES, 0, 0)
    # Its messages seem to come much earlier than they did.
    code, out, _ = sshd.run("--merge", part_of(sshd, "alpha", "ahead"), *rule)
    found = json.loads(out)
    assert (code, found["pairs"], found["beyond"]) == (1, MESSAGES, MESSAGES)
    assert 0 < found["worst_ns"] <= MONOTONIC_NS + 1_000_000


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process to record."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process.pid
        process.kill()


@pytest.mark.full("others of this file are in the gate")
def test_a_recorder_that_is_killed_and_one_that_is_interrupted(sshd, sleeper):
    process = sshd.start("alpha", "beta", "--to", "killed", "--", "-s", "lifecycle", "-p", sleeper)
    sshd.recorder("alpha")
    os.kill(sshd.recorder("beta"), signal.SIGKILL)
    wait_for((sshd.folder / "killed/beta/clock.json").exists, process)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "beta: its recorder was killed by signal 9" in err
    assert "alpha: its" not in err
    for host in ("alpha", "beta"):
        found = sshd.info(sshd.folder / "killed" / host / "recording.klog")
        assert found["complete"] and found["lost"] == 0, host
    assert sshd.folders() == []


def master(process: subprocess.Popen, host: str) -> int:
    """The connection to a host."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    pids = {int(pid) for file in [children, *tasks] for pid in file.read_text().split()}
    [found] = [
        pid
        for pid in pids
        if {host.encode(), b"ControlMaster=yes"}
        <= set(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
    ]
    return found


@pytest.mark.full("others of this file are in the gate")
def test_a_connection_that_is_lost_and_segments_that_come_meanwhile(sshd, sleeper):
    process = sshd.start(
        "alpha", "beta", "--to", "lost", "--",
        "-s", "lifecycle", "-p", sleeper, "--segment", "500ms",
    )  # fmt: skip
    sshd.recorder("alpha")
    killed = sshd.recorder("beta")
    os.kill(master(process, "beta"), signal.SIGKILL)
    wait_for((sshd.folder / "lost/beta/clock.json").exists, process)
    assert not Path(f"/proc/{killed}").exists()
    # While it goes on, on the other host.
    wait_for(lambda: list((sshd.folder / "lost/alpha").glob("*/segment-000002.klog")), process)
    assert sshd.recorder("alpha") in sshd.listening()
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "klogger: beta: the connection was lost" in err
    for host in ("alpha", "beta"):
        found = sshd.info(sshd.folder / "lost" / host / "recording.segments")
        assert found["complete"] and found["lost"] == 0 and not found["ledger"], host
    assert len(json.loads((sshd.folder / "lost/beta/clock.json").read_text())["measured"]) == 1
    assert sshd.folders() == []


@pytest.mark.full("others of this file are in the gate")
def test_who_collects_is_killed(sshd, sleeper):
    """Nothing is left there either, nor is any name a command."""
    where = sshd.remote("alpha") / "it's $(touch pwned) `touch pwned` here"
    where.mkdir()
    process = sshd.start(
        "alpha", "--to", "gone", "--grace", "1s", "--remote-dir", where, "--",
        "-s", "lifecycle", "-p", sleeper,
    )  # fmt: skip
    [file] = wait_for(lambda: [f for f in where.glob("*/pid") if f.read_text()], process)
    pid = int(file.read_text())
    wait_for(lambda: pid in sshd.listening())
    process.kill()
    process.wait()
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    wait_for(lambda: not list(where.iterdir()))
    where.rmdir()
    assert not list(sshd.folder.rglob("pwned")) and not (Path.home() / "pwned").exists()


@pytest.mark.full("others of this file are in the gate")
def test_a_log_that_came_in_part(sshd, tmp_path):
    """What is there is not fetched again, unless it is wrong."""
    ssh = Ssh("alpha", [sshd.options[0].removeprefix("--ssh=")], tmp_path / "socket")
    source = tmp_path / 'it\'s a "log" $(id) \\.klog'
    content = os.urandom(1_000_003)
    source.write_bytes(content)
    for have in (content[:600_000], b"wrong" + content[5:600_000], content + b"too long"):
        target = tmp_path / "home" / "x.klog"
        target.parent.mkdir(exist_ok=True)
        target.with_name("x.klog.part").write_bytes(have)
        shown: list[int] = []
        fetch.bring(ssh, str(source), target, shown.append)
        assert target.read_bytes() == content
        # What is wrong is noticed at its end, and fetched anew from the beginning.
        assert (min(shown) > 600_000) == (have == content[:600_000])
    with pytest.raises(Failure, match="No such file"):
        fetch.bring(ssh, str(tmp_path / "none"), target, shown.append, tries=1)


@pytest.mark.full("others of this file are in the gate")
def test_a_recording_that_cannot_begin(sshd):
    code, _, err = sshd.run("alpha", "--to", "none", "--", "-s", "nowhere", "-a")
    assert code == 1
    assert "klogger: alpha: " in err and "nowhere" in err
    assert sshd.folders() == [] and not list((sshd.folder / "none").glob("*/*"))
