# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger snapshot`: a log of the last seconds, made while the recording goes on. It has exactly
the events that the log of the recording has of this time.
"""

import json
import os
import re
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import small_disk_at
from following import FLOOD, PATIENCE, wait_for
from test_triggers import LATE, SLOW, planted

# A thread with its name.
NAMED = re.compile(r'(?:"[^"]*"|[^ =]+)\[(\d+)\]')
# Of the events of a CPU, what says which one it is.
KEY = ("cpu", "serial", "event")


class Running:
    """A recording of a command that goes on until it is told to end."""

    def __init__(self, recorder, command, *options, out):
        self.recorder, self.out, self.end = recorder, out, recorder.dir / "end"
        loop = 'while [ ! -e "$0" ]; do "$@" >/dev/null; sleep 0.05; done'
        self.process = recorder.start(
            "--messages", "json", *options, "--", "sh", "-c", loop, self.end, *command, out=out
        )
        self.messages = []
        while not self.messages or self.messages[-1]["message"] != "started":
            self.messages.append(json.loads(self.process.stderr.readline()))

    def ask(self, *words):
        return self.recorder.command("snapshot", "--recorder", self.process.pid, *words)

    def snapshot(self, *words) -> dict:
        done = self.ask("--format", "json", *words)
        assert done.code == 0, done.err
        return json.loads(done.out)

    def events(self) -> int:
        """So many have been taken from the rings."""
        self.messages.append(json.loads(self.process.stderr.readline()))
        return self.messages[-1].get("events", 0)

    def finish(self):
        self.end.touch()
        _, said = self.process.communicate(timeout=PATIENCE)
        self.messages += map(json.loads, said.splitlines())
        assert self.process.returncode == 0, said


@pytest.fixture
def run(recorder):
    recorder.read = {}

    @contextmanager
    def start(command, *options, out=None):
        running = Running(recorder, command, *options, out=out or recorder.path())
        yield running
        running.finish()

    return start


def info(recorder, log) -> dict:
    return json.loads(recorder.command("info", "--format", "json", log).out)


def events(recorder, log) -> dict:
    """The events of CPUs, by what identifies each, with full times and as text: names as well.

    The log of a recording is read once for all of its snapshots.
    """
    if log not in recorder.read:
        recorder.read[log] = read(recorder, log)
    return recorder.read[log]


def read(recorder, log) -> dict:
    start = info(recorder, log)["start_ns"]
    found = {}
    lines = recorder.command("cat", "--format", "json", log).out.splitlines()
    texts = recorder.command("cat", log).out.splitlines()
    assert len(lines) == len(texts)
    for line, text in zip(lines, texts, strict=True):
        event = json.loads(line)
        if event["cpu"] is not None and event["cpu"] >= 0:
            event["time"] += start
            key = tuple(event[name] for name in KEY)
            assert key not in found
            found[key] = (event, text.split(None, 1)[1])
    return found


def same_but_for_names(whole: str, text: str) -> bool:
    """Whether they differ in nothing but names of threads: `text` has fewer, or the one that a
    thread had before it ran another program.
    """
    return NAMED.sub(r"\1", whole) == NAMED.sub(r"\1", text)


def check_equal(recorder, log, made) -> dict:
    """The snapshot has what the log has of its time, and nothing else; returns what `info` says."""
    about = info(recorder, made["file"])
    assert about["sound"] and about["complete"], about["damage"]
    span = about["preamble"]["snapshot"]
    assert (about["start_ns"], about["end_ns"]) == (span["from_ns"], span["to_ns"])
    assert (made["from_ns"], made["to_ns"]) == (span["from_ns"], span["to_ns"])
    wanted = {
        key: event
        for key, event in events(recorder, log).items()
        if span["from_ns"] <= event[0]["time"] <= span["to_ns"]
    }
    found = events(recorder, made["file"])
    (lost,) = [one["logged"] for one in about["events"] if one["name"] == "LOST"]
    assert made["events"] == about["logged"] - lost
    assert wanted.keys() == found.keys()
    assert [key for key in wanted if wanted[key][0] != found[key][0]] == []
    # The names of threads as well, as far as they were known by then.
    others = [(wanted[key][1], found[key][1]) for key in wanted if wanted[key][1] != found[key][1]]
    assert [pair for pair in others if not same_but_for_names(*pair)] == []
    assert len(others) < max(20, len(found) // 100)
    assert found
    return about


@pytest.mark.full("takes more than 3 s")
def test_it_is_that_part_of_the_log(run, recorder, workloads, clean_kernel):
    flood = [workloads / "flood", 1000, -1]
    with run(flood, "-s", "scheduler", "-s", FLOOD, "--snapshots") as running:
        wait_for(lambda: running.events() > 20_000, running.process)
        made = [running.snapshot("--last", "500ms", "--text", "half a second")]
        recorder.command("mark", "--recorder", running.process.pid, "5", "between")
        made += [running.snapshot("--last", "2s"), running.snapshot()]
        chosen = running.snapshot("-o", "chosen.klog")
    assert [one["number"] for one in made] == [1, 2, 3]
    stem = str(running.out).removesuffix(".klog")
    assert [one["file"] for one in made] == [f"{stem}.snapshot-00{n}.klog" for n in (1, 2, 3)]
    assert chosen["file"] == str(recorder.dir / "chosen.klog")
    for one in [*made, chosen]:
        about = check_equal(recorder, running.out, one)
        assert {entry["key"] for entry in about["ledger"]} <= {"snapshot", "ring_full"}
        assert Path(one["file"]).stat().st_mode & 0o7777 == 0o600
    first = info(recorder, made[0]["file"])["preamble"]["snapshot"]
    assert (first["why"], first["trigger"], first["hits"]) == ("half a second", 0, 1)
    assert first["at_ns"] == first["to_ns"] == first["from_ns"] + 500_000_000
    marks = recorder.command("cat", "--event", "MARK", made[1]["file"]).out
    assert "between" in marks
    check_told(recorder, running, [*made, chosen])


def check_told(recorder, running, made):
    """The ledger of the recording lists them, and `klogger info` prints them."""
    listed = info(recorder, running.out)["snapshots"]
    keys = ("number", "file", "events", "bytes", "from_ns", "to_ns")
    assert [[one[key] for key in keys] for one in listed] == [
        [one[key] for key in keys] for one in made
    ]
    text = recorder.command("info", running.out).out
    for one in made:
        assert f"{one['file']}" in text
    text = " ".join(recorder.command("info", made[0]["file"]).out.split())
    assert f"snapshot number 1 of {running.out}, from " in text
    assert "asked for (half a second) at" in text


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize("options", [(), ("--compress",)], ids=["plain", "compressed"])
def test_while_events_are_lost(run, recorder, workloads, options):
    flood = [workloads / "flood", 3_000, -1]
    options = ("-s", FLOOD, "--buffer-size", "64K", "--snapshots", *options)
    with run(flood, *options) as running:
        wait_for(lambda: running.events() > 50_000, running.process)
        made = [running.snapshot("--last", "200ms") for _ in range(2)]
    for one in made:
        about = check_equal(recorder, running.out, one)
        lost = [e for e in events(recorder, one["file"]).values() if e[0]["event"] == "LOST"]
        assert about["lost"] == sum(e[0]["count"] for e in lost)


@pytest.mark.full("takes more than 3 s")
def test_what_memory_does_not_hold_is_said(run, recorder, workloads):
    flood = [workloads / "flood", 3_000, -1]
    options = ("-s", FLOOD, "--snapshot-memory", "1M", "--snapshot-before", "1h")
    with run(flood, *options) as running:
        wait_for(lambda: running.events() > 100_000, running.process)
        # Of a recorder that waits for a CPU, the memory may hold no whole block at that moment.
        taken = (running.snapshot() for _ in range(20))
        made = next(one for one in taken if events(recorder, one["file"]))
    assert made["short"] and made["bytes"] < 3 << 20
    about = check_equal(recorder, running.out, made)
    (entry,) = [entry for entry in about["ledger"] if entry["key"] == "snapshot_short"]
    assert entry["to_ns"] == made["from_ns"]


@pytest.mark.full("takes more than 3 s")
def test_nothing_on_the_disk_until_it_is_asked_for(run, recorder, workloads):
    flood = [workloads / "flood", 1000, -1]
    with run(flood, "-s", FLOOD, "--snapshots", out=Path("/dev/null")) as running:
        wait_for(lambda: running.events() > 10_000, running.process)
        assert sorted(path.name for path in recorder.dir.iterdir()) == []
        made = running.snapshot()
    assert made["file"] == str(recorder.dir / "flood.snapshot-001.klog")
    assert made["events"] > 5_000
    assert info(recorder, made["file"])["sound"]


@pytest.mark.full("takes more than 3 s")
def test_the_rings_of_overwrite_mode(run, recorder, workloads, clean_kernel):
    flood = [workloads / "flood", 1000, -1]
    with run(flood, "-s", FLOOD, "--overwrite", "--snapshots") as running:
        # Nothing is drained, so that there is no number of events to wait for.
        wait_for(lambda: running.snapshot()["events"] > 20_000, running.process)
        running.process.send_signal(signal.SIGUSR1)
        made = running.snapshot("--last", "1s")
    check_equal(recorder, running.out, made)


def test_the_oldest_goes(run, recorder, workloads):
    options = ("-s", FLOOD, "--snapshot-keep", "2", "--snapshot-dir", recorder.dir)
    with run([workloads / "flood", 1000, -1], *options) as running:
        made = [running.snapshot() for _ in range(4)]
    assert [Path(one["file"]).exists() for one in made] == [False, False, True, True]
    about = info(recorder, running.out)
    assert [bool(one["file"]) for one in about["snapshots"]] == [False, False, True, True]
    (entry,) = [entry for entry in about["ledger"] if entry["key"] == "snapshot_missing"]
    assert entry["text"].startswith("2 were removed to keep the last 2: ")


@pytest.fixture
def small_disk(tmp_path):
    with small_disk_at(tmp_path / "small", "256k") as folder:
        yield folder


@pytest.mark.full("takes more than 3 s")
def test_a_full_disk(run, recorder, workloads, small_disk):
    options = ("-s", FLOOD, "--snapshot-dir", small_disk)
    with run([workloads / "flood", 3_000, -1], *options) as running:
        wait_for(lambda: running.events() > 50_000, running.process)
        done = running.ask()
        assert done.code == 2
        assert re.match(r"klogger: cannot write /\S+\.snapshot-001\.klog: .*space", done.err)
        assert list(small_disk.iterdir()) == []
        made = running.snapshot("-o", "elsewhere.klog")
    check_equal(recorder, running.out, made)
    about = info(recorder, running.out)
    assert about["complete"] and about["sound"]
    assert [bool(one["missing"]) for one in about["snapshots"]] == [True, False]
    assert "snapshot_missing" in {entry["key"] for entry in about["ledger"]}


def test_another_mount_namespace_cannot_choose_the_file(run, recorder, workloads):
    with run([workloads / "flood", 1000, -1], "-s", FLOOD, "--snapshots") as running:
        words = ["snapshot", "--recorder", str(running.process.pid), "-o", "chosen.klog"]
        done = subprocess.run(
            ["unshare", "-m", recorder.klogger, *words],
            capture_output=True, text=True, check=False, cwd=recorder.dir,
        )  # fmt: skip
        assert done.returncode == 2
        assert "in another mount namespace cannot choose the file of a snapshot" in done.stderr
    assert not (recorder.dir / "chosen.klog").exists()


@pytest.mark.full("takes more than 3 s")
def test_a_recorder_that_is_killed_leaves_a_whole_snapshot_or_none(recorder, workloads):
    for _ in range(5):
        log = recorder.path()
        running = Running(
            recorder, [workloads / "flood", 20_000, -1], "-s", FLOOD, "--snapshots", out=log
        )
        wait_for(lambda: running.events() > 300_000, running.process)  # noqa: B023
        file = log.with_name(log.stem + ".snapshot-001.klog")
        asking = subprocess.Popen(
            [recorder.klogger, "snapshot", "--recorder", str(running.process.pid)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_for(lambda: asking.poll() is not None or parts(file))  # noqa: B023
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
        running.end.touch()
        asking.communicate(timeout=PATIENCE)
        os.killpg(running.process.pid, signal.SIGKILL)
        running.end.unlink()
        # Which also frees its rings.
        done = recorder.command("rescue", "-q", running.process.pid, "-o", "rescued.klog")
        assert done.code == 0, done.err
        if file.exists():
            about = info(recorder, file)
            assert about["sound"] and about["complete"]


def parts(file: Path) -> list[Path]:
    return list(file.parent.glob(f".{file.name}.part-*"))


@pytest.mark.full("takes more than 3 s")
def test_what_is_refused(run, recorder, workloads):
    flood = [workloads / "flood", 1000, -1]
    with run(flood, "-s", FLOOD) as running:
        done = running.ask()
        assert (done.code, done.err) == (
            2,
            "klogger: this recording keeps no history that a snapshot could be made of\n"
            "  help: start the recording with --snapshots\n",
        )
    running.end.unlink()
    with run(flood, "-s", FLOOD, "--snapshots") as running:
        done = running.ask("-o", running.out)
        assert (done.code, done.err) == (
            2, f"klogger: {running.out} is the log of the recording\n",
        )  # fmt: skip
        done = running.ask("-o", recorder.dir)
        assert done.code == 2 and "it is a directory" in done.err
        done = running.ask("-o", "/dev/null")
        assert done.code == 2 and "it is a device" in done.err
        assert not Path("/dev/null").is_file()
        done = running.ask("--last", "0s")
        assert done.code == 2 and "the time must be more than 0" in done.err
        done = running.ask("--text", "x" * 5000)
        assert done.err.startswith("klogger: the request has more than 4096 bytes\n")
    done = recorder.command("record", "-s", FLOOD, "--snapshot-dir", "no", "--", "true")
    assert (done.code, done.err) == (
        2,
        "klogger: --snapshot-dir no is not a directory\n"
        "  help: create it first, or choose another one\n",
    )
    done = recorder.command("record", "-s", FLOOD, "--snapshot-keep", "0", "--", "true")
    assert done.code == 2 and "0 is not in 1.." in done.err


@pytest.mark.full("takes more than 3 s")
def test_each_hit_of_a_trigger_is_in_a_snapshot_with_the_second_before_it(recorder, clean_kernel):
    recorder.read = {}
    schema = recorder.dir / "slow.klogger"
    schema.write_text(SLOW)
    trigger = "DONE where waited > 20ms: snapshot, at most 1000 per second"
    options = ("-s", schema, "--trigger", trigger, "--snapshot-before", "1s")
    done, log = recorder.run(*options, *planted(), timeout=PATIENCE)
    assert done.code == 0, done.err
    late = [
        event["time"]
        for event, _ in events(recorder, log).values()
        if event["event"] == "DONE" and event["waited"] > 20_000_000
    ]
    assert len(late) == LATE
    about = info(recorder, log)
    assert sum(one["hits"] for one in about["snapshots"]) == LATE
    hits = []
    for one in about["snapshots"]:
        span = check_equal(recorder, log, one)["preamble"]["snapshot"]
        times = {event["time"] for event, _ in events(recorder, one["file"]).values()}
        for hit in [span, *span.get("also", [])]:
            assert (hit["trigger"], hit["why"]) == (1, trigger)
            assert span["from_ns"] <= max(hit["at_ns"] - 1_000_000_000, about["start_ns"])
            assert hit["at_ns"] in times
            hits.append(hit["at_ns"])
    assert sorted(hits) == sorted(late)
