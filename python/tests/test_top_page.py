# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The page of `klogger top --html` in a browser, with frames that are made here."""

from __future__ import annotations

import copy
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axes
import browser
import pytest
import synth

import klogger
from klogger import executor
from klogger.analysis import Analysis
from klogger.executor import Result
from klogger_lab.top.page import server as serving
from klogger_lab.top.page.hub import Hub
from klogger_lab.top.page.paint import Painter, Shown
from klogger_lab.top.page.server import Server

FIRST = ("quanta", "cut_by", "cpu_time")
HOSTILE = "<script>x</script><img src=x onerror=throw(1)>&amp;"


@dataclasses.dataclass
class Stage:
    """A page that is open, and what is needed to send it frames."""

    page: browser.Browser
    hub: Hub
    server: Server
    results: list[Result]
    painter: Painter

    @property
    def menu(self) -> list[Analysis]:
        return [result.analysis for result in self.results]

    def send(self, results: list[Result] | None = None, **more: Any) -> dict[str, Any]:
        """Paints a frame and publishes it; what the page gets."""
        given = {"menu": self.menu, "first": FIRST, **more}
        chosen = [r for r in results or self.results if r.analysis.name in self.hub.wanted()]
        data = self.painter.paint(
            Shown(given.pop("title", "scheduler"), ["a fact"], chosen, **given)
        )
        self.hub.publish(data)
        return dict(json.loads(data))

    def show(self, results: list[Result] | None = None, **more: Any) -> dict[str, Any]:
        """And waits until the page shows it."""
        before = self.page.ask("klogger.frames")
        sent = self.send(results, **more)
        self.page.wait(f"klogger.frames > {before}")
        self.settle()
        return sent

    def settle(self) -> None:
        self.page.wait("[...klogger.pictures.values()].every((one) => one.view && !one.busy)")
        self.page.settle()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    out = tmp_path_factory.mktemp("synth") / "small.klog-parquet"
    synth.write(out, 4_000, cpus=2)
    log = klogger.open(out)
    return list(executor.run_all(log, executor.choose(log)))


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    if browser.program() is None:
        pytest.skip("no chromium here to open the page in")
    with browser.Browser(tmp_path_factory.mktemp("page")) as found:
        yield found


@pytest.fixture
def stage(chromium: browser.Browser, results: list[Result]) -> Iterator[Stage]:
    hub = Hub(first=FIRST)
    with Server(hub) as server:
        found = Stage(chromium, hub, server, copy.deepcopy(results), Painter())
        found.send()
        chromium.complaints.clear()
        chromium.visit(server.url, 1280, 900)
        chromium.wait("klogger.frames > 0")
        found.settle()
        yield found
        assert chromium.complaints == []
        # Nothing is loaded from anywhere else.
        loaded = chromium.ask("performance.getEntriesByType('resource').map((one) => one.name)")
        assert loaded and all(name.startswith((server.url, "data:")) for name in loaded)


def text(stage: Stage, selector: str) -> str:
    return str(stage.page.ask(f"document.querySelector({selector!r}).textContent"))


def taller(results: list[Result], factor: float) -> list[Result]:
    """With other numbers in the picture of the quanta, on the same axes."""
    changed = copy.deepcopy(results)
    (quanta,) = [r for r in changed if r.analysis.name == "quanta"]
    assert quanta.analysis.picture is not None
    at = quanta.points.names.index(quanta.analysis.picture.parts["y"])
    for row in quanta.points.rows:
        row[at] = float(row[at]) * factor
    return changed


def test_it_draws_what_the_report_draws(stage: Stage) -> None:
    assert stage.page.ask("[...klogger.pictures.keys()]") == list(FIRST)
    for name in FIRST:
        svg = stage.page.ask(f"document.querySelector('#{name} [data-picture] svg').outerHTML")
        for axis in axes.axes_in(svg):
            if axis.scale in ("linear", "log"):
                assert len(set(axis.labels)) >= 3, (name, axis)
    assert text(stage, "#top-findings li")
    assert stage.page.ask("document.querySelectorAll('#cpu_time table.answer tbody tr').length") > 3


def test_a_picture_gets_new_rows_and_keeps_its_axes(stage: Stage) -> None:
    place = "document.querySelector('#quanta [data-picture] svg')"
    stage.page.ask(f"void (window.before = {place})")
    line = f"{place}.querySelector('.mark-line path').getAttribute('d')"
    drawn = stage.page.ask(line)
    labels = f"[...{place}.querySelectorAll('.role-axis-label text')].map((t) => t.textContent)"
    labelled = stage.page.ask(labels)
    sent = stage.show(taller(stage.results, 0.5))
    (quanta,) = [one for one in sent["sections"] if one["name"] == "quanta"]
    assert stage.page.ask(f"window.before === {place}")
    assert stage.page.ask(line) != drawn
    assert stage.page.ask(labels) == labelled
    y = json.dumps(quanta["spec"]["encoding"]["y"]["field"])
    shown = stage.page.ask(f"klogger.pictures.get('quanta').view.data('rows').map((r) => r[{y}])")
    assert sorted(shown) == pytest.approx(sorted(r[json.loads(y)] for r in quanta["rows"]))


def test_a_picture_whose_axes_must_change_is_made_anew(stage: Stage) -> None:
    changed = copy.deepcopy(stage.results)
    (times,) = [r for r in changed if r.analysis.name == "cpu_time"]
    assert times.analysis.picture is not None
    at = times.points.names.index(times.analysis.picture.parts["x"])
    for row in times.points.rows:
        row[at] = float(row[at]) * 10
    stage.show(changed)
    assert stage.page.ask("document.querySelectorAll('#cpu_time svg.marks').length") == 1
    assert stage.page.ask("klogger.pictures.get('cpu_time').drawn") == 2


def test_names_are_text(stage: Stage) -> None:
    """Whatever a thread is called, the page has no element more."""
    changed = copy.deepcopy(stage.results)
    for result in changed:
        for rows in (result.table.rows, result.points.rows):
            for row in rows:
                row[:] = [HOSTILE if isinstance(value, str) else value for value in row]
        result.findings = [HOSTILE for _ in result.findings]
        result.warnings = [HOSTILE]
    stage.show(changed, title=HOSTILE, losses=[HOSTILE], notes=[HOSTILE])
    for selector in ("#top-title", "#top-losses p", "#top-notes p", "#quanta tbody td"):
        assert text(stage, selector) == HOSTILE
    assert text(stage, "#top-findings li").startswith(HOSTILE)
    assert (
        stage.page.ask("document.querySelectorAll('img, main script, header script').length") == 0
    )
    assert HOSTILE in stage.page.ask("document.title")
    labels = stage.page.ask("document.querySelector('#quanta svg').textContent")
    assert HOSTILE[:8] in labels


def test_losses_are_a_red_band(stage: Stage) -> None:
    assert stage.page.ask("document.getElementById('top-losses').hidden")
    stage.show(losses=["23 events were lost in these seconds"])
    assert text(stage, "#top-losses") == "23 events were lost in these seconds"
    red, green, blue = stage.page.ask(
        "getComputedStyle(document.getElementById('top-losses')).color.match(/\\d+/g).map(Number)"
    )
    assert red > 2 * green and red > 2 * blue
    stage.show()
    assert stage.page.ask("document.getElementById('top-losses').hidden")


def test_it_can_be_paused(stage: Stage) -> None:
    stage.page.key("p")
    stage.send(title="the second")
    stage.page.wait("document.getElementById('top-age').textContent === 'paused, 1 newer'")
    assert text(stage, "#top-title") == "scheduler"
    assert text(stage, "#top-pause") == "Go on"
    stage.page.ask("document.getElementById('top-pause').click()")
    stage.page.wait("document.getElementById('top-title').textContent === 'the second'")
    stage.settle()


def test_analyses_are_chosen_by_keys(stage: Stage) -> None:
    def toggle(name: str) -> None:
        stage.page.ask(f"document.querySelector('#top-menu input[value={name}]').focus()")
        stage.page.key(" ")

    assert stage.page.ask(
        "[...document.querySelectorAll('#top-menu input:checked')].map((one) => one.value)"
    ) == list(FIRST)
    toggle("quanta")
    toggle("wakers")
    wanted = ["cut_by", "cpu_time", "wakers"]
    end = time.monotonic() + browser.PATIENCE_S
    while sorted(stage.hub.wanted()) != sorted(wanted):
        assert time.monotonic() < end, stage.hub.wanted()
        time.sleep(0.05)
    stage.show()
    assert stage.page.ask("[...document.querySelectorAll('main section')].map((s) => s.id)") == (
        [r.analysis.name for r in stage.results if r.analysis.name in wanted]
    )
    # The address has the choice.
    assert sorted(stage.page.ask("new URLSearchParams(location.search).getAll('analysis')")) == (
        sorted(wanted)
    )


def test_what_the_reader_has_opened_and_sorted_stays(stage: Stage) -> None:
    rows = "[...document.querySelectorAll('#cpu_time tbody tr')].map((r) => r.cells[0].textContent)"
    stage.page.ask("document.querySelector('#cpu_time th').focus()")
    stage.page.key("Enter")
    stage.page.ask("document.querySelector('#cpu_time details').open = true")
    once = stage.page.ask(rows)
    assert once == sorted(once, reverse=True)
    for _ in range(2):
        stage.show()
        assert stage.page.ask(rows) == once
    assert stage.page.ask("document.querySelector('#cpu_time details').open")
    assert stage.page.ask("document.activeElement.textContent") == "thread"


@pytest.mark.full("waits 9 s for a connection that is lost")
def test_a_lost_connection_is_said_and_made_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "ALIVE", 3600.0)
    stage.page.wait("/^no news for \\d+ s$/.test(document.getElementById('top-age').textContent)")
    assert "connection is lost" in text(stage, "#top-connection")
    monkeypatch.undo()
    # The next word cannot be sent, so that the server gives the reader up.
    failed = []

    def fails(sent: Any) -> bytes:
        failed.append(sent)
        monkeypatch.undo()
        raise BrokenPipeError

    monkeypatch.setattr(serving, "event", fails)
    stage.send(title="again")
    stage.page.wait("document.getElementById('top-title').textContent === 'again'")
    assert failed
    stage.page.wait("document.getElementById('top-connection').hidden")
    stage.settle()


def test_the_end_is_said(stage: Stage) -> None:
    stage.hub.publish(b'{"reason": "the recorder has ended"}', ended=True)
    stage.page.wait("document.getElementById('top-age').textContent === 'ended'")
    assert text(stage, "#top-connection") == "The recording has ended. the recorder has ended"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_can_be_read(stage: Stage, scheme: str) -> None:
    stage.page.scheme(scheme)
    try:
        for width in (1280, 400):
            stage.page.size(width, 800)
            stage.settle()
            assert stage.page.ask("document.documentElement.scrollWidth") <= width
        colours = stage.page.ask(
            "['color', 'backgroundColor'].map((n) => getComputedStyle(document.body)[n]"
            ".match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b))"
        )
        assert (colours[0] < colours[1]) == (scheme == "light")
        assert abs(colours[0] - colours[1]) > 400
        label = stage.page.ask(
            "getComputedStyle(document.querySelector('#quanta .role-axis-label text')).fill"
        )
        assert label == stage.page.ask("getComputedStyle(document.body).color")
    finally:
        stage.page.scheme("light")


@pytest.mark.full("starts a second browser: 4 s")
def test_two_browsers_see_the_same(stage: Stage, tmp_path: Path) -> None:
    with browser.Browser(tmp_path) as other:
        other.visit(stage.server.url, 800, 600)
        other.wait("klogger.frames > 0")
        stage.show(title="both")
        other.wait("document.getElementById('top-title').textContent === 'both'")
        assert other.complaints == []
    stage.show(title="one")
    assert text(stage, "#top-title") == "one"
