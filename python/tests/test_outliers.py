# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Outliers of a dataset: one that is planted is found first; where all are alike, few are found."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import support

from klogger import dataset, expectation
from klogger.cli import report
from klogger.compare import outliers, outliers_page
from klogger.compare.outliers import CHANCE, Outlier
from klogger.dataset import cache

CALLS = support.SCHEMATA / "traps" / "expect" / "calls.expect"
RATES = support.SCHEMATA / "interrupt" / "expect" / "rates.expect"
HOSTS, ROWS, DATASETS = 30, 40, 60

Draw = Callable[[np.random.Generator], np.ndarray]
SHAPE = (DATASETS, ROWS, HOSTS)


def table(values: np.ndarray, unit: str) -> pd.DataFrame:
    """A value of each host for each row; each dataset is a group, whose hosts are peers."""
    place = np.indices(values.shape).reshape(3, -1)
    hosts = np.array([f"h{n:02}" for n in range(values.shape[2])], dtype=object)[place[2]]
    rows = np.array([f"row {n}" for n in range(values.shape[1])], dtype=object)[place[1]]
    groups = pd.Series([(str(n),) for n in range(values.shape[0])]).take(place[0])
    found = pd.DataFrame(
        {"log": hosts, "host": hosts, "row": rows, "unit": unit, "value": values.ravel()}
    )
    return found.assign(column="mean", group=groups.to_numpy())


def found_in(values: np.ndarray, unit: str = "ns") -> list[list[Outlier]]:
    """The outliers of each dataset."""
    tested, candidates = outliers.judged(table(values, unit))
    assert tested == values.size
    some = [Outlier(**one, schema="s", analysis=one["row"]) for one in candidates]
    each = [[o for o in some if o.group == (str(n),)] for n in range(len(values))]
    per = values.size // len(values)
    return [outliers.ranked(outliers.beyond_chance(o, per)) for o in each]


ALIKE: dict[str, tuple[str, Draw]] = {
    "log-normal": ("ns", lambda rng: 1e5 * rng.lognormal(0, 0.3, SHAPE)),
    "heavy tails": ("ns", lambda rng: 1e5 * np.exp(0.2 * rng.standard_t(8, SHAPE))),
    "few counts": ("count", lambda rng: rng.poisson(2.0, SHAPE).astype(float)),
    "counts": ("count", lambda rng: rng.poisson(200.0, SHAPE).astype(float)),
    "differences": ("ns", lambda rng: rng.normal(0, 1e4, SHAPE)),
    "equal": ("share", lambda rng: np.full(SHAPE, 0.25)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_of_what_is_alike_few_are_reported(name: str) -> None:
    """Of datasets without outliers, some are reported in so many as is said, and a few more that
    are chance of this test.
    """
    unit, draw = ALIKE[name]
    wrong = sum(bool(found) for found in found_in(draw(np.random.default_rng(2007)), unit))
    assert wrong <= DATASETS * CHANCE + 3 * (DATASETS * CHANCE) ** 0.5


@pytest.mark.parametrize(
    ("unit", "draw", "planted"),
    [
        ("ns", ALIKE["log-normal"][1], lambda x: 200 * x),
        ("ns", lambda rng: 1e5 * rng.lognormal(0, 0.05, SHAPE), lambda x: 2.5 * x),
        ("ns", lambda rng: 1e5 * rng.lognormal(0, 0.05, SHAPE), lambda x: x / 3),
        ("count", lambda rng: (rng.random(SHAPE) < 0.05).astype(float), lambda x: 500 + x),
        ("share", ALIKE["equal"][1], lambda x: 2 * x),
    ],
)
def test_a_planted_one_is_found_first(
    unit: str, draw: Draw, planted: Callable[[float], float]
) -> None:
    values = draw(np.random.default_rng(1))
    values[:, 7, 17] = [planted(x) for x in values[:, 7, 17]]
    each = found_in(values, unit)
    first = sum(bool(found) and (found[0].of, found[0].row) == ("h17", "row 7") for found in each)
    assert first >= 0.9 * DATASETS
    assert sum(map(len, each)) <= first + 0.2 * DATASETS


def test_too_few_peers_say_nothing() -> None:
    values = np.full((1, 1, outliers.VALUES_MIN - 1), 5.0)
    values[0, 0, 0] = 5e9
    assert outliers.judged(table(values, "ns")) == (0, [])


def test_what_is_said_of_one() -> None:
    values = np.full((1, 1, 30), 100.0)
    values[0, 0, :8] = [90, 90, 95, 95, 105, 105, 110, 110]
    values[0, 0, 17] = 800.0
    ((one,),) = found_in(values)
    assert (one.value, one.median, one.effect, one.peers) == (800, 100, 8, 29)
    assert (one.is_ratio, one.log, one.also) == (True, "h17", 0)
    # Of 29 distances of the median's logarithm, more than half are 0: the least spread.
    assert one.spread == outliers.PART_MIN
    assert one.size == pytest.approx(np.log(8))


@pytest.mark.parametrize("value", [800.0, 125.0, 90.0, 1e-3, 0.0, -40.0])
def test_a_picture_has_its_peers(value: float) -> None:
    """As many as there are, at three ticks or more; what comes from a log is escaped."""
    values = np.full((1, 1, 300), 100.0) + np.arange(300) % 7
    values[0, 0, 17] = value
    each = outliers.distances(table(values, "ns"), *outliers.KINDS["host"])
    far = each[each["host"] == "h17"]
    (found,) = outliers.described("host", *outliers.KINDS["host"], far, each, table(values, "ns"))
    assert len(found["others"]) == outliers.OTHERS_MAX
    assert (found["others"][0], found["others"][-1]) == (100, 106)
    one = Outlier(**found | {"of": "<b>h17"}, schema="s", analysis="a")
    drawn = outliers_page.section(one, ["label.n"], "klogger report <x>")
    assert drawn.count('text-anchor="middle"') >= 3 + 1
    assert "<b>" not in drawn and "<x>" not in drawn and "&lt;b&gt;h17" in drawn
    places = [float(x) for x in re.findall(r"M([0-9.e+-]+) 28V", drawn)]
    assert len(places) == outliers.OTHERS_MAX and places == sorted(places)
    (here,) = map(float, re.findall(r'cx="([0-9.]+)"', drawn))
    assert (here > places[0]) == (value > 100) and 40 <= here <= outliers_page.WIDTH - 40


def test_a_host_stands_for_its_recordings() -> None:
    """One line for each subject and analysis, and a host's recordings are not named again."""
    one = Outlier(
        "host", "h1", "h1", "l1", (), "s", "a", "r", "c", "ns", 2, 1, 0.1, 9, 0, 2, True, 0.7
    )
    others = [
        dataclasses.replace(one, column="d", size=0.6),
        dataclasses.replace(one, kind="recording", of="l1"),
        dataclasses.replace(one, kind="recording", of="l2", host="h2", size=0.9),
    ]
    found = outliers.ranked([one, *others])
    assert [(o.kind, o.of, o.also) for o in found] == [("recording", "l2", 0), ("host", "h1", 1)]


def add(
    into: dataset.Dataset, folder: Path, made_as: Path, lines: list[str], host: int,
    labels: dict[str, str] | None = None,
) -> None:  # fmt: skip
    """A log with these lines; what else it has is that of the expectation."""
    case = expectation.read(made_as)
    case.log = lines
    log = expectation.make(case, folder / f"{host}.klog-parquet")
    meta = json.loads((log / "meta.json").read_text())
    meta["preamble"]["clock"]["start_realtime_ns"] += host
    meta["preamble"]["host"]["name"] = f"h{host:02}"
    (log / "meta.json").write_text(json.dumps(meta))
    into.add(log, labels)


def fleet_of(folder: Path, count: int, *, slow: int, lossy: int) -> dataset.Dataset:
    """Hosts on which a program makes calls: one is slow, one loses events."""
    into = dataset.open(folder / "a fleet", create=True)
    for n in range(count):
        took = (4 if n == slow else 1) * (100 + n % 5)
        lines = ["process 10 prog", "end 30ms"]
        lines += [
            line
            for k in range(25)
            for line in (
                f"{10 + 900 * k}us 0 SYS_IN pid=10 id=35",
                f"{10 + 900 * k + took}us 0 SYS_OUT pid=10 id=35",
            )
        ]
        if n == lossy:
            lines.append("ledger key=ring_full count=3000 cpu=0 from_ns=5 to_ns=9 text=full")
        add(into, folder, CALLS, lines, n, {"rack": str(n % 2)})
    return into


@pytest.mark.full("takes more than 3 s")
def test_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    into = fleet_of(tmp_path, 10, slow=7, lossy=4)
    logs = {e.host: e.log for e in into.entries()}
    words = [into.where, "--find", "outliers"]
    assert report.main([*words, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["tested"] > 50
    named = [(o["host"], o["analysis"], o["column"]) for o in found["outliers"]]
    assert named == [("h04", "recording", "lost"), ("h07", "calls", named[1][2])]
    slow = found["outliers"][1]
    # The mean, the total and the median; not the greatest, nor the 99th of 100 among 25.
    assert slow["column"] in ("mean", "total", "p50")
    assert 3.8 < slow["effect"] < 4.2 and slow["also"] == 2 and slow["row"].startswith("prog")
    assert (slow["log"], slow["peers"]) == (logs["h07"], 9)
    assert Path(slow["file"]).is_file()
    assert report.main([*words, "--no-pager"]) == 0
    said = capsys.readouterr().out
    assert "host h04: recording, lost: 3,000; the median of 10 is 0" in said
    command = f"klogger report '{into.where}/recordings/'{logs['h07'][:8]}*.json --analysis calls"
    assert command in said
    page = tmp_path / "page.html"
    assert report.main([*words, "--html", str(page)]) == 0
    assert f"wrote {page}" in capsys.readouterr().out
    assert page.read_text().count("<svg") == 2 and "host h04: recording, lost" in page.read_text()
    texts = [line for line in said.splitlines() if "klogger report" not in line]
    assert max(map(len, texts)) <= 80
    # What is damaged is named, and the others are compared.
    entry = into.entries()[0]
    (Path(into.where) / entry.name).write_text("{}")
    assert report.main([*words, "--analysis", "calls", "--format", "json"]) == 1
    said = capsys.readouterr()
    assert f"recording {entry.log} is left out" in said.err
    assert json.loads(said.out)["outliers"][0]["host"] == "h07"
    # Where nothing can be kept, that is said.
    shutil.rmtree(Path(into.where) / cache.FOLDER)
    (Path(into.where) / cache.FOLDER).write_text("")
    assert report.main([*words, "--analysis", "calls", "--format", "json"]) == 1
    assert "note: nothing is kept for the next report" in capsys.readouterr().err
    # Half of them are too few.
    assert report.main([*words, "--by", "label.rack"]) == 2
    assert "nothing can be compared" in capsys.readouterr().err


def test_a_program_that_is_slow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Among the programs of two hosts; each CPU's calls follow one another."""
    into = dataset.open(tmp_path / "ds", create=True)
    for host in range(2):
        lines = [f"process {10 + n} prog{chr(97 + n)}" for n in range(12)] + ["end 30ms"]
        for n, k in itertools.product(range(12), range(25)):
            start, took = 10 + 900 * k + 60 * n, (5 if n == 7 else 1) * (10 + (n + k) % 3)
            lines.append(f"{start}us 0 SYS_IN pid={10 + n} id=35")
            lines.append(f"{start + took}us 0 SYS_OUT pid={10 + n} id=35")
        add(into, tmp_path, CALLS, lines, host)
    assert first_of(into, capsys) == ("program", "progh", "calls")


@pytest.mark.full("7 s; test_a_program_that_is_slow does the same")
def test_a_cpu_that_is_interrupted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Among the CPUs of its host: on the other one, all are interrupted as often as it."""
    into = dataset.open(tmp_path / "ds", create=True)
    for host in range(2):
        lines = ["end 900ms"]
        for cpu in range(12):
            for k in range(300 if cpu == 7 or host else 20):
                start = 10 + 2900 * k + cpu
                lines.append(f"{start}us {cpu} VEC_IN kind=0")
                lines.append(f"{start + 7}us {cpu} VEC_OUT kind=0")
        add(into, tmp_path, RATES, lines, host)
    assert first_of(into, capsys) == ("cpu", "7", "rates")


def first_of(into: dataset.Dataset, capsys: pytest.CaptureFixture[str]) -> tuple[str, str, str]:
    """What is furthest from its peers, of the first host."""
    assert report.main([into.where, "--find", "outliers", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["outliers"]
    assert all((one["kind"], one["of"]) == (found[0]["kind"], found[0]["of"]) for one in found)
    return found[0]["kind"], found[0]["of"], found[0]["analysis"]


def test_a_log_has_no_peers(small_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(small_log), "--find", "outliers"]) == 2
    assert "--find are for a dataset" in capsys.readouterr().err
