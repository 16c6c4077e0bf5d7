# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What bench/ makes of numbers; it measures nothing here."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import ext4_cost
import loads
import measure
import page
import picture
import probe_cost
import rivals
import speed
import sustained

from klogger.failure import Failure
from klogger_lab.bench.events import EMPTY, REFERENCE
from klogger_lab.bench.stats import Pass


def test_each_file_can_be_imported() -> None:
    folder = Path(measure.__file__).parent
    names = sorted(path.stem for path in folder.glob("*.py"))
    command = [sys.executable, "-c", f"import {', '.join(names)}"]
    subprocess.run(command, cwd=folder, check=True)


def test_a_cost_has_quartiles() -> None:
    assert measure.cell([40.0, 41.0, 42.0]) == "41.0 (40.5 to 41.5)"


def test_what_spreads_too_wide_is_no_number() -> None:
    found = measure.cell([40.0, 60.0, 80.0])
    assert found == "not measurable here: the runs spread too wide, 50.0 to 70.0"


def test_what_cannot_be_told_apart_need_not_be() -> None:
    assert measure.cell([0.4, 0.5, 1.4]).startswith("0.5 (")
    # Of quotients, 2 is not little.
    assert measure.cell([0.4, 0.5, 1.4], 2, 0.1).startswith("not measurable here")


@pytest.mark.parametrize(
    ("over", "words"), [([50.0, 51.0], "0.51 (0.50 to 0.51)"), ([56.0, 57.0], "0.56 (")]
)
def test_a_goal_is_reached_or_not(over: list[float], words: str) -> None:
    line = measure.goal("a / b", over, [100.0, 100.0], 0.55)
    assert line.startswith(f"- a / b: {words}")
    assert line.endswith("to be at most 0.55: yes" if over[0] < 55 else "to be at most 0.55: no")


def test_a_goal_without_numbers_is_not_reached() -> None:
    assert (
        measure.goal("a / b", None, [1.0], 0.5) == "- a / b: not measurable here, to be at most 0.5"
    )
    assert measure.goal("a / b", [1.0], [1.0], 0.5, "its clock is unstable").startswith(
        "- a / b: not measurable here"
    )
    wide = measure.goal("a / b", [10.0, 100.0], [100.0, 100.0], 0.5)
    assert wide == "- a / b: not measurable here (the runs spread too wide), to be at most 0.5"


@pytest.mark.parametrize(
    ("percent", "said"),
    [
        ([1.0, 2.0, 3.0], "yes"),
        ([6.0, 7.0, 8.0], "no"),
        ([-9.0, 2.0, 9.0], "not measurable here (spread)"),
        ([-9.0, 7.0, 30.0], "not measurable here (spread)"),
        # However far they are apart, nearly all are above the goal.
        ([20.0, 40.0, 60.0], "no"),
    ],
)
def test_what_spreads_by_more_than_the_goal_is_not_judged(percent: list[float], said: str) -> None:
    assert ext4_cost.verdict(measure.spread(percent)) == said


def test_pairs_are_divided_one_by_one() -> None:
    """The machine was twice as slow in the second round, for both."""
    found = measure.quotient([11.0, 22.0], [10.0, 20.0], paired=True)
    assert found is not None
    assert (found.low, found.high) == (1.1, 1.1)


def test_the_worst_thousandth_is_left_out() -> None:
    assert measure.trimmed([10] * 999 + [10_000]) == (10.0, 0.0)
    assert measure.trimmed([10] * 998 + [10_000] * 2)[0] > 10


def test_a_reason_is_one_line() -> None:
    assert (
        measure.why(Failure("⚠ C: unused\n  7 │ x\nklogger: the kernel refused it", help="this"))
        == "klogger: the kernel refused it"
    )
    assert measure.why(RuntimeError("one\n\ntwo")) == "one"
    assert measure.why(RuntimeError("")) == "RuntimeError"


def test_an_arm_that_fails_is_left_out_with_its_reason() -> None:
    def fails() -> dict[str, float]:
        raise Failure("no such tracepoint")

    results, missing = measure.rounds_of({"a": lambda: {"a": 1.0}, "b": fails}, 3)
    assert (results, missing) == ({"a": [1.0] * 3}, {"b": "no such tracepoint"})


def blocks(empty: float, reference: float) -> dict[str, list[float]]:
    return {EMPTY: [empty] * 3, REFERENCE: [reference] * 3}


def test_a_cost_does_not_depend_on_the_speed() -> None:
    """A hit takes 0.5 references more while something is attached, whatever the reference takes
    just then.
    """
    same = Pass(blocks(160, 100), blocks(110, 100), blocks(110, 100))
    slower = Pass(blocks(320, 200), blocks(110, 100), blocks(165, 150))
    assert speed.added(same, EMPTY) == pytest.approx(0.5)
    assert speed.added(slower, EMPTY) == pytest.approx(0.5)
    seen = speed.Speed()
    seen.note(same.during, slower.during, slower.after)
    assert seen.in_ns({"a": [0.5]}) == {"a": [pytest.approx(75.0)]}


def test_a_loop_that_was_held_up_is_seen() -> None:
    said = {"blocks": [[100.0] * 10, [300.0] * 10], "mono_ns": 800_000}
    assert speed.share(said, 100) == pytest.approx(0.5)


def step(asked: int, most: int) -> sustained.Step:
    made = asked * 5 if asked else 50 * most
    return sustained.Step(asked, made, min(made, most * 5), 5.0, 100)


def test_the_climb_ends_at_the_first_step_that_loses() -> None:
    asked = []

    def one(rate: int) -> sustained.Step:
        asked.append(rate)
        return step(rate, 250)

    found = sustained.climb(one, (100, 200, 300, 400, 0), tries=2)
    assert asked == [100, 200, 300, 300]
    assert found.best is not None and found.lossy is not None
    assert (found.best.rate, found.lossy.rate, found.lossy.lost) == (200, 300, 250)


def test_a_step_may_be_tried_again() -> None:
    """What others did on the machine was the reason for the first loss."""
    limits = iter([100, 1000, 1000])
    found = sustained.climb(lambda rate: step(rate, next(limits)), (200, 400), tries=2)
    assert found.best is not None
    assert (found.best.rate, found.lossy) == (400, None)


def test_no_step_without_a_loss() -> None:
    found = sustained.climb(lambda rate: step(rate, 10), (100,), tries=1)
    assert found.best is None
    assert "no step without a loss" in sustained.row("x", found)


def test_the_best_of_the_others_is_compared() -> None:
    lines = sustained.verdicts(
        {"klogger": 4e6, "perf record": 1e6, "BPF ring buffer": 2e6, "x, 5 events a hit": 9e6}, 1e9
    )
    assert (
        lines[-1]
        == "- klogger / the best of the others, BPF ring buffer: 2.00, to be at least 1.5: yes"
    )


def test_sections_that_are_not_measured_again_stay() -> None:
    text = page.page(["# Benchmarks", ""], {"b": "## B\n\n2", "a": "## A\n\n1"}, ["a", "b", "c"])
    assert text.index("## A") < text.index("## B")
    kept = page.sections_of(text)
    assert kept == {"a": "## A\n\n1", "b": "## B\n\n2"}
    assert page.page(["# Benchmarks", ""], kept, ["a", "b", "c"]) == text


def test_only_paragraphs_are_wrapped() -> None:
    text = [
        "## A",
        "",
        "a few words",
        "and `more`,",
        "and more",
        "",
        "| a | b |",
        "|---|---|",
        "- a goal",
        "  and why",
    ]
    assert page.wrapped(text) == ["## A", "", "a few words and `more`, and more", *text[5:]]
    assert all(len(line) <= page.WIDTH for line in page.wrapped(["word"] * 100))


def test_a_page_of_old_has_no_sections() -> None:
    assert page.sections_of("# Benchmarks\n\n## A\n\n1\n") == {}


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("perf version 6.1.192\n", "6.1.192"),
        ("\ntrace-cmd version 3.1.6 (not-a-git-repo)\n", "3.1.6"),
        ("bpftrace v0.17.0\n", "0.17.0"),
        ("1:1.1.2-0+deb12u1", "1.1.2-0+deb12u1"),
        ("usage: none", "unknown"),
    ],
)
def test_versions(said: str, version: str) -> None:
    assert page.version_of(said) == version


def test_events_in_an_ftrace_buffer(tmp_path: Path) -> None:
    for cpu, (entries, overrun, read) in enumerate([(10, 5, 100), (0, 0, 7)]):
        folder = tmp_path / f"per_cpu/cpu{cpu}"
        folder.mkdir(parents=True)
        (folder / "stats").write_text(
            f"entries: {entries}\noverrun: {overrun}\nnow ts: 1.5\nread events: {read}\n"
        )
    assert rivals.buffered(tmp_path) == 117


def test_a_tracer_that_ends_early_says_why() -> None:
    words = ["sh", "-c", "echo no such event >&2; exit 3"]
    with (
        rivals.running(words) as process,
        pytest.raises(RuntimeError, match="exit code 3: no such event"),
    ):
        rivals.until(lambda: False, process, "it")


def test_a_load_in_shares_of_all_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads.os, "cpu_count", lambda: 2)
    plain = {"wall": 2.0, "cpu": 1.0}
    recorded = {
        "wall": 2.0,
        "cpu": 1.04,
        "recorder": 0.2,
        "logged": 200_000,
        "lost": 0,
        "bytes": 4 << 20,
    }
    found = loads.shares_of([(plain, recorded)] * 2, 100.0)
    assert found.row("x") == "| x | 25.0 | 1.00 (1.00 to 1.00) | 0.50 | 5.00 | 2.00 | 100,000 | 0 |"
    assert (
        found.verdict("x", 50_000)
        == "- x: 5.50 %, with 2.0 times the events a second of 2006, to be at most 2.3 without a"
        " loss: no"
    )
    assert "not measurable here" in loads.shares_of([(plain, recorded)], None).verdict("x", 50_000)


def test_a_goal_that_is_missed_has_its_bound() -> None:
    ns = {
        probe_cost.FLOOR_NAME: 50.0,
        probe_cost.CLOCK_READ: 51.0,
        probe_cost.KLOGGER: 62.0,
        "ftrace event": 100.0,
        "bpftrace": 1000.0,
    }
    said = "\n".join(probe_cost.bounds(ns))
    assert "11.0 are the event" in said
    assert "The floor alone is 0.50 of ftrace event, to be at most 0.55." in said
    assert "bpftrace" not in said
    assert probe_cost.bounds({probe_cost.KLOGGER: 62.0}) == []


def test_the_picture_is_a_png() -> None:
    png = picture.cost_picture({"klogger": [50.0], "others": [1000.0, 900.0]}, "place")
    assert png is not None and png.startswith(b"\x89PNG")
