# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger top` without a recorder: how often it draws, what its screen shows, in 80x24, of names
that nobody should trust, and what it says to options that make no sense.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from screens import HOSTILE, Fake, drive, frame, result, screen_of, table_of, until
from textual.pilot import Pilot

import klogger
from klogger import executor
from klogger.analysis import Analysis
from klogger.executor import Result, Rows
from klogger.ledger import Kind, Ledger
from klogger_lab.cli import top
from klogger_lab.top import behind, rows
from klogger_lab.top.cost import AIM, Cost, Meter
from klogger_lab.top.panels import Events
from klogger_lab.top.rows import Order
from klogger_lab.top.screen import Top


class Clock:
    """Time, the recorder's CPU and our own, as a test sets them."""

    def __init__(self) -> None:
        self.now = self.recorder = self.own = 0.0

    def meter(self, every: float) -> Meter:
        return Meter(every, lambda: self.recorder, lambda: self.own, lambda: self.now)


def pass_frames(clock: Clock, meter: Meter, rate: float, frame: float, count: int) -> list[Cost]:
    """A recorder that needs `rate` of a CPU, and frames that need `frame` seconds of it."""
    found = [meter.frame_made()]
    for _ in range(count):
        wait = found[-1].every
        clock.now += wait
        clock.recorder += rate * wait
        clock.own += frame
        found.append(meter.frame_made())
    return found


@pytest.mark.parametrize("rate", [0.0, 0.03, 0.07])
@pytest.mark.parametrize("frame", [0.001, 0.2, 1.5])
def test_all_that_is_done_stays_below_the_budget(rate: float, frame: float) -> None:
    clock = Clock()
    costs = pass_frames(clock, clock.meter(1.0), rate, frame, 40)
    used = clock.recorder + clock.own
    assert used / clock.now <= AIM * 1.02 + 2 * frame / clock.now
    assert costs[-1].share == pytest.approx(used / clock.now)
    settled = max(1.0, frame / (AIM - rate))
    assert costs[-1].every == pytest.approx(settled, rel=0.05)
    assert costs[-1].stretched == (settled > 1.0)


def test_a_recorder_that_needs_all_still_gets_a_frame_from_time_to_time() -> None:
    clock = Clock()
    costs = pass_frames(clock, clock.meter(1.0), 0.5, 0.2, 10)
    assert 1.0 < costs[-1].every <= 300
    assert "to stay below 10% of a CPU" in costs[-1].said()


def test_what_a_user_asks_for_does_not_stretch_the_time() -> None:
    clock = Clock()
    meter = clock.meter(1.0)
    pass_frames(clock, meter, 0.0, 0.05, 20)
    with meter.asked():
        clock.own += 10
    clock.now += 1
    clock.own += 0.05
    assert meter.frame_made().every == pytest.approx(1.0)


def test_the_screen_says_what_is_looked_at_and_what_was_found() -> None:
    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.shown))
        text = "\n".join(screen_of(app))
        for word in ("scheduler: ./prog", "200,000 events/s", "none missing", "ping is first.",
                     "every 4 s, to stay below 10% of a CPU", "1 switches"):  # fmt: skip
            assert word in text
        assert [row[0] for row in table_of(app)] == ["ping", "pong"]

    drive(Fake([frame()]), look)


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 60)])
def test_every_line_fits(size: tuple[int, int]) -> None:
    many = result(programs=tuple(f"program {i} {'x' * 200}" for i in range(100)))
    lost = Kind("ring_full", "loss", 5, "SCHEDIN", "CPU 0", "", "the ring was full", "a larger one")

    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.shown))
        lines = screen_of(app)
        assert len(lines) == size[1] and all(len(line) == size[0] for line in lines)
        assert "5 missing" in "\n".join(lines)
        assert any("program 0" in line for line in lines)

    drive(Fake([frame(results=[many], lost=5, ledger=Ledger([lost]))]), look, size)


def test_names_do_not_act_on_the_terminal() -> None:
    bad = result(HOSTILE, programs=(HOSTILE, "pong"))
    bad.analysis.question = HOSTILE

    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: bool(app.shown))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, Events))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, Events))
        text = "\n".join(screen_of(app))
        assert "\x1b" not in text and "\x07" not in text
        # It is text, brackets and all.
        assert "[bold red]\N{REPLACEMENT CHARACTER}[2J" in table_of(app)[0][0]
        assert "• [bold red]" in text

    drive(Fake([frame(results=[bad], notes=[HOSTILE], state="ended", reason=HOSTILE)]), look)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ({"results": []}, "the schema brings no analyses"),
        ({"state": "ended", "reason": "the command has ended with exit code 3"}, "exit code 3"),
        ({"state": "failed", "reason": "the recorder was killed"}, "the recorder was killed"),
        ({"short": True, "seconds": 2.3}, "last 2.3 s (memory holds no more)"),
        ({"notes": ["SCHEDIN cannot be logged here"]}, "SCHEDIN cannot be logged here"),
    ],
)
def test_each_state_is_explained(shown: dict[str, Any], said: str) -> None:
    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: said in "\n".join(screen_of(app)))

    drive(Fake([frame(**shown)]), look)


def test_an_answer_that_is_none_says_why() -> None:
    nothing = dataclasses.replace(result(), status="not_recorded", reason="WAIT not recorded")
    nothing.table = nothing.points = Rows()

    async def look(app: Top, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "no answer: WAIT not recorded" in "\n".join(screen_of(app)))
        await pilot.press("enter", "s", "S", "v")

    drive(Fake([frame(results=[nothing])]), look)


def test_the_table_is_that_of_the_report(small_log: Path) -> None:
    with klogger.open(small_log) as log, executor.Session(log) as session:
        for one in session.analyses:
            found = session.run(one)
            shown = rows.shown(found, Order(), "")
            kept = [row for row in found.table.rows if row in shown.rows]
            assert shown.rows == kept and len(shown.cells) == len(shown.rows)
            for column in found.table.names:
                ordered = rows.shown(found, Order(column, falling=False), "").rows
                values = [row[found.table.names.index(column)] for row in ordered]
                assert values == sorted(values, key=rows.sort_key)


def test_the_events_behind_a_row_have_its_values(small_log: Path) -> None:
    with klogger.open(small_log) as log, executor.Session(log) as session:
        quanta = session.run(next(a for a in session.analyses if a.name == "quanta"))
        assert quanta.table.names[0] == "program"
        for row in quanta.table.rows:
            pid = {"hog": 10, "find": 11}[row[0]]
            found = behind.find(log, quanta, row)
            (count,) = log.rows(
                f"SELECT (SELECT count(*) FROM SCHEDIN WHERE pid = {pid})"
                f" + (SELECT count(*) FROM SCHEDOUT WHERE pid = {pid})"
            )[0]
            assert found.count == len(found.rows) == count
            assert {r[3] for r in found.rows} == {row[0]}
            assert [r[0] for r in found.rows] == sorted(r[0] for r in found.rows)


def test_events_are_found_by_columns_of_the_same_name_and_type(small_log: Path) -> None:
    with klogger.open(small_log) as log:
        one = Analysis("mine", small_log, "scheduler", events=("SCHEDIN", "MIGRATE"))
        asked = Result(one, table=Rows(["cpu", "pid", "prio", "other"]))
        found = behind.find(log, asked, [0, 10, "120", 5])
        # `prio` is a number there; the others have no such column.
        assert [c.replace('"', "") for c in found.conditions] == ["cpu = 0", "pid = 10"]
        rows_of = "SELECT (SELECT count(*) FROM SCHEDIN WHERE cpu = 0 AND pid = 10) + "
        rows_of += "(SELECT count(*) FROM MIGRATE WHERE cpu = 0 AND pid = 10)"
        assert found.count == log.rows(rows_of)[0][0] > 0
        assert behind.find(log, asked, ["no", "values", None, 1.5]).conditions == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nobody to look at"),
        (["-a", "-p", "1"], "-a and -p contradict each other"),
        (["-a", "--window", "1h"], "--window 3600s: not between 0.1s and 600s"),
        (["-a", "--window", "0"], "'0' is no time"),
        (["-a", "--every", "-1"], "--every"),
        (["-a", "--every", "2h"], "--every 7200s: longer than an hour"),
        (["-a", "--format", "json"], "--format json is for --once"),
        (["-a", "--output", "x"], "--output is for the output of a command"),
        (["--", "/no/such/program"], "cannot run '/no/such/program'"),
        (["-a"], "no terminal"),
    ],
)
def test_bad_input_gets_one_message(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = top.main(words)
    except SystemExit as ended:
        code = int(str(ended.code))
    shown = capsys.readouterr()
    assert code == 2 and shown.out == "" and said in shown.err
    assert shown.err.count("klogger") >= 1 and "Traceback" not in shown.err


def test_a_dumb_terminal_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    with pytest.raises(klogger.Failure, match="TERM=dumb"):
        top.check_terminal()


def test_a_frame_is_json_as_a_report_has_it() -> None:
    found = frame().as_json()
    assert found["events_per_s"] == 200_000 and found["analyses"][0]["table"][0]["times"] == 10
    assert set(found["cost"]) == {"share", "recorder_share", "frame_s", "every_s"}


def test_the_file_of_the_output_stays_open_for_the_command(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("before\n")
    args = top.parser().parse_args(["--output", str(out), "-a"])
    with open(top.output_of(args), "a") as file:
        file.write("after\n")
    assert out.read_text() == "before\nafter\n"
