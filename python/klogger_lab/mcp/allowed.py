# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What agents may do, by a file of the user: docs/mcp.md describes it. Without the file they may
read logs in the current folder, and record nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from klogger import outputs, paths, sources
from klogger.export import SUFFIX, has_segments
from klogger.failure import Failure, did_you_mean
from klogger.folder import is_entry
from klogger.units import printable

FILE = "mcp.toml"
SECONDS, BYTES, QUERY_SECONDS = 10, 64 << 20, 30
SIZE = re.compile(r"(\d{1,15})([KMG]?)")
SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}
SCHEMA = re.compile(r"\w+")
# No folder of segments or tables has more files.
FILES_MAX = 10_000
EXAMPLE = """\
[record]
schemata = ["waits", "peers"]
folder = "~/logs"
seconds = 10
bytes = "64M"
pids = true"""


@dataclass(frozen=True)
class Recordings:
    """`all`: of all processes; `pids`: of running ones; `commands`: of commands, which it runs."""

    schemata: tuple[str, ...]
    folder: Path
    seconds: float = SECONDS
    bytes: int = BYTES
    all: bool = False
    pids: bool = False
    commands: bool = False


@dataclass(frozen=True)
class Allowed:
    """`read`: folders whose logs may be read. `file`: where all this is said, or may be."""

    file: Path
    read: tuple[Path, ...] = field(default_factory=lambda: (Path.cwd(),))
    query_seconds: float = QUERY_SECONDS
    record: Recordings | None = None

    def refused(self, what: str, write: str) -> Failure:
        """A refusal says what the user would have to write."""
        return Failure(
            f"{what} is not allowed by {self.file}",
            help=f"the user may allow it there: {write}",
        )

    def log(self, path: str) -> Path:
        """A log that may be read, by its path without links."""
        if not path or "\0" in path:
            raise Failure("there is no log of this name")
        folders = [*self.read, *([self.record.folder] if self.record else [])]
        try:
            found = real(path)
        except OSError as error:
            raise Failure(f"{printable(path)}: {error.strerror}") from None
        if not any(inside(found, folder) for folder in folders):
            raise self.refused(
                f"to read {printable(str(found))}",
                f"read = [{', '.join(map(quoted, [*map(str, folders), str(found.parent)]))}]",
            )
        try:
            check_kind(found)
        except OSError as error:
            raise Failure(f"{printable(str(found))}: {error.strerror}") from None
        return found


def quoted(text: str) -> str:
    return f'"{printable(text)}"'


def real(path: str | os.PathLike[str]) -> Path:
    """Where a path leads, all links followed. Raises OSError."""
    with paths.reached(path) as way:
        if way.of_kernel:
            raise OSError(0, "is a descriptor, and no file")
        os.stat(way.name, dir_fd=way.folder, follow_symlinks=False)
        folder = Path(os.readlink(f"/proc/self/fd/{way.folder}"))
        return folder if way.name == "." else folder / way.name


def inside(path: Path, folder: Path) -> bool:
    """Nothing is in a folder that others can write, nor in one within it, nor is a log such a
    folder: they would lead us elsewhere.
    """
    try:
        top = real(folder)
        way = [one for one in (path, *path.parents) if one.is_relative_to(top)]
        folders = way if path.is_dir() else way[1:]
        return bool(way) and not any(map(outputs.foreign, folders))
    except OSError:
        return False


def check_kind(path: Path) -> None:
    """A regular file, or a folder of klogger's that has nothing but such. Not the entry of a
    dataset, which names files anywhere in it.
    """
    if is_entry(path):
        raise Failure(f"{printable(str(path))} is of a dataset, which is not read for agents")
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode):
        if not (path / "meta.json").is_file() and not has_segments(path):
            raise Failure(f"{printable(str(path))} is a folder without a log")
        check_files(path)
    elif not stat.S_ISREG(found.st_mode):
        raise Failure(f"{printable(str(path))} is not a regular file")
    # If they are as new as the log, they are what is read.
    tables = path.with_name(path.name + SUFFIX)
    if os.path.lexists(tables):
        check_files(tables)


def check_files(folder: Path) -> None:
    """All that is in a folder, and in those within it, is a regular file there."""
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise Failure(f"{printable(str(folder))} is not a folder")
    left, seen = [folder], 0
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                seen += 1
                if entry.is_dir(follow_symlinks=False) and seen <= FILES_MAX:
                    left.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False) or seen > FILES_MAX:
                    raise Failure(
                        f"{printable(str(folder))} has more than regular files in it:"
                        f" {printable(entry.name)}"
                    )


def config_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "klogger" / FILE


def load(file: Path | None = None) -> Allowed:
    """`file`: another one than the user's own."""
    place = file or config_file()
    try:
        said = tomllib.loads(sources.read(place))
    except FileNotFoundError:
        if file is not None:
            raise Failure(f"{place}: no such file") from None
        return Allowed(place)
    except OSError as error:
        raise Failure(f"{place}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Failure(f"{place}: {error}") from None
    with naming(place):
        return read(place, said)


@contextlib.contextmanager
def naming(file: Path) -> Any:
    """A fault names the file."""
    try:
        yield
    except Failure as failure:
        raise Failure(f"{file}: {failure.message}", help=failure.help) from None


def read(place: Path, said: Mapping[str, Any]) -> Allowed:
    known(said, "", ("read", "query_seconds", "record"))
    made: dict[str, Any] = {}
    if "read" in said:
        made["read"] = tuple(folder_of(one, "read") for one in texts(said, "read"))
    if "query_seconds" in said:
        made["query_seconds"] = seconds_of(said, "query_seconds")
    if "record" in said:
        if not isinstance(said["record"], dict):
            raise Failure("'record' is not a table", help=f"write:\n{EXAMPLE}")
        made["record"] = recordings(said["record"])
    return Allowed(place, **made)


def recordings(said: Mapping[str, Any]) -> Recordings:
    flags = ("all", "pids", "commands")
    known(said, "record.", ("schemata", "folder", "seconds", "bytes", *flags))
    for key in ("schemata", "folder"):
        if key not in said:
            raise Failure(f"'record.{key}' is missing", help=f"for example:\n{EXAMPLE}")
    schemata = texts(said, "schemata")
    if wrong := next((one for one in schemata if not SCHEMA.fullmatch(one)), None):
        raise Failure(f"'record.schemata': '{printable(wrong)}' is not the name of a schema")
    made: dict[str, Any] = {}
    for key in flags:
        if key in said:
            if type(said[key]) is not bool:
                raise Failure(f"'record.{key}' is true or false")
            made[key] = said[key]
    if "seconds" in said:
        made["seconds"] = seconds_of(said, "seconds")
    if "bytes" in said:
        made["bytes"] = bytes_of(said["bytes"])
    return Recordings(tuple(schemata), folder_of(said["folder"], "record.folder"), **made)


def known(said: Mapping[str, Any], where: str, keys: tuple[str, ...]) -> None:
    for key in said:
        if key not in keys:
            tip = did_you_mean(key, keys) or f"there are: {', '.join(keys)}"
            raise Failure(f"there is no '{where}{printable(key)}'", help=tip)


def texts(said: Mapping[str, Any], key: str) -> list[str]:
    value = said[key]
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise Failure(f"'{key}' is not a list of texts")
    return value


def folder_of(value: Any, key: str) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise Failure(f"'{key}' is not the path of a folder")
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:
        raise Failure(f"'{key}': {error}") from None
    if not path.is_absolute():
        raise Failure(f"'{key}': {printable(value)} does not begin with / or ~")
    return path


def seconds_of(said: Mapping[str, Any], key: str) -> float:
    value = said[key]
    if type(value) not in (int, float) or not 0 < value <= 86_400:
        raise Failure(f"'{key}' is not a number of seconds up to a day")
    return float(value)


def bytes_of(value: Any) -> int:
    match = SIZE.fullmatch(str(value)) if type(value) in (int, str) else None
    found = int(match[1]) << SHIFTS[match[2]] if match else 0
    if not found:
        raise Failure("'record.bytes' is not a size", help='such as "64M", or a number of bytes')
    return found
