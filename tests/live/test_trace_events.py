# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`-e NAME`: trace events without a schema. What is logged is what the workload did, and what other
probes see.
"""

import json
import os
import subprocess
import sys

import oracles
import pytest
from conftest import as_nobody
from oracles import Log

FORKS = 101
OPENS = 103
# Opens files that do not exist, and one that does.
OPENER = """
import os, sys
for n in range(int(sys.argv[1])):
    try:
        os.open(f"/nowhere/part {n}", os.O_RDONLY)
    except FileNotFoundError:
        pass
os.close(os.open("/dev/null", os.O_WRONLY))
"""


def own_events(log: Log) -> list[dict]:
    """The events that are not klogger's own, as the log describes them."""
    events = [e for e in log.meta["preamble"]["events"] if e["schema"] != "klogger"]
    return [{key: value for key, value in e.items() if key != "id"} for e in events]


def test_forks_and_execs_are_those_of_the_workload(recorder, workloads, clean_kernel):
    names = "sched:sched_process_fork,sched_process_ex*"
    log, report = recorder.log("-e", names, "--", workloads / "forks", FORKS)
    children = log.rows(
        f"SELECT child_pid, child_comm, tid FROM sched_process_fork"
        f" WHERE parent_pid = {report['pid']} ORDER BY time"
    )
    assert children == [(pid, "forks", report["pid"]) for pid in report["children"]]
    execs = log.rows("SELECT pid, filename, tid FROM sched_process_exec ORDER BY time")
    leaves = [(pid, "/proc/self/exe", pid) for pid in report["children"]]
    assert execs == [(report["pid"], str(workloads / "forks"), report["pid"]), *leaves]
    assert log.count("sched_process_exit") == FORKS + 1
    assert sum(log.lost(name) for name in log.events()) == 0
    oracles.check_serials(log)


@pytest.mark.full("others of this file are in the gate")
def test_switches_are_those_of_the_scheduler_schema(recorder, workloads, clean_kernel):
    """A probe at the tracepoint, which gets the kernel's structures, sees the same."""
    log, report = recorder.log(
        *("-s", "scheduler", "-e", "sched_switch", "--", workloads / "forks", FORKS)
    )
    ours = [report["pid"], *report["children"]]
    theirs = (
        f"SELECT pid, next, state & 255, count(*) FROM schedout WHERE pid IN {tuple(ours)}"
        " GROUP BY ALL ORDER BY ALL"
    )
    own = (
        "SELECT prev_pid, next_pid, CASE WHEN prev_state = 256 THEN 0 ELSE prev_state & 255 END,"
        f" count(*) FROM sched_switch WHERE prev_pid IN {tuple(ours)} GROUP BY ALL ORDER BY ALL"
    )
    missing = log.count("schedout", f"pid IN {tuple(ours)}") - log.count(
        "sched_switch", f"prev_pid IN {tuple(ours)}"
    )
    ledger = log.rows("SELECT key FROM ledger")
    if missing:
        # The kernel may skip a hit, which the ledger then has.
        assert 0 < missing < 5 and ledger, ledger
        return
    states = [(a, b, n) for a, b, _, n in log.rows(theirs)]
    assert [(a, b, n) for a, b, _, n in log.rows(own)] == states
    # A thread that ends is dead for the one, and a zombie for the other.
    ended = {0x10, 0x20, 0x80, 0x90}
    assert [r for r in log.rows(own) if r[2] not in ended] == [
        r for r in log.rows(theirs) if r[2] not in ended
    ]
    # Switches to the workload's threads are logged too.
    assert log.count("sched_switch", f"next_pid IN {tuple(ours)}") > FORKS


def test_system_calls_with_their_texts_and_results(recorder, clean_kernel):
    done, path = recorder.run(
        *("-e", "sys_enter_openat", "-e", "syscalls:sys_exit_openat"),
        *("--where", "syscalls:sys_exit_openat: ret == 'ENOENT'"),
        *("--", sys.executable, "-c", OPENER, OPENS),
    )
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    asked = log.rows(
        "SELECT filename, dfd, flags & 3 FROM sys_enter_openat"
        " WHERE filename LIKE '/nowhere/%' ORDER BY time"
    )
    assert asked == [(f"/nowhere/part {n}", -100, os.O_RDONLY) for n in range(OPENS)]
    assert log.count("sys_enter_openat", f"filename = '/dev/null' AND flags & 3 = {os.O_WRONLY}")
    assert {ret for (ret,) in log.rows("SELECT DISTINCT ret FROM sys_exit_openat")} == {-2}
    assert log.count("sys_exit_openat") >= OPENS
    text = recorder.command("cat", path, "--event", "sys_exit_openat").out
    assert " ret=-ENOENT\n" in text


@pytest.mark.full("others of this file are in the gate")
def test_the_text_that_show_prints_records_the_same(recorder, workloads, clean_kernel):
    names = ["-e", "sched:sched_switch,sched_process_*", "-e", "softirq_entry"]
    shown = recorder.command("show", *names)
    assert shown.code == 0, shown.err
    mine = recorder.dir / "my.klogger"
    mine.write_text(shown.out)
    checked = recorder.command("check", mine)
    assert (checked.code, checked.err) == (0, "")
    command = ["--", workloads / "forks", 3]
    done, path = recorder.run(*names, *command)
    assert done.code == 0, done.err
    again, other = recorder.run("-s", mine, *command)
    assert again.code == 0, again.err
    first, second = Log(recorder.klogger, path), Log(recorder.klogger, other)
    assert own_events(first) == own_events(second)
    assert {e["schema"] for e in own_events(first)} == {"events"}
    for event in ("sched_process_fork", "sched_process_exec", "sched_process_exit"):
        assert first.count(event) == second.count(event) > 0
    text = recorder.command("cat", path, "--event", "softirq_entry").out
    assert all(line.split(" vec=")[1].isupper() for line in text.splitlines())
    assert any(
        " prev_state=" in line and not line.split("prev_state=")[1][0].isdigit()
        for line in recorder.command("cat", path, "--event", "sched_switch").out.splitlines()
    )
    report = recorder.command("report", path)
    assert report.code == 0 and "schemata bring none" in report.out


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("group", ["block", "kmem", "napi", "sock", "timer", "workqueue"])
def test_whole_groups_compile(recorder, group):
    """With arrays, several texts, and fields whose names the language reserves."""
    shown = recorder.command("show", "-e", f"{group}:*")
    if shown.code == 2 and "no trace event matches" in shown.err:
        pytest.skip(f"this kernel has no group {group}")
    assert shown.code == 0, shown.err
    file = recorder.dir / f"{group}.klogger"
    file.write_text(shown.out)
    checked = recorder.command("check", file)
    assert (checked.code, checked.err) == (0, ""), checked.err
    assert checked.out.startswith(f"{file}: ok, ")
    assert max(len(line) for line in shown.out.splitlines()) <= 100


BAD = {
    "unknown": (
        ["record", "-e", "sched_swich", "--", "true"],
        "klogger: this kernel has no trace event 'sched_swich'\n"
        "  help: did you mean `sched_switch`?\n",
    ),
    "nothing": (
        ["record", "-e", "sched:x*", "--", "true"],
        "klogger: no trace event matches 'sched:x*'\n  help: 'klogger tracepoints' lists them\n",
    ),
    "engine": (
        ["record", "--engine", "user", "-e", "sched_switch", "--", "true"],
        "klogger: -e needs the bpf engine, which --engine user excludes\n  help: remove --engine\n",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_recorded_is_said(recorder, case):
    words, message = BAD[case]
    done = recorder.command(*words)
    assert (done.code, done.out, done.err) == (2, "", message)


def test_too_many(recorder):
    done = recorder.command("record", "-e", "*", "--", "true")
    count = done.err.split("names ")[1].split()[0]
    assert done.code == 2 and int(count) > 1000
    assert done.err == (
        f"klogger: -e names {count} trace events, and a recording has at most 128\n"
        "  help: name fewer: 'klogger tracepoints WORD' lists those with a word\n"
    )


def test_parameters_that_are_no_fields(recorder):
    for parameters, message, remedy in [
        (
            "pid_t prev_pidd",
            "trace event 'sched:sched_switch' has no field 'prev_pidd'",
            "did you mean prev_pid?",
        ),
        (
            "char prev_pid",
            "the type of 'prev_pid' is not that of the field of trace event 'sched:sched_switch'",
            "schema: char prev_pid\nkernel: pid_t prev_pid",
        ),
    ]:
        file = recorder.dir / "bad.klogger"
        file.write_text(
            f"event A {{ }}\nprobe trace_event sched:sched_switch({parameters}) {{ klogger(A); }}\n"
        )
        done = recorder.command("check", file, "--format", "json")
        (found,) = json.loads(done.out)[0]["diagnostics"]
        assert (done.code, found["message"], found["help"]) == (2, message, remedy)


@pytest.mark.full("others of this file are in the gate")
def test_only_root_reads_about_trace_events(public_klogger):
    done = as_nobody(public_klogger, "show", "-e", "sched_switch")
    assert (done.code, done.out, done.err) == (
        2,
        "",
        "klogger: only root, or CAP_DAC_READ_SEARCH where tracefs is mounted, can read the "
        "kernel's descriptions of trace events (tracefs)\n"
        "  help: run klogger as root, on a kernel that has CONFIG_EVENT_TRACING\n",
    )


MADE = """
mount -t tracefs none /sys/kernel/tracing || exit 77
cd /sys/kernel/tracing
echo "p:klogger_test/entry $1" >>uprobe_events || exit 77
cd "$2"; shift 2
"$@"; code=$?
echo "-:klogger_test/entry" >>/sys/kernel/tracing/uprobe_events
exit $code
"""


@pytest.mark.parametrize("name", ["klogger_test:entry", "klogger_test:*"])
def test_what_perf_probe_has_made_is_refused_with_the_cause(recorder, name):
    words = [recorder.klogger, "record", "-e", name, "-a", "--for", "1s", "-o", "x.klog"]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", MADE, "sh", "/bin/sh:0x1000", recorder.dir, *words],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip(f"this kernel makes no uprobes through tracefs: {done.stderr}")
    assert done.returncode == 2, done.stderr
    assert "'klogger_test:entry' is a probe that was made through tracefs" in done.stderr
    assert "probe user PROGRAM:FUNCTION" in done.stderr
