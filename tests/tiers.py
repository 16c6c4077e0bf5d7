# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Which tests a run has (tests/README.md): those of the gate, those and the ones with the mark
`full(why)` (KLOGGER_FULL=1, as `make test-all` has it), or also the ones with the mark
`nightly(why)` (KLOGGER_SLOW=1, as scripts/nightly has it).

A test that can do more or less of the same asks `scaled`.
"""

import os
from pathlib import Path

SLOW = bool(os.environ.get("KLOGGER_SLOW"))
FULL = SLOW or bool(os.environ.get("KLOGGER_FULL"))
HOW = "'make nightly' or KLOGGER_SLOW=1"


def scaled(quick: int, slow: int) -> int:
    """How much of something: `slow` is for the night."""
    return slow if SLOW else quick


def are_named(arguments: list[str], folder: Path) -> bool:
    """Whether pytest was asked for files or tests, not for folders: then it runs those of the gate
    and the others.
    """
    files = [folder / argument.split("::", 1)[0] for argument in arguments]
    return bool(files) and all(file.is_file() for file in files)
