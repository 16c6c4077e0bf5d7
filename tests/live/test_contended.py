# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Threads on one CPU that preempt each other while they hit probes of different kinds: no record is
torn, none is there twice, and what is logged and what is lost make what the program did.

tests/guest/test_contended.py does the same on kernels that preempt in other ways.
"""

import oracles
import pytest

# Whatever the compiler makes of two fields with complements, a torn record shows. Both tracepoints
# are hit by each turn of the workload, and the function once.
SCHEMA = """
schema contended "Hits of four kinds on one CPU"
context tid
event CALLED   { long number  long inverse }
event RETURNED { long result  long inverse }
event RENAMED  { string[16] name  int thread  int inverse }
event TICKED   { ulong ip  ulong inverse }
probe user PROGRAM:contended(long number, long inverse) { klogger(CALLED, number, inverse); }
probe return syscall prctl(long result, int option, long number) {
    if (option == 0x4b4c4f48)
        klogger(RETURNED, number, ~number);
}
probe tracepoint task_rename(struct task_struct *task, const char *comm) {
    klogger(RENAMED, comm, task->pid, ~task->pid);
}
probe timer 999Hz(u64 ip) { klogger(TICKED, ip, ~ip); }
"""
PROCESSES = 3


@pytest.mark.parametrize(
    "turns",
    [
        20_000,
        # Ten million hits in all.
        pytest.param(1_120_000, marks=pytest.mark.nightly("logs ten million events")),
    ],
)
def test_kinds_that_preempt_each_other(recorder, workloads, clean_kernel, turns):
    file = recorder.dir / "contended.klogger"
    file.write_text(SCHEMA.replace("PROGRAM", str(workloads / "contend")))
    words = ["--no-calibrate", "-s", file, "--", workloads / "contend", PROCESSES, turns, 0]
    log, _ = recorder.log(*words, timeout=900)
    inverse = {"CALLED": "-1 - number", "RETURNED": "-1 - result", "RENAMED": "-1 - thread"}
    for event, expected in inverse.items():
        assert log.count(event, f"inverse <> {expected}") == 0, "torn"
    assert log.count("TICKED", "xor(ip, inverse) <> 18446744073709551615::UBIGINT") == 0, "torn"
    for event, number in [("CALLED", "number"), ("RETURNED", "result"), ("RENAMED", "name")]:
        # The program's own exec gives it a name that is no number.
        own = "regexp_full_match(CAST(name AS VARCHAR), '[0-9]+')" if number == "name" else "true"
        query = f"SELECT count(*), count(DISTINCT (tid, {number})) FROM {event} WHERE {own}"
        ((count, distinct),) = log.rows(query)
        assert count == distinct, "twice"
        missing = PROCESSES * turns - count - log.lost(event)
        # Of system calls, those that are skipped are counted where all calls return.
        most = missed(log, event)
        assert 0 <= missing <= most if event == "RETURNED" else missing == most, (event, most)
    assert log.count("TICKED") > 0
    oracles.check_serials(log)
    oracles.check_lost_sums(log)


def missed(log, event: str) -> int:
    """Hits that the kernel skipped, and says so."""
    place = {"CALLED": "contended", "RETURNED": "sys_exit", "RENAMED": "task_rename"}[event]
    query = "SELECT coalesce(sum(count), 0) FROM ledger WHERE key = 'probe_missed'"
    return log.one(f"{query} AND text LIKE '%{place} (schema contended)%'")
