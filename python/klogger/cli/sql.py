# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger sql`: queries a log in SQL."""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb

import klogger
from klogger import catalogue, losses, outputs, prompt, spans, sqlerror, terminal
from klogger.cli import Parser, add_common, complain, fleet, guarded, output, private_as
from klogger.cli.pager import paged
from klogger.failure import Failure, did_you_mean
from klogger.log import IN_ORDER, Log, connect
from klogger.statements import has_copy
from klogger.units import is_utf8, plain, printable

ROWS_SHOWN = 1000
ROWS_AT_ONCE = 10_000

EPILOG = """\
examples:
  klogger sql x.klog                           a prompt: queries, .tables, .schema
  klogger sql x.klog .schema                   the tables, their columns, the functions
  klogger sql x.klog 'SELECT comm(pid, time) AS program, count(*)
                      FROM SCHEDIN GROUP BY 1'
  klogger sql x.klog 'SELECT task_state(state), count(*) FROM SCHEDOUT GROUP BY 1' --format csv
  klogger sql x.klog < question.sql
  klogger sql runs --on spark://HOST:7077 'SELECT host, count(*) FROM SCHEDIN GROUP BY host'

Queries can read the log and no other files, and write none; --allow-files gives them the files that
you can read and write. Functions make texts of values, as in 'klogger cat': hex(x), thread(pid,
time), code(x), symbol(x), stack(x), device(x), ip(x), errno(x), and those of the log's schemata.

CSV has texts as they are: a spreadsheet may take one that begins with = + - @ for a formula, so
import them as texts; a note says how many there are. JSON has null for NaN and infinity, the digits
as a text of a DECIMAL that a double cannot hold, and a number after a column's second name.
"""
HELP = """\
A query ends with ';', and may have several lines. Ctrl-C gives it up.
.tables          the tables
.schema [TABLE]  the columns of all tables, or of one; without a table also the functions
.quit            end, as Ctrl-D"""
COMMANDS = (".help", ".quit", ".schema", ".tables")
# What can write files, of the statements of DuckDB.
WRITING = {"ATTACH", "COPY", "COPY_DATABASE", "EXPORT", "LOAD", "UPDATE_EXTENSIONS"}

CLOSED = "and queries reach only the log"
OPEN = "--allow-files gives them the files that you can read and write"
FORMULAS = (
    "note: {count} texts begin with =, +, -, @ or a tab, and are written as they are; a spreadsheet"
    " may take them for formulas: import them as texts"
)
GREETING = "'.help' says what to type."


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger sql",
        description="Query a log in SQL (DuckDB's). Times are nanoseconds since the log's start."
        " Without a query: on a terminal a prompt, else the query is read from the standard input.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "file",
        metavar="FILE",
        help="a log, the directory that 'klogger export --to parquet' made, or a dataset",
    )
    found.add_argument(
        "query",
        metavar="QUERY",
        nargs="?",
        help="- reads it from the standard input; .tables and .schema list what there is",
    )
    found.add_argument(
        "--format", choices=["table", "csv", "json", "parquet"], help="form of the answer (table)"
    )
    found.add_argument(
        "-o", "--output", metavar="OUT", type=output, help="where to; needed for parquet"
    )
    found.add_argument(
        "-i",
        "--interactive",
        action="store_true",
        help="read queries until the end of the input, and go on after errors",
    )
    found.add_argument(
        "--allow-files", action="store_true", help="let queries read and write other files"
    )
    found.add_argument(
        "--on", metavar="SPARK",
        help="of a dataset: Spark answers, in its own SQL: local[N], or spark://HOST:PORT",
    )  # fmt: skip
    add_common(found, is_read=True)
    return found


def main(words: list[str] | None = None) -> int:
    args = parser().parse_intermixed_args(words)
    return guarded(lambda: sql(args))


def sql(args: argparse.Namespace) -> int:
    if args.format == "parquet" and args.output is None:
        raise Failure("Parquet is not for the terminal", help="say where to: -o OUT.parquet")
    if args.on is not None:
        return on_spark(args)
    private_as(args.file)
    with parquet_of(args) as args.parquet:
        return of_tables(args)


def parquet_of(args: argparse.Namespace) -> contextlib.AbstractContextManager[Path | None]:
    """Where DuckDB writes its answer, if it does."""
    is_parquet = args.format == "parquet" and args.output is not None
    return outputs.scratch(args.output) if is_parquet else contextlib.nullcontext()


def of_tables(args: argparse.Namespace) -> int:
    writable = [args.parquet] if args.parquet else []
    if fleet.is_dataset(args.file):
        with fleet.opened(args.file, locked=not args.allow_files, writable=writable) as log:
            return answered(log, args)
    log = klogger.open(
        args.file, quiet=False, locked=not args.allow_files, writable=writable, settings=True
    )
    return answered(log, args)


def answered(log: Log, args: argparse.Namespace) -> int:
    log.connection.execute(f"SET {IN_ORDER} = true")
    try:
        if args.interactive or (args.query is None and sys.stdin.isatty()):
            interactive(log, args)
        elif args.query is not None and args.query.startswith("."):
            with paged():
                command(log, args.query)
        else:
            query = question(args)
            with shown(args):
                ask(log, query, args)
    finally:
        log.close()
    return 0


def question(args: argparse.Namespace) -> str:
    text = str(sys.stdin.read() if args.query in (None, "-") else args.query)
    if not is_utf8(text):
        raise Failure("the query is not UTF-8 text")
    return text.removeprefix("\ufeff")


def shown(args: argparse.Namespace) -> contextlib.AbstractContextManager[None]:
    """Text goes to a pager."""
    is_text = args.format in (None, "table") and args.output is None
    return paged() if is_text else contextlib.nullcontext()


def on_spark(args: argparse.Namespace) -> int:
    """Its answer is given as those of DuckDB are."""
    if args.interactive or args.allow_files or (args.query is None and sys.stdin.isatty()):
        raise Failure("--on takes a query, and neither -i nor --allow-files")
    if (args.query or "").startswith("."):
        raise Failure(f"--on takes a query, and {args.query} needs no Spark", help="leave out --on")
    if not fleet.is_dataset(args.file):
        raise Failure(f"--on is for a dataset, and {args.file} is none")
    is_table = args.format in (None, "table")
    answer = fleet.of_spark(
        args.file, args.on, question(args), ROWS_SHOWN + 1 if is_table else None
    )
    with connect() as connection, shown(args):
        relation = connection.from_arrow(answer)
        if args.format == "parquet":
            with outputs.scratch(args.output) as file:
                relation.write_parquet(str(file))
        else:
            relation.create_view("answer")
            give(connection.execute("FROM answer"), args)
    return 0


def command(log: Log, text: str) -> bool:
    """Whether there is more to ask after it."""
    word, *names = text.rstrip(";").split()
    match word:
        case ".quit" | ".exit" | ".q" | "\\q":
            return False
        case ".help" | "\\?":
            terminal.console(sys.stdout).print(HELP)
        case ".tables" | "\\dt":
            out = terminal.console(sys.stdout)
            for table in catalogue.tables(log):
                terminal.print_line(out, (f"{table.name:<20}", "bold"), f" {table.doc}")
        case ".schema" | "\\d" if names:
            for name in names:
                show_table(log, name)
        case ".schema" | "\\d":
            terminal_catalogue(log)
        case _:
            close = did_you_mean(word, COMMANDS)
            raise Failure(f"there is no command '{word}'", help=close or "'.help' lists them")
    return True


def show_table(log: Log, name: str) -> None:
    tables = {table.name.lower(): table for table in catalogue.tables(log)}
    table = tables.get(name.lower())
    if table is None:
        close = did_you_mean(name, [t.name for t in tables.values()])
        raise Failure(f"there is no table '{name}'", help=close or "'.tables' lists them")
    out = terminal.console(sys.stdout)
    terminal.print_line(out, (table.name, "bold"), f"  {table.doc}")
    for column in table.columns:
        print_column(out, column)


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
    on_terminal = sys.stdin.isatty()
    if on_terminal:
        print(f"{args.file}: {len(log.events)} tables of events. {GREETING}", file=sys.stderr)
    for text in prompt.entries([*known_names(log), *COMMANDS] if on_terminal else ()):
        if not answer(log, text, args, short=on_terminal):
            break


def answer(log: Log, text: str, args: argparse.Namespace, *, short: bool) -> bool:
    """Whether there is more to ask. `short`: errors have one line."""
    try:
        if text.startswith((".", "\\")):
            return command(log, text)
        ask(log, text, args)
    except Wrong as wrong:
        complain(wrong.fault.in_one_line() if short else wrong)
    except Failure as failure:
        complain("; ".join(filter(None, [failure.message, failure.help])) if short else failure)
    except KeyboardInterrupt:
        if not short:
            raise
        complain("interrupted")
    return True


def ask(log: Log, query: str, args: argparse.Namespace) -> None:
    try:
        statements = log.connection.extract_statements(query)
    except duckdb.Error as error:
        raise explained(log, error, query) from None
    if not statements:
        raise Failure("the query is empty", help="'klogger sql FILE .schema' lists the tables")
    if not args.allow_files:
        check_writing(statements)
    warn(log, query)
    try:
        for statement in statements[:-1]:
            log.connection.execute(statement)
        if args.format == "parquet":
            last = statements[-1].query.rstrip().rstrip(";")
            log.connection.sql(last).write_parquet(str(args.parquet))
            return
        cursor = log.connection.execute(statements[-1])
        give(cursor, args)
    except duckdb.Error as error:
        raise explained(log, error, query) from None


def check_writing(statements: Iterable[Any]) -> None:
    """DuckDB lets queries write where they can read: to the log's own tables."""
    for statement in statements:
        kind = statement.type.name
        if kind in ("EXPLAIN", "PREPARE", "EXECUTE"):
            words = re.findall(r"\w+", statement.query.upper())
            kind = next((word for word in words if word in WRITING), kind)
        elif has_copy(statement.query):
            kind = "COPY"
        if kind in WRITING:
            raise Failure(f"{kind.replace('_', ' ')} reaches files, {CLOSED}", help=OPEN)


class Wrong(Failure):
    """A query that DuckDB rejects."""

    def __init__(self, fault: sqlerror.Fault) -> None:
        super().__init__("\n".join(fault.lines()))
        self.fault = fault


def explained(log: Log, error: duckdb.Error, query: str) -> Failure:
    if isinstance(error, duckdb.PermissionException):
        name = re.search(r'"([^"]+)"', str(error))
        return Failure(f"{name[1] if name else 'a file'} is a file, {CLOSED}", help=OPEN)
    return Wrong(sqlerror.fault(error, query, known_names(log)))


def known_names(log: Log) -> list[str]:
    names = [t.name for t in catalogue.tables(log)]
    names += [c.name for t in catalogue.tables(log) for c in t.columns]
    return names + [name.split("(")[0] for name, _ in catalogue.functions(log)]


def warn(log: Log, query: str) -> None:
    """Losses of the events that the query names, and of the spans."""
    names = set(re.findall(r"\w+", query.upper())) & set(log.events)
    of_events = losses.warnings(log, names) if names else []
    for warning in dict.fromkeys([*of_events, *spans.fill_for(log, query)]):
        complain(f"warning: {warning}")


def give(cursor: duckdb.DuckDBPyConnection, args: argparse.Namespace) -> None:
    if not cursor.description:
        return
    if args.output is None:
        write_rows(cursor, args.format or "table", sys.stdout)
        return
    with outputs.created(args.output, text=True) as file:
        write_rows(cursor, args.format or "table", file)


def write_rows(cursor: duckdb.DuckDBPyConnection, form: str, file: Any) -> None:
    names = [d[0] for d in cursor.description or []]
    if form == "csv":
        writer = csv.writer(file, lineterminator="\n")
        on_terminal = file.isatty()
        writer.writerow(map(printable, names) if on_terminal else names)
        formulas = 0
        for rows in batches(cursor):
            formulas += sum(is_formula(v) for row in rows for v in row)
            writer.writerows([[harmless(v) for v in row] for row in rows] if on_terminal else rows)
        if formulas:
            complain(FORMULAS.format(count=f"{formulas:,}"))
    elif form == "json":
        names = apart(names)
        file.write("[")
        separator = "\n"
        for rows in batches(cursor):
            for row in rows:
                values = {n: plain(v, digits=True) for n, v in zip(names, row, strict=True)}
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


def apart(names: Iterable[str]) -> list[str]:
    """Columns of one name get a number, for an object of JSON has each name once."""
    found: dict[str, None] = {}
    names = list(names)
    for name in names:
        marks = (f"{name}_{n}" for n in range(1, len(names) + 1))
        own = name if name not in found else next(m for m in marks if m not in (*found, *names))
        found[own] = None
    return list(found)


def is_formula(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))


def harmless(value: Any) -> Any:
    """As a terminal may have it."""
    return printable(value) if isinstance(value, str) else value


def batches(cursor: duckdb.DuckDBPyConnection) -> Iterable[list[Any]]:
    while rows := cursor.fetchmany(ROWS_AT_ONCE):
        yield rows


if __name__ == "__main__":
    sys.exit(main())
