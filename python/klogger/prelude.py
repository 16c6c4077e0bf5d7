# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tables and functions that every log has, besides one table per event type. `gaps` has those
about what is missing, `costs` those about the logger's own cost.

DuckDB puts the arguments of a macro into its text. What they name must not be taken for a column of
the macro's own, nor for its tables: so each name inside of a subquery, and each parameter of a
lambda, begins with `klogger`, in a form that no event or field can have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from klogger import costs, decodings, devices, durations, histograms, waiting
from klogger.folder import Folder
from klogger.made import Made
from klogger.opening import Opening
from klogger.sqltext import identifier

# The columns that the exporter promises, for a log in which such a table is missing.
TABLES = {
    "process": "pid INTEGER, tgid INTEGER, parent INTEGER, comm VARCHAR, command VARCHAR,"
    " from_ns BIGINT, to_ns BIGINT, recorder BOOLEAN",
    "ledger": "key VARCHAR, severity VARCHAR, source VARCHAR, event VARCHAR, cpu SMALLINT,"
    " tid INTEGER, tgid INTEGER, count BIGINT, from_ns BIGINT, to_ns BIGINT, text VARCHAR",
    "event": "name VARCHAR, schema VARCHAR, id INTEGER, doc VARCHAR, role VARCHAR, logged BIGINT,"
    " lost BIGINT, fields VARCHAR",
    "decoding": "decoding VARCHAR, flags BOOLEAN, value UBIGINT, text VARCHAR",
    "stack": "id BIGINT, frames VARCHAR[], text VARCHAR, kind VARCHAR, files VARCHAR[],"
    " sources VARCHAR[], whole BOOLEAN, path VARCHAR[]",
    "symbol": "address UBIGINT, name VARCHAR",
    "variable": "tgid INTEGER, address UBIGINT, from_ns BIGINT, name VARCHAR",
    "parameter": "schema VARCHAR, name VARCHAR, type VARCHAR, unit VARCHAR, value BIGINT,"
    ' "default" BIGINT, doc VARCHAR',
}
DOCS = {
    "process": "threads and their names: one row per thread and name; pid 0 is idle",
    "ledger": "every way in which data is missing",
    "event": "the event types of this log",
    "decoding": "texts for values; each is also a function, as in task_state(state)",
    "stack": "stacks, by the numbers in fields `as stack`: the functions, the innermost first; "
    "kind is 'kernel' or 'user'; of user stacks also the files and places in the source; path: the "
    "frames of a flame graph, the outermost first",
    "symbol": "the functions of the kernel by address, if some field is `as code`",
    "variable": "what addresses in fields `as data` are, each from a time on; tgid 0 is the kernel",
    "parameter": "the parameters of the schemata, with their values of this recording",
    "thread": "one row per thread id, with its latest name",
    "recorder": "the recorder's own threads",
    "cost": "what logging an event took, with its probe: measured before "
    "the recording; see cost_of(event)",
    "recording": "one row: when the log begins and ends",
    "gap": "where events are missing; cpu NULL: on all, event NULL: of all types",
    "thread_gap": "where events of programs are missing; tid NULL: of threads that are not known",
}


# The recorder's own threads are not in the process table of a log of a workload, but may have run
# next.
THREADS = """
  WITH own AS MATERIALIZED (
    SELECT pid, max(tgid) AS tgid, arg_max(comm, from_ns) AS comm, count(*) AS names
    FROM klogger.process GROUP BY pid
  )
  FROM own
  UNION ALL
  SELECT pid, NULL, '(recorder)', 1 FROM klogger.recorder WHERE pid NOT IN (SELECT pid FROM own)"""
RENAMED = """
  SELECT pid, from_ns, comm,
         lead(from_ns, 1, 9223372036854775807) OVER (PARTITION BY pid ORDER BY from_ns) AS to_ns
  FROM klogger.process
  WHERE pid IN (SELECT pid FROM klogger.thread WHERE names > 1)"""
# The same of rows that are known.
KNOWN_THREADS = """
  SELECT unnest($1::INTEGER[]) AS pid, unnest($2::INTEGER[]) AS tgid, unnest($3::VARCHAR[]) AS comm,
         unnest($4::BIGINT[]) AS names"""
KNOWN_RENAMED = """
  SELECT unnest($1::INTEGER[]) AS pid, unnest($2::BIGINT[]) AS from_ns,
         unnest($3::VARCHAR[]) AS comm, unnest($4::BIGINT[]) AS to_ns"""
NAMES = """
CREATE MACRO klogger.comm(p, t) AS coalesce(
  (SELECT arg_max("klogger comm", "klogger from")
   FROM (SELECT pid AS "klogger pid", comm AS "klogger comm", from_ns AS "klogger from"
         FROM klogger.process)
     AS "klogger x"
   WHERE "klogger pid" = p AND "klogger from" <= t),
  (SELECT any_value("klogger comm")
   FROM (SELECT pid AS "klogger pid", comm AS "klogger comm", names AS "klogger n"
         FROM klogger.thread) AS "klogger x"
   WHERE "klogger pid" = p AND "klogger n" = 1), p::VARCHAR);
-- Small pictures of how long things take, one bar for each doubling:
-- octaves(histogram(octave(ns))).
CREATE MACRO klogger.octave(ns) AS
  least(greatest(floor(log2(greatest(ns, 1) / 1000)), 0), 20)::INTEGER;
CREATE MACRO klogger.octaves(h) AS list_transform(range(21),
  lambda "klogger k": coalesce(h["klogger k"::INTEGER], 0));
-- The distribution of the ns of each series of a table or view: so many points for each doubling,
-- each exactly on the curve, and one where it begins. The least place of a series is kept.
CREATE MACRO klogger.curve_of(source, points) AS TABLE
  WITH point AS (
    SELECT series, min(place) AS place, max(ns) AS ns, min(ns) AS shortest, count(*) AS times
    FROM query_table(source) WHERE ns IS NOT NULL
    GROUP BY series, floor(points * log2(greatest(ns, 1)))
  ), curve AS (
    SELECT series, min(place) OVER whole AS place, ns, min(shortest) OVER whole AS shortest,
           sum(times) OVER (whole ORDER BY ns) / sum(times) OVER whole AS part
    FROM point WINDOW whole AS (PARTITION BY series)
  )
  SELECT series, place, ns, part FROM curve
  UNION SELECT series, place, shortest, 0 FROM curve;
CREATE MACRO klogger.label(name, p) AS coalesce(nullif(name, ''), 'thread ' || p);
"""
# The rows of a table or view, and the column `program`: the name that the thread `pid` had at
# `time`. The source is read once, and names are found by hashing: a thread with several names is
# looked for among these.
WITH_PROGRAM = """
CREATE OR REPLACE MACRO klogger.with_program(source) AS TABLE
  SELECT s.*, klogger.label(CASE WHEN t.names > 1 THEN r.comm ELSE t.comm END, s.pid) AS program
  FROM query_table(source) AS s LEFT JOIN klogger.thread AS t ON s.pid = t.pid
  LEFT JOIN klogger.renamed AS r ON s.pid = r.pid AND s.time >= r.from_ns AND s.time < r.to_ns"""
# If one has more names than this, that takes longer than a join by time.
NAMES_MAX = 64
WITH_PROGRAM_BY_TIME = """
CREATE OR REPLACE MACRO klogger.with_program(source) AS TABLE
  SELECT s.*, klogger.label(t.comm, s.pid) AS program
  FROM query_table(source) AS s LEFT JOIN klogger.thread AS t ON s.pid = t.pid
  WHERE t.names IS NULL OR t.names = 1
  UNION ALL
  SELECT s.*, klogger.label(r.comm, s.pid) AS program
  FROM (SELECT * FROM query_table(source) SEMI JOIN klogger.renamed USING (pid)) AS s
  ASOF LEFT JOIN klogger.renamed AS r ON s.pid = r.pid AND s.time >= r.from_ns"""

# To each row of a table or view with columns program, stack and user_stack its frames in a flame
# graph: `path`, the program first, then those of the program's code, then those of the kernel.
WITH_PATH = """
CREATE OR REPLACE MACRO klogger.with_path(source) AS TABLE
  SELECT s.*, list_concat([replace(coalesce(s.program, '(no name)'), ';', ':')],
    CASE WHEN u.path IS NULL AND k.path IS NULL THEN ['[no stack]']
      ELSE list_concat(coalesce(u.path, []), coalesce(k.path, [])) END) AS path
  FROM query_table(source) AS s LEFT JOIN klogger.stack AS u ON u.id = nullif(s.user_stack, 0)
  LEFT JOIN klogger.stack AS k ON k.id = nullif(s.stack, 0)"""
# To a table or view with columns path and total, a flame graph: `stack` and its `total`. So many
# stacks are told apart, those with most of it.
FLAME_STACKS = 8000
FLAME = f"""
CREATE OR REPLACE MACRO klogger.flame(source) AS TABLE
  SELECT stack, sum(total)::BIGINT AS total FROM (
    SELECT s.total, CASE WHEN row_number() OVER (ORDER BY s.total DESC, s.path) < {FLAME_STACKS}
      THEN array_to_string(s.path, ';') ELSE '(others)' END AS stack
    FROM query_table(source) AS s
  ) GROUP BY stack"""


def create(made: Made, folder: Folder, preamble: Mapping[str, Any]) -> None:
    """Tables of the exporter, and the functions that they define."""
    made.define("schema", "CREATE SCHEMA IF NOT EXISTS klogger")
    for name, columns in TABLES.items():
        if not view(made, f"klogger.{name}", folder.query(name), folder.form(name)):
            made.define(f"klogger.{name}", f"CREATE OR REPLACE TABLE klogger.{name} ({columns})")
    made.define("durations", durations.sql())
    tids = numbers(preamble, "recorder", "tids")
    made.table(
        "klogger.recorder", "SELECT unnest($1::INTEGER[]) AS pid", [tids], same=True,
    )  # fmt: skip
    kept = folder.opening()
    fill_threads(made, kept, tids)
    made.define("names", NAMES)
    few = names_of(made, kept) <= NAMES_MAX
    made.define("with_path", WITH_PATH)
    made.define("flame", FLAME)
    made.define("waiting", waiting.SQL)
    made.define("with_program", WITH_PROGRAM if few else WITH_PROGRAM_BY_TIME)
    made.define("histograms", histograms.SQL)
    costs.create(made, preamble)
    decodings.create(made, kept.decodings if kept is not None else "")
    made.define("klogger.disk", devices.disk_sql(devices.disk_names(preamble)))


def fill_threads(made: Made, kept: Opening | None, recorder: list[int]) -> None:
    if kept is None or kept.threads is None or kept.renamed is None:
        made.table("klogger.thread", THREADS)
        made.table("klogger.renamed", RENAMED)
        return
    named = {row[0] for row in kept.threads}
    own = [(tid, None, "(recorder)", 1) for tid in dict.fromkeys(recorder) if tid not in named]
    threads = columns_of([*kept.threads, *own])
    made.table("klogger.thread", KNOWN_THREADS, threads, same=True)
    made.table("klogger.renamed", KNOWN_RENAMED, columns_of(kept.renamed), same=True)


def columns_of(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Of four columns."""
    return [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]


def names_of(made: Made, kept: Opening | None) -> int:
    """How many names the thread has that has most of them."""
    if kept is not None:
        return kept.names
    ((most,),) = made.connection.execute("SELECT max(names) FROM klogger.thread").fetchall()
    return most or 0


def numbers(preamble: Mapping[str, Any], section: str, name: str) -> list[int]:
    """A list of ids in the preamble, which may hold anything."""
    found = preamble.get(section)
    ids = found.get(name) if isinstance(found, dict) else None
    return (
        [i for i in ids[:4096] if isinstance(i, int) and 0 <= i < 2**31]
        if isinstance(ids, list)
        else []
    )


def view(made: Made, name: str, query: str | None, form: object) -> bool:
    """Makes a view of a query; false if there is none. `form`: the columns of its file."""
    if query is None:
        return False
    made.view(name, query, form)
    return True


def empty_event(name: str, fields: Iterable[str]) -> str:
    columns = "".join(f", {identifier(f)} BIGINT" for f in fields)
    return (
        f"CREATE OR REPLACE TABLE main.{identifier(name)}"
        f" (time BIGINT, cpu SMALLINT, serial BIGINT{columns})"
    )
