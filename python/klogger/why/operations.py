# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Operations: spans of time of threads, from one event to another, of a slice that a schema
declares, or from the begin to the end of a system call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from klogger import happened
from klogger.failure import Failure
from klogger.log import Event, Log
from klogger.numerals import agreed
from klogger.sqltext import identifier, literal
from klogger.units import printable
from klogger.why.events import Array

RECORD = "klogger why -- COMMAND"
BETWEEN = ".."
THREAD, CPU = "thread", "cpu"
CALL = "call"


@dataclass
class Operations:
    """One row for each, in ns since the log began. `value`: of the field that they are told apart
    by, as text; "" if there is none. `notes`: what is left out.
    """

    what: str
    pid: Array
    since: Array
    until: Array
    value: Array
    by: str = ""
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.pid)


@dataclass
class Pairing:
    """What an end must have in common with its beginning: fields of both, and `on`: the thread, the
    CPU, or nothing else. `restarts`: the next beginning is an end, too.
    """

    begin: Event
    end: Event
    fields: list[str] = field(default_factory=list)
    on: str = THREAD
    restarts: bool = False


def find(log: Log, what: str, by: str = "") -> Operations:
    """`what`: EVENT..EVENT of a thread, a slice as [SCHEMA:]NAME, or a system call as [call:]NAME.
    `by`: a field of the first event, or else of the last one.
    """
    if BETWEEN in what:
        first, _, last = what.partition(BETWEEN)
        begin, end = event_of(log, first), event_of(log, last)
        return paired(log, what, Pairing(begin, end, restarts=begin == end), by)
    schema, _, name = what.rpartition(":")
    slices = slices_of(log, name, schema)
    call = None if schema not in ("", CALL) else call_of(log, name)
    found = [f"{one}:{name}" for one in slices] + [f"{CALL}:{name}"] * (call is not None)
    if len(found) > 1:
        raise Failure(f"'{printable(what)}' is several things", help="give " + ", or ".join(found))
    if call is not None:
        return calls(log, name, call, by)
    for pairing in slices.values():
        return paired(log, what, pairing, by)
    raise Failure(
        f"'{printable(what)}' is no operation",
        help="give EVENT..EVENT, a slice of a schema, or the name of a system call",
    )


def event_of(log: Log, name: str) -> Event:
    log.events(name)
    return log.events[name.upper()]


def slices_of(log: Log, name: str, schema: str) -> dict[str, Pairing]:
    """Those of this name, by their schemata; `schema`: only that of this one, if it has a name."""
    made = {}
    for begin, end in itertools.product(log.events.values(), repeat=2):
        common = {one.name for one in begin.fields} & {one.name for one in end.fields}
        for one in begin.begins:
            if one.name == name and begin.schema == end.schema and one in end.ends \
                    and common.issuperset(one.by) and schema in ("", begin.schema):  # fmt: skip
                made[begin.schema] = Pairing(begin, end, list(one.by), one.on, restarts=True)
    return made


def rows_of(log: Log, event: Event, pairing: Pairing, is_begin: bool, by: str) -> str:
    """A query: thread, time, serial, which of both it is, the value as a text, and what must be
    equal.
    """
    of_programs = log.is_of_programs(event)
    fields = {one.name: one for one in event.fields}
    thread = happened.thread_of(event, of_programs)
    if pairing.on == THREAD and thread == "NULL":
        raise Failure(f"the event {event.name} has no thread, so nothing of one can end there")
    key = [happened.column(fields[one], of_programs) for one in pairing.fields]
    key += [thread] if pairing.on == THREAD else ["cpu"] if pairing.on == CPU else []
    keys = "".join(f", {one} AS k{n}" for n, one in enumerate(key))
    value = happened.shown(event, fields[by], of_programs) if by in fields else "NULL::VARCHAR"
    return (
        f"SELECT {thread}::INTEGER AS pid, time, serial, {is_begin} AS begins, {value} AS value"
        f"{keys} FROM main.{identifier(event.name)} AS e"
    )


def paired(log: Log, what: str, pairing: Pairing, by: str) -> Operations:
    """An end belongs to the latest beginning that has the same in common with it."""
    known = {one.name for event in (pairing.begin, pairing.end) for one in event.fields}
    if by and by not in known:
        raise Failure(f"the events of {what} have no field '{by}'",
                      help="they have: " + ", ".join(sorted(known)))  # fmt: skip
    parts = [rows_of(log, pairing.begin, pairing, True, by)]
    if pairing.begin != pairing.end:
        parts.append(rows_of(log, pairing.end, pairing, False, by))
    keys = len(pairing.fields) + (pairing.on in (THREAD, CPU))
    partition = f"PARTITION BY {', '.join(f'k{n}' for n in range(keys))} " if keys else ""
    ends = "true" if pairing.restarts else "NOT lead(begins) OVER w"
    names = sorted({pairing.begin.name, pairing.end.name})
    log.connection.execute(f"""
        CREATE OR REPLACE TEMP TABLE why_operation AS
        SELECT pid, NULL AS place, time AS from_ns, CASE WHEN ends THEN until END AS to_ns,
               coalesce(value, next_value, '') AS value
        FROM (
            SELECT pid, time, begins, value, lead(time) OVER w AS until, lead(value) OVER w
                   AS next_value, {ends} AS ends
            FROM ({" UNION ALL ".join(parts)}) WINDOW w AS ({partition}ORDER BY time, serial)
        ) WHERE begins
    """)
    found = log.connection.execute(
        f"SELECT pid, from_ns AS since, to_ns AS until, value FROM klogger.broken('why_operation',"
        f" {names}) WHERE to_ns IS NOT NULL AND NOT broken ORDER BY since, pid"
    ).fetchnumpy()
    made = of_rows(what, by, found)
    made.notes += left_out(log, what, names)
    return some(made, f"the log has no {pairing.begin.name} with a {pairing.end.name} behind it")


def left_out(log: Log, what: str, names: list[str]) -> Iterator[str]:
    """Of `why_operation`: without an end, but for those of threads that have ended; and those in
    which events are missing.
    """
    gone = "false"
    if {"PROCESS_EXIT", "PROCESS_FORK"} <= log.events.keys():
        last = "SELECT max(time) FROM {} AS e WHERE e.pid = o.pid AND e.time <= o.from_ns"
        gone = (f"coalesce(({last.format('PROCESS_EXIT')}) >"
                f" coalesce(({last.format('PROCESS_FORK')}), -1), false)")  # fmt: skip
    open_, broken = log.rows(f"""
        SELECT count(*) FILTER (to_ns IS NULL AND NOT {gone}),
               count(*) FILTER (to_ns IS NOT NULL AND broken)
        FROM klogger.broken('why_operation', {names}) AS o
    """)[0]
    if open_:
        yield (f"{agreed(f'{open_:,} operations')} of {what} began and did not end in the log:"
               " they are left out")  # fmt: skip
    if broken:
        yield (f"{agreed(f'{broken:,} operations')} of {what} are left out: events are missing"
               " while they lasted")  # fmt: skip


def call_of(log: Log, name: str) -> int | None:
    known = log.rows(
        "SELECT value::BIGINT FROM klogger.decoding WHERE decoding = 'syscall' AND text ="
        f" {literal(name)}"
    )
    return int(known[0][0]) if known else None


def calls(log: Log, name: str, number: int, by: str) -> Operations:
    """From the begin of each call to its end, or to that of the recording."""
    event = log.events.get("CALLED")
    quick = "SELECT count(*) FROM klogger.parameter WHERE name = 'calls' AND value = 0 AND schema" \
        " = 'waits'"  # fmt: skip
    if event is None or log.rows(quick)[0][0]:
        raise Failure("system calls were not recorded",
                      help=f"record with '{RECORD}', without --depth quick")  # fmt: skip
    if by and by not in {one.name for one in event.fields}:
        raise Failure(f"a system call has no field '{by}'",
                      help="it has: " + ", ".join(one.name for one in event.fields))  # fmt: skip
    of_programs = log.is_of_programs(event)
    field = {one.name: one for one in event.fields}.get(by)
    value = happened.shown(event, field, of_programs) if field else "''"
    open_ = f"""UNION ALL SELECT pid, (time - so_far)::BIGINT, time, '(not returned)', true
        FROM main.UNRETURNED WHERE call = {number} AND so_far BETWEEN 1 AND time"""
    found = log.connection.execute(f"""
        SELECT e.pid, (time - took)::BIGINT AS since, time AS until, coalesce({value}, '') AS value,
               false AS open
        FROM main.CALLED AS e WHERE call = {number} AND took BETWEEN 1 AND time
        {open_ if "UNRETURNED" in log.events else ""}
        ORDER BY since, pid
    """).fetchnumpy()
    made = of_rows(name, by, found)
    if open_calls := int(np.count_nonzero(found["open"])):
        made.notes.append(f"{agreed(f'{open_calls:,} calls')} of {name} had not returned when the"
                          " recording ended: they are taken up to then")  # fmt: skip
    if "SLEPT_BEFORE" in log.events:
        before = log.rows(f"SELECT count(*) FROM SLEPT_BEFORE WHERE call = {number}")[0][0]
        if before:
            made.notes.append(f"{agreed(f'{before:,} threads')} waited in {name} already when the"
                              " recording began: these calls are left out")  # fmt: skip
    return some(made, f"the log has no call of {name} from its begin on")


def of_rows(what: str, by: str, found: dict[str, Any]) -> Operations:
    pid, since, until = (np.ma.filled(found[name], 0) for name in ("pid", "since", "until"))
    return Operations(what, pid, since, until, np.ma.filled(found["value"], ""), by)


def some(found: Operations, otherwise: str) -> Operations:
    if not len(found):
        raise Failure(". ".join([otherwise, *found.notes]),
                      help="'klogger info FILE' says what the log has")  # fmt: skip
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
