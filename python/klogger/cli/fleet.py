# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The commands `report`, `sql` and `compare`, when they are given a dataset instead of a log."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from klogger import dataset as datasets
from klogger import executors, extras, terminal
from klogger.cli import Progress, complain, complain_of
from klogger.cli.pager import paged
from klogger.dataset import Dataset, Entry, checks, query, sample
from klogger.dataset.fleet import Fleet, answers
from klogger.dataset.store import Local
from klogger.durations import duration
from klogger.executors import Executor
from klogger.failure import Failure
from klogger.log import Log
from klogger.outputs import write

# Of each analysis, while others are worked on.
FIRST_ROWS = 3
GROUPS = re.compile(r"host|kernel|command|recording|label\.[\w.-]+")


def add_options(found: argparse.ArgumentParser) -> None:
    """Those that only datasets have."""
    found.add_argument(
        "--by", metavar="GROUPS", type=groups, default=[],
        help="of a dataset: an answer for each host, kernel, command, recording or label.NAME, or"
        " for several of these with commas between them",
    )  # fmt: skip
    found.add_argument(
        "--only", metavar="NAME=VALUE", type=condition, action="append", default=[],
        help="of a dataset: the recordings with this label, host or kernel (repeatable)",
    )  # fmt: skip
    found.add_argument(
        "--on", metavar="EXECUTOR",
        help=f"of a dataset: where the recordings are worked on: {executors.ON} (here)",
    )  # fmt: skip
    found.add_argument(
        "--find", choices=["outliers"],
        help="of a dataset: the hosts, recordings, programs and CPUs that are not like their peers;"
        " with --by, peers are of the same group",
    )  # fmt: skip


def groups(text: str) -> list[str]:
    found = [word.strip() for word in text.split(",")]
    for word in found:
        if not GROUPS.fullmatch(word):
            raise argparse.ArgumentTypeError(
                f"'{word}' is none of host, kernel, command, recording, label.NAME"
            )
    return list(dict.fromkeys(found))


def condition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form NAME=VALUE")
    return name.removeprefix("label."), value


def is_asked(args: argparse.Namespace) -> bool:
    """Whether a report is of a dataset."""
    if datasets.is_dataset(args.file):
        return True
    if args.by or args.only or args.on or args.find:
        raise Failure(f"--by, --only, --on and --find are for a dataset, and {args.file} is none")
    return False


def chosen(dataset: Dataset, conditions: Sequence[tuple[str, str]]) -> list[Entry]:
    """The recordings that are asked for. There are some."""
    entries = dataset.entries()
    if not entries and dataset.unreadable:
        first = min(dataset.unreadable.values())
        raise Failure(
            f"{dataset.where}: no recording can be read: {first}",
            help=f"'klogger dataset check {dataset.where}' names all that is damaged",
        )
    if not entries:
        raise Failure(f"{dataset.where}: the dataset is empty", "'klogger dataset add' fills it")
    found = [e for e in entries if datasets.match(e, dict(conditions))]
    if not found:
        asked = " ".join(f"{name}={value}" for name, value in conditions)
        labels = sorted({f"{n}={v}" for e in entries for n, v in e.labels.items()})
        raise Failure(
            f"{dataset.where}: no recording has {asked}",
            help=f"there are: {', '.join(labels[:12])}"
            if labels
            else "the recordings have no labels",
        )
    return found


is_dataset = datasets.is_dataset


@contextlib.contextmanager
def opened(where: str, *, locked: bool, writable: Sequence[Path]) -> Iterator[Log]:
    """All recordings of a dataset, for `klogger sql`."""
    dataset, entries = all_of(where)
    with query.opened(dataset, entries, locked=locked, writable=writable) as log:
        yield log


def all_of(where: str) -> tuple[Dataset, list[Entry]]:
    """With what must be known about them."""
    dataset = datasets.open(where)
    entries = chosen(dataset, [])
    for what in dataset.unreadable.values():
        complain(f"warning: {what}")
    for line in (*checks.differences(entries), *checks.derived(entries)):
        complain(f"note: {line}")
    return dataset, entries


def of_spark(where: str, on: str, text: str, limit: int | None) -> Any:
    """For `klogger sql --on`: the answer to a query, as a table of Arrow, or its first rows."""
    from klogger.dataset import sparksql
    from klogger.executors.spark import spark

    if not executors.is_spark(on):
        raise Failure(f"--on {on}: not a Spark", help="it is local[N] or spark://HOST:PORT")
    dataset, entries = all_of(where)
    with sparksql.files(dataset, entries, on) as root, spark(on) as found:
        return found.ask(lambda session: sparksql.ask(session, entries, root, text, limit))


def between(where: str, sides: Sequence[str]) -> tuple[list[str], list[str]]:
    """The recordings of each side of a comparison, for `klogger compare`."""
    dataset = datasets.open(where)
    store = dataset.store
    if not isinstance(store, Local):
        raise Failure(f"{where}: only a dataset in a folder can be compared")
    found = []
    for side in sides:
        try:
            wanted = [condition(word) for word in side.split(",")]
        except argparse.ArgumentTypeError as error:
            raise Failure(f"--between: {error}") from None
        found.append([str(store.folder / e.name) for e in chosen(dataset, wanted)])
    both = set(found[0]) & set(found[1])
    if both:
        raise Failure(f"--between: {len(both)} recordings are on both sides")
    return found[0], found[1]


def report(args: argparse.Namespace) -> int:
    if args.png or args.at or args.list or args.operation:
        raise Failure(
            "--png, --at, --list and --operation are for one recording",
            help=f"klogger report {args.file}/recordings/UUID.json --png OUT",
        )
    if args.find:
        extras.OUTLIERS.check()
    dataset = datasets.open(args.file)
    if args.find:
        # It loads pandas, which takes as long as a small report.
        from klogger.cli import outliers

        entries = chosen(dataset, args.only)
        check_labels(args.by, entries)
        with Progress(after=1) as progress:
            return outliers.report(args, dataset, entries, progress)
    with Progress(after=1) as progress:
        found = asked(args, dataset, progress)
    missing = {**found.damage, **dataset.unreadable}
    differences = checks.differences(found.entries)
    if args.html:
        write_page(args, found, [*missing.values(), *differences])
    if args.format == "json":
        told = as_json(found, missing, differences)
        json.dump(told, sys.stdout, ensure_ascii=sys.stdout.isatty(), indent=1)
        print()
    else:
        with paged():
            show(args, found, differences)
    for note in found.notes:
        complain(f"note: {note}")
    complain_of(missing)
    if any(r.status == "failed" for r in found.results):
        return 2
    return 1 if missing else 0


def asked(args: argparse.Namespace, dataset: Dataset, progress: Progress) -> Fleet:
    """The answers; who waits at a terminal is shown the first rows, once."""
    name = args.on or "here"
    on: str | Executor = name
    waits = args.format != "json" and sys.stderr.isatty()
    with contextlib.ExitStack() as stack:
        some = sample.entries_of(dataset, dict(args.only)) if waits else []
        # A label that they do not have may be wrong, which only all recordings tell.
        some = [] if unknown_label(args.by, some) else some
        if some:
            on = stack.enter_context(executors.chosen(name))
            total = None if args.only else len(dataset.logs())
            show_first = provisional(total, progress)
            sample.show(dataset, some, args.analysis, args.by, on, show_first)
        progress("reading what each recording has")
        entries = chosen(dataset, args.only)
        check_labels(args.by, entries)
        first = provisional(len(entries), progress) if waits and not some else None
        return answers(dataset, entries, args.analysis, args.by, on, progress, first)


def provisional(total: int | None, progress: Progress) -> Callable[[Fleet], None]:
    """Shows the first rows; what is asked for comes later. `total`: of how many recordings, if that
    is known.
    """

    def show(found: Fleet) -> None:
        progress.clear()
        out = terminal.console(sys.stderr)
        count = f"{len(found.entries):,}{f' of {total:,}' if total else ''} recordings"
        terminal.print_line(out, (f"Provisional, of {count}; the others follow.", "bold yellow"))
        for result in found.results:
            if result.status == "answer":
                terminal.print_result(out, result, FIRST_ROWS)
        out.print()

    return show


def write_page(args: argparse.Namespace, found: Fleet, said: Sequence[str]) -> None:
    from klogger.dataset.page import page

    groups = [f"for each {' and '.join(args.by)}"] if args.by else []
    lines = [head(found.entries), *groups]
    write(args.html, page(args.file, lines, said, found.results).encode(errors="replace"))


def labels_of(entries: Sequence[Entry]) -> list[str]:
    return sorted({name for e in entries for name in e.labels})


def unknown_label(by: Sequence[str], entries: Sequence[Entry]) -> str:
    """The first that none of these has; empty: there is none."""
    names = (word.removeprefix("label.") for word in by if word.startswith("label."))
    known = set(labels_of(entries))
    return next((name for name in names if name not in known), "")


def check_labels(by: Sequence[str], entries: Sequence[Entry]) -> None:
    if name := unknown_label(by, entries):
        known = labels_of(entries)
        listed = f"there are: {', '.join(known)}" if known else "no recording has any"
        raise Failure(f"no recording has a label '{name}'", help=listed)


def show(args: argparse.Namespace, found: Fleet, differences: Sequence[str]) -> None:
    out = terminal.console(sys.stdout)
    terminal.print_line(out, (f"{args.file}: {head(found.entries)}", "bold"))
    for line in differences:
        terminal.print_line(out, f"  {line}")
    if args.format == "text" or not args.html:
        for result in found.results:
            terminal.print_result(out, result, None if args.analysis else terminal.ROWS)
    if args.html:
        terminal.print_path(out, f"wrote {args.html}")


def head(entries: Sequence[Entry]) -> str:
    hosts, events = {e.host for e in entries}, sum(e.said["events_logged"] for e in entries)
    lost, labels = sum(e.said["lost"] for e in entries), len(entries)
    took = sum(
        e.said["to_wall_ns"] - e.said["from_wall_ns"]
        for e in entries
        if e.said["from_wall_ns"] is not None
    )
    return (
        f"{labels:,} recordings of {len(hosts):,} hosts, {duration(took)} together,"
        f" {events:,} events, {f'{lost:,}' if lost else 'none'} missing"
    )


def as_json(found: Fleet, missing: dict[str, str], differences: Sequence[str]) -> dict[str, object]:
    return {
        "recordings": [e.log for e in found.entries],
        "left_out": missing,
        "differences": differences,
        "analyses": [r.as_json() for r in found.results],
    }
