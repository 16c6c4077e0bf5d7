# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A pager for what is longer than the terminal, as klogger's other commands have it
(crates/cli/src/terminal.rs).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def paged() -> Iterator[None]:
    """What is printed here goes to `$KLOGGER_PAGER`, else `$PAGER`, else less, if the standard
    output is a terminal that can show one. The names `cat` and nothing are no pager.
    """
    environment = os.environ
    pager = environment.get("KLOGGER_PAGER", environment.get("PAGER", "less"))
    is_dumb = environment.get("TERM", "dumb") == "dumb"
    if not sys.stdout.isatty() or is_dumb or pager in ("", "cat"):
        yield
        return
    # Known only as long as the output is the terminal itself.
    width = shutil.get_terminal_size().columns
    # As git does: less shows a short text and ends, and leaves the terminal as it is.
    shown = subprocess.Popen(
        ["sh", "-c", pager], stdin=subprocess.PIPE, env={"LESS": "FRX", **environment}
    )
    assert shown.stdin is not None
    sys.stdout.flush()
    terminal = os.dup(1)
    os.dup2(shown.stdin.fileno(), 1)
    shown.stdin.close()
    before = {name: environment.get(name) for name in ("COLUMNS", "FORCE_COLOR")}
    environment.update(COLUMNS=str(width), FORCE_COLOR="1")
    # Ctrl-C is meant for the pager.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os.dup2(terminal, 1)
        os.close(terminal)
        shown.wait()
        signal.signal(signal.SIGINT, handler)
        for name, value in before.items():
            environment.pop(name)
            if value is not None:
                environment[name] = value
