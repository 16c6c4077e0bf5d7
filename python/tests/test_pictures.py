# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Each kind of picture, from the least that it may be given, becomes a PNG that is not blank."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import axes
import browser
import pytest
import vl_convert

from klogger.analysis import KINDS, Analysis, Column, Picture
from klogger.drawing import NOBODY, ON_PAGE, Palette, Theme, round_ticks
from klogger.executor import Result, Rows
from klogger.html import page
from klogger.pictures import draw, layers_of, short
from klogger.png import render
from klogger.summary import Summary
from klogger.units import printable

ROWS = Rows(["a", "b", "c", "d"], [["x", 10, 20, 1], ["y", 20, 40, 0.5], ["other", 40, 80, 0.25]])
# A flame graph is drawn by the page itself: see test_flame.
DRAWN = [kind for kind in KINDS if kind != "flame"]
PARTS = {
    "cdf": {"x": "b", "y": "d"},
    "bars": {"x": "b", "y": "a"},
    "stacked": {"x": "b", "y": "a", "colour": "c"},
    "histogram": {"x": "b", "x2": "c", "y": "d"},
    "timeline": {"x": "b", "x2": "c", "row": "a", "colour": "a"},
    "matrix": {"x": "a", "y": "a", "size": "b"},
}


def result(kind: str, parts: dict[str, str], rows: Rows = ROWS) -> Result:
    columns = {
        n: Column(n, u, False, f"column {n}")
        for n, u in zip("abcd", ["", "ns", "ns", "share"], strict=True)
    }
    one = Analysis(
        "x", Path("x.sql"), "s", title="Title", picture=Picture(kind, parts), columns=columns
    )
    return Result(one, table=rows, points=rows)


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_each_kind(kind: str, scale: str) -> None:
    parts = dict(PARTS[kind])
    if "scale" in KINDS[kind][1]:
        parts["scale"] = scale
    picture = render(result(kind, parts))
    assert picture is not None
    blank = render(result(kind, parts, Rows(ROWS.names, [["x", 1, 1, 0]])))
    assert len(picture) > 3000
    assert picture != blank


@pytest.mark.parametrize("kind", ["cdf", "bars", "stacked", "histogram"])
@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("unit", ["ns", "share", "count", "per_s"])
@pytest.mark.parametrize(
    "span", [(0, 1), (1, 1), (5, 6), (3, 800), (1e6, 1.4e6), (0.001, 0.004), (1, 1e9), (7e4, 7.7e5)]
)
def test_axes_can_be_read(kind: str, scale: str, unit: str, span: tuple[float, float]) -> None:
    """At least three numbers, none of them twice, and a name: whatever is drawn, and with whatever
    unit.
    """
    if not (span[1] <= 1 if unit == "share" else span[1] >= 1):
        return
    parts = dict(PARTS[kind])
    if "scale" in KINDS[kind][1]:
        parts["scale"] = scale
    low, high = span
    rows = Rows(
        ROWS.names,
        [
            ["x", low, (low + high) / 2, 0.1],
            ["y", (low + high) / 2, high, 0.7],
            ["z", high, high * 1.5, 1],
        ],
    )
    made = result(kind, parts, rows)
    made.analysis.columns |= {n: Column(n, unit, False, f"column {n}") for n in "bc"}
    spec = draw(made, Palette(), Theme())
    assert spec is not None
    assert axes.faults_of(spec) == []


@pytest.mark.parametrize("kind", ["bars", "stacked"])
def test_a_long_name_of_an_axis_or_a_legend_is_not_cut_off(kind: str) -> None:
    parts = {"x": "b", "y": "a"} | ({"colour": "a"} if kind == "stacked" else {})
    one = result(kind, parts, Rows(ROWS.names, [["x", 10, 0, 1]]))
    one.analysis.columns["a"] = Column(
        "a", "", False, "the class of the lock that most of the threads waited for"
    )
    spec = draw(one, Palette(), Theme())
    assert spec is not None
    assert axes.faults_of(spec) == []


def test_a_title_does_not_stand_on_long_names() -> None:
    name = "thread 1755 of recorders: hrtimer_wakeup"
    spec = draw(
        result("bars", PARTS["bars"], Rows(ROWS.names, [[name, 10, 0, 1]])), Palette(), Theme()
    )
    assert spec is not None
    svg = vl_convert.vegalite_to_svg(spec)
    # Left of the axis: the title's middle, and the names' right end.
    places = re.findall(
        r'text-anchor="(middle|end)" transform="translate\((-?[\d.]+),[^"]*"[^>]*>([^<]*)<', svg
    )
    (title,) = [float(x) for _, x, text in places if text == "column a"]
    (label,) = [float(x) for _, x, text in places if text == name]
    assert title < label - 6 * len(name)


def curves() -> Rows:
    """A thousand things of 1 ms, give or take 50 µs, and 10 µs more each; of both, two took a
    second.
    """
    rows = []
    for name, more in (("short", 0), ("long", 10_000)):
        rows += [[name, 950_000 + 100 * i + more, 0, i / 1000] for i in range(999)]
        rows += [[name, 10**9 + more, 0, 1.0]]
    return Rows(ROWS.names, rows)


@pytest.mark.parametrize("theme", [Theme(), ON_PAGE], ids=["png", "page"])
def test_ends_have_axes_of_their_own(theme: Theme) -> None:
    one = result("cdf", {"x": "b", "y": "d", "colour": "a", "zoom": "ends"}, curves())
    spec = draw(
        one, Palette(), theme, width="container", subjects=NOBODY if theme is ON_PAGE else None
    )
    assert spec is not None
    middle, longest, shortest = layers_of(spec)
    domains = [panel["encoding"]["x"]["scale"]["domain"] for panel in (middle, longest, shortest)]
    # From where the first reaches a tenth, or nine of them, to where the last does.
    assert domains == [[960_000, 1_050_000], [1_040_000, 1_000_010_000], [950_000, 970_000]]
    # 10 µs, which would be a hundredth of a pixel from 0 to a second, are a ninth of the middle.
    assert 10_000 / (domains[0][1] - domains[0][0]) * middle["width"] > 30
    assert [p["encoding"]["y"]["scale"].get("type") for p in (middle, longest, shortest)] == [
        None,
        "log",
        "log",
    ]
    tail = [r["klogger_tail"] for r in spec["datasets"]["rows"] if r["a"] == "short"]
    assert (tail[0], tail[500], tail[-2]) == (1, 0.5, pytest.approx(0.002))
    assert axes.faults_of(spec) == []
    labels = [sorted(a.labels) for a in axes.axes_of(spec) if a.side == "Y"]
    assert [words for words in labels if "99%" in words] == [["90%", "99%", "99.9%"]]
    assert [words for words in labels if "1%" in words] == [["0.1%", "1%", "10%"]]
    assert render(one)


def test_a_picture_has_the_order_of_its_legend() -> None:
    rows = Rows(ROWS.names, [["spin", 10, 0, 1], ["all others", 20, 0, 1], ["mutex", 5, 0, 2]])
    spec = draw(result("stacked", {"x": "b", "y": "d", "colour": "a"}, rows), Palette(), Theme())
    assert spec is not None
    legend = spec["encoding"]["color"]["scale"]["domain"]
    assert legend == ["spin", "mutex", "all others"]
    assert {r["a"]: r["klogger_order"] for r in spec["datasets"]["rows"]} == {
        name: i for i, name in enumerate(legend)
    }


def test_one_name_has_one_colour() -> None:
    palette = Palette()
    first = palette.colour("program", "a")
    assert palette.colour("program", "b") != first
    assert palette.colour("program", "a") == first
    assert palette.colour("CPU", "b") == first


def test_values_of_zero_are_left_out_of_a_log_axis() -> None:
    rows = Rows(ROWS.names, [["x", 0, 0, 0], ["x", 10, 0, 1]])
    spec = draw(result("cdf", {"x": "b", "y": "d", "scale": "log"}, rows), Palette(), Theme())
    assert spec is not None
    assert [r["b"] for r in spec["datasets"]["rows"]] == [10]


def test_numbers_and_ticks() -> None:
    assert [short(n) for n in (7, 0.25, 9999, 12_345, 224_000, 5_100_000)] == [
        "7",
        "0.25",
        "9999",
        "12.3k",
        "224k",
        "5.1M",
    ]
    assert round_ticks(8.1e9) == [0, 2e9, 4e9, 6e9, 8e9]
    assert round_ticks(0) == [0]


HOSTILE = (
    "it's", "x' + (1 + 1) + '", 'a"b\\', "</script><b>x", "\u2028x", "datum.a", "${7 * 7}",
    "a.b[0]", "signal('width')", "&lt;i&gt;", "\x1b[31mred", "\u202eevil",
)  # fmt: skip


def hostile(kind: str) -> Result:
    """An answer whose names are those that threads may give themselves."""
    parts = dict(PARTS[kind]) | ({"colour": "a"} if "colour" in KINDS[kind][1] else {})
    share = 1 / len(HOSTILE)
    rows = [[name, 10 + i, 20 + 2 * i, share * (i + 1)] for i, name in enumerate(HOSTILE)]
    return result(kind, parts, Rows(ROWS.names, rows))


@pytest.mark.parametrize("theme", [Theme(), ON_PAGE], ids=["png", "page"])
@pytest.mark.parametrize("kind", DRAWN)
def test_names_are_shown_and_never_evaluated(kind: str, theme: Theme) -> None:
    one = hostile(kind)
    spec = draw(one, Palette(), theme, subjects=NOBODY if theme is ON_PAGE else None)
    assert spec is not None
    axes.check(spec)
    shown = {
        html.unescape(t)
        for t in re.findall(r"<text[^>]*>([^<]*)<", vl_convert.vegalite_to_svg(spec))
    }
    head = "column a " if kind == "timeline" else ""
    assert {head + printable(name) for name in HOSTILE} <= shown
    assert render(one)
    # What is evaluated holds nothing that came from the log.
    assert not [text for text in expressions(spec) for name in HOSTILE if name in text]


def expressions(spec: Any) -> list[str]:
    """All strings that Vega takes for expressions."""
    if isinstance(spec, list):
        return [text for part in spec for text in expressions(part)]
    if not isinstance(spec, dict):
        return []
    keys = ("expr", "labelExpr", "test", "filter", "calculate", "update", "init")
    own = [value for key, value in spec.items() if key in keys and isinstance(value, str)]
    rest = [value for key, value in spec.items() if key not in ("datasets", "value")]
    return own + expressions(rest)


def test_a_page_shows_names_and_evaluates_none(tmp_path: Path) -> None:
    if browser.program() is None:
        pytest.skip("no chromium here to open the page in")
    results = [hostile(kind) for kind in DRAWN]
    for one, kind in zip(results, DRAWN, strict=True):
        one.analysis.name = kind
    (tmp_path / "x.html").write_text(page(Summary(HOSTILE[3], []), results, [], []))
    with browser.Browser(tmp_path) as found:
        found.open(tmp_path / "x.html")
        assert found.complaints == []
        for kind in DRAWN:
            marks = f"document.querySelectorAll('[data-picture={kind}] svg text')"
            shown = found.ask(f"[...{marks}].map((t) => t.textContent)")
            head = "column a " if kind == "timeline" else ""
            assert {head + printable(name) for name in HOSTILE} <= set(shown), kind
