# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What an analysis finds does not depend on the order in which DuckDB has the rows of its tables,
which threads make: of two that are equal, the finding names the same one each time.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
import support

import klogger
from klogger import executor, expectation
from klogger.executor import Result
from klogger.numerals import agreed

CASES = sorted(support.SCHEMATA.glob("*/expect/*.expect"))
ORDERS = 4


def findings(result: Result, cursor: duckdb.DuckDBPyConnection) -> list[str]:
    rows = cursor.execute(result.analysis.sections["finding"]).fetchall()
    return sorted(agreed(str(row[0])) for row in rows if row[0] is not None)


def shuffle(cursor: duckdb.DuckDBPyConnection, seed: int) -> None:
    """All tables that the analysis has made."""
    made = cursor.execute("SELECT table_name FROM duckdb_tables() WHERE temporary").fetchall()
    for (name,) in made:
        order = f"hash(rowid * 7919 + {seed})"
        cursor.execute(
            f'CREATE OR REPLACE TEMP TABLE "{name}" AS SELECT * FROM "{name}" ORDER BY {order}'
        )


@pytest.mark.full("takes a minute")
@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parents[1].name}/{p.stem}")
def test_findings_do_not_depend_on_the_order_of_rows(path: Path, tmp_path: Path) -> None:
    found: list[list[str]] = []

    def fill(result: Result, cursor: duckdb.DuckDBPyConnection) -> None:
        session.fill_all(result, cursor)
        for seed in range(ORDERS if "finding" in result.analysis.sections else 0):
            shuffle(cursor, seed)
            found.append(findings(result, cursor))

    case = expectation.read(path)
    log = klogger.open(expectation.make(case, tmp_path / "x.klog-parquet"), locked=True)
    with executor.Session(log) as session:
        one = session.find(case.schema, case.analysis)
        assert one is not None
        result = session.run(one, fill)
    log.close()
    assert result.status in ("answer", "empty"), result.reason
    assert all(said == found[0] for said in found), found
    assert not found or found[0] == sorted(result.findings)
