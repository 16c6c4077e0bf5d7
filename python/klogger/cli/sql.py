# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger sql`: queries a log in SQL."""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb

import klogger
from klogger import catalogue, losses, sqlerror, terminal
from klogger.cli import check_link, complain, guarded, private_as
from klogger.failure import Failure
from klogger.log import Log
from klogger.units import plain, printable

ROWS_SHOWN = 1000
ROWS_AT_ONCE = 10_000

EPILOG = """\
examples:
  klogger sql x.klog                                     the tables and their columns
  klogger sql x.klog 'SELECT comm(pid, time) AS program, count(*) FROM SCHEDIN GROUP BY 1'
  klogger sql x.klog 'SELECT task_state(state), count(*) FROM SCHEDOUT GROUP BY 1' --format csv
  klogger sql x.klog - < question.sql
"""


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="klogger sql",
        description="Query a log in SQL (DuckDB's). Times are nanoseconds since the log's start.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "file",
        metavar="FILE",
        help="a log, or the directory that 'klogger export --to parquet' made",
    )
    found.add_argument(
        "query", metavar="QUERY", nargs="?", help="- reads it from the standard input"
    )
    found.add_argument(
        "--format", choices=["table", "csv", "json", "parquet"], help="form of the answer (table)"
    )
    found.add_argument(
        "-o", "--output", metavar="OUT", type=Path, help="where to; needed for parquet"
    )
    found.add_argument(
        "-i",
        "--interactive",
        action="store_true",
        help="read queries until the end of the input",
    )
    return found


def main(words: list[str] | None = None) -> int:
    args = parser().parse_intermixed_args(words)
    return guarded(lambda: sql(args))


def sql(args: argparse.Namespace) -> int:
    if args.format == "parquet" and args.output is None:
        raise Failure("Parquet is not for the terminal", help="say where to: -o OUT.parquet")
    private_as(args.file)
    log = klogger.open(args.file, quiet=False)
    try:
        if args.interactive:
            interactive(log, args)
        elif args.query is None:
            terminal_catalogue(log)
        else:
            ask(log, sys.stdin.read() if args.query == "-" else args.query, args)
    finally:
        log.close()
    return 0


def terminal_catalogue(log: Log) -> None:
    out = terminal.console(sys.stdout)
    out.print("every event table has")
    for name, (unit, doc) in catalogue.COMMON.items():
        print_column(
            out, catalogue.Column(name, "SMALLINT" if name == "cpu" else "BIGINT", unit, doc)
        )
    for table in catalogue.tables(log):
        out.print()
        terminal.print_line(out, (table.name, "bold"), f"  {table.doc}")
        for column in table.columns:
            if table.name.upper() not in log.events or column.name not in catalogue.COMMON:
                print_column(out, column)
    out.print()
    out.print("functions")
    for name, doc in catalogue.functions(log):
        terminal.print_line(out, f"  {name:<38} {doc}")


def print_column(out: terminal.Console, column: catalogue.Column) -> None:
    unit = f" [{column.unit}]" if column.unit else ""
    line = f"  {column.name:<14} {column.type}{unit}"
    terminal.print_line(out, f"{line:<40} {column.doc}".rstrip())


def interactive(log: Log, args: argparse.Namespace) -> None:
    """A query ends with a semicolon, or with an empty line."""
    terminal_input = sys.stdin.isatty()
    if terminal_input:
        import readline  # noqa: F401  (gives input() a history and editing)

        print("A query ends with ';'. Ctrl-D ends. '\\d' lists the tables.", file=sys.stderr)
    lines: list[str] = []
    while True:
        try:
            line = input(("> " if not lines else "- ") if terminal_input else "")
        except EOFError:
            break
        if line.strip() == "\\d":
            terminal_catalogue(log)
            continue
        lines.append(line)
        if line.rstrip().endswith(";") or not line.strip():
            answer(log, "\n".join(lines), args)
            lines = []
    answer(log, "\n".join(lines), args)


def answer(log: Log, query: str, args: argparse.Namespace) -> None:
    if not query.strip():
        return
    try:
        ask(log, query, args)
    except Failure as failure:
        complain(failure)


def ask(log: Log, query: str, args: argparse.Namespace) -> None:
    try:
        statements = log.connection.extract_statements(query)
    except duckdb.Error as error:
        raise explained(log, error, query) from None
    if not statements:
        raise Failure("the query is empty")
    warn(log, query)
    try:
        for statement in statements[:-1]:
            log.connection.execute(statement)
        if args.format == "parquet":
            log.connection.sql(statements[-1].query.rstrip().rstrip(";")).write_parquet(
                str(args.output)
            )
            return
        cursor = log.connection.execute(statements[-1])
        give(cursor, args)
    except duckdb.Error as error:
        raise explained(log, error, query) from None


def explained(log: Log, error: duckdb.Error, query: str) -> Failure:
    names = [t.name for t in catalogue.tables(log)]
    names += [c.name for t in catalogue.tables(log) for c in t.columns]
    names += [name.split("(")[0] for name, _ in catalogue.functions(log)]
    return Failure(sqlerror.explain(error, query, names))


def warn(log: Log, query: str) -> None:
    """Losses of the events that the query names."""
    names = set(re.findall(r"\w+", query.upper())) & set(log.events)
    for warning in losses.warnings(log, names) if names else []:
        complain(f"warning: {warning}")


def give(cursor: duckdb.DuckDBPyConnection, args: argparse.Namespace) -> None:
    if not cursor.description:
        return
    if args.output is None:
        write_rows(cursor, args.format or "table", sys.stdout)
        return
    try:
        check_link(args.output)
        with args.output.open("w", newline="") as file:
            write_rows(cursor, args.format or "table", file)
    except OSError as error:
        raise Failure(f"cannot write {args.output}: {error.strerror}") from None


def write_rows(cursor: duckdb.DuckDBPyConnection, form: str, file: Any) -> None:
    names = [d[0] for d in cursor.description or []]
    if form == "csv":
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for rows in batches(cursor):
            writer.writerows(
                [[harmless(v) for v in row] for row in rows] if file.isatty() else rows
            )
    elif form == "json":
        file.write("[")
        separator = "\n"
        for rows in batches(cursor):
            for row in rows:
                values = {n: plain(v) for n, v in zip(names, row, strict=True)}
                file.write(separator + json.dumps(values, ensure_ascii=file.isatty()))
                separator = ",\n"
        file.write("\n]\n")
    else:
        numeric = [str(d[1]) in catalogue.NUMERIC for d in cursor.description or []]
        shown = cursor.fetchmany(ROWS_SHOWN)
        out = terminal.console(file)
        terminal.print_rows(out, names, shown, numeric)
        if cursor.fetchone() is not None:
            out.print(f"only the first {ROWS_SHOWN:,} rows are shown; --format csv gives all")


def harmless(value: Any) -> Any:
    """As a terminal may have it."""
    return printable(value) if isinstance(value, str) else value


def batches(cursor: duckdb.DuckDBPyConnection) -> Iterable[list[Any]]:
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        yield rows


if __name__ == "__main__":
    sys.exit(main())
