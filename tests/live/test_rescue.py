# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A recorder that is killed: what its rings hold outlives it, and what was on its way to the file
is counted.
"""

import contextlib
import json
import os
import re
import signal
import time
from pathlib import Path

import oracles
import pytest

SCHEMA = Path(__file__).with_name("numbered.klogger")
ENDLESS = 1_000_000_000


@pytest.fixture
def killed(recorder, workloads):
    """Records hits without end, and kills the recorder (-9) after a while; its process id, and its
    log.
    """

    def kill(*options, cpu=-1, after=1.5):
        log = recorder.path()
        flood = [workloads / "flood", ENDLESS, cpu, 1, "unknown"]
        process = recorder.start("-s", SCHEMA, *options, "--", *flood, out=log)
        deadline = time.monotonic() + 60
        # A flight recorder writes no events before it ends.
        begun = 1 if "--overwrite" in options else 100_000
        while not (log.exists() and log.stat().st_size >= begun):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.01)
        time.sleep(after)
        # The workload is in its group, and would go on for ever.
        process.kill()
        process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        return process.pid, log

    return kill


def rescued(recorder, pid):
    out = recorder.path()
    done = recorder.command("rescue", pid, "-o", out)
    assert done.code == 0, done.err
    return oracles.Log(recorder.klogger, out), done.err


def keys(log):
    return {key for (key,) in log.rows("SELECT DISTINCT key FROM ledger")}


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize(
    "options", [(), ("--buffer-size", "64K"), ("--compress",)], ids=["roomy", "tight", "packed"]
)
def test_every_hit_is_there_or_counted(recorder, killed, clean_kernel, options):
    """Each process numbers its hits: so the greatest number of each says how many there were."""
    pid, _ = killed(*options)
    log, _ = rescued(recorder, pid)
    hits = log.one("SELECT sum(n) FROM (SELECT max(number) + 1 AS n FROM numbered GROUP BY pid)")
    logged = log.count("NUMBERED")
    assert logged == log.one("SELECT count(*) FROM (SELECT DISTINCT pid, number FROM numbered)")
    assert log.one("SELECT count(DISTINCT pid) FROM numbered") == os.cpu_count()
    # Those that were lost behind the last one that was logged, on the same CPU, do not show in its
    # number.
    after = log.one("""SELECT coalesce(sum(count), 0) FROM lost
        WHERE serial > (SELECT max(n.serial) FROM numbered AS n WHERE n.cpu = lost.cpu)""")
    lost = log.one("SELECT coalesce(sum(count), 0) FROM ledger WHERE severity = 'loss'")
    if options == ("--buffer-size", "64K"):
        # What is lost in a full ring may be another event, and of what was lost on its way it is
        # not known which it was.
        ours = log.one("""SELECT coalesce(sum(count), 0) FROM ledger
            WHERE severity = 'loss' AND (event = 'NUMBERED' OR event IS NULL)""")
        assert ours - after <= hits - logged <= ours, (hits, logged, ours, after, lost)
    else:
        assert hits - logged + after == lost, (hits, logged, lost, after)
    oracles.check_serials(log)
    # Analyses see all of it, once.
    said = recorder.command(
        "sql", log.path, "SELECT coalesce(sum(count), 0) AS n FROM gap", "--format", "json"
    )
    assert [row["n"] for row in json.loads(said.out)] == [lost], said
    assert "rescued" in keys(log)
    assert "recorder_killed" not in keys(log)


@pytest.mark.full("takes more than 3 s")
def test_the_rings_hold_what_the_file_does_not(recorder, killed):
    pid, path = killed("--buffer-size", "64M", cpu=0)
    before = oracles.Log(recorder.klogger, path)
    log, said = rescued(recorder, pid)
    ((first, last, count),) = log.rows("SELECT min(number), max(number), count(*) FROM numbered")
    assert (first, count) == (0, last + 1 - log.lost("NUMBERED") - in_flight(log))
    assert log.count("NUMBERED") > before.count("NUMBERED"), said
    assert f"from {path}" in said
    # What stood in the cut log is the same here.
    same = "SELECT count(*), sum(number), max(time) FROM numbered WHERE number <= "
    reached = before.one("SELECT max(number) FROM numbered")
    assert log.rows(same + str(reached)) == before.rows(same + str(reached))


def in_flight(log):
    return log.one("SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'in_flight'")


@pytest.mark.full("takes more than 3 s")
def test_a_flight_recorder_that_crashes(recorder, killed):
    """The newest hits, without a gap, and the number of all that they have overwritten."""
    pid, _ = killed("--overwrite", "--buffer-size", "1M", cpu=0)
    log, _ = rescued(recorder, pid)
    ((first, last, count),) = log.rows("SELECT min(number), max(number), count(*) FROM numbered")
    assert first > 0, "the ring has not been round once"
    assert count == last + 1 - first
    assert (
        log.one("SELECT sum(count) FROM ledger WHERE key = 'overwritten' AND event = 'NUMBERED'")
        == first
    )


def test_without_the_log(recorder, killed):
    pid, path = killed(cpu=0)
    path.unlink()
    log, _ = rescued(recorder, pid)
    ((first, last, count),) = log.rows("SELECT min(number), max(number), count(*) FROM numbered")
    assert count == last + 1 - first
    assert in_flight(log) >= first > 0


def test_who_is_rescued(recorder, killed, workloads, clean_kernel):
    pid, path = killed(cpu=0, after=0)
    listed = recorder.command("rescue").out
    (line,) = [line for line in listed.splitlines() if f"recorder[{pid}]" in line]
    assert "killed" in line and str(path) in line
    refused = recorder.command("rescue", pid, 1)
    assert refused.code == 2
    assert f"klogger rescue {pid}" in refused.err
    said = "recorders? .* killed, and (its|their) rings are still in memory: klogger rescue"
    assert re.search(said, recorder.command("ps").err)
    # Other commands are about something else.
    done, _ = recorder.run("-s", SCHEMA, "--", "true")
    assert done.code == 0 and not re.search(said, done.err)
    rescued(recorder, pid)
    assert f"recorder[{pid}]" not in recorder.command("rescue").out
    again = recorder.command("rescue", pid)
    assert again.code == 2


@pytest.mark.full("takes more than 3 s")
def test_one_that_records_is_left_alone(recorder, workloads):
    out = recorder.path()
    process = recorder.start("-s", SCHEMA, "--", "sleep", 60, out=out)
    deadline = time.monotonic() + 60
    while f"recorder[{process.pid}]" not in recorder.command("rescue").out:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    refused = recorder.command("rescue", process.pid)
    assert refused.code == 2
    assert f"kill -INT {process.pid}" in refused.err
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)
    assert f"recorder[{process.pid}]" not in recorder.command("rescue").out
