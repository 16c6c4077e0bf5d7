# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where programs do what few programs do."""

import subprocess
import time

import pytest


@pytest.fixture
def edges(build):
    return build("edges.c")


def threads(log) -> dict:
    """Events by the number that they carry."""
    return dict(
        log.rows("SELECT thread, count(DISTINCT n) FROM count GROUP BY thread ORDER BY thread")
    )


def test_a_process_without_its_first_thread_is_recorded_on(recorder, edges):
    done, path = recorder.run("--engine", "user", "--", edges, "leaderless")
    assert done.code == 0, done.err
    assert threads(recorder.log(path)) == {1: 40}


def test_children_of_a_process_that_ran_already(recorder, room, edges):
    program = subprocess.Popen(
        [edges, "forks"], env=room.environment(record=False), stdin=subprocess.PIPE
    )
    try:
        until = time.monotonic() + 60
        while not room.names():
            assert time.monotonic() < until, "the program makes no file"
            time.sleep(0.01)
        process, path = recorder.started("--engine", "user", "-p", program.pid)
        program.communicate(b"x", timeout=60)
        done = recorder.wait(process)
    finally:
        program.kill()
    assert done.code == 0, done.err
    assert threads(recorder.log(path)) == {child: 20 for child in range(1, 6)}
    assert room.names() == []


def test_a_child_may_not_make_such_files(room, edges):
    done = room.run(edges, "limited", record=False)
    assert (done.code, done.err) == (7, "")


def test_a_child_of_vfork_is_no_thread_of_its_parent(recorder, edges):
    done, path = recorder.run("--engine", "user", "--", edges, "vfork")
    assert done.code == 0, done.err
    log = recorder.log(path)
    assert threads(log) == {2: 100, 3: 100}
    assert log.one("SELECT count(DISTINCT tid) FROM count") == 2
    assert log.lost("COUNT") == 1
