# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger compare` on recordings of a program that computes for a known time, and for
much longer.
"""

import json
import shutil

import pytest
from oracles import workload_json

# Of a busy CPU, long turns get less than they want at a time: hence so much longer.
ROUNDS, SHORT, LONG = 150, 100, 1500
RUNS = 5


@pytest.fixture
def turns(recorder, workloads):
    """Records a run of so many microseconds a turn; the log, and what the program says."""
    if not (recorder.klogger.parent / "klogger-compare").exists() and not shutil.which(
        "klogger-compare"
    ):
        pytest.skip("klogger-compare is not installed here")

    def record(us: int):
        done, out = recorder.run("-s", "scheduler", "--", workloads / "turns", ROUNDS, us)
        assert done.code == 0, done.err
        return out, workload_json(done.out)

    return record


def compare(recorder, a, b, *words):
    logs = [*(log for log, _ in a), "--with", *(log for log, _ in b)]
    done = recorder.command("compare", *logs, "--format", "json", *words, timeout=300)
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.mark.full("takes more than 3 s")
def test_differences_are_those_of_the_programs(recorder, turns):
    # In turn, so that what the machine does beside it hits both.
    short, long = zip(*[(turns(SHORT), turns(LONG)) for _ in range(RUNS)], strict=True)
    check_found(compare(recorder, short, long, "--metric", "quanta/turns/p50"))
    check_same(compare(recorder, short[:2], short[2:], "--metric", "quanta/turns/p50"))
    check_sums(compare(recorder, short[:1], short[1:2], "--analysis", "quanta"), short[:2])


def check_found(answer):
    (metric,) = answer["metrics"]
    assert metric["verdict"] == "differs", metric
    assert metric["change"] > 1, metric
    assert metric["low"] > 0, metric


def check_same(answer):
    """One such comparison of twenty may see a difference, but none sees one of that size."""
    (metric,) = answer["metrics"]
    assert metric["low"] < 3, metric
    assert metric["high"] > -0.75, metric


def check_sums(answer, runs):
    """All quanta together are the CPU time that the program had, and what the machine took in
    between.
    """
    metrics = {m["name"]: m for m in answer["metrics"]}
    (curve,) = [c for one in answer["analyses"] for c in one["curves"] if c["what"] == ["turns"]]
    mean = metrics["quanta/turns/mean"]
    for side, count, (_, report) in zip(("a", "b"), curve["values"], runs, strict=True):
        # The kernel does not report each switch from idle; the first and the last quantum are not
        # whole.
        assert mean[side] * count > 0.9 * report["cpu_ns"], (mean, curve["values"], report)
        assert count > 0.9 * ROUNDS, curve["values"]
