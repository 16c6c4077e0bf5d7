# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `klogger record` says that its events cost on this kernel: an order that must be, as far as
it is larger than the spread, and that nothing of the measuring is in the log.
"""

import json
import random
import subprocess
from itertools import pairwise
from statistics import median

import pytest
from disturbed import Quiet

# Of which the costs are compared.
RECORDINGS = 3

SHAPES = """\
schema shapes "Events that must cost differently"

event ONE { int aNUMBER }
event TEXT { string[64] a }
event WITH_STACK { uint s as stack }

probe tracepoint sched_process_fork(struct task_struct *parent, struct task_struct *child) {
    klogger(ONE, parent->pid);
    klogger(TEXT, parent->comm);
    klogger(WITH_STACK, klogger_stack());
}
"""


@pytest.fixture
def record(klogger, tmp_path):
    def run(*options, known=None):
        """`known`: a schema of this number has been recorded before; else it is a new one, of which
        no costs are kept.
        """
        number = known or random.getrandbits(30)
        (tmp_path / "shapes.klogger").write_text(SHAPES.replace("NUMBER", str(number)))
        log = tmp_path / "shapes.klog"
        words = [
            klogger,
            "record",
            "-q",
            "-s",
            tmp_path / "shapes.klogger",
            "-o",
            log,
            *options,
            "--",
            "true",
        ]
        subprocess.run(list(map(str, words)), check=True)
        return json.loads(subprocess.check_output([klogger, "info", "--format", "json", log]))

    return run


def measured(record) -> list[dict]:
    """What several recordings say of the probe, the hit and each event, as far as they could
    measure.
    """
    with Quiet() as quiet:
        all_costs = [record()["preamble"]["costs"] for _ in range(RECORDINGS)]
    found = [
        {"probe": costs["probe"], "hit": costs["hit"]}
        | {e["event"]: e["cost"] for e in costs["events"]}
        for costs in all_costs
        if not costs["why"]
    ]
    if not found:
        quiet.check(f"not measured: {all_costs[-1]['why']}")
    return found


@pytest.mark.full("takes more than 3 s")
def test_costs_have_an_order(record):
    found = measured(record)
    for costs in found:
        assert costs.keys() == {"probe", "hit", "ONE", "TEXT", "WITH_STACK"}
        assert all(cost["low"] <= cost["ns"] <= cost["high"] for cost in costs.values())
    # A stack is walked and hashed, a number is one store: that is a difference in kind. How much
    # more it is depends on the machine.
    ns = {name: median(costs[name]["ns"] for costs in found) for name in found[0]}
    assert 0 < ns["ONE"] < ns["WITH_STACK"]
    # The others differ by a few nanoseconds, and the measurements of one thing by as many. An order
    # is wrong only if no two measurements, each within its spread, agree with it.
    for less, more in (("probe", "hit"), ("hit", "ONE"), ("hit", "TEXT")):
        low = min(costs[less]["low"] for costs in found)
        high = max(costs[more]["high"] for costs in found)
        assert low < high, (less, more, found)
    assert max(costs["probe"]["high"] for costs in found) > 0


def test_nothing_of_it_is_in_the_log(record):
    """The recorder has hit its events ten thousand times by then; `true` makes no process."""
    found = record()
    logged = {e["name"]: (e["logged"], e["lost"]) for e in found["events"]}
    assert found["preamble"]["costs"]["hits"] > 1000
    assert [logged[name] for name in ("ONE", "TEXT", "WITH_STACK")] == [(0, 0)] * 3
    assert found["ledger"] == []


@pytest.mark.full("others of this file are in the gate")
def test_in_overwrite_mode(record):
    assert record("--overwrite")["preamble"]["costs"]["hits"] > 1000


def test_costs_are_kept(record):
    """On a busy machine it may not succeed; what has is not measured again."""
    number = random.getrandbits(30)
    found = [record(known=number)["preamble"]["costs"] for _ in range(RECORDINGS)]
    whole = [costs for costs in found if not costs["why"]]
    if len(whole) < 2:
        pytest.skip("the machine is too busy to measure costs twice")
    for first, second in pairwise(whole):
        assert first["events"] == second["events"] and first["probe"] == second["probe"]
        assert first["age_s"] <= second["age_s"]
    other = record()["preamble"]["costs"]
    assert other["age_s"] == 0
    assert not whole or other["why"] or other["events"] != whole[0]["events"]


def test_it_can_be_left_out(record):
    assert "costs" not in record("--no-calibrate")["preamble"]
