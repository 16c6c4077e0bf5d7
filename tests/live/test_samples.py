# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Timers, samples, breakpoints and counters: against time, a program's own clock, getrusage, and
how often a program did something.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from disturbed import disturbed
from oracles import Log

PERIOD_NS = 1_000_000_000 // 999
TICKS = """schema ticks
event TICK scope all { bool user  ulong period in ns }
probe timer 999Hz(bool user, u64 period) { klogger(TICK, user, period); }
"""
PROFILE = """schema profile
event SAMPLED { ulong ip as code  bool user  int tid as thread  ulong took in ns }
probe timer 10kHz(u64 ip, bool user, u64 period) {
    klogger(SAMPLED, ip, user, klogger_current_tid(), period);
}
"""
COUNTED = """schema counted
event MARKED { int option }
event FAULT { ulong address as hex  ulong period  bool user }
event LEFT_CPU { int tid as thread }
probe tracepoint task_prctl_unknown(int option) { klogger(MARKED, option); }
probe sample page-faults every 1(u64 period, u64 address, bool user) {
    klogger(FAULT, address, period, user);
}
probe sample cs every 1() { klogger(LEFT_CPU, klogger_current_tid()); }
"""
COUNTERS = """schema counters
arch software { counter0 page_faults  counter5 context-switches }
event FAULT scope all { ulong faults  ulong same  ulong switches }
probe sample page-faults every 1() {
    klogger(FAULT, klogger_counter(0), klogger_get_page_faults(), klogger_counter(5));
}
"""


def has_cycles():
    """Whether perf can count them here."""
    found = Path("/sys/bus/event_source/devices")
    return any((found / name).exists() for name in ("cpu", "cpu_core", "armv8_pmuv3"))


without_cycles = pytest.mark.skipif(has_cycles(), reason="this machine has hardware counters")


def schema(recorder, text):
    file = recorder.dir / f"{text.split()[1]}.klogger"
    file.write_text(text)
    return file


def recorded(recorder, text, *arguments):
    done, path = recorder.run("-s", schema(recorder, text), *arguments)
    assert done.code == 0, done.err
    return Log(recorder.klogger, path), done.out


def missed(log, place="%"):
    """Samples that the kernel did not take."""
    return log.one(
        "SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'sample_missed' AND text LIKE"
        f" '%hits of {place} (%'"
    )


@pytest.mark.full("depends on how busy the machine is")
def test_a_timer_hits_once_in_a_period(recorder, clean_kernel):
    """Also of CPUs that are idle, and of those that are not. What is missing is in the ledger."""
    busy = "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass"
    log, _ = recorded(recorder, TICKS, "-a", "--", sys.executable, "-c", busy)
    rows = log.rows("SELECT cpu, count(*), min(time), max(time) FROM tick GROUP BY cpu")
    assert {cpu for cpu, *_ in rows} == set(range(os.cpu_count()))
    # A hypervisor may keep a CPU from nearly all of them: its last one does not tell the end then.
    few = {c: n for c, n, first, last in rows if n < (last - first) / PERIOD_NS / 2}
    if few:
        disturbed(f"CPUs had less than half of their timer interrupts: {few}")
    due = sum(round((last - first) / PERIOD_NS) + 1 for _, _, first, last in rows)
    assert due > 2900 * len(rows)
    logged = sum(count for _, count, *_ in rows)
    # Within 0.1 %: each CPU may have missed its last hit, and the recorder counts half a period
    # less than it waits.
    assert abs(logged + missed(log, "timer 999Hz") - due) <= max(2 * len(rows), due / 1000)
    # The hit after missed ones stands for them too, so that no time is missing. The first and the
    # last hit of a CPU may be late.
    for cpu, _, first, last in rows:
        took = log.one(f"SELECT sum(period) FROM tick WHERE cpu = {cpu} AND time > {first}")
        assert abs(took - (last - first)) <= 2 * PERIOD_NS, cpu
    assert log.count("TICK", f"period % {PERIOD_NS} <> 0 OR period = 0") == 0
    # Between hits is a whole number of periods: there is no drift, and no hit too many.
    off = log.one(
        "SELECT median(abs(t / p - round(t / p))) FROM (SELECT (time - first_value(time)"
        f" OVER (PARTITION BY cpu ORDER BY time)) AS t, {PERIOD_NS}::DOUBLE AS p FROM tick)"
    )
    assert off < 0.1


@pytest.mark.full("depends on how busy the machine is")
def test_shares_of_time(recorder, workloads, clean_kernel):
    """Of two functions of a program, against its own clock: within 1 %."""
    log, out = recorded(recorder, PROFILE, "--", workloads / "shares", 3)
    truth = json.loads(out)
    (heavy, light, samples) = log.rows(
        f"SELECT sum(took) FILTER (ip >= {truth['heavy']} AND ip < {truth['light']}), sum(took)"
        f" FILTER (ip >= {truth['light']} AND ip < {truth['after']}), count(*) FROM sampled"
        " WHERE user"
    )[0]
    assert samples > 10_000
    share = truth["heavy_ns"] / (truth["heavy_ns"] + truth["light_ns"])
    assert abs(heavy / (heavy + light) - share) < 0.01
    # All of it is of the command.
    assert log.one("SELECT count(DISTINCT tid) FROM sampled") == 1


@pytest.mark.full("depends on how busy the machine is")
def test_counts_are_those_of_getrusage(recorder, workloads, clean_kernel):
    for _ in range(3):
        log, out = recorded(recorder, COUNTED, "--", workloads / "counted", 1234, 77, 0)
        truth = json.loads(out)
        ((begin, end),) = log.rows(
            "SELECT min(time) FILTER (option = 1000), min(time) FILTER (option = 1001) FROM marked"
        )
        between = f"time BETWEEN {begin} AND {end}"
        found = (log.count("FAULT", between), log.count("LEFT_CPU", between))
        assert truth["faults"] >= 1234
        assert truth["switches"] >= 77
        assert log.count("FAULT", "period <> 1") == 0
        lost = missed(log, "sample page-faults every 1"), missed(log, "sample cs every 1")
        # What the kernel skipped may have been of this program, or of any other.
        assert found[0] <= truth["faults"] <= found[0] + lost[0]
        assert found[1] <= truth["switches"] <= found[1] + lost[1]
        if lost == (0, 0):
            return
    disturbed(f"other programs were in the way of samples: {lost}")


def address_of(program, symbol):
    text = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    return next(int(line.split()[0], 16) for line in text.splitlines() if line.endswith(symbol))


@pytest.mark.full("others of this file are in the gate")
def test_writes_to_a_variable_of_a_program(recorder, workloads, clean_kernel):
    program = workloads / "counted"
    text = f"""schema watch
event WRITTEN {{ ulong ip  ulong address  bool user  int tid as thread }}
probe breakpoint {address_of(program, " watched"):#x}:8 w(u64 ip, u64 address, bool user) {{
    klogger(WRITTEN, ip, address, user, klogger_current_tid());
}}
"""
    log, _ = recorded(recorder, text, "--", program, 1, 1, 4321)
    # The kernel has cleared the variable before the program began.
    assert log.count("WRITTEN", "user") == 4321
    assert log.one("SELECT count(DISTINCT ip) FROM written WHERE user") == 1
    where = log.one("SELECT min(ip) FROM written WHERE user")
    assert address_of(program, " main") < where


def test_calls_of_a_function(recorder, workloads, clean_kernel):
    program = workloads / "counted"
    address = address_of(program, " step")
    text = f"""schema called
event CALLED {{ ulong ip  bool user }}
probe breakpoint {address:#x} x(u64 ip, bool user) {{ klogger(CALLED, ip, user); }}
"""
    log, _ = recorded(recorder, text, "--", program, 1, 1, 1000)
    assert log.rows("SELECT ip, user, count(*) FROM called GROUP BY ALL") == [(address, True, 1000)]


@pytest.mark.full("others of this file are in the gate")
def test_skipped_samples_are_counted(recorder, workloads, clean_kernel):
    """The kernel skips a breakpoint in the program of a trace event."""
    program = workloads / "counted"
    address = address_of(program, " watched")
    text = f"""schema skipped
event CALLED {{ ulong value }}
event WRITTEN {{ }}
probe trace_event syscalls:sys_enter_getppid() {{
    u64 value;
    klogger_read(&value, (const void *){address:#x}, sizeof(value));
    klogger(CALLED, value);
}}
probe breakpoint {address:#x}:8 rw(bool user) {{
    if (user)
        klogger(WRITTEN);
}}
"""
    log, _ = recorded(recorder, text, "--", program, 1, 1, 777)
    assert log.count("CALLED", "value < 777") == log.count("CALLED") == 777
    assert log.count("WRITTEN") == 777
    # One for each load of the kernel's copying function: of 8 bytes, or of each byte.
    skipped = missed(log, f"breakpoint {address:#x}:8 rw")
    assert skipped in (777, 8 * 777)


@pytest.mark.full("depends on how busy the machine is")
def test_counters_count_what_samples_do(recorder, workloads, clean_kernel):
    """The counter of a CPU is one more at each page fault there, and begins with the recording."""
    log, _ = recorded(recorder, COUNTERS, "-a", "--", workloads / "counted", 2000, 50, 0)
    if missed(log):
        disturbed("the kernel skipped samples of other programs")
    steps = log.rows(
        "SELECT step, count(*) FROM (SELECT faults - lag(faults) OVER (PARTITION BY cpu ORDER BY"
        " time, serial) AS step FROM fault) WHERE step IS NOT NULL GROUP BY step"
    )
    assert [step for step, _ in steps] == [1], steps
    assert log.one("SELECT bool_and(faults = same) FROM fault")
    first = log.one("SELECT max(n) FROM (SELECT min(faults) AS n FROM fault GROUP BY cpu)")
    assert first < 2000
    falls = log.one(
        "SELECT count(*) FROM (SELECT switches < lag(switches) OVER (PARTITION BY cpu ORDER BY"
        " time, serial) AS falls FROM fault) WHERE falls"
    )
    assert falls == 0
    assert log.one("SELECT max(switches) FROM fault") >= 50 // os.cpu_count()


def refused(recorder, text, prefix=()):
    """The message, without the file's name."""
    file = schema(recorder, text)
    out = recorder.path()
    process = recorder.start("-s", file, "--", "true", out=out, prefix=prefix)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert not out.exists()
    return " ".join(err.replace(str(file), "FILE").split())


@without_cycles
def test_a_machine_without_the_event(recorder, clean_kernel):
    cycles = "schema c event A { } probe sample cycles every 1M() { klogger(A); }"
    message = refused(recorder, cycles)
    assert "this machine does not count 'cycles' ╭─[FILE:1:35]" in message
    assert "name an alternative with 'or', for example 'timer 99Hz()'" in message
    other = cycles.replace("{ klogger", "or timer 99Hz() { klogger")
    log, _ = recorded(recorder, other, "-a", "--", "sleep", "0.2")
    assert log.count("A") > 0


@without_cycles
def test_a_machine_without_the_counter(recorder, workloads, clean_kernel):
    text = """schema paper
arch PentiumIV {
    counter0 l2_cache_misses
}
event SCHEDIN { int pid  ulonglong L2_cache_misses }
probe tracepoint sched_switch(bool preempt, struct task_struct *prev, struct task_struct *next) {
    klogger(SCHEDIN, next->pid, klogger_get_l2_cache_misses());
}
"""
    message = refused(recorder, text)
    assert "FILE:3: this machine does not count 'l2_cache_misses' (counter0)" in message
    assert "write 'counter0 l2_cache_misses optional' to record without it" in message
    optional = text.replace("misses\n}", "misses optional\n}")
    log, _ = recorded(recorder, optional, "-a", "--", workloads / "counted", 1, 20, 1)
    assert log.count("SCHEDIN") > 0
    assert log.count("SCHEDIN", "L2_cache_misses <> 0") == 0
    (text,) = log.rows("SELECT text FROM ledger WHERE key = 'counter_missing'")
    assert text[0].startswith("counter0 l2_cache_misses (schema paper): the machine does not have")


def test_what_cannot_be_attached(recorder, clean_kernel):
    def probe(target):
        return refused(recorder, f"schema s event A {{ }} probe {target} {{ klogger(A); }}")

    missing = "breakpoint no_such_variable:8 w"
    message = probe(f"{missing}()")
    assert f"cannot attach to {missing}: this kernel has no symbol 'no_such_variable'" in message
    message = probe("breakpoint jiffies:8 w(u64 period)")
    assert "a breakpoint has no parameter 'period' ╭─[FILE:1:39]" in message
    assert "it has u64 ip, bool user, u64 address, in any order" in message
    message = probe("timer 99Hz(u64 ipp)")
    assert "a timer has no parameter 'ipp' ╭─[FILE:1:34]" in message
    assert "did you mean ip?" in message


def test_too_many_breakpoints(recorder, clean_kernel):
    """x86 has four debug registers; other CPUs have more."""
    if os.uname().machine != "x86_64":
        pytest.skip("the CPU may have more debug registers")
    probes = "".join(
        f"probe breakpoint {0x10000 + 8 * n:#x}:8 w() {{ klogger(A); }}\n" for n in range(5)
    )
    message = refused(recorder, f"schema s\nevent A {{ }}\n{probes}")
    assert "cannot attach to breakpoint 0x10020:8 w: all debug registers of a CPU" in message
    assert "x86 has four, for all tools together" in message
    assert os.strerror(errno.ENOSPC) not in message


@pytest.mark.full("others of this file are in the gate")
def test_a_rate_that_the_kernel_does_not_allow(recorder, clean_kernel):
    file = recorder.dir / "rate"
    file.write_text("500\n")
    sysctl = "/proc/sys/kernel/perf_event_max_sample_rate"
    # Only this recorder sees another value.
    prefix = ("unshare", "-m", "sh", "-c", f'mount --bind {file} {sysctl} && exec "$@"', "sh")
    message = refused(recorder, TICKS, prefix)
    what = "cannot attach to timer 999Hz: the kernel allows 500 samples a second, and this needs"
    assert what in message
    assert "sysctl kernel.perf_event_max_sample_rate=1998" in message
