# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Logs as tables, and what must be true of them.

An oracle compares a log with what the kernel, or the workload itself, has counted. The same ones
are asked on the live kernel and in the guest.
"""

import dataclasses
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import duckdb

NEVER = 1 << 62
SCHEMATA = Path(__file__).resolve().parents[1] / "schemata"


class Log:
    """A log's tables, in DuckDB, by way of `klogger export`."""

    def __init__(self, klogger: Path, path: Path):
        self.path = path
        tables = path.with_name(path.name + "-tables")
        command = [klogger, "export", "--to", "parquet", path, "-o", tables]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"klogger export: {done.stderr}"
        self.meta = json.loads((tables / "meta.json").read_text())
        self.start_ns = self.meta["preamble"]["clock"]["start_ns"]
        self.db = duckdb.connect()
        self.db.execute("SET memory_limit = '1GB'")
        self.tables = set()
        for file in tables.glob("*.parquet"):
            name = file.stem.lower()
            self.tables.add(name)
            self.db.execute(f"CREATE VIEW \"{name}\" AS SELECT * FROM read_parquet('{file}')")

    def rows(self, query: str) -> list:
        return self.db.execute(query).fetchall()

    def one(self, query: str):
        """The only value of the only row."""
        ((value,),) = self.rows(query)
        return value

    def count(self, event: str, where: str = "true") -> int:
        return self.one(f'SELECT count(*) FROM "{event.lower()}" WHERE {where}')

    def lost(self, event: str) -> int:
        return self.one(f"SELECT coalesce(sum(lost), 0) FROM event WHERE name = '{event}'")

    def events(self) -> list[str]:
        """The events of this log."""
        return [name for (name,) in self.rows("SELECT name FROM event")]


def answers(klogger: Path, path: Path, *options: str) -> dict[str, list[dict]]:
    """What `klogger report` answers about a log, with the analyses of this checkout: the rows of
    each one's table, by its name; each row by its columns.
    """
    words = [sys.executable, "-m", "klogger.cli.report", path, "--format", "json", *options]
    env = {**os.environ, "KLOGGER": str(klogger), "KLOGGER_SCHEMATA": str(SCHEMATA)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, env=env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["analyses"]
    assert [one["name"] for one in found if one["status"] == "failed"] == []
    return {one["name"]: one["table"] for one in found}


class Stolen:
    """How long, at most, a hypervisor kept the CPUs from this machine while it was entered, in
    nanoseconds.
    """

    def __enter__(self):
        self.before = self.ticks()
        return self

    def __exit__(self, *_):
        # Each CPU may have had almost one tick that was not counted yet.
        ticks = self.ticks() - self.before + (os.cpu_count() or 1)
        self.ns = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")

    @staticmethod
    def ticks() -> int:
        return int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8])


def workload_json(text: str) -> dict:
    """What a workload printed; what precedes it is other programs' output."""
    return json.loads(text[text.index("{") :])


def check_passed_on(log: Log, report: dict):
    """Of tests/live/passed_on.klogger: what each probe has put, the next one has taken."""
    # Of the timer, where the machine is busy.
    lost = "severity IN ('loss', 'error') AND key <> 'sample_missed'"
    assert log.rows(f"SELECT key, text FROM ledger WHERE {lost}") == []
    rounds = log.rows("SELECT number, via, rounds - number FROM PASSED ORDER BY time")
    # Steps 1 to 8. The program was named before: when it was started.
    assert rounds == [(number, 0x1FE, 2) for number in range(report["rounds"])]
    own = f"pid = {report['pid']}"
    assert log.count("BACK", f"{own} AND found") >= report["sleeps"]
    # When it went before the first one, nothing was kept yet.
    assert log.count("BACK", f"{own} AND NOT found") <= 1
    ticks = log.rows("SELECT cpu, min(number), max(number), count(*) FROM TICKED GROUP BY cpu")
    assert log.count("TICKED", "NOT found") == 0 and len(ticks) >= 1
    assert all(last - first + 1 == count for _, first, last, count in ticks)


def pairs_of_calls(many: int, loop: bool) -> str:
    """A schema with so many puts and takes in one probe, one after another or in a loop."""
    pair = """
    entry = klogger_put(seen, key + {n});
    if (entry)
        entry->value = {n};
    found += klogger_take(seen, key + {n}, &copy) ? 1 : 0;
"""
    pairs = "".join(pair.format(n=n) for n in range(many))
    if loop:
        pairs = f"for (unsigned int i = 0; i < {many}; i++) {{{pair.format(n='i')}}}\n"
    return f"""schema pairs
state seen[1000] by ulong {{ ulong value }}
event FOUND {{ uint found }}
probe tracepoint task_rename(struct task_struct *task) {{
    struct seen copy, *entry;
    unsigned int key = task->pid, found = 0;
{pairs}
    klogger(FOUND, found);
}}
"""


def check_whole(log: Log):
    """Nothing was lost, and the log says so."""
    assert log.one("SELECT coalesce(sum(lost), 0) FROM event") == 0
    assert log.rows("SELECT key, text FROM ledger WHERE severity IN ('loss', 'error')") == []
    assert log.count("KLOGGER_START") == 1
    assert log.count("KLOGGER_FINISH") == 1


@dataclass(frozen=True)
class Slack:
    """What CPU time in the log may differ by from the kernel's account of it."""

    share: float
    # Of a thread that ran for less, the few instructions between two clocks are more than that.
    least_ns: int
    # The kernel reads its clock some instructions before the tracepoint, and for one partner of a
    # fast ping-pong always some more than for the other. Beside quanta of a microsecond that is
    # seen in each of them, but not in their sum.
    ns_per_switch: int
    ns_per_switch_in_sum: int
    # Before a CPU goes idle, the kernel looks for work elsewhere, and no thread is charged for
    # that.
    ns_before_idle: int = 1000
    # A quantum that differs by more was disturbed: an interrupt came between the kernel's clock and
    # the tracepoint, or the hypervisor ran another guest.
    disturbed_ns: int = 5000


HARDWARE = Slack(0.005, 20_000_000, 20, 0)
# An emulated instruction takes a hundred times as long, and Debian's kernel leaves the time of
# interrupts out.
EMULATED = Slack(0.03, 200_000_000, 50_000, 50_000, disturbed_ns=NEVER)
# So many quanta may be disturbed, unless the kernel says that so much time was stolen.
DISTURBED_SHARE = 0.02


def check_threads(log: Log, report: dict, slack: Slack = HARDWARE):
    """Each thread that reported: its switches and its CPU time are the kernel's."""
    assert report["threads"]
    replayed = Replay()
    for thread in report["threads"]:
        check_switches(log, thread)
        check_charged(log, thread, slack)
        replayed += check_cpu_time(log, thread, slack, report.get("stolen_ns", 0))
    runs = sum(thread["schedstat_runs"] for thread in report["threads"])
    if replayed.charged_ns >= slack.least_ns:
        allowed = slack.share * replayed.charged_ns + slack.ns_per_switch_in_sum * runs
        assert replayed.is_near(allowed, slack), replayed


def check_switched_out(log: Log, thread: dict) -> int:
    """How often the thread stopped running: exactly as often as the kernel counted, and for the
    same reasons.
    """
    mine = f"pid = {thread['tid']} AND time <= {thread['time_ns'] - log.start_ns}"
    out = log.count("SCHEDOUT", mine)
    preempted = log.count("SCHEDOUT", f"{mine} AND state = 0")
    assert (out, preempted) == (thread["nvcsw"] + thread["nivcsw"], thread["nivcsw"]), thread
    return out


def check_switches(log: Log, thread: dict):
    mine = f"pid = {thread['tid']} AND time <= {thread['time_ns'] - log.start_ns}"
    out = check_switched_out(log, thread)
    # The kernel's number of runs was read a moment before the others.
    runs = log.count("SCHEDIN", mine)
    assert thread["schedstat_runs"] <= runs <= thread["schedstat_runs"] + 3, thread
    # Between one SCHEDIN and the next there is a SCHEDOUT.
    assert runs == out + 1, thread


def check_charged(log: Log, thread: dict, slack: Slack):
    """The account that SCHEDOUT carries is the thread's own view of it: 0.5 %, however short its
    quanta.
    """
    until = thread["time_ns"] - log.start_ns
    ((charged, ended),) = log.rows(
        f"""
        SELECT arg_max(charged, time), max(time) FROM schedout
        WHERE pid = {thread["tid"]} AND time <= {until}"""
    )
    began = log.one(
        f"SELECT max(time) FROM schedin WHERE pid = {thread['tid']} AND time <= {until}"
    )
    assert ended <= began
    if thread["cpu_ns"] >= slack.least_ns:
        difference = abs(charged + until - began - thread["cpu_ns"] % (1 << 32))
        assert min(difference, (1 << 32) - difference) <= slack.share * thread["cpu_ns"], (
            charged,
            began,
            thread,
        )


@dataclass(frozen=True)
class Replay:
    """Nanoseconds that threads ran: by the times of their SCHEDIN and SCHEDOUT, and as the kernel
    charged them for the same quanta. Of the disturbed quanta, their number and what they differ by.

    The kernel's account begins a quantum on an idle CPU when it wakes the thread, if it does so
    under that CPU's lock, and not when the CPU gets to it. What the account has more is then part
    of the wake-up latency.
    """

    ns: int = 0
    charged_ns: int = 0
    quanta: int = 0
    disturbed: int = 0
    disturbed_ns: int = 0
    woken_ns: int = 0
    to_idle: int = 0

    def __add__(self, other):
        mine, others = (dataclasses.astuple(replay) for replay in (self, other))
        return Replay(*(a + b for a, b in zip(mine, others, strict=True)))

    def is_near(self, allowed: float, slack: Slack) -> bool:
        difference = self.ns - self.charged_ns
        return (
            -allowed - self.woken_ns <= difference <= allowed + self.to_idle * slack.ns_before_idle
        )


def woken_to_idle(log: Log, tid: int, until: int) -> int:
    """Sum of the thread's wake-up latencies, of those that met an idle CPU."""
    return log.one(f"""
        SELECT coalesce(sum(i.time - w.time), 0)::BIGINT
        FROM (FROM schedin WHERE pid = {tid} AND time <= {until}) AS i
        ASOF JOIN (FROM try_to_wakeup WHERE pid = {tid}) AS w ON i.time >= w.time
        ASOF LEFT JOIN schedout AS o ON i.cpu = o.cpu AND i.time >= o.time
        WHERE o.next IS DISTINCT FROM {tid}""")


def replay_quanta(log: Log, tid: int, until: int, slack: Slack) -> Replay:
    """Each quantum but the first, whose charge is not known, and the last, which has not ended."""
    undisturbed = f"abs(ns - charged) <= {slack.disturbed_ns} + {slack.share} * ns"
    ((ns, charged, quanta, disturbed, disturbed_ns),) = log.rows(f"""
        WITH switch AS (
            SELECT time, true AS is_in, NULL AS charged FROM schedin WHERE pid = {tid}
            UNION ALL SELECT time, false, charged FROM schedout WHERE pid = {tid}
        ), quantum AS (
            SELECT time - lag(time) OVER w AS ns,
                   (charged::BIGINT - lag(charged, 2) OVER w) & 4294967295 AS charged,
                   NOT is_in AND lag(is_in) OVER w AND time <= {until} AS is_quantum
            FROM switch WINDOW w AS (ORDER BY time, is_in)
        )
        SELECT coalesce(sum(ns) FILTER ({undisturbed}), 0)::BIGINT,
               coalesce(sum(charged) FILTER ({undisturbed}), 0)::BIGINT,
               count(*), count(*) FILTER (NOT {undisturbed}),
               coalesce(sum(abs(ns - charged)) FILTER (NOT {undisturbed}), 0)::BIGINT
        FROM quantum WHERE is_quantum AND charged IS NOT NULL""")
    to_idle = log.count("SCHEDOUT", f"pid = {tid} AND next = 0 AND time <= {until}")
    return Replay(
        ns, charged, quanta, disturbed, disturbed_ns, woken_to_idle(log, tid, until), to_idle
    )


def check_cpu_time(log: Log, thread: dict, slack: Slack, stolen_ns: int) -> Replay:
    replay = replay_quanta(log, thread["tid"], thread["time_ns"] - log.start_ns, slack)
    if thread["cpu_ns"] >= slack.least_ns:
        # The charge of the first quantum is in the thread's own account, but in no difference of
        # two SCHEDOUT.
        assert replay.quanta >= thread["schedstat_runs"] - 3, (replay, thread)
        allowed = slack.share * replay.charged_ns + slack.ns_per_switch * replay.quanta
        assert replay.is_near(allowed, slack), (replay, thread)
        few = max(DISTURBED_SHARE * replay.quanta, 5)
        assert replay.disturbed <= few or replay.disturbed_ns <= stolen_ns, (
            replay,
            thread,
            stolen_ns,
        )
    return replay


def check_pingpong(log: Log, report: dict):
    """Both partners blocked in each round, unless the other was quicker on another CPU; never more
    often.
    """
    for thread in report["threads"]:
        blocked = log.count("SCHEDOUT", f"pid = {thread['tid']} AND state <> 0")
        woken = log.count("TRY_TO_WAKEUP", f"pid = {thread['tid']}")
        assert blocked > 0
        # Blocked once more to end; each time but that it was woken.
        assert blocked - 2 <= woken <= report["rounds"] + 20, thread


def check_forks(log: Log, report: dict, n: int):
    """Exactly n forks, execs and exits of the workload's children."""
    children = report["children"]
    assert len(set(children)) == n
    pids = ", ".join(map(str, children))
    assert log.count("FORK", f"parent = {report['pid']}") == n
    assert log.count("FORK", f"child IN ({pids}) AND tgid = child") == n
    assert log.count("EXEC", f"pid IN ({pids})") == n
    assert log.count("EXIT", f"pid IN ({pids})") == n
    assert log.count("EXIT", f"pid IN ({pids}) AND group_dead = 1") == n


def check_serials(log: Log, allow_trailing: bool = True):
    """On each CPU: a number that no event has is one that a LOST record counts, where it stands."""
    names = [name for name in log.events() if name != "LOST"]
    union = " UNION ALL ".join(
        f'SELECT cpu, serial, time FROM "{n.lower()}" WHERE cpu >= 0' for n in names
    )
    log.db.execute(f"CREATE OR REPLACE TEMP TABLE attempt AS {union}")
    twice = log.rows(
        "SELECT cpu, serial, count(*) FROM attempt GROUP BY ALL HAVING count(*) > 1 LIMIT 5"
    )
    assert twice == [], "the same serial number twice"
    gaps = log.rows("""
        SELECT cpu, serial + 1, following - serial - 1 FROM (
            SELECT cpu, serial, lead(serial) OVER (PARTITION BY cpu ORDER BY serial) AS following
            FROM attempt)
        WHERE following > serial + 1 ORDER BY ALL""")
    lost = log.rows("SELECT cpu, serial, count FROM lost WHERE cpu >= 0 ORDER BY ALL")
    ends = dict(log.rows("SELECT cpu, max(serial) FROM attempt GROUP BY cpu"))
    starts = dict(log.rows("SELECT cpu, min(serial) FROM attempt GROUP BY cpu"))
    # What was lost before a CPU's first event, or after its last, is no gap between two.
    inner = [row for row in lost if starts.get(row[0], NEVER) < row[1] <= ends.get(row[0], -1)]
    assert gaps == merged(inner), "gaps in the serial numbers, and LOST records"
    if not allow_trailing:
        assert inner == lost


def merged(lost: list) -> list:
    """LOST records that follow one another with no event in between are one gap."""
    result = []
    for cpu, serial, count in lost:
        if result and result[-1][0] == cpu and result[-1][1] + result[-1][2] == serial:
            result[-1] = (cpu, result[-1][1], result[-1][2] + count)
        else:
            result.append((cpu, serial, count))
    return result


def check_lost_sums(log: Log):
    """What the events lost, by event, is what the LOST records count, by place."""
    by_event = log.one("SELECT coalesce(sum(lost), 0) FROM event")
    by_place = log.one("SELECT coalesce(sum(count), 0) FROM lost WHERE cpu >= 0")
    assert by_event == by_place


def check_order(klogger: Path, path: Path):
    """The merged text is in the order of time, on each CPU and over all of them."""
    times = {}
    last = None
    process = subprocess.Popen(
        [klogger, "cat", "--format", "json", path], stdout=subprocess.PIPE, text=True
    )
    lines = 0
    for line in process.stdout:
        row = json.loads(line)
        lines += 1
        assert last is None or row["time"] >= last
        assert row["time"] >= times.get(row["cpu"], row["time"])
        last = times[row["cpu"]] = row["time"]
    assert process.wait() == 0
    assert lines > 0
