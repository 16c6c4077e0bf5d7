# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What logging took: what the preamble may say of it, and what an answer says that has subtracted
it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
import support

import klogger
from klogger import costs, executor
from klogger.made import Made


def preamble(*events: Any) -> dict[str, Any]:
    return {"costs": {"place": "task_prctl_unknown", "events": list(events)}}


def cost(event: str, ns: Any, low: Any = 1.0, high: Any = 2.0) -> dict[str, Any]:
    return {"event": event, "cost": {"ns": ns, "low": low, "high": high}}


def table(of: dict[str, Any]) -> list[tuple[Any, ...]]:
    con = duckdb.connect()
    con.execute("CREATE SCHEMA klogger")
    costs.create(Made(con), of)
    query = "SELECT e, klogger.cost_of(e) FROM (VALUES ('A'), ('B')) AS v(e)"
    return (
        con.execute("SELECT event, ns, low_ns, high_ns FROM klogger.cost ORDER BY event").fetchall()
        + con.execute(query).fetchall()
    )


def test_costs_are_a_table_and_a_function() -> None:
    found = table(preamble(cost("A", 84.6, 80, 90)))
    assert found == [("A", 84.6, 80.0, 90.0), ("A", 85), ("B", 0)]


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"costs": None},
        {"costs": []},
        {"costs": {"events": {}}},
        preamble(None, 7, "A", {"event": 5}, {"event": "A"}, {"event": "A", "cost": []}),
        preamble(
            cost("A", "84"),
            cost("A", -1),
            cost("A", 1e12),
            cost("A", float("nan")),
            cost("A", 5, low=None),
        ),
    ],
)
def test_nonsense_costs_nothing(nonsense: dict[str, Any]) -> None:
    assert table(nonsense) == [("A", 0), ("B", 0)]


def answer_of(path: Path, meta: dict[str, Any]) -> Any:
    con = duckdb.connect()
    support.create_tables(con, support.events_of("traps"))
    con.execute(
        "INSERT INTO SYS_IN BY NAME SELECT 10000 AS time, 0 AS cpu, 1 AS serial, 10 AS pid, 1 AS id"
    )
    con.execute(
        "INSERT INTO SYS_OUT BY NAME SELECT 12000 AS time, 0 AS cpu, 2 AS serial, 10 AS pid, 1 AS"
        " id, 0 AS ret"
    )
    support.write_log(
        con, path, schema="traps", processes=[(10, "prog", 0, None)], end=100_000, cpus=1, meta=meta
    )
    with klogger.open(path) as log:
        (result,) = executor.run_all(log, executor.choose(log, ["calls"]))
        return result


def test_the_answer_says_what_it_has_subtracted(tmp_path: Path) -> None:
    known = answer_of(tmp_path / "known.klog-parquet", preamble(cost("SYS_IN", 84.6)))
    assert known.table.records()[0]["total"] == 2000 - 85
    assert any("Subtracted" in note and "85 ns for SYS_IN" in note for note in known.analysis.notes)


def test_the_answer_says_that_it_could_not(tmp_path: Path) -> None:
    unknown = answer_of(tmp_path / "unknown.klog-parquet", {})
    assert unknown.table.records()[0]["total"] == 2000
    assert any("is in all times" in note and "SYS_IN" in note for note in unknown.analysis.notes)
