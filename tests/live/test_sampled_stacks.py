# SPDX-License-Identifier: GPL-2.0-only
"""User stacks of samples, which interrupt a program anywhere: of functions without frame pointers,
with parts of the stack of a few bytes and of kilobytes.
"""

import platform
import subprocess
from pathlib import Path

import pytest
from oracles import Log

pytestmark = [
    pytest.mark.skipif(
        platform.machine() != "x86_64", reason="elsewhere only frame pointers are followed"
    ),
    pytest.mark.full("samples a program for a second"),
]
CHAIN = ["computes", "fifth", "fourth", "third", "second", "first", "main"]
# Bytes of the stack that two of the functions have.
ROOMS = {"small": 72, "large": 5000}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nested")
    source = Path(__file__).parent / "nested_calls.c"
    for name, room in ROOMS.items():
        words = ["cc", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]
        words += ["-fno-stack-clash-protection", f"-DROOM={room}", source, "-o", name]
        subprocess.run(words, cwd=folder, check=True)
    return folder


# Where in a page the stack is: an environment of so many bytes is above it.
@pytest.mark.parametrize("above", [0, 1000, 2000, 3000])
@pytest.mark.parametrize("room", ROOMS)
def test_the_chain_of_samples_is_whole(recorder, programs, room, above):
    """Of those in the program's own code, as a count of samples: how many there are depends on the
    machine. What is not whole has a gap, and is counted by what flame graphs show.
    """
    place = ["setarch", "-R", "env", "-i", f"ABOVE={'x' * above}"]
    done, path = recorder.run(
        "-s", "samples", "--set", "every=1", "--", *place, programs / room, 0.5
    )
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    rows = log.rows(
        "SELECT s.frames, s.whole, s.text, count(*) FROM SAMPLED"
        " JOIN stack AS s ON s.id = user_stack"
        f" WHERE list_contains(s.frames, 'computes') OR list_contains(s.files, '{programs}/{room}')"
        " GROUP BY ALL"
    )
    # The loop of the innermost function is nearly all; main has its clock.
    inner = [row for row in rows if row[0][0] == CHAIN[0]]
    count = sum(row[-1] for row in inner)
    assert count > 100
    whole = sum(n for frames, is_whole, _, n in inner if is_whole and frames[:7] == CHAIN)
    assert whole >= 0.95 * count, sorted((n, text) for *_, text, n in inner)[-5:]
    for frames, is_whole, text, _ in inner:
        assert (is_whole and "?" not in text) == (frames[:7] == CHAIN), text
    assert log.rows("SELECT text FROM ledger WHERE key = 'stack_unknown'") == []


# Programs of the distribution have no frame pointers.
COMMANDS = {
    "python3": "python3 -c 'sum(i * i % 7 for i in range(8000000))'",
    "gzip": "head -c 20000000 /dev/urandom | gzip -1 >/dev/null",
    "sort": "seq 300000 | sort -R >/dev/null",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_stacks_of_programs_of_the_distribution_are_whole(recorder, name):
    done, path = recorder.run("-s", "samples", "--set", "every=1", "--", "sh", "-c", COMMANDS[name])
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    rows = log.rows(
        "SELECT s.whole, sum(period)::BIGINT FROM SAMPLED JOIN stack AS s ON s.id = user_stack"
        f" JOIN process AS p ON p.pid = tid WHERE p.comm = '{name}' AND user GROUP BY s.whole"
    )
    time = dict(rows)
    assert time[True] >= 0.95 * sum(time.values()), time
