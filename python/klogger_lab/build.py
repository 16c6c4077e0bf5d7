# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The programs of a study: C files beside it, compiled once for each content, compiler
and machine.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from klogger import outputs
from klogger.export import cache_home
from klogger.failure import Failure

FLAGS = ("-O2", "-g", "-Wall", "-pthread")
LIBRARIES = ("-lm",)
# A compiler that hangs must not hang the study.
TIMEOUT = 120


def build(folder: Path, name: str, compiler: str = "", flags: Sequence[str] = ()) -> Path:
    """The program made of `folder/name`. It is in the user's cache, under its content.

    `compiler` is another one than `cc`, perhaps with a first argument ("diet gcc"); `flags` are
    added to ours.
    """
    source = folder / name
    if not source.is_file():
        raise Failure(f"{source}: no such file, and the study needs the program")
    command = [*find_compiler(name, compiler), *FLAGS, *flags]
    # The program's name is what logs call its threads.
    program = cache_home() / "studies" / key(source, command) / source.stem
    # It is run, so nobody else may have put it there.
    outputs.own_folder(cache_home())
    if not program.exists():
        compile_to(program, source, command)
    return program


def find_compiler(name: str, wanted: str = "") -> list[str]:
    """The compiler's path, and its first arguments."""
    first, *more = wanted.split() or [os.environ.get("CC", "cc")]
    found = shutil.which(first)
    if found is None:
        raise Failure(
            f"there is no C compiler ('{first}') to build {name} with",
            help="install one: apt install gcc libc6-dev; dnf install gcc; or name yours in CC"
            if not wanted
            else None,
        )
    return [found, *more]


def key(source: Path, command: Sequence[str]) -> str:
    """Changes with the source, the headers beside it, the compiler and its flags, and the
    machine.
    """
    digest = hashlib.sha256(" ".join([*command, *LIBRARIES, platform.machine()]).encode())
    digest.update(str(Path(command[0]).stat().st_mtime_ns).encode())
    for file in [source, *sorted(source.parent.glob("*.h"))]:
        digest.update(b"\0" + file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def compile_to(program: Path, source: Path, command: Sequence[str]) -> None:
    """Under another name first: two studies may want it at once, and a half-written one must not be
    found.
    """
    try:
        outputs.folder(program.parent, 0o700)
        handle, made = tempfile.mkstemp(dir=program.parent)
    except OSError as error:
        raise Failure(
            f"cannot write {program.parent}: {error.strerror}", help="set XDG_CACHE_HOME"
        ) from None
    os.close(handle)
    try:
        done = subprocess.run(
            [*command, "-o", made, source, *LIBRARIES],
            capture_output=True, text=True, errors="replace", timeout=TIMEOUT, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        if done.returncode != 0:
            raise Failure(f"{source}: cannot be compiled\n{done.stderr.strip()}")
        Path(made).chmod(0o755)
        Path(made).replace(program)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(f"{source}: cannot be compiled: {error}") from None
    finally:
        Path(made).unlink(missing_ok=True)
