# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Finds the studies: `schemata/SCHEMA/studies/NAME.py`, wherever there are schemata. A study is
loaded by its path.
"""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from klogger.analysis import schemata
from klogger.failure import Failure, did_you_mean
from klogger_lab.study.model import Study


@dataclass(frozen=True)
class Found:
    """A study, and the file that it is from; its programs stand beside it."""

    study: Study
    path: Path

    @property
    def schema(self) -> str:
        return self.path.parents[1].name


def files() -> dict[str, Path]:
    """The file of each study by name. As with schemata, the place that is named first wins."""
    found: dict[str, Path] = {}
    for base in schemata():
        for path in sorted(base.glob("*/studies/*.py")):
            if re.fullmatch(r"[a-z][a-z0-9_-]*", path.stem):
                found.setdefault(path.stem, path.absolute())
    return dict(sorted(found.items()))


def find(name: str) -> Found:
    """The study of this name. Files of others may be broken."""
    known = files()
    if name not in known:
        listed = f"there are: {', '.join(known)}" if known else "no schema brings any"
        raise Failure(f"there is no study '{name}'", help=did_you_mean(name, known) or listed)
    return load(known[name])


def load(path: Path) -> Found:
    """Raises a Failure that says what is wrong with the file, and where."""
    try:
        module = imported(path)
    except Failure:
        raise
    except Exception as error:
        raise Failure(
            f"{path}: {place(error, path.parent)}", help="docs/studies.md says what a study is"
        ) from None
    study = getattr(module, "STUDY", None)
    if not isinstance(study, Study):
        raise Failure(f"{path}: sets no STUDY", help="docs/studies.md says what a study is")
    if study.name != path.stem:
        raise Failure(
            f"{path}: the study calls itself '{study.name}'",
            help=f"name it '{path.stem}', as its file",
        )
    return Found(study, path)


def imported(path: Path) -> ModuleType:
    """The folder becomes a package, so that a study may share code with its neighbours: `from .
    import _players`.
    """
    package = f"klogger_studies_{abs(hash(path.parent)):x}"
    if package not in sys.modules:
        module = ModuleType(package)
        module.__path__ = [str(path.parent)]
        sys.modules[package] = module
    before = sys.dont_write_bytecode
    # The folder may belong to root, or be in a package's file list.
    sys.dont_write_bytecode = True
    try:
        importlib.invalidate_caches()
        return importlib.import_module(f"{package}.{path.stem}")
    finally:
        sys.dont_write_bytecode = before


def place(error: BaseException, folder: Path) -> str:
    """`line 12: KeyError: 'x'`: the last line of a study's file that the error came through."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).parent == folder:
            return f"{Path(frame.filename).name}, line {frame.lineno}: {text}"
    return text
