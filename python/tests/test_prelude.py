# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The functions of SQL mean the columns that they are given, whatever these and their tables are
called.
"""

from __future__ import annotations

import duckdb
import pytest
import support

import klogger
from klogger.log import Log

# What the functions' own tables, columns and parameters are, or once were, called.
NAMES = [
    "pid",
    "p",
    "time",
    "t",
    "comm",
    "from_ns",
    "q",
    "x",
    "k",
    "h",
    "ns",
    "event",
    "e",
    "address",
    "id",
    "text",
    "symbol",
    "name",
    "names",
]
ALIASES = ["", "q", "p", "t", "s", "pid", "process", "klogger", "thread"]
# Each asks for the values of FUNCTION(COLUMN...) in another place of a query.
PLACES = [
    "SELECT {f} FROM {source}",
    "SELECT {f} FROM {source} WHERE {f} IN (SELECT unnest({values}))",
    (
        "SELECT any_value(v) FROM (SELECT {f} AS v, {first} AS one, {second} AS two FROM {source})"
        " GROUP BY one, two"
    ),
    "SELECT {f} FROM {source} GROUP BY {f}, {first}, {second}",
    "SELECT w FROM {source} JOIN (SELECT DISTINCT unnest({values}) AS w) AS other ON {f} = w",
    "SELECT (SELECT {f}) FROM {source}",
    (
        "SELECT w FROM (SELECT unnest({values}) AS w) AS other WHERE EXISTS (SELECT 1 FROM {source}"
        " WHERE {f} = w)"
    ),
]
# Of a machine with one disk; the others are of a forged log.
DISKS = [["8:1", "sda1"], ["8:2"], "8:2", [8, 2], ["8:2", "b\x1b[1m"], ["8:", "c"], ["8:2", ""]]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    con = duckdb.connect()
    support.create_tables(con, support.events_of("scheduler"))
    path = tmp_path_factory.mktemp("prelude") / "x.klog-parquet"
    processes = [(1, "one", 0, 99), (2, "two", 0, 49), (2, "deux", 50, 99), (3, "three", 0, 99)]
    costs = {
        "events": [
            {"event": n, "cost": {"ns": c, "low": c, "high": c}}
            for n, c in (("A", 7.0), ("B", 9.0))
        ]
    }
    log = klogger.open(
        support.write_log(
            con, path, processes=processes, end=100, meta={"costs": costs, "host": {"disks": DISKS}}
        )
    )
    log.connection.execute("INSERT INTO klogger.symbol VALUES (16, 'alpha'), (32, 'beta [m]')")
    log.connection.execute(
        "INSERT INTO klogger.stack (id, frames, text) VALUES (7, ['a', 'b'], 'a+0x1<b+0x2')"
    )
    return log


def asked(
    log: Log, function: str, rows: str, values: list[str], first: str, second: str, alias: str
) -> list[list[str]]:
    """The answers from all places of a query, with the arguments in columns of these names, in a
    table of this one.
    """
    source = f'(SELECT a AS "{first}", b AS "{second}" FROM {rows} AS v(a, b))' + (
        f' AS "{alias}"' if alias else ""
    )
    before = f'"{alias}".' if alias else ""
    columns = f'{before}"{first}"', f'{before}"{second}"'
    words = {
        "f": function.format(*columns),
        "first": columns[0],
        "second": columns[1],
        "source": source,
        "values": values,
    }
    return [sorted(v for (v,) in log.rows(place.format(**words))) for place in PLACES]


def functions() -> list[tuple[str, str, str, list[str]]]:
    ms = [0] * 21
    ms[3] = 5
    return [
        ("comm", "comm({0}, {1})", "(VALUES (1, 10), (2, 20), (2, 60), (9, 1))",
         ["one", "two", "deux", "9"]),
        ("cost_of", "cost_of({0})::VARCHAR", "(VALUES ('A', 1), ('B', 2), ('C', 3))",
         ["7", "9", "0"]),
        ("duration", "duration({0})", "(VALUES (1230, 1), (7, 2))", ["1.23 µs", "7 ns"]),
        ("octave", "octave({0})::VARCHAR", "(VALUES (9000, 1), (1, 2))", ["3", "0"]),
        ("octaves", "octaves({0})::VARCHAR", "(VALUES (MAP {3: 5}, 1))", [str(ms)]),
        ("label", "label({0}, {1})", "(VALUES ('a', 1), ('', 2))", ["a", "thread 2"]),
        ("thread", "thread({0}, {1})", "(VALUES (1, 10), (2, 60), (9, 1))",
         ["one[1]", "deux[2]", "9"]),
        ("code", "code({0})", "(VALUES (17, 1), (32, 2), (1, 3))",
         ["alpha+0x1", '"beta [m]"+0x0', "0x1"]),
        ("symbol", "symbol({0})", "(VALUES (17, 1), (32, 2))", ["alpha", "beta [m]"]),
        ("data", "data({0}, 10, {1})", "(VALUES (17, 1), (32, 2))", ["0x11", "0x20"]),
        ("stack", "stack({0})", "(VALUES (7, 1), (8, 2))", ["7[a+0x1<b+0x2]", "8"]),
        ("hex", "hex({0})", "(VALUES (255, 1), (-1, 2))", ["0xff", "0xffffffffffffffff"]),
        ("octal", "octal({0})", "(VALUES (420, 1), (0, 2), (2541, 3))", ["0644", "0", "04755"]),
        ("device", "device({0})", "(VALUES (8388609, 1))", ["8:1"]),
        ("disk", "disk({0})", "(VALUES (8388609, 1), (8388610, 2), (-1, 3))",
         ["sda1", "8:2", "17592186044415:1048575"]),
        ("place", "place({0})", "(VALUES (['schedule', 'pipe_read'], 1), (['schedule'], 2))",
         ["pipe_read", "schedule"]),
        ("places", "places({0})::VARCHAR",
         "(VALUES (['schedule', 'pipe_read', 'vfs_read'], 1), (['schedule'], 2))",
         ["[pipe_read, vfs_read]", "[]"]),
        ("ip", "ip({0})", "(VALUES ([127, 0, 0, 1], 1))", ["127.0.0.1"]),
        ("endpoint", "endpoint({0})",
         "(VALUES ([2, 0, 80, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1))",
         ["127.0.0.1:80"]),
        ("errno", "errno({0})", "(VALUES (5, 1), (6, 2))", ["5", "6"]),
        ("syscall", "syscall({0})", "(VALUES (5, 1), (6, 2))", ["5", "6"]),
        ("span_text", "span_text({0}, {1}, 8)", "(VALUES ('read', 4096), ('lock', NULL))",
         ["read 4096 B at 8", "lock"]),
        ("klogger_word", "klogger_word({0})", "(VALUES ('a b', 1), ('c', 2))", ['"a b"', "c"]),
        ("task_state", "task_state({0})", "(VALUES (0, 1), (3, 2))", ["0", "S|D"]),
        ("bucket", "bucket({0})::VARCHAR", "(VALUES (5, 1), (200, 2), (-5, 3))",
         ["5", "164", "-5"]),
        ("middle", "middle({0})::VARCHAR", "(VALUES (5, 1), (164, 2))", ["5", "201"]),
        ("merged", "merged({0})::VARCHAR", "(VALUES ([MAP {1: 2}, MAP {1: 3, 4: 5}], 1))",
         ["{1=5, 4=5}"]),
        ("quantile_of", "quantile_of({0}, 0.5)::VARCHAR",
         "(VALUES (MAP {1: 2, 164: 7}, 1), (MAP {3: 1}, 2))", ["201", "3"]),
    ]  # fmt: skip


# With subqueries, with lambdas, and with neither.
IN_THE_GATE = ("comm", "label", "octaves", "symbol", "hex", "span_text", "errno")
FULL = pytest.mark.full("400 queries of each function, of which some take 5 s and more")


@pytest.mark.full("takes more than 3 s")
@pytest.mark.parametrize(
    ("function", "rows", "values"),
    [
        pytest.param(*given, marks=() if name in IN_THE_GATE else FULL, id=name)
        for name, *given in functions()
    ],
)
def test_no_name_is_captured(log: Log, function: str, rows: str, values: list[str]) -> None:
    for number, first in enumerate(NAMES):
        second, alias = NAMES[(number + 1) % len(NAMES)], ALIASES[number % len(ALIASES)]
        for names in ((first, second, alias), (second, first, "q"), (first, second, "")):
            for place, found in zip(
                PLACES, asked(log, function, rows, values, *names), strict=True
            ):
                assert found == sorted(values), (names, place)


def test_all_functions_are_tested(log: Log) -> None:
    found = log.rows(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE schema_name = 'klogger' AND"
        " function_type = 'macro' AND function_name NOT IN ('three_digits', 'klogger_shift',"
        " 'klogger_bucket', 'klogger_middle')"
    )
    assert {name for (name,) in found} == {f[0] for f in functions()} | {"histogram_of"}


@pytest.mark.parametrize("name", NAMES)
def test_an_aggregate_captures_no_name(log: Log, name: str) -> None:
    query = f'SELECT histogram_of("{name}")::VARCHAR FROM (VALUES (5), (200), (5)) AS v("{name}")'
    assert log.rows(query) == [("{5=2, 164=1}",)]


@pytest.mark.parametrize("alias", ["s", "t", "r", "klogger", "program"])
def test_programs_of_a_table_with_any_name(log: Log, alias: str) -> None:
    rows = "(VALUES (1, 10, 5), (2, 20, 6), (2, 60, 7)) AS v(pid, time, names)"
    log.connection.execute(f'CREATE OR REPLACE TEMP VIEW "{alias}" AS FROM {rows}')
    try:
        found = log.rows(
            f"SELECT pid, time, names, program FROM klogger.with_program('{alias}') ORDER BY names"
        )
    finally:
        log.connection.execute(f'DROP VIEW temp."{alias}"')
    assert found == [(1, 10, 5, "one"), (2, 20, 6, "two"), (2, 60, 7, "deux")]
