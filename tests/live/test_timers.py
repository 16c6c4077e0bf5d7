# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Timers in a log against what the program that armed them knows of them, and /proc/timer_list.

Where a thread is woken before its time (to do work for the kernel, say), it takes its timer back
and sleeps again for the rest: a sleep is one timer that fires, or more that do not and perhaps one
that does. And a kernel that is not a stock one may hide some of its threads from BPF programs: the
end of a timer that interrupts those is not seen, which is logged when its thread sleeps again. So
nothing of a sleep is in the log only if it was the thread's last one.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from oracles import Log

SCHEMATA = Path(__file__).resolve().parents[2] / "schemata"
TIMERS = SCHEMATA / "timers" / "timers.klogger"
# Primes, so that nothing else comes to the same number by chance.
TIMES, FEW = 53, 13
MONOTONIC, REALTIME = 1, 0
SYS_RESTART = 219
SPACE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
LOST = "SELECT key, text FROM ledger WHERE severity IN ('loss', 'error')"
RUNS = {
    "periodic": (TIMES, 2000), "realtime": (FEW, 2000), "sleep": (TIMES, 1000), "epoll": (TIMES,),
    "cancel": (TIMES,), "interval": (FEW, 1000), "timerfd": (FEW, 1000), "listed": (TIMES,),
    "outlives": (TIMES,),
    "socket": (FEW,), "answered": (FEW,),
}  # fmt: skip


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    out = tmp_path_factory.mktemp("timers") / "armsthem"
    source = SCHEMATA / "timers" / "workload.c"
    subprocess.run(["cc", "-O1", "-pthread", source, "-o", out], check=True)
    return out


def recorded(recorder, *words):
    """The log, and each line that the program has printed."""
    done, path = recorder.run("--no-calibrate", "-s", TIMERS, *words)
    assert done.code == 0, done.err
    return Log(recorder.klogger, path), [json.loads(line) for line in done.out.splitlines()]


@pytest.fixture(scope="module")
def kept(klogger, program, tmp_path_factory):
    """One recording that most tests ask: the log, and what each run of the program says."""
    from conftest import Recorder

    recorder = Recorder(klogger, tmp_path_factory.mktemp("armed"))
    runs = " && ".join(
        " ".join([f'"{program}"', kind, *map(str, more)]) for kind, more in RUNS.items()
    )
    log, lines = recorded(recorder, "--", "sh", "-c", runs)
    assert log.rows(LOST) == []
    yield log, dict(zip(RUNS, lines, strict=True))
    recorder.end()
    shutil.rmtree(recorder.dir, ignore_errors=True)


def of(said, function, call=None):
    """The rows of a thread's timers with this function, as SQL."""
    where = f"pid = {said['pid']} AND fn_symbol LIKE '{function}%'"
    return where if call is None else f"{where} AND {call}"


def ends(log, said, function, sort="hrtimer"):
    """How many of them fired, and how many did not."""
    where = of(said, function)
    return log.count(f"{sort}_fired", where), log.count(f"{sort}_vain", where)


def wanted(log, table, where):
    """The times that timers were armed for, and how late those were that fired."""
    late = "late" if table == "hrtimer_fired" else "-early"
    rows = log.rows(f"SELECT time - ({late}), {late} FROM {table} WHERE {where} ORDER BY time")
    return [(log.start_ns + when, ns) for when, ns in rows]


def test_each_sleep_is_a_timer_for_the_time_that_was_wanted(kept):
    log, said = kept[0], kept[1]["periodic"]
    where = of(said, "hrtimer_wakeup", f"clock = {MONOTONIC}")
    fired = dict(wanted(log, "hrtimer_fired", where))
    back = dict(wanted(log, "hrtimer_vain", of(said, "hrtimer_wakeup")))
    assert len(said["wanted"]) == TIMES
    # To the nanosecond. The program hears of it later than the timer fires.
    assert set(said["wanted"][:-1]) <= fired.keys() | back.keys()
    assert fired.keys() <= set(said["wanted"])
    heard = dict(zip(said["wanted"], said["late"], strict=True))
    assert all(0 <= late <= heard[when] for when, late in fired.items())
    assert len(fired) > TIMES // 2
    # The thread itself has armed it.
    assert log.count("hrtimer_fired", f"{where} AND (setter <> 1 OR held = 0)") == 0


def test_times_by_another_clock(kept):
    log, said = kept[0], kept[1]["realtime"]
    fired = wanted(log, "hrtimer_fired", of(said, "hrtimer_wakeup", f"clock = {REALTIME}"))
    assert FEW // 2 < len(fired) <= FEW
    # There is one distance between the two clocks that fits all of them.
    apart = {one - fired[0][0] for one in said["wanted"]}
    assert any(all(when + d in said["wanted"] for when, _ in fired) for d in apart)
    assert all(0 <= late <= max(said["late"]) for _, late in fired)


@pytest.mark.parametrize("kind", ["sleep", "epoll"])
def test_sleeps_are_as_many_as_there_were(kept, kind):
    log, said = kept[0], kept[1][kind]
    fired, back = ends(log, said, "hrtimer_wakeup")
    assert fired <= TIMES <= fired + back + 1
    # All were armed in one system call, or when that is restarted.
    where = of(said, "hrtimer_wakeup")
    calls = {call for (call,) in log.rows(f"SELECT call FROM hrtimer_fired WHERE {where}")}
    assert len(calls - {SYS_RESTART}) == 1


def test_only_what_recorded_threads_arm_is_logged(kept):
    log, said = kept
    pids = {one["pid"] for one in said.values()}
    for event in ("hrtimer_fired", "hrtimer_vain", "wheel_fired", "wheel_vain"):
        owners = {pid for (pid,) in log.rows(f"SELECT DISTINCT pid FROM {event}")}
        assert owners <= {pid for (pid,) in log.rows("SELECT pid FROM process WHERE NOT recorder")}
        assert owners & pids


def test_timers_in_vain_are_as_many_as_were_cancelled(kept):
    log, said = kept[0], kept[1]["cancel"]
    assert ends(log, said, "it_real_fn") == (0, TIMES)
    # Armed for a minute: what is missing of it is that the kernel looked at the clock before.
    rest = log.rows(f"SELECT held + early FROM hrtimer_vain WHERE {of(said, 'it_real_fn')}")
    assert all(ns <= 60_000_000_000 for (ns,) in rest)


@pytest.mark.parametrize(
    ("kind", "function"), [("interval", "posix_timer_fn"), ("timerfd", "timerfd_tmrproc")]
)
def test_repeating_timers(kept, kind, function):
    """Armed once by the program, and again each time that it takes what came; the last one is taken
    back, or has fired as well.
    """
    fired, back = ends(kept[0], kept[1][kind], function)
    assert FEW <= fired + back <= FEW + 1


def test_what_is_armed_is_in_the_kernels_list(kept):
    log, said = kept[0], kept[1]["listed"]
    back = [when for when, _ in wanted(log, "hrtimer_vain", of(said, "timerfd_tmrproc"))]
    assert len(back) == TIMES
    assert sorted(back) == sorted(said["wanted"])


def test_timers_are_their_owners_after_its_end(kept):
    """A child arms them, and its parent closes them later."""
    log, said = kept[0], kept[1]["outlives"]
    back = [when for when, _ in wanted(log, "hrtimer_vain", of(said, "timerfd_tmrproc"))]
    assert len(back) == TIMES
    assert sorted(back) == sorted(said["wanted"])


def test_timers_of_the_wheel(kept):
    log, said = kept[0], kept[1]["socket"]
    fired, back = ends(log, said, "process_timeout", "wheel")
    assert fired <= FEW <= fired + back + 1
    # Never early.
    assert log.count("wheel_fired", f"{of(said, 'process_timeout')} AND rounded < 0") == 0


def test_timers_of_the_wheel_in_vain(kept):
    log, said = kept[0], kept[1]["answered"]
    fired, back = ends(log, said, "process_timeout", "wheel")
    assert fired == 0
    assert back >= FEW
    assert log.count("wheel_vain", f"{of(said, 'process_timeout')} AND held = 0") == 0


def test_without_the_wheel(recorder, program):
    log, (said,) = recorded(recorder, "--set", "wheel=false", "--", program, "socket", FEW)
    assert log.rows(LOST) == []
    assert ends(log, said, "process_timeout", "wheel") == (0, 0)
    assert log.count("wheel_clock") == 0


def test_timers_that_the_table_has_no_room_for_are_counted(recorder, program):
    log, (said,) = recorded(recorder, "--set", "followed=16", "--", program, "listed", 503)
    _, back = ends(log, said, "timerfd_tmrproc")
    full = log.one("SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'state_full'")
    assert 16 <= back < 503 <= back + full


# As if CPUs that no machine of the tests has had each taken out timers and done nothing since.
OPEN = "static struct timer_out hrtimer_out[8192], wheel_out[8192];"
PLANTED = """static struct timer_out
        hrtimer_out[8192] = { [8000 ... 8052] = { .timer = 53 } },
        wheel_out[8192] = { [8000 ... 8012] = { .timer = 13 }, [8191] = { .timer = 14 } };"""


@pytest.mark.parametrize("space", [[], SPACE], ids=["outside", "namespace"])
def test_what_is_open_at_the_end_is_logged(recorder, space):
    """In a PID namespace as well, whose lists have no thread of the kernel."""
    text = TIMERS.read_text()
    assert OPEN in text
    file = recorder.dir / "timers.klogger"
    file.write_text(text.replace(OPEN, PLANTED))
    path = recorder.dir / "open.klog"
    words = ["record", "-a", "--no-calibrate", "-s", file, "-o", path, "--", "true"]
    subprocess.run([*space, recorder.klogger, *words], check=True, capture_output=True)
    log = Log(recorder.klogger, path)
    assert log.rows(LOST) == []
    assert log.count("hrtimer_vain", "timer = 53 AND fate = 1") == TIMES
    assert log.count("wheel_vain", "timer = 13 AND fate = 1") == FEW
    assert log.count("wheel_vain", "timer = 14") == 1


def test_what_arms_itself_again_stays_its_owners(recorder):
    """The tick, with -a: nobody's. Whatever fires is never early."""
    log, _ = recorded(recorder, "-a", "--", "sleep", "0.1")
    ticks = "fn_symbol LIKE 'tick_%' AND setter = 2 AND pid = 0"
    assert log.count("hrtimer_fired", ticks) > 0
    assert log.count("hrtimer_fired", "late < 0") == 0
    assert log.count("wheel_clock") > 0


@pytest.mark.full("needs all of both CPUs")
def test_a_storm_of_timers_is_logged_without_loss(recorder, workloads):
    """On each CPU a timer that sets itself every 20 us; the program counts them."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    storms = " & ".join(f'"{workloads}/timerstorm" 2000 20 {cpu} kernel' for cpu in cpus)
    done, path = recorder.run(
        "--no-calibrate", "-a", "-s", TIMERS, "--", "sh", "-c", f"{storms} & wait"
    )
    assert done.code == 0, done.err
    log = Log(recorder.klogger, path)
    assert log.rows(LOST) == []
    counted = sum(int(n) for n in re.findall(r'"timers": (\d+)', done.out))
    assert log.count("hrtimer_fired", "fn_symbol LIKE 'perf_swevent_hrtimer%'") >= 0.9 * counted > 0
