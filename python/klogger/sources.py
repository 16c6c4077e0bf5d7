# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Reads the files of SQL that belong to a schema: analyses, what they include, spans, derived
tables.

Which files these are says the log, in the path of its schema, and a log may be a stranger's. So a
file is read only if it is a regular one of limited size, of the caller, of root, or of whoever owns
the folder of schemata that the caller has named or the program came from; if nobody else can write
it; and if no link that another user made leads to it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from klogger import paths
from klogger.paths import Reached, reached

SIZE_MAX = 1 << 20
# Without O_NONBLOCK the open of a FIFO waits for a writer.
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


class Refused(OSError):
    """Why a file is not read; `strerror` has it, as with every error of a file."""

    def __init__(self, why: str) -> None:
        super().__init__(0, why)


def read(path: Path, places: Iterable[Path] = ()) -> str:
    """Its text, without a byte-order mark. `places`: folders of schemata that the caller trusts.

    Raises OSError, with the reason as its `strerror`, and UnicodeDecodeError.
    """
    path = paths.real(path)
    within = places_of(path, places)
    hosts = frozenset(place.st_uid for place in within)
    with reached(path) as way:
        check_way(way, within)
        # A look first, for to open a device may have an effect.
        seen = os.stat(way.name, dir_fd=way.folder, follow_symlinks=False)
        check_kind(seen)
        descriptor = os.open(way.name, READ, dir_fd=way.folder)
        with open(descriptor, "rb") as file:
            check(descriptor, way, hosts)
            found = file.read(SIZE_MAX + 1)
    if len(found) > SIZE_MAX:
        raise larger(SIZE_MAX)
    return found.removeprefix(b"\xef\xbb\xbf").decode()


def content(path: str | os.PathLike[str], most: int) -> bytes:
    """Of a regular file, whoever's it is: a pipe would be waited for, and a device has no end.

    Raises OSError, with the reason as its `strerror`.
    """
    check_kind(os.stat(path), most)
    with open(os.open(path, READ & ~os.O_NOFOLLOW), "rb") as file:
        check_kind(os.fstat(file.fileno()), most)
        found = file.read(most + 1)
    if len(found) > most:
        raise larger(most)
    return found


def names_in(folder: Path, places: Iterable[Path] = ()) -> list[str]:
    """The names in a folder. Raises OSError: of a folder that is not there as well."""
    folder = paths.real(folder)
    within = places_of(folder, places)
    hosts = frozenset(place.st_uid for place in within)
    with reached(folder) as way:
        check_way(way, within)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(way.name, flags, dir_fd=way.folder)
        try:
            check_owner(os.fstat(descriptor), hosts)
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)


def places_of(path: Path, places: Iterable[Path]) -> list[os.stat_result]:
    """Those of the places that the path is in."""
    found = []
    for place in map(paths.real, places):
        if place in (path, *path.parents):
            with contextlib.suppress(OSError):
                found.append(os.stat(place))
    return found


def check_way(way: Reached, within: list[os.stat_result]) -> None:
    """Of the folders from a trusted place on: who names a place, or has installed the program
    there, trusts the way to it. Without such a place, of all.
    """
    # In a user namespace the root of the file system may be of a user that has no number there.
    on_the_way = frozenset({way.folders[0].st_uid, *(place.st_uid for place in within)})
    for folder in below(way, within):
        check_owner(folder, on_the_way, "is in a folder of user")
    if way.of_kernel:
        raise Refused("is not a regular file")


def below(way: Reached, within: list[os.stat_result]) -> list[os.stat_result]:
    """The folders of the way without those above the first of the places that it goes through."""
    for at, folder in enumerate(way.folders):
        if any(paths.same(folder, place) for place in within):
            return way.folders[at:]
    return way.folders


def check_owner(
    found: os.stat_result, hosts: frozenset[int], what: str = "belongs to user"
) -> None:
    if found.st_uid not in paths.callers() | hosts:
        raise Refused(f"{what} {paths.user(found.st_uid)}")


def larger(most: int) -> Refused:
    return Refused(f"is larger than {most >> 20} MiB")


def check_kind(found: os.stat_result, most: int = SIZE_MAX) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Refused("is not a regular file")
    if found.st_size > most:
        raise larger(most)


def check(descriptor: int, way: Reached, hosts: frozenset[int]) -> None:
    """Of the file that is open, which nobody can exchange any more."""
    found = os.fstat(descriptor)
    check_kind(found)
    check_owner(found, hosts)
    if paths.others_write(found, descriptor):
        raise Refused("can be written by other users")
    # Who has called sudo may have his own files read, but not root's by a link.
    makers = {0, os.geteuid(), found.st_uid} | hosts
    for link in way.links:
        if link.uid not in makers:
            raise Refused(f"is behind a link of user {paths.user(link.uid)}")
    # A hard link to somebody's file can be made by whoever can write the folder.
    alone = way.parent.st_uid == found.st_uid and not paths.others_write(way.parent)
    if found.st_nlink > 1 and not alone:
        raise Refused("has a second name, in a folder that others can write")
