# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Brings the logs of a host home, over the connection that is there: each with its checksum; after
a failure from where it broke off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from klogger.failure import Failure
from klogger_lab.collect.ssh import Lost, Ssh

# What a recorder writes: the log, or the segments of a folder; and snapshots beside it.
NAMES = re.compile(
    r"recording\.klog|recording\.segments/segment-\d{6,}\.klog"
    r"|recording(\.segments)?\.snapshot-\d+\.klog"
)
# Those with a trailer are complete (docs/log-format.md), and nobody writes to them any more.
LIST = """
list() {
    for file in "$1"/*.klog "$1"/*/*.klog; do
        [ -f "$file" ] || continue
        [ "$2" = all ] || [ "$(tail -c 8 "$file")" = klogend ] || continue
        echo "$token ${file#"$1"/}"
    done
}
"""
SEND = """
send() {
    sum=$(sha256sum <"$1") || return
    echo "$token $sum"
    tail -c "+$2" <"$1"
}
"""
TRIES = 5
PIECE = 1 << 18


def logs(ssh: Ssh, folder: str, *, complete: bool) -> list[str]:
    """Their names in the folder, of a recording that runs only those that are complete. What a host
    says is a name only if it is one of ours.
    """
    which = "complete" if complete else "all"
    found = ssh.ask(f"{LIST}list {shlex.join([folder, which])}")
    return sorted(name for [name] in (f for f in found if len(f) == 1) if NAMES.fullmatch(name))


def bring(
    ssh: Ssh, source: str, target: Path, shown: Callable[[int], None], tries: int = TRIES
) -> None:
    part = target.with_name(f"{target.name}.part")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(tries):
        try:
            copy(ssh, source, part, shown)
            os.replace(part, target)
            return
        except Lost as lost:
            reason = str(lost)
        time.sleep(min(2.0**number / 4, 4.0) if number + 1 < tries else 0)
    raise Failure(reason)


def copy(ssh: Ssh, source: str, part: Path, shown: Callable[[int], None]) -> None:
    """Adds to what is there of it. Raises Lost if it is not whole then."""
    have = part.stat().st_size if part.exists() else 0
    with ssh.start(f"{SEND}send {shlex.join([source, str(have + 1)])}") as session:
        assert session.stdout
        session.close_input()
        said = session.answer()
        if said:
            with private(part) as out:
                while piece := session.stdout.read(PIECE):
                    out.write(piece)
                    have += len(piece)
                    shown(have)
    if not said or session.returncode:
        raise Lost(session.reason())
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != said[0]:
        part.unlink()
        raise Lost("it came with a wrong checksum")


def private(path: Path) -> IO[bytes]:
    """Appends; a log has data of all processes."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, 0o600), "wb")


def remove(ssh: Ssh, *files: str) -> None:
    with contextlib.suppress(Lost):
        ssh.ask(f"rm -rf -- {shlex.join(files)}")
