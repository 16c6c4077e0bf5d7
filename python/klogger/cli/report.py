# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger report`: the answers to the questions that a log's schemata ask."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import klogger
from klogger import executor, findings, terminal
from klogger.analysis import Analysis, searched
from klogger.cli import Parser, Progress, guarded, private_as, write
from klogger.executor import Result
from klogger.log import Log
from klogger.summary import Summary, event_counts, summary
from klogger.units import printable

if TYPE_CHECKING:
    from klogger.drawing import Subjects


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger report",
        description="The answers to the questions that a log's schemata ask.",
        epilog="Without --html and --png, or with --format, the report goes to the terminal.",
    )
    found.add_argument(
        "file",
        metavar="FILE",
        help="a log, or the directory that 'klogger export --to parquet' made",
    )
    found.add_argument(
        "--html", metavar="OUT", type=Path, help="write one file that needs no network"
    )
    found.add_argument(
        "--at", metavar="TIME", type=moment, action="append", default=[],
        help="a page's timeline has each quantum around this time, if the log is too big "
        "for all (repeatable)",
    )  # fmt: skip
    found.add_argument(
        "--png", metavar="DIR", type=Path, help="write one picture for each analysis"
    )
    found.add_argument(
        "--analysis",
        metavar="NAME",
        action="append",
        default=[],
        help="this one only, with all rows (repeatable)",
    )
    found.add_argument(
        "--list", action="store_true", help="only list the analyses that this log can answer"
    )
    found.add_argument(
        "--format", choices=["text", "json"], help="what goes to the terminal (text)"
    )
    return found


def main(words: list[str] | None = None) -> int:
    args = parser().parse_intermixed_args(words)
    return guarded(lambda: report(args))


def report(args: argparse.Namespace) -> int:
    progress = Progress(after=1)
    private_as(args.file)
    log = klogger.open(args.file, quiet=False, locked=True)
    try:
        chosen = executor.choose(log, args.analysis)
        if args.list:
            for one in chosen:
                print(printable(f"{one.name:20} {one.question}"))
            return 0
        with progress, executor.Session(log) as session:
            results = [answer(session, one, progress) for one in chosen]
            head = summary(log)
            none = searched(log.schemas)
            write_files(args, session, head, results, progress)
    finally:
        log.close()
    if args.format or not (args.html or args.png):
        show(args, head, results, none)
    return 2 if any(r.status == "failed" for r in results) else 0


def answer(session: executor.Session, one: Analysis, progress: Callable[[str], None]) -> Result:
    progress(one.title or one.name)
    return session.run(one)


def write_files(
    args: argparse.Namespace,
    session: executor.Session,
    head: Summary,
    results: list[Result],
    progress: Callable[[str], None],
) -> None:
    # Pictures cost half a second to load, which the terminal does not need.
    if args.html:
        from klogger import html, timeline

        progress("page")
        log = session.log
        drawn = any(
            (r.analysis.schema, r.analysis.name) == timeline.ANALYSIS and r.status == "answer"
            for r in results
        )
        tracks = timeline.read(session, args.at) if drawn else None
        page = html.page(head, results, event_counts(log), ledger(log), tracks, subjects(log))
        write(args.html, page.encode())
    if args.png:
        from klogger import png

        for result in results:
            progress(f"picture {result.analysis.name}")
            picture = png.render(result)
            if picture is not None:
                write(args.png / f"{result.analysis.name}.png", picture)


def subjects(log: Log) -> Subjects:
    """The names of programs, as pictures and tables have them."""
    from klogger.drawing import Subjects

    rows = log.rows(
        "SELECT DISTINCT klogger.label(comm, pid) FROM klogger.process"
        " UNION SELECT '(recorder)' LIMIT 100000"
    )
    return Subjects(frozenset(printable(name) for (name,) in rows))


def moment(word: str) -> int:
    """A time since the log's start, in ns: 1.5s, 20ms; without a unit in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|)", word)
    if match is None:
        raise argparse.ArgumentTypeError(f"'{word}' is not a time; examples: 1.5s, 20ms")
    return round(float(match[1]) * {"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6}.get(match[2], 1e9))


def ledger(log: Log) -> list[tuple[object, ...]]:
    return log.rows(
        "SELECT severity, key, event, cpu, tid, count, from_ns, to_ns, text FROM klogger.ledger"
        " ORDER BY array_position(['error', 'loss', 'notice', 'info'], severity), from_ns LIMIT 200"
    )


def show(args: argparse.Namespace, head: Summary, results: list[Result], none: str) -> None:
    if args.format == "json":
        json.dump(as_json(head, results), sys.stdout, ensure_ascii=sys.stdout.isatty(), indent=1)
        print()
        return
    out = terminal.console(sys.stdout)
    terminal.print_summary(out, head)
    terminal.print_findings(out, results)
    for result in results:
        terminal.print_result(out, result, None if args.analysis else terminal.ROWS)
    if not results:
        out.print()
        terminal.print_line(out, f"  no analyses: {none} ('klogger sql' asks it anything)")


def as_json(head: Summary, results: list[Result]) -> dict[str, object]:
    return {
        "title": head.title,
        "summary": head.lines,
        "warnings": head.warnings,
        "findings": [dataclasses.asdict(f) for f in findings.first(results)],
        "analyses": [
            {
                "name": r.analysis.name, "schema": r.analysis.schema, "title": r.analysis.title,
                "question": r.analysis.question, "status": r.status, "reason": r.reason,
                "findings": r.findings, "weights": r.weights, "warnings": r.warnings,
                "notes": r.analysis.notes,
                "columns": {
                    n: {"unit": c.unit, "doc": c.doc} for n, c in r.analysis.columns.items()
                },
                "table": r.table.records(), "rows_left_out": r.table.left_out,
                "picture": r.points.records(),
            }
            for r in results
        ],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
