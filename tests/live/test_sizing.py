# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Rings that grow: a flood whose reader is held up for a moment loses events in a small ring, and
none in one that grew before it came to that.
"""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import oracles
import pytest
from disturbed import disturbed

SCHEMA = Path(__file__).with_name("numbered.klogger")
ENDLESS = 1_000_000_000
EVENT = "NUMBERED"
# What a flood needs to fill a ring of 1 MiB twice over on a machine where a hit takes 5 us.
FULL_MS = 500


class Reader:
    """How long the thread of the recorder that empties a CPU's ring was kept from running."""

    def __init__(self, pid: int, cpu: int, ms: int):
        self.pid, self.name, self.ms = pid, f"klogger/{cpu}", ms
        self.stats = None
        # When, and how long it had waited for its CPU until then, as the kernel counts that.
        self.waited: list[tuple[float, float]] = []
        # How long the recorder was stopped, each time.
        self.stopped: list[float] = []

    def look(self, seconds: float = 0.0) -> None:
        """Every 10 ms, for so long."""
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                if self.stats is None:
                    tasks = Path(f"/proc/{self.pid}/task").iterdir()
                    task = next(t for t in tasks if (t / "comm").read_text().strip() == self.name)
                    self.stats = task / "schedstat"
                waited_ns = int(self.stats.read_text().split()[1])
                self.waited.append((time.monotonic() * 1e3, waited_ns / 1e6))
            if time.monotonic() >= until:
                return
            time.sleep(0.01)

    def check(self, failed: str) -> None:
        """Ends the test: without a verdict if the reader was kept from its CPU for too long, else
        as a failure. A ring that has grown has room for a stop of `ms`, and as much delay besides.
        """
        longest = max(self.stopped) - self.ms
        waits = [
            next((later - waited for at, later in self.waited[i:] if at >= begin + self.ms), 0.0)
            for i, (begin, waited) in enumerate(self.waited)
        ]
        if max(longest, *waits) > self.ms:
            disturbed(
                f"{failed}; the reader waited {max(waits):.0f} ms for its CPU within {self.ms} ms, "
                f"and was stopped for {longest:.0f} ms more than it should"
            )
        pytest.fail(failed)


@pytest.fixture
def held_up(recorder, workloads):
    """Records a flood on one CPU, and stops the recorder again and again for `ms`, after the rings
    have had time to grow; the log, what the recorder said, and how its reader fared."""

    def record(*options, ms=100, times=3, flood_ms=0):
        log = recorder.path()
        # The last CPU; the recorder's other threads, and this test, have the rest.
        flood = [workloads / "flood", ENDLESS, os.cpu_count() - 1, 1, "unknown"]
        process = recorder.start("-s", SCHEMA, *options, "--", *flood, out=log)
        reader = Reader(process.pid, os.cpu_count() - 1, ms)
        deadline = time.monotonic() + 60
        while not (log.exists() and log.stat().st_size >= 20_000_000):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.01)
            with contextlib.suppress(StopIteration):
                reader.look()
        for _ in range(times):
            reader.look(0.3)
            began = time.monotonic()
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(ms / 1000)
            let_flood_run(process, flood_ms)
            os.kill(process.pid, signal.SIGCONT)
            reader.stopped.append((time.monotonic() - began) * 1e3)
        reader.look(0.3)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        # The flood's own child goes on, and has our pipes.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        _, said = process.communicate(timeout=60)
        return oracles.Log(recorder.klogger, log), said, reader

    return record


def let_flood_run(process, ms):
    """Until it has had so much time of its CPU since now, however busy the machine is."""

    def flood_ns():
        members = [
            stat for stat in Path("/proc").glob("[0-9]*/stat") if group_of(stat) == process.pid
        ]
        return max(
            (int(m.with_name("schedstat").read_text().split()[0]) for m in members), default=0
        )

    before, deadline = flood_ns(), time.monotonic() + 60
    while ms and flood_ns() < before + ms * 1_000_000:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def group_of(stat):
    """The process group of a process that may end meanwhile, if it is a flood."""
    with contextlib.suppress(OSError):
        name, fields = stat.read_text().rsplit(")", 1)
        return int(fields.split()[2]) if name.endswith("(flood") else None


def check_every_hit(log):
    """The workload numbers its hits: logged or lost, none is missing."""
    ((hits, logged),) = log.rows("SELECT max(number) + 1, count(*) FROM numbered")
    after = log.one(
        "SELECT coalesce(sum(count), 0) FROM lost WHERE serial > (SELECT max(serial) FROM numbered)"
    )
    assert logged + log.lost(EVENT) - after == hits
    assert logged == log.one("SELECT count(DISTINCT number) FROM numbered")
    oracles.check_serials(log)


def grown(log):
    return log.rows(
        "SELECT cpu, severity, from_ns, to_ns, text FROM ledger WHERE key = 'ring_grown'"
    )


@pytest.mark.full("takes more than 3 s")
def test_a_ring_of_a_given_size_stays_so_and_loses(held_up, clean_kernel):
    log, said, _ = held_up("--buffer-size", "1M", flood_ms=FULL_MS)
    assert log.lost(EVENT) > 0, "the flood was no flood"
    assert grown(log) == []
    assert "ring_grown" not in said
    check_every_hit(log)


@pytest.mark.full("takes more than 3 s")
def test_with_no_memory_to_grow_it_loses(held_up):
    log, said, _ = held_up("--buffer-size", "1M", "--max-memory", "2M", flood_ms=FULL_MS)
    assert log.lost(EVENT) > 0, "the flood was no flood"
    assert grown(log) == [] and "ring_grown" not in said
    check_every_hit(log)


# For how long the recorder stands still: half of the larger ring has room for three times what
# comes meanwhile.
GROWING = [((), 100, 4096), (("--buffer-size", "2M", "--max-memory", "256M"), 50, 2048)]


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize(("options", "ms", "kib"), GROWING, ids=["default", "asked"])
def test_a_ring_grows_before_it_loses(held_up, clean_kernel, options, ms, kib, klogger):
    """Nothing is lost, unless the reader is kept from its CPU for longer than a ring lasts."""
    cpu = os.cpu_count() - 1
    log, said, reader = held_up(*options, ms=ms)
    entries = grown(log)
    assert cpu in [row[0] for row in entries]
    for _, severity, at, to, text in entries:
        assert severity == "info"
        assert 0 < at == to
        assert "KiB to" in text
    assert re.search(f"ring_grown \\(info\\), CPU [0-9, ]+:\\s+from {kib} KiB to", said)
    check_every_hit(log)
    if log.lost(EVENT) > 0:
        reader.check(f"{log.lost(EVENT)} events were lost: {said}")
    oracles.check_whole(log)
    oracles.check_order(klogger, log.path)


@pytest.mark.full("takes more than 3 s")
def test_a_quiet_recording_keeps_its_rings(recorder, workloads):
    done, path = recorder.run("-s", SCHEMA, "--", workloads / "flood", 997, 0, 1, "unknown")
    assert done.code == 0, done.err
    log = oracles.Log(recorder.klogger, path)
    assert grown(log) == []
    assert log.count(EVENT) == 997


@pytest.mark.full("takes more than 3 s")
def test_what_a_grown_ring_holds_is_rescued(recorder, workloads, clean_kernel):
    """A recorder that is killed after its rings have grown: each hit is in the log, or counted."""
    path = recorder.path()
    flood = [workloads / "flood", ENDLESS, 0, 1, "unknown"]
    options = ("--buffer-size", "1M", "--max-memory", "256M")
    process = recorder.start("-s", SCHEMA, *options, "--", *flood, out=path)
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size >= 40_000_000):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    assert Path(f"/sys/fs/bpf/klogger/{process.pid}-{started(process.pid)}/larger-0").exists(), (
        "it did not grow"
    )
    # While it stands, only its ring takes events.
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.05)
    process.kill()
    process.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    out = recorder.path()
    done = recorder.command("rescue", process.pid, "-o", out)
    assert done.code == 0, done.err
    log = oracles.Log(recorder.klogger, out)
    before = oracles.Log(recorder.klogger, path)
    ((hits, logged),) = log.rows("SELECT max(number) + 1, count(*) FROM numbered")
    assert logged > before.count(EVENT)
    missing = log.one("SELECT coalesce(sum(count), 0) FROM ledger WHERE severity = 'loss'")
    assert hits - logged == missing, log.rows("SELECT key, cpu, count FROM ledger")
    # What was on its way is missing right behind what the file had of that CPU.
    for cpu, first, last in log.rows(
        "SELECT cpu, from_ns, to_ns FROM ledger WHERE key = 'in_flight'"
    ):
        assert first == last == before.one(f"SELECT max(time) FROM numbered WHERE cpu = {cpu}")
    oracles.check_serials(log)


def started(pid: int) -> str:
    """When the kernel began it, as its folder of maps has it."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
