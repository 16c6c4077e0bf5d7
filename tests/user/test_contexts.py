# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The contexts of programs are what the program knows itself: also in threads, in a signal handler,
and in a pid namespace of its own.
"""

import json
import os
import shutil

import pytest

RECORD = ("-q", "--engine", "user", "--")
QUERY = "SELECT n, tid_, tgid_, ppid, irq, pidns_tid, comm FROM who ORDER BY n"


@pytest.mark.parametrize("enter", [(), ("unshare", "-p", "-f")], ids=["here", "inside"])
def test_contexts_of_programs(build, recorder, enter):
    if enter and (os.geteuid() or not shutil.which("unshare")):
        pytest.skip("a pid namespace needs root and unshare")
    done, out = recorder.run(*RECORD, *enter, build("contexts.c"))
    assert done.code == 0, done.err
    told = [tuple(json.loads(line)) for line in done.out.splitlines()]
    found = recorder.log(out).rows(QUERY)
    assert found[:2] == told
    # The handler runs in the first thread, at no other level.
    assert found[2] == (3, *told[0][1:])
    assert [row[-1] for row in found] == ["more than 15 ch", "of a thread", "more than 15 ch"]
    if enter:
        assert found[0][5] == 1
        check_threads(recorder.log(out))


def check_threads(log):
    """Each event belongs to a thread by the kernel's number, or to one that is known to be none."""
    main, other, handler = (tid for (tid,) in log.rows("SELECT tid FROM who ORDER BY n"))
    assert main == handler and main != other
    # That is its number in its namespace, and another process has it here.
    assert main != 1
    unknown = log.one("SELECT count(*) FROM ledger WHERE key = 'user_thread'")
    assert unknown == sum(number > 1 << 22 for number in (main, other))
