# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger dataset`: the tables of many logs in one folder, or in an S3-like store."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from klogger import dataset as datasets
from klogger import opening, terminal
from klogger.cli import Parser, Progress, add_common, complain, guarded
from klogger.cli.pager import paged
from klogger.dataset import Dataset, Entry, checks, compact, named
from klogger.dataset.write import check_label
from klogger.durations import duration
from klogger.failure import Failure
from klogger.units import size

ACTIONS = ("add", "list", "remove", "compact", "check")
EPILOG = """\
examples:
  klogger dataset add runs x.klog y.klog --label build=1234
  klogger dataset list runs
  klogger dataset remove runs 2894a30b         a recording, by the beginning of its id
  klogger dataset check runs                   damage, and what differs between the recordings
  klogger dataset compact runs                 fewer and larger files
  klogger report runs --by label.build         the analyses over all recordings
  klogger report runs/recordings/2894a30b-5144-5420-ac9e-6ef52ab14d00.json      one of them

DIR is a folder, or an address such as s3://BUCKET/PATH (pip install 'klogger[s3]'). A log that is
added twice is there once. docs/datasets.md describes the files.

exit code: 0; 1 if 'check' finds damage, or if some of several logs could not be added; 2 if
something could not be done.
"""


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger dataset",
        usage="klogger dataset add DIR LOG... [--label NAME=VALUE]...\n"
        "       klogger dataset {list,check,compact} DIR\n"
        "       klogger dataset remove DIR RECORDING...",
        description="Keep the tables of many logs together, for reports and queries over all of"
        " them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("action", metavar="ACTION", choices=ACTIONS, help="what is to be done")
    found.add_argument("dir", metavar="DIR", help="the dataset; 'add' makes it")
    found.add_argument(
        "names", metavar="LOG", nargs="*", help="logs to add, or recordings to remove"
    )
    found.add_argument(
        "--label", metavar="NAME=VALUE", action="append", default=[],
        help="of the logs that are added: what reports can group them by (repeatable)",
    )  # fmt: skip
    found.add_argument(
        "--format", choices=["text", "json"], help="what 'list' and 'check' print (text)"
    )
    add_common(found, is_read=True)
    return found


def main(words: list[str] | None = None) -> int:
    args = parser().parse_intermixed_args(words)
    return guarded(lambda: run(args))


def run(args: argparse.Namespace) -> int:
    takes = args.action in ("add", "remove")
    if bool(args.names) != takes:
        what = f"'klogger dataset {args.action}'"
        raise Failure(f"{what} needs {'something to ' + args.action if takes else 'only DIR'}")
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "add": add, "list": listed, "remove": remove, "compact": compacted, "check": check,
    }  # fmt: skip
    return actions[args.action](args)


def add(args: argparse.Namespace) -> int:
    """Each log by itself: those that cannot be added are named, and the rest is."""
    labels = dict(check_label(text) for text in args.label)
    into = datasets.open(args.dir, create=True)
    failed = 0
    out = terminal.console(sys.stdout)
    with Progress(after=1) as progress:
        for name in args.names:
            progress(name)
            try:
                done = into.add(name, labels)
            except Failure as failure:
                if len(args.names) == 1:
                    raise
                progress.clear()
                complain(failure)
                failed += 1
                continue
            progress.clear()
            what = "added" if done.new else "is there already:"
            terminal.print_path(out, f"{what} {done.entry.log} ({done.entry.host}, {name})")
            for text in done.said:
                complain(f"warning: {name}: {text}")
    return 1 if failed else 0


def readable(dataset: Dataset) -> list[Entry]:
    """All recordings. Those whose entries cannot be read are named."""
    found = dataset.entries()
    for what in dataset.unreadable.values():
        complain(f"warning: {what}")
    return found


def listed(args: argparse.Namespace) -> int:
    entries = readable(datasets.open(args.dir))
    if args.format == "json":
        left = ("events", "tables", "derived", "meta", "format", opening.NAME)
        shown = [{k: v for k, v in e.said.items() if k not in left} for e in entries]
        print(json.dumps(shown, ensure_ascii=sys.stdout.isatty(), indent=1))
        return 0
    names = ["recording", "host", "began", "took", "events", "lost", "labels", "command"]
    out = terminal.console(sys.stdout)
    with paged():
        terminal.print_rows(out, names, [row(e) for e in entries], [False] * len(names))
        stored = sum(p.bytes for p in {p.path: p for e in entries for p in e.parts}.values())
        events = sum(e.said["events_logged"] for e in entries)
        out.print(f"{len(entries):,} recordings, {events:,} events, {size(stored)}")
    return 0


def row(entry: Entry) -> tuple[str, ...]:
    said = entry.said
    start, end = said["from_wall_ns"], said["to_wall_ns"]
    return (
        entry.log[:8], entry.host, checks.moment(start) if start is not None else "not known",
        duration(end - start) if start is not None else "", f"{said['events_logged']:,}",
        f"{said['lost']:,}", datasets.said(entry.labels), str(said["command"])[:40],
    )  # fmt: skip


def remove(args: argparse.Namespace) -> int:
    dataset = datasets.open(args.dir)
    entries = dataset.entries()
    for found in [named(entries, name) for name in args.names]:
        dataset.remove(found)
        print(f"removed {found.log}")
    return 0


def compacted(args: argparse.Namespace) -> int:
    done = compact.compact(datasets.open(args.dir))
    print(f"{done.before:,} files are {done.packs:,} now; {done.stray:,} of no recording removed")
    return 0


def check(args: argparse.Namespace) -> int:
    dataset = datasets.open(args.dir)
    found = checks.check(dataset)
    if args.format == "json":
        said = {"damage": found.damage, "remarks": found.remarks, "stray": found.stray}
        print(json.dumps(said, ensure_ascii=sys.stdout.isatty(), indent=1))
        return 1 if found.damage else 0
    out = terminal.console(sys.stdout)
    for kind, lines in (("damaged", found.damage), ("note", found.remarks)):
        for line in lines:
            terminal.print_path(out, f"{kind}: {line}")
    if found.stray:
        out.print(
            f"{len(found.stray):,} files belong to no recording, for instance {found.stray[0]}:"
            " a recording is being added, or a writer was killed; 'klogger dataset compact'"
            " removes what the latter left"
        )
    out.print(f"{len(dataset.entries()):,} recordings; {len(found.damage) or 'no'} damaged files")
    return 1 if found.damage else 0


if __name__ == "__main__":
    sys.exit(main())
