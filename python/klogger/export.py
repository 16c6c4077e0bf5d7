# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From a log to its directory of Parquet files, by way of `klogger export`, which also
checks whether they are up to date.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

from klogger import outputs
from klogger.failure import Failure
from klogger.program import JSON, cannot_run, find_klogger, said

SUFFIX = "-parquet"
# Of a name in a message.
NAME_MAX = 200
SEGMENT = re.compile(r"segment-[0-9]{6,}\.klog")


def tables_of(path: str | os.PathLike[str], *, quiet: bool = True) -> Path:
    """The directory of Parquet files of a log, which may be a folder of segments; made or refreshed
    if need be. A directory of Parquet files is taken as it is.

    `quiet`: errors of the exporter are raised, not printed, and it shows no progress.
    """
    log = Path(path)
    # Those of Path raise an error if the name is too long, as that of a query in its place is.
    if os.path.isdir(log):
        if (log / "meta.json").is_file():
            return log
        if not has_segments(log):
            raise Failure(
                f"{log}: a directory, but neither one that 'klogger export --to parquet' made nor"
                " one with the segments of a recording"
            )
        if log.name in ("", ".."):
            log = log.resolve()
    if not os.path.exists(log):
        name = str(log) if len(str(log)) <= NAME_MAX else f"{str(log)[:NAME_MAX]}..."
        raise Failure(f"{name}: no such file", help="'klogger record' makes logs")
    if not os.access(log, os.R_OK):
        raise Failure(f"{log}: permission denied", help="check its owner and mode, or use sudo")
    return made_beside(log, quiet=quiet) or made_elsewhere(log, quiet=quiet)


def made_beside(log: Path, *, quiet: bool) -> Path | None:
    """None: its folder cannot be written, or has tables that somebody else has made."""
    beside = log.with_name(log.name + SUFFIX)
    can_write = os.access(log.parent, os.W_OK)
    if strange(beside) or not (beside.exists() or can_write):
        return None
    failure = export(log, None, quiet=quiet)
    if failure is None and (why := strange(beside)):
        raise Failure(f"{beside}: {why}")
    if failure is not None and can_write:
        raise failure
    return beside if failure is None else None


def made_elsewhere(log: Path, *, quiet: bool) -> Path:
    elsewhere = cache_directory(log)
    if not quiet:
        beside = log.with_name(log.name + SUFFIX)
        why = strange(beside)
        place = f"{beside}: {why}" if why else f"{log.parent}: cannot write there"
        print(f"klogger: {place}; its tables are kept in {elsewhere}", file=sys.stderr)
    failure = export(log, elsewhere, quiet=quiet)
    if failure is not None:
        raise failure
    return elsewhere


def strange(beside: Path) -> str:
    """Why the tables beside a log are not believed: somebody else may have made them."""
    if not os.path.lexists(beside):
        return ""
    try:
        return outputs.foreign(beside)
    except OSError as error:
        return f"{error.strerror}"


def has_segments(folder: Path) -> bool:
    """Whether `klogger record --segment` may have made it."""
    try:
        return any(SEGMENT.fullmatch(name) for name in os.listdir(folder))
    except OSError as error:
        raise Failure(f"{folder}: {error.strerror}", help="check its owner and mode") from None


def export(log: Path, out: Path | None, *, quiet: bool) -> Failure | None:
    """Runs `klogger export --to parquet`. A progress bar of it passes through to the terminal."""
    command: list[str | os.PathLike[str]] = [
        find_klogger(),
        "export",
        "--to",
        "parquet",
        log.absolute(),
    ]
    if out is not None:
        outputs.own_folder(out.parent)
        command += ["-o", out]
    show = not quiet and sys.stderr.isatty()
    try:
        done = subprocess.run(
            command if show else [*command, *JSON],
            stdout=subprocess.DEVNULL,
            stderr=None if show else subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        return cannot_run(str(command[0]), error)
    if show:
        return None if done.returncode == 0 else Printed()
    found = said((done.stderr or b"").decode(errors="replace"))
    if done.returncode != 0:
        return found.failure(f"'klogger export' failed with exit code {done.returncode}")
    if not quiet:
        # What of the log could not be read, for instance.
        for line in [*(f"klogger: {note['text']}" for note in found.of("note")), *found.others]:
            print(line, file=sys.stderr)
    return None


class Printed(Failure):
    """The exporter has printed the error already."""

    def __init__(self) -> None:
        super().__init__("'klogger export' failed")


def cache_directory(log: Path) -> Path:
    """Where the tables go if the log's own directory cannot be written."""
    digest = hashlib.sha256(os.fsencode(log.resolve())).hexdigest()[:12]
    return cache_home() / f"{log.name}-{digest}{SUFFIX}"


def cache_home() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "klogger"
