# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Threads that preempt each other while they log, on kernels that let them: no event is torn, and
each hit is logged, or counted as one that the kernel skipped.
"""

import shutil
from pathlib import Path

import compilers
import oracles
import pytest
from kernels import debian

pytestmark = pytest.mark.full("boots guests of its own")

HERE = Path(__file__).parent
# Every kernel has the first one's tracepoint; the other one's is there since 6.14.
SCHEMATA = ["contended.klogger", "contended_numbers.klogger"]
HITS = 20_000
# Kernel, words for its command line, processes.
MODES = [
    ("7.2", "preempt=lazy", 3),
    ("7.2", "preempt=full", 3),
    ("7.2", "preempt=full", 6),
    ("7.2-rt", "", 3),
    ("6.12", "preempt=full", 3),
    ("6.12-rt", "", 3),
]


def compiler() -> str:
    name = compilers.clang() or pytest.skip("no clang")
    return shutil.which(name)


@pytest.mark.nightly("boots kernels with other kinds of preemption")
@pytest.mark.parametrize(
    ("kernel", "words", "processes"), MODES, ids=lambda value: str(value).replace("preempt=", "")
)
def test_every_hit_is_logged_or_counted(guest, klogger, tmp_path, kernel, words, processes):
    schemata = SCHEMATA[:1] if kernel.startswith("6.") else SCHEMATA
    out = contended(guest, tmp_path, kernel, words, schemata, processes)
    check(oracles.Log(klogger, out / "log.klog"), processes)


def contended(guest, out, kernel, words, schemata, processes) -> Path:
    """What processes on one CPU leave that make hits of these schemata."""
    image, reason = debian(kernel)
    if image is None:
        pytest.skip(reason)
    add = [*(f"{HERE / name}=/{name}" for name in schemata), f"{compiler()}=/bin/clang"]
    workload = f"/bin/contend {processes} {HITS} 1"
    # Room for all of it, whenever its reader comes.
    options = " ".join(["--buffer-size 16M", *(f"-s /{name}" for name in schemata)])
    script = f"klogger record {options} -o /out/log.klog -- {workload} >/out/json 2>/out/err"
    done = guest(script, out, add=add, append=words, kernel=image, memory="3G", timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr + (out / "err").read_text()
    return out


# Programs of functions run with preemption on, on every kernel. Before 6.11 they cannot disable it.
CALLS = [("6.1", "preempt=full", 3), ("6.12", "preempt=full", 3), ("7.2", "preempt=full", 3)]


@pytest.mark.nightly("boots kernels with other kinds of preemption")
@pytest.mark.parametrize(
    ("kernel", "words", "processes"), CALLS, ids=lambda value: str(value).replace("preempt=", "")
)
def test_kinds_that_preempt_each_other(guest, klogger, tmp_path, kernel, words, processes):
    schemata = [SCHEMATA[0], "contended_calls.klogger"]
    out = contended(guest, tmp_path, kernel, words, schemata, processes)
    check_calls(oracles.Log(klogger, out / "log.klog"), processes)


def check_calls(log, processes):
    """Of each kind: none twice, none torn, and logged, lost and skipped make what there was. Of
    system calls, those that are skipped are counted where all calls return.
    """
    places = {
        "C_CALL": ("number", "inverse <> -1 - number", "contended"),
        "C_RETURN": ("result", "inverse <> -1 - result", "sys_exit"),
    }
    for event, (number, torn, place) in places.items():
        assert log.count(event, torn) == 0, "torn"
        twice = f"SELECT tid, {number} FROM {event} GROUP BY ALL HAVING count(*) > 1"
        assert log.rows(twice) == []
        missing = processes * HITS - log.count(event) - log.lost(event)
        most = skipped(log, f"{place} (schema contended_calls)")
        assert 0 <= missing <= most if place == "sys_exit" else missing == most, (event, most)
    assert log.count("C_NAME", "tid <> -1 - inverse") == 0, "torn"
    oracles.check_serials(log)
    oracles.check_lost_sums(log)


def check(log, processes):
    # None comes twice; the workload's own exec gives it a name that is no number.
    numbers = {
        "C_NUMBER": ("task_prctl_unknown (schema contended_numbers)", "number", "true"),
        "C_NAME": (
            "task_rename (schema contended)",
            "name",
            "regexp_full_match(CAST(name AS VARCHAR), '[0-9]+')",
        ),
    }
    torn = {
        "C_NUMBER": "xor(number, inverse) <> 18446744073709551615::UBIGINT",
        "C_NAME": "tid <> -1 - inverse",
    }
    for event in set(numbers) & set(log.events()):
        place, number, where = numbers[event]
        assert log.count(event, torn[event]) == 0, "torn"
        assert (
            log.rows(
                f"SELECT tid, {number} FROM {event} WHERE {where} GROUP BY ALL HAVING count(*) > 1"
            )
            == []
        )
        assert log.lost(event) == 0, "the main ring bears this rate"
        hits = log.count(event, where) + skipped(log, place)
        # Others take names meanwhile, and the kernel skips that as well.
        assert processes * HITS <= hits <= processes * HITS + (0 if event == "C_NUMBER" else 50)
    oracles.check_serials(log)
    oracles.check_lost_sums(log)
    for begin, end, count in log.rows(
        "SELECT from_ns, to_ns, count FROM ledger WHERE key = 'probe_missed'"
    ):
        assert begin <= end and count > 0


def skipped(log, place: str) -> int:
    query = "SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'probe_missed' AND text LIKE"
    return log.one(f"{query} '%{place}%'")
