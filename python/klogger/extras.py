# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Libraries that few commands need, so that they are not installed with all others: the extras of
pyproject.toml.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import Any

from klogger.failure import Failure


@dataclass(frozen=True)
class Library:
    """`module`: what is imported; `extra`: what brings it; `use`: what needs it."""

    name: str
    module: str
    extra: str
    use: str

    def check(self) -> None:
        """Before work that would be lost."""
        if importlib.util.find_spec(self.module) is None:
            raise self.missing()

    def load(self) -> Any:
        self.check()
        return importlib.import_module(self.module)

    def missing(self) -> Failure:
        return Failure(
            f"{self.use} needs the Python library {self.name}",
            help=f"pip install 'klogger[{self.extra}]'",
        )


GUEST = Library("virtme-ng", "virtme", "lab", "a guest")
PICTURES = Library("vl-convert-python", "vl_convert", "png", "a picture as PNG or SVG")
SCRIPT = Library("vl-convert-python", "vl_convert", "png", "a page that is made in a checkout")
FRAMES = Library("pandas", "pandas", "pandas", "a DataFrame")
OUTLIERS = Library("pandas", "pandas", "pandas", "'--find outliers'")
