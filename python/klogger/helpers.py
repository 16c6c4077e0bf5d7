# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The tables and functions that every log has, besides one table per event type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb

from klogger import costs, prelude

# The columns that the exporter promises, for a log in which such a table is missing.
TABLES = {
    "process": "pid INTEGER, tgid INTEGER, parent INTEGER, comm VARCHAR, command VARCHAR, from_ns BIGINT, to_ns BIGINT,"
    " recorder BOOLEAN",
    "ledger": "key VARCHAR, severity VARCHAR, source VARCHAR, event VARCHAR, cpu SMALLINT, tid INTEGER,"
    " tgid INTEGER, count BIGINT, from_ns BIGINT, to_ns BIGINT, text VARCHAR",
    "event": "name VARCHAR, schema VARCHAR, id INTEGER, doc VARCHAR, logged BIGINT, lost BIGINT, fields VARCHAR",
    "decoding": "decoding VARCHAR, flags BOOLEAN, value UBIGINT, text VARCHAR",
    "stack": "id BIGINT, frames VARCHAR[], text VARCHAR",
}
# What LOST records place.
PLACED = "('ring_full', 'in_flight')"
# Losses that no LOST record places: no event of that CPU came after them.
UNPLACED = f"""
SELECT NULL::SMALLINT AS cpu, NULL::VARCHAR AS event, r.to_ns AS from_ns, r.to_ns, n.lost - n.placed AS count,
  'ring_full' AS key
FROM klogger.recording AS r, (
  SELECT coalesce((SELECT sum(count) FROM klogger.ledger WHERE key IN {PLACED} AND tid IS NULL), 0)::BIGINT AS lost,
         coalesce((SELECT sum(try_cast(count AS BIGINT)) FROM main.LOST WHERE cpu IS NOT NULL), 0)::BIGINT AS placed
) AS n
WHERE n.lost > n.placed"""
# What the ledger says of threads of programs. The kernel's events are not touched by it.
OF_PROGRAMS = "(tid IS NOT NULL OR starts_with(key, 'user_'))"
THREAD_GAP = f"""
SELECT tid, tgid, event, from_ns, coalesce(to_ns, (SELECT to_ns FROM klogger.recording)) AS to_ns, count, key
FROM klogger.ledger
WHERE from_ns IS NOT NULL AND key <> 'ring_full' AND severity IN ('loss', 'error') AND {OF_PROGRAMS}"""
THREAD_UNPLACED = """
SELECT n.tid, n.tgid, NULL::VARCHAR AS event, r.to_ns AS from_ns, r.to_ns, n.lost - coalesce(p.placed, 0) AS count,
  'ring_full' AS key
FROM klogger.recording AS r, (
  SELECT tid, tgid, sum(count)::BIGINT AS lost FROM klogger.ledger WHERE key = 'ring_full' AND tid IS NOT NULL
  GROUP BY tid, tgid
) AS n LEFT JOIN (
  SELECT tid, tgid, sum(try_cast(count AS BIGINT))::BIGINT AS placed FROM main.LOST WHERE tid IS NOT NULL
  GROUP BY tid, tgid
) AS p ON n.tid = p.tid AND n.tgid = p.tgid
WHERE n.lost > coalesce(p.placed, 0)"""
DOCS = {
    "process": "threads and their names: one row per thread and name; pid 0 is idle",
    "ledger": "every way in which data is missing",
    "event": "the event types of this log",
    "decoding": "texts for values; each is also a function, as in task_state(state)",
    "stack": "kernel stacks, by the numbers in fields `as stack`: the functions, the innermost first",
    "thread": "one row per thread id, with its latest name",
    "recorder": "the recorder's own threads",
    "cost": "what logging an event took, with its probe: measured before the recording; see cost_of(event)",
    "recording": "one row: when the log begins and ends",
    "gap": "where events are missing; cpu NULL: on all, event NULL: of all types",
    "thread_gap": "where events of programs are missing; tid NULL: of threads that are not known",
}


def create(connection: duckdb.DuckDBPyConnection, root: Path, preamble: Mapping[str, Any]) -> None:
    """Tables of the exporter, and the functions that they define."""
    connection.execute("CREATE SCHEMA klogger")
    for name, columns in TABLES.items():
        if not view(connection, f"klogger.{name}", root / f"{name}.parquet"):
            connection.execute(f"CREATE TABLE klogger.{name} ({columns})")
    connection.execute(prelude.NAMES)
    connection.execute(
        "CREATE TABLE klogger.recorder AS SELECT unnest($1::INTEGER[]) AS pid",
        [numbers(preamble, "recorder", "tids")],
    )
    connection.execute(prelude.RECORDER)
    costs.create(connection, preamble)
    for name in decodings(connection):
        connection.execute(name)


def numbers(preamble: Mapping[str, Any], section: str, name: str) -> list[int]:
    """A list of ids in the preamble, which may hold anything."""
    found = preamble.get(section)
    ids = found.get(name) if isinstance(found, dict) else None
    return (
        [i for i in ids[:4096] if isinstance(i, int) and 0 <= i < 2**31]
        if isinstance(ids, list)
        else []
    )


def view(connection: duckdb.DuckDBPyConnection, name: str, file: Path) -> bool:
    """Makes a view of a Parquet file; false if there is no such file."""
    if not file.is_file():
        return False
    path = str(file).replace("'", "''")
    connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
    return True


def empty_event(name: str, fields: Iterable[str]) -> str:
    columns = "".join(f", {identifier(f)} BIGINT" for f in fields)
    return (
        f"CREATE TABLE main.{identifier(name)} (time BIGINT, cpu SMALLINT, serial BIGINT{columns})"
    )


def decodings(connection: duckdb.DuckDBPyConnection) -> Iterable[str]:
    """One function per decoding: from a value to its text."""
    rows = connection.execute(
        "SELECT decoding, any_value(flags), list(value ORDER BY value), list(text ORDER BY value) FROM klogger.decoding"
        " GROUP BY decoding ORDER BY decoding"
    ).fetchall()
    for name, flags, values, texts in rows:
        body = flags_body(values, texts) if flags else enum_body(values, texts)
        yield f"CREATE OR REPLACE MACRO klogger.{identifier(name)}(x) AS {body}"


def enum_body(values: list[int], texts: list[str]) -> str:
    cases = " ".join(f"WHEN {v} THEN {literal(t)}" for v, t in zip(values, texts, strict=True))
    # The table holds 64 bits as a signed number; a field may hold them as an unsigned one.
    cases += "".join(
        f" WHEN {v + 2**64} THEN {literal(t)}" for v, t in zip(values, texts, strict=True) if v < 0
    )
    return f"CASE x {cases} ELSE x::VARCHAR END"


def flags_body(values: list[int], texts: list[str]) -> str:
    """Texts of the bits that are set, joined by `|`; bits without a text as one number in hex."""
    known = 0
    zero = "'0'"
    parts = []
    for signed, text in zip(values, texts, strict=True):
        value = signed % 2**64
        if value == 0:
            zero = literal(text)
            continue
        known |= value
        parts.append(
            f"CASE WHEN x::UBIGINT & {value}::UBIGINT = {value}::UBIGINT THEN {literal(text)} END"
        )
    rest = f"(x::UBIGINT & {~known & (2**64 - 1)}::UBIGINT)"
    parts.append(f"CASE WHEN {rest} <> 0 THEN printf('0x%x', {rest}) END")
    return f"CASE WHEN x = 0 THEN {zero} ELSE concat_ws('|', {', '.join(parts)}) END"


DUMPS = ("DUMP_BEGIN", "DUMP_FINISH")
# What the ledger says of events whose clock was behind.
EARLY = """
SELECT 'before_start' AS key, 'notice' AS severity, 'reader' AS source, '{event}' AS event, NULL::SMALLINT AS cpu,
  NULL::INTEGER AS tid, NULL::INTEGER AS tgid, {count}::BIGINT AS count, 0::BIGINT AS from_ns, 0::BIGINT AS to_ns,
  'times before the log''s start; answers take them to be at it' AS text"""


def hold_to_start(connection: duckdb.DuckDBPyConnection, events: Iterable[str]) -> None:
    """No event is older than the log: one whose clock was behind is moved to its start, so that no
    time is negative.

    To look for them costs next to nothing: Parquet files know the least time of each of their
    parts.
    """
    counts = [
        f"SELECT {literal(e)}, count(*) FROM main.{identifier(e)} WHERE time < 0 HAVING count(*) > 0"
        for e in events
    ]
    for event, count in connection.execute(" UNION ALL ".join(counts)).fetchall() if counts else []:
        redefine(connection, "main", event, "* REPLACE (greatest(time, 0) AS time)", "")
        redefine(
            connection,
            "klogger",
            "ledger",
            "*",
            f" UNION ALL BY NAME {EARLY.format(event=event, count=count)}",
        )


def redefine(
    connection: duckdb.DuckDBPyConnection, schema: str, name: str, columns: str, more: str
) -> None:
    """A view anew: with other columns than all of its file, and more rows behind it. What is a
    table is empty.
    """
    found = connection.execute(
        "SELECT sql FROM duckdb_views() WHERE schema_name = $1 AND view_name = $2", [schema, name]
    ).fetchone()
    if found is not None:
        query = found[0].partition(" AS ")[2].rstrip(";").replace("*", columns, 1)
        connection.execute(f"CREATE OR REPLACE VIEW {schema}.{identifier(name)} AS {query}{more}")


def create_derived(
    connection: duckdb.DuckDBPyConnection, events: Mapping[str, Any], preamble: Mapping[str, Any]
) -> None:
    """`recording` and `gap`, which stand on event tables."""
    hold_to_start(connection, [e.name for e in events.values()])
    finish = (
        "SELECT max(time) FROM main.KLOGGER_FINISH" if "KLOGGER_FINISH" in events else "SELECT NULL"
    )
    # Up to the last event, which may be later than the word of the recorder that it has finished.
    # The recorder still empties the rings when the recording has ended.
    last = ["SELECT 0 AS t", f"SELECT max(to_ns) FROM klogger.ledger WHERE ({finish}) IS NULL"]
    last += [
        f"SELECT max(time) FROM main.{identifier(e.name)}"
        for e in events.values()
        if e.name not in DUMPS
    ]
    recorder = preamble.get("recorder")
    overwrite = bool(recorder.get("overwrite")) if isinstance(recorder, dict) else False
    connection.execute(
        "CREATE TABLE klogger.recording AS SELECT 0::BIGINT AS from_ns, max(t)::BIGINT AS to_ns,"
        f" ({finish}) IS NOT NULL AS finished, {overwrite} AS overwrite, $1::INTEGER[] AS cpus"
        f" FROM ({' UNION ALL '.join(last)})",
        [numbers(preamble, "host", "cpus")],
    )
    gaps = [
        "SELECT cpu, event, from_ns, coalesce(to_ns, (SELECT to_ns FROM klogger.recording)) AS to_ns, count, key"
        f" FROM klogger.ledger WHERE from_ns IS NOT NULL AND key NOT IN {PLACED} AND NOT {OF_PROGRAMS}"
        " AND (severity IN ('loss', 'error') OR key IN ('overwritten', 'events_disabled', 'rate_limited'))"
    ]
    thread_gaps = [THREAD_GAP]
    if "LOST" in events:
        clock = preamble.get("clock")
        start = clock.get("start_ns", 0) if isinstance(clock, dict) else 0
        start = start if isinstance(start, int) else 0
        gaps += [lost(start, "cpu", "cpu IS NOT NULL"), UNPLACED]
        if has_threads(connection):
            thread_gaps += [lost(start, "tid, tgid", "tid IS NOT NULL"), THREAD_UNPLACED]
    connection.execute(f"CREATE TABLE klogger.gap AS {' UNION ALL BY NAME '.join(gaps)}")
    connection.execute(
        f"CREATE TABLE klogger.thread_gap AS {' UNION ALL BY NAME '.join(thread_gaps)}"
    )
    connection.execute(prelude.PAIRS)


def has_threads(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether programs may have logged events: then LOST says which thread."""
    columns = connection.execute("SELECT column_name FROM (DESCRIBE main.LOST)").fetchall()
    return ("tid",) in columns


def lost(start_ns: int, place: str, where: str) -> str:
    """LOST records as gaps, with the columns `place`.

    `since` is a reading of the clock, not a time since the log's start as `time` is.
    """
    since = f"coalesce(try_cast(since AS BIGINT), 0) - {start_ns}"
    return (
        f"SELECT {place}, NULL::VARCHAR AS event,"
        f" CASE WHEN {since} BETWEEN 0 AND time THEN {since} ELSE time END AS from_ns, time AS to_ns,"
        f" try_cast(count AS BIGINT) AS count, 'ring_full' AS key FROM main.LOST WHERE {where}"
    )


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
