# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger report`: the answers to the questions that a log's schemata ask."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import klogger
from klogger import executor, extras, findings, general, remarks, screen, terminal, waterfall
from klogger.analysis import ON_PAGES, searched
from klogger.cli import Parser, Progress, add_common, fleet, guarded, output, private_as
from klogger.cli.pager import paged
from klogger.executor import Result
from klogger.failure import Failure
from klogger.log import Log
from klogger.outputs import write
from klogger.summary import Summary, event_counts, summary
from klogger.units import printable

if TYPE_CHECKING:
    from klogger.document import Part
    from klogger.drawing import Subjects


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger report",
        description="The answers to the questions that a log's schemata ask.",
        epilog="With --html or --png, the terminal has the findings and the names of the files;"
        " with --format as well, the report.",
    )
    found.add_argument(
        "file",
        metavar="FILE",
        help="a log, the directory that 'klogger export --to parquet' made, or a dataset",
    )
    found.add_argument(
        "--html", metavar="OUT", type=output, help="write one file that needs no network"
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
        "--all", action="store_true", help="all answers, not only those that fit on a screen"
    )
    found.add_argument(
        "--operation",
        metavar="N",
        action="append",
        default=[],
        help="draw what the time of this operation went to: its number, or 'slowest' (repeatable)",
    )
    found.add_argument(
        "--list", action="store_true", help="only list the analyses that this log can answer"
    )
    fleet.add_options(found)
    found.add_argument(
        "--format", choices=["text", "json"], help="what goes to the terminal (text)"
    )
    add_common(found, is_read=True)
    return found


def main(words: list[str] | None = None) -> int:
    args = parser().parse_intermixed_args(words)
    return guarded(lambda: report(args))


def draw_operations(args: argparse.Namespace) -> int:
    """Waterfalls, without the analyses."""
    private_as(args.file)
    log = klogger.open(args.file, quiet=False, locked=True)
    try:
        found = [waterfall.read(log, n) for n in waterfall.numbers_of(log, args.operation)]
        said = waterfall.prepare(log)
    finally:
        log.close()
    written = []
    if args.png:
        from klogger import png

        for one in found:
            path = args.png / f"operation-{one.id}.png"
            write(path, png.render(waterfall.as_result(one)) or b"")
            written.append(path)
    if args.format == "json":
        told = {"warnings": said, "operations": [one.as_json() for one in found]}
        json.dump(told, sys.stdout, ensure_ascii=sys.stdout.isatty(), indent=1)
        print()
        return 0
    with paged():
        terminal.print_waterfalls(terminal.console(sys.stdout), found, said, written)
    return 0


@dataclass
class Report:
    """What has been found, and the files that were written. `none`: where no analyses were."""

    head: Summary
    results: list[Result]
    written: list[Path]
    none: str


def report(args: argparse.Namespace) -> int:
    if fleet.is_asked(args):
        return fleet.report(args)
    if args.list:
        return list_analyses(args)
    if args.png:
        extras.PICTURES.check()
    if args.operation and not args.html:
        return draw_operations(args)
    done = make(args)
    if args.format == "json":
        json.dump(as_json(done), sys.stdout, ensure_ascii=sys.stdout.isatty(), indent=1)
        print()
    else:
        with paged():
            show(args, done)
    return 2 if any(r.status == "failed" for r in done.results) else 0


def list_analyses(args: argparse.Namespace) -> int:
    log = klogger.open(args.file, quiet=False, locked=True)
    try:
        chosen = executor.choose(log, args.analysis)
    finally:
        log.close()
    if args.format == "json":
        listed = [
            {"name": a.name, "schema": a.schema, "title": a.title, "question": a.question}
            for a in chosen
        ]
        print(json.dumps(listed, ensure_ascii=sys.stdout.isatty(), indent=1))
        return 0
    terminal.print_pairs(
        terminal.console(sys.stdout), [((a.name, "bold"), a.question) for a in chosen], gap=2
    )
    return 0


def make(args: argparse.Namespace) -> Report:
    """Runs the analyses and writes the files; prints nothing but its progress."""
    progress = Progress(after=1)
    private_as(args.file)
    log = klogger.open(args.file, quiet=False, locked=True)
    try:
        chosen = executor.choose(log, args.analysis)
        with progress, executor.Session(log) as session:
            results = session.run_all(chosen, progress)
            head = summary(log)
            written = write_files(args, session, head, results, progress)
            return Report(head, results, written, searched(log.schemas))
    finally:
        log.close()


def write_files(
    args: argparse.Namespace,
    session: executor.Session,
    head: Summary,
    results: list[Result],
    progress: Callable[[str], None],
) -> list[Path]:
    """What was written."""
    written = []
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
        parts, style = why_parts(args, log, progress)
        page = html.page(
            head, [*results, *operations(args, log)], event_counts(log), ledger(log), tracks,
            subjects(log), parts=parts, style=style,
        )  # fmt: skip
        write(args.html, page.encode(errors="replace"))
        written.append(args.html)
    if args.png:
        from klogger import png

        for result in results:
            progress(f"picture {result.analysis.name}")
            picture = png.render(result)
            if picture is not None:
                written.append(args.png / f"{result.analysis.name}.png")
                write(written[-1], picture)
        tell_undrawn(results)
    return written


def why_parts(
    args: argparse.Namespace, log: Log, progress: Callable[[str], None]
) -> tuple[list[Part], str]:
    """Where the time went, with its style, if the log can say and no analyses are chosen."""
    blocked = log.events.get("BLOCKED")
    if args.analysis or blocked is None or blocked.schema != "waits" or not blocked.logged:
        return [], ""
    from klogger.document import Part, warnings
    from klogger.why import answer, page
    from klogger.why.choice import Choice

    try:
        found = answer.of_log(log, Choice(pictured=True), progress)
    except Failure as wrong:
        return [Part("why-time", "Where the time went", warnings([str(wrong)]))], ""
    return page.for_report(found, str(args.file)), page.STYLE


def tell_undrawn(results: list[Result]) -> None:
    """Which pictures are for pages only."""
    names = [
        r.analysis.name
        for r in results
        if r.status == "answer" and r.analysis.picture and r.analysis.picture.kind in ON_PAGES
    ]
    if names:
        what = f"no picture of {', '.join(names)}: a flame graph is drawn on a page only"
        print(f"klogger: {what}\n  help: write one with --html FILE", file=sys.stderr)


def operations(args: argparse.Namespace, log: Log) -> list[Result]:
    """The waterfalls of a page: those that are asked for, else of the slowest operations."""
    if args.operation:
        chosen = waterfall.numbers_of(log, args.operation)
    elif any(schema.get("name") == waterfall.SCHEMA for schema in log.schemas):
        waterfall.prepare(log)
        chosen = waterfall.slowest(log, waterfall.SLOWEST_DRAWN)
    else:
        chosen = []
    return [waterfall.as_result(waterfall.read(log, number)) for number in chosen]


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


def show(args: argparse.Namespace, done: Report) -> None:
    """With files, only the head: the answers are in them."""
    out = terminal.console(sys.stdout)
    said = remarks.shared(done.results, done.head.warnings)

    def head() -> None:
        terminal.print_summary(out, done.head, said)
        terminal.print_findings(out, done.results)

    text = screen.captured(out, head)
    out.file.write(text)
    if args.format == "text" or not (args.html or args.png):
        show_answers(args, done, out, text.count("\n"), said)
    if all(general.is_one(result.analysis) for result in done.results):
        other = "other " if done.results else ""
        out.print()
        line = f"  no {other}analyses: {done.none} ('klogger sql' asks it anything)"
        terminal.print_line(out, line)
    if done.written:
        out.print()
    for path in done.written:
        terminal.print_path(out, f"wrote {path}")


def show_answers(
    args: argparse.Namespace,
    done: Report,
    out: terminal.Console,
    used: int,
    said: list[remarks.Remark],
) -> None:
    """`used`: the lines of the head; `said`: the warnings that it has."""
    asked = f"klogger report {shlex.quote(str(args.file))}"
    if not (args.all or args.analysis):
        return screen.print_screen(out, used, done.results, said, asked)
    whole = bool(args.analysis)
    for result in done.results:
        rows = None if whole else terminal.ROWS
        terminal.print_drawn(out, result, rows, said, notes=whole, asked=asked)


def as_json(done: Report) -> dict[str, object]:
    head, results = done.head, done.results
    return {
        "title": head.title,
        "summary": head.lines,
        "warnings": [
            {"text": r.text, "analyses": r.analyses} for r in remarks.shared(results, head.warnings)
        ],
        "ledger": head.ledger.as_json(),
        "findings": [dataclasses.asdict(f) for f in findings.first(results)],
        "written": [str(path) for path in done.written],
        "analyses": [r.as_json() for r in results],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
