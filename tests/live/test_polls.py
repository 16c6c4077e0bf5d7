# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Polled files: equal to what is read beside the recorder."""

from pathlib import Path

import pytest
from conftest import as_nobody
from oracles import Log

POLLS = """schema polls "What the recorder reads of files"
poll VMSTAT from "/proc/vmstat" every 20ms {
    u64 pgfault
    u64 forks from "no_such_key"
}
poll MEMORY from "/proc/meminfo" every 1h { u64 total from "MemTotal" in KiB }
poll DEVICE from "/proc/net/dev" every 1h rows { string[16] name from 1  u64 received from 2 }
poll VERSION from "/proc/sys/kernel/osrelease" every 1h { string text from 1 }
poll TCP from "/proc/net/snmp" every 1h { u64 opened from "Tcp.ActiveOpens" }
"""


def vmstat(key):
    lines = Path("/proc/vmstat").read_text().splitlines()
    return int(dict(line.split() for line in lines)[key])


def meminfo():
    return int(Path("/proc/meminfo").read_text().split()[1])


def schema(recorder, text=POLLS):
    file = recorder.dir / "polls.klogger"
    file.write_text(text)
    return file


def test_equal_to_the_files(recorder):
    before = vmstat("pgfault")
    done, path = recorder.run("-s", schema(recorder), "--", "sleep", "0.5")
    after = vmstat("pgfault")
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    faults = [row[0] for row in log.rows("SELECT pgfault FROM vmstat ORDER BY time")]
    assert [before, *faults, after] == sorted([before, *faults, after])
    # One at the start, one at the end, and what is missing in between is counted.
    missed = log.one("SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'poll_missed'")
    assert len(faults) >= 2 and len(faults) + missed >= 25
    assert log.rows("SELECT DISTINCT total FROM memory") == [(meminfo(),)]
    lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    assert {name for (name,) in log.rows("SELECT name FROM device")} == {
        line.split(":")[0].strip() for line in lines
    }
    release = Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert log.rows("SELECT text FROM version") == [(release,), (release,)]
    assert log.one("SELECT count(*) FROM tcp WHERE opened > 0") == 2
    incomplete = log.rows("SELECT event, text FROM ledger WHERE key = 'poll_incomplete'")
    assert len(incomplete) == 1 and incomplete[0][0] == "VMSTAT"
    assert "/proc/vmstat: forks: a polled file" in incomplete[0][1]


def test_what_show_says(recorder):
    out = recorder.command("show", schema(recorder)).out
    assert "  VMSTAT: /proc/vmstat every 20 ms\n" in out
    assert "  DEVICE: /proc/net/dev every 3600 s, an event for each row\n" in out


def test_a_condition_is_refused(recorder):
    words = ("--where", "VMSTAT: pgfault > 0", "--", "true")
    done, _ = recorder.run("-s", schema(recorder), *words)
    assert done.code == 2 and "VMSTAT is read from a file" in done.err, done.err


@pytest.mark.full("others of this file are in the gate")
def test_an_event_that_is_off_is_not_read(recorder):
    words = ("--disable", "VMSTAT", "--", "sleep", "0.1")
    done, path = recorder.run("-s", schema(recorder), *words)
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.one("SELECT count(*) FROM vmstat") == 0
    assert log.one("SELECT count(*) FROM memory") == 2


@pytest.mark.full("others of this file are in the gate")
def test_with_probes_in_one_schema(recorder, clean_kernel):
    text = POLLS + "event A { }\nprobe tracepoint sched_process_exec() { klogger(A); }\n"
    done, path = recorder.run("-s", schema(recorder, text), "--", "true")
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.one("SELECT count(*) FROM a") == 1 and log.one("SELECT count(*) FROM memory") == 2


@pytest.mark.parametrize("path", ["/proc/no_such_file", "/sys/kernel", "/proc/bus/../x"])
def test_what_cannot_be_read(recorder, path):
    file = schema(recorder, f'schema s\npoll P from "{path}" every 1s {{ u64 x }}\n')
    done, _ = recorder.run("-s", file, "--", "true")
    assert done.code == 2
    assert f"poll P: cannot read '{path}': " in done.err or "cannot be polled" in done.err


@pytest.mark.full("others of this file are in the gate")
def test_without_root(recorder, public_klogger, tmp_path):
    """The recorder reads what its user may."""
    file = public_klogger.parent / "polls.klogger"
    file.write_text(POLLS)
    public_klogger.parent.chmod(0o777)
    log = public_klogger.parent / "polls.klog"
    done = as_nobody(public_klogger, "record", "-s", file, "-o", log, "--", "true")
    assert done.code == 0, done.err
    text = as_nobody(public_klogger, "cat", log, "--format", "json").out
    assert text.count(f'"total":{meminfo()}') + text.count(f'"total": {meminfo()}') == 2
