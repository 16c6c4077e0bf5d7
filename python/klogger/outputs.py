# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Makes, replaces and removes files and folders: each output of klogger is opened here.

In a folder that others can write, the name of an output may be taken by somebody else's link, file
or folder. So nothing is opened by its path: the way to it is walked by descriptors (`paths`), the
content goes to a new file with a random name, and this takes the name of the output when it is
whole.

- A link on the way is followed if the caller or root made it, or if only they can write the folder
  that it is in.
- A file that is there must belong to the caller or to root, or to the user who called sudo.
- Devices, pipes, and descriptors such as /dev/stdout are written as they are.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from klogger import paths
from klogger.failure import Failure
from klogger.paths import Reached

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
OLD = os.O_WRONLY | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NOBODY: frozenset[int] = frozenset()
ANOTHER = "choose another name, or a folder that only you can write"


@contextlib.contextmanager
def failing(path: str | os.PathLike[str]) -> Iterator[None]:
    """What cannot be written ends with one message."""
    try:
        yield
    except OSError as error:
        raise Failure(f"cannot write {paths.shown(path)}: {error.strerror or error}") from None


def refused(path: str | os.PathLike[str], why: str, help: str = ANOTHER) -> Failure:
    return Failure(f"cannot write {paths.shown(path)}: {why}", help=help)


@contextlib.contextmanager
def reached(path: str | os.PathLike[str], *, make: bool = True) -> Iterator[Reached]:
    """The folder of an output, and its name there. Raises Failure where somebody else may have led
    the way to it.
    """
    own = paths.callers()

    def check(link: paths.Link) -> None:
        safe = link.folder.st_uid in own and not paths.others_write(link.folder)
        if link.uid not in own and not safe:
            who = paths.user(link.uid)
            raise refused(path, f"{paths.shown(link.path)} is a link of user {who}")

    with paths.reached(path, make=make, check=check) as way:
        yield way


def there(way: Reached) -> os.stat_result | None:
    try:
        return os.stat(way.name, dir_fd=way.folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def check_file(
    path: str | os.PathLike[str], found: os.stat_result, trusted: frozenset[int] = NOBODY
) -> None:
    """Of what is in the place of an output. The owner of a device is who may make devices.
    `trusted`: users whose files are as good as the caller's own there.
    """
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISLNK(found.st_mode):
        raise refused(path, "it was replaced by a link meanwhile")
    if not stat.S_ISCHR(found.st_mode) and found.st_uid not in paths.callers() | trusted:
        raise refused(path, f"it belongs to user {paths.user(found.st_uid)}")


def write(path: str | os.PathLike[str], content: bytes) -> None:
    """A file with this content, in a folder that is made if need be."""
    with created(path) as file:
        file.write(content)


@contextlib.contextmanager
def created(path: str | os.PathLike[str], *, text: bool = False) -> Iterator[IO[Any]]:
    """A new file, which takes its name when it is whole; what is there until then is replaced."""
    with failing(path), reached(path) as way:
        found = None if way.of_kernel else there(way)
        if found is not None:
            check_file(path, found)
        if way.of_kernel or (found is not None and not stat.S_ISREG(found.st_mode)):
            with as_file(existing(path, way), text=text) as file:
                yield file
            return
        try:
            name, descriptor = new_file(way, found)
        except OSError as error:
            if found is None or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            # A file of the caller's, in a folder that he cannot write.
            with as_file(existing(path, way), text=text) as file:
                file.truncate(0)
                yield file
            return
        try:
            with as_file(descriptor, text=text) as file:
                yield file
            os.replace(name, way.name, src_dir_fd=way.folder, dst_dir_fd=way.folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=way.folder)
            raise


def as_file(descriptor: int, *, text: bool) -> IO[Any]:
    if text:
        return open(descriptor, "w", newline="", encoding="utf-8", errors="surrogateescape")
    return open(descriptor, "wb")


def random_name(way: Reached) -> str:
    """Beside the output, until what is made there is whole."""
    return f".{way.name[:100]}.{secrets.token_hex(8)}"


def new_file(way: Reached, found: os.stat_result | None) -> tuple[str, int]:
    """With a name that nobody can know before. `found`: what it will replace; it gets its owner and
    mode.
    """
    name = random_name(way)
    descriptor = os.open(name, NEW, 0o666 if found is None else 0o600, dir_fd=way.folder)
    if found is not None:
        # Who has called sudo keeps his own file. First, for it may be less open to others.
        if found.st_uid != os.geteuid() and found.st_uid in paths.callers():
            with contextlib.suppress(OSError):
                os.fchown(descriptor, found.st_uid, found.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & 0o777)
    return name, descriptor


def existing(
    path: str | os.PathLike[str], way: Reached, flags: int = 0, trusted: frozenset[int] = NOBODY
) -> int:
    """A descriptor of what is there."""
    if way.of_kernel:
        where = os.readlink(f"/proc/self/fd/{way.folder}")
        if where == f"/proc/{os.getpid()}/fd":
            # The same open file, so that nothing of it is written over.
            return os.dup(int(way.name))
        return os.open(way.name, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=way.folder)
    descriptor = os.open(way.name, OLD | flags, dir_fd=way.folder)
    try:
        check_file(path, os.fstat(descriptor), trusted)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def continued(
    path: str | os.PathLike[str], *, append: bool, trusted: frozenset[int] = NOBODY
) -> IO[str]:
    """A file that others read while it is written: what is there keeps its place. `append`: and its
    content. `trusted`: see `check_file`.
    """
    with failing(path), reached(path) as way:
        try:
            flags = NEW | os.O_APPEND
            descriptor = -1 if way.of_kernel else os.open(
                way.name, flags, 0o666, dir_fd=way.folder
            )  # fmt: skip
        except FileExistsError:
            descriptor = -1
        if descriptor < 0:
            descriptor = existing(path, way, os.O_APPEND, trusted)
            if not append and not way.of_kernel and stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.ftruncate(descriptor, 0)
        return open(descriptor, "a", encoding="utf-8", errors="surrogateescape")


@contextlib.contextmanager
def scratch(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Where another program or library writes a file, which then takes the name `path`, if there is
    one. That the place of an output is a device or a pipe need not concern them.
    """
    with failing(path), reached(path) as way:
        found = None if way.of_kernel else there(way)
        if found is not None:
            check_file(path, found)
        if way.of_kernel or (found is not None and not stat.S_ISREG(found.st_mode)):
            with tempfile.TemporaryDirectory(prefix="klogger-") as private:
                yield Path(private) / "file"
                with as_file(existing(path, way), text=False) as to:
                    copied(Path(private) / "file", to)
            return
        name = random_name(way)
        os.mkdir(name, 0o700, dir_fd=way.folder)
        inside = os.open(name, FOLDER, dir_fd=way.folder)
        try:
            yield Path(f"/proc/self/fd/{inside}/file")
            if "file" in os.listdir(inside):
                os.replace("file", way.name, src_dir_fd=inside, dst_dir_fd=way.folder)
        finally:
            for left in os.listdir(inside):
                os.unlink(left, dir_fd=inside)
            os.close(inside)
            os.rmdir(name, dir_fd=way.folder)


def copied(file: Path, to: IO[bytes]) -> None:
    with contextlib.suppress(FileNotFoundError), file.open("rb") as whole:
        shutil.copyfileobj(whole, to)


def folder(
    path: str | os.PathLike[str], mode: int = 0o777, trusted: frozenset[int] = NOBODY
) -> Path:
    """A folder for outputs, which is made if need be. One of another user is refused, for he can
    exchange what is in it. `trusted`: see `check_file`.
    """
    with failing(path), reached(path) as way:
        if there(way) is None:
            with contextlib.suppress(FileExistsError):
                os.mkdir(way.name, mode, dir_fd=way.folder)
        descriptor = os.open(way.name, FOLDER, dir_fd=way.folder)
        found = os.fstat(descriptor)
        os.close(descriptor)
        if found.st_uid not in paths.callers() | trusted:
            raise refused(path, f"it belongs to user {paths.user(found.st_uid)}")
    return Path(path)


def own_folder(path: str | os.PathLike[str], help: str = "set XDG_CACHE_HOME") -> Path:
    """A folder from which klogger believes what it finds there: nobody else can write it."""
    folder(path, 0o700)
    if why := foreign(path):
        raise refused(path, why, help)
    return Path(path)


def foreign(path: str | os.PathLike[str]) -> str:
    """Why what is in a folder cannot be believed; empty: it can be. Raises OSError."""
    with paths.reached(path) as way:
        own = paths.callers()
        made = [link.uid for link in way.links if link.uid not in own]
        if made:
            return f"it is behind a link of user {paths.user(made[0])}"
        descriptor = os.open(way.name, FOLDER, dir_fd=way.folder)
        try:
            found = os.fstat(descriptor)
            if found.st_uid not in own:
                return f"it belongs to user {paths.user(found.st_uid)}"
            return "other users can write it" if paths.others_write(found, descriptor) else ""
        finally:
            os.close(descriptor)


def move(file: Path, to: Path, trusted: frozenset[int] = NOBODY) -> None:
    """A file of klogger's own to the place of an output, in one file system. `trusted`: see
    `check_file`. Raises OSError.
    """
    with paths.reached(file, last=False) as here, reached(to) as way:
        found = there(way)
        if found is not None:
            check_file(to, found, trusted)
        os.replace(here.name, way.name, src_dir_fd=here.folder, dst_dir_fd=way.folder)


def remove(path: str | os.PathLike[str]) -> None:
    """A file, if it is there; of a link, the link. Raises OSError."""
    with contextlib.suppress(FileNotFoundError), paths.reached(path, last=False) as way:
        os.unlink(way.name, dir_fd=way.folder)


def remove_folder(path: str | os.PathLike[str]) -> None:
    """With all that is in it; links are not followed."""
    with contextlib.suppress(OSError), paths.reached(path, last=False) as way:
        shutil.rmtree(way.name, ignore_errors=True, dir_fd=way.folder)
