# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger study`: an experiment of the KLogger paper, repeated on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from klogger import extras, terminal
from klogger.cli import Parser, Progress, add_common, complain, guarded, output
from klogger.failure import Failure
from klogger.outputs import write
from klogger_lab.cli import check_writable, interruptible, seconds
from klogger_lab.machine import Machine, machine
from klogger_lab.study import abilities, discover, runner, text
from klogger_lab.study.discover import Found
from klogger_lab.study.runner import Done

EPILOG = """\
examples:
  klogger study                              the studies there are
  klogger study quanta                       run one; the answer goes to the terminal
  klogger study quanta --budget 20s          in less time, with less to see
  klogger study locks --html locks.html      with pictures, in one file that needs no network
  klogger study locks --keep logs/           the logs stay in logs/locks/, for sql and report
  klogger study all --budget 5m              all of them, one after the other

Exit code: 0 all checks hold; 1 a check failed, so do not trust that study; 2 it could not be run.
"""


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger study",
        description="An experiment of the KLogger paper, repeated on this machine: its workload,"
        " recorded and analysed, with the paper's numbers beside today's.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "name", metavar="NAME", nargs="?", help="the study, or 'all'; without one, they are listed"
    )
    found.add_argument(
        "--list", action="store_true", help="only list the studies, and what they need"
    )
    found.add_argument(
        "--budget",
        metavar="TIME",
        type=seconds,
        help="how long all of it may take, with recordings and analysis: 30s, 5m, 1h",
    )
    found.add_argument(
        "--html", metavar="OUT", type=output, help="write one file that needs no network"
    )
    found.add_argument("--png", metavar="DIR", type=Path, help="write one picture for each figure")
    found.add_argument(
        "--format", choices=["text", "json"], help="what goes to the terminal (text)"
    )
    found.add_argument("--keep", metavar="DIR", type=Path, help="keep the logs there")
    found.add_argument(
        "--seed", metavar="N", type=int, default=1, help="for what a study draws by lot (1)"
    )
    found.add_argument(
        "--set", dest="settings", metavar="PARAMETER=VALUE", action="append", default=[],
        help="a parameter of a schema, for each recording of the study; may be repeated",
    )  # fmt: skip
    add_common(found)
    return found


def main(words: list[str] | None = None) -> int:
    args = parser().parse_intermixed_args(words)
    return guarded(lambda: interruptible(lambda: study(args)))


def study(args: argparse.Namespace) -> int:
    if args.list or args.name is None:
        return list_studies(args.format)
    chosen, broken = choose(args.name)
    budgets = runner.shares(chosen, args.budget)
    check_writable(args.html.absolute().parent if args.html else None, args.png)
    if args.png:
        extras.PICTURES.check()
    runner.root()
    here = machine()
    # An answer is shown as soon as it is there: the next one may take minutes.
    out = terminal.console(sys.stdout) if args.format != "json" else None
    all_done = []
    for found, budget in zip(chosen, budgets, strict=True):
        done = run_one(args, found, here, budget, alone=args.name != "all")
        all_done.append(done)
        if out is not None:
            text.print_done(out, done, here)
            sys.stdout.flush()
    written = write_files(args, all_done, here)
    if args.format == "json":
        from klogger_lab.study import page

        print(json.dumps(page.as_json(all_done, here), ensure_ascii=sys.stdout.isatty(), indent=1))
    else:
        for path in written:
            print(f"wrote {path}")
    return exit_code(all_done, broken)


def run_one(
    args: argparse.Namespace, found: Found, here: Machine, budget: float, *, alone: bool
) -> Done:
    """Of several studies, one that fails does not end the others."""
    with Progress(found.study.name) as status:
        try:
            return runner.run(found, here, budget, args.keep, args.seed, args.settings, status)
        except Failure as failure:
            if alone:
                raise
            return Done(found, budget, failure=failure)


def write_files(args: argparse.Namespace, all_done: list[Done], here: Machine) -> list[Path]:
    """What was written."""
    written = []
    if args.html and all_done:
        from klogger_lab.study import page

        write(args.html, page.page(all_done, here).encode(errors="replace"))
        written.append(args.html)
    if args.png:
        from klogger import png

        for done in all_done:
            for result in done.answer.results:
                picture = png.render(result)
                if picture is not None:
                    written.append(args.png / f"{done.found.study.name}-{result.analysis.name}.png")
                    write(written[-1], picture)
    return written


def exit_code(all_done: list[Done], broken: int) -> int:
    if broken or any(done.failure for done in all_done):
        return 2
    return 1 if any(done.failed_checks for done in all_done) else 0


def choose(name: str) -> tuple[list[Found], int]:
    """The studies to run, and how many cannot be loaded, which is said here."""
    if name != "all":
        return [discover.find(name)], 0
    chosen, broken = discover_all()
    if not chosen and not broken:
        raise Failure("no schema brings any studies")
    for failure in broken:
        complain(failure)
    return chosen, len(broken)


def discover_all() -> tuple[list[Found], list[Failure]]:
    chosen, broken = [], []
    for path in discover.files().values():
        try:
            chosen.append(discover.load(path))
        except Failure as failure:
            broken.append(failure)
    return chosen, broken


def list_studies(form: str | None) -> int:
    chosen, broken = discover_all()
    here = machine()
    able = {found.study.name: abilities.sentences(found) for found in chosen}
    if form == "json":
        print(
            json.dumps(
                [as_json(found, able[found.study.name]) for found in chosen],
                ensure_ascii=sys.stdout.isatty(),
                indent=1,
            )
        )
    else:
        text.print_list(terminal.console(sys.stdout), chosen, able, here)
    for failure in broken:
        complain(failure)
    return 2 if broken else 0


def as_json(found: Found, able: list[str]) -> dict[str, object]:
    one = found.study
    return {
        "name": one.name, "schema": found.schema, "title": one.title, "question": one.question,
        "paper": one.paper, "found": one.found, "seconds": one.seconds,
        "least_seconds": one.least_seconds, "here": able,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
