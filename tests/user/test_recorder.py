# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""klogger record and programs: every call is in the log, whole and in order, or has been counted as
lost.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from conftest import PROGRAMS, Recorder, Room, report_in
from oracles import Log
from tiers import scaled

END = 1_000_000
USER = ("--engine", "user")
root = pytest.mark.skipif(os.geteuid() != 0, reason="not root")


def check_proofs(log: Log, where: str = "true") -> None:
    wrong = f"proof <> 18446744073709551615 - (thread::UBIGINT * 4294967296 + n) AND ({where})"
    assert log.rows(f"SELECT * FROM count WHERE {wrong} LIMIT 3") == []


def check_order(log: Log) -> None:
    """In each thread, times and serial numbers rise with the numbers of its calls."""
    wrong = log.rows("""
        SELECT tid, n, before FROM (
            SELECT tid, n, lag(n) OVER (PARTITION BY tgid, tid ORDER BY time, serial) AS before,
                   serial,
                   lag(serial) OVER (PARTITION BY tgid, tid ORDER BY time, serial) AS serial_before
            FROM count)
        WHERE n <= before OR serial <= serial_before LIMIT 3""")
    assert wrong == []


def test_sixteen_threads(recorder, build):
    calls = scaled(50_000, 1_000_000)
    size = ("--user-buffer", scaled(4, 32) << 20, "--max-memory", "2G")
    done, out = recorder.run(*USER, *size, "--", build("flood.c"), 16, calls)
    assert done.code == 0, done.err
    log = recorder.log(out)
    threads = {(t["thread"], t["tid"]) for t in report_in(done)["threads"]}
    assert set(log.rows("SELECT DISTINCT thread, tid FROM count")) == threads
    assert log.rows("SELECT tid, count(*), min(n), max(n) FROM count GROUP BY tid ORDER BY 1") == [
        (tid, calls, 0, calls - 1) for tid in sorted(tid for _, tid in threads)
    ]
    check_proofs(log)
    check_order(log)
    assert log.lost("COUNT") == 0
    check_text_is_in_order(recorder, out)


@pytest.mark.parametrize("limit", ["instances", "watches"])
@root
def test_folders_that_cannot_be_watched_are_read(recorder, build, limit):
    """Each call is in the log all the same. The limit is that of a user namespace."""
    here = f'echo 0 >/proc/sys/user/max_inotify_{limit}; exec "$@"'
    recorder.prefix = ("unshare", "-r", "sh", "-c", here, "sh")
    done, out = recorder.run(*USER, "--", build("flood.c"), 2, 1009)
    assert done.code == 0, done.err
    assert f"/proc/sys/fs/inotify/max_user_{limit}" in done.err
    assert "are read every" in done.err
    recorder.prefix = ()
    log = recorder.log(out)
    assert log.one("SELECT count(*) FROM count") == 2 * 1009
    assert log.lost("COUNT") == 0


@root
def test_folders_that_others_remove_are_forgotten(recorder, build):
    """Somebody who makes and removes his folder again and again takes no descriptors."""
    folder = Path("/dev/shm/klogger-65531")
    process, _ = recorder.started(*USER, "-a")
    try:
        before = len(os.listdir(f"/proc/{process.pid}/fd"))
        make = f"for i in $(seq 211); do mkdir -m 700 {folder}; sleep 0.001; rmdir {folder}; done"
        words = ["setpriv", "--reuid=65531", "--regid=65531", "--clear-groups", "sh", "-c", make]
        subprocess.run(words, check=True)
        # What came after the last look is still to be looked at.
        assert recorder.do("mark", "--recorder", process.pid, 1, "made").code == 0
        assert len(os.listdir(f"/proc/{process.pid}/fd")) < before + 20
    finally:
        done = recorder.end(process)
    assert done.code == 0, done.err


def check_text_is_in_order(recorder, out):
    last, lines = 0, 0
    process = subprocess.Popen(
        [recorder.klogger, "cat", "--format", "json", out], stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        now = int(re.search(r'"time":(-?\d+)', line)[1])
        assert now >= last
        last, lines = now, lines + 1
    assert process.wait() == 0
    assert lines > 0


def test_small_rings(recorder, build):
    """Rings of 16 KiB, at full speed: for each thread, what is there and what LOST records count is
    all calls.
    """
    calls = scaled(200_000, 1_000_000)
    done, out = recorder.run(*USER, "--user-buffer", "16K", "--", build("flood.c"), 4, calls)
    assert done.code == 0, done.err
    log = recorder.log(out)
    check_proofs(log)
    check_order(log)
    rows = log.rows(
        """
        SELECT c.tid, c.logged, coalesce(l.lost, 0)
        FROM (SELECT tid, count(*) AS logged FROM count GROUP BY tid) AS c
        LEFT JOIN (SELECT tid, sum(count)::BIGINT AS lost FROM lost GROUP BY tid) AS l
        USING (tid)"""
    )
    assert [logged + lost for _, logged, lost in rows] == [calls] * 4, rows
    assert log.count("COUNT") + log.lost("COUNT") == 4 * calls
    assert log.lost("COUNT") > 0, "nothing was lost, so nothing was tested"
    assert log.one("SELECT sum(count) FROM lost") == log.lost("COUNT")


def test_signal_handlers(recorder, build):
    calls = scaled(2_000_000, 10_000_000)
    done, out = recorder.run(*USER, "--user-buffer", "16M", "--", build("signals.c"), calls, 100)
    assert done.code == 0, done.err
    log = recorder.log(out)
    handled = report_in(done)["handled"]
    check_proofs(log)
    check_order(log)
    assert log.count("COUNT") + log.lost("COUNT") == calls
    assert log.count("NESTED") + log.lost("NESTED") == 3 * handled


@pytest.mark.parametrize("what", ["fork", "clone", "vfork", "handler", "threads"])
def test_lives(recorder, build, what):
    """Children are recorded with their parents, however they came into being; nothing is left in
    the folder.
    """
    n = scaled(100, 1000) * (10 if what == "threads" else 1)
    done, out = recorder.run(*USER, "--max-memory", "2G", "--", build("lives.c"), what, n)
    assert done.code == 7, done.err
    log = recorder.log(out)
    check_proofs(log)
    assert log.lost("COUNT") == 0
    processes = log.one("SELECT count(DISTINCT tgid) FROM count")
    if what != "handler":
        expected = {
            "fork": 2 + n + 3 * n,
            "clone": 2 + 2 * n,
            "vfork": 2 + n + 2 * n,
            "threads": n + 2,
        }
        assert log.count("COUNT") == expected[what]
    assert processes == {"fork": 2 * n + 1, "threads": 1}.get(what, n + 1)
    assert recorder.room.names() == []


@pytest.mark.full("takes more than 3 s")
def test_killed_at_any_moment(recorder, build):
    """What a program logged from when it was found to when it was killed is read: each of its
    threads without a gap.
    """
    chance = random.Random(1)
    recording, out = recorder.started(*USER, "-a")
    for _ in range(scaled(50, 1000)):
        process = recorder.spawn(build("flood.c"), 2, 1 << 30, 500)
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        process.communicate()
    done = recorder.end(recording)
    assert done.code == 0, done.err
    log = recorder.log(out)
    check_proofs(log)
    check_order(log)
    assert log.lost("COUNT") == 0
    streams = log.rows("SELECT tgid, tid, min(n), max(n) + 1 - count(*) FROM count GROUP BY ALL")
    # How many get to log something is for the machine to say.
    assert streams
    assert [stream for stream in streams if stream[2] != stream[3]] == []
    # One that was killed while it made its file leaves that, still hidden, for a later recorder to
    # remove.
    assert [name for name in recorder.room.names() if not name.startswith(".")] == []


def test_a_program_that_runs_already(recorder, build):
    process = recorder.spawn(build("lives.c"), "sleep", 1_000_000)
    other = recorder.spawn(build("lives.c"), "sleep", 1_000_000)
    time.sleep(0.2)
    done, out = recorder.run(*USER, "-p", process.pid, "--for", "1s")
    assert done.code == 0, done.err
    log = recorder.log(out)
    assert log.rows("SELECT DISTINCT tgid FROM count") == [(process.pid,)]
    first, last, count = log.rows("SELECT min(n), max(n), count(*) FROM count")[0]
    assert first > 0 and last - first + 1 == count > 0
    # A second recording: the first has left the program as it was.
    done, out = recorder.run(*USER, "-p", process.pid, "--for", "500ms")
    assert recorder.log(out).one("SELECT min(n) FROM count") > last
    other.kill()
    process.kill()


def test_a_program_that_comes_later(recorder, build):
    recording, out = recorder.started(*USER, "-a")
    program = recorder.wait(recorder.spawn(build("lives.c"), "sleep", 500))
    done = recorder.end(recording)
    assert (program.code, done.code) == (7, 0), done.err
    log = recorder.log(out)
    ((last, number),) = log.rows("SELECT max(n) FILTER (n < 1000000), count(*) FROM count")
    # It had begun before the recorder saw it.
    assert last == 500 and number > 0


@pytest.mark.full("takes more than 3 s")
def test_enable_and_disable(recorder, build):
    recording, out = recorder.started(
        *USER, "--disable", "COUNT", "--", build("lives.c"), "sleep", 10_000
    )
    time.sleep(0.5)
    assert recorder.do("enable", "COUNT", "--recorder", recording.pid).code == 0
    time.sleep(0.5)
    assert recorder.do("disable", "COUNT", "--recorder", recording.pid).code == 0
    done = recorder.wait(recording)
    assert done.code == 7, done.err
    log = recorder.log(out)
    first, last, count = log.rows("SELECT min(n), max(n), count(*) FROM count")[0]
    assert first > 0 and last < 10_000 and count == last - first + 1


@root
def test_an_ordinary_user(klogger, room, build):
    """Needs no privilege; sees that user's programs, and no others."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        place = Path(folder)
        place.chmod(0o777)
        for program in (klogger, build("flood.c")):
            shutil.copy(program, place)
        mine = place / "shared"
        mine.mkdir(mode=0o700)
        os.chown(mine, 65534, 65534)
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs")
        recorder = Recorder(place / "klogger", Room(mine), place, nobody)
        others = Recorder(klogger, room, place)
        try:
            stranger = others.spawn(build("lives.c"), "sleep", 3000)
            recording, out = recorder.started(*USER, "-a")
            own = recorder.wait(recorder.spawn(place / "flood", 2, 1000, 10, prefix=nobody))
            done = recorder.end(recording)
            assert (own.code, done.code) == (0, 0), done.err
            log = recorder.log(out)
            assert log.rows("SELECT DISTINCT tgid FROM count") == [(own.report["pid"],)]
            assert others.wait(stranger).code == 7
        finally:
            recorder.close()
            others.close()


@root
def test_beside_the_scheduler(recorder, build):
    """The kernel's events and the program's in one log, by name of its schema."""
    schema = PROGRAMS / "count.klogger"
    done, out = recorder.run(
        "-s", "scheduler", "-s", schema, "--", build("flood.c"), 4, 20_000, 500
    )
    assert done.code == 0, done.err
    log = recorder.log(out)
    assert log.count("COUNT") == 80_000
    check_proofs(log)
    check_order(log)
    tids = {tid for (tid,) in log.rows("SELECT DISTINCT tid FROM count")}
    assert tids <= {tid for (tid,) in log.rows("SELECT DISTINCT pid FROM schedin")}


@pytest.mark.full("takes more than 3 s")
@root
@pytest.mark.parametrize("cpus", [(0, 0), (0, 1)], ids=["one-cpu", "two-cpus"])
def test_cause_stands_before_effect(recorder, build, cpus):
    """What must have happened in an order is never logged in another one, by more than the clocks'
    error.
    """
    if (os.cpu_count() or 1) < 2 and cpus == (0, 1):
        pytest.skip("one CPU")
    pairs = scaled(30_000, 1_000_000)
    schema = PROGRAMS / "causal.klogger"
    done, out = recorder.run(
        *("-s", "scheduler", "-s", schema, "--buffer-size", "64M", "--user-buffer", "32M"),
        *("--", build("causal.c"), pairs, *cpus),
    )
    assert done.code == 0, done.err
    report = report_in(done)
    log = recorder.log(out)
    error = int(re.search(r"within (\d+) ns", recorder.do("info", out).out)[1])
    assert [log.count(event) for event in ("BEFORE", "WRITTEN", "AFTER")] == [pairs] * 3
    assert error < 20_000
    log.db.execute(f"""CREATE TEMP TABLE pair AS
        SELECT n, before.time - {error} AS before, written.time + {error} AS written,
               after.time + {error} AS after
        FROM before JOIN written USING (n) JOIN after USING (n)""")
    assert log.rows("SELECT * FROM pair WHERE after < before LIMIT 3") == []
    # The kernel wakes the reader inside of the writer's write().
    woken = (
        f"(FROM try_to_wakeup WHERE pid = {report['reader']} AND waker = {report['writer']}) AS w"
    )
    assert log.one(f"SELECT count(*) FROM {woken}") > 0
    assert (
        log.rows(
            f"SELECT * FROM {woken} ASOF LEFT JOIN pair ON before <= w.time WHERE w.time < written"
            " IS NOT TRUE"
        )
        == []
    )
    if cpus == (0, 0):
        # On one CPU, the reader was woken and switched to between the two events, but for a few
        # that came while the writer was preempted, and switches that the kernel does not report.
        switches = f"(FROM schedin WHERE pid = {report['reader']}) AS s"
        without = log.one(
            f"SELECT count(*) FROM pair ASOF JOIN {switches} ON s.time <= after WHERE s.time <"
            " before"
        )
        late = log.one(
            f"SELECT count(*) FROM {woken} ASOF JOIN pair ON before <= w.time WHERE after < w.time"
        )
        assert max(without, late) <= pairs // 1000


def test_another_version_of_the_schema(recorder, build):
    newer, same = PROGRAMS / "newer/other.klogger", PROGRAMS / "count.klogger"
    done, out = recorder.run(*USER, "-s", newer, "-s", same, "--", build("first.c", "second.c"))
    assert done.code == 0, done.err
    log = recorder.log(out)
    assert (log.count("COUNT"), log.count("OTHER")) == (1, 0)
    texts = [text for (text,) in log.rows("SELECT text FROM ledger WHERE key = 'user_refused'")]
    assert any("schema 'other'" in text and "another version" in text for text in texts), texts


def test_too_little_memory(recorder, build):
    """Threads that get no ring lose their events, and the log counts them."""
    limits = ("--user-buffer", "1M", "--max-memory", "4M")
    done, out = recorder.run(*USER, *limits, "--", build("flood.c"), 16, 20_000, 1000)
    assert done.code == 0, done.err
    log = recorder.log(out)
    assert log.count("COUNT") + log.lost("COUNT") == 16 * 20_000
    assert log.count("COUNT") > 0
    assert log.count("ledger", "key = 'user_memory' AND severity = 'loss'") > 0


def cpu_ticks(pid: int) -> list[int]:
    """Clock ticks that each thread has run; the thread of `main` first."""
    tasks = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: task.name != str(pid))
    stats = [(task / "stat").read_text().rsplit(")", 1)[1].split() for task in tasks]
    return [int(fields[11]) + int(fields[12]) for fields in stats]


def wait_for_ticks(pid: int) -> None:
    """Until two threads of it have run, besides the one that only starts them."""
    until = time.monotonic() + 60
    while len(ran := cpu_ticks(pid)) < 3 or min(ran[1:]) < 3:
        assert time.monotonic() < until, "its threads do not run"
        time.sleep(0.05)


def crashed(recorder, build, flight: int) -> subprocess.Popen:
    """A program that has crashed, with a flight recorder of so many bytes."""
    process = subprocess.Popen(
        [build("flood.c"), "2", str(1 << 30)],
        env=recorder.room.environment(record=False, KLOGGER_FLIGHT=flight),
    )
    wait_for_ticks(process.pid)
    process.send_signal(signal.SIGSEGV)
    process.wait()
    return process


def test_rescue_after_a_crash(recorder, build):
    process = crashed(recorder, build, 1 << 17)
    assert str(process.pid) in recorder.do("rescue").out
    done = recorder.do("rescue", process.pid, "-o", "crash.klog")
    assert done.code == 0, done.err
    log = recorder.log(recorder.folder / "crash.klog")
    check_proofs(log)
    check_order(log)
    gaps = log.rows("SELECT tid, max(n) + 1 - min(n) - count(*) FROM count GROUP BY tid")
    assert [missing for _, missing in gaps] == [0, 0]
    assert log.count("COUNT") > 2 * 4000
    assert recorder.room.names() == []


def rescue_onto_a_full_disk(recorder, small: Path, process: subprocess.Popen) -> None:
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "none", small], check=True)
    try:
        done = recorder.do("rescue", process.pid, "-o", small / "crash.klog")
        assert done.code == 2 and "no space" in done.err, done
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", small], check=True)


@root
def test_a_rescue_onto_a_full_disk_takes_nothing(recorder, build, tmp_path):
    process = crashed(recorder, build, 1 << 20)
    rescue_onto_a_full_disk(recorder, tmp_path / "small", process)
    counts = []
    for keep in ["--keep"], []:
        assert recorder.room.names()
        done = recorder.do("rescue", process.pid, *keep, "-o", "crash.klog")
        assert done.code == 0, done.err
        counts.append(recorder.log(recorder.folder / "crash.klog").count("COUNT"))
    assert counts[0] == counts[1] > 2 * 4000
    assert recorder.room.names() == []


def test_large_events_of_a_flight_recorder(recorder, build):
    """They reach over several parts of its smallest ring."""
    environment = recorder.room.environment(record=False, KLOGGER_FLIGHT=1)
    process = subprocess.Popen([build("large.c"), "1009"], env=environment)
    assert process.wait() == 0
    done = recorder.do("rescue", process.pid, "-o", "large.klog")
    assert done.code == 0 and "nothing lost" in done.err, done.err
    log = recorder.log(recorder.folder / "large.klog")
    numbers = [n for (n,) in log.rows("SELECT after FROM text ORDER BY after")]
    # The newest that a ring of 128 KiB holds, less two parts of its grid and one event.
    assert numbers == list(range(1009 - len(numbers), 1009))
    assert len(numbers) > (131072 - 2 * 2048 - 4096) // 3100
    wrong = "first <> 'first' OR second <> repeat('x', 2900) OR third <> 'third'"
    assert log.rows(f"SELECT count(*) FROM texts WHERE {wrong}") == [(0,)]
    assert abs(log.count("TEXTS") - len(numbers)) <= 1


@root
def test_nor_does_one_of_a_program_that_runs(recorder, build, tmp_path):
    process = recorder.spawn(build("flood.c"), 1, 1 << 30, 1000)
    recording, _ = recorder.started(*USER, "--user-buffer", "1M", "-p", process.pid)
    recording.kill()
    recording.communicate()
    # It notices that its recorder has died when its ring is full.
    until = time.monotonic() + 60
    while "   0 events on" not in recorder.do("rescue").out:
        assert time.monotonic() < until, recorder.do("rescue").out
        time.sleep(0.05)
    rescue_onto_a_full_disk(recorder, tmp_path / "small", process)
    counts = []
    for keep in ["--keep"], [], []:
        done = recorder.do("rescue", process.pid, *keep, "-o", "late.klog")
        assert done.code == 0, done.err
        counts.append(recorder.log(recorder.folder / "late.klog").count("COUNT"))
    assert counts[0] == counts[1] > 1000
    assert counts[2] == 0 and process.poll() is None


def test_rescue_after_the_recorder_was_killed(recorder, build):
    process = recorder.spawn(build("lives.c"), "sleep", 1_000_000)
    recording, _ = recorder.started(*USER, "-p", process.pid)
    time.sleep(0.3)
    refused = recorder.do("rescue", process.pid, "-o", "early.klog")
    assert refused.code == 2 and str(recording.pid) in refused.err
    recording.kill()
    recording.communicate()
    time.sleep(0.3)
    process.kill()
    process.communicate()
    done = recorder.do("rescue", process.pid, "-o", "late.klog")
    assert done.code == 0, done.err
    log = recorder.log(recorder.folder / "late.klog")
    first, last, count = log.rows("SELECT min(n), max(n), count(*) FROM count")[0]
    assert count == last - first + 1 and count > 0
    check_proofs(log)


@pytest.mark.full("takes more than 3 s")
@root
@pytest.mark.parametrize("what", ["scribble", "truncate", "unlink", "link", "fifo", "folder"])
def test_hostile_programs(recorder, build, what):
    """Whatever they do to their files: the recorder lives, and another program's events
    are whole.
    """
    seconds = scaled(20 if what == "scribble" else 3, 600 if what == "scribble" else 20)
    recording, out = recorder.started(*USER, "-a", "--max-memory", "64M")
    hostile = recorder.spawn(build("hostile.c"), what, seconds)
    time.sleep(0.3)
    calls = 500 * seconds
    other = recorder.spawn(build("flood.c"), 2, calls, 1)
    assert recorder.wait(hostile, timeout=seconds + 60).code == 0
    report = recorder.wait(other, timeout=seconds + 60).report
    assert recording.poll() is None, recorder.wait(recording)
    peak = int(
        re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{recording.pid}/status").read_text())[1]
    )
    done = recorder.end(recording)
    assert done.code == 0, done.err
    assert peak < 512 << 10
    log = recorder.log(out)
    mine = f"tgid = {report['pid']}"
    check_proofs(log, mine)
    # Each thread from when the program was found to its end.
    streams = log.rows(f"SELECT min(n), max(n), count(*) FROM count WHERE {mine} GROUP BY tid")
    assert len(streams) == 2
    for first, last, count in streams:
        assert first < calls / 2 and last == calls - 1 and count == last - first + 1
    if what in ("scribble", "truncate"):
        assert log.count("ledger", "key IN ('user_hostile', 'user_refused')") > 0
