# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What bench/block_cost.py makes of what the guest prints; it measures nothing here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import block_cost

# 1000 ns for a read; 1500 ns with klogger; 3000 ns with blktrace. Of 20 reads there is one run.
SAID = """
run without 10 1000000 0
run blktrace 10 333333 2400
run without 10 1000000 0
run klogger 10 666667 720
run without 10 1000000 0
run without 20 500000 0
run klogger 20 400000 1440
run without 20 500000 0
a line of the kernel
many 30 210000.5
log {"events": [{"name": "RQ_OPEN"}, {"name": "RQ_DONE", "logged": 29, "lost": 1}]}
""".splitlines()


def test_what_a_tracer_adds_is_between_its_neighbours() -> None:
    seen = block_cost.runs(SAID)
    found = block_cost.added(seen, 10)
    assert {name: [round(ns) for ns in costs] for name, costs in found.items()} == {
        "blktrace": [2000],
        "klogger": [500],
    }
    assert [round(ns) for ns in block_cost.added(seen, 20)["klogger"]] == [500]


def test_the_table_has_a_column_for_each_number_of_reads() -> None:
    seen = block_cost.runs(SAID)
    rows = block_cost.table(seen, {10: block_cost.added(seen, 10)})
    assert rows[0] == "| | added, 10 reads | bytes a read | how |"
    assert "klogger / blktrace, 10 reads: 0.250, to be at most 0.5: yes" in rows[-1]


def test_a_rate_is_reached_only_without_loss() -> None:
    found = block_cost.many(SAID)
    assert found == block_cost.Many(counted=30, rate=210000.5, logged=29, lost=1)
    assert "without loss: no;" in block_cost.at_once(found)[0]
    whole = found._replace(logged=30, lost=0)
    assert "without loss: yes;" in block_cost.at_once(whole)[0]
    assert "without loss: no;" in block_cost.at_once(whole._replace(rate=199999.0))[0]


def test_a_guest_that_ended_early_has_no_rate() -> None:
    assert block_cost.many(SAID[:-2]) is None
    assert "not measurable here" in block_cost.at_once(None)[0]
