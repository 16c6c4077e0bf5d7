# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The compilers of C that klogger knows, as its own list has them: the best first."""

import shutil
from pathlib import Path

LIST = Path(__file__).resolve().parent.parent / "crates" / "toolchain" / "src" / "compilers.txt"
NAMES = LIST.read_text().split()
# A program of this name on the PATH is what klogger compiles with.
BEST = NAMES[0]


def clang() -> str | None:
    """The best that is here."""
    return next(filter(shutil.which, NAMES), None)


def clangxx() -> str | None:
    """The same for C++."""
    return next(filter(shutil.which, (name.replace("clang", "clang++") for name in NAMES)), None)
