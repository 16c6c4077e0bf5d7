# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Makes small logs without the recorder: the directory of Parquet files that `klogger export`
writes. For expectations, and for the check of an analysis without a log.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from klogger import program

TYPES = {
    "bool": "BOOLEAN", "i8": "TINYINT", "u8": "UTINYINT", "i16": "SMALLINT", "u16": "USMALLINT",
    "i32": "INTEGER", "u32": "UINTEGER", "i64": "BIGINT", "u64": "UBIGINT",
}  # fmt: skip


# What an entry of a ledger may leave out.
ENTRY = ("event", "cpu", "tid", "tgid", "from_ns", "to_ns")


@dataclass
class Event:
    name: str
    schema: str
    fields: list[dict[str, Any]] = field(default_factory=list)
    doc: str = ""
    role: str | None = None


@functools.cache
def shown(schema: str) -> dict[str, Any]:
    """What klogger makes of a schema, or of its own: a name, or a file."""
    found: dict[str, Any] = program.answer("show", schema)
    return found


def name_of(schema: str) -> str:
    return Path(schema).stem


def events_of(*schemata: str) -> list[Event]:
    """The events of bundled schemata, and the built-in ones. Of two with the same name,
    the first.
    """
    events: dict[str, Event] = {}
    for name in ["klogger", *schemata]:
        for one in shown(name)["events"]:
            fields = [field_of(f) for f in one["fields"]]
            event = Event(one["name"], name_of(name), fields, one["doc"] or "", one["role"])
            events.setdefault(event.name, event)
    return list(events.values())


def field_of(layout: dict[str, Any]) -> dict[str, Any]:
    """A field as an exported log describes it."""
    decode = layout.get("decode")
    return {
        "name": layout["name"],
        "type": layout["type"],
        "unit": layout.get("unit"),
        "decode": decode,
        "decoding": decode["table"] if isinstance(decode, dict) else decode,
        "doc": layout.get("doc"),
        "shape": layout["shape"],
        "scalar": layout["scalar"],
    }


def sql_type(field: dict[str, Any]) -> str:
    shape = field["shape"]
    if shape == "tail" or (isinstance(shape, dict) and shape.keys() & {"text", "long"}):
        return "VARCHAR"
    return TYPES[field["scalar"]] + ("" if shape == "one" else "[]")


def decodings_of(schema: str) -> list[tuple[str, bool, int, str]]:
    """Names of the kernel's own are those of a recording: here they have one, so that there is a
    function.
    """
    return [
        (one["name"], one["flags"], value, text)
        for one in shown(schema)["decodings"]
        for value, text in one["values"] or [(0, "0")]
    ]


def create_tables(con: duckdb.DuckDBPyConnection, events: list[Event]) -> None:
    for event in events:
        columns = "".join(f', "{f["name"]}" {sql_type(f)}' for f in event.fields)
        # The function of an address in code, as the exporter gives it.
        columns += "".join(
            f", {f['name']}_symbol VARCHAR" for f in event.fields if f["decoding"] == "code"
        )
        con.execute(
            f"CREATE TABLE {event.name} (time BIGINT, cpu SMALLINT, serial BIGINT{columns})"
        )


def insert(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Rows of all columns of a table, in one statement: one for each row takes much longer."""
    if not rows:
        return
    described = con.execute(
        "SELECT data_type FROM duckdb_columns() WHERE database_name = current_database()"
        " AND schema_name = current_schema() AND lower(table_name) = lower(?)"
        " ORDER BY column_index",
        [table],
    ).fetchall()
    columns = [list(column) for column in zip(*rows, strict=True)]
    selected = [f"unnest(${n}::{kind}[])" for n, (kind,) in enumerate(described, 1)]
    con.execute(f"INSERT INTO {table} SELECT {', '.join(selected)}", columns)


def name_places(con: duckdb.DuckDBPyConnection, names: list[str]) -> None:
    """Of fields `as place`, for the log that is written next: 1 and so on."""
    con.execute("CREATE TABLE IF NOT EXISTS klogger_place (number UBIGINT, name VARCHAR)")
    insert(con, "klogger_place", [(0, ""), *enumerate(names, 1)])


def write_log(
    con: duckdb.DuckDBPyConnection,
    out: Path,
    *,
    schema: str | tuple[str, ...] = "scheduler",
    processes: list[tuple[int, str, int, int | None]],
    ledger: list[dict[str, Any]] | None = None,
    end: int | None = 0,
    cpus: int = 2,
    meta: dict[str, Any] | None = None,
    without: tuple[str, ...] = (),
) -> Path:
    """Writes the event tables of `con` as `klogger export` would. `end`: time of KLOGGER_FINISH;
    None: killed.

    `schema`: what was recorded, the first one above all; `processes`: (pid, comm, from_ns, to_ns or
    None); `without`: events that the log does not have.
    """
    out.mkdir(parents=True, exist_ok=True)
    schemata = (schema,) if isinstance(schema, str) else schema
    events = [e for e in events_of(*schemata) if e.name not in without]
    con.execute(
        "INSERT INTO KLOGGER_START BY NAME SELECT 0 AS time, -1 AS cpu, 0 AS serial, 65536 AS"
        " buffer_size"
    )
    if end is not None:
        con.execute(
            f"INSERT INTO KLOGGER_FINISH BY NAME SELECT {end} AS time, -1 AS cpu, 1 AS serial"
        )
    for e in events:
        con.execute(f"COPY {e.name} TO '{out}/{e.name}.parquet'")
    write_catalogue(con, out, events, schemata, ledger or [])
    con.execute(
        "CREATE TABLE klogger_process (pid INTEGER, tgid INTEGER, parent INTEGER, comm VARCHAR,"
        " command VARCHAR, from_ns BIGINT, to_ns BIGINT, recorder BOOLEAN)"
    )
    rows = [
        (pid, pid, 1, comm, comm, start, stop, False)
        for pid, comm, start, stop in [(0, "idle", 0, None), *processes]
    ]
    insert(con, "klogger_process", rows)
    con.execute(f"UPDATE klogger_process SET to_ns = {end or 0} WHERE to_ns IS NULL")
    con.execute(f"COPY klogger_process TO '{out}/process.parquet'")
    preamble = {
        "klogger": "0.1.0", "engine": "bpf",
        "host": {"name": "example", "kernel": "6.1.0", "cpus": list(range(cpus))},
        "clock": {"name": "monotonic", "start_ns": 5_000_000,
                  "start_realtime_ns": 1_700_000_000_000_000_000},
        "command_line": ["klogger"], "workload": ["workload"], "scope": "processes",
        "recorder": {"pid": 1, "tids": [1], "buffer_size": 65536, "lowwater": 10,
                     "overwrite": False},
        "schemas": [{"name": name_of(s), "doc": "", "text": "",
                     "file": s if "/" in s else f"{s}.klogger"} for s in schemata],
        "probes": [],
    }  # fmt: skip
    preamble.update(meta or {})
    (out / "meta.json").write_text(json.dumps({"preamble": preamble, "damage": []}))
    return out


def empty_log(out: Path, *schemata: str) -> Path:
    """All tables, no rows but those of the recorder."""
    con = duckdb.connect()
    create_tables(con, events_of(*schemata))
    return write_log(con, out, schema=schemata, processes=[], end=1000, cpus=1)


def counts_of(con: duckdb.DuckDBPyConnection, events: list[Event]) -> dict[str, tuple[int, int]]:
    """By event: how many there are, and how many before the start of the log."""
    counted = " UNION ALL ".join(
        f"SELECT '{e.name}', count(*), count(*) FILTER (WHERE time < 0) FROM {e.name}"
        for e in events
    )
    return {name: (logged, early) for name, logged, early in con.execute(counted).fetchall()}


def write_catalogue(
    con: duckdb.DuckDBPyConnection,
    out: Path,
    events: list[Event],
    schemata: tuple[str, ...],
    ledger: list[dict[str, Any]],
) -> None:
    con.execute(
        "CREATE TABLE klogger_event (name VARCHAR, schema VARCHAR, id INTEGER, doc VARCHAR, role"
        " VARCHAR, logged BIGINT, lost BIGINT, fields VARCHAR)"
    )
    counts = counts_of(con, events)
    rows: list[list[Any]] = []
    for number, e in enumerate(events, 1):
        logged, early = counts[e.name]
        lost = sum(entry["count"] for entry in ledger if entry.get("event") == e.name)
        if early:
            ledger = [*ledger, {"key": "before_start", "severity": "notice", "event": e.name}]
            ledger[-1] |= {"count": early, "from_ns": 0, "to_ns": 0}
        rows.append([e.name, e.schema, number, e.doc, e.role, logged, lost, json.dumps(e.fields)])
    insert(con, "klogger_event", rows)
    con.execute(f"COPY klogger_event TO '{out}/event.parquet'")
    con.execute(
        "CREATE TABLE klogger_decoding (decoding VARCHAR, flags BOOLEAN, value UBIGINT, text"
        " VARCHAR)"
    )
    texts = dict.fromkeys(text for schema in schemata for text in decodings_of(schema))
    insert(con, "klogger_decoding", list(texts))
    # The recorder numbers the places; a log whose events have some has their table.
    if any(f["decoding"] == "place" for e in events for f in e.fields):
        name_places(con, [])
        numbered = "SELECT DISTINCT 'place', false, * FROM klogger_place"
        con.execute(f"INSERT INTO klogger_decoding {numbered}")
    con.execute(f"COPY klogger_decoding TO '{out}/decoding.parquet'")
    con.execute(
        "CREATE TABLE klogger_ledger (key VARCHAR, severity VARCHAR, source VARCHAR, event VARCHAR,"
        " cpu SMALLINT, tid INTEGER, tgid INTEGER, count BIGINT, from_ns BIGINT, to_ns BIGINT, text"
        " VARCHAR)"
    )
    for entry in ledger:
        con.execute(
            "INSERT INTO klogger_ledger BY NAME SELECT $key AS key, $severity AS severity,"
            " 'recording' AS source, $event AS event, $cpu AS cpu, $tid AS tid, $tgid AS tgid,"
            " $count AS count, $from_ns AS from_ns, $to_ns AS to_ns, $text AS text",
            {**dict.fromkeys(ENTRY), "severity": "loss", "text": "", **entry},
        )
    con.execute(f"COPY klogger_ledger TO '{out}/ledger.parquet'")
