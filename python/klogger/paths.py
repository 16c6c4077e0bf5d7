# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""From a path to a descriptor, folder by folder, with who made each folder and link on the way.

Between a look at a path and its use somebody else may put another file there. What a descriptor
has said stays true of it.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

LINKS_MAX = 40
# Only a place: it needs no right to read what is there, and opening it has no effect.
PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Link:
    """A symbolic link, and the folder that it is in."""

    uid: int
    folder: os.stat_result
    path: str


@dataclass
class Reached:
    """`folder`: a descriptor of the folder that has the last part of a path, `name`, which need
    not be there, and is no link. `folders`: all on the way from the root, the last one included.
    `through`: what `name` is a link of the kernel's own (/proc/self/fd), which only the kernel can
    follow.
    """

    folder: int
    name: str
    folders: list[os.stat_result] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    of_kernel: bool = False

    @property
    def parent(self) -> os.stat_result:
        return self.folders[-1]


@contextlib.contextmanager
def reached(
    path: str | os.PathLike[str],
    *,
    make: bool = False,
    check: Callable[[Link], None] | None = None,
    last: bool = True,
) -> Iterator[Reached]:
    """`make`: folders that are not there are made, as private as the umask says. `check`: is asked
    of each link before it is followed. `last`: whether one in the last place is.

    Raises OSError, as opening the path would.
    """
    whole = os.fspath(path)
    walk = Walk(whole if whole.startswith("/") else f"{os.getcwd()}/{whole}", make, check, last)
    try:
        yield walk.to_the_end()
    finally:
        os.close(walk.folder)


class Walk:
    def __init__(
        self, path: str, make: bool, check: Callable[[Link], None] | None, last: bool
    ) -> None:
        self.make, self.check, self.last = make, check, last
        self.parts = deque(part for part in path.split("/") if part not in ("", "."))
        self.folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.folders = [os.fstat(self.folder)]
        self.links: list[Link] = []

    def to_the_end(self) -> Reached:
        while self.parts:
            name = self.parts.popleft()
            found = self.look(name)
            if not self.parts and (found is None or not self.last):
                return Reached(self.folder, name, self.folders, self.links)
            if found is not None and stat.S_ISLNK(found.st_mode):
                if self.is_of_kernel(name):
                    return Reached(self.folder, name, self.folders, self.links, of_kernel=True)
                self.follow(name, found)
            elif not self.parts and name != "..":
                return Reached(self.folder, name, self.folders, self.links)
            else:
                self.enter(name, is_there=found is not None)
        return Reached(self.folder, ".", self.folders, self.links)

    def look(self, name: str) -> os.stat_result | None:
        try:
            return os.stat(name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            if self.parts and not self.make:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
            return None

    def is_of_kernel(self, name: str) -> bool:
        """A link to a descriptor's file: its text need not be a path."""
        where = os.readlink(f"/proc/self/fd/{self.folder}")
        return bool(where.startswith("/proc/") and where.endswith("/fd"))

    def follow(self, name: str, found: os.stat_result) -> None:
        """The descriptor of a link is of the same link, whatever is there later."""
        link = os.open(name, PLACE, dir_fd=self.folder)
        try:
            found = os.fstat(link)
            if not stat.S_ISLNK(found.st_mode) or len(self.links) >= LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = os.readlink("", dir_fd=link)
        finally:
            os.close(link)
        self.links.append(Link(found.st_uid, self.folders[-1], name))
        if self.check is not None:
            self.check(self.links[-1])
        self.parts.extendleft(reversed([p for p in target.split("/") if p not in ("", ".")]))
        if target.startswith("/"):
            self.move(os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def enter(self, name: str, *, is_there: bool) -> None:
        if not is_there:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=self.folder)
        self.move(os.open(name, PLACE | os.O_DIRECTORY, dir_fd=self.folder))

    def move(self, folder: int) -> None:
        os.close(self.folder)
        self.folder = folder
        self.folders.append(os.fstat(folder))


def callers() -> frozenset[int]:
    """Whose files are as good as the caller's own: root, and who has called sudo."""
    found = {0, os.geteuid()}
    asked = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and asked.isdecimal() and len(asked) < 11:
        found.add(int(asked))
    return frozenset(found)


def others_write(found: os.stat_result, descriptor: int | None = None) -> bool:
    """Whether others than its owner and root may write it. A group that has no one but the owner,
    as many systems make for each user, is nobody else. `descriptor`: of the same file, whose list
    of further users (ACL) counts as well.
    """
    if found.st_mode & stat.S_IWOTH:
        return True
    if not found.st_mode & stat.S_IWGRP:
        return False
    if descriptor is not None:
        with contextlib.suppress(OSError):
            if "system.posix_acl_access" in os.listxattr(descriptor):
                return True
    return not is_private(found.st_gid, found.st_uid)


def is_private(group: int, owner: int) -> bool:
    try:
        name, members = pwd.getpwuid(owner).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return members.gr_name == name and not set(members.gr_mem) - {name}


def user(uid: int) -> str:
    """As a message names it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"with the number {uid}"


def shown(path: str | os.PathLike[str]) -> str:
    """Of a path in a message, whose bytes need not be text."""
    return os.fsencode(path).decode(errors="replace")


def same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def real(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(path))
