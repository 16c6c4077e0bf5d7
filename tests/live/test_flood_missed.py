# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Hits that the kernel skips, because the probe runs already: as many as are in the ledger, to the
last one.

The probe reads memory where nothing is, which is a fault of the kernel's own: the place that it is
attached to. So each hit of the test comes with one more, which the kernel skips.
"""

import itertools
import sys
from pathlib import Path

import oracles
import pytest

SCHEMA = Path(__file__).with_name("fault.klogger")
# prctl(PR_GET_PDEATHSIG) writes to the address, which fails after exactly one fault. Then, while
# the probe is still there, what the kernel itself says that it skipped.
FAULTS = """
import ctypes, json, subprocess, sys

def write_to(address):
    return prctl(2, ctypes.c_void_p(address), 0, 0, 0)

prctl = ctypes.CDLL(None).prctl
failed = sum(write_to(8 + 8 * (i % 8000)) == -1 for i in range(int(sys.argv[1])))
shown = subprocess.run(
    ["bpftool", "-j", "prog", "show"], capture_output=True, text=True, check=True
).stdout
ours = [p for p in json.loads(shown)
        if p.get("name", "").startswith("klogger") and "page_fault" in p["name"]]
print(json.dumps({"failed": failed, "skipped": [p.get("recursion_misses", 0) for p in ours]}))
"""


@pytest.mark.parametrize("buffer", ["16M", "16K"])
def test_hits_that_the_kernel_skipped(recorder, clean_kernel, buffer):
    n = 60_000
    log, report = recorder.log(
        "-s", SCHEMA, "--buffer-size", buffer, "--", sys.executable, "-c", FAULTS, n
    )
    assert report["failed"] == n
    # One entry, or several if the recorder looked when there was no hit for a while.
    entries = log.rows(
        "SELECT count, severity, from_ns, to_ns, text FROM ledger WHERE key = 'probe_missed' ORDER"
        " BY from_ns"
    )
    assert sum(entry[0] for entry in entries) == n
    assert report["skipped"] == [n]
    for count, severity, _, _, text in entries:
        assert severity == "loss"
        assert text.startswith(
            f"{count} hits of page_fault_kernel (schema fault), because it hit itself"
        )
    assert entries[0][2] <= log.one("SELECT min(time) FROM fault")
    assert entries[-1][3] >= log.one("SELECT max(time) FROM fault")
    assert all(before[3] <= after[2] for before, after in itertools.pairwise(entries))
    # Those that it did not skip.
    assert log.count("FAULT") + log.lost("FAULT") == n
    if buffer == "16M":
        assert log.rows("SELECT DISTINCT count(*) FROM fault GROUP BY address") in (
            [(7,), (8,)],
            [(8,), (7,)],
        )
        assert log.lost("FAULT") == 0
    oracles.check_serials(log)
    oracles.check_lost_sums(log)
