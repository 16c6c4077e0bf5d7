# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The schemata of examples/, each with what its first page promises."""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from oracles import Log

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

OPENER = """
import os
for n in range(11):
    os.close(os.open("a file", os.O_RDONLY))
for n in range(7):
    try:
        os.open("none", os.O_RDONLY)
    except FileNotFoundError:
        pass
"""
WRITER = """
import os
fd = os.open("blocks", os.O_CREAT | os.O_WRONLY)
for n in range(13):
    os.write(fd, bytes(4096 * (n + 1)))
    os.fsync(fd)
"""
TALKER = """
import os, socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], os.stat("/proc/self/ns/net").st_ino)
for n in range(5):
    ours = socket.create_connection(listener.getsockname())
    theirs, _ = listener.accept()
    ours.close()
    theirs.recv(1)
    theirs.close()
listener.close()
"""


SLEEPER = """
import time
for n in range(3):
    time.sleep(0.3)
for n in range(5):
    time.sleep(0.001)
"""


def recorded(recorder, name, program, *options):
    command = (sys.executable, "-c", program)
    done, path = recorder.run("-s", EXAMPLES / f"{name}.klogger", *options, "--", *command)
    assert done.code == 0, done.err
    return Log(recorder.klogger, path), done


def test_opens(recorder, clean_kernel):
    (recorder.dir / "a file").touch()
    log, _ = recorded(recorder, "opens", OPENER)
    ours = "SELECT count(*) FROM open WHERE path = '{}' AND (result {} 0)"
    assert log.one(ours.format("a file", ">=")) == 11
    assert log.one(ours.format("none", "= -2 AND 0 =")) == 7
    assert log.one("SELECT count(*) FROM open WHERE path IN ('a file', 'none')") == 18


def test_io_of_one_device(recorder, clean_kernel):
    number = os.stat(recorder.dir).st_dev
    disk = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not disk.exists():
        pytest.skip("this file system is on no block device")
    # LVM and the like have no requests of their own.
    if "/virtual/" in str(disk.resolve()):
        pytest.skip("this file system is on no disk itself")
    whole = disk.resolve().parent if (disk / "partition").exists() else disk
    device = (whole / "dev").read_text().strip()
    log, _ = recorded(recorder, "io", WRITER, "--device", device)
    requests = log.rows("SELECT request, bytes FROM issue WHERE write AND bytes > 0")
    # Each fsync writes what is new, at least.
    assert len(requests) >= 13 and sum(size for _, size in requests) >= 4096 * 13 * 14 // 2
    assert log.one("SELECT count(DISTINCT device) FROM issue") == 1
    assert log.one("SELECT count(*) FROM issue WHERE request NOT IN "
                   "(SELECT request FROM complete)") == 0  # fmt: skip
    other, _ = recorded(recorder, "io", WRITER, "--device", "4095:7")
    assert other.one("SELECT (SELECT count(*) FROM issue) + (SELECT count(*) FROM complete)") == 0


@pytest.mark.full("others of this file are in the gate")
def test_states_of_connections_in_a_namespace(recorder, clean_kernel):
    log, done = recorded(recorder, "sockets", TALKER, "--netns", str(os.getpid()))
    port, namespace = done.out.split()
    query = """SELECT netns, tcp_state(after) AS state, endpoint(source) AS source,
               endpoint(destination) AS destination FROM state"""
    asked = recorder.command("sql", log.path, "--format", "json", query)
    assert asked.code == 0, asked.err
    place = f"127.0.0.1:{port}"
    ours = [row for row in json.loads(asked.out) if place in (row["source"], row["destination"])]
    assert {row["netns"] for row in ours} == {int(namespace)}
    states = Counter((row["source"] == place, row["state"]) for row in ours)
    assert (states[True, "listen"], states[False, "syn-sent"]) == (1, 5)
    assert (states[True, "established"], states[False, "established"]) == (5, 5)


@pytest.mark.full("others of this file are in the gate")
def test_slow_calls(recorder, clean_kernel):
    """Sleeps are never shorter than they were asked for."""
    log, _ = recorded(recorder, "slow", SLEEPER, "--set", "slow=300ms")
    assert log.one("SELECT count(*) FROM call WHERE took >= 300e6") >= 3
    assert log.one("SELECT count(*) FROM call WHERE took < 300e6") == 0
