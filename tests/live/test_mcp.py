# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger mcp` on the live kernel: recordings stay within what the user allows, and a scripted
policy finds planted faults in at most five calls.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from agents import Agent
from conftest import wait_for

HERE = Path(__file__).parent
CALLS_MAX = 5
CONFIG = """\
[record]
schemata = ["waits", "peers", "lifecycle", "useless", "files", "futex", "scheduler", "syscalls"]
folder = "FOLDER"
seconds = 20
bytes = "BYTES"
commands = true
pids = true
"""


def agent_in(folder: Path, *, bytes="64M", **changed) -> Agent:
    logs = folder / "logs"
    logs.mkdir(mode=0o700)
    config = CONFIG.replace("FOLDER", str(logs)).replace("BYTES", bytes)
    for old, new in changed.items():
        config = re.sub(rf"^{old} = .*$", f"{old} = {new}", config, flags=re.M)
    return Agent(folder, config)


# --- bounds ---


@pytest.mark.full("3 s: a server, and a recording")
def test_a_command_is_recorded_and_answered(klogger, tmp_path):
    with agent_in(tmp_path) as agent:
        made = agent.call("record", schemata=["lifecycle"], command=["sh", "-c", "exit 7"])
        assert made["exit_code"] == 7 and made["lost"] == 0
        log = Path(made["log"])
        assert log.parent == tmp_path / "logs" and log.stat().st_mode & 0o777 == 0o600
        query = "SELECT time, cpu, serial FROM ENDED"
        (claim,) = agent.call("sql", log=str(log), query=query)["claims"]
        assert claim["value"]["total"] == claim["events"]["count"] >= 1
        assert claim["ledger"] == {"complete": True}
        said = agent.refused("record", schemata=["lifecycle"], all=True)
        assert "all = true" in said["help"]


@pytest.mark.full("5 s: two recordings and their ends")
def test_a_process_is_recorded_for_its_time(klogger, tmp_path):
    with agent_in(tmp_path) as agent, subprocess.Popen(["sleep", "60"]) as other:
        try:
            made = agent.call("record", schemata=["scheduler"], pid=other.pid, seconds=0.2)
            assert "time" in made["ended"] and other.poll() is None
            assert Path(made["log"]).exists() and "exit_code" not in made
            said = agent.refused("record", schemata=["scheduler"], pid=2**22 + 1, seconds=0.2)
            assert said["error"]
        finally:
            other.kill()


@pytest.mark.full("5 s: writes until the bound is reached")
def test_a_log_that_has_all_its_bytes_is_ended(klogger, tmp_path):
    """The log is complete, and nothing runs on."""
    endless = "trap : TERM; while :; do :; done & while :; do /bin/true; done"
    with agent_in(tmp_path, bytes="256K") as agent:
        made = agent.call(
            "record", schemata=["lifecycle", "syscalls"], command=["sh", "-c", endless], seconds=20
        )
        assert made["ended"] == f"it had {256 << 10} bytes"
        assert made["bytes"] > 256 << 10
        (claim,) = agent.call("sql", log=made["log"], query="SELECT count(*) FROM ENDED")["claims"]
        assert claim["value"]["rows"][0][0] > 0
    folders = [Path(f"/proc/{pid}/cwd") for pid in os.listdir("/proc") if pid.isdigit()]
    assert [str(one) for one in folders if is_at(one, tmp_path)] == []


def is_at(link: Path, folder: Path) -> bool:
    try:
        return link.resolve(strict=True) == folder
    except OSError:
        return False


@pytest.mark.full("5 s: a recording that is ended in its middle")
def test_a_recording_ends_with_the_server(klogger, tmp_path):
    agent = agent_in(tmp_path)
    with agent, subprocess.Popen(["sleep", "60"]) as other:
        try:
            asked = {"schemata": ["scheduler"], "pid": other.pid, "seconds": 20}
            agent.portal.start_task_soon(agent.client.call_tool, "record", asked)
            (server,) = wait_for(lambda: children_of(os.getpid(), "klogger_lab.cli.mcp"))
            wait_for(lambda: list((tmp_path / "logs").glob("*.klog")))
            recorders = children_of(server, "record")
            os.kill(server, signal.SIGTERM)
            wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in recorders))
        finally:
            other.kill()
    assert is_complete(klogger, tmp_path / "logs")


@pytest.mark.full("3 s: a recording that is ended in its middle")
def test_a_recording_ends_with_the_input(klogger, tmp_path):
    """As clients end a server, which has a signal only if that takes long."""
    wanted = agent_in(tmp_path, seconds=600).server
    start = {"protocolVersion": "2025-06-18", "capabilities": {},
             "clientInfo": {"name": "t", "version": "1"}}  # fmt: skip
    asked = {"schemata": ["scheduler"], "command": ["sleep", "600"], "seconds": 600}
    with subprocess.Popen(
        [wanted.command, *wanted.args], cwd=wanted.cwd, env=wanted.env, text=True, bufsize=1,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as server:  # fmt: skip
        for message in (
            {"id": 1, "method": "initialize", "params": start},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "record", "arguments": asked}},
        ):
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        (recorder,) = wait_for(lambda: children_of(server.pid, "record"), server)
        # The words of the recorder have its name as well.
        wait_for(lambda: children_of(recorder, "sleep\x00600", begins=True), server)
        server.stdin.close()
        try:
            assert server.wait(60) == 0
        finally:
            server.terminate()
        assert not Path(f"/proc/{recorder}").exists()
    assert is_complete(klogger, tmp_path / "logs")


def is_complete(klogger: str, folder: Path) -> bool:
    """The log that is there."""
    (log,) = folder.glob("*.klog")
    done = subprocess.run(
        [klogger, "info", log, "--format", "json"], capture_output=True, check=True
    )
    return json.loads(done.stdout)["complete"]


def children_of(pid: int, word: str, *, begins: bool = False) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (folder / "cmdline").read_bytes()
            is_it = words.startswith(word.encode()) if begins else word.encode() in words
            if parent == pid and is_it:
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return found


# --- planted faults ---


@dataclass
class Fault:
    """`symptom`: what somebody complains of; `words`: what the claims must say, each in one."""

    name: str
    symptom: str
    command: list[str]
    words: list[str]


def python(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


TIME = "where the elapsed time goes"
DEATH = "processes: their death"
USE = "work of programs of no use"
LOCKS = "locks of programs"
FILES = "what programs open and read of files"
SYSTEM = "every system call by name"
CPU = "who ran, for how long, and why it stopped"
WHY = "WHY"
SLEEPER = f"{shlex.quote(sys.executable)} -S -c 'import time; time.sleep(0.3); print(1)'"
FAULTS = [
    Fault("a lock whose holder waits for a reader that sleeps", TIME, [WHY, "lock", "23"],
          [r'"kind":"pipe"', r'"program":"reader".*"kind":"timer"']),
    Fault("time-outs of poll", TIME, [WHY, "poll", "53"], [r'"kind":"timer","what":"poll']),
    Fault("a computation", TIME, [WHY, "spin", "300"], [r'"group":"ran","kind":"user code"']),
    Fault("another process on the only CPU", TIME, [WHY, "compete", "150"],
          [r'"group":"could run","kind":"(preempted|queued)","what":"(by|behind) why']),
    Fault("system calls without number", TIME, [WHY, "calls", "200003", "2"],
          [r'"kind":"system call","what":"getppid"']),
    Fault("memory that is touched first", TIME, [WHY, "calls", "2", "20011"],
          [r'"kind":"page fault']),
    Fault("a child that sleeps", TIME, shell("sleep 0.3; true"),
          [r'"kind":"child"', r'"program":"sleep".*"kind":"timer"']),
    Fault("a pipe whose writer sleeps", TIME, shell(f"{SLEEPER} | cat; true"),
          [r'"kind":"pipe"', r'"kind":"timer"']),
    Fault("a file lock", TIME,
          python("import fcntl, os, time; f = open('lock', 'w'); p = os.fork()\n"
                 "if p:\n g = open('lock'); time.sleep(0.1); fcntl.flock(g, fcntl.LOCK_EX)\n"
                 "else: fcntl.flock(f, fcntl.LOCK_EX); f.close(); g = open('lock');"
                 " fcntl.flock(g, fcntl.LOCK_EX); time.sleep(0.4)\n"),
          [r"flock", r'"kind":"timer"']),
    Fault("a server that sleeps before it answers", TIME,
          python("import os, socket, time; s = socket.create_server(('127.0.0.1', 0))\n"
                 "if os.fork():\n c = socket.create_connection(s.getsockname()); c.recv(1)\n"
                 "else: a = s.accept()[0]; time.sleep(0.3); a.send(b'x')\n"),
          [r'"kind":"socket', r'"kind":"timer"']),
    Fault("a thread that is joined", TIME,
          python("import threading, time; t = threading.Thread(target=time.sleep, args=(0.3,));"
                 " t.start(); t.join()"), [r'"kind":"(thread|lock)"', r'"kind":"timer"']),
    Fault("a signal that comes late", TIME,
          python("import signal; signal.setitimer(signal.ITIMER_REAL, 0.3);"
                 " signal.signal(signal.SIGALRM, lambda *_: None); signal.pause()"),
          [r'"kind":"(signal|timer)"']),
    Fault("a crash two processes deep", DEATH,
          shell("sh -c 'sh -c \"kill -SEGV \\$\\$\"; true'; true"), [r"SIGSEGV"]),
    Fault("a process that is killed", DEATH, shell("sleep 9 & kill -KILL $!; wait $!; true"),
          [r"SIGKILL"]),
    Fault("files that are looked for and not there", USE,
          python("import os\nfor i in range(2003):\n try: os.stat(f'/nowhere/{i % 7}')\n"
                 " except OSError: pass"), [r"found no such name, most of \S+ in /nowhere"]),
    Fault("a byte at a time", FILES,
          python("import os\nf = os.open('/etc/services', os.O_RDONLY)\n"
                 "for _ in range(5003): os.read(f, 1)"), [r"most are read of \S+ \(5,0"]),
    Fault("a file that is opened again and again", FILES,
          python("for _ in range(2003): open('again.conf', 'w').close()"),
          [r"were closed without any use", r"again\.conf"]),
    Fault("a lock that all want", LOCKS, [WHY, "lock", "53"],
          [r"lock in waits, mostly held by holder"]),
    Fault("a system call that fails", SYSTEM,
          python("import os\nfor _ in range(2003):\n try: os.rmdir('/none')\n"
                 " except OSError: pass"), [r'"rmdir",2003,2003']),
    Fault("who takes the CPU away", CPU, [WHY, "compete", "150"],
          [r"lost its CPU \d+ times"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    out = tmp_path_factory.mktemp("why") / "why"
    subprocess.run(["cc", "-O1", "-pthread", HERE / "why.c", "-o", out], check=True)
    return out


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    with agent_in(tmp_path_factory.mktemp("faults")) as connected:
        yield connected


LITTLE = {"the", "and", "what", "for", "their", "how", "who"}


def words_in(text: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", text.lower())) - LITTLE


def schemata_for(symptom: str, listed: list) -> list[str]:
    """The schema whose question has most words of the symptom, as the list has them; the first, if
    several have; and those that the list says belong to it. Elapsed time needs `peers` as well.
    """
    allowed = [one for one in listed if f'"{one["name"]}"' in CONFIG]
    best = max(allowed, key=lambda one: len(words_in(symptom) & words_in(one["question"])))
    beside = ["peers"] if best["name"] == "waits" else best.get("with", [])
    return [best["name"], *beside]


def policy(agent: Agent, fault: Fault, command: list[str]) -> list[str]:
    """Fixed rules: list, record, ask; then what the first finding points to. Gives all claims."""
    agent.calls = 0
    listed = [one for page in agent.pages("list_schemata") for one in page["schemata"]]
    made = agent.call("record", schemata=schemata_for(fault.symptom, listed), command=command)
    name = "why" if "why" in made["next"] else "report"
    page = agent.call(name, log=made["log"])
    found = page["claims"]
    if name == "report":
        for first in list(dict.fromkeys(one["by"]["analysis"] for one in found))[:2]:
            found = found + agent.call("report", log=made["log"], analysis=first)["claims"]
    elif "cursor" in page:
        found = found + agent.call(name, log=made["log"], cursor=page["cursor"])["claims"]
    assert agent.calls <= CALLS_MAX
    return found


@pytest.mark.full("5 s each: twenty recordings")
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_planted_faults_are_found(agent, program, fault):
    command = [str(program) if word is WHY else word for word in fault.command]
    claims = policy(agent, fault, command)
    texts = [json.dumps(one["value"], separators=(",", ":")) for one in claims]
    for wanted in fault.words:
        assert any(re.search(wanted, text) for text in texts), "\n".join(texts)
    answer = agent.folder / "answer.json"
    answer.write_text(json.dumps({"claims": claims}))
    verified = subprocess.run(
        [sys.executable, "-m", "klogger.cli.verify", answer], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert verified.returncode == 0, verified.stdout
