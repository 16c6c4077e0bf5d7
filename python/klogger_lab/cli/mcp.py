# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`klogger mcp`: a server of the Model Context Protocol, for agents."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import signal
import sys
from pathlib import Path
from types import FrameType

from klogger.cli import Parser, add_common, guarded
from klogger.failure import Failure
from klogger_lab.mcp import allowed, schemata, tools

EPILOG = """\
examples:
  klogger mcp                 serve on standard input and output: an agent's
                              program runs it, as docs/mcp.md says
  klogger mcp --skill         when to use which schema, for the agent to read

Without a configuration, agents may read logs in the current folder, and record
nothing. The file ~/.config/klogger/mcp.toml allows more:

  read = ["~/logs"]

  [record]
  schemata = ["waits", "peers", "scheduler"]
  folder = "~/logs"
  seconds = 10
  bytes = "64M"
  pids = true
  commands = false
  all = false
"""


def parser() -> argparse.ArgumentParser:
    found = Parser(
        prog="klogger mcp",
        description="Answer the questions of agents about logs, and record what the user allows, by"
        " the Model Context Protocol.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument(
        "--skill", action="store_true", help="print when to use which schema, in one page"
    )
    found.add_argument(
        "--config", metavar="FILE", type=Path,
        help="what is allowed ($XDG_CONFIG_HOME/klogger/mcp.toml)",
    )  # fmt: skip
    add_common(found)
    return found


def main(words: list[str] | None = None) -> int:
    args = parser().parse_intermixed_args(words)
    return guarded(lambda: mcp(args))


def mcp(args: argparse.Namespace) -> int:
    if args.skill:
        print(schemata.skill(), end="")
        return 0
    if importlib.util.find_spec("mcp") is None:
        raise Failure("klogger mcp needs the package mcp", help="pip install 'klogger[mcp]'")
    from klogger_lab.mcp import server

    session = tools.Session(allowed.load(args.config))
    tools.limit_queries(session.allowed.query_seconds)

    def end(_number: int, _frame: FrameType | None) -> None:
        """A recording that goes on ends first."""
        session.ending.set()
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    server.serve(session, version(), schemata.SKILL)
    return 0


def version() -> str:
    """Empty in a source tree that nobody has installed."""
    try:
        return importlib.metadata.version("klogger")
    except importlib.metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
