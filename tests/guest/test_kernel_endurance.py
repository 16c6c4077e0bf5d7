# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernel engine under load and misuse: switched, resized, marked, killed, short of memory,
without a CPU, loaded again and again, asked for nonsense; each time all events are accounted for,
and the kernel is as it was.

All that one boot can show is done by kernel_endurance.sh before the tests look at the logs.
KLOGGER_SLOW=1 does more of it, and once more in a kernel that looks for mistakes in its own
code (tests/kernel/debug.config).
"""

from pathlib import Path

import pytest
from boots import KERNEL, Boot, Case
from kernels import (
    FLOOD,
    HERE,
    KERNELS,
    KMEMLEAK,
    REMEMBER,
    TESTED,
    check_kernel_is_well,
)
from oracles import Log, workload_json
from tiers import SLOW

pytestmark = pytest.mark.full("boots guests of its own")

# How often events are switched, and modules loaded; a debug kernel is slow enough.
FEW, MANY = (24, 30), (200, 200)
HAMMERED = ("toggled", "survivor", "unplugged", "plugged", "short")
EVENTS = ("HAMMER", "HAMMER_TEXT")
WHEN = ("before", "after")
SCRIPT = """
. /kernel_engine.sh
. /kernel_endurance.sh
TOGGLES={toggles} LOADS={loads} BALLAST={ballast}
echo $TOGGLES $LOADS >/out/rounds
endure
dmesg >/out/dmesg
{end}
"""


def case(kernel: str) -> Case:
    def files(request) -> list[str]:
        hammer = request.getfixturevalue("own_module")(HERE / "hammer", kernel)
        return [
            f"{request.getfixturevalue('modules')(kernel)}=/modules-under-test",
            f"{hammer}=/m",
            f"{request.getfixturevalue('abuse')}=/bin/abuse",
            f"{FLOOD}=/flood.klogger",
            f"{REMEMBER}=/remember.klogger",
            f"{HERE / 'kernel_engine.sh'}=/kernel_engine.sh",
            f"{HERE / 'kernel_endurance.sh'}=/kernel_endurance.sh",
        ]

    toggles, loads = MANY if SLOW and kernel == "debian" else FEW
    boot, end, ballast = KERNEL, "", 400
    if kernel != "debian":
        # Two rings of 256 MB do not fit beside the ballast. KASAN takes an eighth of the memory.
        boot = Boot(f"endurance-{kernel}", memory="1536M", single=True)
        end, ballast = "starved\n" + KMEMLEAK, 550
    script = SCRIPT.format(toggles=toggles, loads=loads, ballast=ballast, end=end)
    return Case(boot, script, files, seconds=3000 if SLOW else 600, kernel=kernel)


CASES = {f"endurance-{kernel}": case(kernel) for kernel in TESTED}


@pytest.fixture(scope="module", params=KERNELS)
def endured(request, boots) -> Path:
    return boots.case(f"endurance-{request.param}")


def read(endured: Path, name: str) -> str:
    return (endured / name).read_text()


def rounds(endured: Path) -> list[int]:
    return [int(n) for n in read(endured, "rounds").split()]


@pytest.fixture
def log(endured, klogger):
    def of(name: str) -> Log:
        assert read(endured, f"{name}.code") == "0\n", read(endured, f"{name}.err")
        return Log(klogger, endured / f"{name}.klog")

    return of


@pytest.mark.parametrize("name", HAMMERED)
def test_every_attempt_is_accounted_for(endured, log, name):
    hammered = log(name)
    attempts = dict(zip(EVENTS, map(int, read(endured, f"{name}.attempts").split()), strict=True))
    for event, n in attempts.items():
        assert n > 0
        logged, lost = hammered.count(event), hammered.lost(event)
        assert logged + lost == n, (event, logged, lost, n)
        assert (
            hammered.rows(f"SELECT thread, n FROM {event} GROUP BY ALL HAVING count(*) > 1 LIMIT 5")
            == []
        )
    assert hammered.rows("SELECT text FROM ledger WHERE key = 'block_corrupt'") == []


def test_marks_are_in_the_log_and_events_are_switched(endured, log):
    toggled = log("toggled")
    marks = toggled.rows("SELECT number, text FROM mark ORDER BY time")
    toggles, _ = rounds(endured)
    assert marks == [(n, "while it is hammered") for n in range(1, toggles + 1)]
    assert toggled.count("HAMMER_TEXT") < toggled.count("HAMMER")
    assert not (endured / "refused").exists(), read(endured, "refused")


def without_ring(log: Log, event: str) -> int:
    """Events of a CPU that was offline when rings were made."""
    return log.one(
        "SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'cpu_offline' AND event ="
        f" '{event}'"
    )


def test_a_cpu_that_comes_late_is_in_the_ledger(log):
    for name in ("unplugged", "plugged"):
        assert without_ring(log(name), "HAMMER") > 0


def test_no_memory_is_an_error_and_nothing_else(endured, log):
    assert "Cannot allocate memory" in read(endured, "short.refused")
    assert "klogger: no memory for rings of 262144 KiB for each of 2 CPUs" in read(endured, "dmesg")
    assert int(read(endured, "short.before")) >= 2
    assert read(endured, "short.before") == read(endured, "short.after")


def test_each_allocation_may_fail(endured):
    """Where the kernel can be told to fail them: loading modules, and beginning a recording."""
    if not (endured / "starved").exists():
        pytest.skip("this kernel has no CONFIG_FAULT_INJECTION")
    assert read(endured, "starved.code") == "0\n", read(endured, "starved")
    assert read(endured, "starved.left") == "0\n"
    # The kernel itself warns when it finds no memory for a module's static keys.
    assert [line for line in read(endured, "starved.dmesg").splitlines() if "BUG" in line] == []


def test_recordings_begin_without_memories(log, endured):
    """Though the module stays loaded, and its variables, among them a static one of a probe, count
    all that it sees.
    """
    for name in ("remembered-first", "remembered-then"):
        remembered = log(name)
        tid = workload_json(read(endured, f"{name}.json"))["threads"][0]["tid"]
        assert remembered.count("PROCESS_RENAME", f"pid = {tid}") == 1009
        first, last = remembered.rows("SELECT min(n), max(n) FROM renamed")[0]
        assert 1 <= first < 100
        assert 1009 <= last < 2000
        assert remembered.count("RENAMED", "twice <> 2 * n") == 0


def test_misuse_is_refused(endured, log):
    assert read(endured, "abuse.code") == "0\n", read(endured, "abuse")
    assert read(endured, "abuse").endswith(" 0 wrong answers\n")
    tid = workload_json(read(endured, "after-abuse.json"))["threads"][0]["tid"]
    assert log("after-abuse").count("FLOOD", f"pid = {tid}") == 1009


def test_loading_again_and_again_leaves_nothing(endured, log):
    _, loads = rounds(endured)
    for n in range(10, 20 + loads + 1, 10):
        tid = workload_json(read(endured, f"load-{n}.json"))["threads"][0]["tid"]
        assert log(f"load-{n}").count("FLOOD", f"pid = {tid}") == 101
    assert read(endured, "vmallocinfo") == ""
    before, after = (
        dict(line.split(": ") for line in read(endured, f"memory.{when}").splitlines())
        for when in WHEN
    )
    grown = {name: int(after[name]) - int(before[name]) for name in after}
    assert grown.pop("areas") < loads, (before, after)
    # A leak of a page in each round would be more. A debug kernel takes notes of its own, and has
    # other means.
    if not (endured / "kmemleak").exists():
        assert max(grown.values()) < 4 * loads, (before, after)


def test_the_kernel_has_nothing_to_complain_of(endured):
    check_kernel_is_well(endured)
