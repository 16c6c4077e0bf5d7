# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What is compared of one log: histograms of an analysis's samples, or the numbers in the rows of
its table.

Histograms are small, however long the log: two logs, or twenty, are read one after the other.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from klogger import executor, losses, statements
from klogger.analysis import Analysis, Column, Picture
from klogger.compare.stats import BINS, ORIGIN, Histogram
from klogger.failure import Failure
from klogger.log import Log

# With one run on each side, its time is cut into so many parts. What lasts longer than a part is
# taken for chance.
SLICES = 16
# Kinds of samples that one log may bring; those with the most values, or the greatest sum of them.
WHATS_MAX = 100
# Units of numbers that can be compared.
NUMBERS = ("ns", "s", "share", "count", "per_s", "bytes")
# Numbers that two runs never share, though they are in a column of text, or in one without a unit.
THREAD_IDS = frozenset({"pid", "tid", "tgid", "ppid", "parent"})
NUMBER_OF_THREAD = re.compile(r"\[\d+\]|(?<=\bthread) \d+")

What = tuple[str, ...]
# What every log of a command that has ended tells, without an analysis.
RECORDING = Analysis(
    "recording", Path(), "klogger", title="The command", question="How long did it take?",
    columns={"took": Column("took", "s", False, "from the recording's start to its end", "less")},
)  # fmt: skip

# Names are normalised where there are few of them, not in each sample.
SAMPLE = """
CREATE OR REPLACE TEMP TABLE klogger_sample AS
SELECT {name} AS name, {time}::BIGINT AS time, {value}::DOUBLE AS value FROM ({query})
WHERE {value} IS NOT NULL"""
KIND = f"""
CREATE OR REPLACE TEMP TABLE klogger_kind AS
WITH named AS (
    SELECT name, regexp_replace(regexp_replace(name, '\\[\\d+\\]', '', 'g'), '\\bthread \\d+',
           'thread', 'g') AS what,
           min(time) AS from_ns, max(time) AS to_ns, count(*) AS n, sum(abs(value)) AS total
    FROM klogger_sample WHERE isfinite(value) GROUP BY name
), kind AS (
    SELECT what, min(from_ns) AS from_ns, max(to_ns) AS to_ns, sum(n) AS n, sum(total) AS total
    FROM named GROUP BY what
), part AS (
    SELECT *, greatest(n / sum(n) OVER (), coalesce(total / nullif(sum(total) OVER (), 0),
           0)) AS part FROM kind
), ranked AS (
    SELECT what, from_ns, to_ns, row_number() OVER (ORDER BY part DESC, what) - 1 AS kind FROM part
)
SELECT n.name, r.* FROM ranked AS r JOIN named AS n USING (what) WHERE kind < {WHATS_MAX}"""
# Bins of negative values are the mirror of the others; 0 has its own.
BIN = f"""
SELECT kind, least(floor((time::DOUBLE - from_ns) / (to_ns::DOUBLE - from_ns + 1) * {SLICES}),
                   {SLICES - 1})::BIGINT AS slice,
       CASE WHEN value = 0 THEN 0
            ELSE (sign(value) * (floor(log2(abs(value)) * {BINS}) + {ORIGIN}))::BIGINT END AS bin,
       count(*)::DOUBLE AS n, sum(value) AS total
FROM klogger_sample JOIN klogger_kind USING (name) WHERE isfinite(value) GROUP BY ALL
ORDER BY ALL"""
BETWEEN_NAMES = chr(31)


@dataclass
class Measured:
    """An analysis of one log. One of `histograms`, `numbers` (by row and column) and `stacks` (of a
    flame graph: values by the text of the stack) is filled.

    `status` is that of a executor.Result; `rows` are the keys of the table's rows, the most
    important first.
    """

    analysis: Analysis
    status: str = "answer"
    reason: str = ""
    warnings: list[str] = field(default_factory=list)
    value: str = ""
    histograms: dict[What, Histogram] = field(default_factory=dict)
    rows: list[What] = field(default_factory=list)
    numbers: dict[tuple[What, str], float] = field(default_factory=dict)
    stacks: dict[str, float] = field(default_factory=dict)


def measure(
    log: Log, chosen: Iterable[Analysis], progress: Callable[[str], None]
) -> dict[str, Measured]:
    """Each analysis, by name."""
    found = {}
    with executor.Session(log) as session:
        for one in chosen:
            progress(f"{log.path.name}: {one.title or one.name}")
            found[one.name] = measure_one(session, one)
    return found


def length_of(log: Log) -> Measured:
    """How long the command took, as a table of one number."""
    found = Measured(RECORDING)
    found.rows.append(("command",))
    found.numbers[("command",), "took"] = log.seconds()
    return found


def measure_one(session: executor.Session, one: Analysis) -> Measured:
    log, found = session.log, Measured(one)
    missing = [e for e in one.events if e.upper() not in log.events]
    if missing:
        found.status, found.reason = "not_recorded", f"{' and '.join(missing)} not recorded"
        return found
    try:
        found.warnings = executor.prepare(session, one)
        cursor, _ = session.connection(one)
        if one.picture is not None and one.picture.kind == "flame":
            read_stacks(found, one.picture, cursor)
        elif one.samples:
            read_samples(found, cursor)
        else:
            read_table(found, cursor)
        found.warnings += executor.own_warnings(one, cursor) + losses.warnings(log, one.events)
    except Failure as failure:
        found.status, found.reason = "failed", str(failure)
        return found
    if not found.histograms and not found.numbers and not found.stacks:
        found.status, found.reason = "empty", one.empty or "the log has no such events"
    return found


def read_samples(found: Measured, cursor: duckdb.DuckDBPyConnection) -> None:
    one = found.analysis
    where = f"{one.path}, section 'samples'"
    statements.check_query(cursor, one.samples, where)
    with statements.executed(cursor, f"SELECT * FROM ({one.samples}\n) LIMIT 0", where) as rows:
        columns = [(d[0], str(d[1])) for d in rows.description or []]
    found.value = value_column(one, [name for name, _ in columns], where)
    texts = [quoted(name) for name, kind in columns if kind in ("STRING", "VARCHAR")]
    name = f"concat_ws(chr({ord(BETWEEN_NAMES)}), {', '.join(texts)})" if texts else "''"
    sample = SAMPLE.format(
        name=name, time=quoted("time"), value=quoted(found.value), query=one.samples
    )
    for query in (sample, KIND):
        statements.execute_whole(cursor, query, where)
    names = cursor.execute(
        "SELECT any_value(what) FROM klogger_kind GROUP BY kind ORDER BY kind"
    ).fetchall()
    with statements.executed(cursor, BIN, where) as rows:
        cells = rows.fetchnumpy()
    cursor.execute("DROP TABLE klogger_sample")
    # Sorted by kind: each is a range of the cells.
    ends = np.searchsorted(cells["kind"], np.arange(len(names) + 1))
    for kind, (what,) in enumerate(names):
        part = slice(ends[kind], ends[kind + 1])
        found.histograms[tuple(what.split(BETWEEN_NAMES))] = histogram(
            *(np.asarray(cells[c][part]) for c in ("slice", "bin", "n", "total"))
        )


def value_column(one: Analysis, names: list[str], where: str) -> str:
    values = [n for n in names if n != "time" and unit(one, n) in NUMBERS]
    if len(values) != 1 or "time" not in names:
        raise Failure(
            f"{where}: it must have the column time and one whose unit is "
            f"{', '.join(NUMBERS[:-1])} or {NUMBERS[-1]}",
            help="docs/analyses.md describes samples",
        )
    return values[0]


def histogram(slices: Any, bins: Any, counts: Any, totals: Any) -> Histogram:
    known, places = np.unique(bins, return_inverse=True)
    cells = np.zeros((SLICES, len(known)))
    cells[slices, places] = counts
    return Histogram(
        known, cells, np.bincount(slices, weights=totals, minlength=SLICES).astype(float)
    )


def read_table(found: Measured, cursor: duckdb.DuckDBPyConnection) -> None:
    one = found.analysis
    where = f"{one.path}, section 'table'"
    query = one.sections.get("table", "SELECT 1 WHERE false")
    with statements.executed(cursor, query, where) as rows:
        table = executor.fetch(rows, executor.ROWS_MAX)
    keys, metrics = (
        key_columns(one, table.names),
        [n for n in table.names if unit(one, n) in NUMBERS],
    )
    check_keys(table, keys, where)
    times: dict[What, int] = {}
    for row in table.records():
        key = tuple(NUMBER_OF_THREAD.sub("", str(row[k])) for k in keys)
        # Threads of one name are told apart by their rank: the first of one log is compared with
        # the other's first.
        times[key] = times.get(key, 0) + 1
        if times[key] > 1:
            key = (*key, f"#{times[key]}")
        found.rows.append(key)
        for metric in metrics:
            if isinstance(row[metric], (int, float)):
                found.numbers[key, metric] = float(row[metric])


def read_stacks(found: Measured, picture: Picture, cursor: duckdb.DuckDBPyConnection) -> None:
    """What a flame graph is drawn of. Its many rows are not compared one by one."""
    one = found.analysis
    where = f"{one.path}, section '{one.drawn}'"
    with statements.executed(cursor, one.sections[one.drawn], where) as rows:
        points = executor.fetch(rows, executor.POINTS_MAX)
    for row in points.records():
        stack, value = row[picture.parts["y"]], row[picture.parts["x"]]
        if stack is not None:
            found.stacks[str(stack)] = found.stacks.get(str(stack), 0.0) + float(value or 0)


def check_keys(table: executor.Rows, keys: list[str], where: str) -> None:
    """No two runs have such a number in common, so none of their rows would be compared."""
    for key in keys:
        at = table.names.index(key)
        if any(isinstance(row[at], (float, decimal.Decimal)) for row in table.rows):
            raise Failure(
                f"{where}: the column '{key}' has no unit, so it would name a row, but its "
                "numbers have a fraction",
                help=f"give it a unit in the header: -- column {key} [count]: ...",
            )


def key_columns(one: Analysis, names: list[str]) -> list[str]:
    """The columns before the first with a unit say what a row is about; text that comes later
    belongs to the answer.
    """
    first = next((i for i, n in enumerate(names) if unit(one, n)), len(names))
    return [n for n in names[:first] if n not in THREAD_IDS]


def unit(one: Analysis, name: str) -> str:
    return one.columns.get(name, Column(name, "", False, "")).unit


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
