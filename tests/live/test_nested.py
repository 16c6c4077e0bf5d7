# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Interrupts that log while something else is being logged: no event is torn, none is lost without
a trace.
"""

import json
import os
from pathlib import Path

import oracles
import pytest

SCHEMA = Path(__file__).with_name("nested.klogger")
# task_rename, softirq_entry and the rest are hit in these contexts.
EVENTS = ["N_RENAME", "N_SWITCH", "N_TIMER", "N_HRTIMER", "N_SOFTIRQ", "N_SIGNAL", "N_PACKET"]


def check_not_torn(log):
    for event in EVENTS:
        torn = log.count(event, "xor(a, b) <> 18446744073709551615::UBIGINT")
        assert torn == 0, f"{torn} torn {event} events"
    assert log.count("N_SOFTIRQ", "xor(c, d) <> 65535") == 0
    assert log.count("N_HRTIMER", "list_distinct(filler) <> [(a & 255)::UTINYINT]") == 0


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("buffer", ["64K", "8M"])
def test_nothing_is_torn(recorder, workloads, clean_kernel, buffer):
    # All CPUs, for otherwise an interrupt's event is only logged if it interrupts the workload.
    log, report = recorder.log(
        "-s", SCHEMA, "--buffer-size", buffer, "--", workloads / "nested", 2000, timeout=300
    )
    for event in EVENTS:
        assert log.count(event) > 0, f"no {event} at all"
    cpus = {cpu for (cpu,) in log.rows("SELECT DISTINCT cpu FROM n_rename")}
    assert cpus == set(range(os.cpu_count()))
    assert log.one("SELECT sum(logged) FROM event") > 100_000
    check_not_torn(log)
    oracles.check_serials(log)
    oracles.check_lost_sums(log)
    attempts = sum(thread["count"] for thread in report["threads"] if thread["role"] == "flood")
    tids = ", ".join(str(thread["tid"]) for thread in report["threads"])
    seen = (
        log.count("N_RENAME", f"pid IN ({tids})") + log.lost("N_RENAME") + missed(log, "N_RENAME")
    )
    # Others, on the same machine, may rename themselves meanwhile, and lose.
    assert attempts <= seen <= attempts + 1000


def missed(log, event):
    """Hits that the kernel skipped, as the ledger has them."""
    return log.one(
        "SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'probe_missed' AND event ="
        f" '{event}'"
    )


@pytest.mark.full("takes more than 3 s")
def test_every_block_is_sound(recorder, workloads):
    done, path = recorder.run(
        "-s", SCHEMA, "--buffer-size", "256K", "--", workloads / "nested", 2000
    )
    assert done.code == 0, done.err
    info = recorder.command("info", "--format", "json", path)
    assert info.code == 0, info.err
    assert json.loads(info.out)["damage"] == []
    assert "corrupt" not in info.err
