# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger report DIR --find outliers`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence

from klogger import terminal
from klogger.cli import complain, complain_of
from klogger.cli.pager import paged
from klogger.compare import outliers
from klogger.compare.outliers import VALUES_MIN, Found, Outlier
from klogger.compare.outliers_text import ID_LENGTH, conclusion, effect_of, head, sentence
from klogger.dataset import Dataset, Entry
from klogger.dataset.store import Local
from klogger.failure import Failure
from klogger.outputs import write

# Of a terminal.
LINES = 20
# Columns of an effect, and of what is below it.
EFFECT_WIDTH = 8


def report(
    args: argparse.Namespace,
    dataset: Dataset,
    entries: Sequence[Entry],
    progress: Callable[[str], None],
) -> int:
    found = outliers.find(dataset, entries, args.analysis, args.by, args.on or "here", progress)
    missing = {**found.damage, **dataset.unreadable}
    for note in found.notes:
        complain(f"note: {note}")
    complain_of(missing)
    if not found.tested:
        raise Failure(
            f"{args.file}: nothing can be compared: no value is there of {VALUES_MIN} hosts,"
            f" recordings, programs or CPUs ({len(found.entries):,} recordings)",
            help="add recordings, or compare more of them: without --only, with fewer --by",
        )
    if args.html:
        from klogger.compare.outliers_page import page

        commands = [command(dataset, found, one) for one in found.outliers]
        write(args.html, page(dataset.where, found, args.by, commands).encode(errors="replace"))
    if args.format == "json":
        told = as_json(dataset, found, missing, args.by)
        json.dump(told, sys.stdout, ensure_ascii=sys.stdout.isatty(), indent=1)
        print()
    else:
        with paged():
            show_all(dataset, found, args.by)
            if args.html:
                terminal.print_path(terminal.console(sys.stdout), f"wrote {args.html}")
    return 1 if missing else 0


def show_all(dataset: Dataset, found: Found, by: Sequence[str]) -> None:
    out = terminal.console(sys.stdout)
    terminal.print_line(out, (head(dataset.where, found), "bold"))
    for text in conclusion(found):
        terminal.print_texts(out, [(text, "")])
    for one in found.outliers[:LINES]:
        out.print()
        effect = effect_of(one).ljust(EFFECT_WIDTH)
        terminal.print_pairs(out, [((effect, "bold"), sentence(one, by))])
        terminal.print_path(out, " " * (EFFECT_WIDTH + 1) + command(dataset, found, one))
    if (rest := len(found.outliers) - LINES) > 0:
        out.print()
        terminal.print_line(out, (f"  and {rest:,} more: --format json has them", "dim"))


def command(dataset: Dataset, found: Found, one: Outlier) -> str:
    """To open the log; a shell completes the recording's id."""
    analysis = f" --analysis {one.analysis}" if one.schema else ""
    if not isinstance(dataset.store, Local):
        return f"recording {one.log}"
    logs = [e.log for e in found.entries]
    length = next(
        n for n in range(ID_LENGTH, 37) if sum(x.startswith(one.log[:n]) for x in logs) == 1
    )
    folder = shlex.quote(f"{dataset.where}/recordings/")
    return f"klogger report {folder}{one.log[:length]}*.json{analysis}"


def as_json(
    dataset: Dataset, found: Found, missing: Mapping[str, str], by: Sequence[str]
) -> dict[str, object]:
    names = {e.log: e.name for e in found.entries}
    listed = []
    for one in found.outliers:
        told = dataclasses.asdict(one) | {"file": f"{dataset.where}/{names[one.log]}"}
        told["group"] = dict(zip(by, one.group, strict=True))
        listed.append(told)
    return {
        "recordings": [e.log for e in found.entries],
        "left_out": missing,
        "tested": found.tested,
        "outliers": listed,
    }
