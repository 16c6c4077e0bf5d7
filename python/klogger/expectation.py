# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads `schemata/NAME/expect/*.expect`: a small log, an analysis, and its answer as worked out by
hand, on one page.

analysis: quanta
with: locking                             further schemata whose events the log has
log:
  process 10 hog                          thread id, name [, from, to]
  10us  0  SCHEDIN   pid=10               time, CPU (- is the recorder), event, fields (others: 0)
  stack 5 mutex_lock pipe_write           a kernel stack: number, functions from the innermost on
  user_stack 6 read main                  a user stack
  variable 10 4096 lock [5us]             data of a process: address, name, from when
  ledger key=ring_full count=3 cpu=0      an entry of the ledger
  cost SCHEDIN=50                         what logging an event took, ns
  10us  0  LOOK call=openat               a field `as place`: its name
  10us  0  FOUND frames=4096,8192         an array
  killed                                  the log has no end
  end 1ms                                 the log's end
table: program quanta                     the columns to compare, then the rows; all rows, in order
  hog 2
picture: program part                     as well
finding:                                  the sentences, one a line
warning:                                  the beginnings of the warnings, one a line
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from klogger import smalllog
from klogger.failure import did_you_mean
from klogger.prelude import TABLES

UNITS = {"": 1, "ns": 1, "us": 1000, "ms": 10**6, "s": 10**9}


@dataclass
class Expectation:
    path: Path
    schema: str
    # What `klogger show` takes for it: its name, or its file.
    source: str
    analysis: str = ""
    others: tuple[str, ...] = ()
    log: list[str] = field(default_factory=list)
    columns: dict[str, list[str]] = field(default_factory=dict)
    rows: dict[str, list[list[str]]] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)


def read(path: Path, source: str = "") -> Expectation:
    """`source`: the file of the schema, if it is not a bundled one."""
    schema = path.parents[1].name
    found = Expectation(path, schema, source or schema)
    current = ""
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            current, _, rest = line.partition(":")
            if current == "analysis":
                found.analysis = rest.strip()
            elif current == "with":
                found.others = tuple(rest.split())
            elif current in ("table", "picture"):
                found.columns[current], found.rows[current] = rest.split(), []
            elif current in ("finding", "warning"):
                found.texts[current] = []
            elif current != "log":
                raise ValueError(f"{path}: unknown section '{current}'")
        elif current == "log":
            found.log.append(line.strip())
        elif current in ("table", "picture"):
            found.rows[current].append(shlex.split(line))
        else:
            found.texts[current].append(line.strip())
    if not (found.rows or found.texts):
        raise ValueError(f"{path}: expects nothing")
    return found


def time_of(text: str) -> int:
    match = re.fullmatch(r"([\d.]+)(ns|us|ms|s|)", text)
    if match is None:
        raise ValueError(f"not a time: {text}")
    return round(float(match[1]) * UNITS[match[2]])


def value_of(text: str) -> Any:
    if re.fullmatch(r"[\d.]+(ns|us|ms|s)", text):
        return time_of(text)
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def meta_of(words: list[str]) -> dict[str, Any]:
    """What a line says of the log's preamble."""
    if words[0] == "overwrite":
        return {"recorder": {"overwrite": True}}
    given = ((k, float(v)) for k, _, v in (w.partition("=") for w in words[1:]))
    return {
        "costs": {
            "events": [{"event": k, "cost": {"ns": v, "low": v, "high": v}} for k, v in given]
        }
    }


@dataclass
class Made:
    """What the lines of a log come to, beside its events."""

    processes: list[tuple[int, str, int, int | None]] = field(default_factory=list)
    ledger: list[dict[str, Any]] = field(default_factory=list)
    stacks: list[tuple[int, str, list[str]]] = field(default_factory=list)
    variables: list[tuple[int, int, int, str]] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    end: int | None = 0
    places: list[str] = field(default_factory=list)

    def with_places(self, fields: list[dict[str, Any]], given: dict[str, Any]) -> dict[str, Any]:
        """With numbers for the names of places, from 1 on."""
        for name in (f["name"] for f in fields if f["decoding"] == "place"):
            if isinstance(given.get(name), str):
                if given[name] not in self.places:
                    self.places.append(given[name])
                given[name] = self.places.index(given[name]) + 1
        return given

    def add(self, words: list[str]) -> bool:
        """Whether it is a line of these."""
        match words:
            case ["process", pid, comm, *times]:
                first, last, *_ = [*map(time_of, times), None, None]
                self.processes.append((int(pid), comm, first or 0, last))
            case ["stack" | "user_stack" as of, number, *frames]:
                kind = "user" if of == "user_stack" else "kernel"
                self.stacks.append((int(number), kind, frames))
            case ["variable", tgid, address, name, *since]:
                begin = time_of(since[0]) if since else -(2**62)
                self.variables.append((int(tgid), int(address), begin, name))
            case ["ledger", *pairs]:
                self.ledger.append(values_of(pairs))
            case ["end", time]:
                self.end = time_of(time)
            case ["killed"]:
                self.end = None
            case ["cost" | "overwrite", *_]:
                self.meta |= meta_of(words)
            case _:
                return False
        return True


def values_of(pairs: list[str]) -> dict[str, Any]:
    return {name: value_of(text) for name, _, text in (pair.partition("=") for pair in pairs)}


def make(expectation: Expectation, out: Path) -> Path:
    """Writes the log of an expectation."""
    con = duckdb.connect()
    events = smalllog.events_of(expectation.source, *expectation.others)
    smalllog.create_tables(con, events)
    fields = {e.name: e.fields for e in events}
    rows: dict[str, list[list[Any]]] = {}
    made = Made()
    for serial, line in enumerate(expectation.log):
        words = shlex.split(line)
        if not made.add(words):
            time, cpu, event, *pairs = words
            if event not in fields:
                close = did_you_mean(event, fields)
                raise ValueError(f"there is no event '{event}'" + (f"; {close}" if close else ""))
            row = {"time": time_of(time), "cpu": -1 if cpu == "-" else int(cpu), "serial": serial}
            given = made.with_places(fields[event], values_of(pairs))
            row |= row_of(fields[event], given, f"{expectation.path}: {event}")
            rows.setdefault(event, []).append(list(row.values()))
    for event, found in rows.items():
        try:
            smalllog.insert(con, event, found)
        except duckdb.ConversionException as error:
            said = str(error).partition("\n")[0].removeprefix("Conversion Error: ")
            raise ValueError(f"{event}: {said}") from None
    smalllog.name_places(con, made.places)
    if made.stacks:
        write_stacks(con, out, made.stacks)
    if made.variables:
        write_variables(con, out, made.variables)
    schemata = (expectation.source, *expectation.others)
    return smalllog.write_log(
        con, out, schema=schemata, processes=made.processes, ledger=made.ledger, end=made.end,
        meta=made.meta,
    )  # fmt: skip


def row_of(fields: list[dict[str, Any]], given: dict[str, Any], what: str) -> dict[str, Any]:
    """The columns of an event's own, in their order. What is not given is 0 or empty."""
    row = {f["name"]: column_of(smalllog.sql_type(f), given.pop(f["name"], None)) for f in fields}
    for name in [f["name"] + "_symbol" for f in fields if f["decoding"] == "code"]:
        symbol = given.pop(name, None)
        row[name] = None if symbol is None else str(symbol)
    if given:
        raise ValueError(f"{what} has no {', '.join(given)}")
    return row


def column_of(sql_type: str, given: Any) -> Any:
    """Of an array, the numbers that are given with commas between them."""
    if sql_type.endswith("[]"):
        return [int(number) for number in str(given).split(",")] if given is not None else []
    if sql_type == "VARCHAR":
        return "" if given is None else str(given)
    return 0 if given is None else given


def write_stacks(
    con: duckdb.DuckDBPyConnection, out: Path, stacks: list[tuple[int, str, list[str]]]
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    con.execute(f"CREATE TABLE klogger_stack ({TABLES['stack']})")
    con.executemany(
        "INSERT INTO klogger_stack (id, frames, text, kind, whole, path)"
        " VALUES (?, ?, ?, ?, true, ?)",
        [(n, f, "<".join(f), kind, path_of(kind, f)) for n, kind, f in stacks],
    )
    con.execute(f"COPY klogger_stack TO '{out}/stack.parquet'")


def path_of(kind: str, frames: list[str]) -> list[str]:
    """As the exporter has it: the outermost frame first, the kernel's with a mark."""
    return [frame + ("_[k]" if kind == "kernel" else "") for frame in reversed(frames)]


def write_variables(
    con: duckdb.DuckDBPyConnection, out: Path, variables: list[tuple[int, int, int, str]]
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    con.execute(f"CREATE TABLE klogger_variable ({TABLES['variable']})")
    con.executemany("INSERT INTO klogger_variable VALUES (?, ?, ?, ?)", variables)
    con.execute(f"COPY klogger_variable TO '{out}/variable.parquet'")


def shown(value: Any) -> str:
    """A value of an answer as an expectation has it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
