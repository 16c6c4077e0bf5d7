# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The programs `klogger-sql`, `klogger-report` and their like: one module for each.

**Invariant:** nothing outside this package prints or exits, but for the exporter's note of where
its tables are.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable

from klogger.export import Printed
from klogger.failure import Failure
from klogger.units import printable


def complain(what: object) -> None:
    """A message on the standard error. A log is untrusted, and its names must not act on the
    terminal.
    """
    print(
        "klogger: " + "\n".join(printable(line) for line in str(what).split("\n")), file=sys.stderr
    )


def private_as(*logs: str | os.PathLike[str]) -> None:
    """What this process writes from now on can be read only by users who can read these logs."""
    for log in logs:
        with contextlib.suppress(OSError):
            mode = os.stat(log).st_mode
            hidden = (0o070 if not mode & 0o040 else 0) | (0o007 if not mode & 0o004 else 0)
            os.umask(os.umask(0o077) | hidden)


def guarded(work: Callable[[], int]) -> int:
    """Runs a command: a Failure becomes one message and exit code 2."""
    # As other filters do: `klogger sql ... | head` ends without a word.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        return work()
    except Printed:
        return 2
    except Failure as failure:
        complain(failure)
        return 2
    except KeyboardInterrupt:
        return 130
