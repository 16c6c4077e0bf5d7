# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Recordings that are divided into segments: nothing is lost or doubled where one ends, whatever
happens there.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import following
import oracles
import pytest
from conftest import is_stopped, small_disk_at
from tiers import scaled

SCHEMA = Path(__file__).with_name("numbered.klogger")
# Hits at a time, a prime number.
BURST = 997


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("segment-*.klog"))


def number(path: Path) -> int:
    return int(path.stem.split("-")[1])


def has(folder: Path, count: int) -> bool:
    """Whether the segment of this number, or a later one, has been begun."""
    return any(number(path) >= count for path in segments(folder))


def info(klogger, path: Path) -> dict:
    command = [klogger, "info", path, "--format", "json"]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def entries(about: dict, *keys: str) -> list[dict]:
    return [entry for entry in about["ledger"] if entry["key"] in keys]


class Bursts:
    """Records `bursts` into segments, until there are so many."""

    def __init__(self, recorder, workloads, *options, pause=1000, burst=BURST, out=None):
        self.out = out or recorder.path()
        self.end = recorder.dir / f"end{recorder.logs}"
        command = [workloads / "bursts", burst, pause, self.end]
        self.process = recorder.start("-s", SCHEMA, *options, "--", *command, out=self.out)

    def until(self, count: int) -> "Bursts":
        following.wait_for(lambda: has(self.out, count), self.process)
        return self

    def finish(self) -> tuple[int, str]:
        """How many hits there were, and what the recorder said."""
        self.end.touch()
        out, err = self.process.communicate(timeout=following.PATIENCE)
        assert self.process.returncode == 0, err
        report = oracles.workload_json(out)
        assert len(report["threads"]) == os.cpu_count()
        return sum(thread["count"] for thread in report["threads"]), err

    def kill(self):
        """The recorder, and then the workload."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def check_each_once(log: oracles.Log):
    """No event is there twice, none is in the wrong order, and what is missing is counted."""
    twice = "SELECT count(*) - count(DISTINCT (pid, number)) FROM numbered"
    assert log.one(twice) == 0
    oracles.check_serials(log)


def check_attempts(log: oracles.Log, attempts: int):
    """Logged and lost are so many. What is lost in a full ring may also be one of the few events of
    threads that begin and end.
    """
    missing = lost(log, "ring_full")
    both = log.count("NUMBERED") + missing
    assert attempts <= both <= attempts + min(missing, 100)
    check_each_once(log)


def lost(log: oracles.Log, *keys: str) -> int:
    wanted = ", ".join(f"'{key}'" for key in keys)
    return log.one(f"SELECT coalesce(sum(count), 0)::BIGINT FROM ledger WHERE key IN ({wanted})")


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("ring", ["64K", "4M"])
def test_logged_and_lost_are_all_at_every_seam(recorder, workloads, klogger, ring):
    until = scaled(20, 1000)
    run = Bursts(
        recorder, workloads, "--buffer-size", ring, "--segment", "100ms", pause=scaled(2000, 20000)
    ).until(until)
    attempts, _ = run.finish()
    assert len(segments(run.out)) >= until
    log = oracles.Log(klogger, run.out)
    check_attempts(log, attempts)
    oracles.check_order(klogger, run.out)
    # Each segment is a log of its own, and together they have what the folder has.
    alone = [info(klogger, path) for path in segments(run.out)]
    whole = info(klogger, run.out)
    assert all(one["complete"] and one["sound"] for one in alone)
    assert sum(one["logged"] for one in alone) == whole["logged"]
    assert sum(one["lost"] for one in alone) == whole["lost"] == lost(log, "ring_full")
    assert [one["number"] for one in whole["segments"]] == list(range(1, len(alone) + 1))


@pytest.mark.full("takes more than 3 s")
def test_what_is_lost_is_in_the_ledger_of_its_segment(recorder, workloads, klogger):
    """The recorder is stopped while the rings overflow; other segments come before and after."""
    n, out = 100_003, recorder.path()
    go, end = recorder.dir / "go", recorder.dir / "end"
    script = """while [ ! -e "$0" ]; do sleep 0.02; done
        "$1/flood" "$2" -1 1 unknown; "$1/bursts" 997 1000 "$3" """
    command = ["sh", "-c", script, go, workloads, n, end]
    options = ("--buffer-size", "64K", "--segment", "200ms")
    process = recorder.start("-s", SCHEMA, *options, "--", *command, out=out)
    following.wait_for(lambda: has(out, 3), process)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        following.wait_for(lambda: is_stopped(process.pid), process)
        go.touch()
        text = ""
        while not text.endswith("]}\n"):
            text += process.stdout.readline()
    finally:
        os.kill(process.pid, signal.SIGCONT)
    last = number(segments(out)[-1])
    following.wait_for(lambda: has(out, last + 3), process)
    end.touch()
    more, err = process.communicate(timeout=following.PATIENCE)
    assert process.returncode == 0, err
    attempts = n * os.cpu_count()
    attempts += sum(thread["count"] for thread in oracles.workload_json(more)["threads"])
    log = oracles.Log(klogger, out)
    assert lost(log, "ring_full") > n // 2
    check_attempts(log, attempts)
    # The recorder tells the user of all of them.
    (said,) = re.findall(r"([0-9,]+) LOST", err)
    assert int(said.replace(",", "")) == lost(log, "ring_full"), err
    ledgers = []
    for path in segments(out):
        one = oracles.Log(klogger, path)
        ledgers.append(lost(one, "ring_full"))
        records = "SELECT coalesce(sum(count), 0)::BIGINT FROM lost"
        assert ledgers[-1] == one.one(records), path
    assert ledgers[0] == ledgers[-1] == 0 or sum(map(bool, ledgers)) > 1


@pytest.mark.full("takes more than 3 s")
def test_what_a_rate_limit_leaves_out_is_counted_once(recorder, workloads, klogger):
    """Counters of the whole recording: each segment has its part."""
    options = ("--segment", "200ms", "--rate-limit", "NUMBERED=1000/s")
    run = Bursts(recorder, workloads, *options).until(8)
    attempts, _ = run.finish()
    log = oracles.Log(klogger, run.out)
    left_out = lost(log, "rate_limited")
    assert left_out > 0
    missing = lost(log, "ring_full")
    both = log.count("NUMBERED") + left_out + missing
    assert attempts <= both <= attempts + min(missing, 100)
    alone = [lost(oracles.Log(klogger, path), "rate_limited") for path in segments(run.out)]
    assert sum(alone) == left_out
    assert sum(map(bool, alone)) > 3


@pytest.mark.full("takes more than 3 s")
def test_the_newest_are_kept_with_their_names(recorder, workloads, klogger):
    """`--keep`: the oldest are removed, and the ledger says which and how many events they had."""
    run = Bursts(recorder, workloads, "--segment", "100ms", "--keep", "3").until(12)
    attempts, _ = run.finish()
    left = segments(run.out)
    # And the last, which was being written.
    assert 1 < len(left) <= 4
    first = number(left[0])
    assert first > 8
    whole = info(klogger, run.out)
    (removed,) = entries(whole, "segments_removed")
    assert removed["text"].startswith(f"segments 1 to {first - 1}: ")
    assert not entries(whole, "segments_missing", "serial_gap")
    log = oracles.Log(klogger, run.out)
    check_each_once(log)
    # Serial numbers say how many came before; the recorder's own events are in there as well.
    before = log.one("""SELECT sum(first)::BIGINT FROM (SELECT min(serial) AS first FROM
        (SELECT cpu, serial FROM attempt UNION ALL SELECT cpu, serial FROM lost WHERE cpu >= 0)
        GROUP BY cpu)""")
    assert before <= removed["count"] <= before + 100
    hits = attempts - log.count("NUMBERED") - lost(log, "ring_full")
    assert 0 < hits <= before
    # The workload was there before the first segment; its name is in all.
    named = "SELECT count(*) FROM process WHERE comm = 'bursts'"
    assert all(oracles.Log(klogger, path).one(named) > 0 for path in left)


@pytest.mark.full("takes more than 3 s")
def test_one_segment_has_the_time_at_which_it_was_recorded(recorder, workloads, klogger):
    run = Bursts(recorder, workloads, "--segment", "200ms").until(5)
    run.finish()
    whole = info(klogger, run.out)
    clock = whole["preamble"]["clock"]
    booted = clock["start_realtime_ns"] - clock["start_ns"]
    for path in segments(run.out)[1:]:
        one = info(klogger, path)
        clock = one["preamble"]["clock"]
        assert clock["start_realtime_ns"] - clock["start_ns"] == booted
        assert whole["start_ns"] < one["start_ns"] <= one["end_ns"] <= whole["end_ns"]
        log = oracles.Log(klogger, path)
        assert log.count("NUMBERED", "time < 0") == 0


def test_a_killed_recorder_is_rescued(recorder, workloads, klogger, clean_kernel):
    """Whole segments are as they were; the last gets what the rings hold, in its own place."""
    run = Bursts(recorder, workloads, "--segment", "200ms", "--buffer-size", "1M").until(6)
    run.kill()
    log = oracles.Log(klogger, run.out)
    assert "recorder_killed" in {key for (key,) in log.rows("SELECT key FROM ledger")}
    assert log.count("NUMBERED") > 0
    check_each_once(log)
    done = recorder.command("rescue", run.process.pid)
    assert done.code == 0, done.err
    last = segments(run.out)[-1]
    assert f"in {last}" in done.err
    log = oracles.Log(klogger, run.out)
    check_each_once(log)
    keys = {key for (key,) in log.rows("SELECT key FROM ledger")}
    assert "rescued" in keys and "segments_missing" not in keys
    assert info(klogger, last)["complete"]
    # Each process numbers its hits, so that its last one says how many there were. Those that were
    # lost behind it do not show.
    hits = log.one("SELECT sum(n) FROM (SELECT max(number) + 1 AS n FROM numbered GROUP BY pid)")
    after = log.one("""SELECT coalesce(sum(count), 0) FROM lost
        WHERE serial > (SELECT max(n.serial) FROM numbered AS n WHERE n.cpu = lost.cpu)""")
    missing = lost(log, "ring_full", "in_flight", "disk_full")
    assert hits - log.count("NUMBERED") + after == missing


@pytest.mark.full("takes more than 3 s")
def test_killed_between_two_segments(recorder, workloads, klogger, clean_kernel):
    """What is in the rings becomes a segment of its own, if the last one is complete."""
    run = Bursts(recorder, workloads, "--segment", "200ms", "--buffer-size", "1M").until(4)
    run.kill()
    # As if the last segments had not been begun. One that was just being begun has no preamble.
    for path in segments(run.out):
        said = recorder.command("info", path, "--format", "json")
        if said.code != 0 or not json.loads(said.out)["complete"]:
            path.unlink()
    complete = segments(run.out)
    done = recorder.command("rescue", run.process.pid)
    assert done.code == 0, done.err
    (new,) = set(segments(run.out)) - set(complete)
    assert number(new) == number(complete[-1]) + 1
    log = oracles.Log(klogger, run.out)
    check_each_once(log)
    assert "rescued" in {key for (key,) in log.rows("SELECT key FROM ledger")}


@pytest.fixture
def small_disk(tmp_path):
    """A folder with 24 MiB."""
    with small_disk_at(tmp_path / "small", "24m") as folder:
        yield folder


@pytest.mark.full("takes more than 3 s")
def test_a_full_disk_loses_the_oldest(recorder, workloads, klogger, small_disk):
    out = small_disk / "segments"
    options = ("--segment", "2M", "--buffer-size", "4M", "--keep", "1G")
    run = Bursts(recorder, workloads, *options, pause=0, burst=9973, out=out).until(30)
    attempts, err = run.finish()
    assert err.count("the disk is full: the oldest segments are removed") == 1
    first = check_oldest_removed(klogger, out, attempts)
    assert first > 10 and number(segments(out)[-1]) >= 30
    whole_tables = recorder.dir / "tables"
    command = [klogger, "export", "--to", "parquet", out, "-o", whole_tables]
    subprocess.run(command, check=True, capture_output=True)


def test_a_full_disk_without_keep_ends_the_recording(recorder, klogger, tmp_path):
    """Whoever has filled it, nothing that was logged is deleted."""
    with small_disk_at(tmp_path / "small", "16m") as disk:
        out = disk / "segments"
        options = ("-s", "scheduler", "-a", "--segment", "100ms", "--for", "300s")
        process = recorder.start(*options, out=out)
        following.wait_for(lambda: has(out, 3), process)
        with (disk / "others").open("wb", buffering=0) as others, contextlib.suppress(OSError):
            while True:
                others.write(bytes(1 << 16))
        _, err = process.communicate(timeout=following.PATIENCE)
        assert process.returncode == 2 and "is not complete" in err, err
        assert "help:" in err and "panicked" not in err and "are removed" not in err
        numbers = [number(path) for path in segments(out)]
        assert len(numbers) >= 3 and numbers == list(range(1, len(numbers) + 1))
        # There may be no room for this in the last ledger.
        assert "disk_full (loss)" in err
        assert not entries(info(klogger, out), "segments_removed")


def check_oldest_removed(klogger, out: Path, attempts: int) -> int:
    """Whatever was removed, or lost in a ring, is counted. Returns the first segment's number."""
    whole = info(klogger, out)
    (removed,) = entries(whole, "segments_removed")
    first = number(segments(out)[0])
    until = "segment 1" if first == 2 else f"segments 1 to {first - 1}"
    assert removed["text"].startswith(f"{until}, at times because the disk")
    assert not entries(whole, "segments_missing", "serial_gap", "disk_full")
    assert all(info(klogger, path)["complete"] for path in segments(out))
    mine = next(event for event in whole["events"] if event["name"] == "NUMBERED")
    kept = mine["logged"] + whole["lost"]
    assert kept < attempts <= kept + removed["count"]
    return first


def test_segments_that_wait_fill_the_disk(recorder, workloads, klogger, tmp_path):
    """The rings hold more than the disk does. They are drained when the command has ended: until
    that is done, no segment is completed. Eight may wait for it, for which there is no room.
    """
    ring = max(2, 32 // os.cpu_count())
    # A record has 24 bytes.
    hits = (ring << 20) // 20
    options = ("-s", SCHEMA, "--segment", "2M", "--keep", "1G", "--buffer-size", f"{ring}M")
    command = (workloads / "flood", hits, -1, 1, "unknown")
    with small_disk_at(tmp_path / "small", "12m") as disk:
        out = disk / "segments"
        done = recorder.while_stopped(*options, command=list(map(str, command)), out=out)
        assert recorder.running[-1].returncode == 0, done.said
        assert done.said.count("the disk is full: the oldest segments are removed") == 1
        check_oldest_removed(klogger, out, sum(t["count"] for t in done.report["threads"]))


def test_no_segment_is_larger_than_was_said(recorder, workloads):
    """They are fewer than may wait to be completed, so that none has to grow."""
    run = Bursts(recorder, workloads, "--segment", "2M", pause=100_000, burst=9973).until(4)
    run.finish()
    sizes = [path.stat().st_size for path in segments(run.out)]
    assert max(sizes) <= 2 << 20 and min(sizes[:-1]) > 1 << 20, sizes


@pytest.mark.full("takes more than 3 s")
def test_a_segment_that_cannot_be_begun(recorder, workloads, klogger):
    """It is said once, and the one before goes on."""
    run = Bursts(recorder, workloads, "--segment", "200ms").until(2)
    taken = 1 + number(segments(run.out)[-1])
    in_the_way = []
    # Names that are taken, until one of them is in the way.
    for n in range(taken, taken + 200):
        path = run.out / f"segment-{n:06}.klog"
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            in_the_way.append(path)
    said = ""
    while "could not be begun" not in said:
        said += run.process.stderr.readline()
    for path in in_the_way:
        path.rmdir()
    run.until(taken + 2)
    attempts, err = run.finish()
    assert (said + err).count("could not be begun") == 1
    (entry,) = entries(info(klogger, run.out), "segment_not_begun")
    assert entry["severity"] == "notice" and "File exists" in entry["text"]
    log = oracles.Log(klogger, run.out)
    check_attempts(log, attempts)


@pytest.mark.full("takes more than 3 s")
def test_followed_over_seams_while_old_ones_are_removed(recorder, workloads, klogger):
    run = Bursts(recorder, workloads, "--segment", "300ms", "--keep", "2").until(1)
    words = ("cat", "--follow", run.out, "--event", "NUMBERED", "--format", "json")
    lines = recorder.dir / "lines"
    with lines.open("wb") as to:
        follower = following.started(klogger, *words, stdout=to)
    run.until(12)
    attempts, _ = run.finish()
    code, _, err = following.finish(follower)
    assert code == 0, err
    rows = following.events(lines.read_bytes(), "NUMBERED")
    times = [row["time"] for row in rows]
    assert times == sorted(times)
    assert len({(row["pid"], row["number"]) for row in rows}) == len(rows)
    removed = "segments were removed before" in err
    assert len(rows) == attempts or removed or "lost" in err


@pytest.mark.full("takes more than 3 s")
def test_snapshots_and_triggers_in_segments(recorder, workloads, klogger):
    """A snapshot is beside the folder, and no segment; hits are in the ledger once."""
    trigger = 'NUMBERED where number == 5003: snapshot, mark "there"'
    options = ("--segment", "200ms", "--trigger", trigger)
    run = Bursts(recorder, workloads, *options).until(6)
    run.finish()
    whole = info(klogger, run.out)
    assert not entries(whole, "segments_missing")
    assert [path.name for path in run.out.iterdir() if "snapshot" in path.name] == []
    snapshots = sorted(recorder.dir.glob("*.snapshot-*.klog"))
    assert snapshots
    one = info(klogger, snapshots[0])
    assert "segment" not in one["preamble"]
    log = oracles.Log(klogger, run.out)
    fired = log.count("TRIGGERED")
    assert fired == os.cpu_count()
    page = recorder.command("info", run.out).out
    assert re.search(rf"{fired} hits", page)
    assert log.count("MARK") >= 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--segment", "0"), "write an age of 100ms or more, or a size of 2M or more"),
        (("--segment", "10x"), "write an age of 100ms or more, or a size of 2M or more"),
        (("--segment", "60s", "--keep", "0"), "write how many segments to keep (1 or more)"),
        (("--segment", "60s", "--segment", "5s"), "--segment was given two ages"),
        (("--segment", "60s", "--overwrite"), "--segment and --overwrite exclude each other"),
        (("--segment", "60s", "-o", "x.klog"), "-o names a file, and segments are files in a"),
    ],
)
def test_what_makes_no_sense_is_refused(recorder, options, said):
    done, out = recorder.run("-s", SCHEMA, *options, "--", "true")
    check_refused(done, said)
    assert not out.exists()


def check_refused(done, said=""):
    """With one message."""
    assert done.code == 2 and said in done.err
    assert len(re.findall("^(error|klogger):", done.err, re.M)) == 1, done.err


def test_options_that_need_segments(recorder):
    for option in (("--keep", "3"), ("--dir", "x")):
        done = recorder.command("record", "-s", SCHEMA, *option, "--", "true")
        assert done.code == 2 and f"{option[0]} needs --segment" in done.err
        assert not (recorder.dir / "x").exists()


def test_one_second_and_one_segment_is_a_recording(recorder, klogger):
    done, out = recorder.run("-s", SCHEMA, "--segment", "1s", "--keep", "1", "--", "true")
    assert done.code == 0, done.err
    assert info(klogger, out)["complete"]


@pytest.mark.full("others of this file are in the gate")
def test_folders_that_are_refused(recorder, workloads):
    out = recorder.path()
    out.mkdir()
    (out / "precious").touch()

    def refused(where):
        return recorder.run("-s", SCHEMA, "--segment", "60s", "--", "true", out=where)

    done, _ = refused(out)
    assert done.code == 2 and "it is not empty" in done.err
    assert [path.name for path in out.iterdir()] == ["precious"]
    # With the segments of another recording.
    done, first = recorder.run("-s", SCHEMA, "--segment", "60s", "--", "true")
    assert done.code == 0, done.err
    before = segments(first)[0].read_bytes()
    done, _ = refused(first)
    assert done.code == 2 and "it is not empty" in done.err
    assert [path.read_bytes() for path in segments(first)] == [before]
    link = recorder.path()
    link.symlink_to(recorder.dir)
    done, _ = refused(link)
    assert done.code == 2 and "it is a symbolic link" in done.err
    check_refused(refused(recorder.dir / "none" / "there")[0])
    check_refused(refused(Path("/proc/segments"))[0])


@pytest.mark.full("takes more than 3 s")
def test_no_folder_is_left_of_a_recording_that_did_not_start(recorder):
    out = recorder.path()
    done, _ = recorder.run("-s", SCHEMA, "--segment", "60s", "--", "/no/such/command", out=out)
    assert done.code != 0 and not out.exists()
