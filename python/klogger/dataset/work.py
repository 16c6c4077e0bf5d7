# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What an executor does with recordings: the rows that analyses give of each, by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import duckdb

from klogger import executor
from klogger.analysis import Analysis
from klogger.dataset import open as open_dataset
from klogger.dataset.combine import LOG, ROW
from klogger.dataset.engine import Engine
from klogger.dataset.store import Local
from klogger.executor import Result, Rows
from klogger.failure import Failure
from klogger.folder import RECORDINGS
from klogger.sqltext import literal
from klogger.statements import Rejected, check_query, execute_whole, limited


class Part(NamedTuple):
    """What an analysis gave of one recording. Its rows are in those of the chunk."""

    schema: str
    name: str
    status: str
    reason: str
    warnings: tuple[str, ...]
    # By which it is kept in the dataset (`cache`); empty: it is not.
    key: str = ""


@dataclass(frozen=True)
class Done:
    """Of one recording. `damage`: why it was left out."""

    log: str
    seconds: float = 0.0
    parts: tuple[Part, ...] = ()
    damage: str = ""


Key = tuple[str, str]


@dataclass(frozen=True)
class Chunk:
    """Of several recordings. `rows`: of an analysis, by its schema and name, Parquet files."""

    done: tuple[Done, ...]
    rows: Mapping[Key, Sequence[bytes]]


@dataclass(frozen=True)
class Work:
    """What is done with recordings; it is sent to where that happens. `run`: the folder of the
    report that it is a part of, on its machine.
    """

    where: str
    names: tuple[str, ...] = ()
    run: str = ""

    def __call__(self, logs: str) -> Chunk:
        """Of recordings, with blanks between their ids. Never fails: what is wrong with one is a
        part of the answer.
        """
        engine = engine_of(self.run)
        done = tuple(self.done(engine, log) for log in logs.split())
        return Chunk(done, engine.rows())

    def done(self, engine: Engine, log: str) -> Done:
        try:
            dataset = open_dataset(self.where)
            entry = f"{RECORDINGS}/{log}.json"
            if not isinstance(dataset.store, Local):
                found = dataset.entry(log)
                if found is None:
                    return Done(log, damage=dataset.unreadable.get(log, REMOVED))
                with dataset.fetched(found) as folder:
                    return self.measured(engine, folder / entry)
            if not (dataset.store.folder / entry).is_file():
                return Done(log, damage=REMOVED)
            return self.measured(engine, dataset.store.folder / entry)
        except (Failure, duckdb.Error, OSError) as error:
            engine.stop()
            return Done(log, damage=engine.told(error))

    def measured(self, engine: Engine, entry: Path) -> Done:
        log = engine.open(entry)
        found, lasting = [], False
        with executor.Session(log, engine.analyses(log)) as session:
            for one in session.analyses:
                if self.names and not {one.name, word_of(one)} & set(self.names):
                    continue
                table = engine.table(one)
                filler = partial(write_rows, log=entry.stem, table=table)
                result = session.run(one, filler)
                if result.status != "answer":
                    engine.forget(one)
                if isinstance(result.failure, Failure) and damaged(str(result.failure)):
                    return Done(entry.stem, damage=engine.told(result.failure))
                lasting |= engine.lasts(one)
                found.append(
                    Part(
                        one.schema, one.name, result.status, result.reason,
                        tuple(result.warnings), engine.key(log, one),
                    )
                )  # fmt: skip
        done = Done(entry.stem, log.seconds(), tuple(found))
        if lasting:
            engine.stop()
        return done


def word_of(one: Analysis) -> str:
    return f"{one.schema}/{one.name}"


REMOVED = "it was removed meanwhile"
# Of this process: of the report that it works for.
engines: dict[str, Engine] = {}


def engine_of(run: str) -> Engine:
    if run not in engines:
        close_engines()
        engines[run] = Engine(run if os.path.isdir(run) else None)
    return engines[run]


def close_engines() -> None:
    while engines:
        engines.popitem()[1].close()


def damaged(text: str) -> bool:
    """Whether a file cannot be read, and it is not the analysis that is wrong."""
    return "parquet" in text.lower()


def write_rows(result: Result, cursor: duckdb.DuckDBPyConnection, log: str, table: str) -> None:
    """The rows of the table, with the histograms beside those with the same keys."""
    one = result.analysis
    where = f"{one.path}, section 'table'"
    for section in ("table", *(["histogram"] if one.histogram else [])):
        check_query(cursor, one.placed(section), f"{one.path}, section '{section}'")
    query = made_of(one, table, log, one.sections["table"], one.histogram)
    try:
        with limited(cursor, query, where):
            ((rows,),) = cursor.execute(query).fetchall()
    except Rejected:
        # Once more, each section by itself: for a message that names the section and the line.
        view(cursor, one, "table", "klogger_rows")
        if one.histogram:
            view(cursor, one, "histogram", "klogger_beside")
        beside = "FROM klogger_beside" if one.histogram else ""
        query = made_of(one, table, log, "FROM klogger_rows", beside)
        with limited(cursor, query, where):
            ((rows,),) = cursor.execute(query).fetchall()
    result.table = Rows(["rows"], [[rows]] if rows else [])
    result.warnings += executor.own_warnings(one, cursor)


def made_of(one: Analysis, table: str, log: str, rows: str, beside: str) -> str:
    """A comment may be the last of an SQL text, hence the new lines."""
    source = f"SELECT row_number() OVER () AS {ROW}, * FROM (\n{rows}\n)"
    if beside:
        source = f"SELECT * FROM ({source}) NATURAL LEFT JOIN (\n{beside}\n) ORDER BY {ROW}"
    return f"CREATE TABLE {table} AS SELECT {literal(log)} AS {LOG}, * FROM ({source})"


def view(cursor: duckdb.DuckDBPyConnection, one: Analysis, section: str, name: str) -> None:
    where = f"{one.path}, section '{section}'"
    text = f"CREATE OR REPLACE TEMP VIEW {name} AS {one.placed(section)}"
    execute_whole(cursor, text, where)
