# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What an analysis declares of its rows: those of the two parts of a log are together those of the
whole.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cutting
import duckdb
import pytest
import support

import klogger
from klogger import analysis, dataset, executor, expectation, histograms, rules
from klogger.dataset import combine, fleet, work
from klogger.executor import Result
from klogger.failure import Failure

# Of analyses of which the first expectation has pairs of events that the cut would separate, or no
# rows.
CASES = {"scheduler/cut_by": "cut_by", "interrupt/direct": "direct", "files/paths": "paths"}
DECLARED = [
    one
    for folder in sorted(support.SCHEMATA.glob("*/analyses"))
    for one in (analysis.parse(p, folder.parent.name) for p in analysis.files_in(folder))
    if one.combine == "sum" or one.combination
]


def case_of(one: analysis.Analysis) -> expectation.Expectation:
    folder = support.SCHEMATA / one.schema / "expect"
    named = CASES.get(f"{one.schema}/{one.name}")
    for path in [folder / f"{named}.expect"] if named else sorted(folder.glob("*.expect")):
        case = expectation.read(path)
        if case.analysis == one.name and cutting.is_suitable(case):
            return case
    raise AssertionError(f"{one.path}: no expectation that can be cut")


# One with quantiles, one with shares and rates; in the night, all of them.
FIRST = {"scheduler/wakeup_latency", "scheduler/switches", "traps/calls", "interrupt/timer_cost"}
IDS = {f"{one.schema}/{one.name}": one for one in DECLARED}


@pytest.mark.full("others of this file are in the gate")
@pytest.mark.parametrize("name", sorted(FIRST))
def test_parts_are_together_the_whole(name: str, tmp_path: Path) -> None:
    check(IDS[name], tmp_path)


@pytest.mark.nightly("all analyses that declare how their rows combine")
def test_parts_of_all_are_together_the_whole(tmp_path: Path) -> None:
    for number, one in enumerate(DECLARED):
        check(one, tmp_path / str(number))


def check(one: analysis.Analysis, tmp_path: Path) -> None:
    whole, parts = cutting.halves(case_of(one), tmp_path)
    into = dataset.open(tmp_path / "ds", create=True)
    for part in parts:
        into.add(part)
    with klogger.open(whole, locked=True) as log, executor.Session(log) as session:
        found = session.find(one.schema, one.name)
        assert found is not None
        wanted = session.run(found)
    given = fleet.answers(into, into.entries(), [one.name]).results
    given = [r for r in given if r.analysis.schema == one.schema]
    assert [r.status for r in (wanted, *given)] == ["answer", "answer"], given[0].reason
    assert len(wanted.table.rows) > 0
    compare(one, wanted, given[0])


def compare(one: analysis.Analysis, wanted: Result, given: Result) -> None:
    """All columns that the combined answer has, row by row of the same keys."""
    names = given.table.names
    assert set(names) == {n for n in wanted.table.names if one.columns[n].rule != "apart"}
    keys = [n for n in names if is_key(one, n)]
    mine, theirs = by_key(given, keys), by_key(wanted, keys)
    assert mine.keys() == theirs.keys()
    for key, row in theirs.items():
        for name in names:
            if one.columns[name].rule != "most":
                error = histograms.ERROR if one.columns[name].rule[:1] in "0." else 1e-9
                assert near(mine[key][name], row[name], error), (key, name)


OTHER = [
    "process 20 other",
    "15us 2 SYS_IN pid=20 id=1",
    "18us 2 SYS_OUT pid=20 id=1 ret=0",
    "40us 3 SYS_IN pid=20 id=7",
    "45us 3 SYS_OUT pid=20 id=7 ret=-4",
]


def test_hosts_are_together_the_whole(tmp_path: Path) -> None:
    """A log cut by host: who runs on the CPUs 2 and 3 is on another one. Only what is divided by
    the length differs, as two hosts are recorded for twice as long together.
    """
    one = IDS["traps/calls"]
    case = expectation.read(support.SCHEMATA / "traps" / "expect" / "calls.expect")
    into = dataset.open(tmp_path / "ds", create=True)
    end = "end 1ms"
    mine = [line for line in case.log if line != end]
    made = {
        name: expectation.make(
            dataclasses.replace(case, log=[*lines, end]), tmp_path / f"{name}.klog-parquet"
        )
        for name, lines in (("a", mine), ("b", OTHER), ("whole", [*mine, *OTHER]))
    }
    for host in ("a", "b"):
        meta = json.loads((made[host] / "meta.json").read_text())
        meta["preamble"]["host"]["name"] = host
        (made[host] / "meta.json").write_text(json.dumps(meta))
        into.add(made[host])
    with klogger.open(made["whole"], locked=True) as log, executor.Session(log) as session:
        wanted = session.run(one)
    assert {row["program"] for row in wanted.table.records()} == {"prog", "other"}
    place = wanted.table.names.index("per_second")
    for row in wanted.table.rows:
        row[place] /= 2
    (together,) = fleet.answers(into, into.entries(), [one.name]).results
    compare(one, wanted, together)
    (apart,) = fleet.answers(into, into.entries(), [one.name], by=["host"]).results
    hosts = {(row["host"], row["program"]) for row in apart.table.records()}
    assert hosts == {("a", "prog"), ("b", "other")}


SWITCHES = support.SCHEMATA / "scheduler" / "analyses" / "switches.sql"


def test_a_wrong_declaration_is_noticed(tmp_path: Path) -> None:
    """As if the sum of a count were its maximum."""
    one = analysis.parse(SWITCHES, "scheduler")
    columns = {**one.columns, "switches": dataclasses.replace(one.columns["switches"], rule="max")}
    wrong = dataclasses.replace(one, columns=columns)
    whole, parts = cutting.halves(case_of(one), tmp_path)
    into = dataset.open(tmp_path / "ds", create=True)
    done: list[work.Done] = []
    for part in parts:
        added = into.add(part).entry.log
        chunk = work.Work(into.where, ("switches",))(added)
        done += chunk.done
        ((content,),) = chunk.rows.values()
        (tmp_path / f"{added}.parquet").write_bytes(content)
    work.close_engines()
    files = tuple(str(tmp_path / f"{d.log}.parquet") for d in done)
    recordings = tuple(combine.Recording(d.log, "example", d.seconds) for d in done)
    with klogger.open(whole, locked=True) as log, executor.Session(log) as session:
        wanted = session.run(one)
    for declared, right in ((one, True), (wrong, False)):
        combined = combine.combine(combine.Task(declared, (), recordings, files))
        given = Result(combined[0], table=combined[1])
        if right:
            compare(declared, wanted, given)
        else:
            with pytest.raises(AssertionError):
                compare(declared, wanted, given)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[per_s, switches/seconds]", "[per_s]", "the per_s of several recordings is no sum"),
        ("switches/seconds", "switchs/seconds", "there is no column switchs"),
        ("-- combine: sum\n", "", "is for '-- combine: sum'"),
        ("combine: sum", "combine: average", "'average' is neither of keep, sum"),
    ],
)
def test_a_declaration_with_a_fault(old: str, new: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "switches.sql"
    file.write_text(SWITCHES.read_text().replace(old, new))
    one = analysis.parse(file, "scheduler")
    faults = [*rules.check(one, ["SCHEDIN", "SCHEDOUT"])]
    faults += rules.check_columns(one, "table", ["program", "switches", "per_second"])
    assert [f for f in faults if said in f.message], faults


def test_a_query_of_its_own(tmp_path: Path) -> None:
    """In a section `combine`; it reaches no files."""
    text = SWITCHES.read_text().replace("-- combine: sum\n", "")
    text = re.sub(r"(, of switches|, switches/seconds)\]", "]", text)
    own = "SELECT program, sum(switches)::BIGINT AS switches FROM rows GROUP BY ALL ORDER BY ALL"
    for query, said in ((own, ""), ("FROM read_text('/etc/passwd')", "disabled")):
        file = tmp_path / "switches.sql"
        file.write_text(f"{text}\n-- combine\n{query};\n")
        one = analysis.parse(file, "scheduler")
        assert one.combination
        rows = tmp_path / "rows.parquet"
        duckdb.sql(
            "COPY (SELECT 'x' AS \"klogger log\", 1 AS \"klogger row\", 'p' AS program,"
            f" unnest([2, 3]) AS switches) TO '{rows}'"
        )
        task = combine.Task(one, (), (combine.Recording("x", "h", 1.0),), (str(rows),))
        if said:
            with pytest.raises(Failure, match=said):
                combine.combine(task)
        else:
            assert combine.combine(task)[1].rows == [["p", 5]]


def test_lists_are_added_up_by_place() -> None:
    """Of any lengths; no number, or no list, adds nothing."""
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA klogger")
        connection.execute(
            "CREATE TABLE klogger.sorted AS FROM (VALUES ('a', [1, 2, 3]), ('a', [10]),"
            " ('a', NULL), ('b', [NULL, 1]), (NULL, [5, 6]), (NULL, [1])) AS t(k, l)"
        )
        rows = connection.execute(combine.added_lists(["k"], "l")).fetchall()
    assert dict(rows) == {"a": [11, 2, 3], "b": [0, 1], None: [6, 6]}


def is_key(one: analysis.Analysis, name: str) -> bool:
    column = one.columns[name]
    return column.rule == "key" or not (column.rule or column.unit)


def by_key(result: Result, keys: list[str]) -> dict[str, dict[str, Any]]:
    rows = result.table.records()
    found = {json.dumps([row[k] for k in keys]): row for row in rows}
    assert len(found) == len(rows), "two rows with the same key"
    return found


def near(a: Any, b: Any, error: float) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return a == b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        # A mean of whole numbers is rounded to one.
        return abs(a - b) <= max(error * abs(b), 0.5 if isinstance(b, int) else 0)
    return bool(a == b)


def values() -> Iterator[int]:
    for power in range(63):
        yield from (2**power - 1, 2**power, 2**power + 1, -(2**power))
    number = 1
    while number < 2**62:
        yield number
        number = number * 21 // 20 + 7
    yield 2**63 - 1


def test_quantiles_of_histograms_are_as_right_as_they_say() -> None:
    with duckdb.connect() as con:
        con.execute("CREATE SCHEMA klogger")
        con.execute(histograms.SQL)
        con.execute("CREATE TABLE v AS SELECT unnest($1::BIGINT[]) AS x", [list(values())])
        ((worst,),) = con.execute(
            "SELECT max(abs(klogger.middle(klogger.bucket(x))::DOUBLE - x)"
            " / greatest(abs(x::DOUBLE), 1)) FROM v"
        ).fetchall()
        assert worst <= histograms.ERROR <= 0.01
        for part in (0.001, 0.5, 0.9, 0.99, 1):
            ((whole, merged, exact),) = con.execute(
                f"SELECT (SELECT klogger.quantile_of(klogger.histogram_of(x), {part}) FROM v),"
                f" (SELECT klogger.quantile_of(klogger.merged(list(h)), {part}) FROM"
                "  (SELECT klogger.histogram_of(x) AS h FROM v GROUP BY x % 7)),"
                f" (SELECT quantile_disc(x, {part}) FROM v)"
            ).fetchall()
            assert whole == merged
            assert near(whole, exact, histograms.ERROR)
