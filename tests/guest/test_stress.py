# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Events from threads, softirqs, interrupts and NMIs of all CPUs at once (the module in stress/):
none is torn, and none is missing without being counted. KLOGGER_SLOW=1 makes it 50 million instead
of 300,000, and lets a kernel look on that looks for mistakes.
"""

from pathlib import Path

import pytest
from boots import KERNEL, Boot, Case
from kernels import KERNELS, KMEMLEAK, TESTED, check_kernel_is_well
from oracles import Log
from tiers import SLOW

pytestmark = pytest.mark.full("boots guests of its own")

STRESS = Path(__file__).parent / "stress"
CONTEXTS = ("thread", "softirq", "interrupt", "NMI")
# Of the thread of each CPU, in each round; a small ring is sure to overflow.
ROUNDS = {"roomy": ("16M", 130_000), "tight": ("64K", 50_000)}
MANY = {"roomy": ("16M", 25_000_000), "tight": ("64K", 1_000_000)}
SCRIPT = """
insmod /modules-under-test/klogger.ko && insmod /stress/stress.ko || exit 3
round() {
    klogger record --engine kernel -s /stress/stress.klogger --buffer-size "$2" \\
        -o "/out/$1.klog" -- sh -c "echo $3 >/sys/module/stress/parameters/run" \\
        2>"/out/$1.err" || exit 4
    cat /sys/module/stress/parameters/run >"/out/$1.attempts"
}
"""


def rounds(kernel: str) -> dict:
    return MANY if SLOW and kernel == "debian" else ROUNDS


def case(kernel: str) -> Case:
    def files(request) -> list[str]:
        own = request.getfixturevalue("own_module")(STRESS, kernel)
        return [
            f"{request.getfixturevalue('modules')(kernel)}=/modules-under-test",
            f"{own}=/stress",
        ]

    script = [SCRIPT, *(f"round {name} {size} {n}" for name, (size, n) in rounds(kernel).items())]
    script += ["rmmod stress && rmmod klogger || exit 5", "" if kernel == "debian" else KMEMLEAK]
    script += ["dmesg >/out/dmesg"]
    # The many events of a night take memory.
    boot = Boot(f"stress-{kernel}", memory="10G", single=True) if SLOW else KERNEL
    return Case(boot, "\n".join(script), files, seconds=6000 if SLOW else 500, kernel=kernel)


CASES = {f"stress-{kernel}": case(kernel) for kernel in TESTED}


@pytest.fixture(scope="module", params=KERNELS)
def stressed(request, boots) -> tuple[Path, dict]:
    """The logs of all rounds; and what they were."""
    return boots.case(f"stress-{request.param}"), rounds(request.param)


@pytest.fixture(scope="module", params=ROUNDS)
def logged(request, stressed, klogger):
    """A round's log with one view of both events, and how many events each sequence has had."""
    out, rounds = stressed
    log = Log(klogger, out / f"{request.param}.klog")
    log.db.execute("""
        CREATE VIEW stressed AS
            SELECT n, seal, of_cpu, context, cpu, serial, NULL AS text FROM STRESS
            UNION ALL SELECT n, seal, of_cpu, context, cpu, serial, text FROM STRESS_TEXT
    """)
    lines = (out / f"{request.param}.attempts").read_text().splitlines()
    attempts = {}
    for line in lines:
        cpu, *counts = map(int, line.split())
        attempts |= {(cpu, context): n for context, n in enumerate(counts)}
    assert attempts[0, 0] == attempts[1, 0] == rounds[request.param][1]
    return request.param, log, attempts


def test_all_contexts_log(logged):
    _, log, attempts = logged
    assert len(attempts) == 2 * len(CONTEXTS)
    for (cpu, context), n in attempts.items():
        assert n >= 10, (cpu, CONTEXTS[context], n)
    assert len(log.rows("SELECT DISTINCT of_cpu, context FROM stressed")) == len(attempts)


def test_nothing_is_torn(logged):
    _, log, _ = logged
    assert log.count("stressed") > 0
    wrong = """
        cpu <> of_cpu OR context > 3 OR n = 0
        OR seal::HUGEINT <> ((n::HUGEINT * 256 + context * 16 + of_cpu) * 11400714819323198485)
                            % 18446744073709551616
        OR (n % 5 = 0) <> (text IS NOT NULL)
        OR coalesce(text <> repeat('x', (n % 97)::BIGINT), false)
    """
    assert log.rows(f"SELECT * FROM stressed WHERE {wrong} LIMIT 5") == []


def test_each_sequence_is_in_order(logged):
    """By serial numbers, which count attempts: an event is before those that its context logged
    later.
    """
    _, log, attempts = logged
    rows = log.rows("""
        SELECT of_cpu, context, max(n), count(*), count(DISTINCT n), count(*) FILTER (n <= before)
        FROM (SELECT *, lag(n) OVER (PARTITION BY of_cpu, context ORDER BY serial) AS before
              FROM stressed)
        GROUP BY of_cpu, context
    """)
    for cpu, context, last, count, different, backwards in rows:
        assert last <= attempts[cpu, context]
        assert count == different, (cpu, CONTEXTS[context])
        assert backwards == 0, (cpu, CONTEXTS[context])


def test_what_is_missing_is_counted(logged):
    name, log, attempts = logged
    logged_events, lost = log.count("stressed"), log.lost("STRESS") + log.lost("STRESS_TEXT")
    assert logged_events + lost == sum(attempts.values()), (logged_events, lost, attempts)
    # In the roomy round nested rings, which are small whatever the others are, may overflow.
    assert lost > 0 or name == "roomy"


def test_the_kernel_did_not_complain(stressed):
    check_kernel_is_well(stressed[0])
