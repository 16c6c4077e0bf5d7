# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whether this run has the time of a night: KLOGGER_SLOW=1, as scripts/nightly has it.

A test that is for the night alone has the mark `nightly(why)`; one that can do more or less of the
same asks `scaled`.
"""

import os

SLOW = bool(os.environ.get("KLOGGER_SLOW"))
HOW = "'make nightly' or KLOGGER_SLOW=1"


def scaled(quick: int, slow: int) -> int:
    """How much of something: `slow` is for the night."""
    return slow if SLOW else quick
