# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The C libraries that the study `threads` compares, what their files take, and what the source
printed of glibc and of uClibc in 2006.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from klogger.analysis import Column, Picture
from klogger.executor import Result, Rows
from klogger.log import Log
from klogger_lab.study import model
from klogger_lab.study.model import Plan, Run, column


@dataclass(frozen=True)
class Library:
    """`compiler`: what builds programs with it; "" is the machine's own. `folder`: where its files
    are, as a pattern; "" is where the compiler finds them. `threads`: whether the programs with
    threads are built with it too.
    """

    name: str
    compiler: str
    package: str
    folder: str = ""
    threads: bool = True
    dynamic: bool = True


# The machine's own: glibc, or what else Python was built with.
OWN = Library(platform.libc_ver()[0] or "libc", "", "libc6-dev")
LIBRARIES = (
    OWN,
    Library("musl", "musl-gcc", "musl-tools", "/usr/lib/*-linux-musl"),
    Library(
        "dietlibc", "diet gcc", "dietlibc-dev", "/usr/lib/diet/lib-*", threads=False, dynamic=False
    ),
)


def is_here(library: Library) -> bool:
    return not library.compiler or shutil.which(library.compiler.split()[0]) is not None


def here(threads: bool = False) -> list[Library]:
    """Those that this machine has; with `threads`, those whose threads are compared."""
    return [x for x in LIBRARIES if is_here(x) and (x.threads or not threads)]


def missing() -> list[str]:
    return [
        f"{x.name}: there is no '{x.compiler.split()[0]}' here (Debian: {x.package})."
        for x in LIBRARIES
        if not is_here(x)
    ]


def version(library: Library) -> str:
    """Its name, with its version if it tells it."""
    if library is OWN:
        return " ".join([library.name, platform.libc_ver()[1]]).strip()
    commands = {"musl": [f"/lib/ld-musl-{platform.machine()}.so.1"],
                "dietlibc": ["diet", "-v"]}  # fmt: skip
    try:
        said = subprocess.run(
            commands[library.name], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, KeyError, IndexError, ValueError, subprocess.TimeoutExpired):
        return library.name
    number = re.search(r"[Vv]ersion (\d[\w.]*)", said.stderr + said.stdout)
    return f"{library.name} {number[1]}" if number else library.name


def program(plan: Plan, library: Library, name: str, *flags: str) -> Path:
    if not library.compiler:
        return plan.build(name, flags=flags) if flags else plan.build(name)
    return plan.build(name, compiler=library.compiler, flags=flags)


def figure(  # noqa: PLR0917
    name: str,
    heading: tuple[str, str],
    columns: Sequence[Column],
    rows: Sequence[Sequence[Any]],
    picture: Picture | None = None,
    points: Rows | None = None,
    others: Sequence[Column] = (),
    notes: Sequence[str] = (),
) -> Result:
    """A table, with a picture of the table's rows or of other points; `others` are the columns that
    only the points have.
    """
    made = model.result(name, *heading, [*columns, *others], [], picture, points, notes=list(notes))
    made.table = Rows([c.name for c in columns], [list(row) for row in rows])
    if points is None:
        made.points = made.table
    return made


def reports(run: Run, role: str) -> list[dict[str, Any]]:
    """The lines of JSON with this role that an arm's program printed."""
    found = []
    for line in run.output.splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            continue
        if isinstance(one, dict) and one.get("role") == role:
            found.append(one)
    return found


def of_part(runs: Sequence[Run], part: str) -> list[tuple[str, Run]]:
    """The runs of a part of the study, with the library's name."""
    return [
        (str(run.arm.parameters.get("library", "")), run)
        for run in runs
        if run.arm.parameters.get("part") == part
    ]


def log_of(run: Run) -> Log:
    assert run.log is not None
    return run.log


def first(cursor: duckdb.DuckDBPyConnection, query: str, *values: Any) -> tuple[Any, ...]:
    row = cursor.execute(query, list(values)).fetchone()
    assert row is not None
    return row


def listed(numbers: Sequence[Any]) -> str:
    """A list of integers as SQL: quicker than a parameter for each."""
    return f"[{', '.join(str(int(n)) for n in numbers)}]::BIGINT[]"


# Bytes in the source's tables, glibc and uClibc. A name stands for the shared file and the archive.
PAPER_SHARED = {
    "libc": (1673805, 717176),
    "ld": (148652, 35856),
    "libm": (563876, 80040),
    "libpthread": (120825, 97189),
    "libcrypt": (28748, 13676),
    "libdl": (16303, 13716),
    "libnsl": (108321, 5032),
    "libresolv": (88470, 5036),
    "librt": (45042, 14468),
    "libutil": (13432, 9320),
}
PAPER_SHARED_TOTAL = (2807474, 991509)
PAPER_STATIC = {
    "libc": (3426208, 1713134),
    "libm": (956272, 248598),
    "libpthread": (281502, 250852),
    "libdl": (10670, 36020),
    "libcrypt": (29154, 15630),
    "libnsl": (161558, 1100),
    "libresolv": (111340, 1108),
    "librt": (79368, 29406),
    "libutil": (11464, 9188),
    "libpthread_nonshared": (1404, 1288),
}
PAPER_STATIC_TOTAL = (5068940, 2306324)
# How the files of glibc are called today. One that is gone has moved into libc.
SHARED_FILES = {
    "libc": "libc.so.6",
    "ld": "ld-linux-x86-64.so.2",
    "libm": "libm.so.6",
    "libpthread": "libpthread.so.0",
    "libcrypt": "libcrypt.so.1",
    "libdl": "libdl.so.2",
    "libnsl": "libnsl.so.1",
    "libresolv": "libresolv.so.2",
    "librt": "librt.so.1",
    "libutil": "libutil.so.1",
}


def size_of(library: Library, name: str) -> int | None:
    """Bytes of a file of a library; None if it has none."""
    path = found_by_compiler(name) if not library.folder else found_in(library.folder, name)
    try:
        if path is None or not path.is_file():
            return None
        # Some files are scripts of the linker, which name others.
        text = path.read_bytes()[:4096]
        if text.startswith(b"/*"):
            named = re.findall(r"/[\w./-]+\.(?:a|so[.\d]*)", text.decode(errors="replace"))
            return sum(Path(one).stat().st_size for one in dict.fromkeys(named))
        return path.stat().st_size
    except OSError:
        return None


def found_by_compiler(name: str) -> Path | None:
    try:
        said = subprocess.run(
            [os.environ.get("CC", "cc"), f"-print-file-name={name}"],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    # A compiler that does not find it repeats the name.
    path = Path(said.stdout.strip())
    return path if path.is_absolute() else None


def found_in(pattern: str, name: str) -> Path | None:
    return next(iter(sorted(Path("/").glob(f"{pattern[1:]}/{name}"))), None)


def measure() -> dict[str, dict[str, int | None]]:
    """Sizes by library, then by kind and name: "shared libc". dietlibc's static files serve as its
    only ones.
    """
    found: dict[str, dict[str, int | None]] = {}
    for library in here():
        mine = found[library.name] = {}
        for name in PAPER_STATIC:
            mine[f"static {name}"] = size_of(library, f"{name}.a")
        for name in PAPER_SHARED if library.dynamic else ():
            # musl has one file, which is the loader as well.
            file = SHARED_FILES[name] if library is OWN else f"{name}.so"
            mine[f"shared {name}"] = size_of(library, file)
    return found


def sizes(found: dict[str, dict[str, int | None]]) -> Result:
    columns = [
        column("file", "file of the library"),
        *(column(f"{name}_today", f"{name} on this machine, bytes", "count") for name in found),
        column("glibc_paper", "glibc in the paper, bytes: MIPS32, August 2005", "count"),
        column("uclibc_paper", "uClibc in the paper, bytes", "count"),
    ]
    rows: list[list[Any]] = []
    points = []
    for kind, paper, total in (
        ("static", PAPER_STATIC, PAPER_STATIC_TOTAL),
        ("shared", PAPER_SHARED, PAPER_SHARED_TOTAL),
    ):
        for name, numbers in paper.items():
            key = f"{kind} {name}"
            rows.append([key, *(mine.get(key) for mine in found.values()), *numbers])
        sums = [
            sum(mine.get(f"{kind} {name}") or 0 for name in paper) or None
            for mine in found.values()
        ]
        rows.append([f"{kind}, all of these", *sums, *total])
        named = [*(f"{name} today" for name in found), "glibc, paper", "uClibc, paper"]
        points += [
            [all_of, who, kind]
            for who, all_of in zip(named, [*sums, *total], strict=True)
            if all_of is not None
        ]
    return figure(
        "sizes",
        ("Files of the libraries", "How large are the files of a C library?"),
        columns,
        rows,
        Picture("stacked", {"x": "bytes", "y": "library", "colour": "kind"}),
        Rows(["bytes", "library", "kind"], points),
        [
            column("bytes", "size of all files, in bytes", "bytes"),
            column("library", "library"),
            column("kind", "kind of file"),
        ],
        [
            "libcrypt and libnsl are projects of their own today. Since glibc 2.34 the code of"
            " libpthread, libdl, librt and libutil is in libc; what is left of their files is for"
            " old programs. musl has one shared file, which is the loader too, and its other"
            " archives are empty.",
            "The paper's text says that uClibc's libpthread is 30 % smaller; by its table it is"
            f" {100 * (1 - 97189 / 120825):.1f} %.",
        ],
    )
