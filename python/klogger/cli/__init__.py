# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The programs `klogger-sql`, `klogger-report` and their like: one module for each.

**Invariant:** nothing outside this package prints or exits, but for the exporter's note of where its tables are.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from klogger.export import Printed
from klogger.failure import Failure


def guarded(work: Callable[[], int]) -> int:
    """Runs a command: a Failure becomes one message and exit code 2."""
    # As other filters do: `klogger sql ... | head` ends without a word.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        return work()
    except Printed:
        return 2
    except Failure as failure:
        print(f"klogger: {failure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
