# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Operations: spans of time of threads, from one event to another, of a slice that a schema
declares, or from the begin to the end of a system call.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from klogger import happened
from klogger.failure import Failure
from klogger.log import Event, Log
from klogger.sqltext import identifier, literal
from klogger.why.events import Array

BETWEEN = ".."
THREAD, CPU = "thread", "cpu"


@dataclass
class Operations:
    """One row for each, in ns since the log began. `value`: of the field that they are told apart
    by, as text; "" if there is none. `unpaired`: beginnings without an end in the log.
    """

    what: str
    pid: Array
    since: Array
    until: Array
    value: Array
    unpaired: int = 0
    by: str = ""

    def __len__(self) -> int:
        return len(self.pid)


@dataclass
class Pairing:
    """What an end must have in common with its beginning: fields of both, and `on`: the thread, the
    CPU, or nothing else.
    """

    begin: Event
    end: Event
    fields: list[str] = field(default_factory=list)
    on: str = THREAD


def find(log: Log, what: str, by: str = "") -> Operations:
    """`what`: EVENT..EVENT of a thread, a slice, or the name of a system call. `by`: a field of the
    first event, or else of the last one.
    """
    if BETWEEN in what:
        first, _, last = what.partition(BETWEEN)
        return paired(log, what, Pairing(event_of(log, first), event_of(log, last)), by)
    if (pairing := slice_of(log, what)) is not None:
        return paired(log, what, pairing, by)
    return calls(log, what, by)


def event_of(log: Log, name: str) -> Event:
    log.events(name)
    return log.events[name.upper()]


def slice_of(log: Log, name: str) -> Pairing | None:
    found = log.preamble.get("events")
    events = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def of(key: str) -> list[tuple[Event, dict[str, Any]]]:
        return [
            (log.events[one["name"]], declared)
            for one in events if one.get("name") in log.events
            for declared in one.get(key) or [] if declared.get("name") == name
        ]  # fmt: skip

    begins, ends = of("begins"), of("ends")
    if not begins or not ends:
        return None
    (begin, declared), (end, _) = begins[0], ends[0]
    return Pairing(begin, end, list(declared.get("by") or []), declared.get("on") or THREAD)


def rows_of(log: Log, event: Event, pairing: Pairing, is_begin: bool, by: str) -> str:
    """A query: thread, time, serial, which of both it is, the value, and what must be equal."""
    of_programs = log.is_of_programs(event)
    columns = {one.name: happened.column(one, of_programs) for one in event.fields}
    thread = happened.thread_of(event, of_programs)
    if pairing.on == THREAD and thread == "NULL":
        raise Failure(f"the event {event.name} has no thread, so nothing of one can end there")
    key = [columns[one] for one in pairing.fields]
    key += [thread] if pairing.on == THREAD else ["cpu"] if pairing.on == CPU else []
    keys = ", ".join(f"{one} AS k{n}" for n, one in enumerate(key))
    table = f'main."{event.name}"'
    has = by in columns
    decoded = f"(SELECT *{log.events.decoded(event, table)} FROM {table})" if has else table
    value = f"{columns[by]}::VARCHAR" if has else "NULL"
    # A value is decoded, and what must be equal is not.
    joined = f"JOIN (SELECT time AS t, serial AS s, cpu AS c, {value} AS value FROM {decoded})" \
        " AS d ON e.time = d.t AND e.serial = d.s AND e.cpu IS NOT DISTINCT FROM d.c" if has \
        else ""  # fmt: skip
    shown = "d.value" if has else "NULL::VARCHAR"
    return (
        f"SELECT {thread}::INTEGER AS pid, e.time, e.serial, {is_begin} AS begins,"
        f" {shown} AS value{', ' if keys else ''}{keys} FROM {table} AS e {joined}"
    )


def paired(log: Log, what: str, pairing: Pairing, by: str) -> Operations:
    """An end belongs to the latest beginning that has the same in common with it."""
    known = {one.name for event in (pairing.begin, pairing.end) for one in event.fields}
    if by and by not in known:
        raise Failure(f"the events of {what} have no field '{by}'",
                      help="they have: " + ", ".join(sorted(known)))  # fmt: skip
    parts = [rows_of(log, pairing.begin, pairing, True, by),
             rows_of(log, pairing.end, pairing, False, by)]  # fmt: skip
    keys = len(pairing.fields) + (pairing.on in (THREAD, CPU))
    partition = f"PARTITION BY {', '.join(f'k{n}' for n in range(keys))} " if keys else ""
    steps = " UNION ALL ".join(parts)
    found = log.connection.execute(f"""
        SELECT pid, time AS since, until, coalesce(value, next_value, '') AS value, ends FROM (
            SELECT pid, time, begins, value, lead(time) OVER w AS until, lead(value) OVER w
                   AS next_value, coalesce(NOT lead(begins) OVER w, false) AS ends
            FROM ({steps}) WINDOW w AS ({partition}ORDER BY time, serial)
        ) WHERE begins ORDER BY since, pid
    """).fetchnumpy()
    ends = np.ma.filled(found["ends"], False).astype(bool)
    made = of_rows(what, by, found, ends)
    return some(made, f"the log has no {pairing.begin.name} with a {pairing.end.name} behind it")


def calls(log: Log, name: str, by: str) -> Operations:
    known = log.rows(
        f"SELECT value::BIGINT FROM klogger.decoding WHERE decoding = 'syscall' AND text ="
        f" {literal(name)}"
    )
    if not known:
        raise Failure(
            f"'{name}' is no operation",
            help="give EVENT..EVENT, a slice of a schema, or the name of a system call",
        )
    event = log.events.get("CALLED")
    if event is None:
        raise Failure("the log has no system calls", help="record with 'klogger why -- COMMAND'")
    if by and by not in {one.name for one in event.fields}:
        raise Failure(f"a system call has no field '{by}'",
                      help="it has: " + ", ".join(one.name for one in event.fields))  # fmt: skip
    value = f"{identifier(by)}::VARCHAR" if by else "''"
    table = "main.CALLED"
    found = log.connection.execute(f"""
        SELECT c.pid, time - took AS since, time AS until, coalesce({value}, '') AS value
        FROM (SELECT *{log.events.decoded(event, table) if by else ""} FROM {table}
              WHERE call = {int(known[0][0])} AND took BETWEEN 1 AND time) AS c
        ORDER BY since, pid
    """).fetchnumpy()
    made = of_rows(name, by, found, np.ones(len(found["pid"]), bool))
    return some(made, f"the log has no call of {name} from its begin to its end")


def of_rows(what: str, by: str, found: dict[str, Any], ends: Array) -> Operations:
    """`ends`: whether each row has an end."""
    pid, since, until = (np.ma.filled(found[name], 0)[ends] for name in ("pid", "since", "until"))
    value = np.ma.filled(found["value"], "")[ends]
    return Operations(what, pid, since, until, value, int((~ends).sum()), by)


def some(found: Operations, otherwise: str) -> Operations:
    if not len(found):
        raise Failure(otherwise, help="'klogger info FILE' says what the log has")
    return found


@dataclass(frozen=True)
class Slowest:
    """A part of the operations: a share of 1, rounded up, or a number of them."""

    share: float = 0.0
    count: int = 0

    def of(self, took: Array) -> Array:
        """The numbers of those that took longest, ascending."""
        number = self.count or math.ceil(len(took) * self.share)
        return np.sort(np.argsort(-took, kind="stable")[: max(number, 1)])
