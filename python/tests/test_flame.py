# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Flame graphs: what is drawn of a tree, and what a reader of the page does with one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browser
import pytest
from support import ROOT

from klogger import document, expectation, flame
from klogger.cli import compare, report


def names(node: list[Any]) -> list[str]:
    return [child[0] for child in node[2]]


def test_values_are_those_of_the_stacks() -> None:
    root = flame.tree([("a;b", 3.0), ("a;b;c", 4.0), ("a", 2.0), ("d", 1.0)])
    found = flame.as_json(root, "ns")
    assert found == {
        "root": ["all", 10.0, [
            ["a", 9.0, [["b", 7.0, [["c", 4.0, []]]]]],
            ["d", 1.0, []],
        ]],
        "unit": "ns", "omitted": 0,
    }  # fmt: skip


def test_what_is_little_is_added_up() -> None:
    """Nothing of it is lost, however much there is."""
    stacks = [("main;big", 1000.0), *((f"main;f{n}", 0.5) for n in range(5000)), ("tiny", 0.25)]
    found = flame.as_json(flame.tree(stacks))
    assert names(found["root"]) == ["main", flame.OTHERS]
    main, others = found["root"][2]
    assert [child[:2] for child in main[2]] == [["big", 1000.0], [flame.OTHERS, 2500.0]]
    assert others[:2] == [flame.OTHERS, 0.25]
    assert found["omitted"] == 5001


def test_a_deep_stack_keeps_its_value() -> None:
    root = flame.tree([(";".join(f"f{n}" for n in range(3000)), 7.0)])
    depth, node = 0, flame.as_json(root)["root"]
    while node[2]:
        depth, node = depth + 1, node[2][0]
    assert (depth, node[1]) == (flame.DEEPEST, 7.0)


def test_a_difference_has_both_values() -> None:
    root = flame.difference({"a;b": 4.0, "a;gone": 2.0}, {"a;b": 1.0, "a;new": 3.0})
    found = flame.as_json(root, "ns", compared=True)
    below = [["new", 3.0, [], 0.0], ["b", 1.0, [], 4.0], ["gone", 0.0, [], 2.0]]
    assert found["root"] == ["all", 4.0, [["a", 4.0, below, 6.0]], 6.0]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the expectation of `samples`."""
    case = expectation.read(ROOT / "schemata/samples/expect/on_cpu_flame.expect")
    return expectation.make(case, tmp_path_factory.mktemp("log") / "x.klog-parquet")


@pytest.fixture(scope="module")
def page(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Browser]:
    if browser.program() is None:
        pytest.skip("no chromium here to open the page in")
    place = tmp_path_factory.mktemp("page")
    assert report.main([str(log), "--html", str(place / "x.html")]) == 0
    with browser.Browser(place) as found:
        found.open(place / "x.html", 1100, 900)
        yield found


SHOWN = (
    "(() => { const f = klogger.flames[0]; return [f.shown.name, [...f.boxes.keys()]"
    ".map((n) => n.name).sort(), f.said.textContent, f.status.textContent]; })()"
)


def shown(page: browser.Browser) -> list[Any]:
    found: list[Any] = page.ask(SHOWN)
    return found


def click(page: browser.Browser, name: str) -> None:
    x, y = page.ask(
        "(() => { const f = klogger.flames[0]; f.place.scrollIntoView({ block: 'center' });"
        f" const [, box] = [...f.boxes].find(([n]) => n.name === {name!r});"
        " const r = box.getBoundingClientRect();"
        " return [r.left + r.width / 2, r.top + r.height / 2]; })()"
    )
    page.click(x, y)
    page.settle()


@pytest.fixture(autouse=True)
def as_at_first(request: pytest.FixtureRequest) -> None:
    if "page" in request.fixturenames:
        found = request.getfixturevalue("page")
        found.ask("klogger.flames[0].zoom(klogger.flames[0].all); klogger.flames[0].search('')")


def test_all_frames_are_drawn_as_wide_as_their_share(page: browser.Browser) -> None:
    assert page.complaints == []
    name, boxes, *_ = shown(page)
    assert name == "all"
    assert boxes == sorted([
        "all", "prog", "main", "work", "do_syscall_64_[k]", "vfs_read_[k]",
        "kworker", "do_syscall_64_[k]", "vfs_read_[k]", "[no stack]",
    ])  # fmt: skip
    widths = page.ask(
        "(() => { const f = klogger.flames[0]; return Object.fromEntries([...f.boxes].map(([n, b])"
        " => [n.name, b.getBoundingClientRect().width / f.graph.clientWidth])); })()"
    )
    assert abs(widths["work"] - 40 / 46) < 0.01
    assert abs(widths["[no stack]"] - 1 / 46) < 0.01


def test_a_click_zooms_and_the_button_shows_all(page: browser.Browser) -> None:
    click(page, "kworker")
    name, boxes, _, status = shown(page)
    assert name == "kworker"
    assert boxes == sorted(["all", "kworker", "do_syscall_64_[k]", "vfs_read_[k]", "[no stack]"])
    assert status == "kworker: 6.00 ms, 13.04 % of all, 100.00 % of kworker"
    page.ask("klogger.flames[0].reset.click()")
    assert shown(page)[0] == "all"


def test_keys(page: browser.Browser) -> None:
    page.ask("klogger.flames[0].boxes.get(klogger.flames[0].all).focus()")
    for key in ("ArrowUp", "ArrowRight", "Enter"):
        page.key(key)
    assert shown(page)[0] == "kworker"
    page.key("Escape")
    assert shown(page)[0] == "all"
    page.key("ArrowUp")
    assert shown(page)[3] == "prog: 40.0 ms, 86.96 % of all"


def test_the_search_counts_each_time_once(page: browser.Browser) -> None:
    """vfs_read is called by do_syscall_64, whose name is not searched for; `_[k]` is in both."""
    page.ask("klogger.flames[0].search('VFS_')")
    assert shown(page)[2] == "found: 15.0 ms, 32.61 %"
    page.ask("klogger.flames[0].search('[k]')")
    assert shown(page)[2] == "found: 15.0 ms, 32.61 %"
    hits = "klogger.flames[0].graph.querySelectorAll('.hit').length"
    assert page.ask(hits) == 4
    page.ask("klogger.flames[0].search('nothing like it')")
    assert shown(page)[2] == "found: 0 ns, 0.00 %"


def test_dark(page: browser.Browser) -> None:
    """Names stay readable: they are dark on a colour, in both schemes."""
    for scheme in ("dark", "light"):
        page.scheme(scheme)
        colour = page.ask("getComputedStyle(document.querySelector('.flame .box')).color")
        assert colour == "rgb(28, 30, 33)"


def test_a_picture_for_paper_says_why_there_is_none(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report.main([str(log), "--png", str(tmp_path / "png")]) == 0
    err = capsys.readouterr().err
    assert "no picture of on_cpu_flame: a flame graph is drawn on a page only" in err
    assert "help: write one with --html FILE" in err


def test_no_name_can_end_the_script() -> None:
    """Frames of a log are texts of programs."""
    data = flame.as_json(flame.tree([("</script><b>;main", 1.0)]))
    text = document.scripts({}, None, {"x": data})
    assert "</script><b>" not in text
    assert "\\u003c/script>\\u003cb>" in text


def test_a_comparison_shows_what_changed(log: Path, tmp_path: Path) -> None:
    """Against a log in which 20 ms of work are of another function."""
    if browser.program() is None:
        pytest.skip("no chromium here to open the page in")
    case = expectation.read(ROOT / "schemata/samples/expect/on_cpu_flame.expect")
    old, new = "period=20000000 user=1 user_stack=65537", "period=20000000 user=1 user_stack=65538"
    lines = ["user_stack 65538 fast main", *(line.replace(old, new) for line in case.log)]
    after = expectation.make(dataclasses.replace(case, log=lines), tmp_path / "y.klog-parquet")
    assert compare.main([str(log), str(after), "--html", str(tmp_path / "c.html")]) == 0
    with browser.Browser(tmp_path) as found:
        found.open(tmp_path / "c.html")
        assert found.complaints == []
        texts = found.ask(
            "(() => { const f = klogger.flames[0];"
            " return Object.fromEntries([...f.boxes.keys()].map((n) => [n.name, f.text(n)])); })()"
        )
    assert "before: 0 ns (+20.0 ms)" in texts["fast"]
    assert "before: 40.0 ms (−20.0 ms)" in texts["work"]
    assert "before: 46.0 ms (+0 ns)" in texts["all"]
