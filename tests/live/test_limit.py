# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""--rate-limit: what comes too often is counted instead of logged, and nothing is neither."""

import json
import os
from pathlib import Path

import oracles
import pytest

HERE = Path(__file__).parent
FLOOD = HERE / "flood.klogger"
PRIME = 1_000_003
EVENTS = ("FLOOD", "FLOOD_WIDE")


def left_out(log, event):
    return log.one(
        "SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'rate_limited' AND event ="
        f" '{event}'"
    )


def recorded(recorder, workloads, *options, n=PRIME, cpu=-1):
    log, report = recorder.log("-s", FLOOD, *options, "--", workloads / "flood", n, cpu)
    return log, len(report["threads"]) * n


def renames(log):
    """All changes of name in scope: the workload's own, and that of each exec."""
    return log.count("PROCESS_RENAME") + log.lost("PROCESS_RENAME")


@pytest.mark.full("depends on how busy the machine is")
@pytest.mark.parametrize("buffer", ["64K", "16M"])
def test_logged_and_left_out_are_all(recorder, workloads, clean_kernel, buffer):
    limits = ("--rate-limit", "FLOOD=1000/s", "--rate-limit", "FLOOD_WIDE=50K/s")
    log, hits = recorded(recorder, workloads, *limits, "--buffer-size", buffer)
    for event in EVENTS:
        logged, left = log.count(event), left_out(log, event)
        assert logged > 0, event
        assert left > hits // 2, event
        assert logged + left + log.lost(event) == renames(log) >= hits, event
    oracles.check_serials(log)
    oracles.check_lost_sums(log)


@pytest.mark.full("depends on how busy the machine is")
def test_it_is_the_rate_of_all_cpus_together(recorder, workloads):
    log, _ = recorded(recorder, workloads, "--rate-limit", "FLOOD=1000/s", "--buffer-size", "16M")
    seconds = log.one("SELECT (max(time) - min(time)) / 1e9 FROM flood")
    # A tenth of a second's worth may come at once.
    assert log.count("FLOOD") <= 1000 * seconds + 100 + 1
    # And a flood leaves nothing of it unused, unless it has no CPU for longer than that: each hit
    # logs the other event too, which has no limit.
    unused = log.one(
        "SELECT coalesce(sum(gap - 100000000), 0)::BIGINT FROM (SELECT time - lag(time) OVER"
        " (ORDER BY time) AS gap FROM flood_wide) WHERE gap > 100000000"
    )
    assert log.count("FLOOD") >= 1000 * (seconds - unused / 1e9) - 1
    worst = log.one(
        "SELECT max(n) FROM (SELECT count(*) OVER "
        "(ORDER BY time RANGE BETWEEN 1000000000 PRECEDING AND CURRENT ROW) AS n FROM flood)"
    )
    assert worst <= 1100 + 1
    # The other event of the same hit is whole.
    assert log.count("FLOOD_WIDE") + log.lost("FLOOD_WIDE") == renames(log)
    assert left_out(log, "FLOOD_WIDE") == 0


@pytest.mark.full("depends on how busy the machine is")
def test_by_cpu_and_when(recorder, workloads):
    log, _ = recorded(
        recorder, workloads, "--rate-limit", "FLOOD=1/s", "--buffer-size", "16M", n=50_021
    )
    rows = log.rows(
        "SELECT cpu, count, from_ns, to_ns, severity FROM ledger WHERE key = 'rate_limited' ORDER"
        " BY cpu"
    )
    assert [row[0] for row in rows] == list(range(os.cpu_count()))
    for cpu, count, first, last, severity in rows:
        # FLOOD_WIDE of the same hit is logged, so that each CPU's hits are known.
        seen, begin, end = log.rows(
            f"SELECT count(*), min(time), max(time) FROM flood_wide WHERE cpu = {cpu}"
        )[0]
        assert count + log.count("FLOOD", f"cpu = {cpu}") == seen
        # The limit reads the clock a moment before the event does.
        assert begin - 1_000_000 <= first <= last <= end
        assert severity == "info"


@pytest.mark.full("others of this file are in the gate")
def test_a_limit_that_is_not_reached_leaves_all(recorder, workloads):
    log, hits = recorded(
        recorder, workloads, "--rate-limit", "*=100M/s", "--buffer-size", "16M", n=10_007
    )
    for event in EVENTS:
        assert log.count(event) == renames(log) >= hits
    assert log.rows("SELECT 1 FROM ledger WHERE key = 'rate_limited'") == []
    assert {(e["event"], e["per_second"]) for e in log.meta["preamble"]["recorder"]["limits"]} == {
        (event, 100_000_000) for event in EVENTS
    }


def test_one_that_is_off_is_not_counted(recorder, workloads):
    log, _ = recorded(
        recorder, workloads, "--rate-limit", "FLOOD=1/s", "--disable", "FLOOD", n=10_007
    )
    assert log.count("FLOOD") == left_out(log, "FLOOD") == 0


@pytest.mark.full("others of this file are in the gate")
def test_the_newest_are_kept_of_those_that_are_logged(recorder, workloads):
    """Overwrite mode: limits come first."""
    limit = ("--rate-limit", "FLOOD=100K/s")
    log, _ = recorded(
        recorder, workloads, *limit, "--overwrite", "--buffer-size", "64K", n=200_003, cpu=0
    )
    given_up = log.one(
        "SELECT sum(count) FROM ledger WHERE key = 'overwritten' AND event = 'FLOOD_WIDE'"
    )
    hits = log.count("FLOOD_WIDE") + given_up + log.lost("FLOOD_WIDE")
    gone = log.one(
        "SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'overwritten' AND event = 'FLOOD'"
    )
    assert log.count("FLOOD") + gone + log.lost("FLOOD") + left_out(log, "FLOOD") == hits >= 200_003


@pytest.mark.full("others of this file are in the gate")
def test_who_reads_the_log_is_told(recorder, workloads):
    log, _ = recorded(recorder, workloads, "--rate-limit", "FLOOD=1000/s", n=100_003, cpu=0)
    info = recorder.command("info", log.path)
    assert "FLOOD 1,000/s" in info.out
    assert "rate_limited" in info.out
    report = recorder.command("report", log.path)
    assert "sampled" in report.out, report
    sql = recorder.command(
        "sql",
        log.path,
        "SELECT sum(count)::BIGINT AS n FROM ledger WHERE key = 'rate_limited'",
        "--format",
        "json",
    )
    assert json.loads(sql.out) == [{"n": left_out(log, "FLOOD")}]


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("FLOOT=1/s", "did you mean `FLOOD`"),
        ("NOTHING_LIKE_IT=1/s", "klogger show"),
        ("MARK=1/s", "klogger's own events"),
        ("X_*=1/s", "no schema of this recording has an event 'X_*'"),
    ],
)
def test_events_that_cannot_be_limited(recorder, limit, said):
    done, path = recorder.run("-s", FLOOD, "--rate-limit", limit, "--", "true")
    assert done.code == 2
    assert said in done.err
    assert not path.exists()


@pytest.mark.parametrize(
    "limit", ["FLOOD", "FLOOD=", "FLOOD=1", "FLOOD=0/s", "=1/s", "FLOOD=1e3/s", "FLOOD=-1/s"]
)
def test_rates_that_are_none(recorder, limit):
    done, _ = recorder.run("-s", FLOOD, "--rate-limit", limit, "--", "true")
    assert done.code == 2
    assert "EVENT=N/s" in done.err
