# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger bench`: from blocks to costs, on machines that are made up; what is written for the
loop; what is said.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import browser
import pytest

from klogger import program
from klogger.failure import Failure
from klogger_lab.bench import answer as answers
from klogger_lab.bench import cost, engines, events, health, kernel, page, rate, stats
from klogger_lab.bench.cost import Costs, Count, Taken
from klogger_lab.bench.events import CLOCK, EMPTY, OFF, REFERENCE, STORE, Event, Field
from klogger_lab.bench.health import Stolen
from klogger_lab.bench.rate import Step
from klogger_lab.bench.stats import Pass
from klogger_lab.cli import bench as command
from klogger_lab.machine import Machine

HERE = Machine(2, "6.18", "a CPU", 2**30, 0, 0, 250, True, "tsc")
ONE = Event("ONE", 16, 16, (Field("a", "int"),))
# Nanoseconds that each arm takes on the machine that is made up; a hit with nothing attached takes
# 100.
TRUE = {REFERENCE: 80.0, EMPTY: 125.0, CLOCK: 165.0, STORE: 166.0, OFF: 126.0, "ONE": 190.0}
BARE = {REFERENCE: 80.0, EMPTY: 100.0}
ROUNDS = 101
CLOCKS = {"backwards": 0, "mono_ns": 1_000_000_000, "raw_ns": 1_000_010_000, "step_ns": 300}
# Keys of the JSON form, for programs that read it. Names may be added, and none may go.
KEYS = {
    "schema", "engine", "machine", "cpu", "stolen", "load", "seconds", "measurable", "place",
    "bare_ns", "passes", "rounds", "block", "floor", "events", "rates", "disk_bytes_per_s",
}  # fmt: skip
EVENT_KEYS = {
    "name", "added_ns", "over_empty_ns", "not_measurable", "bytes", "bytes_least", "bytes_most",
    "hits", "logged", "lost",
}  # fmt: skip


def test_spread_of_known_samples() -> None:
    assert stats.spread([7.0]) == stats.Spread(7.0, 7.0, 7.0, 1)
    assert stats.spread([5.0, 1.0, 4.0, 2.0, 3.0]) == stats.Spread(3.0, 2.0, 4.0, 5)
    assert f"{stats.spread([1.0, 2.0, 3.0]):.1f}" == "2.0 (1.5 to 2.5)"


@pytest.mark.parametrize(
    ("values", "measurable"),
    [
        ([98.0, 99.0, 100.0, 101.0, 102.0], True),
        # A quarter of the median between the quartiles: just as wide as it may be.
        ([85.0, 87.5, 100.0, 112.5, 115.0], True),
        ([85.0, 87.0, 100.0, 113.0, 115.0], False),
        # Far values that are few do not matter.
        ([99.0, 100.0, 100.0, 101.0, 9000.0], True),
        # What costs nothing spreads around nothing.
        ([-0.4, -0.2, 0.0, 0.1, 0.3], True),
        ([-9.0, -5.0, 0.5, 5.0, 9.0], False),
    ],
)
def test_what_spreads_too_wide_is_no_number(values: list[float], measurable: bool) -> None:
    found = stats.judge(values)
    assert (found.ns is not None) == measurable
    assert ("spread too wide" in found.why) != measurable


def blocks(
    true: Mapping[str, float], rounds: int = ROUNDS, noise: float = 0.0, disturbed: float = 0.0
) -> stats.Blocks:
    """Blocks with noise that all arms of a round share, noise of their own, and some that are
    disturbed.
    """
    draw = random.Random(7)
    rows: dict[str, list[float]] = {arm: [] for arm in true}
    for _ in range(rounds):
        together = draw.uniform(-20, 20)
        for arm, ns in true.items():
            far = 5000.0 if draw.random() < disturbed else 0.0
            rows[arm].append(ns + together + draw.gauss(0, noise) + far)
    return rows


def one_pass(speed: tuple[float, float, float] = (0, 0, 0), **more: float) -> Pass:
    """Before, during and after the recording everything takes so many ns more."""
    slower = [
        {arm: ns + more_ns for arm, ns in true.items()}
        for true, more_ns in zip((BARE, TRUE, BARE), speed, strict=True)
    ]
    return Pass(blocks(slower[1], **more), blocks(slower[0], **more), blocks(slower[2], **more))


def test_added_is_the_planted_cost() -> None:
    for arm, ns in (("ONE", 90.0), (EMPTY, 25.0), (OFF, 26.0)):
        assert stats.added(one_pass(), arm, EMPTY, REFERENCE) == pytest.approx(ns)
    assert stats.over(one_pass().during, "ONE", EMPTY) == pytest.approx(65.0)


def test_a_machine_that_changes_its_speed_meanwhile_does_not_matter() -> None:
    for speed in ((0, 30, 60), (10, -10, 50), (40, 0, 0)):
        assert stats.added(one_pass(speed), "ONE", EMPTY, REFERENCE) == pytest.approx(90.0)


def test_blocks_that_are_disturbed_do_not_matter() -> None:
    found = stats.added(one_pass(rounds=1001, noise=2.0, disturbed=0.1), "ONE", EMPTY, REFERENCE)
    assert found == pytest.approx(90.0, abs=2.0)


STAT = """cpu  10 0 0 0 0 0 0 0 0 0
cpu0 100 20 30 400 5 6 7 32 9 9
cpu1 1 1 1 1 1 1 1 1 0 0
cpu10 9 9 9 9 9 9 9 900 0 0
cpu2 5 5 5 5
intr 1
"""


def test_stolen_time_is_that_of_one_cpu(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text(STAT)
    assert health.ticks(0, stat) == Stolen(32, 600)
    assert health.ticks(1, stat) == Stolen(1, 8)
    assert health.ticks(2, stat) == Stolen(0, 20)
    assert health.ticks(3, stat) == Stolen(0, 0)
    later = health.between(Stolen(32, 600), Stolen(52, 1000))
    assert later == Stolen(20, 400)
    assert later.share == 0.05
    assert Stolen(0, 0).share == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, ""),
        ({"backwards": 3}, "unstable: it went backwards 3 times"),
        ({"raw_ns": 1_002_000_000}, "unstable: two of them were 0.20% apart"),
        ({"step_ns": 4_000_000}, "too coarse: steps of 4,000,000 ns, and blocks of 40,000 ns"),
    ],
)
def test_clocks(change: dict[str, int], message: str) -> None:
    found = health.fault([CLOCKS, {**CLOCKS, **change}], 40_000, Stolen(1, 100))
    assert message in found
    assert bool(found) == bool(message)


def test_stolen_time_can_be_too_much() -> None:
    assert not health.fault([CLOCKS], 40_000, Stolen(25, 100))
    assert "took 26% of the CPU" in health.fault([CLOCKS], 40_000, Stolen(26, 100))


def taken(count: Count, clocks: Mapping[str, Any] = CLOCKS, **more: float) -> Taken:
    return Taken(one_pass(**more), [clocks], {"ONE": count})


NOTHING_STOLEN = Stolen(0, 100)


def machine(
    passes: list[Taken], stolen: Stolen = NOTHING_STOLEN, place: str = "itimer_state"
) -> Costs:
    found = Costs(
        "bpf" if place else "user",
        place,
        passes=len(passes),
        rounds=ROUNDS,
        block=211,
        stolen=stolen,
    )
    cost.settle(found, passes)
    return found


GOOD = Count(1000, 998, 2, 998 * 16)


def answer_of(costs: Costs) -> answers.Answer:
    return answers.Answer("made_up", HERE, [ONE], costs, seconds=1.5)


def test_a_good_machine() -> None:
    costs = machine([taken(GOOD)] * 3)
    assert costs.added["ONE"].ns == pytest.approx(stats.Spread(90.0, 90.0, 90.0, 3))
    assert costs.over_empty["ONE"].ns == pytest.approx(stats.Spread(65.0, 65.0, 65.0, 3))
    assert set(costs.added) == {EMPTY, CLOCK, STORE, OFF, "ONE"}
    assert costs.counts["ONE"] == Count(3000, 2994, 6, 2994 * 16)
    assert costs.bare_ns == pytest.approx(100, abs=20)
    found = answer_of(costs)
    assert found.measurable
    said = answers.as_json(found)
    assert set(said) == KEYS
    assert [set(event) for event in said["events"]] == [EVENT_KEYS]
    assert said["events"][0]["added_ns"] == {"median": 90.0, "low": 90.0, "high": 90.0}
    assert said["events"][0]["bytes"] == said["events"][0]["bytes_least"] == 16
    assert [row["name"] for row in said["floor"]] == [EMPTY, CLOCK, STORE, OFF]
    # 90 / 66.
    assert answers.results(found)[1].table.records()[0]["times_floor"] == 1.36


def test_a_program_has_no_empty_probe() -> None:
    costs = machine([taken(GOOD)] * 3, place="")
    assert set(costs.added) == {CLOCK, STORE, OFF, "ONE"}
    assert costs.over_empty == {}
    floor, rows = answers.results(answer_of(costs))
    assert "over_empty" not in floor.table.names + rows.table.names


@pytest.mark.parametrize(
    ("costs", "reason"),
    [
        (
            machine([taken(GOOD)] * 3, Stolen(40, 100)),
            "the hypervisor took 40% of the CPU meanwhile",
        ),
        (machine([taken(GOOD, {**CLOCKS, "backwards": 1})] * 3), "its clock is unstable"),
        (
            machine([taken(Count(1000, 900, 100, 14400))] * 3),
            "10% of its events were lost; try a larger",
        ),
        (
            machine([taken(Count(1000, 900, 99, 14400))] * 3),
            "of 3,000 hits the log has 2,700, and 297 as lost",
        ),
    ],
    ids=["stolen", "clock", "lost", "miscounted"],
)
def test_not_measurable_here(costs: Costs, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table says so in the place of the number, and the head says why; a program reads null and
    the reason.
    """
    found = answer_of(costs)
    assert not found.measurable
    args = command.parser().parse_args([])
    command.say(args, found)
    out = capsys.readouterr().out
    assert all(len(line) <= 100 for line in out.splitlines())
    row = next(line for line in out.splitlines() if line.startswith("ONE "))
    assert "not measurable here" in row
    assert "90" not in row
    assert reason in " ".join(out.replace("\n", " ").split())
    said = answers.as_json(found)["events"][0]
    assert said["added_ns"] is None
    assert reason in said["not_measurable"]
    text = page.page(found)
    assert "not measurable here" in text
    assert reason.replace("'", "&#x27;") in text


def test_passes_that_are_far_apart_are_not_measurable() -> None:
    passes = []
    for more in (0.0, 50.0, 100.0, 150.0):
        true = {**TRUE, "ONE": TRUE["ONE"] + more}
        passes.append(
            Taken(Pass(blocks(true), blocks(BARE), blocks(BARE)), [CLOCKS], {"ONE": GOOD})
        )
    costs = machine(passes)
    assert costs.added["ONE"].ns is None
    assert "127.5 to 202.5 ns between the quartiles" in costs.added["ONE"].why
    # What is steady is said all the same.
    assert costs.added[CLOCK].ns is not None


def test_the_page_has_the_ladder(tmp_path: Path) -> None:
    text = page.page(answer_of(machine([taken(GOOD)] * 3)))
    assert '"what":"ONE","added_ns":90.0' in text
    if browser.program() is None:
        pytest.skip("no chromium here to open the page in")
    file = tmp_path / "x.html"
    file.write_text(text)
    with browser.Browser(tmp_path) as found:
        found.open(file, 1100, 1400)
        assert found.ask("document.querySelectorAll('.picture svg').length") == 1
        assert found.complaints == []


# What `klogger show --format json` says, of each shape that a field can have.
SHOWN = {
    "schema": "shapes",
    "events": [
        {"name": "IS_OFF", "bytes": 8, "bytes_max": 8, "fields": []},
        {
            "name": "ALL", "bytes": 88, "bytes_max": 336,
            "fields": [
                {"name": "a", "type": "int", "shape": "one"},
                {"name": "b", "type": "ulong", "shape": {"array": 4}},
                {"name": "c", "type": "string[16]", "shape": {"text": 16}},
                {"name": "d", "type": "string", "shape": "tail"},
                {"name": "tid", "type": "int", "shape": "one", "context": "tid"},
                {"name": "cgroup", "type": "u64", "shape": "one", "context": "cgroup"},
            ],
        },
    ],
}  # fmt: skip


def test_events_of_each_shape() -> None:
    off, every = events.of_schema(SHOWN)
    assert (
        every.declaration()
        == "event ALL { int a  ulong b[4]  string[16] c  string d  context tid cgroup }"
    )
    assert every.call() == "klogger(ALL, number, bench_numbers, bench_text, bench_text)"
    assert (off.declaration(), off.call()) == ("event IS_OFF {  }", "klogger(IS_OFF)")
    assert every.of_text()
    assert not off.of_text()


@pytest.mark.parametrize("place", events.PLACES, ids=lambda place: place.name)
def test_schema_has_a_case_for_each_arm(place: events.Place) -> None:
    text = events.schema(events.of_schema(SHOWN), place)
    assert f"probe tracepoint {place.name}({place.parameters})" in text
    # The empty probe is the arm that has no case; an event that is off has a name of its own.
    assert [text.count(f"case {at}:") for at in range(8)] == [0, 0, 1, 1, 1, 1, 1, 0]
    assert "case 4:\n        klogger(IS_OFF_, number, number);" in text
    assert "case 6:\n        klogger(ALL, " in text
    assert "unsigned long number" in text


def test_a_hit_can_log_several_times() -> None:
    text = events.schema([rate.TWO_INTS], events.PLACES[0])
    assert text.count("klogger(TWO_INTS, number, number);") == rate.EVENTS_A_HIT == 5
    assert text.count("event TWO_INTS") == 1


def test_program_has_a_loop_for_each_arm() -> None:
    text = events.program(events.of_schema(SHOWN))
    assert "probe" not in events.schema(events.of_schema(SHOWN), None)
    assert "ARM(4, klogger(IS_OFF_, number, number))" in text
    assert "ARM(6, klogger(ALL, number, bench_numbers, bench_text, bench_text))" in text
    assert "arm_6 }" in text


def test_events_that_are_named() -> None:
    assert [e.name for e in events.of_schema(SHOWN, ["ALL", "ALL"])] == ["ALL"]
    with pytest.raises(Failure, match="schema shapes has no event 'AL'\n  help: did you mean ALL"):
        events.of_schema(SHOWN, ["AL"])
    with pytest.raises(Failure, match="schema none has no events"):
        events.of_schema({"schema": "none", "events": []})


# Hits are counted by arm; the sum goes to a file at the end.
ARMS = """\
static unsigned long counts[3];

static void hit(unsigned arm, unsigned n)
{
	counts[arm] += n;
}

__attribute__((destructor)) static void say(void)
{
	fprintf(stderr, "%lu %lu %lu", counts[0], counts[1], counts[2]);
}
"""


def test_the_loop_makes_the_hits_that_it_says(tmp_path: Path) -> None:
    """7 rounds of 13 hits of two arms, then floods, by rate and without."""
    source = tmp_path / "loop.c"
    source.write_text(resources.files("klogger_lab").joinpath("bench", "loop.c").read_text())
    (tmp_path / "arms.h").write_text("#include <stdio.h>\n" + ARMS)
    program = tmp_path / "loop"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    orders = "rounds 7 0 2\nflood 1 3000000 5\nflood 1 1000000 0\nticks 1\n"
    cpu = str(min(os.sched_getaffinity(0)))
    done = subprocess.run(
        [program, cpu, "13", "1000"], input=orders, capture_output=True, text=True, check=True
    )
    rounds, slow, fast, ticks = map(json.loads, done.stdout.splitlines())
    assert [len(row) for row in rounds["blocks"]] == [7, 7]
    assert rounds["backwards"] == 0
    assert slow["hits"] % 5 == 0
    assert fast["hits"] % 13 == 0
    assert slow["ns"] >= 3_000_000
    assert ticks["ns"] >= 1_000_000
    assert list(map(int, done.stderr.split())) == [91, slow["hits"] + fast["hits"], 91]


@pytest.mark.parametrize("order", ["nonsense\n", "flood 1 5\n"])
def test_the_loop_refuses_what_it_does_not_know(order: str, tmp_path: Path) -> None:
    source = tmp_path / "loop.c"
    source.write_text(resources.files("klogger_lab").joinpath("bench", "loop.c").read_text())
    (tmp_path / "arms.h").write_text(
        "static void hit(unsigned arm, unsigned n) { (void)arm; (void)n; }\n"
    )
    subprocess.run(["cc", "-o", tmp_path / "loop", source], check=True)
    cpu = str(min(os.sched_getaffinity(0)))
    done = subprocess.run(
        [tmp_path / "loop", cpu, "13", "0"],
        input=order,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2


class Seen(rate.Watch):
    """Of a recorder that was seen so."""

    def __init__(self, *states: str) -> None:
        self.seen = {str(at): Counter(word) for at, word in enumerate(states)}
        self.cpu_s = 0.5


def step(watch: rate.Watch, made: int, logged: int, lost: int) -> Step:
    said = {
        "events": [{"name": "TWO_INTS", "logged": logged, "lost": lost, "bytes": 16 * logged}],
        "ledger": (
            [{"event": "TWO_INTS", "from_ns": 3_500_000_000 + at} for at in (5, 0)] if lost else []
        ),
    }
    loops = [
        {
            "hits": made // 2 // rate.EVENTS_A_HIT,
            "start_ns": 3_000_000_000 + at,
            "ns": 2_000_000_000 - at,
        }
        for at in (0, 7)
    ]
    return rate.step_of("4M", said, 1_000_000, loops, watch)


def test_a_step_of_the_rate() -> None:
    found = step(Seen("SSSS", "SRRR"), 2_000_000, 1_990_000, 10_000)
    assert found.offered == 1_000_000
    assert found.lossless_s == 0.5
    assert found.bound == "the recorder's CPU time"
    assert found.recorder_cpus == 0.25
    whole = step(Seen("RRRR"), 2_000_000, 2_000_000, 0)
    assert (whole.lossless_s, whole.bound) == (None, "")
    with pytest.raises(Failure, match="of 2,000,000 events the log has 1,999,999, and 0 as lost"):
        step(Seen(), 2_000_000, 1_999_999, 0)


def test_what_holds_a_recorder_up() -> None:
    assert rate.bound([Counter("SSSS"), Counter("SDDD")]) == "the disk"
    assert rate.bound([Counter("SSSS"), Counter("SSRR")]) == "the recorder's CPU time"
    assert rate.bound([Counter("SSSS"), Counter("SSSR")]) == "the ring's size"
    assert rate.bound([]) == "the ring's size"


def test_rates_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer_of(machine([taken(GOOD)] * 3))
    found.rates = [
        step(Seen(), 2_000_000, 2_000_000, 0),
        step(Seen("DDD"), 4_000_000, 3_600_000, 400_000),
    ]
    found.disk = 100 * 2**20
    command.say(command.parser().parse_args([]), found)
    out = " ".join(capsys.readouterr().out.split())
    assert "rings of 4MiB: 1,000,000 events a second for 2 s, none lost" in out
    assert "2,000,000 a second lost 10.0%, the first after 500 ms: the disk" in out
    assert (
        "16 bytes each, 5 in a hit. The disk took 64.0 MiB at 100 MiB a second, which is 6,553,600"
        " events" in out
    )
    assert answers.as_json(found)["rates"][1]["lost"] == 400_000


def test_ticks_of_the_kernel_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "current_clocksource"
    monkeypatch.setattr(kernel, "CLOCKSOURCE", source)
    source.write_text("tsc\n")
    assert kernel.ticks_per_ns({"ticks": 250, "ns": 100}) == 2.5
    # Then the engine's clock counts nanoseconds.
    source.write_text("hpet\n")
    assert kernel.ticks_per_ns({"ticks": 250, "ns": 100}) == 1.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dir", "/nowhere/at/all"], "/nowhere/at/all: no such directory"),
        (["--cpu", "4096"], "there is no CPU 4096 to run on"),
        (["--engine", "kernel", "--rate"], "--rate goes with --engine bpf or user"),
    ],
)
def test_what_cannot_be_measured(
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "check_available", lambda engine: None)
    assert command.main(words) == 2
    assert message in capsys.readouterr().err


def test_what_klogger_cannot_record_with(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = [{"name": "bpf", "available": False, "why_not": "needs CAP_BPF", "help": "sudo"}]
    monkeypatch.setattr(program, "answer", lambda *words: answer)
    assert command.main([]) == 2
    assert capsys.readouterr().err == "klogger: needs CAP_BPF\n  help: sudo\n"


def test_every_engine_can_be_measured() -> None:
    known = {e for choice in program.answer("list", "--engines") for e in choice["engines"]}
    assert set(engines.ENGINES) == known


@pytest.mark.parametrize("word", ["2", "-3", "many"])
def test_quartiles_need_passes(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main([f"--passes={word}"])
    assert ended.value.code == 2
    assert f"'{word}': quartiles need a number of 3 or more" in capsys.readouterr().err


@pytest.mark.parametrize(("stolen", "code"), [(Stolen(0, 100), 0), (Stolen(40, 100), 1)])
def test_exit_code(
    stolen: Stolen,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    costs = machine([taken(GOOD)] * 3, stolen)
    shown = {"schema": "x", "events": [{"name": "ONE", "bytes": 16, "bytes_max": 16, "fields": []}]}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(command, "show", lambda _: shown)
    monkeypatch.setattr(command, "costs_of", lambda *_: costs)
    assert command.main(["--dir", str(tmp_path), "--format", "json"]) == code
    assert json.loads(capsys.readouterr().out)["measurable"] == (code == 0)
    assert list(tmp_path.iterdir()) == []


def test_help_fits_and_names_each_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit):
        command.main(["--help"])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert "examples:" in out
