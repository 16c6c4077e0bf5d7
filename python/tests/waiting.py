# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Work of which a test knows when it is under way. Spark's workers import this, and little else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

WITHIN = 300.0


class Waiting:
    """Says in a folder that it has begun, and goes on when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str) -> str:
        (self.folder / f"began-{name}-{os.getpid()}").touch()
        end = time.monotonic() + WITHIN
        while not (self.folder / "go").exists() and time.monotonic() < end:
            time.sleep(0.05)
        return name.upper()


def let_go(folder: Path, processes: int, before: Callable[[], object] = lambda: None) -> None:
    """When work is under way in so many processes at one time, and `before` is done."""
    end = time.monotonic() + WITHIN
    while len(begun := {file.name.split("-")[2] for file in folder.glob("began-*")}) < processes:
        if time.monotonic() > end:
            raise AssertionError(f"work has begun in {len(begun)} processes of {processes}")
        time.sleep(0.05)
    before()
    (folder / "go").touch()
