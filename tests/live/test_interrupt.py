# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Interrupts in a log against those that the kernel counts itself: /proc/interrupts and
/proc/softirqs.

A kernel that is not a stock one may hide some of its threads from BPF programs: what interrupts
those is counted, and seen by ftrace, but no program is called. So ftrace is asked as well, which
thread was interrupted.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import oracles
import pytest
from witness import Ftrace

SCHEMATA = Path(__file__).resolve().parents[2] / "schemata"
INTERRUPT = SCHEMATA / "interrupt" / "interrupt.klogger"
CAUSES = SCHEMATA / "causes" / "causes.klogger"
TRAPS = SCHEMATA / "traps" / "traps.klogger"
CPU = os.cpu_count() - 1

# Lines of /proc/interrupts, the kinds of VEC_IN that they count, and the kernel's names of these.
VECTORS = {
    "LOC": {0: "local_timer"},
    "RES": {1: "reschedule"},
    "CAL": {2: "call_function", 3: "call_function_single"},
    "IWI": {4: "irq_work"},
}
SOFTIRQS = (
    "HI",
    "TIMER",
    "NET_TX",
    "NET_RX",
    "BLOCK",
    "IRQ_POLL",
    "TASKLET",
    "SCHED",
    "HRTIMER",
    "RCU",
)


def counts(path: str):
    """{(line, CPU): count} of a table in /proc, with the moment before it was read and
    that after.
    """
    before = time.monotonic_ns()
    lines = Path(path).read_text().splitlines()
    after = time.monotonic_ns()
    cpus = [int(name.removeprefix("CPU")) for name in lines[0].split()]
    table = {}
    for line in lines[1:]:
        name, *numbers = line.split()
        if len(numbers) >= len(cpus) and all(n.isdigit() for n in numbers[: len(cpus)]):
            table.update(
                {(name.rstrip(":"), cpu): int(n) for cpu, n in zip(cpus, numbers, strict=False)}
            )
    return before, table, after


class Strangers(Ftrace):
    """Which threads were interrupted, by what, as ftrace has it."""

    LINE = re.compile(r"-(\d+)\s+\[(\d+)\] \S+\s+[\d.]+: (\w+): (?:vec|irq|vector)=(\d+)")

    def __init__(self):
        vectors = [
            f"irq_vectors/{name}_entry" for names in VECTORS.values() for name in names.values()
        ]
        super().__init__(*vectors, "irq/softirq_entry", "irq/irq_handler_entry", kib=16384)

    def __exit__(self, *reason):
        super().__exit__(*reason)
        self.hits = self.LINE.findall(self.text)

    def count(self, known: set, cpu: int, event: str, number: int | None = None) -> int:
        """Hits on a CPU that interrupted none of the threads `known`."""
        return sum(
            1
            for pid, where, name, value in self.hits
            if name == event
            and int(where) == cpu
            and number in (None, int(value))
            and int(pid) not in known
        )


class Expired(Ftrace):
    """The kernel's timers that were due, as ftrace has them."""

    LINE = re.compile(
        r"-(\d+)\s+\[(\d+)\] \S+\s+(\d+)\.(\d{6}): hrtimer_expire_entry: .*function=(\w+)"
    )

    def __init__(self):
        super().__init__("timer/hrtimer_expire_entry", kib=16384, clock="mono")

    def interrupted(self, cpu: int, function: str, since_ns: int, until_ns: int) -> list[int]:
        """The threads that a timer with this function interrupted on a CPU."""
        found = []
        for pid, where, seconds, us, name in self.LINE.findall(self.text):
            time_ns = int(seconds) * 1_000_000_000 + int(us) * 1000
            if (int(where), name) == (cpu, function) and since_ns <= time_ns <= until_ns:
                found.append(int(pid))
        return found


class Counted:
    """What the kernel counted between two readings that lie within a recording."""

    def __init__(self, recorder, workloads):
        self.path = recorder.path()
        with Strangers() as self.strangers:
            process = recorder.start(
                "-s", INTERRUPT, "--", workloads / "mixture", 1500, out=self.path
            )
            self.began, self.ended = {}, {}
            # The recorder has attached its probes when its workload says that it began.
            self.look(process, "began", self.began)
            self.look(process, "worked", self.ended)
            process.communicate(timeout=60)
        assert process.returncode == 0
        self.log = oracles.Log(recorder.klogger, self.path)
        self.known = {pid for (pid,) in self.log.rows("SELECT pid FROM process UNION SELECT 0")}

    @staticmethod
    def look(process, word, at):
        assert process.stdout.readline().startswith(word), process.stderr.read()
        for table in ("interrupts", "softirqs"):
            at[table] = counts(f"/proc/{table}")

    def agree(self, table, line, cpu, select, events, number=None):
        """The log has what the kernel counted between the two readings, which may each be in the
        middle of something.

        `select` gives the column time; `events` are ftrace's names of the same.
        """
        (b0, first, b1), (e0, last, e1) = self.began[table], self.ended[table]
        counted = last[line, cpu] - first[line, cpu]
        start = self.log.start_ns

        def logged(since, until):
            return self.log.one(
                f"SELECT count(*) FROM ({select}) WHERE time BETWEEN {since - start} AND"
                f" {until - start}"
            )

        hidden = sum(self.strangers.count(self.known, cpu, event, number) for event in events)
        # A CPU counts an interrupt some instructions before it is logged, or after that.
        least, most = logged(b1, e0) - 1, logged(b0, e1) + 1 + hidden
        assert least <= counted <= most, (
            f"{line} of CPU {cpu}: counted {counted}, logged {least} to {most}"
        )
        return counted


@pytest.fixture(scope="module")
def kept(klogger, workloads, tmp_path_factory):
    """One recording that several tests ask: it has interrupts of all sorts in it."""
    from conftest import Recorder

    recorder = Recorder(klogger, tmp_path_factory.mktemp("interrupt"))
    yield Counted(recorder, workloads)
    recorder.end()
    shutil.rmtree(recorder.dir, ignore_errors=True)


@pytest.mark.parametrize("line", VECTORS)
def test_vectors_are_those_of_proc(kept, line):
    kinds, total = ", ".join(map(str, VECTORS[line])), 0
    for cpu in range(os.cpu_count()):
        select = f"SELECT time FROM vec_in WHERE cpu = {cpu} AND kind IN ({kinds})"
        total += kept.agree(
            "interrupts", line, cpu, select, [f"{name}_entry" for name in VECTORS[line].values()]
        )
    assert total > 0 or line == "IWI", f"there were no {line} interrupts: the workload made none"


def test_device_interrupts_are_those_of_proc(kept):
    devices = {name for name, _ in kept.began["interrupts"][1] if name.isdigit()}
    assert devices
    total = 0
    for name in sorted(devices):
        for cpu in range(os.cpu_count()):
            select = f"SELECT time FROM irq_in WHERE cpu = {cpu} AND irq = {name}"
            total += kept.agree("interrupts", name, cpu, select, ["irq_handler_entry"], int(name))
    assert total > 0, "no device interrupted: the workload's direct writes did not reach one"


def test_devices_have_their_names(kept):
    lines = dict(
        line.split(":", 1) for line in Path("/proc/interrupts").read_text().splitlines()[1:]
    )
    named = kept.log.rows("SELECT DISTINCT irq, name FROM irq_name")
    assert named
    for irq, name in named:
        assert name in [
            word for (k, words) in lines.items() if k.strip() == str(irq) for word in words.split()
        ]
    assert (
        kept.log.one(
            "SELECT count(DISTINCT irq) FROM irq_in WHERE irq NOT IN (SELECT irq FROM irq_name)"
        )
        == 0
    )


def test_soft_interrupts_are_those_of_proc(kept):
    total = 0
    for kind, line in enumerate(SOFTIRQS):
        for cpu in range(os.cpu_count()):
            select = f"SELECT time FROM soft_in WHERE cpu = {cpu} AND kind = {kind}"
            total += kept.agree("softirqs", line, cpu, select, ["softirq_entry"], kind)
    assert total > 0


def test_what_begins_ends(kept):
    """On each CPU, in the order in which they were logged: an end follows its beginning, and
    nothing is crossed.
    """
    since, until = (
        kept.began["interrupts"][2] - kept.log.start_ns,
        kept.ended["interrupts"][0] - kept.log.start_ns,
    )
    rows = kept.log.rows(f"""
        SELECT cpu, serial, time, begins, level, kind FROM (
            SELECT cpu, serial, time, true AS begins, 2 AS level, kind::INTEGER AS kind FROM vec_in
            UNION ALL SELECT cpu, serial, time, false, 2, kind FROM vec_out
            UNION ALL SELECT cpu, serial, time, true, 1, irq FROM irq_in
            UNION ALL SELECT cpu, serial, time, false, 1, irq FROM irq_out
            UNION ALL SELECT cpu, serial, time, true, 0, kind FROM soft_in
            UNION ALL SELECT cpu, serial, time, false, 0, kind FROM soft_out)
        WHERE time BETWEEN {since} AND {until} ORDER BY cpu, time, serial""")
    assert len(rows) > 100
    for cpu in range(os.cpu_count()):
        open_now, begun = [], False
        for _, serial, when, begins, level, kind in [row for row in rows if row[0] == cpu]:
            if begins:
                # Only a soft interrupt can be interrupted.
                assert all(outer == 0 for outer, _ in open_now), (cpu, when, open_now, level, kind)
                assert level > 0 or not open_now, (cpu, when, open_now, kind)
                open_now.append((level, kind))
                begun = True
            elif open_now:
                assert open_now.pop() == (level, kind), (cpu, serial, when, level, kind)
            else:
                assert not begun or level == 0, f"CPU {cpu} at {when}: an end without a beginning"


@pytest.mark.full("depends on how busy the machine is")
def test_self_times_add_up_to_the_union(kept):
    """The time of all handlers without what interrupted them is the time in which there was one,
    but for what logging took: of each its first event, and of one that interrupted another also its
    last.
    """
    answer = report(kept.path, "direct")
    assert answer["status"] == "answer"
    own = sum(row["time"] for row in answer["table"])
    edges = kept.log.rows("""
        SELECT cpu, level, time, begins, event FROM (
            SELECT cpu, 1 AS level, time, serial, true AS begins, 'VEC_IN' AS event FROM vec_in
            UNION ALL SELECT cpu, 1, time, serial, false, 'VEC_OUT' FROM vec_out
            UNION ALL SELECT cpu, 1, time, serial, true, 'IRQ_IN' FROM irq_in
            UNION ALL SELECT cpu, 1, time, serial, false, 'IRQ_OUT' FROM irq_out
            UNION ALL SELECT cpu, 0, time, serial, true, 'SOFT_IN' FROM soft_in
            UNION ALL SELECT cpu, 0, time, serial, false, 'SOFT_OUT' FROM soft_out)
        ORDER BY cpu, level, time, serial""")
    pairs = [(a, b) for a, b in itertools.pairwise(edges) if a[3] and not b[3] and a[:2] == b[:2]]
    costs = {
        e["event"]: (e["cost"] or {"ns": 0})["ns"]
        for e in kept.log.meta["preamble"]["costs"]["events"]
    }
    union, logging, reached = 0, 0, (-1, 0)
    for cpu, begins, ends, first, last in sorted((a[0], a[2], b[2], a[4], b[4]) for a, b in pairs):
        inside = cpu == reached[0] and ends <= reached[1]
        logging += costs[first] + (costs[last] if inside else 0)
        since = max(begins, reached[1]) if cpu == reached[0] else begins
        union += max(ends - since, 0)
        reached = (cpu, max(ends, since))
    assert own == pytest.approx(union - logging, rel=0.01)


@pytest.mark.full("depends on how busy the machine is")
def test_a_timer_of_1_khz_adds_its_interrupts(recorder, workloads):
    """The kernel's own timer, which does not wait for a thread: a thousand a second, and those of
    the tick.
    """
    ticks = {}
    for name, period_us in (("none", 1_000_000), ("planted", 1000)):
        command = [workloads / "timerstorm", 2000, period_us, CPU, "kernel"]
        with Expired() as ftrace:
            log, said = recorder.log("-s", INTERRUPT, "-s", CAUSES, "--", *command)
        since, until = said["began_ns"] - log.start_ns, said["ended_ns"] - log.start_ns
        window = f"cpu = {CPU} AND time BETWEEN {since} AND {until}"
        ticks[name] = log.count("VEC_IN", f"kind = 0 AND {window}")
        runs = log.count("HRT_IN", f"fn_symbol LIKE 'perf_swevent_hrtimer%' AND {window}")
    # Fewer than 2000 if the hypervisor had the CPU when some were due; but as many as ftrace has
    # seen, except for those in threads that the kernel hides from programs of ours.
    seen = ftrace.interrupted(CPU, "perf_swevent_hrtimer", said["began_ns"], said["ended_ns"])
    known = {pid for (pid,) in log.rows("SELECT pid FROM process UNION SELECT 0")}
    hidden = [pid for pid in seen if pid not in known]
    assert said["timers"] > 500, said
    assert ftrace.lost == 0
    assert len(seen) - len(hidden) <= runs <= len(seen), (runs, len(seen), hidden, said)
    # One interrupt may serve several timers; others who run here may set some more or some less.
    assert ticks["planted"] - ticks["none"] >= 0.5 * runs, (ticks, runs)


@pytest.mark.full("depends on how busy the machine is")
@pytest.mark.parametrize(
    ("how", "says"), [((), "Timer storm: timerstorm["), (("kernel",), "perf_swevent_hrtimer")]
)
def test_a_timer_storm_is_the_first_finding(recorder, workloads, how, says):
    done, path = recorder.run(
        "-s", INTERRUPT, "-s", CAUSES, "--", workloads / "timerstorm", 2000, 50, CPU, *how
    )
    assert done.code == 0, done.err
    first = report(path)["findings"][0]
    text = first["text"] if isinstance(first, dict) else first
    assert text.startswith("Timer storm: "), text
    assert says in text, text
    assert "timerstorm[" in text, text


@pytest.mark.full("depends on how busy the machine is")
def test_a_storm_is_found_without_its_cause(recorder, workloads):
    done, path = recorder.run(
        "-s", INTERRUPT, "--", workloads / "timerstorm", 2000, 50, CPU, "kernel"
    )
    assert done.code == 0, done.err
    finding = report(path, "rates")["findings"][0]
    assert finding.startswith(f"Timer storm: local_timer interrupted CPU {CPU} "), finding


@pytest.mark.full("depends on how busy the machine is")
def test_stolen_time_is_that_of_proc_stat(recorder, workloads):
    """What STEAL adds up to, against the eighth number of each CPU's line; both are as of some
    tick.
    """

    def stolen():
        lines = [
            line.split()
            for line in Path("/proc/stat").read_text().splitlines()
            if line.startswith("cpu")
        ]
        return {int(words[0][3:]): int(words[8]) for words in lines[1:]}

    before = stolen()
    log, _ = recorder.log("-s", INTERRUPT, "--", workloads / "spinners", os.cpu_count(), 1500)
    after = stolen()
    for cpu, last in after.items():
        logged = log.one(
            f"SELECT coalesce(max(total) - min(total), 0) FROM steal WHERE cpu = {cpu}"
        )
        # In hundredths of a second. The log's first STEAL is what was stolen before it; the
        # readings are outside of it.
        assert logged / 1e7 <= last - before[cpu] + 3, (cpu, logged, before, after)


def test_calls_of_a_program_are_counted(recorder, workloads):
    """Each hit of the flood is one prctl, and nothing of other programs is logged."""
    log, said = recorder.log(
        "-s", TRAPS, "--buffer-size", "16M", "--", workloads / "flood", 20_000, 0
    )
    oracles.check_whole(log)
    tids = ", ".join(str(thread["tid"]) for thread in said["threads"])
    assert log.count("SYS_IN", f"pid IN ({tids}) AND id = 157") == 20_000
    assert log.count("SYS_OUT", f"pid IN ({tids}) AND id = 157") == 20_000
    assert log.one("SELECT count(*) FROM sys_in WHERE pid NOT IN (SELECT pid FROM process)") == 0


def report(log, *names):
    """An analysis as `klogger report --format json` gives it; all, if none is named."""
    words = [word for name in names for word in ("--analysis", name)]
    command = [Path(sys.executable).with_name("klogger-report"), log, "--format", "json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return answer["analyses"][0] if names else answer
