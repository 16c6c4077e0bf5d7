# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The study of streams: parts of requests worked out by hand, and its library of files against
bytes.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import support

from klogger_lab.study import discover

STUDY = discover.load(support.SCHEMATA / "operations/studies/player.py").study
MODULE: Any = sys.modules[STUDY.arms.__module__]
LATE, EDITS = MODULE._late, MODULE._edits


def test_each_moment_of_a_request_counts_once():
    request = LATE.Request(0, 7, 100, 200, 150)
    spans = LATE.Spans()
    for span in [
        (0, 90, "lock"),
        (90, 110, "journal"),
        (105, 130, "page cache"),
        (120, 180, "device"),
        (120, 190, "not running"),
        (300, 400, "lock"),
    ]:
        spans.add(span)
    request.parts = LATE.split(request, spans)
    assert request.parts == {
        "journal": 10, "page cache": 10, "device": 60, "not running": 10, "running": 10,
    }  # fmt: skip
    assert sum(request.parts.values()) == request.took
    assert (request.late, request.largest) == (50, "device")


def test_lines_of_the_player():
    found = LATE.requests_of("0 7 1100 1200 1150\n1 8 1300 1400 0\nwrites 17\n", 1000)
    assert found == [LATE.Request(0, 7, 100, 200, 150), LATE.Request(1, 8, 300, 400, 0)]
    assert [request.late for request in found] == [50, 0]


def test_what_was_late_is_explained_else_the_slowest():
    one = MODULE.Played("ext4", 4, 72, 0)
    one.requests = [LATE.Request(0, 7, 0, took, 1000) for took in range(100, 500)]
    assert [r.took for r in one.explained()] == [499, 498, 497, 496]
    one.requests.append(LATE.Request(0, 7, 0, 1001, 1000))
    assert [r.took for r in one.explained()] == [1001]


def test_a_short_budget_has_fewer_loads_and_a_smaller_file():
    each, loads, size = MODULE.shares(STUDY.least_seconds - 7, 3)
    assert (len(loads), size) == (1, MODULE.EDITED_LEAST)
    assert each >= MODULE.LEAST
    each, loads, size = MODULE.shares(300, 3)
    assert (loads, size) == (MODULE.LOADS, MODULE.EDITED)


def test_the_library_moves_no_bytes(tmp_path):
    """Random parts are moved between three files; each is what bytes would have become."""
    made = random.Random(1)
    with EDITS.library.open_in(tmp_path, 1 << 20) as files:
        model = {name: made.randbytes(made.randrange(1, 40_000)) for name in "abc"}
        for name, content in model.items():
            files.append(name, content)
        for _ in range(200):
            source, target = made.sample("abc", 2)
            at = made.randrange(len(model[source]) + 1)
            length = made.randrange(len(model[source]) - at + 1)
            files.move(source, at, length, target)
            model[target] += model[source][at : at + length]
            model[source] = model[source][:at] + model[source][at + length :]
        assert {name: files.read(name) for name in "abc"} == model
        assert {name: files.size(name) for name in "abc"} == {n: len(b) for n, b in model.items()}
    assert list(tmp_path.iterdir()) == []


def test_edits_on_any_file_system(tmp_path, monkeypatch):
    """That of the tests may have no reflinks and no ranges."""
    monkeypatch.setattr(EDITS, "sectors", lambda _: (0, 0))
    for method in ("copy loop", "copy loop, within"):
        assert EDITS.edit(tmp_path, 1 << 20, method)["right"], method
    assert EDITS.in_library(tmp_path, 1 << 20)["right"]
    assert list(tmp_path.iterdir()) == []
