# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One host, by the user's own `ssh`. All that is run there is `sh`, which reads what it is to do
from its standard input: so the login shell of the host, whichever it is, has one word to read, and
names with blanks or quotes in them are quoted for `sh` only.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from klogger.failure import Failure

# The user's own options stand before these, and so prevail.
OPTIONS = (
    "BatchMode=yes", "ConnectTimeout=20", "ServerAliveInterval=15", "ServerAliveCountMax=4",
    "ControlPersist=no", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes",
    "RemoteCommand=none", "PermitLocalCommand=no", "LogLevel=ERROR",
)  # fmt: skip
# ssh's own exit code, if it could not connect or lost its connection.
NO_CONNECTION = 255


class Lost(Exception):
    """The connection: what was asked for may succeed later."""


class Session(subprocess.Popen[bytes]):
    """An `sh` on a host. It is out of our process group, so that Ctrl-C does not end it before the
    recording. `token` begins our lines in its output, to which others write as well.
    """

    def __init__(self, words: Sequence[str], token: str) -> None:
        self.token = token
        self.complaints = tempfile.TemporaryFile()  # noqa: SIM115
        super().__init__(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints,
            process_group=0,
        )  # fmt: skip

    def tell(self, text: str) -> None:
        """A connection that is gone is noticed by whoever waits for the answer."""
        assert self.stdin
        try:
            self.stdin.write(os.fsencode(text))
            self.stdin.flush()
        except (OSError, ValueError):
            return

    def close_input(self) -> None:
        assert self.stdin
        try:
            self.stdin.close()
        except OSError:
            return

    def line(self) -> tuple[str, list[str] | None] | None:
        """The next line: what others wrote, and our words if there are any. None: the end."""
        assert self.stdout
        found = self.stdout.readline()
        if not found:
            return None
        text, mark, said = os.fsdecode(found).rstrip("\n").partition(f"{self.token} ")
        return text, said.split() if mark else None

    def answer(self) -> list[str] | None:
        """Our next line, in words. None: the end."""
        while (found := self.line()) is not None:
            if found[1] is not None:
                return found[1]
        return None

    def reason(self, otherwise: str = "the connection was lost") -> str:
        """What ssh, or a program there, said last."""
        self.complaints.seek(0)
        text = self.complaints.read().decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else otherwise


class Ssh:
    """`socket`: by which all that is run on a host shares one login."""

    def __init__(self, host: str, options: Sequence[str], socket: Path) -> None:
        self.host = host
        self.options = options
        self.socket = socket
        self.token = f"klogger-collect-{secrets.token_hex(8)}"
        self.given_up = False

    def words(self, *, master: bool) -> list[str]:
        own = [*OPTIONS, f"ControlMaster={'yes' if master else 'no'}", f"ControlPath={self.socket}"]
        pairs = [word for option in own for word in ("-o", option)]
        return ["ssh", *self.options, *pairs, "-T", "--", self.host, "sh"]

    def start(self, script: str, *, master: bool = False) -> Session:
        """The script ends in a line that does all, as some shells read ahead. Its input stays
        open.
        """
        if self.given_up:
            raise Lost("given up")
        try:
            found = Session(self.words(master=master), self.token)
        except OSError as error:
            raise Failure(
                f"cannot run ssh: {error.strerror}", help="install openssh-client"
            ) from None
        found.tell(f"token={self.token}\n{script}\n")
        return found

    def ask(self, script: str) -> list[list[str]]:
        """All lines that a script says."""
        with self.start(script) as session:
            session.close_input()
            found = []
            while (words := session.answer()) is not None:
                found.append(words)
        if session.returncode == NO_CONNECTION:
            raise Lost(session.reason())
        return found
