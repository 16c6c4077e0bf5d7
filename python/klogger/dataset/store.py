# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where the files of a dataset are: a folder, or a store that `fsspec` reaches, such as S3.

A recording is published whole: its files first, then its entry, which is written under another name
and renamed. A store without names to change gets the entry last, in one piece.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from klogger import outputs, sources
from klogger.failure import Failure
from klogger.folder import JSON_MAX

# What is being written, in a folder.
HIDDEN = ".writing"


class Store(Protocol):
    """Names are paths below the dataset, with `/` between their parts."""

    where: str

    def read(self, name: str) -> bytes:
        """FileNotFoundError, if it is not there."""

    def names(self, folder: str) -> list[str]:
        """Of the files directly in a folder, sorted."""

    def files(self) -> dict[str, int]:
        """All files, with their sizes, but for those that are being written."""

    def write(self, name: str, content: bytes) -> None:
        """A small file, whole or not at all."""

    def staged(self) -> contextlib.AbstractContextManager[Path]:
        """A new folder in which a recording is written before it is published."""

    def publish(self, staged: Path, names: Iterable[str], entry: str) -> None: ...

    def remove(self, names: Iterable[str]) -> None: ...

    def fetch(self, name: str, to: Path) -> None: ...

    def held(self, name: str) -> contextlib.AbstractContextManager[None]:
        """While one writer changes a recording, another one waits, where the store can do that."""


class Local:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where = str(folder)

    def read(self, name: str) -> bytes:
        return sources.content(self.folder / name, JSON_MAX)

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self.folder / folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def files(self) -> dict[str, int]:
        found = {}
        for base, folders, names in os.walk(self.folder):
            folders[:] = sorted(f for f in folders if f != HIDDEN)
            for name in sorted(names):
                path = Path(base) / name
                with contextlib.suppress(FileNotFoundError):
                    found[path.relative_to(self.folder).as_posix()] = path.stat().st_size
        return found

    def owner(self) -> frozenset[int]:
        """The caller has named the folder, and so trusts whoever owns it, but nobody else who has
        written there.
        """
        return frozenset({self.folder.stat().st_uid})

    def write(self, name: str, content: bytes) -> None:
        with self.staged() as folder:
            outputs.write(folder / "file", content)
            self.move(folder / "file", self.folder / name)

    def move(self, file: Path, to: Path) -> None:
        move(file, to, self.owner())

    @contextlib.contextmanager
    def staged(self) -> Iterator[Path]:
        hidden = outputs.folder(self.folder / HIDDEN, trusted=self.owner())
        folder = Path(tempfile.mkdtemp(prefix="add-", dir=hidden))
        # As the dataset is: those who read it are not the one who adds to it.
        folder.chmod(self.folder.stat().st_mode & 0o777)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish(self, staged: Path, names: Iterable[str], entry: str) -> None:
        for name in names:
            self.move(staged / name, self.folder / name)
        self.move(staged / entry, self.folder / entry)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            outputs.remove(self.folder / name)
            # Folders that are empty now; another writer may just be filling one.
            with contextlib.suppress(OSError):
                for parent in list((self.folder / name).parents):
                    if parent in (self.folder, self.folder / "recordings"):
                        break
                    parent.rmdir()

    def fetch(self, name: str, to: Path) -> None:
        shutil.copyfile(self.folder / name, to)

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        """The lock ends with its process, however that ends."""
        hidden = outputs.folder(self.folder / HIDDEN, trusted=self.owner())
        lock = hidden / f"{name}.lock"
        with outputs.continued(lock, append=True, trusted=self.owner()) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def move(file: Path, to: Path, trusted: frozenset[int]) -> None:
    """Written to the disk, then in its place."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
    for _ in range(100):
        # While folders are made, somebody who removes a recording may take an empty one away.
        with contextlib.suppress(FileNotFoundError):
            outputs.move(file, to, trusted)
            return
    raise Failure(f"{to.parent}: is removed again and again")


class Reached:
    """A file system of fsspec. What it raises is OSError, from whichever library it comes, and says
    which store it was: a store that fails is as a disk that does.
    """

    def __init__(self, fs: Any, where: str) -> None:
        self.fs, self.where = fs, where

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self.fs, name)

        def asked(*args: object, **options: object) -> Any:
            try:
                return call(*args, **options)
            except FileNotFoundError:
                raise
            except Exception as error:
                said = " ".join(str(error).split()) or type(error).__name__
                raise OSError(f"{self.where}: {said}") from error

        return asked


class Remote:
    """By way of fsspec. It has whole files, and no renaming."""

    def __init__(self, url: str) -> None:
        fs, self.folder = opened(url)
        self.fs = Reached(fs, url)
        self.where = url

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def read(self, name: str) -> bytes:
        return bytes(self.fs.cat_file(self.path(name)))

    def names(self, folder: str) -> list[str]:
        self.fs.invalidate_cache()
        try:
            return sorted(str(n).rsplit("/", 1)[-1] for n in self.fs.ls(self.path(folder), False))
        except FileNotFoundError:
            return []

    def files(self) -> dict[str, int]:
        self.fs.invalidate_cache()
        found = self.fs.find(self.folder, detail=True)
        start = len(self.folder) + 1
        return {str(name)[start:]: int(info["size"]) for name, info in sorted(found.items())}

    def write(self, name: str, content: bytes) -> None:
        self.fs.pipe_file(self.path(name), content)

    @contextlib.contextmanager
    def staged(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="klogger-") as folder:
            yield Path(folder)

    def publish(self, staged: Path, names: Iterable[str], entry: str) -> None:
        listed = list(names)
        self.fs.put([str(staged / n) for n in listed], [self.path(n) for n in listed])
        self.write(entry, (staged / entry).read_bytes())

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                self.fs.rm_file(self.path(name))

    def fetch(self, name: str, to: Path) -> None:
        self.fs.get_file(self.path(name), str(to))

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Two who add the same recording at once write the same."""
        yield


def opened(url: str) -> tuple[Any, str]:
    """A file system of fsspec, and the folder in it."""
    missing = "reads and writes it with fsspec and s3fs: pip install 'klogger[s3]'"
    try:
        import fsspec
    except ImportError:
        raise Failure(f"{url}: the Python package fsspec is not installed", missing) from None
    try:
        fs, folder = fsspec.url_to_fs(url)
    except ImportError as error:
        raise Failure(f"{url}: {error}", missing) from None
    except ValueError as error:
        raise Failure(
            f"{url}: {error}", "a folder, or an address such as s3://BUCKET/PATH"
        ) from None
    return fs, str(folder).rstrip("/")


def store_of(where: str | os.PathLike[str]) -> Store:
    text = os.fspath(where)
    return Remote(text.rstrip("/")) if "://" in text else Local(Path(text))
