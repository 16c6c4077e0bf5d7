# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What would hurt the machine that runs the tests: the wall clock is set, and CPUs go and come,
while a guest records.

The same boot shows that rings grow and that rates are limited on the guest's old kernel.
"""

import oracles
import pytest
from boots import BPF, Case
from oracles import Log, workload_json

pytestmark = pytest.mark.full("boots guests of its own")

HITS = 10007
SCRIPT = f"""
cpu1=/sys/devices/system/cpu/cpu1/online
klogger record -s scheduler -a --for 12s -o /out/moved.klog >/out/moved.out 2>&1 &
recorder=$!
until grep -q . /out/moved.klog 2>/dev/null; do sleep 1; done
sleep 2
date -s @2000000000 >/out/date
sleep 2
echo 0 >$cpu1
sleep 2
echo 1 >$cpu1
wait $recorder
echo 0 >$cpu1
klogger record -s scheduler -o /out/late.klog -- \\
    sh -c "sleep 1; echo 1 >$cpu1; sleep 1; flood {HITS} 1" >/out/late.json 2>/out/late.err
klogger record -s scheduler --buffer-size 64K --max-memory 64M -o /out/grown.klog \\
    -- flood 100003 -1 \\
    >/out/grown.json 2>/out/grown.err
klogger record -s scheduler --rate-limit 'SCHED*=50/s' -o /out/limited.klog \\
    -- pingpong 997 processes 0 \\
    >/out/limited.json 2>/out/limited.err
"""


CASES = {"clock": Case(BPF, SCRIPT, seconds=400, last=True)}


@pytest.fixture(scope="module")
def recorded(boots):
    return boots.case("clock")


@pytest.fixture
def log(recorded, klogger):
    def read(name):
        said = [
            path.read_text()
            for path in recorded.glob(f"{name}.*")
            if path.suffix in (".err", ".out")
        ]
        assert (recorded / f"{name}.klog").exists(), said
        return Log(klogger, recorded / f"{name}.klog")

    return read


def test_the_wall_clock_is_set(log):
    moved = log("moved")
    ((text, severity, first, last),) = moved.rows(
        "SELECT text, severity, from_ns, to_ns FROM ledger WHERE key = 'clock_step'"
    )
    assert "the wall clock was set" in text
    assert severity == "notice"
    begin = moved.meta["preamble"]["clock"]["start_realtime_ns"]
    said = float(text.split(" by ")[1].split(" s")[0]) * (1 if "forward" in text else -1)
    # `date -s` sets it to a second; the log knows when it did so, within two looks.
    assert begin / 1e9 + first / 1e9 + said <= 2_000_000_000 + 1
    assert begin / 1e9 + last / 1e9 + said >= 2_000_000_000 - 1
    # Times of events do not care.
    assert 11e9 < moved.one("SELECT max(time) FROM klogger_finish") < 60e9


def test_a_cpu_goes_and_comes_back(log):
    moved = log("moved")
    ((cpu, count, first, last),) = moved.rows(
        "SELECT cpu, count, from_ns, to_ns FROM ledger WHERE key = 'cpu_went'"
    )
    assert (cpu, count) == (1, 0)
    assert 1e9 < last - first < 30e9
    # The ring that it had before takes its events again.
    assert moved.count("SCHEDIN", f"cpu = 1 AND time < {first}") > 0
    assert moved.count("SCHEDIN", f"cpu = 1 AND time > {last}") > 0
    assert moved.rows("SELECT 1 FROM ledger WHERE key = 'cpu_offline'") == []
    oracles.check_serials(moved)


def test_events_of_a_cpu_that_came_are_counted(recorded, log):
    late = log("late")
    ((cpu, count, first, last, severity),) = late.rows(
        "SELECT cpu, count, from_ns, to_ns, severity FROM ledger WHERE key = 'cpu_offline' AND"
        " event = 'PROCESS_RENAME'"
    )
    (thread,) = workload_json((recorded / "late.json").read_text())["threads"]
    logged = late.count("PROCESS_RENAME", f"pid = {thread['tid']}")
    # The shell may have been there as well when it became the workload.
    assert HITS <= count + logged <= HITS + 2
    assert (cpu, severity, logged) == (1, "loss", 0)
    # It was not there in the first second.
    assert 0.5e9 < first < last
    assert late.lost("PROCESS_RENAME") == count


def test_rings_grow_on_an_old_kernel(recorded, log):
    grown = log("grown")
    rows = grown.rows("SELECT cpu FROM ledger WHERE key = 'ring_grown' ORDER BY cpu")
    assert rows, (recorded / "grown.err").read_text()
    for thread in workload_json((recorded / "grown.json").read_text())["threads"]:
        logged = grown.count("PROCESS_RENAME", f"pid = {thread['tid']}")
        assert logged + grown.lost("PROCESS_RENAME") >= thread["count"]
    oracles.check_lost_sums(grown)
    oracles.check_serials(grown)


def test_rates_are_limited_on_an_old_kernel(recorded, log):
    limited = log("limited")
    said = workload_json((recorded / "limited.json").read_text())
    seconds = limited.one("SELECT max(time) / 1e9 FROM klogger_finish")
    for event in ("SCHEDOUT", "SCHEDIN"):
        left = limited.one(
            f"SELECT sum(count) FROM ledger WHERE key = 'rate_limited' AND event = '{event}'"
        )
        logged = limited.count(event)
        assert 0 < logged <= 50 * seconds + 6
        assert logged + left >= sum(thread["nvcsw"] for thread in said["threads"])
