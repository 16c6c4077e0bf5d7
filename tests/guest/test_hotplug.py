# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A CPU that goes and comes under a flood, while rings grow: each hit is logged or counted, and the
thread that empties its ring is on it again.
"""

import pytest
from boots import BPF, Case
from oracles import Log, check_lost_sums, check_serials, workload_json

pytestmark = pytest.mark.full("boots guests of its own")

HITS = 60_000
# How often, and then long enough for a thread that sleeps for a second to see it.
SCRIPT = f"""
cat >/tmp/flood.sh <<'END'
(flood {HITS} -1 >/out/json; echo $? >/out/flood) &
cpu=/sys/devices/system/cpu/cpu1/online
sleep 0.5
for _ in 1 2 3 4; do echo 0 >$cpu; sleep 0.3; echo 1 >$cpu; sleep 0.3; done
wait
sleep 3
for task in /proc/[0-9]*/task/*; do
    if [ "$(cat $task/comm)" = klogger/1 ]; then
        grep Cpus_allowed_list $task/status >/out/allowed
    fi
done
END
klogger record -s scheduler --buffer-size 64K --max-memory 128M -o /out/log.klog -- \\
    sh /tmp/flood.sh 2>/out/err
"""
CASES = {"hotplug": Case(BPF, SCRIPT, seconds=400)}


@pytest.fixture(scope="module")
def recorded(boots):
    return boots.case("hotplug")


def test_the_thread_of_a_cpu_returns_with_it(recorded):
    assert (recorded / "allowed").read_text().split() == ["Cpus_allowed_list:", "1"]


def test_each_hit_is_logged_or_counted(recorded, klogger):
    log, report = (
        Log(klogger, recorded / "log.klog"),
        workload_json((recorded / "json").read_text()),
    )
    assert (recorded / "flood").read_text() == "0\n"
    assert len(report["threads"]) == 2
    assert log.rows("SELECT DISTINCT cpu FROM ledger WHERE key = 'cpu_went'") == [(1,)]
    assert log.one("SELECT count(*) FROM ledger WHERE key = 'ring_grown'") > 0
    tids = ", ".join(str(thread["tid"]) for thread in report["threads"])
    made = sum(thread["count"] for thread in report["threads"])
    logged = log.count("PROCESS_RENAME", f"pid IN ({tids})")
    missed = (
        "SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'probe_missed' AND text LIKE"
        " '%task_rename%'"
    )
    # Kernel threads are made for a CPU that comes, and given their names.
    assert made <= logged + log.lost("PROCESS_RENAME") + log.one(missed) <= made + 200
    check_serials(log)
    check_lost_sums(log)
