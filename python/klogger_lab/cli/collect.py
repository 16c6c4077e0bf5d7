# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger collect`: records on several machines at one time, over ssh."""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import re
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from klogger import outputs
from klogger.cli import Parser, add_common, complain, guarded
from klogger.durations import duration
from klogger.failure import Failure
from klogger.program import klogger
from klogger.units import printable, size
from klogger_lab.cli import seconds, split
from klogger_lab.collect import merge
from klogger_lab.collect.collection import Collection
from klogger_lab.collect.host import Host, Plan

DIR = "collected"
USAGE = "klogger collect [OPTIONS] HOST... -- RECORD OPTIONS\n       klogger collect --merge DIR"
EPILOG = """\
examples:
  klogger collect web1 web2 -- -s scheduler -a --for 10s
                                                  two machines, logs in ./collected
  klogger collect root@db1 root@db2 --to run7 -- -s files -- make check
                                                  the same command on each
  klogger collect web1 web2 --to days -- -s io -a --segment 60s
                                                  until Ctrl-C; segments come as they are complete
  klogger collect --ssh=-p2222 --ssh=-C web1 -- -s io -a --for 1m
                                                  options for ssh
  klogger collect --merge run7 | less             events of all machines, in the order of time
  klogger collect --merge run7 --check 'SENT -> RECEIVED by id'
                                                  messages that came before they were sent

HOST is what ssh takes: a name of your ~/.ssh/config, USER@NAME. The user there must be able to
record, and to log in without a question. klogger must be installed there; nothing is left there.
RECORD OPTIONS are those of 'klogger record' but -o and --dir; schema files are the hosts' own.
Ctrl-C ends the recordings and brings the logs home; a second one gives up.

Exit code: 0; 1 if a host failed, or a message came too early by more than the error of the clocks;
2 if nothing could be done.
"""


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger collect",
        usage=USAGE,
        description="Record on several machines at one time, over ssh, and bring the logs home.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("hosts", metavar="HOST", nargs="*", help="a destination of ssh")
    found.add_argument(
        "--to", metavar="DIR", type=Path, default=Path(DIR),
        help=f"where the logs go, DIR/HOST/; it is made, or must be empty ({DIR})",
    )  # fmt: skip
    found.add_argument(
        "--dataset", metavar="DIR", help="add the logs to this dataset ('klogger dataset add')"
    )
    found.add_argument(
        "--ssh", metavar="OPTION", action="append", default=[],
        help="an option for ssh, as in --ssh=-p2222; may be repeated",
    )  # fmt: skip
    found.add_argument(
        "--klogger", metavar="PROGRAM", default="klogger", help="klogger on the hosts (klogger)"
    )
    found.add_argument(
        "--remote-dir", metavar="PATH", default="",
        help="where the hosts keep their logs meanwhile ($TMPDIR there, else /var/tmp)",
    )  # fmt: skip
    found.add_argument(
        "--grace", metavar="TIME", type=seconds, default=600.0,
        help="how long a host keeps its log after a lost connection (10m)",
    )  # fmt: skip
    found.add_argument(
        "--merge", metavar="DIR", type=Path,
        help="print the events of a collection, by clocks that are corrected",
    )  # fmt: skip
    found.add_argument(
        "--event", metavar="EVENT,...", help="with --merge: only these, as for 'klogger cat'"
    )
    found.add_argument(
        "--check", metavar="RULE",
        help="with --merge: count messages that came before they were sent, and print no events;"
        " 'SENT -> RECEIVED by id' names two events and the fields that they have in common",
    )  # fmt: skip
    found.add_argument(
        "--format", choices=["text", "json"], default="text",
        help="with --merge: json is an object for each event and line (text)",
    )  # fmt: skip
    add_common(found)
    return found


def main(words: list[str] | None = None) -> int:
    ours, options = split(words)
    args = parser().parse_args(ours)
    if args.merge:
        return guarded(lambda: show(args, options))
    return guarded(lambda: collect(args, options))


def collect(args: argparse.Namespace, options: list[str]) -> int:
    check(args, options)
    # A connection that is gone is an error of whoever writes to it.
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    plan = Plan(tuple(options), args.to, args.klogger, args.remote_dir, int(args.grace))
    with Collection(args.hosts, args.ssh, plan) as collection:
        from klogger import terminal

        with terminal.lines(sys.stderr) as draw:

            def told() -> None:
                tell(collection.notes)
                draw([f"{host.name}: {host.state}" for host in collection.hosts])

            collection.run(told)
    return summary(collection, args)


def check(args: argparse.Namespace, options: list[str]) -> None:
    if not args.hosts:
        raise Failure("no host to record on", help="klogger collect HOST... -- RECORD OPTIONS")
    if not options:
        raise Failure("what to record is not said", help="klogger collect HOST... -- -s SCHEMA -a")
    if args.check or args.event:
        raise Failure("--check and --event are for --merge", help="klogger collect --merge DIR ...")
    for number, host in enumerate(args.hosts):
        if not host or host.startswith("-") or any(c.isspace() for c in host):
            raise Failure(f"'{host}' is no host", help="as ssh takes it: NAME, or USER@NAME")
        if host in args.hosts[:number]:
            raise Failure(f"{host}: named twice")
    own = options[: options.index("--")] if "--" in options else options
    for word in own:
        if re.match("-o|--output|--dir", word):
            raise Failure(f"{word}: the hosts' own names are not asked for", help="--to DIR")
    try:
        outputs.folder(args.to, 0o700)
        full = any(args.to.iterdir())
    except OSError as error:
        raise Failure(f"cannot write to {args.to}: {error.strerror}") from None
    if full:
        raise Failure(f"{args.to}: the folder is not empty", help="--to names another one")


def tell(notes: queue.Queue[tuple[str, object]]) -> None:
    """A note is a text; what a recorded command wrote is a list."""
    while not notes.empty():
        host, said = notes.get()
        if isinstance(said, list):
            with contextlib.suppress(BrokenPipeError):
                print(printable(f"{host}: {said[0]}"), flush=True)
        else:
            complain(f"{host}: {said}")


def summary(collection: Collection, args: argparse.Namespace) -> int:
    failed = [host for host in collection.hosts if host.failure]
    if not collection.stops:
        # Whatever went wrong, a host without a log is never passed over.
        for host in collection.hosts:
            if not host.log and not host.failure:
                host.fail(Failure("it has no log"))
                failed.append(host)
    for host in collection.hosts:
        if host.log:
            complain(f"{host.name}: {recorded(host)}")
    for host in failed:
        assert host.failure
        complain(Failure(f"{host.name}: {host.failure.message}", help=host.failure.help))
    failed += [host for host in collection.hosts if host.log and not added(host, args.dataset)]
    spread = collection.spread_ns()
    if spread is not None:
        complain(
            f"the recordings began within {duration(spread)}; klogger collect --merge {args.to}"
        )
    if collection.stops and not any(host.log for host in collection.hosts):
        return 130
    return 1 if failed else 0


def added(host: Host, dataset: str | None) -> bool:
    """To the dataset, if there is one, which reads what was found of its clock."""
    if not dataset:
        return True
    label = f"collected_from={host.name}"
    try:
        klogger("dataset", "add", dataset, host.home / host.log_name, "--label", label)
    except Failure as failure:
        complain(Failure(f"{host.name}: not in {dataset}: {failure.message}", help=failure.help))
        return False
    return True


def recorded(host: Host) -> str:
    assert host.log
    now = host.plan.reference.now()
    offset = host.clock.realtime(now)
    ahead = offset and ("ahead" if offset.middle > 0 else "behind")
    clock = (
        f"its clock is {duration(abs(offset.middle))} {ahead}, ± {duration(offset.error)}"
        if offset else "its clock is not known"
    )  # fmt: skip
    return (
        f"{host.log['logged']:,} events, {host.log['lost']:,} lost, {size(host.log['bytes'])}"
        f" in {host.home}; {clock}"
    )


def show(args: argparse.Namespace, options: list[str]) -> int:
    if args.hosts or options:
        raise Failure("--merge takes a folder, and no hosts", help="klogger collect --merge DIR")
    found = merge.sources(args.merge)
    if args.check:
        answer = merge.Checker(found, merge.Rule.parse(args.check), complain).run()
        text = json.dumps(vars(answer)) if args.format == "json" else answer.text()
        print(f"{merge.head(found)}\n{text}" if args.format == "text" else text)
        return 1 if answer.beyond else 0
    words = ["--event", args.event] if args.event else []
    (print_json if args.format == "json" else print_text)(found, words)
    return 0


def print_json(found: list[merge.Source], words: list[str]) -> None:
    for event in merge.merged(found, ["--format", "json", *words], complain):
        row = {"host": found[event.host].host, "wall_ns": event.at_ns, **json.loads(event.text)}
        print(json.dumps(row))


def print_text(found: list[merge.Source], words: list[str]) -> None:
    print(printable(merge.head(found)))
    width = max(len(source.host) for source in found)
    for event in merge.merged(found, words, complain):
        when = datetime.fromtimestamp(event.at_ns // 10**9, UTC)
        host = found[event.host].host.ljust(width)
        print(printable(f"{when:%H:%M:%S}.{event.at_ns % 10**9:09} {host} {event.text}"))


if __name__ == "__main__":
    sys.exit(main())
