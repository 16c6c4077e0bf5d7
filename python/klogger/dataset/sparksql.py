# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger sql --on`: a query in Spark's SQL over the files of a dataset. Each event and each table
is a temporary view with the same columns as in `query`.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from klogger.dataset import Dataset, Entry
from klogger.dataset.query import Table, local, tables_of
from klogger.dataset.store import Local
from klogger.failure import Failure, did_you_mean
from klogger.folder import Part

# Of an event that no recording has rows of.
TYPES = {
    "VARCHAR": "string", "BLOB": "binary", "TINYINT": "tinyint", "SMALLINT": "smallint",
    "INTEGER": "int", "BIGINT": "bigint", "BOOLEAN": "boolean", "FLOAT": "float",
    "DOUBLE": "double",
}  # fmt: skip
# What a path has for Spark beside names.
WILDCARDS = re.compile(r"([\\{}\[\]*?,])")


@contextlib.contextmanager
def files(dataset: Dataset, entries: Sequence[Entry], on: str) -> Iterator[Path]:
    """The folder where Spark's workers read the dataset."""
    if isinstance(dataset.store, Local):
        yield dataset.store.folder.absolute()
        return
    if not on.startswith("local"):
        raise Failure(
            f"{dataset.where}: queries on {on} read a dataset in a folder that its workers have",
            help="--on local[N] fetches the files to this machine first",
        )
    with local(dataset, entries) as root:
        yield root


def names(entries: Sequence[Entry]) -> dict[str, Table]:
    """By the name of the view: the table's own, and where several have it, with its schema before
    it. Spark does not tell capitals apart.
    """
    tables = tables_of(entries)
    alike: dict[str, int] = defaultdict(int)
    for _, name in tables:
        alike[name.lower()] += 1
    return {
        name if alike[name.lower()] == 1 else f"{schema}_{name}": table
        for (schema, name), table in tables.items()
    }


def ask(
    session: Any, entries: Sequence[Entry], root: Path, query: str, limit: int | None = None
) -> Any:
    """The answer as a table of Arrow. `limit`: so many of its rows are enough."""
    known = names(entries)
    words = {word.lower() for word in re.findall(r"\w+", query)}
    try:
        check_only_asks(session, query)
        # Each view costs a look at its files: those that the query names are enough.
        for name, table in known.items():
            if name.lower() in words:
                view(session, entries, table, root).createOrReplaceTempView(name)
        found = session.sql(query)
        return (found if limit is None else found.limit(limit)).toArrow()
    except Exception as error:
        raise explained(error, known) from None


def check_only_asks(session: Any, query: str) -> None:
    """Spark would run commands at once; as queries it takes none."""
    session._jsparkSession.sessionState().sqlParser().parseQuery(query)


def view(session: Any, entries: Iterable[Entry], table: Table, root: Path) -> Any:
    """Spark looks into one file of those that it is given: they have the same columns."""
    forms: dict[tuple[Any, ...], dict[str, None]] = defaultdict(dict)
    for entry in entries:
        part = part_of(entry, table)
        if part is not None and part.path:
            forms[part.form][str(root / part.path)] = None
    if not forms:
        listed = ", ".join(f"`{name}` {type_of(kind)}" for name, kind in table.types.items())
        return session.createDataFrame([], listed)
    reader = session.read.option("recursiveFileLookup", "true")
    frames = [
        reader.parquet(*(WILDCARDS.sub(r"\\\1", file) for file in files))
        for files in forms.values()
    ]
    whole = functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    return whole.where(whole["log"].isin(list(table.logs))) if table.packed else whole


def part_of(entry: Entry, table: Table) -> Part | None:
    kind = (
        "tables" if table.schema == "klogger" and table.name in entry.said["tables"] else "events"
    )
    part: Part | None = entry.said[kind].get(table.name)
    return part if part is None or kind == "tables" or part.schema == table.schema else None


def type_of(text: str) -> str:
    base = text.removesuffix("[]")
    own = TYPES.get(base, "string")
    return f"array<{own}>" if text != base else own


def explained(error: Exception, known: Iterable[str]) -> Exception:
    """One line of what Spark says about a query; of a name that it does not know, a close one."""
    text = str(error)
    asked = re.search(r"\[TABLE_OR_VIEW_NOT_FOUND\][^`]*((`[^`]+`\.?)+)", text)
    if asked:
        name = asked[1].replace("`", "")
        close = did_you_mean(name.rpartition(".")[2], known)
        return Failure(
            f"there is no table '{name}'", help=close or "'klogger sql DIR .tables' lists them"
        )
    said = re.search(r"\[([A-Z_.0-9]+)\] (.*)", text)
    if said is None or said[1] == "SPARK_JOB_CANCELLED":
        return error
    where = re.search(r"line (\d+),? pos (\d+)", text)
    place = f" (line {where[1]}, column {int(where[2]) + 1})" if where else ""
    return Failure(f"the query: {said[2].split(' SQLSTATE')[0].rstrip('. ')}{place}")
