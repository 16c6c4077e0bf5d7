# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What an event of the kernel engine costs: counted in a guest where one tick of the TSC is one
instruction, so that it is the same however busy the machine is. bench/kernel/run also compares it
with others.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOPS = ("66 90", "0f 1f 44 00 00")
JUMPS = ("eb", "e9")
MOST = {"two": 45, "eight": 55}


@pytest.fixture(scope="module")
def counted(klogger, tmp_path_factory):
    """All from one boot."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = Path(os.environ.get("KLOGGER_CACHE") or os.path.join(base, "klogger"))
    if not (cache / "guest/complete").exists():
        pytest.skip("no kernel for a guest: run 'scripts/setup guest'")
    report = tmp_path_factory.mktemp("instructions") / "report.json"
    done = subprocess.run(
        [
            ROOT / "bench/kernel/run",
            "--rounds",
            "3",
            "--only",
            "two,eight,two_off,eight_off",
            "--json",
            report,
        ],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "KLOGGER": str(klogger), "KLOGGER_CACHE": str(cache)},
    )
    if "no headers of kernel" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(report.read_text())


@pytest.mark.parametrize("ints", MOST)
def test_off_it_is_one_nop(counted, ints):
    assert counted["arms"][f"{ints}_off"]["most"] == [1, 1, 1], counted["arms"][f"{ints}_off"]


@pytest.mark.parametrize("ints", MOST)
def test_the_nop_is_patched_and_put_back(counted, ints):
    """In the memory of the kernel that runs."""
    branch = counted["calls"][ints]["branch"]
    assert branch["before"].startswith(NOPS), branch
    assert branch["on"].startswith(JUMPS), branch
    assert branch["after"] == branch["before"]


@pytest.mark.parametrize("ints", MOST)
def test_instructions(counted, ints):
    arm = counted["arms"][ints]
    assert arm["logged"] == arm["hits"] > 0, arm
    assert max(arm["median"]) == min(arm["median"]) <= MOST[ints], arm


@pytest.mark.parametrize("ints", MOST)
def test_no_conditional_branch_is_taken(counted, ints):
    """What is executed is as long as the fast path in the disassembly, whose last instruction
    is the return.
    """
    call = counted["calls"][ints]
    assert counted["arms"][ints]["median"][0] == len(call["on"]) - 1, call["on"]
    assert call["taken"] == 0, call["on"]
