# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The page of a report in a browser: it opens without complaint, and does what its readers do with
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
import synth

import klogger
from klogger import timeline
from klogger.cli import report

EVENTS = 40_000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("synth") / "big.klog-parquet"
    synth.write(out, EVENTS, cpus=2)
    return out


@pytest.fixture(scope="module")
def page(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    """Of a log that is too big to have all of its quanta in the page."""
    if browser.program() is None:
        pytest.skip("no chromium here to open the page in")
    place = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "QUANTA_MAX", 4000)
        assert report.main([str(log), "--html", str(place / "x.html")]) == 0
    with browser.Browser(place) as found:
        found.open(place / "x.html", 1100, 1400)
        yield found


@pytest.fixture(autouse=True)
def as_at_first(page: browser.Browser) -> None:
    page.ask("klogger.timeline.show(0, klogger.timeline.data.end); klogger.selection.pick(null)")
    page.ask("document.getElementById('threads').scrollIntoView({ block: 'start' })")
    page.settle()


def place_of(page: browser.Browser, row: str, part: float) -> tuple[float, float]:
    """A point in a row of the timeline; `part` of the way from its left to its right, -1: on its
    label.
    """
    found = page.ask(
        "(() => { const t = klogger.timeline, box = t.canvas.getBoundingClientRect();"
        f" const row = t.rows.find((r) => r.label === {row!r});"
        " return [box.left, t.left, t.width, box.top + row.y + row.height / 2]; })()"
    )
    x = found[0] + (found[1] / 2 if part < 0 else found[1] + part * (found[2] - found[1]))
    return x, found[3]


def view(page: browser.Browser) -> tuple[float, float]:
    low, high = page.ask("[klogger.timeline.from, klogger.timeline.to]")
    return low, high


def test_it_opens_without_complaint_and_draws_everything(page: browser.Browser) -> None:
    assert page.complaints == []
    pictures = page.ask("document.querySelectorAll('[data-picture]').length")
    assert pictures >= 6
    assert page.ask("document.querySelectorAll('[data-picture] svg.marks').length") == pictures
    # Not one colour only.
    colours = page.ask(
        "(() => { const t = klogger.timeline; const d = t.context.getImageData(t.left, 30, 600,"
        " 60).data; const s = new Set(); for (let i = 0; i < d.length; i += 4) s.add(d[i] << 16 |"
        " d[i + 1] << 8 | d[i + 2]); return s.size; })()"
    )
    assert colours > 3


def test_what_is_drawn_is_what_was_recorded(page: browser.Browser, log: Path) -> None:
    """The CPU time of each thread, of the bins at each level and of the quanta, as SQL has it."""
    opened = klogger.open(log)
    ((busy,),) = opened.rows("SELECT sum(o.time) - sum(i.time)"
                             " FROM (SELECT sum(time) AS time FROM SCHEDOUT) AS o,"
                             " (SELECT sum(time) AS time FROM SCHEDIN) AS i")  # fmt: skip
    levels = page.ask(
        "klogger.timeline.levels.map((l) => l.width * l.share.reduce((a, b) => a + b, 0))"
    )
    assert len(levels) >= 3
    for ns in levels:
        assert abs(ns / busy - 1) < 0.001
    window = page.ask("klogger.timeline.data.windows[0]")
    ((quanta,),) = opened.rows(f"SELECT count(*) FROM SCHEDIN WHERE time < {window['to']}")
    starts = f"klogger.timeline.quanta.start.filter((s) => s < {window['to']}).length"
    assert page.ask(starts) == quanta


def test_the_wheel_zooms_where_the_pointer_is(page: browser.Browser) -> None:
    x, y = place_of(page, "CPU 0", 0.25)
    low, high = view(page)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-120, modifiers=2)
    page.settle()
    after = view(page)
    assert after[1] - after[0] == pytest.approx((high - low) / 2, rel=0.01)
    assert after[0] + 0.25 * (after[1] - after[0]) == pytest.approx(
        low + 0.25 * (high - low), rel=0.02
    )
    # Without the key the wheel is the page's.
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-120)
    page.settle()
    assert view(page) == after


def test_keys_and_dragging(page: browser.Browser) -> None:
    page.ask("klogger.timeline.canvas.focus()")
    low, high = view(page)
    page.key("+")
    assert view(page) == pytest.approx((low + (high - low) / 4, high - (high - low) / 4))
    page.key("ArrowRight")
    assert view(page)[0] > low + (high - low) / 4
    before = view(page)
    x, y = place_of(page, "CPU 1", 0.5)
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    page.mouse("mouseMoved", x + 100, y, button="left", buttons=1)
    page.mouse("mouseReleased", x + 100, y, button="left", clickCount=1)
    page.settle()
    assert view(page)[0] < before[0]
    assert page.ask("klogger.selection.picked") is None
    page.key("0")
    assert view(page) == (low, high)


def test_a_selected_thread_is_seen_everywhere(page: browser.Browser) -> None:
    name = page.ask("klogger.timeline.data.threads[1].name")
    program = page.ask("klogger.timeline.data.threads[1].program")
    page.click(*place_of(page, name, -1))
    assert page.ask("klogger.selection.picked") == {"name": name, "program": program}
    assert page.ask("klogger.timeline.isPicked.reduce((a, b) => a + b)") == 1
    assert page.ask("document.getElementById('picked').textContent").startswith(f"selected: {name}")
    page.wait("document.querySelectorAll('#quanta svg.marks path[opacity=\"0.13\"]').length > 0")
    picked = page.ask(
        "[...document.querySelectorAll('#quanta tr.picked')].map((r) => r.cells[0].textContent)"
    )
    assert picked == [program]
    page.key("Escape")
    page.ask("klogger.timeline.canvas.focus()")
    page.key("Escape")
    assert page.ask("document.querySelectorAll('tr.picked').length") == 0


def test_a_row_of_a_table_selects_and_a_head_sorts(page: browser.Browser) -> None:
    page.ask("document.querySelector('#cpu_time tbody tr').cells[0].click()")
    assert "[" in page.ask("klogger.selection.picked.name")
    column = (
        "[...document.querySelectorAll('#quanta tbody tr')].map((r) =>"
        " Number(r.cells[1].dataset.value))"
    )
    page.ask("document.querySelectorAll('#quanta th')[1].click()")
    numbers = page.ask(column)
    assert numbers == sorted(numbers, reverse=True)
    page.ask("document.querySelectorAll('#quanta th')[1].click()")
    assert page.ask(column) == sorted(numbers)


def test_the_search_field_shows_what_has_the_words(page: browser.Browser) -> None:
    shown = (
        "[...document.querySelectorAll('main > section')].filter((s) => !s.hidden).map((s) => s.id)"
    )
    everything = page.ask(shown)
    thread = page.ask("document.querySelector('#cpu_time tbody td').textContent")
    page.key("/")
    assert page.ask("document.activeElement.id") == "search"
    assert page.ask("document.activeElement.value") == ""
    for letter in thread:
        page.key(letter)
    found = page.ask(shown)
    assert "cpu_time" in found and len(found) < len(everything)
    rows = page.ask(
        "[...document.querySelectorAll('#cpu_time tbody tr')].filter((r) => !r.hidden)"
        ".map((r) => r.cells[0].textContent)"
    )
    assert rows == [thread]
    assert page.ask("document.querySelector('.found').textContent").startswith(
        f"{len(found)} answer"
    )
    # Enter goes through the answers that are left.
    page.key("Enter")
    top = f"Math.abs(document.getElementById({found[0]!r}).getBoundingClientRect().top) < 2"
    assert len(found) == 1 or page.ask(top)
    page.ask("klogger.search.field.focus()")
    page.key("Escape")
    assert page.ask(shown) == everything
    assert page.ask("document.querySelector('.found').textContent") == ""
    assert page.ask("document.querySelectorAll('tbody tr[hidden]').length") == 0
    # A word of the title leaves all rows.
    page.ask("klogger.search.field.value = 'run queues'; klogger.search.show()")
    assert page.ask(shown) == ["runq"]
    assert page.ask("document.querySelectorAll('#runq tbody tr[hidden]').length") == 0
    page.ask("klogger.search.field.value = 'xyzzy'; klogger.search.show()")
    assert page.ask(shown) == []
    assert page.ask("document.querySelector('.found').textContent") == "not found"
    page.ask("klogger.search.field.value = ''; klogger.search.show()")
    assert page.complaints == []


def test_near_by_there_are_quanta_and_arrows_and_beyond_them_a_way(page: browser.Browser) -> None:
    window = page.ask("klogger.timeline.data.windows[0]")
    middle = (window["from"] + window["to"]) / 2
    page.ask(f"klogger.timeline.show({middle}, {middle + 5e7})")
    page.settle()
    assert "each quantum" in page.ask("klogger.timeline.status.textContent")
    assert page.ask("klogger.timeline.arrows.length") > 0
    end = page.ask("klogger.timeline.data.windows[0].to")
    page.ask(f"klogger.timeline.show({end} + 1e6, {end} + 1.02e6)")
    page.settle()
    assert "klogger export --to perfetto big.klog" in page.ask(
        "klogger.timeline.status.textContent"
    )


def test_a_tip_says_what_is_under_the_pointer(page: browser.Browser) -> None:
    x, y = place_of(page, "CPU 0", 0.1)
    page.mouse("mouseMoved", x, y)
    page.settle()
    assert "CPU 0" in page.ask("klogger.timeline.tip.textContent")


def test_light_dark_and_paper(page: browser.Browser, tmp_path: Path) -> None:
    text = "getComputedStyle(document.body).color"
    page.scheme("light")
    light = page.ask(f"[{text}, klogger.timeline.colours.row]")
    page.scheme("dark")
    dark = page.ask(f"[{text}, klogger.timeline.colours.row]")
    page.scheme("light")
    assert light[0] != dark[0] and light[1] != dark[1]
    page.pdf(tmp_path / "x.pdf")
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")
    assert page.complaints == []


def test_a_narrow_screen(page: browser.Browser) -> None:
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=390,
        height=800,
        deviceScaleFactor=2,
        mobile=True,
    )
    page.wait("klogger.timeline.width < 390")
    page.settle()
    assert page.ask("document.documentElement.scrollWidth") <= 390
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=1100,
        height=1400,
        deviceScaleFactor=1,
        mobile=False,
    )
    page.wait("klogger.timeline.width > 600")
    assert page.complaints == []
