# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What `klogger record` says that its events cost on this kernel: an order that must be, and that
nothing of the measuring is in the log.
"""

import json
import subprocess

import pytest
from disturbed import Quiet

SHAPES = """\
schema shapes "Events that must cost differently"

event ONE { int a }
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
    def run(*options):
        (tmp_path / "shapes.klogger").write_text(SHAPES)
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


@pytest.mark.full("depends on how busy the machine is")
def test_costs_have_an_order(record):
    with Quiet() as quiet:
        found = record()["preamble"]["costs"]
    if found["why"]:
        quiet.check(f"not measured: {found['why']}")
    cost = {e["event"]: e["cost"]["ns"] for e in found["events"]}
    # A stack is walked and hashed, a number is one store; how much more that is depends on the
    # machine.
    assert 0 < found["probe"]["ns"] < found["hit"]["ns"] < cost["ONE"] < cost["WITH_STACK"]
    assert found["hit"]["ns"] < cost["TEXT"]
    for event in found["events"]:
        assert event["cost"]["low"] <= event["cost"]["ns"] <= event["cost"]["high"]


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


def test_it_can_be_left_out(record):
    assert "costs" not in record("--no-calibrate")["preamble"]
