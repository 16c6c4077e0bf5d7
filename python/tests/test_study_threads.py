# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study of threads: what it plans, and what it makes of small logs, worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import support

import klogger
from klogger import expectation
from klogger.executor import Result
from klogger.failure import Failure
from klogger_lab.machine import Machine
from klogger_lab.study import discover
from klogger_lab.study.model import Answer, Arm, Check, Plan, Run

FOUND = discover.load(support.SCHEMATA / "lifecycle" / "studies" / "threads.py")
MODULES = FOUND.study.analyse.__globals__
LIBRARIES, LIVES, STARTS = MODULES["libraries"], MODULES["_lives"], MODULES["_starts"]
LIMITS = MODULES["_limits"]
# CLOCK_MONOTONIC at time 0 of the logs of tests.
START = 5_000_000
US = 1000
# Schemata beside `lifecycle` whose events a part reads.
OTHERS = {"lives": "scheduler", "mutexes": "scheduler futex", "told": "", "starts": "files traps"}
MakeRun = Callable[..., Run]


def plan(folder: Path, seconds: float) -> Plan:
    machine = Machine(2, "6.18", "CPU", 8 << 30, 32768, 1 << 20, 250, False, "tsc")
    return Plan(machine, seconds, folder, lambda name, **more: folder / name)


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A run of a part: the lines of its log as in an expectation, and what its program printed."""
    made = []

    def make(part: str, log: str, *said: dict[str, Any], oracle: Any = None, **more: Any) -> Run:
        made.append(part)
        folder = tmp_path / f"{len(made)}"
        path = folder / "lifecycle" / "expect" / "x.expect"
        path.parent.mkdir(parents=True)
        lines = "".join(f"  {line.strip()}\n" for line in log.strip().splitlines())
        path.write_text(f"with: {OTHERS[part]}\nlog:\n  process 10 prog\n{lines}finding:\n")
        opened = klogger.open(expectation.make(expectation.read(path), folder / "x.klog-parquet"))
        arm = Arm(part, [], 1, {"part": part, "library": "libx", **more})
        return Run(arm, opened, "".join(json.dumps(one) + "\n" for one in said), oracle)

    return make


def analyse(tmp_path: Path, *runs: Run) -> Answer:
    return FOUND.study.analyse(plan(tmp_path, 60), list(runs))


def check(answer: Answer, name: str) -> Check:
    (found,) = [c for c in answer.checks if c.name == name]
    return found


def table(answer: Answer, name: str) -> list[dict[str, Any]]:
    (found,) = [r for r in answer.results if r.analysis.name == name]
    assert isinstance(found, Result)
    return found.table.records()


@pytest.mark.parametrize("libraries", [1, 2, 3])
@pytest.mark.parametrize("seconds", [9, 40, 100, 600])
def test_plan(
    seconds: float, libraries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arms fit the time, also without the other C libraries, which the answer then names."""
    here = LIBRARIES.LIBRARIES[:libraries]
    monkeypatch.setattr(LIBRARIES, "is_here", lambda one: one in here)
    monkeypatch.setattr(LIMITS, "threads_left", lambda: 100_000)
    arms = FOUND.study.arms(plan(tmp_path, seconds))
    assert len({arm.name for arm in arms}) == len(arms) == (4 + 1 if libraries == 1 else 8 + 1)
    assert sum(arm.seconds for arm in arms) <= 1.05 * seconds
    assert all(isinstance(word, (str, Path)) for arm in arms for word in arm.command)
    most = [arm for arm in arms if str(LIVES.MOST) in arm.command]
    assert len(most) == (0 if seconds < 20 else min(libraries, 2))
    lives = [LIVES.Lives("libx", memory=[{"level": LIVES.MOST}] if most else [])]
    said = MODULES["cannot"](plan(tmp_path, seconds), lives, [])
    assert any("musl-tools" in one for one in said) == (libraries < 2)
    assert any("there was no time" in one for one in said) == (not most)


def test_no_more_threads_than_the_machine_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "threads_left", lambda: 15_000)
    assert not LIVES.has_most(plan(tmp_path, 600))
    assert "only 15,000 more" in "".join(MODULES["cannot"](plan(tmp_path, 600), [], []))


# Two threads: called at 100 and 140 µs; 20 and 10 µs to the start, 1 µs until queued, 5 and 4 µs
# until a CPU, 2 µs to the function; 3 µs from the return to the end. Number 11 lived before.
LIFE = """
  10us   0  STARTED      pid=11 tgid=10 parent=10 flags=0x10000
  20us   0  SCHEDIN      pid=11 tgid=10
  30us   0  ENDED        pid=11 tgid=9
  120us  0  STARTED      pid=11 tgid=10 parent=10 flags=0x10000
  121us  0  ADD_TO_RUNQ  pid=11 is_new=1
  126us  1  SCHEDIN      pid=11 tgid=10
  150us  0  STARTED      pid=12 tgid=10 parent=10 flags=0x10000
  151us  0  ADD_TO_RUNQ  pid=12 is_new=1
  155us  1  SCHEDIN      pid=12 tgid=10
  160us  0  STARTED      pid=13 tgid=13 parent=10 flags=0x11
  303us  0  ENDED        pid=11 tgid=10
  403us  0  ENDED        pid=12 tgid=10
  500us  0  ENDED        pid=10 tgid=10 last=1
  end 1ms
"""


def said_of_lives(*rows: list[int], threads: int = 2) -> list[dict[str, Any]]:
    times = [[row[0], *(START + us * US for us in row[1:])] for row in rows]
    memory = {"level": 2, "pid": 10, "VmPTE": 4, "KernelStack": 0}
    return [
        {
            "role": "without",
            **memory,
            "threads": 0,
            "Threads": 1,
            "Rss": 100,
            "VmRSS": 0,
            "VmSize": 1000,
        },
        {
            "role": "with",
            **memory,
            "threads": threads,
            "Threads": 3,
            "Rss": 116,
            "VmRSS": 0,
            "VmSize": 1144,
        },
        {"role": "lives", "level": 2, "pid": 10, "round": 0, "made": len(rows), "rows": times},
    ]


def test_lives(make_run: MakeRun, tmp_path: Path) -> None:
    said = said_of_lives([11, 100, 130, 128, 300], [12, 140, 160, 157, 400])
    log = LIFE.replace("STARTED      pid=11 tgid=10 parent=10", "STARTED pid=11 tgid=9 parent=9", 1)
    run = make_run("lives", log, *said)
    answer = analyse(tmp_path, run)
    (row,) = table(answer, "lifecycle")
    assert (row["threads"], row["create"], row["create_p99"]) == (2, 17 * US, 28 * US)
    assert (row["call_to_start"], row["woken_to_run"]) == (10 * US, 4 * US)
    assert (row["start_to_woken"], row["run_to_code"], row["end"]) == (US, 2 * US, 3 * US)
    assert check(answer, "threads, libx").ok
    assert check(answer, "order, libx").ok
    assert check(answer, "live threads, libx").ok


def test_threads_that_the_log_has_not_are_found(make_run: MakeRun, tmp_path: Path) -> None:
    said = said_of_lives(
        [11, 100, 130, 128, 300], [12, 140, 160, 157, 405], [14, 160, 170, 165, 400], threads=3
    )
    answer = analyse(tmp_path, make_run("lives", LIFE, *said))
    assert not check(answer, "threads, libx").ok
    # The end of 12 is logged before its function returned, and 14 is in no event.
    assert "for 2 of 3 threads" in check(answer, "order, libx").text
    assert not check(answer, "order, libx").ok
    assert not check(answer, "live threads, libx").ok


@pytest.mark.parametrize(("kib", "ok"), [(8, True), (64, True), (3, False), (80, False)])
def test_memory_of_a_thread(kib: int, ok: bool, tmp_path: Path) -> None:
    bare = {"Rss": 50, "VmRSS": 0, "VmSize": 0, "VmPTE": 0, "KernelStack": 0}
    memory = [
        {"threads": n, "Threads": n + 1, "Rss": 50 + 7 + kib * n, "VmRSS": 0,
             "VmSize": 80 * n, "VmPTE": 0,
         "KernelStack": 16 * n, "without": bare}
        for n in (1, 10, 1000)
    ]  # fmt: skip
    found = LIVES.slopes(LIVES.Lives("libx", memory=memory))
    assert (found.resident, found.kernel) == (pytest.approx(1024 * kib), pytest.approx(16384))
    (made,) = LIVES.checks([], [found])
    assert made.ok is ok


@pytest.mark.parametrize("made", [502, 503])
def test_limits(made: int, tmp_path: Path) -> None:
    said = {"role": "limit", "kind": "user", "limit": 503, "made": made, "maps": 2 * made,
            "errno": 11, "error": "again"}  # fmt: skip
    run = Run(Arm("limits", [], 1, {"part": "limits", "library": "libx"}), None, "")
    run.oracle = json.dumps(said)
    answer = analyse(tmp_path, run)
    (row,) = table(answer, "maximum")
    assert (row["threads"], row["maps_each"], row["error"]) == (made, "2.00", "EAGAIN")
    assert check(answer, "limit, libx").ok is (made == 502)


# The mutex is at 0x1000, 40 bytes long; 0x2000 is another one. 11 waits, and is woken; 12 finds
# that it has changed; 11 wakes nobody.
CONTENDED = """
  process 11 prog
  process 12 prog
  10us  0  WAIT    lock=0x1000 tid=11 tgid=10
  11us  1  WAIT    lock=0x1000 tid=12 tgid=10
  12us  1  WAITED  lock=0x1000 result=-11 tid=12 tgid=10
  20us  1  WOKE    lock=0x1000 asked=1 result=1 tid=12 tgid=10
  21us  0  WAITED  lock=0x1000 asleep=9000 result=0 tid=11 tgid=10
  30us  0  WOKE    lock=0x1000 asked=1 result=0 tid=11 tgid=10
  40us  0  WAIT    lock=0x2000 tid=11 tgid=10
  50us  0  WOKE    lock=0x1000 asked=1 result=1 tid=77 tgid=77
  end 1ms
"""


def lock(threads: int, pid: int = 10, pairs: int = 8, held: int = 8) -> dict[str, Any]:
    return {"role": "lock", "threads": threads, "pid": pid, "lock": 0x1000, "size": 40,
            "pairs": pairs, "held": held, "took_ns": 8000}  # fmt: skip


def test_mutexes(make_run: MakeRun, tmp_path: Path) -> None:
    answer = analyse(tmp_path, make_run("mutexes", CONTENDED, lock(1, pid=9), lock(2)))
    alone, both = table(answer, "futex_ratio")
    assert alone["calls"] == 0
    assert (both["waits"], both["again"], both["wakes"], both["none"]) == (2, 1, 2, 1)
    assert (both["calls"], both["asleep"], both["pair"]) == (0.5, 9 * US, 1 * US)
    assert check(answer, "uncontended, libx").ok and check(answer, "2 threads, libx").ok


def test_mutexes_that_are_wrong(make_run: MakeRun, tmp_path: Path) -> None:
    """A call without contention; an update that got lost; a wake-up that nobody got."""
    lost = CONTENDED.replace("asleep=9000 result=0", "asleep=9000 result=-4")
    one = make_run("mutexes", CONTENDED, lock(1), lock(2, held=7))
    other = make_run("mutexes", lost, lock(2))
    assert not check(analyse(tmp_path, one), "uncontended, libx").ok
    assert not check(analyse(tmp_path, one), "2 threads, libx").ok
    assert not check(analyse(tmp_path, other), "2 threads, libx").ok


@pytest.mark.parametrize(("trips", "ok"), [(2, True), (3, False)])
def test_taking_turns(trips: int, ok: bool, make_run: MakeRun, tmp_path: Path) -> None:
    switches = "\n".join(
        f"{10 * n}us 0 SCHEDOUT pid={11 + n % 2} state={n != 5}" for n in range(1, 7)
    ).replace("True", "1").replace("False", "0")  # fmt: skip
    said = [
        {"role": "turns", "pid": 10, "tid": tid, "trips": trips, "from_ns": START + 5 * US,
         "to_ns": START + 55 * US, "nvcsw": 2}
        for tid in (11, 12)
    ]  # fmt: skip
    answer = analyse(tmp_path, make_run("mutexes", f"{switches}\nend 1ms", *said))
    (row,) = table(answer, "hand_off")
    assert (row["switches"], row["counted"]) == (4, 4)
    assert check(answer, "taking turns, libx").ok is ok


@pytest.mark.parametrize(("waker", "died", "ok"), [
    (12, True, True), (13, True, False), (12, False, False),
])  # fmt: skip
def test_robust_mutex(waker: int, died: bool, ok: bool, make_run: MakeRun, tmp_path: Path) -> None:
    log = f"""
      10us  0  WAIT    lock=0x1000 tid=10 tgid=10
      20us  0  WAITED  lock=0x1000 result=0 waker={waker} tid=10 tgid=10
      end 1ms
    """
    said = {"role": "robust", "pid": 10, "owner": 12, "lock": 0x1000, "size": 40,
            "owner_died": died, "again": 0}  # fmt: skip
    answer = analyse(tmp_path, make_run("mutexes", log, said))
    assert check(answer, "robust mutex, libx").ok is ok
    assert "by the kernel" in check(answer, "robust mutex, libx").text


SIGNALS = """
  process 11 prog
  process 12 prog
  10us  0  SIGNALLED  pid=11 sender=10 sig=10 code=-6
  12us  1  DELIVERED  tid=11 tgid=10 sig=10 action=2
  20us  0  SIGNALLED  pid=12 sender=10 sig=10 code=-6
  22us  1  DELIVERED  tid=12 tgid=10 sig=10 action=2
  30us  0  SIGNALLED  pid=12 sender=9 sig=10 code=-6
  end 1ms
"""


@pytest.mark.parametrize(("taken", "ok"), [([1, 1], True), ([2, 0], False)])
def test_signals(taken: list[int], ok: bool, make_run: MakeRun, tmp_path: Path) -> None:
    said = {"role": "signals", "how": "to a thread", "pid": 10, "sent": 2, "elsewhere": 0,
            "taken": [[11, taken[0]], [12, taken[1]], [10, 0]]}  # fmt: skip
    answer = analyse(tmp_path, make_run("told", SIGNALS, said))
    (row,) = table(answer, "signals")
    assert (row["delivered"], row["at_target"], row["by_main"], row["takers"]) == (2, 1.0, 0, 2)
    assert check(answer, "signals to a thread, libx").ok is ok


# Called at 100 µs. The library sends its signal a second time.
CANCEL = """
  process 11 prog
  50us   0  ENDED      pid=11 tgid=10
  104us  0  SIGNALLED  pid=11 sender=10 sig=33 code=-6
  107us  1  DELIVERED  tid=11 tgid=10 sig=33 action=2
  108us  1  SIGNALLED  pid=11 sender=11 sig=33 code=-6
  109us  1  DELIVERED  tid=11 tgid=10 sig=33 action=2
  120us  1  ENDED      pid=11 tgid=10
  end 1ms
"""


@pytest.mark.parametrize(("how", "ok"), [("deferred", True), ("disabled", False)])
def test_cancel(how: str, ok: bool, make_run: MakeRun, tmp_path: Path) -> None:
    said = {"role": "cancel", "how": how, "number": 0, "tid": 11, "called": START + 100 * US,
            "joined": START + 130 * US, "cancelled": True}  # fmt: skip
    answer = analyse(tmp_path, make_run("told", CANCEL, said))
    (row,) = table(answer, "cancel")
    assert (row["signal"], row["signals"]) == ("33", 2)
    assert (row["sent"], row["delivered"], row["ended"]) == (4 * US, 7 * US, 20 * US)
    assert check(answer, f"cancel, {how}, libx").ok is ok


@pytest.mark.parametrize(("overruns", "ok"), [(7, True), (8, True), (5, False), (10, False)])
def test_timers(overruns: int, ok: bool, make_run: MakeRun, tmp_path: Path) -> None:
    """Three signals in 10.5 to 10.6 periods, of which one was sent when another was pending."""
    log = """
      1ms   0  SIGNALLED  pid=10 sig=34 code=-2
      2ms   0  SIGNALLED  pid=10 sig=34 code=-2
      3ms   0  SIGNALLED  pid=10 sig=34 code=-2 result=2
      9ms   0  SIGNALLED  pid=10 sig=34 code=-2
      end 20ms
    """
    said = {"role": "timer", "pid": 10, "signal": 34, "period_ms": 1, "signals": 3,
            "overruns": overruns, "least_ns": 10_500_000, "most_ns": 10_600_000}  # fmt: skip
    answer = analyse(tmp_path, make_run("told", log, said))
    assert table(answer, "timers")[0]["logged"] == 3
    assert check(answer, "timer of 1 ms, libx").ok is ok


STRACE = """\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ------------------
 60.00    0.000300         100         3           mmap
  0.00    0.000000           0         2         1 openat
  0.00    0.000000           0         1           execve
  0.00    0.000000           0         1           write
------ ----------- ----------- --------- --------- ------------------
100.00    0.000500          71         7         1 total
"""
# From exec at 100 µs to main at 200 µs: an open that failed, a file mapped, and two faults.
START_LOG = """
  90us   0  SYS_IN   pid=10 id=59
  95us   0  FAULT    pid=10 addr=0x5000 user=0
  100us  0  RAN      pid=10 old_pid=10 program=/x
  101us  0  FAULT    pid=10 addr=0 user=0
  110us  0  SYS_IN   pid=10 id=257
  111us  0  SYS_OUT  pid=10 id=257 ret=-2
  120us  0  SYS_IN   pid=10 id=257
  121us  0  SYS_OUT  pid=10 id=257 ret=3
  121us  0  NAMED    file=7 path=/lib/libx.so
  122us  0  LOOK     tid=10 file=7 call=openat result=3
  130us  0  SYS_IN   pid=10 id=9
  131us  0  SYS_OUT  pid=10 id=9 ret=4096
  131us  0  READ     tid=10 call=mmap result=8192
  132us  0  SYS_IN   pid=10 id=9
  133us  0  SYS_OUT  pid=10 id=9 ret=4096
  134us  0  SYS_IN   pid=10 id=9
  135us  0  SYS_OUT  pid=10 id=9 ret=4096
  140us  0  FAULT    pid=10 addr=0x6000 user=1
  150us  0  FAULT    pid=10 addr=0x7000 user=1
  210us  0  SYS_IN   pid=10 id=1
  211us  0  SYS_OUT  pid=10 id=1 ret=16
  220us  0  SYS_IN   pid=10 id=231
  end 1ms
"""


@pytest.mark.parametrize(("table_of", "ok"), [
    (STRACE, True), (STRACE.replace("2         1 openat", "2           openat"), False),
])  # fmt: skip
def test_loader(table_of: str, ok: bool, make_run: MakeRun, tmp_path: Path) -> None:
    said = [
        {"role": "numbers", "open": 2, "openat": 257, "mmap": 9, "mprotect": 10},
        {"role": "start", "program": 0, "pid": 10, "main_ns": START + 200 * US, "faults": 4,
         "all_faults": 4},
    ]  # fmt: skip
    oracle = {"libx, dynamic": STARTS.parse(table_of)}
    run = make_run("starts", START_LOG, *said, oracle=oracle, programs="libx, dynamic")
    answer = analyse(tmp_path, run)
    (row,) = table(answer, "loader")
    assert (row["to_main"], row["opens"], row["failed"], row["maps"]) == (100 * US, 2, 1, 3)
    assert (row["bytes"], row["protects"], row["calls"], row["faults"]) == (8192, 0, 5, 2)
    assert row["files"] == "libx.so"
    steps = {(step["what"], step["times"], step["took"]) for step in table(answer, "startup")}
    assert steps == {("open", 2, 2 * US), ("mmap", 3, 3 * US), ("page fault", 2, None)}
    assert check(answer, "system calls, libx, dynamic").ok is ok
    assert check(answer, "page faults, libx, dynamic").ok


def test_without_strace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compared with it, and the answer says so."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    with STARTS.straced({"libx, dynamic": tmp_path / "nothing"}, tmp_path) as found:
        assert found == {}
    assert any("strace" in one for one in MODULES["cannot"](plan(tmp_path, 60), [], []))


def test_too_many_faults_fail(make_run: MakeRun, tmp_path: Path) -> None:
    said = [
        {"role": "numbers", "open": -1, "openat": 257, "mmap": 9, "mprotect": 10},
        {"role": "start", "program": 0, "pid": 10, "main_ns": START + 200 * US, "faults": 4,
         "all_faults": 9},
    ]  # fmt: skip
    run = make_run("starts", START_LOG, *said, programs="libx, dynamic")
    assert not check(analyse(tmp_path, run), "page faults, libx, dynamic").ok


def test_the_source_s_tables_add_up() -> None:
    for paper, total in (
        (LIBRARIES.PAPER_STATIC, LIBRARIES.PAPER_STATIC_TOTAL),
        (LIBRARIES.PAPER_SHARED, LIBRARIES.PAPER_SHARED_TOTAL),
    ):
        assert tuple(map(sum, zip(*paper.values(), strict=True))) == total


def test_sizes_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script of the linker stands for the files that it names."""
    (tmp_path / "libm-1.a").write_bytes(b"x" * 500)
    (tmp_path / "libm.a").write_text(f"/* GNU ld script */\nGROUP ( {tmp_path}/libm-1.a )\n")
    (tmp_path / "libc.a").write_bytes(b"!<arch>\n" + b"x" * 92)
    library = LIBRARIES.Library("libx", "x-cc", "x", str(tmp_path))
    sizes = [LIBRARIES.size_of(library, f"{name}.a") for name in ("libc", "libm", "libdl")]
    assert sizes == [100, 500, None]
    monkeypatch.setattr(LIBRARIES, "here", lambda: [library])
    rows = LIBRARIES.sizes(LIBRARIES.measure()).table.records()
    (whole,) = [row for row in rows if row["file"] == "static, all of these"]
    assert (whole["libx_today"], whole["glibc_paper"], whole["uclibc_paper"]) == (
        600, 5_068_940, 2_306_324,
    )  # fmt: skip


def test_a_failed_program_of_limits_is_told(tmp_path: Path) -> None:
    program = tmp_path / "limits"
    program.write_text("#!/bin/sh\necho no memory >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(Failure, match="'limits' failed: no memory"), LIMITS.limited(program):
        pass
