# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From the rows that an analysis has of each recording to the rows of all of them, as the analysis
declares in its header (docs/datasets.md).

    rows         the rows of the analysis's table, of all recordings of a group, with the columns of
                 its section `histogram` beside
    recordings   the recordings of the group: log, host, seconds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import duckdb

from klogger import histograms, rules
from klogger.analysis import Analysis, Column
from klogger.executor import ROWS_MAX, Rows, fetch
from klogger.failure import Failure
from klogger.sqltext import identifier, literal
from klogger.statements import check_query, executed

LOG, ROW = '"klogger log"', '"klogger row"'
PLACE, GROUP, HOST, FILE = (f'"klogger {name}"' for name in ("place", "group", "host", "file"))
LENGTH, NUMBER, SECONDS = (f'"klogger {name}"' for name in ("length", "number", "seconds"))
HEADS = ("host", "recording")
HEAD_DOCS = {"host": "host", "recording": "recording"}


class Recording(NamedTuple):
    """Of a group. `group`: the values that it is grouped by."""

    log: str
    host: str
    seconds: float
    group: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """The rows of one analysis, in Parquet files. Those of recordings that are not listed do not
    count. `kept`: the file with the rows of a recording; of others, they are in one of `files`, if
    they have some.
    """

    analysis: Analysis
    by: tuple[str, ...]
    recordings: tuple[Recording, ...]
    files: tuple[str, ...]
    kept: Mapping[str, str] = field(default_factory=dict)

    def kept_files(self) -> list[str]:
        """Of each recording that is listed, or empty."""
        return [self.kept.get(r.log, "") for r in self.recordings]

    @property
    def has_rows(self) -> bool:
        return bool(self.files) or any(self.kept_files())


def combine(task: Task) -> tuple[Analysis, Rows]:
    """The rows of each group, behind the values that it is grouped by; and the analysis with the
    columns that it has now.
    """
    one = task.analysis
    if not task.has_rows:
        return one, Rows()
    with duckdb.connect() as connection:
        groups = sorted({r.group for r in task.recordings})
        load(connection, task, groups)
        if one.combination:
            rows = of_groups(connection, one, len(groups))
        else:
            rows = together(connection, one)
    names = rows.names[1:]
    found = [[*groups[number], *row] for number, *row in rows.rows]
    heads = free_names(task.by, names)
    known = {
        h: Column(h, "", False, f"what the recordings are grouped by: {b}")
        for h, b in zip(heads, task.by, strict=True)
    }
    known |= {
        n: one.columns.get(n, Column(n, "", False, HEAD_DOCS.get(n.rstrip("_"), ""))) for n in names
    }
    return (
        replace(one, columns=known, picture=None, sections={"table": one.sections["table"]}),
        Rows([*heads, *names], found, rows.left_out),
    )


def free_names(wanted: Sequence[str], taken: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in wanted:
        marks = (name + "_" * n for n in range(len(taken) + len(wanted) + 1))
        found.append(next(n for n in marks if n not in (*taken, *found)))
    return found


def load(
    connection: duckdb.DuckDBPyConnection, task: Task, groups: Sequence[tuple[str, ...]]
) -> None:
    """The view `everything`. In one thread: sums of floating-point numbers depend on their
    order.
    """
    connection.execute("SET threads = 1")
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET memory_limit = '1GiB'")
    connection.execute("CREATE SCHEMA klogger")
    numbers = {group: number for number, group in enumerate(groups)}
    listed, kept = task.recordings, task.kept_files()
    connection.execute(
        "CREATE TABLE klogger.listed AS SELECT unnest($1::INTEGER[]) AS place,"
        " unnest($2::VARCHAR[]) AS log, unnest($3::VARCHAR[]) AS host,"
        " unnest($4::DOUBLE[]) AS seconds, unnest($5::INTEGER[]) AS number,"
        " unnest($6::VARCHAR[]) AS file",
        [
            list(range(len(listed))), [r.log for r in listed], [r.host for r in listed],
            [r.seconds for r in listed], [numbers[r.group] for r in listed],
            kept,
        ],
    )  # fmt: skip
    of_kept = list(dict.fromkeys(filter(None, kept)))
    sources = [(task.files, "r.file = ''"), (of_kept, f"r.file = e.{FILE}")]
    parts = [of_files(files, condition) for files, condition in sources if files]
    connection.execute(f"CREATE VIEW klogger.everything AS {' UNION ALL BY NAME '.join(parts)}")


def of_files(files: Sequence[str], condition: str) -> str:
    """The rows of the recordings that are listed."""
    listed = ", ".join(map(literal, files))
    return (
        f"SELECT e.* EXCLUDE ({FILE}), r.place AS {PLACE}, r.number AS {GROUP}, r.host AS {HOST}"
        f" FROM read_parquet([{listed}], union_by_name = true, filename = {literal(FILE[1:-1])})"
        f" AS e JOIN klogger.listed AS r ON e.{LOG} = r.log AND {condition}"
    )


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """The SQL of an analysis is untrusted."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET search_path = 'main,klogger'")
    connection.execute("SET lock_configuration = true")


def types_of(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """The columns of the analysis, and of its histograms."""
    hidden = f"{LOG}, {ROW}, {PLACE}, {GROUP}, {HOST}"
    described = connection.execute(f"DESCRIBE SELECT * EXCLUDE ({hidden}) FROM {table}").fetchall()
    return {str(name): str(kind) for name, kind, *_ in described}


def of_groups(connection: duckdb.DuckDBPyConnection, one: Analysis, groups: int) -> Rows:
    """By the SQL of the analysis, one group after the other."""
    connection.execute(
        f"CREATE TABLE klogger.sorted AS FROM klogger.everything ORDER BY {PLACE}, {ROW}"
    )
    connection.execute(histograms.SQL)
    lock(connection)
    found = Rows()
    for number in range(groups):
        rows = of_group(connection, one, number, ROWS_MAX - len(found.rows))
        found.names = ["group", *rows.names]
        found.rows += [[number, *row] for row in rows.rows]
        found.left_out += rows.left_out
    return found


def of_group(connection: duckdb.DuckDBPyConnection, one: Analysis, number: int, most: int) -> Rows:
    connection.execute(
        "CREATE OR REPLACE VIEW klogger.recordings AS SELECT place, log, host, seconds"
        f" FROM klogger.listed WHERE number = {number}"
    )
    hidden = f"{LOG}, {ROW}, {PLACE}, {GROUP}, {HOST}"
    connection.execute(
        f"CREATE OR REPLACE TEMP VIEW rows AS SELECT * EXCLUDE ({hidden})"
        f" FROM klogger.sorted WHERE {GROUP} = {number}"
    )
    where = f"{one.path}, section 'combine'"
    check_query(connection, one.placed("combine"), where)
    with executed(connection, one.placed("combine"), where) as rows:
        return fetch(rows, most)


def together(connection: duckdb.DuckDBPyConnection, one: Analysis) -> Rows:
    """All groups at once, in their order; the first column is the number of the group."""
    types = types_of(connection, "klogger.everything")
    if one.combine == "sum":
        if histograms_of(types):
            connection.execute(histograms.SQL)
        # Without histograms, which are long: what is added up in the order of the recordings.
        listed = ", ".join([GROUP, *map(identifier, shown(types))])
        connection.execute(
            f"CREATE TABLE klogger.sorted AS SELECT {listed} FROM klogger.everything"
            f" ORDER BY {PLACE}, {ROW}"
        )
        connection.execute(f"CREATE TEMP TABLE klogger_answer AS {summed(one, types)}")
        rows = fetch(connection.execute(f"FROM klogger_answer LIMIT {ROWS_MAX}"), ROWS_MAX)
        counted = "klogger_answer"
    else:
        rows = fetch(connection.execute(as_they_are(types)), ROWS_MAX)
        counted = "klogger.everything"
    ((count,),) = connection.execute(f"SELECT count(*) FROM {counted}").fetchall()
    rows.left_out = count - len(rows.rows)
    return rows


def shown(types: dict[str, str]) -> list[str]:
    """Without histograms, which are for quantiles."""
    return [name for name, kind in types.items() if not kind.startswith("MAP")]


def as_they_are(types: dict[str, str]) -> str:
    names = shown(types)
    host, recording = free_names(HEADS, names)
    listed = ", ".join(map(identifier, names))
    return (
        f"SELECT {GROUP}, {HOST} AS {identifier(host)},"
        f" left({LOG}, 8) AS {identifier(recording)}, {listed} FROM klogger.everything"
        f" ORDER BY {GROUP}, {PLACE}, {ROW} LIMIT {ROWS_MAX}"
    )


def summed(one: Analysis, types: dict[str, str]) -> str:
    """Rows with equal keys become one."""
    by_name = {name: rule_of(one, name) for name in shown(types)}
    keys = [identifier(name) for name, rule in by_name.items() if rule == "key"]
    inner, outer = list(keys), []
    first = main_of(one, by_name)
    for name, rule in by_name.items():
        column = identifier(name)
        kind = types[name]
        match rule:
            case "key":
                outer.append(column)
            case "sum" if kind.endswith("[]"):
                outer.append(f"{identifier(f'klogger {name}')} AS {column}")
            case "sum" | "max" | "min":
                inner.append(f"{rule}({column})::{wide(kind)} AS {column}")
                outer.append(column)
            case _ if rule.startswith("of "):
                inner.append(f"{mean(one, name, rule, types)} AS {column}")
                outer.append(f"{column}::{wide(kind)} AS {column}")
            case "most":
                inner.append(f"arg_max({column}, {identifier(first)}) AS {column}")
                outer.append(column)
            case "apart":
                continue
            case _:
                outer.append(f"({derived(one, rule, types)})::{wide(kind)} AS {column}")
    whole = [GROUP, *keys]
    source = "klogger.sorted"
    joins = [
        "JOIN (SELECT number, sum(seconds) AS seconds FROM klogger.listed GROUP BY number)"
        f" AS {LENGTH}({NUMBER}, {SECONDS}) ON m.{GROUP} = {NUMBER}"
    ]
    if not keys:
        # One row, also of a group that has none.
        source = f"(SELECT DISTINCT number AS {GROUP} FROM klogger.listed) LEFT JOIN {source}"
        source += f" USING ({GROUP})"
    for name in (n for n, r in by_name.items() if r == "sum" and types[n].endswith("[]")):
        joins.append(joined(whole, added_lists(whole, name), len(joins)))
    for histogram in histograms_of(types):
        parts = sorted({rule for rule in by_name.values() if rule.endswith(f" of {histogram}")})
        if parts:
            joins.append(joined(whole, quantiles(whole, histogram, parts), len(joins)))
    order = [GROUP, *([f"{identifier(first)} DESC"] if first else []), *keys]
    return (
        f"SELECT {', '.join([GROUP, *outer])}"
        f" FROM (SELECT {', '.join([GROUP, *inner])} FROM {source}"
        f" GROUP BY {', '.join(whole)}) AS m {' '.join(joins)}"
        f" ORDER BY {', '.join(order)}"
    )


def quantiles(keys: Sequence[str], histogram: str, rules_: Sequence[str]) -> str:
    """A query for those of the sum of the histograms with the same keys, as
    `histograms.quantile_of` has them. In one pass: there may be millions of buckets.
    """
    listed, column = ", ".join(keys), identifier(histogram)
    found = ", ".join(
        f'klogger.middle(min("klogger k") FILTER'
        f' ("klogger c" >= {rule.partition(" of ")[0]} * "klogger t")) AS {quantile(rule)}'
        for rule in rules_
    )
    return (
        f"SELECT {listed}, {found} FROM ("
        f'SELECT *, sum("klogger n") OVER (PARTITION BY {listed}) AS "klogger t",'
        f' sum("klogger n") OVER (PARTITION BY {listed} ORDER BY "klogger k") AS "klogger c"'
        f' FROM (SELECT {listed}, "klogger k", sum("klogger n")::BIGINT AS "klogger n"'
        f' FROM (SELECT {listed}, unnest(map_keys({column})) AS "klogger k",'
        f' unnest(map_values({column})) AS "klogger n" FROM klogger.everything)'
        f' GROUP BY {listed}, "klogger k")) GROUP BY {listed}'
    )


def quantile(rule: str) -> str:
    """The column with it."""
    return identifier(f"klogger {rule}")


def joined(keys: Sequence[str], query: str, number: int) -> str:
    """With the rows of a query that begin with the same keys, which may be NULL."""
    names = [identifier(f"klogger {number} {at}") for at in range(len(keys))]
    same = " AND ".join(f"m.{k} IS NOT DISTINCT FROM {n}" for k, n in zip(keys, names, strict=True))
    return f'LEFT JOIN ({query}) AS "klogger {number}"({", ".join(names)}) ON {same}'


def histograms_of(types: dict[str, str]) -> list[str]:
    return [name for name, kind in types.items() if kind.startswith("MAP")]


def main_of(one: Analysis, by_name: dict[str, str]) -> str:
    """The column by which the answer is ordered: the first sum that has a bar, or the first."""
    sums = [name for name, rule in by_name.items() if rule == "sum"]
    with_bar = [name for name in sums if one.columns[name].bar]
    return (with_bar or sums or [""])[0]


def rule_of(one: Analysis, name: str) -> str:
    """Numbers with a unit are added up, if that has a meaning; what has none is a key."""
    column = one.columns.get(name)
    if column is None:
        raise Failure(f"{one.path}: column {name} is not documented")
    fault = rules.rule_fault(one, name)
    if fault is not None:
        raise Failure(one.said([fault]))
    return rules.rule_of(column)


def wide(kind: str) -> str:
    """A sum of integers is an integer, of any size."""
    return "HUGEINT" if kind.endswith("INT") or kind == "INTEGER" else kind


def added_lists(keys: Sequence[str], name: str) -> str:
    """A query for the sums by place of lists of numbers, of rows with the same keys."""
    listed, column = ", ".join(keys), identifier(name)
    return (
        f'SELECT {listed}, list("klogger s" ORDER BY "klogger i") AS'
        f" {identifier(f'klogger {name}')}"
        f' FROM (SELECT {listed}, "klogger i", coalesce(sum("klogger x"), 0) AS "klogger s"'
        f' FROM (SELECT {listed}, unnest({column}) AS "klogger x",'
        f' generate_subscripts({column}, 1) AS "klogger i" FROM klogger.sorted)'
        f' GROUP BY {listed}, "klogger i") GROUP BY {listed}'
    )


def mean(one: Analysis, name: str, rule: str, types: dict[str, str]) -> str:
    """A part of something that is counted, or a mean: each row as much as its number is."""
    weight = rule.removeprefix("of ")
    check(one, weight, shown(types), rule)
    value, by = identifier(name), identifier(weight)
    return f"sum({value} * {by}) / nullif(sum({by}) FILTER ({value} IS NOT NULL), 0)"


def derived(one: Analysis, rule: str, types: dict[str, str]) -> str:
    """A quotient of sums, or a quantile of a histogram."""
    if " of " in rule:
        name = rule.partition(" of ")[2]
        check(one, name, histograms_of(types), rule)
        return quantile(rule)
    above, _, below = rule.partition("/")
    check(one, above, shown(types), rule)
    if below == "*":
        all_ = f"sum({identifier(above)}) OVER (PARTITION BY {GROUP})"
        return f"{identifier(above)} / nullif({all_}, 0)"
    if below == "seconds" and below not in types:
        return f"{identifier(above)} / nullif({SECONDS}, 0)"
    check(one, below, shown(types), rule)
    return f"{identifier(above)} / nullif({identifier(below)}, 0)"


def check(one: Analysis, name: str, known: Sequence[str], rule: str) -> None:
    if name not in known:
        raise Failure(f"{one.path}: '{rule}': there is no column {name}")
