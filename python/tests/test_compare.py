# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger compare`: that it finds what was planted, cries wolf no more often than it says, and
says what it cannot.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
import support

import klogger
from klogger import analysis, executor, rules
from klogger.analysis import Analysis, Column
from klogger.cli import compare as command
from klogger.compare import comparison, extract, stats
from klogger.compare.extract import Measured
from klogger.compare.stats import Histogram

SAMPLED = Analysis(
    "waits",
    Path("waits.sql"),
    "test",
    samples="SELECT 1",
    columns={"wait": Column("wait", "ns", False, "how long")},
)
TABLE = Analysis(
    "counts",
    Path("counts.sql"),
    "test",
    columns={
        "times": Column("times", "count", False, "how often", "less"),
        "cost": Column("cost", "ns", False, "how long it took"),
    },
)
PROGRAMS = ("make", "cc1", "as")
WITH_SAMPLES = [
    p
    for p in sorted(support.SCHEMATA.glob("*/analyses/[!_]*.sql"))
    if "\n-- samples\n" in p.read_text()
]


def histogram(values: np.ndarray) -> Histogram:
    """As extract.BIN makes one, of values in the order of time."""
    bins = np.floor(np.log2(values) * stats.BINS).astype(int) + stats.ORIGIN
    slices = np.arange(len(values)) * extract.SLICES // len(values)
    order = np.lexsort((bins, slices))
    frame = pd.DataFrame({"slice": slices[order], "bin": bins[order], "value": values[order]})
    cells = frame.groupby(["slice", "bin"])["value"].agg(["size", "sum"]).reset_index()
    return extract.histogram(
        cells["slice"].to_numpy(), cells["bin"].to_numpy(), cells["size"], cells["sum"]
    )


def sampled(
    rng: np.random.Generator, n: int, scale: dict[str, float] | None = None, spread: float = 0.0
) -> Measured:
    """A run with heavy tails, bursts of 20 values that resemble each other, and an own speed of the
    run.
    """
    found = Measured(SAMPLED, value="wait")
    speed = math.exp(spread * rng.normal())
    for k, program in enumerate(PROGRAMS):
        bursts = np.repeat(rng.normal(size=n // 20 + 1), 20)[:n]
        values = 1e4 * (k + 1) * np.exp(0.3 * bursts + rng.normal(size=n)) * speed
        values[rng.random(n) > 0.995] *= 50
        found.histograms[(program,)] = histogram(values * (scale or {}).get(program, 1.0))
    return found


def counted(rng: np.random.Generator, cost: float = 1.0) -> Measured:
    found = Measured(TABLE)
    for program in PROGRAMS:
        found.rows.append((program,))
        found.numbers[(program,), "times"] = float(rng.poisson(40))
        found.numbers[(program,), "cost"] = (
            1e6 * math.exp(0.05 * rng.normal()) * (cost if program == "as" else 1.0)
        )
    return found


def compared(
    a: list[Measured], b: list[Measured], patterns: tuple[str, ...] = ()
) -> comparison.Comparison:
    return comparison.compare(
        [{m.analysis.name: m} for m in a], [{m.analysis.name: m} for m in b], patterns
    )


@pytest.mark.parametrize(
    ("p", "df", "expected"),
    [
        (0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.975, 3, 3.1824), (0.975, 5, 2.5706),
        (0.9995, 7, 5.4079), (0.9995, 10, 4.5869), (0.975, 62, 1.9990), (0.975, 600, 1.9600),
    ],
)  # fmt: skip
def test_student_is_that_of_the_tables(p: float, df: int, expected: float) -> None:
    assert stats.student(p, df) == pytest.approx(expected, rel=5e-5)


def test_statistics_are_those_of_the_values() -> None:
    values = np.exp(np.random.default_rng(1).normal(9, 2, 20_000))
    found = stats.point(histogram(values))
    assert found["mean"] == pytest.approx(values.mean())
    for name, part in stats.QUANTILES.items():
        assert found[name] == pytest.approx(np.quantile(values, part), rel=0.006)


def test_bins_keep_the_order_of_all_numbers() -> None:
    values = [-1e9, -3.0, -1.0, 0.0, 0.5, 1.0, 7.0, 1e12]
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE klogger_sample AS SELECT 'x' AS name, 5 AS time, unnest($1::DOUBLE[]) AS"
        " value",
        [values],
    )
    con.execute(extract.KIND)
    cells = con.execute(extract.BIN).fetchnumpy()
    h = extract.histogram(cells["slice"], cells["bin"], cells["n"], cells["total"])
    low, high = stats.edges(h.bins)
    assert all(lo <= v <= hi for lo, v, hi in zip(low, values, high, strict=True))
    assert h.sums.sum() == pytest.approx(sum(values))


@pytest.mark.full("12 s: 100 comparisons")
def test_the_same_distribution_does_not_cry_wolf(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 of 100 comparisons may see a difference. Seeds are fixed, so that it is always as many;
    another choice of seeds would give 11 or more in one case of a hundred.
    """
    monkeypatch.setattr(stats, "RESAMPLES", 300)
    alarms = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        found = compared([sampled(rng, 1000)], [sampled(rng, 1000)])
        assert found.tested == 9
        assert not found.metrics("worse", "better", "differs")
        alarms += bool(found.metrics("alone"))
    assert alarms <= 10


@pytest.mark.full("takes more than 3 s")
def test_one_run_each_claims_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run has a speed of its own: it differs from the next by more than it varies within
    itself.
    """
    monkeypatch.setattr(stats, "RESAMPLES", 100)
    beyond = 0
    for seed in range(25):
        rng = np.random.default_rng(20_000 + seed)
        found = compared([sampled(rng, 2000, spread=0.2)], [sampled(rng, 2000, spread=0.2)])
        assert not found.metrics("worse", "better", "differs")
        beyond += bool(found.metrics("alone"))
    # The case is one: without the rule there would be so many false claims.
    assert beyond >= 5


def test_runs_of_the_same_thing_do_not_cry_wolf() -> None:
    """Though each run has its own speed, which one run on each side could not show."""
    alarms = 0
    for seed in range(1000):
        rng = np.random.default_rng(10_000 + seed)
        sides = [[counted(rng) for _ in range(5)] for _ in range(2)]
        alarms += bool(compared(*sides).metrics("worse", "better", "differs"))
    # 50 are to be expected, give or take 7.
    assert alarms <= 60
    rng = np.random.default_rng(7)
    runs = [[sampled(rng, 1000, spread=0.1) for _ in range(4)] for _ in range(2)]
    assert compared(*runs).metrics("worse", "better", "differs") == []


def test_planted_shift_is_found_and_comes_first() -> None:
    """Each time; and beside it, at most once what one comparison of twenty may see."""
    others = 0
    for seed in range(5):
        rng = np.random.default_rng(100 + seed)
        found = compared([sampled(rng, 20_000)], [sampled(rng, 20_000, {"as": 1.2})])
        first, *rest = found.metrics("alone")
        assert first.what == ("as",)
        assert first.difference and first.difference.low and first.difference.high
        assert first.difference.low < 0.2 < first.difference.high
        others += any(m.what != ("as",) for m in rest)
    assert others <= 1


def test_planted_shift_is_found_in_runs() -> None:
    others = 0
    for seed in range(10):
        rng = np.random.default_rng(100 + seed)
        found = compared([counted(rng) for _ in range(8)], [counted(rng, 1.3) for _ in range(8)])
        seen = {m.name: m.verdict for m in found.metrics("worse", "better", "differs")}
        assert seen.pop("counts/as/cost") == "worse"
        others += bool(seen)
    assert others <= 1


def test_what_could_have_been_seen_is_seen_as_often_as_said() -> None:
    """8 times of 10, if B is larger by what `least` says."""
    rng = np.random.default_rng(3)
    seen = []
    for _ in range(400):
        a, b = list(np.exp(0.05 * rng.normal(size=6))), list(np.exp(0.05 * rng.normal(size=6)))
        error = 0.05 * math.sqrt(2 / 6)
        planted = (stats.student(0.975, 10) + stats.student(stats.POWER, 10)) * error
        seen.append(
            stats.difference(stats.of_runs(a, [x * math.exp(planted) for x in b]), 0.05).seen
        )
    assert 0.74 < np.mean(seen) < 0.86


def test_one_value_on_each_side_is_not_judged() -> None:
    rng = np.random.default_rng(1)
    found = compared([counted(rng)], [counted(rng, 100.0)])
    assert {m.verdict for m in found.metrics()} == {"unknown"}
    assert all(m.worsened() is None for m in found.metrics())


def test_one_new_run_is_held_against_several_old_ones() -> None:
    rng = np.random.default_rng(1)
    found = compared([counted(rng) for _ in range(8)], [counted(rng, 2.0)])
    assert [m.name for m in found.metrics("worse")] == ["counts/as/cost"]


def test_counts_that_agree_are_known_to_a_whole_number_only() -> None:
    assert not stats.difference(stats.of_runs([1, 1], [2, 2], whole=True), 0.05).seen
    assert stats.difference(stats.of_runs([100] * 5, [110] * 5, whole=True), 0.001).seen
    assert stats.of_runs([0.5, 0.5], [0.6, 0.6]).df == 0
    assert not stats.difference(stats.of_runs([3, 3, 3], [3, 3, 3], whole=True), 0.05).seen


def test_from_nothing_to_something() -> None:
    contrast = stats.of_runs([0, 0, 0, 0], [0.2, 0.21, 0.19, 0.2])
    found = stats.difference(contrast, 0.01)
    assert found.seen and not found.is_ratio
    metric = comparison.Metric("x", (), "over", "share", "less", contrast, found)
    assert metric.worsened() == math.inf


def test_which_way_is_worse() -> None:
    def verdict(better: str, b: float) -> tuple[str, bool]:
        contrast = stats.of_runs([100, 101, 99, 100], [b, b + 1, b - 1, b])
        metric = comparison.Metric(
            "x", (), "y", "per_s", better, contrast, stats.difference(contrast, 0.01)
        )
        worsened = metric.worsened()
        return comparison.verdict_of(metric), worsened is not None and worsened > 0.05

    assert verdict("less", 120) == ("worse", True)
    assert verdict("less", 80) == ("better", False)
    assert verdict("more", 80) == ("worse", True)
    assert verdict("more", 120) == ("better", False)
    assert verdict("neither", 120) == ("differs", False)
    assert verdict("less", 101) == ("same", False)


def test_the_same_answer_each_time() -> None:
    def once() -> list[object]:
        rng = np.random.default_rng(5)
        return [
            (m.name, m.difference)
            for m in compared([sampled(rng, 3000)], [sampled(rng, 3000)]).metrics()
        ]

    assert once() == once()


def test_too_few_values_are_not_judged() -> None:
    rng = np.random.default_rng(5)
    found = compared([sampled(rng, 15)], [sampled(rng, 15)])
    assert found.metrics() == []
    assert found.analyses[0].left_out == {"too few values, or all of them at one time": 3}


@pytest.mark.parametrize("path", WITH_SAMPLES, ids=lambda p: f"{p.parents[1].name}/{p.stem}")
def test_samples_keep_the_rules(path: Path, small_log: Path) -> None:
    one = analysis.parse(path, path.parents[1].name)
    with klogger.open(small_log, locked=True) as log:
        if any(e.upper() not in log.events for e in one.events):
            pytest.skip("of another schema than the small log")
        with executor.Session(log) as session:
            found = extract.measure_one(session, one)
            cursor, _ = session.connection(one)
            columns = [d[0] for d in cursor.execute(one.samples).description or []]
    assert found.status in ("answer", "empty"), found.reason
    assert rules.check_columns(one, "samples", [c for c in columns if c != "time"]) == []


def log_of(out: Path, seed: int, slow: float = 1.0, **more: object) -> Path:
    """Two programs take turns on one CPU, 1,000 times each; the quanta of `cc1` are `slow` times as
    long.
    """
    rng = np.random.default_rng(seed)
    n = 4000
    median = np.where(np.arange(n) % 2, 20_000 * slow, 50_000)
    ends = np.cumsum((median * np.exp(rng.normal(size=n))).astype(int) + 1000)
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    frame = pd.DataFrame(
        {"i": np.arange(n), "pid": 10 + np.arange(n) % 2, "start": [0, *ends[:-1]], "stop": ends}
    )
    con.register("quantum", frame)
    con.execute(
        "INSERT INTO SCHEDIN BY NAME SELECT start AS time, 0 AS cpu, 2 * i AS serial, pid FROM"
        " quantum"
    )
    con.execute(
        "INSERT INTO SCHEDOUT BY NAME SELECT stop AS time, 0 AS cpu, 2 * i + 1 AS serial, pid, 1 AS"
        " state, 21 - pid AS next FROM quantum"
    )
    con.execute(
        "INSERT INTO ADD_TO_RUNQ BY NAME SELECT greatest(start - 1000 - i % 7, 0) AS time, 0 AS"
        " cpu, 0 AS serial, pid, 0 AS is_new FROM quantum"
    )
    processes = [(10, "sh", 0, None), (11, "cc1", 0, None)]
    given = {"processes": processes, "end": int(ends[-1]), **more}
    return support.write_log(con, out, **given)  # type: ignore[arg-type]


def called(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = command.main([str(w) for w in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("logs")
    found = {f"a{i}": log_of(folder / f"a{i}.klog-parquet", i) for i in range(4)}
    return found | {f"b{i}": log_of(folder / f"b{i}.klog-parquet", 50 + i, 1.5) for i in range(4)}


def test_difference_in_the_terminal(
    capsys: pytest.CaptureFixture[str], logs: dict[str, Path]
) -> None:
    code, out, err = called(capsys, logs["a0"], logs["b0"])
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert max(len(line) for line in out.splitlines()) <= 100
    assert "One run each: the intervals cover only how much each run varies within itself" in out
    assert "Not known: " in out and "differs" not in out
    first = next(line for line in out.splitlines() if line.startswith("not known"))
    assert "quanta: cc1" in first
    assert "Different length" in out


def test_no_difference_is_said_as_such(
    capsys: pytest.CaptureFixture[str], logs: dict[str, Path]
) -> None:
    code, out, _ = called(capsys, logs["a0"], logs["a1"], "--metric", "p50")
    assert code == 0
    assert "No difference seen in " in out
    assert "would have been seen" not in out
    code, out, _ = called(capsys, logs["a0"], logs["a1"], "--with", logs["a2"], logs["a3"])
    assert code == 0
    assert "No difference seen in " in out
    assert "would have been seen in half (8 times of 10)" in out.replace("\n", " ")


def test_several_runs(capsys: pytest.CaptureFixture[str], logs: dict[str, Path]) -> None:
    words = [*(logs[f"a{i}"] for i in range(4)), "--with", *(logs[f"b{i}"] for i in range(4))]
    code, out, _ = called(capsys, *words, "--analysis", "quanta", "--format", "json")
    answer = json.loads(out)
    assert code == 0
    verdicts = {m["name"]: m["verdict"] for m in answer["metrics"]}
    assert verdicts["quanta/cc1/p50"] == verdicts["quanta/cc1/mean"] == "differs"
    assert verdicts["quanta/sh/p50"] == verdicts["quanta/sh/mean"] == "same"
    assert len(answer["sides"]["A"]) == 4
    assert not any("run each" in r for r in answer["remarks"])
    (one,) = answer["analyses"]
    assert [c["what"] for c in one["curves"]] == [["sh"], ["cc1"]]
    # Half as long again, of lognormal values: P(Z < ln 1.5 / sqrt 2) = 0.613.
    assert one["curves"][1]["b_is_greater"] == pytest.approx(0.613, abs=0.02)


@pytest.mark.full("takes more than 3 s")
def test_exit_codes(
    capsys: pytest.CaptureFixture[str], logs: dict[str, Path], tmp_path: Path
) -> None:
    text = (
        "-- title: T\n-- question: Q?\n-- events: SCHEDIN, SCHEDOUT\n-- column pid: thread\n--"
        " column turn [ns]: how long\n\n-- table\nSELECT 1 AS turn;\n\n-- samples\nSELECT"
        " o.pid::VARCHAR AS pid, o.time, o.time - i.time AS turn FROM SCHEDOUT AS o ASOF JOIN"
        " SCHEDIN AS i ON o.pid = i.pid AND o.time > i.time;\n"
    )
    file = support.own_analysis(tmp_path, "turns", text)
    meta = {"schemas": [{"name": "mine", "file": file}]}
    old, same, slow = (
        [log_of(tmp_path / f"{name}{i}.klog-parquet", seed + i, speed, meta=meta) for i in range(3)]
        for name, seed, speed in (("old", 1, 1.0), ("same", 11, 1.0), ("slow", 21, 1.5))
    )
    only = ("--analysis", "turns")
    assert called(capsys, *old, "--with", *same, *only, "--fail-on", "5%")[0] == 0
    code, _, err = called(capsys, *old, "--with", *slow, *only, "--fail-on", "5%")
    assert code == 1
    assert "klogger: worse by more than 5 %: turns/11/p50\n" in err
    assert "turns/10/" not in err
    assert (
        called(capsys, *old, "--with", *slow, *only, "--fail-on", "5%", "--metric", "turns/10/*")[0]
        == 0
    )
    assert called(capsys, *old, "--with", *slow, *only, "--fail-on", "90%")[0] == 0
    assert called(capsys, *slow, "--with", *old, *only, "--fail-on", "5%")[0] == 0
    assert called(capsys, old[0], slow[0], *only)[0] == 0
    assert called(capsys, old[0], tmp_path / "none.klog", *only)[0] == 2
    code, out, err = called(capsys, *old, "--with", *slow[:2], *only, "--fail-on", "5%")
    assert (code, out) == (2, "")
    assert err.startswith("klogger: --fail-on needs 3 runs on each side, and was given 3 and 2: ")


@pytest.mark.full("takes more than 3 s")
def test_how_long_the_command_took_is_compared(
    capsys: pytest.CaptureFixture[str], logs: dict[str, Path], tmp_path: Path
) -> None:
    words = [*(logs[f"a{i}"] for i in range(4)), "--with", *(logs[f"b{i}"] for i in range(4))]
    code, out, _ = called(
        capsys, *words, "--analysis", "recording", "--fail-on", "5%", "--format", "json"
    )
    (metric,) = json.loads(out)["metrics"]
    assert (metric["name"], metric["unit"], metric["verdict"]) == (
        "recording/command/took",
        "s",
        "worse",
    )
    seconds = [[klogger.open(logs[f"{side}{i}"]).seconds() for i in range(4)] for side in "ab"]
    assert metric["b"] / metric["a"] == pytest.approx(
        math.prod(seconds[1]) ** 0.25 / math.prod(seconds[0]) ** 0.25
    )
    assert code == 1
    # A log that was told how long to be says nothing of a command.
    timed = log_of(tmp_path / "x.klog-parquet", 1, meta={"workload": []})
    code, _, err = called(capsys, timed, timed, "--analysis", "recording")
    assert (code, err.splitlines()[0]) == (2, "klogger: no analysis 'recording'")


def test_nothing_to_judge_is_no_success(
    capsys: pytest.CaptureFixture[str], logs: dict[str, Path]
) -> None:
    words = [
        *(logs[f"a{i}"] for i in range(3)),
        "--with",
        *(logs[f"b{i}"] for i in range(3)),
        "--fail-on",
        "5%",
    ]
    code, _, err = called(capsys, *words, "--analysis", "quanta")
    assert code == 2
    assert err.startswith("klogger: --fail-on: none of the metrics can be judged\n  help: ")
    code, _, err = called(capsys, *words, "--analysis", "migrations")
    assert code == 2
    assert err.startswith("klogger: migrations could not be compared: A1: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a0"], "one log, but nothing to compare with\n  help: klogger compare A... --with B..."),
        (["a0", "a1", "a2"], "3 logs, but nothing to compare with"),
        (["a0", "a1", "--analysis", "quant"], "no analysis 'quant'\n  help: did you mean quanta?"),
        (
            ["a0", "a1", "--metric", "p98"],
            "no metric 'p98' that both sides have\n  help: did you mean p99",
        ),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str], logs: dict[str, Path], words: list[str], message: str
) -> None:
    code, out, err = called(capsys, *(logs.get(w, w) for w in words))
    assert (code, out) == (2, "")
    assert err.startswith(f"klogger: {message}")


def test_percentage_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command.main(["a", "b", "--fail-on", "much"])
    assert end.value.code == 2
    assert "'much' is not a percentage such as 5%" in capsys.readouterr().err


def test_what_else_differs_is_said(
    capsys: pytest.CaptureFixture[str], logs: dict[str, Path], tmp_path: Path
) -> None:
    host = {"name": "example", "kernel": "6.18.0", "cpus": [0, 1, 2, 3]}
    other = log_of(
        tmp_path / "x.klog-parquet", 9, meta={"host": host}, without=("MIGRATE",),
        ledger=[{"key": "ring_full", "event": "SCHEDIN", "count": 3, "cpu": 0, "text": "no space"}],
    )  # fmt: skip
    code, out, _ = called(capsys, logs["a0"], other)
    assert code == 0
    assert "Different kernel: A has 6.1.0, B has 6.18.0." in out
    assert "Different number of CPUs: A has 2, B has 4." in out
    assert "B: 3 events are missing (SCHEDIN; CPU 0): no space" in out
    assert (
        "not compared: A: no thread in scope was moved to another CPU; B: MIGRATE not recorded"
        in out
    )


def test_differences_in_lossy_logs_are_marked(
    capsys: pytest.CaptureFixture[str], logs: dict[str, Path], tmp_path: Path
) -> None:
    ledger = [{"key": "ring_full", "event": "SCHEDIN", "count": 3, "cpu": 0, "text": "no space"}]
    other = log_of(tmp_path / "x.klog-parquet", 9, 1.5, ledger=ledger)
    _, out, _ = called(capsys, logs["a0"], other)
    assert any(line.startswith("not known !") for line in out.splitlines())
    assert "!: events are missing, or were left out" in out


def test_empty_logs(
    capsys: pytest.CaptureFixture[str], empty_log: Path, logs: dict[str, Path], tmp_path: Path
) -> None:
    code, out, _ = called(
        capsys, empty_log, logs["a0"], "--html", tmp_path / "x.html", "--format", "text"
    )
    assert code == 0
    assert "Nothing could be judged." in out
    assert "not compared: A: no thread in scope" in out


def test_page_has_curves_and_no_scripts(
    capsys: pytest.CaptureFixture[str], logs: dict[str, Path], tmp_path: Path
) -> None:
    page = tmp_path / "x.html"
    code, out, err = called(capsys, logs["a0"], logs["b0"], "--html", page)
    assert (code, out, err) == (0, "", "")
    text = page.read_text()
    assert "<script" not in text
    assert "http://" not in text and "https://" not in text
    assert text.count('<path class="curve a"') == text.count('<path class="curve b"') == 4
    assert len(text) < 500_000


def test_hostile_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    logs = [log_of(tmp_path / f"{i}.klog-parquet", i) for i in range(2)]
    for log in logs:
        con = duckdb.connect()
        con.execute(
            "CREATE TABLE p AS SELECT * REPLACE (comm || '<b>\x1b[31m' AS comm) FROM"
            f" '{log}/process.parquet'"
        )
        con.execute(f"COPY p TO '{log}/process.parquet'")
    page = tmp_path / "x.html"
    code, out, _ = called(capsys, *logs, "--html", page, "--format", "text")
    assert code == 0
    assert "\x1b" not in out
    assert "<b>\ufffd" not in page.read_text() and "&lt;b&gt;" in page.read_text()
