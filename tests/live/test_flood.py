# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""More events than a small ring can take: each is in the log, or counted as lost where it
was lost.
"""

import os
from pathlib import Path

import oracles
import pytest

SCHEMA = Path(__file__).with_name("flood.klogger")


def recorded(recorder, workloads, n, *options):
    log, report = recorder.log("-s", SCHEMA, *options, "--", workloads / "flood", n, -1)
    pids = ", ".join(str(thread["tid"]) for thread in report["threads"])
    assert len(report["threads"]) == os.cpu_count()
    return log, pids


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("options", [(), ("--compress",)], ids=["plain", "compressed"])
def test_logged_and_lost_are_all(recorder, workloads, clean_kernel, options):
    """How many are lost while the recorder runs is the machine's affair."""
    n = 2_000_000
    log, pids = recorded(recorder, workloads, n, "--buffer-size", "64K", *options)
    check_all(log, pids, n * os.cpu_count())


def test_logged_and_lost_are_all_when_the_rings_are_not_drained(recorder, workloads, clean_kernel):
    n, out = 500_000, recorder.path()
    flood = [workloads / "flood", n, -1]
    run = recorder.while_stopped("-s", SCHEMA, "--buffer-size", "64K", command=flood, out=out)
    pids = ", ".join(str(thread["tid"]) for thread in run.report["threads"])
    assert check_all(oracles.Log(recorder.klogger, out), pids, n * os.cpu_count()) > n


def check_all(log, pids, attempts):
    """Logged and lost are so many; returns how many were lost."""
    lost = 0
    for event in ("FLOOD", "FLOOD_WIDE"):
        lost += log.lost(event)
        assert log.count(event, f"pid IN ({pids})") + log.lost(event) == attempts, event
    oracles.check_lost_sums(log)
    oracles.check_serials(log)
    assert not lost or log.rows("SELECT 1 FROM ledger WHERE key = 'ring_full'")
    return lost


@pytest.mark.full("takes more than 3 s")
def test_nothing_is_lost_in_a_large_ring(recorder, workloads):
    n = 200_000
    log, pids = recorded(recorder, workloads, n, "--buffer-size", "64M")
    for event in ("FLOOD", "FLOOD_WIDE"):
        assert log.count(event, f"pid IN ({pids})") == n * os.cpu_count()
    oracles.check_whole(log)
    oracles.check_serials(log)


@pytest.mark.full("takes more than 3 s")
def test_order_under_loss(recorder, workloads, klogger):
    done, path = recorder.run(
        "-s", SCHEMA, "--buffer-size", "64K", "--", workloads / "flood", 300_000, -1
    )
    assert done.code == 0, done.err
    oracles.check_order(klogger, path)


def test_values_survive(recorder, workloads):
    log, pids = recorded(recorder, workloads, 100_000, "--buffer-size", "64K")
    names = {
        name for (name,) in log.rows(f"SELECT DISTINCT name FROM flood_wide WHERE pid IN ({pids})")
    }
    assert names == {"flood-even", "flood-odd"}
