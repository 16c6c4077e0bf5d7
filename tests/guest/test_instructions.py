# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One boot of Debian's 6.1 in which one tick of the TSC is one instruction, so that all numbers are
the same however busy the machine is: what an event of the kernel engine costs, and that both
engines log exactly what happened. bench/kernel/run also compares the cost with others.
"""

import importlib.machinery
import importlib.util
import json
import sys
from dataclasses import asdict
from pathlib import Path

import kernels
import oracles
import pytest
from oracles import Log, workload_json

ROOT = Path(__file__).resolve().parent.parent.parent
NOPS = ("66 90", "0f 1f 44 00 00")
JUMPS = ("eb", "e9")
MOST = {"two": 45, "eight": 55}


ARMS = [*MOST, *(f"{ints}_off" for ints in MOST)]
ROUNDS = 3
TURNS = 997
BPF = f"""
klogger record -s scheduler -o /out/pingpong.klog -- pingpong {TURNS} processes 0 \
    >/out/pingpong.json 2>/out/pingpong.err
echo $? >/out/pingpong.code
uname -r >/out/release
"""


def bench_of_the_kernel_engine():
    """bench/kernel/run, as a module."""
    path = str(ROOT / "bench/kernel/run")
    loader = importlib.machinery.SourceFileLoader("kernel_bench", path)
    spec = importlib.util.spec_from_loader("kernel_bench", loader)
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look for their module by its name.
    sys.modules["kernel_bench"] = module
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def out(klogger, workloads, tmp_path_factory) -> Path:
    """What the boot has left, and the numbers in report.json."""
    # Skips where there are none.
    kernels.headers()
    bench = bench_of_the_kernel_engine()
    guest = bench.Guest(tmp_path_factory.mktemp("instructions"))
    hits = bench.prepare(guest, kernels.cache(), str(klogger), ARMS)
    guest.add(workloads / "pingpong", "/bin/pingpong")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KLOGGER", str(klogger))
        patch.setenv("KLOGGER_CACHE", str(kernels.cache()))
        guest.boot(ROUNDS, ["empty", *ARMS], BPF)
    arms = {arm: asdict(bench.row(guest, arm, str(klogger))) for arm in ARMS}
    report = {"arms": arms, "calls": bench.paths(guest, hits)}
    (guest.out / "report.json").write_text(json.dumps(report))
    return guest.out


@pytest.fixture(scope="module")
def counted(out) -> dict:
    return json.loads((out / "report.json").read_text())


def test_the_bpf_engine_logs_each_switch(out, klogger):
    """The recorder that records the live kernel, with the same object, on Debian's."""
    assert (out / "release").read_text().startswith("6.1.")
    assert (out / "pingpong.code").read_text() == "0\n", (out / "pingpong.err").read_text()
    log = Log(klogger, out / "pingpong.klog")
    report = workload_json((out / "pingpong.json").read_text())
    assert log.meta["preamble"]["engine"] == "bpf"
    oracles.check_whole(log)
    oracles.check_serials(log)
    oracles.check_threads(log, report, oracles.EMULATED)
    assert log.rows("SELECT event FROM ledger WHERE key = 'probe_not_attached'") == []


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
