# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From a question, as a claim has it (`by`), to the answer: rows of a table, or single items.

    {"kind": "analysis", "analysis": NAME, "part": "finding" | "table"}
    {"kind": "sql", "query": QUERY}
    {"kind": "why", "part": "bins" | "followed" | "because" | "threads", CHOICE...}
    {"kind": "events", "time_ns": TIME, "before": N, "after": N}
    {"kind": "ledger"}

Each has `row` beside it: the item, or the first of the rows, that the claim is of.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from klogger import executor, findings, spans
from klogger import log as logs
from klogger.claims import evidence, stated
from klogger.executor import Result
from klogger.failure import Failure
from klogger.ledger import read as read_ledger
from klogger.log import IN_ORDER, Log
from klogger.sqltext import identifier, literal
from klogger.statements import check_query, executed, words
from klogger.units import plain, printable
from klogger.why import answer as reasons
from klogger.why import events as reading
from klogger.why import operations
from klogger.why.answer import Line
from klogger.why.choice import Choice
from klogger.why.operations import Slowest

# Nobody reads more rows by pages of 4 kB.
ROWS_MAX = 5000
# Of the values of a query; and so many of its rows are whole at a time. ROWS_MAX is a multiple.
BYTES_MAX, AT_ONCE = 64 << 20, 50
AROUND_MAX = 1000
QUERY_MAX = 1500
EVENT_COLUMNS = ("time", "cpu", "serial", "event", "what")
# Whose time, of `why`.
CHOICE = ("threads", "programs", "processes", "from_ns", "to_ns", "operation", "slowest")
# What a question may have, beside its kind, by its kind.
KEYS: dict[str, tuple[str, ...]] = {
    "analysis": ("analysis", "part"),
    "sql": ("query",),
    "why": ("part", *CHOICE),
    "events": ("time_ns", "before", "after"),
    "ledger": (),
}


@dataclass
class Table:
    """`total`: how many rows the answer has; None: so many that nobody has counted them. `events`:
    that rows rest on.
    """

    columns: list[str]
    rows: list[Any]
    total: int | None
    events: Callable[[int, int], dict[str, Any]]

    def value(self, row: int, count: int) -> dict[str, Any]:
        rows = self.rows[row : row + count]
        return {"columns": self.columns, "rows": rows, "total": self.total}


@dataclass
class Items:
    values: list[Any]
    events: Callable[[int], dict[str, Any]]


Found = Table | Items


def opened(path: str | os.PathLike[str]) -> Log:
    """A log for queries that may come from anybody. One thread: sums of doubles, and rows without
    an order, are the same each time.
    """
    log = logs.open(path, locked=True, settings=True)
    try:
        log.connection.execute("SET threads = 1")
        log.connection.execute(f"SET {IN_ORDER} = true")
        logs.lock_settings(log.connection)
    except BaseException:
        log.close()
        raise
    return log


def find(log: Log, by: Mapping[str, Any]) -> Found:
    """The whole answer. Raises Failure if there is none: of a question that is none as well."""
    check_keys(by)
    match by.get("kind"):
        case "analysis":
            result = analysed(log, text(by, "analysis"))
            return of_result(log, result, text(by, "part"))
        case "sql":
            return of_query(log, text(by, "query"))
        case "why":
            return of_answer(log, reasons.of_log(log, chosen(log, by)), text(by, "part"))
        case "events":
            return around(log, *(number(by, key) for key in ("time_ns", "before", "after")))
        case "ledger":
            return of_ledger(log)
    raise unknown()


def unknown() -> Failure:
    return Failure("the claim does not say by what it was found", help="by.kind is not known")


def check_keys(by: Mapping[str, Any]) -> None:
    """Whatever else stands in a question has no part in its answer: it would pass as true."""
    kind = by.get("kind")
    if not isinstance(kind, str) or kind not in KEYS:
        raise unknown()
    for key in by:
        if key not in ("kind", *KEYS[kind]):
            raise Failure(
                f"a question of the kind '{kind}' has no '{printable(stated.cut(key, 40))}'"
            )


def text(by: Mapping[str, Any], key: str) -> str:
    value = by.get(key)
    if not isinstance(value, str):
        raise Failure(f"'{key}' is not a text")
    return value


def number(by: Mapping[str, Any], key: str) -> int:
    value = by.get(key)
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise Failure(f"'{key}' is not a number")
    return value


# --- analyses ---


def analysed(log: Log, name: str) -> Result:
    return report(log, [name])[0]


def report(log: Log, names: Sequence[str] = ()) -> list[Result]:
    return list(executor.run_all(log, executor.choose(log, names)))


def of_result(log: Log, result: Result, part: str) -> Found:
    one = result.analysis
    if result.failure is not None:
        raise result.failure

    def events(*_: int) -> dict[str, Any]:
        return evidence.of_events(log, one.events or None)

    if part == "finding":
        said = [{"text": stated.stated(f.text), "weight": f.weight} for f in findings.of(result)]
        return Items(said, events)
    if part == "table":
        rows = [stated.row(row) for row in result.table.rows]
        names = [stated.stated(name) for name in result.table.names]
        return Table(names, rows, len(rows) + result.table.left_out, events)
    raise Failure("an analysis has the parts 'finding' and 'table'")


# --- SQL ---


def of_query(log: Log, query: str) -> Table:
    if stated.size(query) > QUERY_MAX:
        raise Failure(f"the query has more than {QUERY_MAX} bytes", help="ask for less at a time")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise Failure("the query is not UTF-8 text") from None
    spans.fill_for(log, query)
    cursor = log.cursor()
    try:
        check_query(cursor, query, "query")
        with executed(cursor, query, "query") as rows:
            names = [column[0] for column in rows.description or []]
            place = places_in(log, query, names)
            found: list[Any] = []
            places: list[Any] = []
            left = BYTES_MAX
            while len(found) < ROWS_MAX and left > 0 and (some := rows.fetchmany(AT_ONCE)):
                for one in some:
                    values = [plain(value, digits=True) for value in one]
                    left -= bytes_of(values)
                    found.append(stated.row(values))
                    places += [place(values)] if place else []
            more = bool(rows.fetchmany(1))
    finally:
        cursor.close()

    def events(row: int, count: int) -> dict[str, Any]:
        of_these = places[row : row + count]
        # A query can call anything time, cpu and serial.
        if of_these and all(evidence.is_there(log, one) for one in of_these):
            return evidence.of_rows(of_these)
        return evidence.of_events(log, named_in(log, query))

    columns = [stated.stated(name) for name in names]
    total = None if more else len(found)
    return Table(columns, found, total, events)


def bytes_of(value: Any) -> int:
    """About what a value takes while it is whole."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, Mapping):
        return sum(len(str(key)) + bytes_of(one) for key, one in value.items())
    return sum(map(bytes_of, value)) if isinstance(value, (list, tuple)) else 8


def named_in(log: Log, query: str) -> list[str] | None:
    """The events that a query names; None: it reads tables that are made of all of them."""
    tokens = {token.strip('"') for token in words(query)}
    found = [event.name for name, event in log.events.items() if name in tokens]
    return found if found or "FROM" not in tokens else None


def places_in(
    log: Log, query: str, names: Sequence[str]
) -> Callable[[Sequence[Any]], list[Any]] | None:
    """From a row to the event that it is; None: rows are not single events."""
    at = {name: number for number, name in enumerate(names)}
    if not {"time", "cpu", "serial"} <= at.keys():
        return None
    events = named_in(log, query)
    if "event" in at:
        return lambda row: [row[at[key]] for key in evidence.PLACE]
    if events is None or len(events) != 1:
        return None
    (name,) = events
    return lambda row: [name, row[at["time"]], row[at["cpu"]], row[at["serial"]]]


# --- where the time went ---


def chosen(log: Log, by: Mapping[str, Any]) -> Choice:
    threads, processes = (listed(by, key, int) for key in ("threads", "processes"))
    since, until, slowest = (
        number(by, key) if by.get(key) is not None else None
        for key in ("from_ns", "to_ns", "slowest")
    )
    if slowest is not None and slowest < 1:
        raise Failure("'slowest' is a number of operations, 1 or more")
    operation = text(by, "operation") if by.get("operation") is not None else None
    return Choice(
        threads, listed(by, "programs", str), processes, since, until,
        operations.find(log, operation) if operation is not None else None,
        Slowest(count=slowest) if slowest is not None else None,
    )  # fmt: skip


def listed(by: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    value = by.get(key, [])
    if not isinstance(value, list) or any(type(one) is not kind for one in value):
        raise Failure(f"'{key}' is not a list of {'names' if kind is str else 'numbers'}")
    return value


def of_answer(log: Log, found: reasons.Answer, part: str) -> Items:
    values: list[Any]
    lines: list[Line] = []
    match part:
        case "bins" | "followed":
            lines = found.own if part == "bins" else found.followed
            values = [{**line.as_json(), "elapsed_ns": found.elapsed} for line in lines]
        case "because":
            lines = [chain.steps[-1] for chain in found.chains]
            values = [[step.as_json() for step in chain.steps] for chain in found.chains]
        case "threads":
            values = [one.as_json() for one in found.threads]
        case _:
            raise Failure("'part' is bins, followed, because or threads")

    def events(row: int) -> dict[str, Any]:
        """Of the longest stretch of time of a bin: how many there were is in the value."""
        if lines and lines[row].longest:
            line = lines[row]
            return evidence.of_thread(log, line.pid, line.since, line.until)
        if part == "threads":
            return evidence.of_thread(log, found.threads[row].pid, -(2**63), 2**63 - 1)
        return evidence.of_events(log, reading.COLUMNS)

    return Items([stated.stated(value) for value in values], events)


# --- events around a time ---


def around(log: Log, time: int, before: int, after: int) -> Table:
    if not 0 <= before <= AROUND_MAX or not 0 <= after <= AROUND_MAX:
        raise Failure(f"'before' and 'after' are from 0 to {AROUND_MAX}")
    order = "time, cpu NULLS FIRST, serial, event"
    back = "time DESC, cpu DESC NULLS LAST, serial DESC, event DESC"
    table = identifier("klogger around")
    cursor = log.cursor()
    query = (
        f"CREATE OR REPLACE TEMP TABLE {table} AS"
        f" (SELECT * FROM klogger.happened WHERE time < {time} ORDER BY {back} LIMIT {before})"
        f" UNION ALL"
        f" (SELECT * FROM klogger.happened WHERE time >= {time} ORDER BY {order} LIMIT {after})"
    )
    told = (
        f"SELECT {', '.join(EVENT_COLUMNS)} FROM klogger.told({literal('klogger around')})"
        f" ORDER BY {order}"
    )
    try:
        with executed(cursor, f"{query}; {told}", "events") as rows:
            found = [[plain(v, digits=True) for v in row] for row in rows.fetchall()]
    finally:
        cursor.close()

    def events(row: int, count: int) -> dict[str, Any]:
        return evidence.of_rows([[r[3], *r[:3]] for r in found[row : row + count]])

    rows_stated = [stated.row(row) for row in found]
    return Table(list(EVENT_COLUMNS), rows_stated, len(found), events)


def time_of(log: Log, serial: int, cpu: int | None) -> int:
    """When the event with a serial number was; each CPU, and each thread of a program, has its
    own numbers.
    """
    where = f"serial = {serial}" + (f" AND cpu = {cpu}" if cpu is not None else "")
    query = f"SELECT DISTINCT cpu, time, event FROM klogger.happened WHERE {where} ORDER BY ALL"
    rows = evidence.asked(log, f"{query} LIMIT 9")
    if len({row[:2] for row in rows}) > 1:
        listed = ", ".join(f"{event} on CPU {c} at {time}" for c, time, event in rows)
        raise Failure(
            f"several events have the serial number {serial}: {listed}",
            help="say which CPU, or give time_ns",
        )
    if not rows:
        raise Failure(f"no event has the serial number {serial}", help="give time_ns")
    return int(rows[0][1])


# --- losses ---


def of_ledger(log: Log) -> Items:
    """The events are those that say where others are missing."""
    kinds = read_ledger(log).as_json()
    return Items(
        [stated.stated(kind) for kind in kinds], lambda _: evidence.of_events(log, ["LOST"])
    )
